/* SPDX-License-Identifier: MIT */
/* Between f32 and the 16-bit types where what is rounded away must not be lost in the long run: by
 * chance, so that the mean is right, or into a copy in f32 that is kept beside the value.
 *
 * Of two neighbours the farther one from zero is taken as often as the value is near to it. Chance
 * is a number for each element, made of its place and a key alone: a counter that is mixed by two
 * multiplications, with half of the key before each. */
#include "device/cpu/kernels/half.h"

CZ_BODY uint32_t random_of(uint32_t place, uint32_t before, uint32_t between)
{
    uint32_t x = place + before;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15 ^ between) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* What rounding to nearest makes infinite is so; what it does not never is. */
CZ_BODY uint16_t bf16_by_chance(float value, uint32_t random)
{
    const uint32_t bits = bits_of(value), size = bits & 0x7fffffffu, overflow = 0x7f7f8000u;
    const uint32_t farther = size + (random >> 16), most = 0x7f7fffffu;
    const uint32_t finite = choose(farther > most, most, farther);
    const uint32_t special = choose(size > 0x7f800000u, size | 0x400000u, 0x7f800000u);
    return (uint16_t)(((bits & 0x80000000u) | choose(size < overflow, finite, special)) >> 16);
}

/* Below 2^-14 a value is a whole number of 2^-24, and a fraction of which 31 bits count. */
CZ_BODY uint16_t f16_by_chance(float value, uint32_t random)
{
    const uint32_t bits = bits_of(value), size = bits & 0x7fffffffu, overflow = 0x477ff000u;
    const uint32_t farther = (size - (112u << 23) + (random >> 19)) >> 13, most = 0x7bffu;
    const float units = float_of(choose(size < 113u << 23, size, 0)) * 0x1p24f;
    const int32_t whole = (int32_t)units, part = (int32_t)((units - (float)whole) * 0x1p31f);
    const uint32_t tiny = (uint32_t)(whole + (part > (int32_t)(random >> 1)));
    const uint32_t normal = choose(farther > most, most, farther);
    const uint32_t finite = choose(size < 113u << 23, tiny, normal);
    const uint32_t nan = 0x7e00u | (size >> 13 & 0x3ffu);
    const uint32_t special = choose(size > 255u << 23, nan, 0x7c00u);
    return (uint16_t)((bits >> 16 & 0x8000u) | choose(size < overflow, finite, special));
}

#define STOCHASTIC(type)                                                                           \
    CZ_STOCHASTIC(type)                                                                            \
    {                                                                                              \
        const uint32_t before = (uint32_t)key, between = (uint32_t)(key >> 32);                    \
        const float *restrict in = from;                                                           \
        uint16_t *restrict out = to;                                                               \
        for (int64_t i = 0; i < count; i++)                                                        \
            out[i] =                                                                               \
                CZ_PASTE(type, by_chance)(in[i], random_of(first + (uint32_t)i, before, between)); \
    }

STOCHASTIC(bf16)
STOCHASTIC(f16)

/* Nearly always all of them fit: then nothing is written. */
#define REFRESH(type)                                                                              \
    CZ_REFRESH(type)                                                                               \
    {                                                                                              \
        const uint16_t *restrict v = values;                                                       \
        float *restrict m = copies;                                                                \
        uint16_t differ = 0;                                                                       \
        for (int64_t i = 0; i < count; i++)                                                        \
            differ |= (uint16_t)(CZ_PASTE(type, store)(m[i]) ^ v[i]);                              \
        if (!differ)                                                                               \
            return;                                                                                \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const bool fits = CZ_PASTE(type, store)(m[i]) == v[i];                                 \
            m[i] = float_of(choose(fits, bits_of(m[i]), bits_of(CZ_PASTE(type, load)(v[i]))));     \
        }                                                                                          \
    }

REFRESH(bf16)
REFRESH(f16)
