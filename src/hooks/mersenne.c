/* SPDX-License-Identifier: MIT */
/* MT19937 and normal numbers from it. */
#include "hooks/powersgd.h"

#include <math.h>

enum { WORDS = 624, SHIFT = 397, BLOCK = 16 };

static const double two_pi = 6.283185307179586476925;

void cz__mersenne_seed(cz__mersenne *m, uint32_t seed)
{
    m->words[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        m->words[i] = 1812433253u * (m->words[i - 1] ^ (m->words[i - 1] >> 30)) + i;
    m->next = WORDS;
    m->has_spare = false;
}

static uint32_t twist(uint32_t high, uint32_t low)
{
    const uint32_t joined = (high & 0x80000000u) | (low & 0x7fffffffu);
    return joined >> 1 ^ (low & 1 ? 0x9908b0dfu : 0);
}

static uint32_t next(cz__mersenne *m)
{
    if (m->next == WORDS) {
        for (int i = 0; i < WORDS; i++)
            m->words[i] =
                m->words[(i + SHIFT) % WORDS] ^ twist(m->words[i], m->words[(i + 1) % WORDS]);
        m->next = 0;
    }
    uint32_t word = m->words[m->next++];
    word ^= word >> 11;
    word ^= word << 7 & 0x9d2c5680u;
    word ^= word << 15 & 0xefc60000u;
    return word ^ word >> 18;
}

uint32_t cz__mersenne_below_1e9(cz__mersenne *m)
{
    uint32_t number;
    do
        number = next(m) & 0x3fffffffu;
    while (number >= 1000000000u);
    return number;
}

/* ---- normal numbers ----
 *
 * In pairs: sqrt(-2 ln u) times cosine and sine of 2 pi v (Box and Muller 1958). */

static double uniform_53(cz__mersenne *m)
{
    const uint64_t high = next(m), low = next(m);
    return (double)((high << 32 | low) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

static float one_normal(cz__mersenne *m)
{
    if (m->has_spare) {
        m->has_spare = false;
        return (float)m->spare;
    }
    const double angle = two_pi * uniform_53(m);
    const double radius = sqrt(-2 * log1p(-uniform_53(m)));
    m->spare = radius * sin(angle);
    m->has_spare = true;
    return (float)(radius * cos(angle));
}

static void fill_uniform(cz__mersenne *m, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)(next(m) & 0xffffffu) * 0x1p-24f;
}

static void transform_block(float *x)
{
    for (int j = 0; j < BLOCK / 2; j++) {
        const float radius = sqrtf(-2 * logf(1 - x[j]));
        const float angle = (float)two_pi * x[j + BLOCK / 2];
        x[j] = radius * cosf(angle);
        x[j + BLOCK / 2] = radius * sinf(angle);
    }
}

void cz__mersenne_normals(cz__mersenne *m, int64_t count, float *out)
{
    if (count < BLOCK) {
        for (int64_t i = 0; i < count; i++)
            out[i] = one_normal(m);
        return;
    }
    fill_uniform(m, count, out);
    for (int64_t i = 0; i + BLOCK <= count; i += BLOCK)
        transform_block(out + i);
    if (count % BLOCK) {
        fill_uniform(m, BLOCK, out + count - BLOCK);
        transform_block(out + count - BLOCK);
    }
}
