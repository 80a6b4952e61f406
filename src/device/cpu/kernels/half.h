/* SPDX-License-Identifier: MIT */
/* The 16-bit floats as straight lines that a compiler turns into vectors; the same bits as
 * cz__f32_from_f16() and its sisters, but signalling NaNs of bf16 stay so on the way to f32. */
#ifndef CZ_DEVICE_CPU_KERNELS_HALF_H
#define CZ_DEVICE_CPU_KERNELS_HALF_H

#include "device/cpu/kernels/kernel.h"

#include <string.h>

CZ_BODY uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

CZ_BODY float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A choice without a branch: compilers give up on loops with many of those. */
CZ_BODY uint32_t choose(bool condition, uint32_t yes, uint32_t no)
{
    const uint32_t mask = 0u - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

CZ_BODY float bf16_load(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

/* In the upper half. */
CZ_BODY uint32_t bf16_nearest(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t nearest = bits + 0x7fffu + (bits >> 16 & 1u), quiet = bits | 0x400000u;
    return choose(value != value, quiet, nearest);
}

CZ_BODY uint16_t bf16_store(float value)
{
    return (uint16_t)(bf16_nearest(value) >> 16);
}

/* An exponent of binary16 becomes one of binary32 by adding 112. */
CZ_BODY float f16_load(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, size = (uint32_t)(bits & 0x7fffu) << 13;
    const uint32_t normal = size + (112u << 23), infinite = 31u << 23;
    const uint32_t special = (size + (224u << 23)) | choose(size > infinite, 0x400000u, 0);
    const uint32_t tiny = bits_of(float_of(size + (113u << 23)) - 0x1p-14f); /* exact */
    return float_of(sign | choose(size < 1u << 23, tiny, choose(size < infinite, normal, special)));
}

CZ_BODY uint16_t f16_store(float value)
{
    const uint32_t bits = bits_of(value), size = bits & 0x7fffffffu;
    const uint32_t normal = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
    /* below 2^-14 the addition rounds to multiples of 2^-24, the last bit of a float near 1/2 */
    const uint32_t tiny = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
    const uint32_t nan = 0x7e00u | (size >> 13 & 0x3ffu);
    const uint32_t finite = choose(size < 113u << 23, tiny, normal);
    const uint32_t special = choose(size > 255u << 23, nan, 0x7c00u);
    return (uint16_t)((bits >> 16 & 0x8000u) | choose(size < 143u << 23, finite, special));
}

/* Many of them by instructions that give the same bits, where a level has them: how many were
 * taken, the first ones. */
#if defined __F16C__
#include <immintrin.h>

#if defined __AVX512F__
enum { F16_LANES = 16 };
#define F16_LOAD(from) _mm256_loadu_si256((const __m256i *)(const void *)(from))
#define F16_STORE(to, halves) _mm256_storeu_si256((__m256i *)(void *)(to), halves)
#define F16_CALL(name) _mm512_##name
#else
enum { F16_LANES = 8 };
#define F16_LOAD(from) _mm_loadu_si128((const __m128i *)(const void *)(from))
#define F16_STORE(to, halves) _mm_storeu_si128((__m128i *)(void *)(to), halves)
#define F16_CALL(name) _mm256_##name
#endif

CZ_BODY int64_t f16_load_many(int64_t count, const uint16_t *from, float *to)
{
    int64_t i = 0;
    for (; i + F16_LANES <= count; i += F16_LANES)
        F16_CALL(storeu_ps)(to + i, F16_CALL(cvtph_ps)(F16_LOAD(from + i)));
    return i;
}

CZ_BODY int64_t f16_store_many(int64_t count, const float *from, uint16_t *to)
{
    int64_t i = 0;
    for (; i + F16_LANES <= count; i += F16_LANES)
        F16_STORE(to + i,
                  F16_CALL(cvtps_ph)(F16_CALL(loadu_ps)(from + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}
#else
CZ_BODY int64_t f16_load_many(int64_t count, const uint16_t *from, float *to)
{
    return 0;
}

CZ_BODY int64_t f16_store_many(int64_t count, const float *from, uint16_t *to)
{
    return 0;
}
#endif

#endif
