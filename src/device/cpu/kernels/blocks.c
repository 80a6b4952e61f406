/* SPDX-License-Identifier: MIT */
/* State in 8 bits: a code for each element and one scale for each block of 256 of them (Dettmers,
 * Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers via Block-wise Quantization", arXiv:2110.02861).
 * What a code stands for is dynamic: seven decades from 1e-7 to 1, each with twice the cells of the
 * one below, and a code is the middle of its cell; two more are 0 and 1. A block's scale is its
 * element of the largest size, with its sign, so that this one is kept exactly.
 *
 *      signed      0; 1 to 127; 128 is 1; 129 to 255 are 1 to 127 below zero
 *      unsigned    0; 1 to 254; 255 is 1
 *
 * The number of a cell is a line over each decade, less steep than the one below, and they meet
 * where decades do. So it is the lowest of seven lines: no search, no table. */
#include "device/blocks.h"
#include "device/cpu/kernels/half.h"

enum { BLOCK = CZ__BLOCK };

/* ---- what codes stand for ---- */

#define MIDDLE(power, cells, cell) (float)((power) * (0.1 + 0.9 * ((cell) + 0.5) / (cells)))
#define TWO(s, n, j) MIDDLE(s, n, j), MIDDLE(s, n, (j) + 1)
#define FOUR(s, n, j) TWO(s, n, j), TWO(s, n, (j) + 2)
#define EIGHT(s, n, j) FOUR(s, n, j), FOUR(s, n, (j) + 4)
#define SIXTEEN(s, n, j) EIGHT(s, n, j), EIGHT(s, n, (j) + 8)
#define MANY(s, n, j) SIXTEEN(s, n, j), SIXTEEN(s, n, (j) + 16)
#define SIXTY_FOUR(s, n, j) MANY(s, n, j), MANY(s, n, (j) + 32)

#define SIZES(sign)                                                                                \
    MIDDLE((sign)*1e-6, 1, 0), TWO((sign)*1e-5, 2, 0), FOUR((sign)*1e-4, 4, 0),                    \
        EIGHT((sign)*1e-3, 8, 0), SIXTEEN((sign)*1e-2, 16, 0), MANY((sign)*1e-1, 32, 0),           \
        SIXTY_FOUR((sign)*1.0, 64, 0)

static const float signed_codes[256] = {0, SIZES(1), 1, SIZES(-1)};

static const float unsigned_codes[256] = {0,
                                          TWO(1e-6, 2, 0),
                                          FOUR(1e-5, 4, 0),
                                          EIGHT(1e-4, 8, 0),
                                          SIXTEEN(1e-3, 16, 0),
                                          MANY(1e-2, 32, 0),
                                          SIXTY_FOUR(1e-1, 64, 0),
                                          SIXTY_FOUR(1.0, 128, 0),
                                          SIXTY_FOUR(1.0, 128, 64),
                                          1};

/* ---- the scale of a block ---- */

/* Below it the products of small codes would be so few numbers that codes could not be told apart:
 * a block of smaller ones has this scale. */
#define SMALLEST 0x1p-120f

/* Of both signs: the larger one's, where they are equal that above zero. NaN where an element is
 * not finite: none of the block would be right. */
CZ_BODY float signed_scale(int64_t count, const float *values)
{
    int32_t most = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t bits = (int32_t)bits_of(values[i]), size = bits & 0x7fffffff;
        most = bits > most ? bits : most;
        largest = size > largest ? size : largest;
    }
    const float size = float_of((uint32_t)largest);
    if (largest >= 0x7f800000)
        return float_of(0x7fc00000u);
    if (size < SMALLEST)
        return size > 0 ? SMALLEST : 0;
    return most == largest ? size : -size;
}

/* What is below zero counts as zero. */
CZ_BODY float unsigned_scale(int64_t count, const float *values)
{
    int32_t most = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t bits = (int32_t)bits_of(values[i]), size = bits & 0x7fffffff;
        most = bits > most ? bits : most;
        largest = size > largest ? size : largest;
    }
    const float size = float_of((uint32_t)most);
    if (largest >= 0x7f800000)
        return float_of(0x7fc00000u);
    return size < SMALLEST && size > 0 ? SMALLEST : size;
}

/* ---- to codes ---- */

/* The number of the cell, as it goes on within it, where the first decade has `cells`: it begins
 * with cell number `cells`. */
CZ_BODY float number_of(float size, float cells)
{
#define LINE(power, i) (size * (float)((power) / 0.9 * (1 << (i))) + (float)(8.0 / 9 * (1 << (i))))
#define LOWER(a, b) ((a) < (b) ? (a) : (b))
    float lowest = LINE(1e6, 0), line;
#define NEXT(power, i)                                                                             \
    line = LINE(power, i);                                                                         \
    lowest = LOWER(line, lowest)
    NEXT(1e5, 1);
    NEXT(1e4, 2);
    NEXT(1e3, 3);
    NEXT(1e2, 4);
    NEXT(1e1, 5);
    NEXT(1e0, 6);
    return lowest * cells;
}

/* The number of the nearest middle. It is that of the cell, but for the first fifth of the first
 * cell of a decade: the last middle of the one below is nearer, in the lowest decade zero up to
 * `zero` of its first cell. And for what is nearer to 1, which is beyond the last cell. */
CZ_BODY uint32_t nearest_of(float size, uint32_t cells, float zero)
{
    const float number = number_of(size, (float)cells), last = (float)(128 * cells) - 0.25f;
    const uint32_t cell = (uint32_t)(int32_t)number;
    const float within = number - (float)(int32_t)cell;
    const float below = float_of(choose(cell == cells, bits_of(zero), bits_of(0.2f)));
    const uint32_t nearest = cell - ((cell & (cell - 1)) == 0 && within < below);
    return choose(number >= last, 128 * cells, nearest);
}

CZ_BODY uint8_t signed_code(float value, float scale)
{
    const uint32_t share = bits_of(value / scale);
    const uint32_t size = nearest_of(float_of(share & 0x7fffffffu), 1, 7.0f / 36);
    const uint32_t below = 128 + choose(size < 127, size, 127);
    return (uint8_t)choose(share >> 31 && size > 0, below, size);
}

CZ_BODY uint8_t unsigned_code(float value, float scale)
{
    const float share = value / scale;
    const uint32_t number = nearest_of(share > 0 ? share : 0, 2, 5.0f / 36);
    return (uint8_t)(choose(number > 1, number, 1) - 1);
}

/* What stands for zeros is what zeros become. */
CZ_BODY float scale_of(int64_t count, const uint8_t *codes, float scale)
{
    uint8_t any = 0;
    if (scale != SMALLEST)
        return scale;
    for (int64_t i = 0; i < count; i++)
        any |= codes[i];
    return any ? scale : 0;
}

#define PACK_SOME(sign)                                                                            \
    CZ_BODY void pack_##sign(int64_t count, const float *restrict values, uint8_t *restrict codes, \
                             float *restrict scale)                                                \
    {                                                                                              \
        const float s = sign##_scale(count, values);                                               \
        *scale = s;                                                                                \
        if (s != s || s == 0) {                                                                    \
            for (int64_t i = 0; i < count; i++)                                                    \
                codes[i] = 0;                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < count; i++)                                                        \
            codes[i] = sign##_code(values[i], s);                                                  \
        *scale = scale_of(count, codes, s);                                                        \
    }

#define PACK(sign)                                                                                 \
    PACK_SOME(sign)                                                                                \
    CZ_PACK(sign)                                                                                  \
    {                                                                                              \
        for (; count >= BLOCK; count -= BLOCK, values += BLOCK, codes += BLOCK)                    \
            pack_##sign(BLOCK, values, codes, scales++);                                           \
        if (count > 0)                                                                             \
            pack_##sign(count, values, codes, scales);                                             \
    }

PACK(signed)
PACK(unsigned)

/* ---- from codes ---- */

#define UNPACK(sign)                                                                               \
    CZ_UNPACK(sign)                                                                                \
    {                                                                                              \
        for (int64_t some; count > 0; count -= some, values += some, codes += some) {              \
            const float scale = *scales++;                                                         \
            some = count < BLOCK ? count : BLOCK;                                                  \
            for (int64_t i = 0; i < some; i++)                                                     \
                values[i] = sign##_codes[codes[i]] * scale;                                        \
        }                                                                                          \
    }

UNPACK(signed)
UNPACK(unsigned)
