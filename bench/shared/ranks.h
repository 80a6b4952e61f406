/* SPDX-License-Identifier: MIT */
/* Ranks that are threads of one process, as the hand-written programs see them: where they run, how
 * they meet, and how far they are from each other at this moment. */
#ifndef CZ_BENCH_RANKS_H
#define CZ_BENCH_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "loops.h"

typedef struct bench_line {
    _Alignas(64) atomic_uint turn;
    float data[12]; /* in the same line: a small message costs one transfer of it */
} bench_line;

/* A place to meet. Zero but for `ranks` at first. */
typedef struct bench_meet {
    int ranks;
    bench_line here[BENCH_RANKS];
    bench_line mail[BENCH_RANKS][2];
    bench_line ball; /* of the bounce */
} bench_meet;

int bench_cpus(void);
/* To the processor `rank` modulo how many there are; for a thread of its own. */
void bench_pin(int rank);
void bench_meet_all(bench_meet *meet, int rank);
/* One way from rank 0's core to rank 1's, in seconds: a cache line bounced for some microseconds.
 * Called by both; 0 where there is one processor. */
double bench_bounce(bench_meet *meet, int rank);
/* Every rank leaves up to 12 floats where all others find them, and waits for theirs. */
void bench_mail(bench_meet *meet, int rank, int count, const float *mine,
                const float *all[BENCH_RANKS]);
/* [begin, end) of `count` floats are rank's, in whole lines; lines do not divide: the last has
 * less. */
void bench_cut(size_t count, int ranks, int rank, size_t *begin, size_t *end);

double bench_seconds(void);
/* Written to once, so that they are there; 2 MiB pages if the system gives them and `huge`. Ends
 * the program when memory is out. */
float *bench_pages(size_t bytes, bool huge);
void bench_pages_free(float *pages, size_t bytes);

#endif
