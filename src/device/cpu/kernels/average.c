/* SPDX-License-Identifier: MIT */
/* Moving averages of values: a = a + w (v - a). */
#include "device/cpu/kernels/kernel.h"

#define MOVING_AVERAGE_LOOP(type, real)                                                            \
    CZ_MOVING_AVERAGE(type)                                                                        \
    {                                                                                              \
        const real *restrict v = values;                                                           \
        const real w = (real)weight;                                                               \
        real *restrict a = averages;                                                               \
        for (int64_t i = 0; i < count; i++)                                                        \
            a[i] = a[i] + w * (v[i] - a[i]);                                                       \
    }

MOVING_AVERAGE_LOOP(f32, float)
MOVING_AVERAGE_LOOP(f64, double)
