/* SPDX-License-Identifier: MIT */
/* The table of all kernels of one level. */
#include "device/cpu/kernels/kernel.h"

#define TEXT_(word) #word
#define TEXT(word) TEXT_(word)

#define INTEGERS(type)                                                                             \
    [CZ_SUM] = CZ_KERNEL(sum_##type), [CZ_MAX] = CZ_KERNEL(max_##type),                            \
    [CZ_MIN] = CZ_KERNEL(min_##type)
#define FLOATS(type) INTEGERS(type), [CZ_AVERAGE] = CZ_KERNEL(average_##type)

static const cz__update_entry updates[] = {
    {"sgd", CZ_F32, CZ_KERNEL(sgd_f32)},
    {"sgd", CZ_F64, CZ_KERNEL(sgd_f64)},
    {"adam", CZ_F32, CZ_KERNEL(adam_f32)},
    {"adam", CZ_F64, CZ_KERNEL(adam_f64)},
    {"adamw", CZ_F32, CZ_KERNEL(adamw_f32)},
    {"adamw", CZ_F64, CZ_KERNEL(adamw_f64)},
    {NULL, CZ_F32, NULL},
};

extern const cz__cpu_kernels CZ_KERNEL(kernels);
const cz__cpu_kernels CZ_KERNEL(kernels) = {
    .level = TEXT(CZ_LEVEL),
    .reduce =
        {
            [CZ_F32] = {FLOATS(f32)},
            [CZ_F64] = {FLOATS(f64)},
            [CZ_F16] = {FLOATS(f16)},
            [CZ_BF16] = {FLOATS(bf16)},
            [CZ_I32] = {INTEGERS(i32)},
            [CZ_I64] = {INTEGERS(i64)},
            [CZ_U8] = {INTEGERS(u8)},
        },
    .updates = updates,
};
