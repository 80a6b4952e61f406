/* SPDX-License-Identifier: MIT */
/* The table of all kernels of one level. */
#include "device/cpu/kernels/kernel.h"

#define TEXT_(word) #word
#define TEXT(word) TEXT_(word)

#define REDUCE(reduction, type) CZ_KERNEL(reduction##_##type)
#define NUMBERS(type)                                                                              \
    [CZ_SUM] = REDUCE(sum, type), [CZ_PRODUCT] = REDUCE(product, type),                            \
    [CZ_MAX] = REDUCE(max, type), [CZ_MIN] = REDUCE(min, type)
#define FLOATS(type) NUMBERS(type), [CZ_AVERAGE] = REDUCE(average, type)
#define INTEGERS(type) NUMBERS(type), [CZ_AND] = REDUCE(and, type), [CZ_OR] = REDUCE(or, type)

#define WIDE(type) [CZ_SUM] = REDUCE(sum, type), [CZ_AVERAGE] = REDUCE(average, type)

#define CONVERT(from, to) CZ_KERNEL(convert_##from##_##to)

#define STOCHASTIC(to) CZ_KERNEL(stochastic_##to)
#define REFRESH(type) CZ_KERNEL(refresh_##type)
#define MOVING_AVERAGE(type) CZ_KERNEL(moving_average_##type)
#define SUM(kind, terms) [CZ__SUM_##kind] = CZ_KERNEL(sum_##terms)

#define UPDATE(rule, type, dtype)                                                                  \
    {                                                                                              \
        TEXT_(rule), dtype, CZ_KERNEL(rule##_##type)                                               \
    }

#define UPDATES(rule) UPDATE(rule, f32, CZ_F32), UPDATE(rule, f64, CZ_F64)

static const cz__update_entry updates[] = {
    UPDATES(sgd),
    UPDATES(adam),
    UPDATES(adamw),
    UPDATES(adamax),
    UPDATES(adadelta),
    UPDATES(adagrad),
    UPDATES(rmsprop),
    UPDATES(rprop),
    UPDATES(nadam),
    UPDATES(radam),
    UPDATES(lion),
    UPDATES(lamb_moves),
    UPDATES(lamb),
    UPDATES(lars),
    UPDATES(ademamix),
    UPDATES(schedule_free_sgd),
    UPDATES(schedule_free_adamw),
    UPDATES(adam_mini),
    UPDATES(muon_moves),
    UPDATES(muon),
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
    .reduce_wide =
        {
            [CZ_F16] = {WIDE(f16_wide)},
            [CZ_BF16] = {WIDE(bf16_wide)},
        },
    .convert =
        {
            [CZ_F32] = {[CZ_F64] = CONVERT(f32, f64),
                        [CZ_F16] = CONVERT(f32, f16),
                        [CZ_BF16] = CONVERT(f32, bf16)},
            [CZ_F64] = {[CZ_F32] = CONVERT(f64, f32),
                        [CZ_F16] = CONVERT(f64, f16),
                        [CZ_BF16] = CONVERT(f64, bf16)},
            [CZ_F16] = {[CZ_F32] = CONVERT(f16, f32),
                        [CZ_F64] = CONVERT(f16, f64),
                        [CZ_BF16] = CONVERT(f16, bf16)},
            [CZ_BF16] = {[CZ_F32] = CONVERT(bf16, f32),
                         [CZ_F64] = CONVERT(bf16, f64),
                         [CZ_F16] = CONVERT(bf16, f16)},
        },
    .stochastic = {[CZ_F16] = STOCHASTIC(f16), [CZ_BF16] = STOCHASTIC(bf16)},
    .refresh = {[CZ_F16] = REFRESH(f16), [CZ_BF16] = REFRESH(bf16)},
    .average = {[CZ_F32] = MOVING_AVERAGE(f32), [CZ_F64] = MOVING_AVERAGE(f64)},
    .pack = {
        CZ_KERNEL(pack_unsigned), CZ_KERNEL(pack_signed)},
        .unpack = {
            CZ_KERNEL(unpack_unsigned), CZ_KERNEL(unpack_signed)},
            .sum = {SUM(VALUES, values_f64), SUM(SQUARES_F32, squares_f32),
                    SUM(SQUARES_F64, squares_f64)},
            .print = CZ_KERNEL(print),
                .matmul = {[CZ_F32] = CZ_KERNEL(matmul_f32), [CZ_F64] = CZ_KERNEL(matmul_f64)},
                           .mirror = {
                               [CZ_F32] = CZ_KERNEL(mirror_f32), [CZ_F64] = CZ_KERNEL(mirror_f64)},
                               .updates = updates,
};
