/* SPDX-License-Identifier: MIT */
/* What every kernel file needs. The files of this folder are compiled once per instruction-set
 * level, with CZ_LEVEL the level's name; they call nothing of the library, so that no instruction
 * of a level runs where the processor lacks it. */
#ifndef CZ_DEVICE_CPU_KERNELS_KERNEL_H
#define CZ_DEVICE_CPU_KERNELS_KERNEL_H

#include "device/cpu/cpu.h"

#define CZ_PASTE_(a, b) a##_##b
#define CZ_PASTE(a, b) CZ_PASTE_(a, b)

/* The name of f at this level: cz__f_v3. */
#define CZ_KERNEL(f) CZ_PASTE(CZ_PASTE(cz_, f), CZ_LEVEL)

/* The name of f for the element type TYPE, inside a body that is included once per type: f_f32. */
#define CZ_TYPED(f) CZ_PASTE(f, TYPE)

/* A body whose flags are constants where it is used: each use is a loop of its own, without
 * branches. */
#define CZ_BODY static inline __attribute__((always_inline))

/* Before a loop: its rounds do not depend on each other, even where an output is one of the inputs.
 * Clang leaves loops with sanitizers scalar, and warns if they were asked for as vectors. */
#if !defined(__clang__)
#define CZ_INDEPENDENT _Pragma("GCC ivdep")
#elif __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                       \
    __has_feature(undefined_behavior_sanitizer)
#define CZ_INDEPENDENT
#else
#define CZ_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#endif

/* The head of a kernel at this level, for one element type: f32, f64, … */
#define CZ_UPDATE_(name)                                                                           \
    void CZ_KERNEL(name)(void *queue, int64_t count, void *param, const void *grad,                \
                         void *const *slots, const double *coefficients, unsigned flags)
#define CZ_REDUCE_(name)                                                                           \
    void CZ_KERNEL(name)(int source_count, const void *const *sources, int64_t count, void *out)
#define CZ_UPDATE(rule, type) CZ_UPDATE_(CZ_PASTE(rule, type))
#define CZ_REDUCE(reduction, type) CZ_REDUCE_(CZ_PASTE(reduction, type))

/* From one floating type to another. */
#define CZ_CONVERT(from_type, to_type)                                                             \
    void CZ_KERNEL(CZ_PASTE(convert, CZ_PASTE(from_type, to_type)))(int64_t count,                 \
                                                                    const void *from, void *to)

/* From f32 by chance; and a copy in f32 that follows its value. */
#define CZ_STOCHASTIC(to_type)                                                                     \
    void CZ_KERNEL(CZ_PASTE(stochastic, to_type))(uint64_t key, uint32_t first, int64_t count,     \
                                                  const void *from, void *to)
#define CZ_REFRESH(type)                                                                           \
    void CZ_KERNEL(CZ_PASTE(refresh, type))(int64_t count, const void *values, void *copies)

/* To codes of 8 bits and a scale for each block, and back. */
#define CZ_PACK(sign)                                                                              \
    void CZ_KERNEL(pack_##sign)(int64_t count, const float *restrict values,                       \
                                uint8_t *restrict codes, float *restrict scales)
#define CZ_UNPACK(sign)                                                                            \
    void CZ_KERNEL(unpack_##sign)(int64_t count, const uint8_t *restrict codes,                    \
                                  const float *restrict scales, float *restrict values)

/* Towards values, by a weight. */
#define CZ_MOVING_AVERAGE(type)                                                                    \
    void CZ_KERNEL(CZ_PASTE(moving_average, type))(double weight, int64_t count,                   \
                                                   const void *values, void *averages)

#define CZ_UPDATES(rule)                                                                           \
    CZ_UPDATE(rule, f32);                                                                          \
    CZ_UPDATE(rule, f64)

CZ_UPDATES(sgd);
CZ_UPDATES(adam);
CZ_UPDATES(adamw);
CZ_UPDATES(adamax);
CZ_UPDATES(adadelta);
CZ_UPDATES(adagrad);
CZ_UPDATES(rmsprop);
CZ_UPDATES(rprop);
CZ_UPDATES(nadam);
CZ_UPDATES(radam);
CZ_UPDATES(lion);
CZ_UPDATES(lamb_moves);
CZ_UPDATES(lamb);
CZ_UPDATES(lars);
CZ_UPDATES(ademamix);
CZ_UPDATES(schedule_free_sgd);
CZ_UPDATES(schedule_free_adamw);
CZ_UPDATES(adam_mini);
CZ_UPDATES(muon_moves);
CZ_UPDATES(muon);

#define CZ_SUM_(name) bool CZ_KERNEL(name)(int64_t count, const void *values, cz__sum_block *block)
#define CZ_SUM_KERNEL(terms, type) CZ_SUM_(CZ_PASTE(terms, type))

CZ_SUM_KERNEL(sum_values, f64);
CZ_SUM_KERNEL(sum_squares, f32);
CZ_SUM_KERNEL(sum_squares, f64);

#define CZ_PRINT_KERNEL                                                                            \
    void CZ_KERNEL(print)(uint64_t key, uint32_t first, int64_t count, const uint32_t *words,      \
                          uint64_t print[2])

CZ_PRINT_KERNEL;

#define CZ_MATMUL(type) void CZ_KERNEL(CZ_PASTE(matmul, type))(const cz_matmul *product)

#define CZ_MIRROR(type) void CZ_KERNEL(CZ_PASTE(mirror, type))(int64_t count, void *matrix)

CZ_MATMUL(f32);
CZ_MATMUL(f64);
CZ_MIRROR(f32);
CZ_MIRROR(f64);

CZ_CONVERT(f32, f64);
CZ_CONVERT(f32, f16);
CZ_CONVERT(f32, bf16);
CZ_CONVERT(f64, f32);
CZ_CONVERT(f64, f16);
CZ_CONVERT(f64, bf16);
CZ_CONVERT(f16, f32);
CZ_CONVERT(f16, f64);
CZ_CONVERT(f16, bf16);
CZ_CONVERT(bf16, f32);
CZ_CONVERT(bf16, f64);
CZ_CONVERT(bf16, f16);

CZ_STOCHASTIC(bf16);
CZ_STOCHASTIC(f16);
CZ_REFRESH(bf16);
CZ_REFRESH(f16);
CZ_PACK(signed);
CZ_PACK(unsigned);
CZ_UNPACK(signed);
CZ_UNPACK(unsigned);
CZ_MOVING_AVERAGE(f32);
CZ_MOVING_AVERAGE(f64);

#define CZ_REDUCE_NUMBERS(type)                                                                    \
    CZ_REDUCE(sum, type);                                                                          \
    CZ_REDUCE(product, type);                                                                      \
    CZ_REDUCE(max, type);                                                                          \
    CZ_REDUCE(min, type)
#define CZ_REDUCE_FLOATS(type)                                                                     \
    CZ_REDUCE_NUMBERS(type);                                                                       \
    CZ_REDUCE(average, type)
#define CZ_REDUCE_INTEGERS(type)                                                                   \
    CZ_REDUCE_NUMBERS(type);                                                                       \
    CZ_REDUCE(and, type);                                                                          \
    CZ_REDUCE(or, type)

CZ_REDUCE_FLOATS(f32);
CZ_REDUCE_FLOATS(f64);
CZ_REDUCE_FLOATS(f16);
CZ_REDUCE_FLOATS(bf16);
CZ_REDUCE(sum, f16_wide);
CZ_REDUCE(average, f16_wide);
CZ_REDUCE(sum, bf16_wide);
CZ_REDUCE(average, bf16_wide);
CZ_REDUCE_INTEGERS(i32);
CZ_REDUCE_INTEGERS(i64);
CZ_REDUCE_INTEGERS(u8);

#endif
