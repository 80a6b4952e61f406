/* SPDX-License-Identifier: MIT */
/* How far apart numbers are: in steps from one number that the type has to the next ("units in the
 * last place"). */
#ifndef CZ_TOOL_ULPS_H
#define CZ_TOOL_ULPS_H

#include "czero/base.h"

/* Elements compared so far. Zeroed is none. */
typedef struct distance {
    int64_t count;     /* elements */
    int64_t different; /* in any bit */
    int64_t beyond;    /* more than `allowed` steps apart, or NaN on one side only */
    int64_t nans;      /* NaN on one side only */
    uint64_t ulps;     /* the most steps, of numbers */
    double absolute;   /* the greatest difference */
    int64_t at;        /* the first element that is beyond, -1: none */
    double size,
        apart; /* of finite elements that differ: sums of squares, of A's and of the differences */
} distance;

/* The norm of the differences over that of A's elements that differ. */
double ulps_relative(const distance *d);
/* What two have together. */
void ulps_add(distance *to, const distance *from);

/* Compare `count` elements from `first` on, of one type. -0 and 0 differ by 0 steps; so do NaNs of
 * other bits. For integers steps are the difference. */
void ulps_compare(distance *d, cz_dtype dtype, const void *a, const void *b, int64_t count,
                  int64_t first, uint64_t allowed);

#endif
