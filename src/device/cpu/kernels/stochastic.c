/* SPDX-License-Identifier: MIT */
/* Between f32 and the 16-bit types where what is rounded away must not be lost in the long run: by
 * chance, so that the mean is right, or into a copy in f32 that is kept beside the value.
 *
 * Of two neighbours the farther one from zero is taken as often as the value is near to it. Chance
 * is a number for each element, made of its place and a key alone: a counter that is mixed by two
 * multiplications, with half of the key before each. A number serves two places of a block, that in
 * the second half of it with the halves of the number swapped: 16 bits are what decides. */
#include "device/cpu/kernels/half.h"

enum { HALF_BLOCK = 128, BLOCK = 2 * HALF_BLOCK };

CZ_BODY uint32_t number_of(uint32_t counter, uint32_t before, uint32_t between)
{
    const uint32_t x = counter + before, y = (x ^ x >> 16) * 0x7feb352du;
    const uint32_t z = (y ^ y >> 15 ^ between) * 0x846ca68bu;
    return z ^ z >> 16;
}

CZ_BODY uint32_t with_halves_swapped(uint32_t number)
{
    return number << 16 | number >> 16;
}

CZ_BODY uint32_t random_of(uint32_t place, uint32_t before, uint32_t between)
{
    const uint32_t counter = place / BLOCK * HALF_BLOCK + place % HALF_BLOCK;
    const uint32_t number = number_of(counter, before, between);
    return place % BLOCK < HALF_BLOCK ? number : with_halves_swapped(number);
}

CZ_BODY uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

CZ_BODY uint32_t size_of(float value)
{
    return bits_of(value) & 0x7fffffffu;
}

/* Has the first bit where a value's size is not below the limit. */
CZ_BODY uint32_t beyond(float value, uint32_t limit)
{
    return limit - 1 - size_of(value);
}

/* Below the largest finite value nothing becomes infinite. */
enum { BF16_LIMIT = 0x7f7f0000 };

CZ_BODY uint16_t bf16_below_limit(float value, uint32_t random)
{
    return (uint16_t)((bits_of(value) + (random >> 16)) >> 16);
}

/* What rounding to nearest makes infinite is so; what it does not never is. */
CZ_BODY uint16_t bf16_by_chance(float value, uint32_t random)
{
    const uint32_t size = size_of(value), infinite = 0x7f800000u;
    const uint32_t finite = smaller(size + (random >> 16), 0x7f7fffffu);
    const uint32_t special = choose(size > infinite, size | 0x400000u, infinite);
    const uint32_t rounded = choose(size < 0x7f7f8000u, finite, special);
    return (uint16_t)((rounded | (bits_of(value) & 0x80000000u)) >> 16);
}

enum { F16_LIMIT = 0x477fe000 };

/* Below 2^-14, where halves are multiples of 2^-24, 2^-14 is added first: then values are
 * rounded as those just above it. What is behind 2^-37, the last bit of an f32 there, is rounded to
 * nearest by the addition. */
CZ_BODY uint32_t f16_finite(uint32_t size, uint32_t random)
{
    const uint32_t normal = 113u << 23, tiny = choose(size < normal, normal, 0);
    const uint32_t steps =
        bits_of(float_of(size) + float_of(tiny)) - choose(size < normal, normal, 112u << 23);
    return (steps + (random >> 19)) >> 13;
}

CZ_BODY uint16_t f16_below_limit(float value, uint32_t random)
{
    return (uint16_t)(f16_finite(size_of(value), random) | (bits_of(value) >> 16 & 0x8000u));
}

CZ_BODY uint16_t f16_by_chance(float value, uint32_t random)
{
    const uint32_t size = size_of(value), nan = 0x7e00u | (size >> 13 & 0x3ffu);
    const uint32_t finite = smaller(f16_finite(size, random), 0x7bffu);
    const uint32_t special = choose(size > 255u << 23, nan, 0x7c00u);
    const uint32_t rounded = choose(size < 0x477ff000u, finite, special);
    return (uint16_t)(rounded | (bits_of(value) >> 16 & 0x8000u));
}

/* Places are 32 bits wide: so is the counter. A whole block that begins at a multiple of one is
 * nearly always below the limit: then it is done. */
#define STOCHASTIC(type, LIMIT)                                                                    \
    CZ_BODY void CZ_PASTE(type, each)(uint32_t before, uint32_t between, uint32_t first,           \
                                      int64_t count, const float *restrict in,                     \
                                      uint16_t *restrict out)                                      \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++)                                                        \
            out[i] =                                                                               \
                CZ_PASTE(type, by_chance)(in[i], random_of(first + (uint32_t)i, before, between)); \
    }                                                                                              \
    CZ_BODY bool CZ_PASTE(type, block)(uint32_t before, uint32_t between, uint32_t first,          \
                                       const float *restrict in, uint16_t *restrict out)           \
    {                                                                                              \
        uint32_t special = 0;                                                                      \
        for (int k = 0; k < HALF_BLOCK; k++) {                                                     \
            const uint32_t number = number_of(first / 2 + (uint32_t)k, before, between);           \
            const float near = in[k], far = in[k + HALF_BLOCK];                                    \
            special |= beyond(near, LIMIT) | beyond(far, LIMIT);                                   \
            out[k] = CZ_PASTE(type, below_limit)(near, number);                                    \
            out[k + HALF_BLOCK] = CZ_PASTE(type, below_limit)(far, with_halves_swapped(number));   \
        }                                                                                          \
        return !(special >> 31);                                                                   \
    }                                                                                              \
    CZ_STOCHASTIC(type)                                                                            \
    {                                                                                              \
        const uint32_t before = (uint32_t)key, between = (uint32_t)(key >> 32);                    \
        const float *in = from;                                                                    \
        uint16_t *out = to;                                                                        \
        for (int64_t some; count > 0; count -= some, in += some, out += some, first += some) {     \
            some = BLOCK - first % BLOCK;                                                          \
            some = count < some ? count : some;                                                    \
            if (some < BLOCK || !CZ_PASTE(type, block)(before, between, first, in, out))           \
                CZ_PASTE(type, each)(before, between, first, some, in, out);                       \
        }                                                                                          \
    }

STOCHASTIC(bf16, BF16_LIMIT)
STOCHASTIC(f16, F16_LIMIT)

/* Do the copies round to the values? */
CZ_BODY bool bf16_fit(int64_t count, const uint16_t *values, const float *copies)
{
    uint32_t differ = 0;
    for (int64_t i = 0; i < count; i++)
        differ |= bf16_nearest(copies[i]) ^ (uint32_t)values[i] << 16;
    return !(differ >> 16);
}

CZ_BODY bool f16_fit(int64_t count, const uint16_t *values, const float *copies)
{
    uint16_t rounded[BLOCK], differ = 0;
    for (int64_t i = f16_store_many(count, copies, rounded); i < count; i++)
        rounded[i] = f16_store(copies[i]);
    for (int64_t i = 0; i < count; i++)
        differ |= rounded[i] ^ values[i];
    return !differ;
}

/* Nearly always all of them fit: then nothing is written. */
#define REFRESH(type)                                                                              \
    CZ_REFRESH(type)                                                                               \
    {                                                                                              \
        const uint16_t *v = values;                                                                \
        float *m = copies;                                                                         \
        for (int64_t some; count > 0; count -= some, v += some, m += some) {                       \
            some = count < BLOCK ? count : BLOCK;                                                  \
            if (CZ_PASTE(type, fit)(some, v, m))                                                   \
                continue;                                                                          \
            for (int64_t i = 0; i < some; i++)                                                     \
                m[i] = CZ_PASTE(type, store)(m[i]) == v[i] ? m[i] : CZ_PASTE(type, load)(v[i]);    \
        }                                                                                          \
    }

REFRESH(bf16)
REFRESH(f16)
