/* SPDX-License-Identifier: MIT */
/* A whole step of a sharded AdamW between ranks that are threads: mean of the gradients, update of
 * the owned shard, new values to all ranks. Beside it, on the same threads and the same memory, in
 * alternating rounds: the same work by hand (shared/fused.h), and only the reads and writes of
 * that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "czero/czero.h"
#include "shared/fused.h"
#include "shared/ranks.h"
#include "shared/result.h"
#include "shared/tensors.h"

enum { VARIANTS = 5 }; /* ours; by hand, only the traffic: each with plain and streaming stores */

typedef struct bench {
    bench_meet meet;
    const bench_loops *loops;
    bench_tensors tensors;
    const char *list;
    bool separate, small_pages, paced, clip, shared;
    int rounds;
    bench_block values[BENCH_RANKS], gradients[BENCH_RANKS];
    bench_samples samples[VARIANTS]; /* [0] unused */
    atomic_int go;                   /* paced: steps asked for; -1: no more */
} bench;

typedef struct rank {
    bench *b;
    int rank;
    cz_zero *zero;
    bench_fused fused;
} rank;

static cz_status run(const rank *r, int variant, double *seconds, double *bounce)
{
    bench_meet *meet = &r->b->meet;
    bench_meet_all(meet, r->rank);
    *bounce = bench_bounce(meet, r->rank);
    bench_meet_all(meet, r->rank);
    const double begin = bench_seconds();
    if (variant == 0)
        CZ_TRY(cz_zero_step(r->zero,
                            &(cz_step_options){.size = sizeof(cz_step_options),
                                               .max_norm = (double)r->fused.max_norm},
                            NULL));
    else
        bench_fused_run(&r->fused, variant > 2, !r->b->shared && (variant - 1) % 2);
    bench_meet_all(meet, r->rank);
    *seconds = bench_seconds() - begin;
    return CZ_OK;
}

static cz_status one_round(const rank *r, int round)
{
    bench *b = r->b;
    double seconds[VARIANTS], bounce[VARIANTS];
    for (int i = 0; i < VARIANTS; i++) {
        const int variant = round % 2 ? VARIANTS - 1 - i : i;
        CZ_TRY(run(r, variant, &seconds[variant], &bounce[variant]));
    }
    for (int v = 1; v < VARIANTS && r->rank == 0 && round >= 0; v++) {
        b->samples[v].ours[round] = seconds[0];
        b->samples[v].ours_bounce[round] = bounce[0];
        b->samples[v].limit[round] = seconds[v];
        b->samples[v].limit_bounce[round] = bounce[v];
    }
    return CZ_OK;
}

/* Beside the same by hand: see docs/performance.md. */
static double wanted(const bench *b)
{
    if (b->clip || b->shared)
        return 0;
    if (strcmp(b->list, "tiny") == 0 || strcmp(b->list, "odd") == 0)
        return 0.75;
    return b->meet.ranks > 2 ? 0.8 : 0.85;
}

static void report(const rank *r)
{
    const bench *b = r->b;
    for (int first = 1; first < VARIANTS; first += 2) {
        const bool streams = !b->shared && bench_summarise(&b->samples[first + 1]).limit <
                                               bench_summarise(&b->samples[first]).limit;
        char name[64], against[64];
        const char *passes = b->clip ? "two passes" : "one pass";
        snprintf(name, sizeof name, "zero_step %s%s%s%s%s", b->list, b->separate ? " separate" : "",
                 b->shared ? " shared" : "", b->clip ? " clip" : "", first > 1 ? " (memory)" : "");
        snprintf(against, sizeof against, "%s%s%s, %s stores",
                 first > 1 ? "reads and writes of " : "", passes, first > 1 ? "" : " by hand",
                 streams ? "streaming" : "plain");
        bench_say(&(bench_row){.name = name,
                               .bytes = (size_t)b->tensors.total * sizeof(float),
                               .ranks = b->meet.ranks,
                               .against = against,
                               .counted = bench_fused_traffic(&r->fused),
                               .wanted = first > 1 ? 0 : wanted(b)},
                  &b->samples[first + streams]);
    }
}

/* Steps one by one, as lines come on standard input; each prints its seconds. Ranks that wait
 * sleep. */
static cz_status paced(const rank *r)
{
    bench *b = r->b;
    char line[64];
    double seconds, bounce;
    for (int step = 1;; step++) {
        if (r->rank == 0)
            atomic_store(&b->go, fgets(line, sizeof line, stdin) ? step : -1);
        while (atomic_load(&b->go) >= 0 && atomic_load(&b->go) < step)
            usleep(100);
        if (atomic_load(&b->go) < 0)
            return CZ_OK;
        CZ_TRY(run(r, 0, &seconds, &bounce));
        if (r->rank == 0) {
            printf("%.6f\n", seconds);
            fflush(stdout);
        }
    }
}

static cz_status measure(const rank *r)
{
    bench *b = r->b;
    double seconds, bounce;
    CZ_TRY(run(r, 0, &seconds, &bounce));
    if (b->paced)
        return paced(r);
    for (int round = -1; round < b->rounds; round++)
        CZ_TRY(one_round(r, round));
    if (r->rank == 0)
        report(r);
    return CZ_OK;
}

static cz_status add_tensors(const rank *r, cz_model *model)
{
    bench *b = r->b;
    bench_block *values = &b->values[r->rank], *gradients = &b->gradients[r->rank];
    const char *names[BENCH_TENSORS];
    for (int t = 0; t < b->tensors.count; t++)
        names[t] = b->tensors.names[t];
    if (!b->separate)
        return cz_model_add_flat(model, values->at[0], gradients->at[0], CZ_F32, b->tensors.count,
                                 names, b->tensors.sizes);
    for (int t = 0; t < b->tensors.count; t++)
        CZ_TRY(cz_model_add(model, names[t], values->at[t], gradients->at[t], CZ_F32, 1,
                            &b->tensors.sizes[t]));
    return CZ_OK;
}

/* Of this rank, or in one block that all ranks have; rank 0 writes it. */
static cz_status make_values(const rank *r, cz_group *group, cz_shared **shared)
{
    bench *b = r->b;
    bench_block *values = &b->values[r->rank];
    *shared = NULL;
    if (!b->shared) {
        bench_block_make(values, &b->tensors, b->separate, !b->small_pages, 1e-2f);
        return CZ_OK;
    }
    const size_t bytes = ((size_t)b->tensors.total + BENCH_LINE) * sizeof(float);
    void *block;
    CZ_TRY(cz_shared_create(shared, group, bytes, &block));
    float *next = block;
    for (int64_t i = 0; r->rank == 0 && i < b->tensors.total; i++)
        next[i] = 1e-2f * (float)(i % 61 + 1);
    for (int t = 0; t < b->tensors.count; next += b->tensors.sizes[t++])
        values->at[t] = next;
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *context)
{
    cz_shared *shared;
    rank r = {.b = context, .rank = cz_group_rank(group)};
    bench *b = r.b;
    cz_model *model;
    bench_pin(r.rank);
    CZ_TRY(make_values(&r, group, &shared));
    bench_block_make(&b->gradients[r.rank], &b->tensors, b->separate, !b->small_pages, 1e-4f);
    bench_meet_all(&b->meet, r.rank);
    r.fused = (bench_fused){.meet = &b->meet,
                            .loops = b->loops,
                            .tensors = &b->tensors,
                            .values = b->values,
                            .gradients = b->gradients,
                            .shared = b->shared,
                            .rank = r.rank,
                            .max_norm = b->clip ? 1e-3f : 0};
    const size_t state = bench_fused_count(&r.fused) * sizeof(float);
    if (!b->paced) {
        r.fused.moment = bench_pages(state, !b->small_pages);
        r.fused.second = bench_pages(state, !b->small_pages);
    }
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(add_tensors(&r, model));
    CZ_TRY(cz_zero_create(&r.zero, group, model, cz_rule_adamw(),
                          CZ_HYPERS({"lr", 1e-4}, {"weight_decay", 0.01}), NULL));
    CZ_TRY(measure(&r));
    cz_zero_destroy(&r.zero);
    cz_model_destroy(&model);
    bench_meet_all(&b->meet, r.rank);
    if (!b->shared)
        bench_block_free(&b->values[r.rank], &b->tensors);
    cz_shared_destroy(&shared);
    bench_block_free(&b->gradients[r.rank], &b->tensors);
    if (!b->paced) {
        bench_pages_free(r.fused.moment, state);
        bench_pages_free(r.fused.second, state);
    }
    return CZ_OK;
}

static int run_bench(const bench *settings, const char *list, int ranks, bool separate)
{
    bench *b = aligned_alloc(64, (sizeof(bench) + 63) / 64 * 64);
    if (!b)
        return 1;
    *b = *settings;
    b->list = list;
    b->separate = separate;
    b->loops = bench_loops_get();
    b->meet.ranks = ranks;
    for (int v = 0; v < VARIANTS; v++)
        b->samples[v].rounds = b->rounds;
    cz_status status = CZ_ERR_ARGUMENT;
    if (!bench_tensors_list(&b->tensors, list))
        fprintf(stderr, "no such list of tensors: %s\n", list);
    else if ((status = cz_launch(each_rank, b,
                                 &(cz_launch_options){.size = sizeof(cz_launch_options),
                                                      .ranks = ranks})) != CZ_OK)
        fprintf(stderr, "%s\n", cz_last_error());
    free(b);
    return status != CZ_OK;
}

/* What is measured where nothing was chosen. */
static int run_all(const bench *b, bool quick)
{
    if (quick)
        return run_bench(b, "tiny", 2, !b->shared) || run_bench(b, "odd", 3, false);
    if (b->shared)
        return run_bench(b, "gpt2", 2, false) || run_bench(b, "gpt2", 4, false);
    return run_bench(b, "gpt2", 2, false) || run_bench(b, "gpt2", 2, true) ||
           run_bench(b, "gpt2", 4, false) || run_bench(b, "tiny", 2, true) ||
           run_bench(b, "odd", 2, true);
}

int main(int argc, char **argv)
{
    static bench b;
    bool quick = false;
    const char *list = NULL;
    int ranks = 2, rounds = 0;
    bench_arguments(
        argc, argv, "Steps of a sharded AdamW between threads, and the same by hand.",
        (const bench_option[]){
            {"--quick", "small lists, few rounds", .flag = &quick},
            {"--tensors", "gpt2, one, tiny or odd; otherwise some of all", .text = &list},
            {"--separate", "an allocation for each tensor, not one block", .flag = &b.separate},
            {"--shared", "parameters once for all ranks; of one block", .flag = &b.shared},
            {"--small-pages", "4 KiB pages for both sides", .flag = &b.small_pages},
            {"--ranks", "1 to 4 (2)", .number = &ranks},
            {"--clip", "gradients are clipped: two passes", .flag = &b.clip},
            {"--rounds", "of each (9)", .number = &rounds},
            {"--paced", "only czero: a step for each line that comes", .flag = &b.paced},
            {0}});
    if (ranks > BENCH_RANKS || rounds > BENCH_ROUNDS) {
        fprintf(stderr, "at most %d ranks and %d rounds\n", BENCH_RANKS, BENCH_ROUNDS);
        return 2;
    }
    b.separate = b.separate && !b.shared;
    b.rounds = rounds ? rounds : quick ? 3 : 9;
    if (!b.paced)
        bench_heading("sharded AdamW steps of threads, GB/s of one pass's reads and writes");
    return list || b.paced ? run_bench(&b, list ? list : "gpt2", ranks, b.separate)
                           : run_all(&b, quick);
}
