/* SPDX-License-Identifier: MIT */
/* What a group on MPI costs that nobody uses: processor time while the program sleeps, and how much
 * longer a loop that touches no memory takes. Under mpirun, as many ranks as cores; each line is
 * the worst rank's. Goals: below 1 % of a core, and below 3 % longer. */
#include <stdio.h>
#include <time.h>

#include "czero/mpi.h"

enum { ROUNDS = 15 };

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Percent of a core that the process takes while this thread sleeps. */
static double idle(void)
{
    const struct timespec nap = {.tv_sec = 3};
    const double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    nanosleep(&nap, NULL);
    return (seconds(CLOCK_PROCESS_CPUTIME_ID) - before) / 3 * 100;
}

/* Seconds that other threads of the process took while this one computed. */
static double others_cpu;

static double other_threads(void)
{
    return seconds(CLOCK_PROCESS_CPUTIME_ID) - seconds(CLOCK_THREAD_CPUTIME_ID);
}

/* Seconds for a fixed amount of work, about a third of one. */
static double compute(void)
{
    double x = 0.5;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = seconds(CLOCK_MONOTONIC), before = other_threads();
    for (int i = 0; i < 100000000; i++)
        x = x * 0.999999 + 1e-6;
    others_cpu = other_threads() - before;
    return seconds(CLOCK_MONOTONIC) - begun + (x > 1 ? x : 0); /* which it never is */
}

static double worst(double mine)
{
    double all;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

static cz_status open_group(cz_group **group)
{
    float one = 1;
    CZ_TRY(cz_group_create_mpi(group, MPI_COMM_WORLD, NULL, NULL));
    return cz_all_reduce(*group, &one, 1, CZ_F32, CZ_SUM, NULL);
}

/* The best times of rounds in turn, since other programs only ever make them longer. */
static cz_status compare_loops(double *without, double *with, double *others)
{
    *without = *with = 1e9;
    *others = 0;
    for (int i = 0; i < ROUNDS; i++) {
        cz_group *group;
        const double alone = worst(compute());
        CZ_TRY(open_group(&group));
        const double beside = worst(compute());
        cz_group_destroy(&group);
        *others += worst(others_cpu) / beside / ROUNDS;
        *without = alone < *without ? alone : *without;
        *with = beside < *with ? beside : *with;
    }
    return CZ_OK;
}

static cz_status measure(int rank)
{
    double without, with, others;
    cz_group *group;
    const double before = worst(idle());
    CZ_TRY(open_group(&group));
    const double after = worst(idle());
    cz_group_destroy(&group);
    CZ_TRY(compare_loops(&without, &with, &others));
    if (rank == 0) {
        printf("asleep: %.3f %% of a core with an idle group, %.3f %% without\n", after, before);
        printf("computing: %.4f s beside an idle group, %.4f s without: %+.2f %%; its threads took "
               "%.3f %% of a core\n",
               with, without, (with / without - 1) * 100, others * 100);
    }
    return CZ_OK;
}

int main(int argc, char **argv)
{
    int provided, rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const cz_status status = measure(rank);
    if (status != CZ_OK)
        fprintf(stderr, "rank %d: %s\n", rank, cz_last_error());
    MPI_Finalize();
    return status != CZ_OK;
}
