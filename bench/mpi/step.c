/* SPDX-License-Identifier: MIT */
/* A whole step of a sharded AdamW between processes, each with memory of its own. Beside it, in
 * alternating rounds, the same work by hand (shared/fused.h) in memory that the processes share, in
 * which parameters and gradients would have to be: the least that processes of one machine need.
 * Under mpirun. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "czero/czero.h"
#include "czero/mpi.h"
#include "mpi/shared.h"
#include "shared/fused.h"
#include "shared/result.h"

enum { VARIANTS = 3 }; /* ours; by hand with plain stores, with streaming ones */

typedef struct bench {
    bench_meet *meet;
    bench_tensors tensors;
    const char *list, *label;
    bool separate, small_pages, paced, alone;
    int rank, ranks, rounds;
    bench_block values, gradients; /* of this process */
    bench_block shared_values[BENCH_RANKS], shared_gradients[BENCH_RANKS];
    bench_fused fused;
    cz_zero *zero;
    bench_samples samples[VARIANTS];
} bench;

static cz_status run(const bench *b, int variant, double *seconds, double *bounce)
{
    bench_meet_all(b->meet, b->rank);
    *bounce = bench_bounce(b->meet, b->rank);
    bench_meet_all(b->meet, b->rank);
    const double begin = bench_seconds();
    if (variant == 0)
        CZ_TRY(cz_zero_step(b->zero, NULL, NULL));
    else
        bench_fused_run(&b->fused, false, variant - 1);
    bench_meet_all(b->meet, b->rank);
    *seconds = bench_seconds() - begin;
    return CZ_OK;
}

/* Whether rank 0 was asked for a step; the others sleep until it was. */
static bool asked(const bench *b)
{
    char line[64];
    int go = b->rank == 0 && fgets(line, sizeof line, stdin), done = 0;
    MPI_Request request;
    MPI_Ibcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done)
        usleep(100);
    return go;
}

static cz_status paced(const bench *b)
{
    double seconds, bounce;
    while (asked(b)) {
        CZ_TRY(run(b, 0, &seconds, &bounce));
        if (b->rank == 0) {
            printf("%.6f\n", seconds);
            fflush(stdout);
        }
    }
    return CZ_OK;
}

static void report(bench *b)
{
    const int best = b->alone ? 1
                     : bench_summarise(&b->samples[2]).limit < bench_summarise(&b->samples[1]).limit
                         ? 2
                         : 1;
    char name[96];
    snprintf(name, sizeof name, "mpi zero_step %s%s%s%s%s", b->list, b->separate ? " separate" : "",
             *b->label ? " (" : "", b->label, *b->label ? ")" : "");
    bench_say(&(bench_row){.name = name,
                           .bytes = (size_t)b->tensors.total * sizeof(float),
                           .ranks = b->ranks,
                           .against = b->alone ? "" : "one pass by hand in shared memory",
                           .counted = bench_fused_traffic(&b->fused)},
              &b->samples[best]);
}

static cz_status measure(bench *b)
{
    double seconds, bounce;
    CZ_TRY(run(b, 0, &seconds, &bounce));
    if (b->paced)
        return paced(b);
    for (int round = -1; round < b->rounds; round++)
        for (int v = 0; v < (b->alone ? 1 : VARIANTS); v++) {
            CZ_TRY(run(b, v, &seconds, &bounce));
            for (int k = v; k < (v ? v + 1 : VARIANTS) && round >= 0; k++) {
                (v ? b->samples[k].limit : b->samples[k].ours)[round] = seconds;
                (v ? b->samples[k].limit_bounce : b->samples[k].ours_bounce)[round] = bounce;
            }
        }
    if (b->rank == 0)
        report(b);
    return CZ_OK;
}

static cz_status add_tensors(bench *b, cz_model *model)
{
    const char *names[BENCH_TENSORS];
    for (int t = 0; t < b->tensors.count; t++)
        names[t] = b->tensors.names[t];
    if (!b->separate)
        return cz_model_add_flat(model, b->values.at[0], b->gradients.at[0], CZ_F32,
                                 b->tensors.count, names, b->tensors.sizes);
    for (int t = 0; t < b->tensors.count; t++)
        CZ_TRY(cz_model_add(model, names[t], b->values.at[t], b->gradients.at[t], CZ_F32, 1,
                            &b->tensors.sizes[t]));
    return CZ_OK;
}

/* What the yardstick works in. Streaming past the caches and values that only grow smaller: zeros
 * would do as well. */
static void make_yardstick(bench *b, MPI_Win windows[2])
{
    const size_t bytes = (size_t)b->tensors.total * sizeof(float) + 64;
    void *values[BENCH_RANKS], *gradients[BENCH_RANKS];
    b->fused = (bench_fused){.meet = b->meet,
                             .loops = bench_loops_get(),
                             .tensors = &b->tensors,
                             .values = b->shared_values,
                             .gradients = b->shared_gradients,
                             .rank = b->rank};
    if (b->paced || b->alone)
        return;
    make_shared(&windows[0], bytes, b->ranks, values);
    make_shared(&windows[1], bytes, b->ranks, gradients);
    memset(values[b->rank], 0, bytes);
    memset(gradients[b->rank], 0, bytes);
    for (int r = 0; r < b->ranks; r++) {
        b->shared_values[r].at[0] = values[r];
        b->shared_gradients[r].at[0] = gradients[r];
    }
    const size_t state = bench_fused_count(&b->fused) * sizeof(float);
    b->fused.moment = bench_pages(state, !b->small_pages);
    b->fused.second = bench_pages(state, !b->small_pages);
    MPI_Barrier(MPI_COMM_WORLD);
}

static cz_status run_all(bench *b)
{
    cz_group *group;
    cz_model *model;
    CZ_TRY(cz_group_create_mpi(&group, MPI_COMM_WORLD, NULL, NULL));
    bench_block_make(&b->values, &b->tensors, b->separate, !b->small_pages, 1e-2f);
    bench_block_make(&b->gradients, &b->tensors, b->separate, !b->small_pages, 1e-4f);
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(add_tensors(b, model));
    CZ_TRY(cz_zero_create(&b->zero, group, model, cz_rule_adamw(),
                          CZ_HYPERS({"lr", 1e-4}, {"weight_decay", 0.01}), NULL));
    CZ_TRY(measure(b));
    cz_zero_destroy(&b->zero);
    cz_model_destroy(&model);
    cz_group_destroy(&group);
    bench_block_free(&b->values, &b->tensors);
    bench_block_free(&b->gradients, &b->tensors);
    return CZ_OK;
}

int main(int argc, char **argv)
{
    static bench b = {.list = "gpt2", .label = ""};
    bool quick = false;
    int rounds = 0;
    MPI_Win windows[3] = {MPI_WIN_NULL, MPI_WIN_NULL, MPI_WIN_NULL};
    bench_arguments(
        argc, argv, "Steps of a sharded AdamW between processes, and the same by hand.",
        (const bench_option[]){
            {"--quick", "small sizes, few rounds", .flag = &quick},
            {"--tensors", "gpt2, one, tiny or odd", .text = &b.list},
            {"--separate", "an allocation for each tensor", .flag = &b.separate},
            {"--small-pages", "4 KiB pages", .flag = &b.small_pages},
            {"--label", "what the settings are", .text = &b.label},
            {"--rounds", "of each (7)", .number = &rounds},
            {"--alone", "nothing by hand beside it", .flag = &b.alone},
            {"--paced", "only czero: a step for each line that comes", .flag = &b.paced},
            {0}});
    bench_mpi_begin(&argc, &argv, &b.rank, &b.ranks);
    if (!bench_tensors_list(&b.tensors, quick ? "tiny" : b.list)) {
        fprintf(stderr, "there is no list of tensors '%s'\n", b.list);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (quick)
        b.list = "tiny";
    b.rounds = rounds > 0 && rounds <= BENCH_ROUNDS ? rounds : quick ? 3 : 7;
    for (int v = 0; v < VARIANTS; v++)
        b.samples[v].rounds = b.rounds;
    b.meet = make_meet(&windows[2], b.rank, b.ranks);
    make_yardstick(&b, windows);
    if (b.rank == 0 && !b.paced)
        bench_heading("sharded AdamW steps of processes, GB/s of one pass's reads and writes");
    bench_mpi_check(run_all(&b), b.rank);
    for (int i = 0; i < 3; i++)
        if (windows[i] != MPI_WIN_NULL)
            MPI_Win_free(&windows[i]);
    MPI_Finalize();
    return 0;
}
