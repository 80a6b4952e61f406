/* SPDX-License-Identifier: MIT */
/* Exact sums: nanoseconds per term, in the second-level cache and in memory, of numbers as
 * gradients have them (all signs, a bell curve) and of numbers all over the range of the type. */
#include "base/clock.h"
#include "device/cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "median.h"

#define ROUNDS 15

static void fill(cz_dtype dtype, size_t count, bool wide, void *memory)
{
    for (size_t i = 0; i < count; i++) {
        double value = 0;
        for (int k = 0; k < 12; k++)
            value += (double)rand() / RAND_MAX - 0.5;
        if (wide)
            value = ldexp(value, rand() % 120 - 60);
        if (dtype == CZ_F32)
            ((float *)memory)[i] = (float)value;
        else
            ((double *)memory)[i] = value;
    }
}

static void measure(cz_dtype dtype, size_t bytes, bool wide, const char *place)
{
    double times[ROUNDS];
    void *memory;
    cz_sum sum = {{0}};
    const size_t count = bytes / cz_dtype_size(dtype), repeats = ((size_t)64 << 20) / bytes;
    CZ_CHECK(cz_device_cpu()->allocate(CZ_MEMORY_STATE, bytes, &memory));
    fill(dtype, count, wide, memory);
    for (int round = 0; round < ROUNDS; round++) {
        const double begin = cz__seconds();
        for (size_t i = 0; i < repeats; i++)
            CZ_CHECK(cz_device_cpu()->add_squares(NULL, dtype, (int64_t)count, memory, &sum));
        times[round] = (cz__seconds() - begin) * 1e9 / (double)(repeats * count);
    }
    qsort(times, ROUNDS, sizeof *times, by_value);
    printf("squares of %s  %-4s %6.3f ns  %s  (%g)\n", cz_dtype_name(dtype), place, times[0],
           wide ? "wide range" : "bell curve", cz_sum_value(&sum));
    cz_device_cpu()->release(memory);
}

int main(void)
{
    printf("%s\nexact sums, one thread, per term\n", cz_build_info());
    for (int dtype = CZ_F32; dtype <= CZ_F64; dtype++) {
        measure((cz_dtype)dtype, (size_t)128 << 10, false, "L2");
        measure((cz_dtype)dtype, (size_t)64 << 20, false, "DRAM");
        measure((cz_dtype)dtype, (size_t)128 << 10, true, "L2");
    }
    return 0;
}
