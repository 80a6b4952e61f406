/* SPDX-License-Identifier: MIT */
/* Collectives of processes: czero's on MPI, beside those of MPI itself, in the same memory and in
 * alternating rounds; and what a message of MPI takes. Under mpirun, 2 to 4 processes of one
 * machine; mpirun's settings are those of both sides, so that --label says which they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"
#include "czero/mpi.h"
#include "mpi/shared.h"
#include "shared/result.h"
#include "shared/yardstick.h"

enum { SIZES = 5 };
static const size_t all_sizes[SIZES] = {4, 64 << 10, 1 << 20, 16 << 20, (size_t)64 << 20};

typedef struct bench {
    cz_group *group;
    bench_meet *meet; /* shared by the processes */
    int rank, ranks, rounds, repeats[2];
    bool quick;
    const char *label, *only;
    float *whole, *part;
    size_t least, most;
    bench_kind kind;
    int64_t count; /* of floats in the whole */
} bench;

static const char *const mpi_names[BENCH_KINDS] = {"MPI_Allreduce", "MPI_Reduce_scatter_block",
                                                   "MPI_Allgather", "MPI_Bcast"};

static cz_status ours(const bench *b)
{
    const int64_t each = b->count / b->ranks;
    switch (b->kind) {
    case BENCH_ALL_REDUCE:
        return cz_all_reduce(b->group, b->whole, b->count, CZ_F32, CZ_SUM, NULL);
    case BENCH_REDUCE_SCATTER:
        return cz_reduce_scatter(b->group, b->whole, b->part, each, CZ_F32, CZ_SUM, NULL);
    case BENCH_ALL_GATHER:
        return cz_all_gather(b->group, b->part, b->whole, each, CZ_F32, NULL);
    default:
        return cz_broadcast(b->group, b->whole, b->count, CZ_F32, 0, NULL);
    }
}

static void theirs(const bench *b)
{
    const int count = (int)b->count, each = count / b->ranks;
    if (b->kind == BENCH_ALL_REDUCE)
        MPI_Allreduce(MPI_IN_PLACE, b->whole, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (b->kind == BENCH_REDUCE_SCATTER)
        MPI_Reduce_scatter_block(b->whole, b->part, each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (b->kind == BENCH_ALL_GATHER)
        MPI_Allgather(b->part, each, MPI_FLOAT, b->whole, each, MPI_FLOAT, MPI_COMM_WORLD);
    else
        MPI_Bcast(b->whole, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

/* Rank 0 to 1 and back: two messages of the whole. */
static void bounce_message(const bench *b)
{
    if (b->rank > 1)
        return;
    const int other = 1 - b->rank;
    for (int i = 0; i < 2; i++)
        if (i == b->rank)
            MPI_Send(b->whole, (int)b->count, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(b->whole, (int)b->count, MPI_FLOAT, other, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
}

/* kind BENCH_KINDS: a message. */
static cz_status run(const bench *b, bool mine, int repeats, double *seconds, double *bounce)
{
    bench_meet_all(b->meet, b->rank);
    *bounce = bench_bounce(b->meet, b->rank);
    bench_meet_all(b->meet, b->rank);
    const double begin = bench_seconds();
    for (int i = 0; i < repeats; i++)
        if (mine)
            CZ_TRY(ours(b));
        else if (b->kind == BENCH_KINDS)
            bounce_message(b);
        else
            theirs(b);
    bench_meet_all(b->meet, b->rank);
    *seconds = (bench_seconds() - begin) / repeats / (b->kind == BENCH_KINDS ? 2 : 1);
    return CZ_OK;
}

static cz_status calibrate(bench *b, bool mine)
{
    double seconds, bounce;
    for (int i = 0; i < 2; i++)
        CZ_TRY(run(b, mine, 1, &seconds, &bounce));
    const double fit = (b->quick ? 2e-4 : 2e-3) / seconds;
    b->repeats[mine] = fit < 1 ? 1 : fit > 2000 ? 2000 : (int)fit;
    MPI_Bcast(b->repeats, 2, MPI_INT, 0, MPI_COMM_WORLD);
    return CZ_OK;
}

static cz_status measure(bench *b, size_t bytes)
{
    static bench_samples s;
    const bool messages = b->kind == BENCH_KINDS;
    const int64_t unit = bytes > 64 ? BENCH_LINE * b->ranks : b->ranks;
    char name[96];
    b->count = ((int64_t)(bytes / sizeof(float)) + unit - 1) / unit * unit;
    if (b->kind == BENCH_ALL_REDUCE || b->kind == BENCH_BROADCAST || messages)
        b->count = (int64_t)(bytes / sizeof(float));
    s = (bench_samples){.rounds = b->rounds};
    CZ_TRY(calibrate(b, false));
    CZ_TRY(messages ? CZ_OK : calibrate(b, true));
    for (int i = 0; i < b->rounds; i++)
        for (int side = 0; side < (messages ? 1 : 2); side++) {
            const bool mine = !messages && side == i % 2;
            CZ_TRY(run(b, mine, b->repeats[mine], (mine ? s.ours : s.limit) + i,
                       (mine ? s.ours_bounce : s.limit_bounce) + i));
        }
    snprintf(name, sizeof name, "mpi %s%s%s%s", messages ? "message" : bench_kind_names[b->kind],
             *b->label ? " (" : "", b->label, *b->label ? ")" : "");
    if (b->rank == 0)
        bench_say(&(bench_row){.name = name,
                               .bytes = (size_t)b->count * sizeof(float),
                               .ranks = b->ranks,
                               .against = messages ? "MPI_Send, MPI_Recv" : mpi_names[b->kind]},
                  &s);
    return CZ_OK;
}

static cz_status measure_all(bench *b)
{
    CZ_TRY(cz_group_create_mpi(&b->group, MPI_COMM_WORLD, NULL, NULL));
    for (int i = 0; i < 40; i++) /* until ranks meet as they will from then on */
        CZ_TRY(cz_barrier(b->group, NULL));
    for (int kind = 0; kind <= BENCH_KINDS; kind++) {
        b->kind = (bench_kind)kind;
        if (b->only && (kind == BENCH_KINDS || strcmp(b->only, bench_kind_names[kind]) != 0))
            continue;
        for (int i = 0; i < SIZES; i++)
            if (all_sizes[i] <= b->most && all_sizes[i] >= b->least)
                CZ_TRY(measure(b, all_sizes[i]));
    }
    cz_group_destroy(&b->group);
    return CZ_OK;
}

int main(int argc, char **argv)
{
    static bench b = {.label = ""};
    bool small_pages = false, large = false;
    int rounds = 0;
    MPI_Win window;
    bench_arguments(argc, argv, "Collectives of czero on MPI, and MPI's own.",
                    (const bench_option[]){{"--quick", "small sizes, few rounds", .flag = &b.quick},
                                           {"--small-pages", "4 KiB pages", .flag = &small_pages},
                                           {"--only", "one collective", .text = &b.only},
                                           {"--large", "64 MiB only", .flag = &large},
                                           {"--label", "what the settings are", .text = &b.label},
                                           {"--rounds", "of each (11)", .number = &rounds},
                                           {0}});
    bench_mpi_begin(&argc, &argv, &b.rank, &b.ranks);
    b.rounds = rounds > 0 && rounds <= BENCH_ROUNDS ? rounds : b.quick ? 3 : 11;
    b.most = b.quick ? (size_t)1 << 20 : (size_t)64 << 20;
    b.least = large ? b.most : 0;
    b.whole = bench_pages(b.most + 4096, !small_pages);
    b.part = bench_pages(b.most + 4096, !small_pages);
    b.meet = make_meet(&window, b.rank, b.ranks);
    if (b.rank == 0)
        bench_heading(
            "collectives of processes, limit: MPI's own (ratio above 1: czero is faster)");
    bench_mpi_check(measure_all(&b), b.rank);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
