/* SPDX-License-Identifier: MIT */
/* What all benchmarks make of their rounds. */
#ifndef CZ_BENCH_MEDIAN_H
#define CZ_BENCH_MEDIAN_H

#include <stdlib.h>

static inline int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The values are in order afterwards. */
static inline double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

#endif
