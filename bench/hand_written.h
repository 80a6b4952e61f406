/* SPDX-License-Identifier: MIT */
/* The operations of some update kernels on f32 by hand, with AVX2: what a person would write for
 * caches, where arithmetic counts and not memory. Coefficients as the kernels have them. */
#ifndef CZ_BENCH_HAND_WRITTEN_H
#define CZ_BENCH_HAND_WRITTEN_H

#include "device/coefficients.h"

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define HAND __attribute__((target("avx2"))) static inline
#define LOAD(array) _mm256_loadu_ps((array) + i)
#define STORE(array, value) _mm256_storeu_ps((array) + i, value)
#define ALL(value) _mm256_set1_ps((float)(value))
#define ADD(a, b) _mm256_add_ps(a, b)
#define SUB(a, b) _mm256_sub_ps(a, b)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define DIV(a, b) _mm256_div_ps(a, b)
#define SQRT(a) _mm256_sqrt_ps(a)

/* Counts are multiples of 8. */
HAND void hand_sgd_momentum(int64_t count, float *p, const float *g, float *const *slots,
                            const double *c)
{
    const __m256 rate = ALL(c[CZ__SGD_RATE]), sign = ALL(c[CZ__SGD_SIGN]);
    const __m256 momentum = ALL(c[CZ__SGD_MOMENTUM]), take = ALL(c[CZ__SGD_TAKE]);
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 d = MUL(sign, LOAD(g));
        const __m256 b = ADD(MUL(LOAD(slots[0]), momentum), MUL(take, d));
        STORE(slots[0], b);
        STORE(p, ADD(LOAD(p), MUL(rate, b)));
    }
}

HAND void hand_adamw(int64_t count, float *p, const float *g, float *const *slots, const double *c)
{
    const __m256 rate = ALL(c[CZ__ADAM_RATE]), sign = ALL(c[CZ__ADAM_SIGN]);
    const __m256 keep1 = ALL(c[CZ__ADAM_KEEP1]), take1 = ALL(c[CZ__ADAM_TAKE1]);
    const __m256 keep2 = ALL(c[CZ__ADAM_KEEP2]), take2 = ALL(c[CZ__ADAM_TAKE2]);
    const __m256 root = ALL(c[CZ__ADAM_ROOT]), eps = ALL(c[CZ__ADAM_EPS]);
    const __m256 decay = ALL(c[CZ__ADAM_DECAY]);
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 d = MUL(sign, LOAD(g)), w = MUL(LOAD(p), decay);
        const __m256 m = ADD(MUL(LOAD(slots[0]), keep1), MUL(take1, d));
        const __m256 v = ADD(MUL(LOAD(slots[1]), keep2), MUL(MUL(take2, d), d));
        STORE(slots[0], m);
        STORE(slots[1], v);
        STORE(p, ADD(w, DIV(MUL(rate, m), ADD(DIV(SQRT(v), root), eps))));
    }
}

HAND void hand_rmsprop(int64_t count, float *p, const float *g, float *const *slots,
                       const double *c)
{
    const __m256 rate = ALL(c[CZ__RMSPROP_RATE]), sign = ALL(c[CZ__RMSPROP_SIGN]);
    const __m256 keep = ALL(c[CZ__RMSPROP_KEEP]), take = ALL(c[CZ__RMSPROP_TAKE]);
    const __m256 eps = ALL(c[CZ__RMSPROP_EPS]);
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 d = MUL(sign, LOAD(g));
        const __m256 s = ADD(MUL(LOAD(slots[0]), keep), MUL(MUL(take, d), d));
        STORE(slots[0], s);
        STORE(p, ADD(LOAD(p), DIV(MUL(rate, d), ADD(SQRT(s), eps))));
    }
}

HAND void hand_adagrad(int64_t count, float *p, const float *g, float *const *slots,
                       const double *c)
{
    const __m256 rate = ALL(c[CZ__ADAGRAD_RATE]), sign = ALL(c[CZ__ADAGRAD_SIGN]);
    const __m256 eps = ALL(c[CZ__ADAGRAD_EPS]);
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 d = MUL(sign, LOAD(g)), s = ADD(LOAD(slots[0]), MUL(d, d));
        STORE(slots[0], s);
        STORE(p, ADD(LOAD(p), DIV(MUL(rate, d), ADD(SQRT(s), eps))));
    }
}

HAND void hand_adadelta(int64_t count, float *p, const float *g, float *const *slots,
                        const double *c)
{
    const __m256 rate = ALL(c[CZ__ADADELTA_RATE]), sign = ALL(c[CZ__ADADELTA_SIGN]);
    const __m256 keep = ALL(c[CZ__ADADELTA_KEEP]), take = ALL(c[CZ__ADADELTA_TAKE]);
    const __m256 eps = ALL(c[CZ__ADADELTA_EPS]);
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 d = MUL(sign, LOAD(g)), a = LOAD(slots[1]);
        const __m256 s = ADD(MUL(LOAD(slots[0]), keep), MUL(MUL(take, d), d));
        const __m256 delta = MUL(DIV(SQRT(ADD(a, eps)), SQRT(ADD(s, eps))), d);
        STORE(slots[0], s);
        STORE(slots[1], ADD(MUL(a, keep), MUL(MUL(take, delta), delta)));
        STORE(p, ADD(LOAD(p), MUL(rate, delta)));
    }
}

HAND void hand_nadam(int64_t count, float *p, const float *g, float *const *slots, const double *c)
{
    const __m256 sign = ALL(c[CZ__NADAM_SIGN]), eps = ALL(c[CZ__NADAM_EPS]);
    const __m256 keep1 = ALL(c[CZ__NADAM_KEEP1]), take1 = ALL(c[CZ__NADAM_TAKE1]);
    const __m256 keep2 = ALL(c[CZ__NADAM_KEEP2]), take2 = ALL(c[CZ__NADAM_TAKE2]);
    const __m256 bias2 = ALL(c[CZ__NADAM_BIAS2]);
    const __m256 rate_gradient = ALL(c[CZ__NADAM_RATE_GRADIENT]);
    const __m256 rate_moment = ALL(c[CZ__NADAM_RATE_MOMENT]);
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 d = MUL(sign, LOAD(g));
        const __m256 m = ADD(MUL(LOAD(slots[0]), keep1), MUL(take1, d));
        const __m256 v = ADD(MUL(LOAD(slots[1]), keep2), MUL(MUL(take2, d), d));
        const __m256 root = ADD(SQRT(DIV(v, bias2)), eps);
        STORE(slots[0], m);
        STORE(slots[1], v);
        STORE(p,
              ADD(ADD(LOAD(p), DIV(MUL(rate_gradient, d), root)), DIV(MUL(rate_moment, m), root)));
    }
}

HAND void hand_adamax(int64_t count, float *p, const float *g, float *const *slots, const double *c)
{
    const __m256 rate = ALL(c[CZ__ADAMAX_RATE]), sign = ALL(c[CZ__ADAMAX_SIGN]);
    const __m256 keep1 = ALL(c[CZ__ADAMAX_KEEP1]), take1 = ALL(c[CZ__ADAMAX_TAKE1]);
    const __m256 keep2 = ALL(c[CZ__ADAMAX_KEEP2]), eps = ALL(c[CZ__ADAMAX_EPS]);
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    for (int64_t i = 0; i < count; i += 8) {
        const __m256 d = MUL(sign, LOAD(g));
        const __m256 m = ADD(MUL(LOAD(slots[0]), keep1), MUL(take1, d));
        const __m256 seen = ADD(_mm256_and_ps(d, magnitude), eps);
        const __m256 u = _mm256_max_ps(MUL(LOAD(slots[1]), keep2), seen);
        STORE(slots[0], m);
        STORE(slots[1], u);
        STORE(p, ADD(LOAD(p), DIV(MUL(rate, m), u)));
    }
}

static inline bool hand_can_run(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define HAND_NONE(name)                                                                            \
    static inline void hand_##name(int64_t count, float *p, const float *g, float *const *slots,   \
                                   const double *c)                                                \
    {                                                                                              \
    }
HAND_NONE(sgd_momentum)
HAND_NONE(adamw)
HAND_NONE(rmsprop)
HAND_NONE(adagrad)
HAND_NONE(adadelta)
HAND_NONE(nadam)
HAND_NONE(adamax)
static inline bool hand_can_run(void)
{
    return false;
}
#endif

#endif
