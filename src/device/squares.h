/* SPDX-License-Identifier: MIT */
/* Sums of squares of f64, where squares are beyond the range of double and their root is not: the
 * values are multiplied by a power of two first, which is exact, the same for all of them wherever
 * they are. */
#ifndef CZ_DEVICE_SQUARES_H
#define CZ_DEVICE_SQUARES_H

#include "czero/device.h"

/* Of a sum of squares of such values, all of them: 0, it is as good as any; otherwise the power of
 * two with which they are to be added again. */
int cz__squares_shift(cz_dtype dtype, const cz_sum *sum);

/* cz_device.add_squares() of f64 values times 2^shift, in memory that the CPU's device can copy
 * from; 0: as they are. */
cz_status cz__add_squares(const cz_device *device, cz_dtype dtype, int64_t count,
                          const void *values, int shift, cz_sum *sum);

/* The root of the sum of squares of these values, and of no others. */
cz_status cz__root_of_squares(const cz_device *device, cz_dtype dtype, int64_t count,
                              const void *values, double *root);

#endif
