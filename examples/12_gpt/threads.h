/* SPDX-License-Identifier: MIT */
/* The threads of one rank: they run the same function, each for its part of the rows. */
#ifndef THREADS_H
#define THREADS_H

#include <stdbool.h>

typedef struct threads threads;

/* What a thread is of its rank's threads: number index of count. */
typedef struct part {
    threads *threads;
    int index, count;
} part;

typedef void threads_job(part self, void *arg);

/* The calling thread and count - 1 others, which sleep until there is a job. False: there was no
 * memory or no thread to be had, and *out is NULL. */
bool threads_create(threads **out, int count);
void threads_destroy(threads **all); /* accepts NULL and *NULL, leaves *NULL */

/* Run the job on all threads, the calling one being number 0; returns when all are done with it. */
void threads_run(threads *all, threads_job *job, void *arg);

/* Inside a job: wait until all threads have come here. What they wrote before is seen after. */
void threads_meet(part self);

/* Items begin to end - 1 */
typedef struct share {
    int begin, end;
} share;

/* This thread's share of `count` items: as many as the others', but cut at multiples of `unit`, and
 * not less than `least`, a multiple of it too. So where there are few items, some threads have
 * none. */
share threads_share(part self, int count, int unit, int least);

#endif
