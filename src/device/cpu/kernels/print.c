/* SPDX-License-Identifier: MIT */
/* Of each word x at place n two products are added, whose factors are sums of x, n and the key that
 * wrap around, in the manner of NH (Black et al., "UMAC", CRYPTO 1999). So the order of words is in
 * no sum, and each has a term of its own. */
#include "device/cpu/kernels/kernel.h"

static const uint32_t STEP = 0x9e3779b1u, OTHER_STEP = 0x85ebca77u;
static const uint32_t SECOND = 0x27d4eb2fu, OTHER_SECOND = 0xc2b2ae3du;

/* Compilers widen words before they multiply them, and take twice as long. The loop over single
 * words below is the definition. */
#if defined __SSE2__
#include <immintrin.h>

#if defined __AVX512F__
typedef __m512i words_of;
#define WORDS 16
#define CALL(name) _mm512_##name
#define LOAD(from) _mm512_loadu_si512(from)
#define EXCLUSIVE_OR(a, b) _mm512_xor_si512(a, b)
#elif defined __AVX2__
typedef __m256i words_of;
#define WORDS 8
#define CALL(name) _mm256_##name
#define LOAD(from) _mm256_loadu_si256((const __m256i *)(const void *)(from))
#define EXCLUSIVE_OR(a, b) _mm256_xor_si256(a, b)
#else
typedef __m128i words_of;
#define WORDS 4
#define CALL(name) _mm_##name
#define LOAD(from) _mm_loadu_si128((const __m128i *)(const void *)(from))
#define EXCLUSIVE_OR(a, b) _mm_xor_si128(a, b)
#endif

/* Of what lies in memory, not in a cache: there a line takes as long as the work on so many. */
#define AHEAD_BYTES 2048

CZ_BODY words_of all(uint32_t word)
{
    return CALL(set1_epi32)((int)word);
}

/* By pairs of words, not by way of an array: the stack that gcc's AddressSanitizer gives to one is
 * not aligned as it takes it to be. So below. */
CZ_BODY words_of arrange(uint32_t first, uint32_t step)
{
    words_of words = all(0);
    for (uint32_t k = 0; k < WORDS; k += 2)
        words[k / 2] =
            (long long)((uint64_t)(first + (k + 1) * step) << 32 | (uint32_t)(first + k * step));
    return words;
}

/* The products of a and b in even places, and in odd ones. */
CZ_BODY words_of add_products(words_of sums, words_of a, words_of b)
{
    const words_of odd = CALL(mul_epu32)(CALL(srli_epi64)(a, 32), CALL(srli_epi64)(b, 32));
    return CALL(add_epi64)(CALL(add_epi64)(sums, CALL(mul_epu32)(a, b)), odd);
}

CZ_BODY uint64_t total(words_of sums)
{
    uint64_t all_parts = 0;
    for (int k = 0; k < WORDS / 2; k++)
        all_parts += (uint64_t)sums[k];
    return all_parts;
}

/* Returns how many words of these it has taken, the first ones. */
CZ_BODY int64_t add_vectors(uint32_t u, uint32_t v, int64_t count, const uint32_t *words,
                            uint64_t print[2])
{
    words_of us = arrange(u, STEP), vs = arrange(v, OTHER_STEP);
    words_of s = all(0), t = all(0);
    int64_t i = 0;
    for (; i + WORDS <= count; i += WORDS) {
        const words_of x = LOAD(words + i);
        __builtin_prefetch((const char *)(words + i) + AHEAD_BYTES);
        s = add_products(s, CALL(add_epi32)(x, us), EXCLUSIVE_OR(x, vs));
        t = add_products(t, EXCLUSIVE_OR(x, CALL(add_epi32)(us, all(SECOND))),
                         CALL(add_epi32)(x, EXCLUSIVE_OR(vs, all(OTHER_SECOND))));
        us = CALL(add_epi32)(us, all(WORDS * STEP));
        vs = CALL(add_epi32)(vs, all(WORDS * OTHER_STEP));
    }
    print[0] += total(s);
    print[1] += total(t);
    return i;
}
#else
CZ_BODY int64_t add_vectors(uint32_t u, uint32_t v, int64_t count, const uint32_t *words,
                            uint64_t print[2])
{
    return 0;
}
#endif

CZ_PRINT_KERNEL
{
    uint32_t u = first * STEP + (uint32_t)key;
    uint32_t v = first * OTHER_STEP + (uint32_t)(key >> 32);
    const int64_t taken = add_vectors(u, v, count, words, print);
    uint64_t s = 0, t = 0;
    u += (uint32_t)taken * STEP;
    v += (uint32_t)taken * OTHER_STEP;
    for (int64_t i = taken; i < count; i++) {
        const uint32_t x = words[i];
        s += (uint64_t)(x + u) * (x ^ v);
        t += (uint64_t)(x ^ (u + SECOND)) * (x + (v ^ OTHER_SECOND));
        u += STEP;
        v += OTHER_STEP;
    }
    print[0] += s;
    print[1] += t;
}
