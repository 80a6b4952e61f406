/* SPDX-License-Identifier: MIT */
/* How benchmarks of processes begin and end; and memory that all processes of a machine see: what
 * hand-written programs meet and work in. */
#ifndef CZ_BENCH_MPI_SHARED_H
#define CZ_BENCH_MPI_SHARED_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>

#include "czero/status.h"
#include "shared/ranks.h"

/* Ends the job unless there are 2 to BENCH_RANKS processes. */
static inline void bench_mpi_begin(int *argc, char ***argv, int *rank, int *ranks)
{
    int provided;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    if (*ranks >= 2 && *ranks <= BENCH_RANKS)
        return;
    fprintf(stderr, "2 to %d processes, not %d\n", BENCH_RANKS, *ranks);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* Ends the job after a failure. */
static inline void bench_mpi_check(cz_status status, int rank)
{
    if (status == CZ_OK)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, cz_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* `bytes` of every rank, zero, at cache lines; at[r] is where this process sees those of rank r. */
static inline void make_shared(MPI_Win *window, size_t bytes, int ranks, void *at[BENCH_RANKS])
{
    char *base;
    MPI_Aint size;
    int unit;
    MPI_Win_allocate_shared((MPI_Aint)bytes + 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, window);
    for (int r = 0; r < ranks; r++) {
        MPI_Win_shared_query(*window, r, &size, &unit, &base);
        at[r] = base + (64 - (uintptr_t)base % 64) % 64;
    }
    MPI_Barrier(MPI_COMM_WORLD); /* new pages are zero */
}

static inline bench_meet *make_meet(MPI_Win *window, int rank, int ranks)
{
    void *at[BENCH_RANKS];
    make_shared(window, sizeof(bench_meet), ranks, at);
    bench_meet *meet = at[0];
    if (rank == 0)
        meet->ranks = ranks;
    MPI_Barrier(MPI_COMM_WORLD);
    return meet;
}

#endif
