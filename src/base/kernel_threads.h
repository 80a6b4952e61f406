/* SPDX-License-Identifier: MIT */
/* A few threads that run kernels together with the thread that asks them to, and sleep in between. */
#ifndef CZ_BASE_KERNEL_THREADS_H
#define CZ_BASE_KERNEL_THREADS_H

#include "czero/base.h"

typedef struct cz__kernel_threads cz__kernel_threads;

/* What is to be done, for part 0 to the number of parts - 1. A part is done by the same thread each time, or by
 * the caller if that thread has not begun when the caller's own part is done. */
typedef void (*cz__part)(void *context, int part);

/* For so many parts, one of which is the caller's. *out is NULL for one part, or where no thread could be had;
 * there may be fewer than asked for. CZ_ERR_MEMORY. */
cz_status cz__kernel_threads_start(cz__kernel_threads **out, int parts);

int cz__kernel_threads_parts(const cz__kernel_threads *threads); /* NULL: 1 */

/* All parts, and wait for them. One call at a time. NULL: on the calling thread; so in a child of fork(), which has
 * no other threads. */
void cz__kernel_threads_run(cz__kernel_threads *threads, cz__part part, void *context);

/* Joins them; accepts NULL and *NULL, leaves *NULL. */
void cz__kernel_threads_stop(cz__kernel_threads **threads);

#endif
