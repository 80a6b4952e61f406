/* SPDX-License-Identifier: MIT */
/* How many cores the rank that asks may use for its kernels. */
#ifndef CZ_BASE_CORES_H
#define CZ_BASE_CORES_H

#include <stdbool.h>

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

/* The smallest quota of cores on the way from a process's control group up to the root. `root` is where the file
 * system of control groups is, `membership` the process's list of them; INFINITY: no quota. */
double cz__cores_quota(const char *root, const char *membership);

/* Ranks that are threads, of a group that is no part of another one, begin or end. */
void cz__cores_add_ranks(int ranks);

/* Threads of kernels, the caller's among them: as the option says, else CZERO_THREADS, else (0) a fair share.
 * `is_wish`: it was the option or the variable. */
int cz__kernel_thread_count(int option, bool *is_wish);

#endif
