/* SPDX-License-Identifier: MIT */
/* A whole step of an unsharded optimizer over the 148 tensors of GPT-2 124M, by one thread and by
 * two (CZERO_THREADS), beside as many threads that do the same reads and writes and hardly any
 * arithmetic, in alternating rounds. The kernels alone, in caches too, are in bench_update. Then
 * ranks that are threads, more than there are cores, each with an optimizer of its share, beside
 * one rank with all of it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"
#include "shared/ranks.h"
#include "shared/result.h"
#include "shared/tensors.h"

enum { THREADS = 2, ARRAYS = 4, SHARES = 8 };

static const struct rule {
    const char *name;
    int arrays; /* parameter, gradient, and what the rule keeps */
} rules[] = {{"adamw", 4}, {"adam", 4}, {"sgd", 3}};
enum { RULES = sizeof rules / sizeof *rules };

typedef struct bench {
    bench_tensors tensors;
    bench_block values, gradients;
    const bench_loops *loops;
    int rounds;
    size_t mixed;       /* bytes of each array of the mix */
    float *mix[ARRAYS]; /* which threads share: each has a part of it */
    bench_samples samples;
} bench;

typedef struct part {
    const bench *b;
    int rank, arrays;
    size_t count;
} part;

static void *mix_part(void *context)
{
    const part *p = context;
    float *a[ARRAYS];
    for (int k = 0; k < p->arrays; k++)
        a[k] = p->b->mix[k] + (size_t)p->rank * p->count;
    if (p->arrays == 4)
        p->b->loops->mix4(p->count, a[0], a[1], a[2], a[3]);
    else
        p->b->loops->mix3(p->count, a[0], a[1], a[2]);
    return NULL;
}

/* Seconds for the traffic of a step; it is that of fewer elements, several times. Threads are made
 * and joined, which is little beside it, so that none is awake while czero is measured. */
static double mix(const bench *b, int arrays, int threads)
{
    pthread_t others[THREADS];
    part parts[THREADS];
    const size_t count = b->mixed / sizeof(float) / (size_t)threads / BENCH_LINE * BENCH_LINE;
    const double begin = bench_seconds();
    for (int r = threads - 1; r >= 0; r--) {
        parts[r] = (part){.b = b, .rank = r, .arrays = arrays, .count = count};
        if (r > 0 && pthread_create(&others[r], NULL, mix_part, &parts[r]) != 0)
            exit(1);
    }
    mix_part(&parts[0]);
    for (int r = 1; r < threads; r++)
        pthread_join(others[r], NULL);
    return (bench_seconds() - begin) * (double)b->tensors.total / (double)(count * (size_t)threads);
}

static double step(cz_optim *optim)
{
    const double begin = bench_seconds();
    CZ_CHECK(cz_optim_step(optim, NULL, NULL));
    return bench_seconds() - begin;
}

static void make(bench *b, const struct rule *rule, int threads, cz_model **model, cz_optim **optim)
{
    char text[16];
    snprintf(text, sizeof text, "%d", threads);
    setenv("CZERO_THREADS", text, 1);
    CZ_CHECK(cz_model_create(model));
    for (int t = 0; t < b->tensors.count; t++)
        CZ_CHECK(cz_model_add(*model, b->tensors.names[t], b->values.at[t], b->gradients.at[t],
                              CZ_F32, 1, &b->tensors.sizes[t]));
    CZ_CHECK(cz_optim_create(optim, *model, cz_rule_find(rule->name),
                             rule->arrays == 3 ? CZ_HYPERS({"lr", 1e-4}, {"momentum", 0.9})
                                               : CZ_HYPERS({"lr", 1e-4}),
                             NULL));
    step(*optim);
}

static void measure(bench *b, const struct rule *rule, int threads)
{
    cz_model *model;
    cz_optim *optim;
    char name[48];
    make(b, rule, threads, &model, &optim);
    mix(b, rule->arrays, threads);
    b->samples = (bench_samples){.rounds = b->rounds};
    for (int i = 0; i < b->rounds; i++) {
        if (i % 2)
            b->samples.limit[i] = mix(b, rule->arrays, threads);
        b->samples.ours[i] = step(optim);
        if (i % 2 == 0)
            b->samples.limit[i] = mix(b, rule->arrays, threads);
    }
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    snprintf(name, sizeof name, "step %s", rule->name);
    bench_say(
        &(bench_row){.name = name,
                     .bytes = (size_t)b->tensors.total * sizeof(float),
                     .ranks = threads,
                     .against = "the same reads and writes",
                     .counted = (double)b->tensors.total * sizeof(float) * (2 * rule->arrays - 1)},
        &b->samples);
}

/* ---- many ranks on few cores ---- */

/* Of the elements in one piece, those of share `index`. */
static cz_status make_share(const bench *b, int index, int shares, cz_model **model,
                            cz_optim **optim)
{
    const int64_t each = b->tensors.total / shares;
    CZ_TRY(cz_model_create(model));
    CZ_TRY(cz_model_add(*model, "share", b->values.at[0] + index * each,
                        b->gradients.at[0] + index * each, CZ_F32, 1, &each));
    CZ_TRY(cz_optim_create(optim, *model, cz_rule_adamw(), CZ_HYPERS({"lr", 1e-4}), NULL));
    return cz_optim_step(*optim, NULL, NULL);
}

typedef struct crowd {
    bench *b;
    cz_optim *alone; /* of rank 0: all */
} crowd;

/* All at once; rank 0 notes how long it takes, and then how long all of it takes alone. */
static cz_status step_at_once(cz_group *group, const crowd *c, cz_optim *share, int round)
{
    const bool leads = cz_group_rank(group) == 0;
    CZ_TRY(cz_barrier(group, NULL));
    const double begin = bench_seconds();
    CZ_TRY(cz_optim_step(share, NULL, NULL));
    CZ_TRY(cz_barrier(group, NULL));
    if (leads && round >= 0)
        c->b->samples.ours[round] = bench_seconds() - begin;
    if (leads && round >= 0)
        c->b->samples.limit[round] = step(c->alone);
    return cz_barrier(group, NULL);
}

static cz_status share_body(cz_group *group, void *context)
{
    const crowd *c = context;
    cz_model *model = NULL;
    cz_optim *share = NULL;
    cz_status status = make_share(c->b, cz_group_rank(group), cz_group_size(group), &model, &share);
    for (int round = -1; round < c->b->rounds && status == CZ_OK; round++)
        status = step_at_once(group, c, share, round);
    cz_optim_destroy(&share);
    cz_model_destroy(&model);
    return status;
}

/* With as many kernel threads as each would have by itself. */
static void measure_shares(bench *b)
{
    cz_model *model;
    crowd c = {.b = b};
    unsetenv("CZERO_THREADS");
    CZ_CHECK(make_share(b, 0, 1, &model, &c.alone));
    b->samples = (bench_samples){.rounds = b->rounds};
    CZ_CHECK(cz_launch(share_body, &c,
                       &(cz_launch_options){.size = sizeof(cz_launch_options), .ranks = SHARES}));
    cz_optim_destroy(&c.alone);
    cz_model_destroy(&model);
    bench_say(&(bench_row){.name = "step adamw, a share each",
                           .bytes = (size_t)b->tensors.total * sizeof(float),
                           .ranks = SHARES,
                           .against = "one rank with all",
                           .counted = (double)b->tensors.total * sizeof(float) * 7,
                           .wanted = 1 / 1.3},
              &b->samples);
}

/* A step for each line on standard input; each prints its seconds. */
static void paced(bench *b, const struct rule *rule, int threads)
{
    cz_model *model;
    cz_optim *optim;
    char line[64];
    make(b, rule, threads, &model, &optim);
    while (fgets(line, sizeof line, stdin)) {
        printf("%.6f\n", step(optim));
        fflush(stdout);
    }
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

int main(int argc, char **argv)
{
    static bench b;
    bool quick = false, takes_turns = false, separate = false;
    const char *only = NULL;
    int threads = 0, rounds = 0;
    bench_arguments(
        argc, argv, "Optimizer steps over GPT-2 124M's tensors, and the same traffic.",
        (const bench_option[]){
            {"--quick", "small tensors, few rounds", .flag = &quick},
            {"--rule", "adamw, adam or sgd (with momentum)", .text = &only},
            {"--threads", "1 or 2; otherwise both", .number = &threads},
            {"--rounds", "of each (9)", .number = &rounds},
            {"--separate", "an allocation for each tensor", .flag = &separate},
            {"--paced", "only czero: a step for each line that comes", .flag = &takes_turns},
            {0}});
    b.rounds = rounds > 0 && rounds <= BENCH_ROUNDS ? rounds : quick ? 3 : 9;
    b.loops = bench_loops_get();
    bench_tensors_list(&b.tensors, quick ? "odd" : "gpt2");
    bench_block_make(&b.values, &b.tensors, separate, true, 1e-2f);
    bench_block_make(&b.gradients, &b.tensors, separate, true, 1e-4f);
    b.mixed = (size_t)(quick ? 2 : 128) << 20;
    for (int k = 0; k < ARRAYS && !takes_turns; k++)
        b.mix[k] = bench_pages(b.mixed, true);
    if (!takes_turns)
        bench_heading("optimizer steps, GB/s of the reads and writes; ranks: threads");
    for (int i = 0; i < RULES; i++)
        for (int n = 1; n <= THREADS; n++) {
            if ((only && strcmp(only, rules[i].name) != 0) || (threads && n != threads))
                continue;
            if (takes_turns)
                paced(&b, &rules[i], n);
            else
                measure(&b, &rules[i], n);
        }
    if (!takes_turns && !separate && !threads && (!only || strcmp(only, "adamw") == 0))
        measure_shares(&b);
    return 0;
}
