/* SPDX-License-Identifier: MIT */
/** @file sum.h  Exact sums of doubles: the same bits in any order, however the terms are dealt out.
 *
 *      cz_sum sum = {{0}};
 *      const double terms[] = {1e300, 1, -1e300};
 *      cz_sum_add(&sum, 3, terms);
 *      cz_sum_value(&sum)         // 1 */
#ifndef CZERO_SUM_H
#define CZERO_SUM_H

#include "czero/base.h"

CZ_BEGIN_DECLS

#define CZ_SUM_CHUNKS 70

/** A sum that forgets nothing: a fixed-point number as long as the range of double, and how many
 *  infinities and NaN were added. All zero: the empty sum. The chunks are the library's.
 *  @see Neal, arXiv:1505.05571; Kulisch, "Computer Arithmetic and Validity". */
typedef struct cz_sum {
    int64_t chunks[CZ_SUM_CHUNKS];
} cz_sum;

/** Add `count` terms. Many at once are several times faster. Nothing is added to NULL, or from
 *  NULL, or with a count that no array has. Local; one thread at a time per sum. */
CZ_API void cz_sum_add(cz_sum *sum, int64_t count, const double *terms);

/** The sum, rounded once to the nearest double, ties to even; an empty or exactly cancelled one is
 *  0. NaN if one was added, or infinities of both signs; infinity if one was added, or the sum is
 *  beyond the largest double. NaN for NULL. Local. */
CZ_API double cz_sum_value(const cz_sum *sum);

CZ_END_DECLS
#endif
