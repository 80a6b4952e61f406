/* SPDX-License-Identifier: MIT */
/* Muon over the matrices of layers of GPT-2 124M: a step of one thread beside the products that the
 * paper has it make, all of them whole, by OpenBLAS on one thread; and two ranks that are threads,
 * each with its own matrices, beside two that both have the mean of all and step all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"
#include "shared/ranks.h"
#include "shared/result.h"

#ifdef CZ_BENCH_CBLAS
#include <cblas.h>
#endif

enum { IN_LAYER = 4, LAYERS = 2, MATRICES = IN_LAYER * LAYERS, NS_STEPS = 5, RANKS = 2 };
static const int64_t of_gpt2[IN_LAYER][2] = {{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}};
static const int64_t quick_ones[IN_LAYER][2] = {{96, 32}, {32, 32}, {128, 32}, {32, 128}};

typedef struct bench {
    const int64_t (*shapes)[2];
    int rounds;
    bench_samples samples;
} bench;

static int64_t count_of(const bench *b, int m)
{
    return b->shapes[m % IN_LAYER][0] * b->shapes[m % IN_LAYER][1];
}

static size_t bytes_of(const bench *b, int matrices)
{
    size_t bytes = 0;
    for (int m = 0; m < matrices; m++)
        bytes += (size_t)count_of(b, m) * sizeof(float);
    return bytes;
}

static float *numbers(int64_t count, unsigned seed)
{
    float *memory = bench_pages((size_t)count * sizeof *memory, true);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        memory[i] = (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
    }
    return memory;
}

/* So many matrices, and gradients. */
typedef struct subject {
    int matrices;
    float *values[MATRICES], *gradients[MATRICES];
    cz_model *model;
} subject;

static void make(const bench *b, int matrices, subject *s)
{
    s->matrices = matrices;
    CZ_CHECK(cz_model_create(&s->model));
    for (int m = 0; m < matrices; m++) {
        char name[24];
        snprintf(name, sizeof name, "matrix %d", m);
        s->values[m] = numbers(count_of(b, m), 1);
        s->gradients[m] = numbers(count_of(b, m), 2 + (unsigned)m);
        CZ_CHECK(cz_model_add(s->model, name, s->values[m], s->gradients[m], CZ_F32, 2,
                              b->shapes[m % IN_LAYER]));
    }
}

static void clear(const bench *b, subject *s)
{
    cz_model_destroy(&s->model);
    for (int m = 0; m < s->matrices; m++) {
        bench_pages_free(s->values[m], (size_t)count_of(b, m) * sizeof(float));
        bench_pages_free(s->gradients[m], (size_t)count_of(b, m) * sizeof(float));
    }
}

static double step(cz_optim *optim)
{
    const double begin = bench_seconds();
    CZ_CHECK(cz_optim_step(optim, NULL, NULL));
    return bench_seconds() - begin;
}

/* ---- one thread ---- */

/* x x^T, its square, and the product of that with x, on the smaller side, five times. */
static double flops_of(const bench *b)
{
    double flops = 0;
    for (int m = 0; m < IN_LAYER; m++) {
        const double rows = (double)b->shapes[m][0], columns = (double)b->shapes[m][1];
        const double small = rows < columns ? rows : columns, large = rows + columns - small;
        flops += NS_STEPS * 2 * small * small * (2 * large + small);
    }
    return flops;
}

#ifdef CZ_BENCH_CBLAS
static void multiply(int rows, int columns, int inner, const float *x, bool transposed,
                     const float *y, float *product)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans, rows, columns,
                inner, 1, x, inner, y, transposed ? inner : columns, 0, product, columns);
}

static double products(const bench *b, const subject *s, float *room)
{
    const double begin = bench_seconds();
    for (int m = 0; m < IN_LAYER; m++) {
        const int rows = (int)b->shapes[m][0], columns = (int)b->shapes[m][1];
        const int small = rows < columns ? rows : columns, large = rows + columns - small;
        const size_t square = (size_t)small * (size_t)small;
        float *gram = room, *polynomial = gram + square, *outcome = polynomial + square;
        for (int k = 0; k < NS_STEPS; k++) {
            multiply(small, small, large, s->gradients[m], true, s->gradients[m], gram);
            multiply(small, small, small, gram, false, gram, polynomial);
            multiply(small, large, small, polynomial, false, s->gradients[m], outcome);
        }
    }
    return bench_seconds() - begin;
}
#else
static double products(const bench *b, const subject *s, float *room)
{
    return 0;
}
#endif

static cz_optim *make_optim(const subject *s)
{
    cz_optim *optim;
    CZ_CHECK(cz_optim_create(&optim, s->model, cz_rule_muon(), NULL, NULL));
    step(optim);
    return optim;
}

static void measure_alone(bench *b)
{
    subject s;
    const int64_t room = 3 * b->shapes[2][0] * b->shapes[2][0];
    float *products_room = bench_pages((size_t)room * sizeof(float), true);
    make(b, IN_LAYER, &s);
    cz_optim *optim = make_optim(&s);
    products(b, &s, products_room);
    b->samples = (bench_samples){.rounds = b->rounds};
    for (int i = 0; i < b->rounds; i++) {
        b->samples.ours[i] = step(optim);
        b->samples.limit[i] = products(b, &s, products_room);
    }
    bench_say(&(bench_row){.name = "muon, a layer",
                           .bytes = bytes_of(b, IN_LAYER),
                           .ranks = 1,
                           .against = "its products by OpenBLAS",
                           .wanted = 1 / 1.15},
              &b->samples);
    const bench_summary all = bench_summarise(&b->samples);
    printf("  %.1f GFlop a step: %.0f GFlop/s", flops_of(b) / 1e9, flops_of(b) / all.ours / 1e9);
    if (all.limit > 0)
        printf(", OpenBLAS %.0f", flops_of(b) / all.limit / 1e9);
    printf("\n");
    cz_optim_destroy(&optim);
    clear(b, &s);
    bench_pages_free(products_room, (size_t)room * sizeof(float));
}

/* ---- two ranks ---- */

typedef struct rank {
    subject s;
    cz_zero *zero;
    cz_optim *all;
} rank;

static cz_status step_both(cz_group *group, bench *b, const rank *mine, int round)
{
    const bool notes = cz_group_rank(group) == 0 && round >= 0;
    CZ_TRY(cz_barrier(group, NULL));
    double begin = bench_seconds();
    CZ_TRY(cz_zero_step(mine->zero, NULL, NULL));
    CZ_TRY(cz_barrier(group, NULL));
    if (notes)
        b->samples.ours[round] = bench_seconds() - begin;
    begin = bench_seconds();
    for (int m = 0; m < MATRICES; m++)
        CZ_TRY(
            cz_all_reduce(group, mine->s.gradients[m], count_of(b, m), CZ_F32, CZ_AVERAGE, NULL));
    CZ_TRY(cz_optim_step(mine->all, NULL, NULL));
    CZ_TRY(cz_barrier(group, NULL));
    if (notes)
        b->samples.limit[round] = bench_seconds() - begin;
    return CZ_OK;
}

/* The gradients' mean is in both times. */
static cz_status rank_body(cz_group *group, void *context)
{
    bench *b = context;
    rank mine = {0};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = CZ_PARTITION_GIVEN;
    const int owners[MATRICES] = {0, 1, 0, 1, 1, 0, 1, 0}; /* one of each shape */
    options.owners = owners;
    options.owner_count = MATRICES;
    make(b, MATRICES, &mine.s);
    cz_status status =
        cz_zero_create(&mine.zero, group, mine.s.model, cz_rule_muon(), NULL, &options);
    if (status == CZ_OK)
        status = cz_optim_create(&mine.all, mine.s.model, cz_rule_muon(), NULL, NULL);
    for (int round = -1; round < b->rounds && status == CZ_OK; round++)
        status = step_both(group, b, &mine, round);
    cz_zero_destroy(&mine.zero);
    cz_optim_destroy(&mine.all);
    clear(b, &mine.s);
    return status;
}

static void measure_ranks(bench *b)
{
    b->samples = (bench_samples){.rounds = b->rounds};
    CZ_CHECK(cz_launch(rank_body, b,
                       &(cz_launch_options){.size = sizeof(cz_launch_options), .ranks = RANKS}));
    bench_say(&(bench_row){.name = "muon, sharded",
                           .bytes = bytes_of(b, MATRICES),
                           .ranks = RANKS,
                           .against = "every rank does all",
                           .wanted = 1.8},
              &b->samples);
}

/* A step for each line on standard input; each prints its seconds. */
static void paced(const bench *b)
{
    char line[64];
    subject s;
    make(b, IN_LAYER, &s);
    cz_optim *optim = make_optim(&s);
    while (fgets(line, sizeof line, stdin)) {
        printf("%.6f\n", step(optim));
        fflush(stdout);
    }
    cz_optim_destroy(&optim);
    clear(b, &s);
}

int main(int argc, char **argv)
{
    static bench b;
    bool quick = false, takes_turns = false;
    int rounds = 0;
    bench_arguments(
        argc, argv, "Muon over a layer of GPT-2 124M, and its products by OpenBLAS.",
        (const bench_option[]){
            {"--quick", "small matrices, few rounds", .flag = &quick},
            {"--rounds", "of each (9)", .number = &rounds},
            {"--paced", "only czero: a step for each line that comes", .flag = &takes_turns},
            {0}});
#ifdef CZ_BENCH_CBLAS
    openblas_set_num_threads(1);
#endif
    b.rounds = rounds > 0 && rounds <= BENCH_ROUNDS ? rounds : quick ? 3 : 9;
    b.shapes = quick ? quick_ones : of_gpt2;
    if (takes_turns) {
        paced(&b);
        return 0;
    }
    bench_heading("Muon, ranks: threads");
    measure_alone(&b);
    measure_ranks(&b);
    return 0;
}
