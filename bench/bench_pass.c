/* SPDX-License-Identifier: MIT */
/* A pass and a step over GPT-2 124M's tensors by two ranks that are threads, in the ways that there
 * are: sharded, inside the pass, with buckets of several sizes; sharded, after it; and every rank
 * all of the optimizer (DDP without ZeRO). In place of a backward pass gradients are copied from
 * where they are, last parameter first. Beside it, in alternating rounds, the same copies and then
 * one pass by hand (shared/fused.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"
#include "shared/fused.h"
#include "shared/result.h"

enum { RANKS = 2 };

static const struct way {
    const char *name;
    int bucket_mib;
    bool sharded, inside;
} ways[] = {{"pass zero inside, 1 MiB", 1, true, true},
            {"pass zero inside, 4 MiB", 4, true, true},
            {"pass zero inside, 25 MiB", 25, true, true},
            {"pass zero after, 25 MiB", 25, true, false},
            {"pass unsharded, 25 MiB", 25, false, false}};
enum { WAYS = sizeof ways / sizeof *ways };

typedef struct bench {
    bench_meet meet;
    bench_tensors tensors;
    bench_block values[RANKS], gradients[RANKS], sources[RANKS];
    int rounds;
    bench_samples samples;
} bench;

typedef struct rank {
    bench *b;
    const struct way *way;
    cz_group *group;
    cz_model *model;
    cz_ddp *ddp;
    cz_zero *zero;
    cz_optim *optim;
    bench_fused fused;
} rank;

static void hand_out(const rank *r, int t)
{
    const int mine = r->fused.rank;
    memcpy(r->b->gradients[mine].at[t], r->b->sources[mine].at[t],
           (size_t)r->b->tensors.sizes[t] * sizeof(float));
}

static cz_status ours(const rank *r)
{
    CZ_TRY(cz_ddp_begin(r->ddp, true));
    for (int t = r->b->tensors.count - 1; t >= 0; t--) {
        hand_out(r, t);
        CZ_TRY(cz_ddp_mark_ready(r->ddp, t));
    }
    CZ_TRY(cz_ddp_finish(r->ddp));
    return r->zero ? cz_zero_step(r->zero, NULL, NULL) : cz_optim_step(r->optim, NULL, NULL);
}

static cz_status run(const rank *r, bool mine, double *seconds, double *bounce)
{
    const int me = r->fused.rank;
    bench_meet_all(&r->b->meet, me);
    *bounce = bench_bounce(&r->b->meet, me);
    bench_meet_all(&r->b->meet, me);
    const double begin = bench_seconds();
    if (mine)
        CZ_TRY(ours(r));
    else {
        for (int t = r->b->tensors.count - 1; t >= 0; t--)
            hand_out(r, t);
        bench_fused_run(&r->fused, false, 1);
    }
    bench_meet_all(&r->b->meet, me);
    *seconds = bench_seconds() - begin;
    return CZ_OK;
}

static cz_status measure(const rank *r)
{
    bench *b = r->b;
    double seconds, bounce;
    for (int round = -2; round < b->rounds; round++) /* buckets are made anew after the first */
        for (int side = 0; side < 2; side++) {
            const bool mine = side == (round & 1);
            CZ_TRY(run(r, mine, &seconds, &bounce));
            if (round < 0 || r->fused.rank > 0)
                continue;
            (mine ? b->samples.ours : b->samples.limit)[round] = seconds;
            (mine ? b->samples.ours_bounce : b->samples.limit_bounce)[round] = bounce;
        }
    if (r->fused.rank == 0)
        bench_say(&(bench_row){.name = r->way->name,
                               .bytes = (size_t)b->tensors.total * sizeof(float),
                               .ranks = RANKS,
                               .against = "copies, and one pass by hand"},
                  &b->samples);
    return CZ_OK;
}

static cz_status make(rank *r)
{
    const size_t bucket = (size_t)r->way->bucket_mib << 20;
    const cz_hyper *hypers = CZ_HYPERS({"lr", 1e-4}, {"weight_decay", 0.01});
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    cz_zero_options zero = CZ_ZERO_OPTIONS_INIT;
    ddp.bucket_bytes = bucket;
    ddp.keep_values = 1;
    CZ_TRY(cz_ddp_create(&r->ddp, r->group, r->model, &ddp));
    if (!r->way->sharded)
        return cz_optim_create(&r->optim, r->model, cz_rule_adamw(), hypers, NULL);
    zero.ddp = r->ddp;
    zero.overlap = r->way->inside ? CZ_OVERLAP_INTERLEAVED : CZ_OVERLAP_NONE;
    return cz_zero_create(&r->zero, r->group, r->model, cz_rule_adamw(), hypers, &zero);
}

static cz_status measure_ways(rank *r)
{
    for (int i = 0; i < WAYS; i++) {
        r->way = &ways[i];
        CZ_TRY(make(r));
        CZ_TRY(measure(r));
        cz_zero_destroy(&r->zero);
        cz_optim_destroy(&r->optim);
        cz_ddp_destroy(&r->ddp);
        bench_meet_all(&r->b->meet, r->fused.rank);
    }
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *context)
{
    bench *b = context;
    const int me = cz_group_rank(group);
    rank r = {.b = b, .group = group};
    const char *names[BENCH_TENSORS];
    bench_pin(me);
    bench_block_make(&b->values[me], &b->tensors, false, true, 1e-2f);
    bench_block_make(&b->gradients[me], &b->tensors, false, true, 1e-4f);
    bench_block_make(&b->sources[me], &b->tensors, false, true, 1e-4f);
    r.fused = (bench_fused){.meet = &b->meet,
                            .loops = bench_loops_get(),
                            .tensors = &b->tensors,
                            .values = b->values,
                            .gradients = b->gradients,
                            .rank = me};
    const size_t state = bench_fused_count(&r.fused) * sizeof(float);
    r.fused.moment = bench_pages(state, true);
    r.fused.second = bench_pages(state, true);
    for (int t = 0; t < b->tensors.count; t++)
        names[t] = b->tensors.names[t];
    CZ_TRY(cz_model_create(&r.model));
    CZ_TRY(cz_model_add_flat(r.model, b->values[me].at[0], b->gradients[me].at[0], CZ_F32,
                             b->tensors.count, names, b->tensors.sizes));
    CZ_TRY(measure_ways(&r));
    cz_model_destroy(&r.model);
    return CZ_OK; /* memory goes with the program */
}

int main(int argc, char **argv)
{
    static bench b = {.meet.ranks = RANKS};
    bool quick = false;
    int rounds = 0;
    bench_arguments(argc, argv, "Passes and steps of two threads, and the same by hand.",
                    (const bench_option[]){{"--quick", "small tensors", .flag = &quick},
                                           {"--rounds", "of each (7)", .number = &rounds},
                                           {0}});
    b.rounds = rounds > 0 && rounds <= BENCH_ROUNDS ? rounds : quick ? 3 : 7;
    b.samples.rounds = b.rounds;
    bench_tensors_list(&b.tensors, quick ? "odd" : "gpt2");
    bench_heading("a pass that copies gradients, and a step; 2 threads, GB/s of the parameters");
    const cz_status status = cz_launch(
        each_rank, &b, &(cz_launch_options){.size = sizeof(cz_launch_options), .ranks = RANKS});
    if (status != CZ_OK)
        fprintf(stderr, "%s\n", cz_last_error());
    return status != CZ_OK;
}
