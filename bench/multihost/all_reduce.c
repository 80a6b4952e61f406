/* SPDX-License-Identifier: MIT */
/* All-reduce between two hosts with one rank or more each (see all_reduce.sh): in a group that
 * knows its machines, and in one that sends everything by messages, in turns. The share of the
 * link's rate is that of what one copy of the sums would take; the bytes are what one host sent.
 * Medians over the rounds. all_reduce MIB ROUNDS, under mpirun. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "median.h"

#include "czero/czero.h"
#include "czero/mpi.h"

enum { MAX_ROUNDS = 99 };
static const double NOMINAL_RATE = 1e9; /* bits in a second that the link is shaped to, each way */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Bytes that this host has sent over the link, 0 if it has none of that name. */
static double sent_bytes(void)
{
    char line[512];
    double received = 0, fields[7], sent = 0;
    FILE *file = fopen("/proc/self/net/dev", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, " cz0: %lf %lf %lf %lf %lf %lf %lf %lf %lf", &received, &fields[0],
                   &fields[1], &fields[2], &fields[3], &fields[4], &fields[5], &fields[6],
                   &sent) == 9)
            break;
    if (file)
        fclose(file);
    return sent;
}

/* Seconds on the slowest rank, and the bytes of this host. */
static cz_status measure(cz_group *group, float *data, int64_t count, double *seconds,
                         double *bytes)
{
    CZ_TRY(cz_barrier(group, NULL));
    const double before = sent_bytes(), begun = now();
    CZ_TRY(cz_all_reduce(group, data, count, CZ_F32, CZ_AVERAGE, NULL));
    *seconds = now() - begun;
    CZ_TRY(cz_all_reduce(group, seconds, 1, CZ_F64, CZ_MAX, CZ_LABEL("slowest")));
    *bytes = sent_bytes() - before;
    return CZ_OK;
}

static cz_status run(cz_group *const *groups, float *data, int64_t count, int rounds)
{
    static const char *const names[] = {"machines known", "all by messages"};
    double seconds[2][MAX_ROUNDS], bytes[2][MAX_ROUNDS];
    for (int i = -1; i < rounds; i++) /* the first is no round */
        for (int k = 0; k < 2; k++)
            CZ_TRY(measure(groups[k], data, count, &seconds[k][i < 0 ? 0 : i],
                           &bytes[k][i < 0 ? 0 : i]));
    const double once = (double)count * sizeof *data;
    for (int k = 0; k < 2 && cz_group_rank(groups[0]) == 0; k++) {
        const double time = median(seconds[k], rounds);
        printf("%-16s %.3f s (%.3f to %.3f), %3.0f %% of the link for one copy; a host sends %.1f "
               "MiB\n",
               names[k], time, seconds[k][0], seconds[k][rounds - 1],
               100 * 8 * once / NOMINAL_RATE / time, median(bytes[k], rounds) / (1 << 20));
    }
    return CZ_OK;
}

static cz_status run_all(int64_t mib, int rounds)
{
    const int64_t count = mib << 18;
    cz_group *groups[2] = {NULL, NULL};
    float *data = aligned_alloc(64, (size_t)count * sizeof *data);
    cz_status status = data ? CZ_OK : cz_fail(CZ_ERR_MEMORY, "no memory for %d MiB", (int)mib);
    for (int64_t i = 0; i < count && data; i++)
        data[i] = (float)(i % 1000);
    setenv("CZERO_MPI_WINDOW", "0", 1);
    if (status == CZ_OK)
        status = cz_group_create_mpi(&groups[1], MPI_COMM_WORLD, NULL, NULL);
    unsetenv("CZERO_MPI_WINDOW");
    if (status == CZ_OK)
        status = cz_group_create_mpi(&groups[0], MPI_COMM_WORLD, NULL, NULL);
    if (status == CZ_OK && cz_group_rank(groups[0]) == 0)
        printf("%d MiB on %d ranks of two hosts, %d rounds\n", (int)mib, cz_group_size(groups[0]),
               rounds);
    if (status == CZ_OK)
        status = run(groups, data, count, rounds);
    cz_group_destroy(&groups[1]);
    cz_group_destroy(&groups[0]);
    free(data);
    return status;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    const int mib = argc == 3 ? atoi(argv[1]) : 0, rounds = argc == 3 ? atoi(argv[2]) : 0;
    cz_status status = CZ_ERR_ARGUMENT;
    if (mib < 1 || rounds < 1 || rounds > MAX_ROUNDS)
        fprintf(stderr, "usage, under mpirun: all_reduce MIB ROUNDS\n");
    else if ((status = run_all(mib, rounds)) != CZ_OK)
        fprintf(stderr, "%s\n", cz_last_error());
    MPI_Finalize();
    return status != CZ_OK;
}
