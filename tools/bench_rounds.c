/* SPDX-License-Identifier: MIT */
/* What the times of several rounds say. */
#include "bench.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

double bench_spread(const double *values, int count)
{
    const double median = values[count / 2];
    return median > 0 ? (values[3 * count / 4] - values[count / 4]) / median : 0;
}
