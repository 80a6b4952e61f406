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
    const uint32_t x = place + before, y = (x ^ x >> 16) * 0x7feb352du;
    return (y ^ y >> 15 ^ between) * 0x846ca68bu;
}

CZ_BODY uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* What rounding to nearest makes infinite is so; what it does not never is. */
CZ_BODY uint16_t bf16_by_chance(float value, uint32_t random)
{
    const uint32_t bits = bits_of(value), size = bits & 0x7fffffffu, infinite = 0x7f800000u;
    const uint32_t finite = smaller(size + (random >> 16), 0x7f7fffffu);
    const uint32_t special = choose(size > infinite, size | 0x400000u, infinite);
    const uint32_t rounded = choose(size < 0x7f7f8000u, finite, special);
    return (uint16_t)((rounded | (bits & 0x80000000u)) >> 16);
}

/* Below 2^-14 a value is a whole number of 2^-24, and a fraction of which 31 bits count. */
CZ_BODY uint16_t f16_by_chance(float value, uint32_t random)
{
    const uint32_t bits = bits_of(value), size = bits & 0x7fffffffu, normal = 113u << 23;
    const float units = float_of(smaller(size, normal)) * 0x1p24f;
    const int32_t whole = (int32_t)units, part = (int32_t)((units - (float)whole) * 0x1p31f);
    const uint32_t tiny = (uint32_t)(whole + (part > (int32_t)(random >> 1)));
    const uint32_t farther = (size - (112u << 23) + (random >> 19)) >> 13;
    const uint32_t finite = choose(size < normal, tiny, smaller(farther, 0x7bffu));
    const uint32_t nan = 0x7e00u | (size >> 13 & 0x3ffu);
    const uint32_t special = choose(size > 255u << 23, nan, 0x7c00u);
    const uint32_t rounded = choose(size < 0x477ff000u, finite, special);
    return (uint16_t)(rounded | (bits >> 16 & 0x8000u));
}

/* Places are 32 bits wide: so is the counter. */
#define STOCHASTIC(type)                                                                           \
    CZ_STOCHASTIC(type)                                                                            \
    {                                                                                              \
        const uint32_t before = (uint32_t)key, between = (uint32_t)(key >> 32);                    \
        const float *restrict in = from;                                                           \
        uint16_t *restrict out = to;                                                               \
        for (uint32_t i = 0; i < (uint32_t)count; i++)                                             \
            out[i] = CZ_PASTE(type, by_chance)(in[i], random_of(first + i, before, between));      \
    }

STOCHASTIC(bf16)
STOCHASTIC(f16)

/* Are these what the values are? */
CZ_BODY bool are_equal(int64_t count, const uint16_t *a, const uint16_t *b)
{
    uint16_t differ = 0;
    for (int64_t i = 0; i < count; i++)
        differ |= a[i] ^ b[i];
    return !differ;
}

CZ_BODY void bf16_store_all(int64_t count, const float *from, uint16_t *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = bf16_store(from[i]);
}

CZ_BODY void f16_store_all(int64_t count, const float *from, uint16_t *to)
{
    for (int64_t i = f16_store_many(count, from, to); i < count; i++)
        to[i] = f16_store(from[i]);
}

/* Nearly always all of them fit: then nothing is written. */
#define REFRESH(type)                                                                              \
    CZ_REFRESH(type)                                                                               \
    {                                                                                              \
        enum { BLOCK = 256 };                                                                      \
        const uint16_t *v = values;                                                                \
        float *m = copies;                                                                         \
        uint16_t rounded[BLOCK];                                                                   \
        for (int64_t some; count > 0; count -= some, v += some, m += some) {                       \
            some = count < BLOCK ? count : BLOCK;                                                  \
            CZ_PASTE(type, store_all)(some, m, rounded);                                           \
            if (are_equal(some, rounded, v))                                                       \
                continue;                                                                          \
            for (int64_t i = 0; i < some; i++)                                                     \
                m[i] = rounded[i] == v[i] ? m[i] : CZ_PASTE(type, load)(v[i]);                     \
        }                                                                                          \
    }

REFRESH(bf16)
REFRESH(f16)
