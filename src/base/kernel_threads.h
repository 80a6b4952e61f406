/* SPDX-License-Identifier: MIT */
/* How many cores the rank that asks may use for its kernels; and threads on them. */
#ifndef CZ_BASE_KERNEL_THREADS_H
#define CZ_BASE_KERNEL_THREADS_H

#include <stdbool.h>

#include "czero/base.h"

/* ---- cores ---- */

#define CZ__KERNEL_THREADS_MAX 64

/* What there is, and who shares it. */
typedef struct cz__cores {
    int allowed;   /* to the calling thread, by its affinity */
    int machine;   /* online */
    double quota;  /* of the control group; INFINITY: none */
    int processes; /* of the job on this machine, which share it and the quota */
    int ranks;     /* of the job in this process, threads */
} cz__cores;

/* A fair share, 1 to CZ__KERNEL_THREADS_MAX. */
int cz__cores_share(const cz__cores *cores);

/* As they are now, for the calling thread. */
cz__cores cz__cores_look(void);

/* Which ones the calling thread may use, a bit for each. */
enum { CZ__CORE_WORDS = 16 };
typedef struct cz__core_set {
    int64_t words[CZ__CORE_WORDS]; /* all 0: they are more than it holds */
} cz__core_set;
cz__core_set cz__core_set_look(void);

/* The share of one of the ranks on this machine, which have these sets, at least 1: of each core as
 * much as there is for each rank that may use it; of the machine and its quota what `here` says. */
int cz__cores_apportion(const cz__core_set *sets, int count, int mine, const cz__cores *here);

/* The smallest quota of cores on the way from a process's control group up to the root. `root` is
 * where the file system of control groups is, `membership` the process's list of them; INFINITY: no
 * quota. */
double cz__cores_quota(const char *root, const char *membership);

/* Ranks that are threads, of a group that is no part of another one, begin or end. */
void cz__cores_add_ranks(int ranks);

/* Threads of kernels, the caller's among them: as the option says, else CZERO_THREADS, else (0) a
 * fair share. `is_wish`: it was the option or the variable. */
int cz__kernel_thread_count(int option, bool *is_wish);

/* ---- threads ---- */
/* A few threads that run kernels together with the thread that asks them to, and sleep in
 * between. */

typedef struct cz__kernel_threads cz__kernel_threads;

/* What is to be done, for part 0 to the number of parts - 1. A part is done by the same thread each
 * time, or by the caller if that thread has not begun when the caller's own part is done. */
typedef void (*cz__part)(void *context, int part);

/* For so many parts, one of which is the caller's. *out is NULL for one part, or where no thread
 * could be had; there may be fewer than asked for. CZ_ERR_MEMORY. */
cz_status cz__kernel_threads_start(cz__kernel_threads **out, int parts);

int cz__kernel_threads_parts(const cz__kernel_threads *threads); /* NULL: 1 */

/* All parts, and wait for them. One call at a time. NULL: on the calling thread; so in a child of
 * fork(), which has no other threads. */
void cz__kernel_threads_run(cz__kernel_threads *threads, cz__part part, void *context);

/* Joins them; accepts NULL and *NULL, leaves *NULL. */
void cz__kernel_threads_stop(cz__kernel_threads **threads);

#endif
