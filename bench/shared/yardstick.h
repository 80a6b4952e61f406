/* SPDX-License-Identifier: MIT */
/* Collectives of thread ranks by hand: what the machine allows where ranks share memory and nothing
 * is checked. Floats; sums in rank order. They begin and end with a meeting, since no rank may read
 * what another has not finished, nor change what another still reads. */
#ifndef CZ_BENCH_YARDSTICK_H
#define CZ_BENCH_YARDSTICK_H

#include "ranks.h"

typedef enum bench_kind {
    BENCH_ALL_REDUCE,
    BENCH_REDUCE_SCATTER, /* whole in, part out */
    BENCH_ALL_GATHER,     /* part in, whole out */
    BENCH_BROADCAST,      /* from rank 0 */
    BENCH_KINDS
} bench_kind;

extern const char *const bench_kind_names[BENCH_KINDS];

typedef struct bench_yardstick {
    bench_meet meet;
    const bench_loops *loops;
    float *whole[BENCH_RANKS], *part[BENCH_RANKS]; /* of each rank; a page apart, whole pages */
} bench_yardstick;

/* `count` floats in a whole, a multiple of the ranks. Called by every rank. streams: 1 with
 * streaming stores. */
void bench_yardstick_run(bench_yardstick *y, bench_kind kind, int rank, size_t count, int streams);

#endif
