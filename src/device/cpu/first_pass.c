/* SPDX-License-Identifier: MIT */
/* First passes of the built-in rules with partial sums (src/rule/): exact sums over what a rule
 * wants to know of a whole parameter. */
#include "device/cpu/cpu.h"

#include <string.h>

/* The head of one, for any type; and those of one type. */
#define FIRST_PASS(name)                                                                           \
    static void name(cz_dtype dtype, void *queue, int64_t count, const void *param,                \
                     const void *grad, void *const *slots, const double *coefficients,             \
                     unsigned flags, cz_sum *sums)
#define OF_TYPE(name, type, dtype)                                                                 \
    static void name##_##type(void *queue, int64_t count, const void *param, const void *grad,     \
                              void *const *slots, const double *coefficients, unsigned flags,      \
                              cz_sum *sums)                                                        \
    {                                                                                              \
        name(dtype, queue, count, param, grad, slots, coefficients, flags, sums);                  \
    }
#define OF_BOTH_TYPES(name) OF_TYPE(name, f32, CZ_F32) OF_TYPE(name, f64, CZ_F64)

/* The moments are brought up to date; the squares of the parameter and of its move. A block of
 * moves at a time, so that they stay in the nearest cache. */
FIRST_PASS(lamb)
{
    const cz_update_kernel moves_of =
        cz__cpu_find_update(cz__cpu_kernels_chosen(), "lamb_moves", dtype, dtype, dtype);
    const size_t size = cz_dtype_size(dtype);
    double moves[CZ__SUM_TERMS];
    for (int64_t begin = 0; begin < count; begin += CZ__SUM_TERMS) {
        const int64_t left = count - begin, some = left < CZ__SUM_TERMS ? left : CZ__SUM_TERMS;
        const size_t at = (size_t)begin * size;
        void *const places[] = {(char *)slots[0] + at, (char *)slots[1] + at, moves};
        moves_of(queue, some, (char *)(uintptr_t)param + at, (const char *)grad + at, places,
                 coefficients, flags);
        (void)cz__cpu_add_squares(queue, dtype, some, moves, &sums[1]);
    }
    (void)cz__cpu_add_squares(queue, dtype, count, param, &sums[0]);
}

/* The squares of the parameter and of its gradient. */
FIRST_PASS(lars)
{
    (void)cz__cpu_add_squares(queue, dtype, count, param, &sums[0]);
    (void)cz__cpu_add_squares(queue, dtype, count, grad, &sums[1]);
}

/* The squares of the gradient, and how many they are. */
FIRST_PASS(adam_mini)
{
    (void)cz__cpu_add_squares(queue, dtype, count, grad, &sums[0]);
    cz_sum_add(&sums[1], 1, &(double){(double)count});
}

OF_BOTH_TYPES(lamb)
OF_BOTH_TYPES(lars)
OF_BOTH_TYPES(adam_mini)

cz_sums_kernel cz__cpu_find_sums(const char *rule, cz_dtype param, cz_dtype grad, cz_dtype state)
{
    static const struct {
        const char *rule;
        cz_sums_kernel f32, f64;
    } passes[] = {{"lamb", lamb_f32, lamb_f64},
                  {"lars", lars_f32, lars_f64},
                  {"adam_mini", adam_mini_f32, adam_mini_f64}};
    if (grad != param || state != param || (param != CZ_F32 && param != CZ_F64))
        return NULL;
    for (size_t k = 0; k < sizeof passes / sizeof *passes; k++)
        if (strcmp(passes[k].rule, rule) == 0)
            return param == CZ_F32 ? passes[k].f32 : passes[k].f64;
    return NULL;
}
