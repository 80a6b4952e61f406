/* SPDX-License-Identifier: MIT */
/* What parts and fingerprints cost a step over GPT-2 124M's tensors, on two ranks that are threads:
 * a step in parts beside the same step without, and a step with a fingerprint beside one without,
 * in alternating rounds. In place of a backward pass a loop makes gradients from what is there:
 * once with as little arithmetic as there can be, and once with that of a few tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "czero/czero.h"
#include "shared/loops.h"
#include "shared/ranks.h"
#include "shared/result.h"
#include "shared/tensors.h"

enum { RANKS = 2, SIDES = 2 };

static const struct way {
    const char *name, *against;
    int passes;   /* of each rank in a step */
    bool parts;   /* each is a part; on the other side they are accumulated without synchronising */
    bool prints;  /* a fingerprint after each step */
    bool no_pass; /* only steps */
} ways[] = {{"step, fingerprint", "the step alone", 0, false, true, true},
            {"fingerprint", "none", 1, false, true, false},
            {"parts, one each", "no parts", 1, true, false, false},
            {"parts, 4 each", "4 passes, 3 without synchronising", 4, true, false, false}};
enum { WAYS = sizeof ways / sizeof *ways };

typedef struct bench {
    bench_meet meet;
    const bench_loops *loops;
    bench_tensors tensors;
    bench_block values[RANKS], gradients[RANKS], sources[RANKS];
    int rounds, tokens, only;
    bench_samples samples;
    double busy[2][BENCH_ROUNDS]; /* processor time of both ranks: ours, the other side's */
} bench;

typedef struct side {
    cz_parts *parts;
    cz_ddp *ddp;
    cz_zero *zero;
} side;

typedef struct rank {
    bench *b;
    const struct way *way;
    int rank, work; /* multiplications and additions for each gradient */
    cz_group *group;
    cz_model *model;
    /* [0]: what is measured; [1]: beside what. The same if only fingerprints differ. */
    side sides[SIDES];
} rank;

/* Last parameter first. Accumulated gradients are written by the first pass; those of parts by
 * each. */
static cz_status pass(const rank *r, const side *s, int number)
{
    const bench *b = r->b;
    const bool adds = number > 0 && !s->parts;
    CZ_TRY(cz_ddp_begin(s->ddp, number == r->way->passes - 1));
    for (int t = b->tensors.count - 1; t >= 0; t--) {
        b->loops->backward[adds]((size_t)b->tensors.sizes[t], b->gradients[r->rank].at[t],
                                 b->sources[r->rank].at[t], r->work);
        CZ_TRY(cz_ddp_mark_ready(s->ddp, t));
    }
    return cz_ddp_finish(s->ddp);
}

static cz_status step(const rank *r, const side *s, bool prints)
{
    uint64_t print[2];
    for (int i = 0; i < r->way->passes; i++)
        CZ_TRY(pass(r, s, i));
    CZ_TRY(cz_zero_step(s->zero, NULL, NULL));
    return prints ? cz_zero_fingerprint(s->zero, print) : CZ_OK;
}

static double busy_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cz_status run(const rank *r, bool ours, double *seconds, double *bounce, double *busy)
{
    bench_meet *meet = &r->b->meet;
    bench_meet_all(meet, r->rank);
    *bounce = bench_bounce(meet, r->rank);
    bench_meet_all(meet, r->rank);
    const double begin = bench_seconds(), begin_busy = busy_now();
    CZ_TRY(step(r, &r->sides[!ours], ours && r->way->prints));
    bench_meet_all(meet, r->rank);
    *seconds = bench_seconds() - begin;
    *busy = busy_now() - begin_busy;
    return CZ_OK;
}

static double least(const double *seconds, int count)
{
    double out = INFINITY;
    for (int i = 0; i < count; i++)
        out = fmin(out, seconds[i]);
    return out;
}

/* A machine that does other things is seen less in these than in medians. */
static void say_least(const char *what, const double *ours, const double *other, int count)
{
    const double a = least(ours, count), b = least(other, count);
    printf("    least %s: %.1f ms beside %.1f ms, %+.1f %%\n", what, 1e3 * a, 1e3 * b,
           100 * (a / b - 1));
}

static void report(const rank *r)
{
    const bench *b = r->b;
    char name[64];
    snprintf(name, sizeof name, "%s%s", r->way->name, r->work ? ", work" : "");
    bench_say(&(bench_row){.name = name,
                           .bytes = (size_t)b->tensors.total * sizeof(float),
                           .ranks = RANKS,
                           .against = r->way->against},
              &b->samples);
    say_least("time", b->samples.ours, b->samples.limit, b->rounds);
    say_least("processor time", b->busy[0], b->busy[1], b->rounds);
}

static cz_status measure(const rank *r)
{
    bench *b = r->b;
    double seconds, bounce, busy;
    for (int round = -2; round < b->rounds; round++) /* buckets are made anew after the first */
        for (int k = 0; k < SIDES; k++) {
            const bool ours = k == (round & 1);
            CZ_TRY(run(r, ours, &seconds, &bounce, &busy));
            if (round < 0 || r->rank > 0)
                continue;
            (ours ? b->samples.ours : b->samples.limit)[round] = seconds;
            (ours ? b->samples.ours_bounce : b->samples.limit_bounce)[round] = bounce;
            b->busy[!ours][round] = busy;
        }
    if (r->rank == 0)
        report(r);
    return CZ_OK;
}

static cz_status make_side(rank *r, side *s, bool parts)
{
    cz_parts_options cut = CZ_PARTS_OPTIONS_INIT;
    cz_ddp_options ddp = CZ_DDP_OPTIONS_INIT;
    cz_zero_options zero = CZ_ZERO_OPTIONS_INIT;
    cut.count = RANKS * r->way->passes;
    if (parts)
        CZ_TRY(cz_parts_create(&s->parts, r->group, r->model, &cut));
    ddp.keep_values = 1;
    ddp.parts = zero.parts = s->parts;
    if (!r->way->no_pass) {
        CZ_TRY(cz_ddp_create(&s->ddp, r->group, r->model, &ddp));
        zero.ddp = s->ddp;
        zero.overlap = CZ_OVERLAP_INTERLEAVED;
    }
    return cz_zero_create(&s->zero, r->group, r->model, cz_rule_adamw(),
                          CZ_HYPERS({"lr", 1e-4}, {"weight_decay", 0.01}), &zero);
}

static void clear_side(side *s)
{
    cz_zero_destroy(&s->zero);
    cz_ddp_destroy(&s->ddp);
    cz_parts_destroy(&s->parts);
}

static cz_status measure_way(rank *r)
{
    const int work[] = {0, 3 * r->b->tokens}; /* of each token 6 operations a parameter */
    const int works = r->way->no_pass ? 1 : 2;
    CZ_TRY(make_side(r, &r->sides[0], r->way->parts));
    if (r->way->prints)
        r->sides[1] = r->sides[0];
    else
        CZ_TRY(make_side(r, &r->sides[1], false));
    for (int i = 0; i < works; i++) {
        r->work = work[i];
        CZ_TRY(measure(r));
    }
    clear_side(&r->sides[0]);
    if (!r->way->prints)
        clear_side(&r->sides[1]);
    r->sides[1] = (side){0};
    bench_meet_all(&r->b->meet, r->rank);
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *context)
{
    bench *b = context;
    const int me = cz_group_rank(group);
    rank r = {.b = b, .rank = me, .group = group};
    const char *names[BENCH_TENSORS];
    bench_pin(me);
    bench_block_make(&b->values[me], &b->tensors, false, true, 1e-2f);
    bench_block_make(&b->gradients[me], &b->tensors, false, true, 1e-4f);
    bench_block_make(&b->sources[me], &b->tensors, false, true, 1e-4f);
    for (int t = 0; t < b->tensors.count; t++)
        names[t] = b->tensors.names[t];
    CZ_TRY(cz_model_create(&r.model));
    CZ_TRY(cz_model_add_flat(r.model, b->values[me].at[0], b->gradients[me].at[0], CZ_F32,
                             b->tensors.count, names, b->tensors.sizes));
    for (int i = 0; i < WAYS; i++) {
        r.way = &ways[i];
        if (b->only == 0 || b->only == i + 1)
            CZ_TRY(measure_way(&r));
    }
    cz_model_destroy(&r.model);
    return CZ_OK; /* memory goes with the program */
}

int main(int argc, char **argv)
{
    static bench b = {.meet.ranks = RANKS};
    bool quick = false;
    int rounds = 0, tokens = 0;
    bench_arguments(
        argc, argv, "Steps of two threads in parts, and with fingerprints, beside those without.",
        (const bench_option[]){
            {"--quick", "small tensors", .flag = &quick},
            {"--rounds", "of each (9)", .number = &rounds},
            {"--tokens", "of each pass, whose arithmetic is done (32)", .number = &tokens},
            {"--only", "1 to 4: this pair of lines", .number = &b.only},
            {0}});
    b.loops = bench_loops_get();
    b.tokens = tokens ? tokens : 32;
    b.rounds = rounds > 0 && rounds <= BENCH_ROUNDS ? rounds : quick ? 3 : 9;
    b.samples.rounds = b.rounds;
    bench_tensors_list(&b.tensors, quick ? "tiny" : "gpt2");
    bench_heading("steps in parts, and with fingerprints; 2 threads, GB/s of the parameters");
    const cz_status status = cz_launch(
        each_rank, &b, &(cz_launch_options){.size = sizeof(cz_launch_options), .ranks = RANKS});
    if (status != CZ_OK)
        fprintf(stderr, "%s\n", cz_last_error());
    return status != CZ_OK;
}
