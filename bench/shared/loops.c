/* SPDX-License-Identifier: MIT */
/* The loops of loops.h at one instruction set (BENCH_LEVEL). */
#include "loops.h"

#if defined __SSE__
#include <immintrin.h>
#endif

#if defined __AVX512F__
#define BYTES 64
#elif defined __AVX__
#define BYTES 32
#else
#define BYTES 16
#endif
typedef float lanes __attribute__((vector_size(BYTES), may_alias));
enum { LANES = BYTES / (int)sizeof(float) };

#define INLINE static inline __attribute__((always_inline))
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

INLINE lanes load(const float *from)
{
    return *(const lanes *)from;
}

INLINE void store(float *to, lanes value, int streams)
{
#if defined __AVX512F__
    if (streams) {
        _mm512_stream_ps(to, (__m512)value);
        return;
    }
#elif defined __AVX__
    if (streams) {
        _mm256_stream_ps(to, (__m256)value);
        return;
    }
#elif defined __SSE__
    if (streams) {
        _mm_stream_ps(to, (__m128)value);
        return;
    }
#endif
    *(lanes *)to = value;
}

/* Streaming stores are seen in order only after it. */
INLINE void settle(int streams)
{
#if defined __SSE__
    if (streams)
        _mm_sfence();
#endif
}

INLINE lanes root(lanes x)
{
#if defined __AVX512F__
    return (lanes)_mm512_sqrt_ps((__m512)x);
#elif defined __AVX__
    return (lanes)_mm256_sqrt_ps((__m256)x);
#elif defined __SSE__
    return (lanes)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < LANES; i++)
        x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

static void mix2(size_t count, float *p, const float *g)
{
    for (size_t i = 0; i < count; i += LANES)
        store(p + i, load(p + i) - load(g + i), 0);
}

static void mix3(size_t count, float *p, const float *g, float *m)
{
    for (size_t i = 0; i < count; i += LANES) {
        const lanes moment = load(m + i) + load(g + i);
        store(m + i, moment, 0);
        store(p + i, load(p + i) - moment, 0);
    }
}

static void mix4(size_t count, float *p, const float *g, float *m, float *v)
{
    for (size_t i = 0; i < count; i += LANES) {
        const lanes gradient = load(g + i), moment = load(m + i) + gradient,
                    second = load(v + i) + gradient;
        store(m + i, moment, 0);
        store(v + i, second, 0);
        store(p + i, load(p + i) - moment - second, 0);
    }
}

INLINE void copy_as(size_t count, float *to, const float *from, int streams)
{
    for (size_t i = 0; i < count; i += BENCH_LINE)
        for (int k = 0; k < BENCH_LINE; k += LANES)
            store(to + i + k, load(from + i + k), streams);
    settle(streams);
}

INLINE lanes sum_of(int ranks, const float *const *from, size_t i)
{
    lanes sum = load(from[0] + i);
    for (int r = 1; r < ranks; r++)
        sum += load(from[r] + i);
    return sum;
}

INLINE void sum_as(size_t count, int ranks, float *to, const float *const *from, int streams)
{
    const float *f[BENCH_RANKS];
    for (int r = 0; r < ranks; r++)
        f[r] = from[r];
    for (size_t i = 0; i < count; i += LANES)
        store(to + i, sum_of(ranks, f, i), streams);
    settle(streams);
}

INLINE void sum_all_as(size_t count, int ranks, float *const *all, int streams)
{
    float *a[BENCH_RANKS];
    for (int r = 0; r < ranks; r++)
        a[r] = all[r];
    for (size_t i = 0; i < count; i += LANES) {
        const lanes sum = sum_of(ranks, (const float *const *)a, i);
        for (int r = 0; r < ranks; r++)
            store(a[r] + i, sum, streams);
    }
    settle(streams);
}

/* Not known to the compiler: what is multiplied by it is read, and changes nothing. */
static const volatile float nought = 0;

/* `a` NULL: only the traffic. */
INLINE void zero_as(size_t count, int ranks, int mine, float *const *p, const float *const *g,
                    float *m, float *v, const bench_adamw *a, int streams)
{
    const float *gradients[BENCH_RANKS];
    float *others[BENCH_RANKS], *own = p[mine];
    const float none = nought;
    for (int r = 0, k = 0; r < ranks; r++) {
        gradients[r] = g[r];
        if (r != mine)
            others[k++] = p[r];
    }
    for (size_t i = 0; i < count; i += LANES) {
        lanes gradient = sum_of(ranks, gradients, i), moment = load(m + i), second = load(v + i),
              value = load(own + i);
        if (a) {
            gradient *= a->inverse_ranks;
            moment += (gradient - moment) * a->one_minus_beta1;
            second = second * a->beta2 + gradient * gradient * a->one_minus_beta2;
            value = value * a->decay - a->size * moment / (root(second) / a->root + a->eps);
        } else {
            moment += gradient * none;
            second += gradient * none;
            value += moment * none;
        }
        store(m + i, moment, 0);
        store(v + i, second, 0);
        store(own + i, value, 0);
        for (int k = 0; k < ranks - 1; k++)
            store(others[k] + i, value, streams);
    }
    settle(streams);
}

INLINE double mean_as(size_t count, int ranks, const float *const *g, float inverse_ranks,
                      float *own)
{
    const float *gradients[BENCH_RANKS];
    double squares = 0;
    for (int r = 0; r < ranks; r++)
        gradients[r] = g[r];
    for (size_t i = 0; i < count;) {
        const size_t end = count - i < 4096 ? count : i + 4096;
        lanes sum = {0};
        for (; i < end; i += LANES) {
            const lanes mean = sum_of(ranks, gradients, i) * inverse_ranks;
            store(own + i, mean, 0);
            sum += mean * mean;
        }
        for (int k = 0; k < LANES; k++)
            squares += (double)sum[k];
    }
    return squares;
}

/* `a` NULL: only the traffic. */
INLINE void clip_as(size_t count, int ranks, int mine, float *const *p, float *own_gradient,
                    float factor, float *m, float *v, const bench_adamw *a, int streams)
{
    float *others[BENCH_RANKS], *own = p[mine];
    const float none = nought;
    for (int r = 0, k = 0; r < ranks; r++)
        if (r != mine)
            others[k++] = p[r];
    for (size_t i = 0; i < count; i += LANES) {
        const lanes gradient = load(own_gradient + i) * factor;
        lanes moment = load(m + i), second = load(v + i), value = load(own + i);
        if (a) {
            moment += (gradient - moment) * a->one_minus_beta1;
            second = second * a->beta2 + gradient * gradient * a->one_minus_beta2;
            value = value * a->decay - a->size * moment / (root(second) / a->root + a->eps);
        } else {
            moment += gradient * none;
            second += gradient * none;
            value += moment * none;
        }
        store(own_gradient + i, gradient, 0);
        store(m + i, moment, 0);
        store(v + i, second, 0);
        store(own + i, value, 0);
        for (int k = 0; k < ranks - 1; k++)
            store(others[k] + i, value, streams);
    }
    settle(streams);
}

/* The number of ranks and the kind of stores become constants, so that inner loops unroll. */
#define FOR_RANKS(CALL)                                                                            \
    switch (ranks) {                                                                               \
    case 1:                                                                                        \
        CALL(1);                                                                                   \
        break;                                                                                     \
    case 2:                                                                                        \
        CALL(2);                                                                                   \
        break;                                                                                     \
    case 3:                                                                                        \
        CALL(3);                                                                                   \
        break;                                                                                     \
    case 4:                                                                                        \
        CALL(4);                                                                                   \
        break;                                                                                     \
    default:                                                                                       \
        break;                                                                                     \
    }
#define VARIANT(suffix, STREAMS)                                                                   \
    static void copy_##suffix(size_t count, float *to, const float *from)                          \
    {                                                                                              \
        copy_as(count, to, from, STREAMS);                                                         \
    }                                                                                              \
    static void sum_##suffix(size_t count, int ranks, float *to, const float *const *from)         \
    {                                                                                              \
        FOR_RANKS(SUM_##suffix)                                                                    \
    }                                                                                              \
    static void sum_all_##suffix(size_t count, int ranks, float *const *all)                       \
    {                                                                                              \
        FOR_RANKS(SUM_ALL_##suffix)                                                                \
    }                                                                                              \
    static void zero_step_##suffix(size_t count, int ranks, int mine, float *const *p,             \
                                   const float *const *g, float *m, float *v,                      \
                                   const bench_adamw *a)                                           \
    {                                                                                              \
        FOR_RANKS(STEP_##suffix)                                                                   \
    }                                                                                              \
    static void clip_step_##suffix(size_t count, int ranks, int mine, float *const *p, float *own, \
                                   float factor, float *m, float *v, const bench_adamw *a)         \
    {                                                                                              \
        FOR_RANKS(CLIP_##suffix)                                                                   \
    }                                                                                              \
    static void zero_mix_##suffix(size_t count, int ranks, int mine, float *const *p,              \
                                  const float *const *g, float *m, float *v)                       \
    {                                                                                              \
        FOR_RANKS(MIX_##suffix)                                                                    \
    }
#define SUM_plain(N) sum_as(count, N, to, from, 0)
#define SUM_stream(N) sum_as(count, N, to, from, 1)
#define SUM_ALL_plain(N) sum_all_as(count, N, all, 0)
#define SUM_ALL_stream(N) sum_all_as(count, N, all, 1)
#define STEP_plain(N) zero_as(count, N, mine, p, g, m, v, a, 0)
#define STEP_stream(N) zero_as(count, N, mine, p, g, m, v, a, 1)
#define MIX_plain(N) zero_as(count, N, mine, p, g, m, v, NULL, 0)
#define MIX_stream(N) zero_as(count, N, mine, p, g, m, v, NULL, 1)
#define CLIP_plain(N) clip_as(count, N, mine, p, own, factor, m, v, a, 0)
#define CLIP_stream(N) clip_as(count, N, mine, p, own, factor, m, v, a, 1)
VARIANT(plain, 0)
VARIANT(stream, 1)

static double mean(size_t count, int ranks, const float *const *g, float inverse_ranks, float *own)
{
    double squares = 0;
#define MEAN(N) squares = mean_as(count, N, g, inverse_ranks, own)
    FOR_RANKS(MEAN)
    return squares;
}

#define NAME_(level) #level
#define NAME(level) NAME_(level)
enum { CHAINS = 8 }; /* as many as hide how long one operation takes */

INLINE void put(float *to, lanes value, int adds)
{
    if (adds)
        value += load(to);
    store(to, value, 0);
}

INLINE void backward(size_t count, float *g, const float *x, int rounds, int adds)
{
    size_t i = 0;
    for (; i + CHAINS * LANES <= count; i += CHAINS * LANES) {
        lanes v[CHAINS];
        for (int k = 0; k < CHAINS; k++)
            v[k] = load(x + i + k * LANES);
        for (int r = 0; r < rounds; r++)
            for (int k = 0; k < CHAINS; k++)
                v[k] = v[k] * 0.999f + 1e-7f;
        for (int k = 0; k < CHAINS; k++)
            put(g + i + k * LANES, v[k], adds);
    }
    for (; i < count; i += LANES)
        put(g + i, load(x + i), adds);
}

static void backward_writes(size_t count, float *g, const float *x, int rounds)
{
    backward(count, g, x, rounds, 0);
}

static void backward_adds(size_t count, float *g, const float *x, int rounds)
{
    backward(count, g, x, rounds, 1);
}

extern const bench_loops JOIN(bench_loops_, BENCH_LEVEL);
const bench_loops JOIN(bench_loops_, BENCH_LEVEL) = {
    .name = NAME(BENCH_LEVEL),
    .mix2 = mix2,
    .mix3 = mix3,
    .mix4 = mix4,
    .copy = {copy_plain, copy_stream},
    .sum = {sum_plain, sum_stream},
    .sum_all = {sum_all_plain, sum_all_stream},
    .zero_step = {zero_step_plain, zero_step_stream},
    .mean = mean,
    .clip_step = {clip_step_plain, clip_step_stream},
    .zero_mix = {zero_mix_plain, zero_mix_stream},
    .backward = {backward_writes, backward_adds},
};
