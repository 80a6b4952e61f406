/* SPDX-License-Identifier: MIT */
/* Sums of squares beyond the range of double, by scaling with powers of two: Blue, "A portable
 * Fortran program to find the Euclidean norm of a vector", ACM TOMS 4 (1978), without his case for
 * values of all sizes: next to squares above the range of double those below do not count. */
#include "device/squares.h"

#include <math.h>

/* Above 2^-450 a root has all its bits: each square is wrong by 2^-1075 at most. */
#define SMALLEST 0x1p-900
enum { SHIFT = 600, BLOCK = 512 };

int cz__squares_shift(cz_dtype dtype, const cz_sum *sum)
{
    const double value = dtype == CZ_F64 ? cz_sum_value(sum) : 1;
    if (value < SMALLEST)
        return SHIFT;
    return isinf(value) ? -SHIFT : 0;
}

static cz_status add_shifted(const cz_device *device, int64_t count, const double *values,
                             double factor, cz_sum *sum)
{
    double block[BLOCK];
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        const int64_t size = count - begin < BLOCK ? count - begin : BLOCK;
        CZ_TRY(device->copy(NULL, block, values + begin, (size_t)size * sizeof *block));
        for (int64_t i = 0; i < size; i++)
            block[i] *= factor;
        CZ_TRY(cz_device_cpu()->add_squares(NULL, CZ_F64, size, block, sum));
    }
    return CZ_OK;
}

cz_status cz__add_squares(const cz_device *device, cz_dtype dtype, int64_t count,
                          const void *values, int shift, cz_sum *sum)
{
    return shift == 0 ? device->add_squares(NULL, dtype, count, values, sum)
                      : add_shifted(device, count, values, ldexp(1, shift), sum);
}

cz_status cz__root_of_squares(const cz_device *device, cz_dtype dtype, int64_t count,
                              const void *values, double *root)
{
    cz_sum sum = {{0}};
    CZ_TRY(cz__add_squares(device, dtype, count, values, 0, &sum));
    const int shift = cz__squares_shift(dtype, &sum);
    if (shift != 0) {
        sum = (cz_sum){{0}};
        CZ_TRY(cz__add_squares(device, dtype, count, values, shift, &sum));
    }
    *root = ldexp(sqrt(cz_sum_value(&sum)), -shift);
    return CZ_OK;
}
