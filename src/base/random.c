/* SPDX-License-Identifier: MIT */
/* Random numbers as a pure function of (seed, stream, counter): Philox 4x32, 10 rounds.
 * Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11. */
#include "czero/random.h"
#include "base/float_mode.h"

#include <math.h>

#define ROUNDS 10

void cz_random_block(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4])
{
    uint32_t x0 = (uint32_t)counter, x1 = (uint32_t)(counter >> 32);
    uint32_t x2 = (uint32_t)stream, x3 = (uint32_t)(stream >> 32);
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    if (!out)
        return;
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t a = UINT64_C(0xd2511f53) * x0, b = UINT64_C(0xcd9e8d57) * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ key0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ key1;
        x3 = (uint32_t)a;
        key0 += 0x9e3779b9u; /* golden ratio */
        key1 += 0xbb67ae85u; /* sqrt(3) - 1 */
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

float cz_random_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    CZ__OWN_FLOATS;
    uint32_t words[4];
    cz_random_block(seed, stream, counter, words);
    return (float)(words[0] >> 8) * 0x1p-24f;
}

/* 53 bits of two words, in [0, 2^53). */
static double upper_bits(uint32_t high, uint32_t low)
{
    return (double)(((uint64_t)high << 32 | low) >> 11);
}

float cz_random_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    CZ__OWN_FLOATS;
    uint32_t words[4];
    cz_random_block(seed, stream, counter, words);
    const double u =
        (upper_bits(words[0], words[1]) + 1) * 0x1p-53; /* (0, 1]: the logarithm exists */
    const double turn = upper_bits(words[2], words[3]) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * turn));
}
