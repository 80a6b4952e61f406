/* SPDX-License-Identifier: MIT */
/* First passes of the built-in rules with partial sums: on the CPU, one for each type. */
#ifndef CZ_RULE_SUMS_H
#define CZ_RULE_SUMS_H

#include "czero/rule.h"
#include "device/cpu/cpu.h"

/* The head of one. */
#define CZ__SUMS_KERNEL(name)                                                                      \
    static void name(void *queue, int64_t count, const void *param, const void *grad,              \
                     void *const *slots, const double *coefficients, unsigned flags, cz_sum *sums)

/* That for these types, NULL if there is none. */
static inline cz_sums_kernel cz__sums_choose(const cz_device *device, cz_dtype param, cz_dtype grad,
                                             cz_dtype state, cz_sums_kernel f32, cz_sums_kernel f64)
{
    if (device != cz_device_cpu() || grad != param || state != param)
        return NULL;
    if (param == CZ_F32)
        return f32;
    return param == CZ_F64 ? f64 : NULL;
}

static inline void cz__sums_add_squares(cz_dtype dtype, int64_t count, const void *values,
                                        cz_sum *sum)
{
    cz__cpu_add_terms(cz__cpu_kernels_chosen(),
                      dtype == CZ_F32 ? CZ__SUM_SQUARES_F32 : CZ__SUM_SQUARES_F64, count, values,
                      sum);
}

#endif
