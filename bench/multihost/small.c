/* SPDX-License-Identifier: MIT */
/* Small all-reduces between two hosts (see small.sh), beside MPI_Allreduce of the same, in turns:
 * medians over the rounds. Also on one machine, under mpirun. small ROUNDS. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "median.h"

#include "czero/czero.h"
#include "czero/mpi.h"

enum { MOST_ROUNDS = 99, EACH = 200 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Microseconds of one; a sum of zeros stays what it is. */
static cz_status measure(cz_group *group, bool ours, float *data, int count, double *each)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = now();
    for (int i = 0; i < EACH; i++)
        if (ours)
            CZ_TRY(cz_all_reduce(group, data, count, CZ_F32, CZ_SUM, NULL));
        else
            MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    *each = (now() - begun) / EACH * 1e6;
    return CZ_OK;
}

static cz_status run(cz_group *group, int rounds)
{
    static const int counts[] = {1, 16, 64, 256, 512, 1024, 4096};
    static float data[4096];
    double ours[MOST_ROUNDS], theirs[MOST_ROUNDS];
    if (cz_group_rank(group) == 0)
        printf("small all-reduces on %d ranks, %d rounds of %d\n", cz_group_size(group), rounds,
               EACH);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        for (int i = -1; i < rounds; i++) { /* the first is no round */
            const int at = i < 0 ? 0 : i;
            CZ_TRY(measure(group, true, data, counts[k], &ours[at]));
            CZ_TRY(measure(group, false, data, counts[k], &theirs[at]));
        }
        const double mine = median(ours, rounds), limit = median(theirs, rounds);
        if (cz_group_rank(group) == 0)
            printf("%6d bytes: %7.2f us, MPI_Allreduce %7.2f us: %.2f of its time\n", 4 * counts[k],
                   mine, limit, mine / limit);
    }
    return CZ_OK;
}

int main(int argc, char **argv)
{
    int provided;
    cz_group *group = NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    const int rounds = argc == 2 ? atoi(argv[1]) : 0;
    cz_status status = CZ_ERR_ARGUMENT;
    if (rounds < 1 || rounds > MOST_ROUNDS)
        fprintf(stderr, "usage, under mpirun: small ROUNDS\n");
    else if ((status = cz_group_create_mpi(&group, MPI_COMM_WORLD, NULL, NULL)) != CZ_OK ||
             (status = run(group, rounds)) != CZ_OK)
        fprintf(stderr, "%s\n", cz_last_error());
    cz_group_destroy(&group);
    MPI_Finalize();
    return status != CZ_OK;
}
