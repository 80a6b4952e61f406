/* SPDX-License-Identifier: MIT */
/* Inputs that are the same on every machine. */
#include "support/cz_test.h"

/* Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
static uint64_t splitmix64(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static double element(uint64_t seed, int64_t index)
{
    return (double)(splitmix64((seed << 32) + (uint64_t)index) >> 40) * 0x1p-23 - 1;
}

void cz_test_stream_f32(uint64_t seed, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)element(seed, i);
}

void cz_test_stream_f64(uint64_t seed, int64_t count, double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = element(seed, i);
}

int64_t cz_test_sizes(uint64_t seed, int64_t count, int64_t maximum, int64_t *sizes)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t word = splitmix64((seed << 32) + (uint64_t)i);
        int64_t size = (int64_t)((word >> 16) % ((uint64_t)maximum + 1));
        if (word % 4 == 0) {
            const int64_t near[] = {0, 1, size / 16 * 16, size / 16 * 16 + 1, size / 16 * 16 + 15};
            size = near[(word >> 8) % 5];
        }
        sizes[i] = size < maximum ? size : maximum;
        sum += sizes[i];
    }
    return sum;
}
