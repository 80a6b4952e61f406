/* SPDX-License-Identifier: MIT */
/* The update kernels in use here, beside a plain mix of the same reads and writes and, for some
 * rules, beside the same operations written by hand: in the second-level cache, the third and
 * memory, on one thread and on two. Rounds of all alternate, since the speed of the memory drifts;
 * a ratio is the median of those of the rounds, its spread half the distance between the quartiles.
 * One line for each: rule size threads ratio spread ns hand, where ratio is time of the mix / time
 * of the kernel, ns is an element's and hand time of the hand-written / time of the kernel, - where
 * there is none. Those with averages are whole steps.
 *     bench_update [RULE [SIZE [THREADS]]] */
#include "base/clock.h"
#include "base/kernel_threads.h"
#include "device/cpu/cpu.h"
#include "czero/optim.h"
#include "rule/rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hand_written.h"
#include "median.h"

#define ROUNDS 9
#define MAX_ARRAYS 5
#define MAX_PARTS 2

typedef float lanes __attribute__((vector_size(16), may_alias));
typedef void (*hand_written)(int64_t count, float *p, const float *g, float *const *slots,
                             const double *c);

typedef struct job {
    const char *name, *rule;
    const cz_hyper *hypers;
    cz_dtype dtype;
    int arrays; /* parameter, gradient, slots */
    hand_written hand;
    bool averages; /* by a step of an optimizer, with moving averages: not by the kernel alone */
} job;

/* A run over all elements, in parts. */
typedef struct run {
    const job *job;
    cz_update_kernel kernel;
    double coefficients[CZ_RULE_COEFFICIENTS];
    unsigned flags;
    char *memory[MAX_ARRAYS];
    size_t bytes; /* of each; a multiple of 128 */
    int parts, repeats;
    cz_model *model; /* of a job that averages, as the next one */
    cz_optim *optim;
} run;

static void mix2(size_t rows, lanes *restrict p, const lanes *restrict g)
{
    for (size_t i = 0; i < rows; i++)
        p[i] = p[i] - g[i];
}

static void mix3(size_t rows, lanes *restrict p, const lanes *restrict g, lanes *restrict m)
{
    for (size_t i = 0; i < rows; i++) {
        m[i] = m[i] + g[i];
        p[i] = p[i] - m[i];
    }
}

static void mix4(size_t rows, lanes *restrict p, const lanes *restrict g, lanes *restrict m,
                 lanes *restrict v)
{
    for (size_t i = 0; i < rows; i++) {
        m[i] = m[i] + g[i];
        v[i] = v[i] + g[i];
        p[i] = p[i] - m[i] - v[i];
    }
}

static void mix5(size_t rows, lanes *restrict p, const lanes *restrict g, lanes *restrict m,
                 lanes *restrict v, lanes *restrict u)
{
    for (size_t i = 0; i < rows; i++) {
        m[i] = m[i] + g[i];
        v[i] = v[i] + g[i];
        u[i] = u[i] + g[i];
        p[i] = p[i] - m[i] - v[i] - u[i];
    }
}

static void find_part(const run *r, int part, void *at[MAX_ARRAYS], size_t *bytes)
{
    *bytes = r->bytes / (size_t)r->parts;
    for (int k = 0; k < MAX_ARRAYS; k++)
        at[k] = r->memory[k] ? r->memory[k] + (size_t)part * *bytes : NULL;
}

/* Read every array, write all but the gradient. */
static void mix_part(void *context, int part)
{
    const run *r = context;
    void *at[MAX_ARRAYS];
    size_t bytes;
    find_part(r, part, at, &bytes);
    const size_t rows = bytes / sizeof(lanes);
    for (int i = 0; i < r->repeats; i++)
        if (r->job->arrays == 2)
            mix2(rows, at[0], at[1]);
        else if (r->job->arrays == 3)
            mix3(rows, at[0], at[1], at[2]);
        else if (r->job->arrays == 4)
            mix4(rows, at[0], at[1], at[2], at[3]);
        else
            mix5(rows, at[0], at[1], at[2], at[3], at[4]);
}

static void kernel_part(void *context, int part)
{
    const run *r = context;
    void *at[MAX_ARRAYS];
    size_t bytes;
    find_part(r, part, at, &bytes);
    for (int i = 0; i < r->repeats; i++)
        r->kernel(NULL, (int64_t)(bytes / cz_dtype_size(r->job->dtype)), at[0], at[1], at + 2,
                  r->coefficients, r->flags);
}

static void hand_part(void *context, int part)
{
    const run *r = context;
    void *at[MAX_ARRAYS];
    size_t bytes;
    find_part(r, part, at, &bytes);
    float *const slots[] = {at[2], at[3], at[4]};
    for (int i = 0; i < r->repeats; i++)
        r->job->hand((int64_t)(bytes / sizeof(float)), at[0], at[1], slots, r->coefficients);
}

static void prepare(run *r)
{
    const cz_rule *rule = cz_rule_find(r->job->rule);
    const cz_dtype dtype = r->job->dtype;
    double values[16], scalars[2] = {0.5, 0.5};
    r->kernel = cz_device_cpu()->find_update(rule->name, dtype, dtype, dtype);
    cz__rule_defaults(rule, values);
    CZ_CHECK(cz__rule_set_list(rule, values, r->job->hypers));
    rule->prepare(&(cz_rule_step){.hypers = values, .step = 1000, .scalars = scalars},
                  r->coefficients, &r->flags);
}

/* Small and normal numbers, which stay so: the slots shrink towards the gradient. */
static void fill_part(void *context, int part)
{
    const run *r = context;
    void *at[MAX_ARRAYS];
    size_t bytes;
    find_part(r, part, at, &bytes);
    const size_t count = bytes / cz_dtype_size(r->job->dtype);
    for (int k = 0; k < r->job->arrays; k++)
        for (size_t i = 0; i < count; i++) {
            const double value = (double)(i % 1024 + 1) * (k >= 3 ? 1e-9 : 1e-6);
            if (r->job->dtype == CZ_F32)
                ((float *)at[k])[i] = (float)value;
            else
                ((double *)at[k])[i] = value;
        }
}

static double seconds_of(cz__kernel_threads *threads, cz__part part, run *r)
{
    cz__kernel_threads_run(threads, fill_part, r);
    const double begin = cz__seconds();
    cz__kernel_threads_run(threads, part, r);
    return cz__seconds() - begin;
}

/* An optimizer over the first two arrays; the others are the mix's. */
static void create_optim(run *r)
{
    const int64_t count = (int64_t)(r->bytes / cz_dtype_size(r->job->dtype));
    const cz_moving_average average = CZ_MOVING_AVERAGE_INIT;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.average = &average;
    options.threads = r->parts;
    CZ_CHECK(cz_model_create(&r->model));
    CZ_CHECK(cz_model_add(r->model, "p", r->memory[0], r->memory[1], r->job->dtype, 1, &count));
    CZ_CHECK(
        cz_optim_create(&r->optim, r->model, cz_rule_find(r->job->rule), r->job->hypers, &options));
}

static double seconds_of_steps(cz__kernel_threads *threads, run *r)
{
    cz__kernel_threads_run(threads, fill_part, r);
    CZ_CHECK(cz_optim_step(r->optim, NULL, NULL)); /* its state is not the mix's: into caches */
    const double begin = cz__seconds();
    for (int i = 0; i < r->repeats; i++)
        CZ_CHECK(cz_optim_step(r->optim, NULL, NULL));
    return cz__seconds() - begin;
}

static double half_spread(const double *sorted)
{
    return (sorted[3 * ROUNDS / 4] - sorted[ROUNDS / 4]) / 2;
}

static void measure(const job *j, size_t bytes, const char *place, int parts)
{
    double ns[ROUNDS], ratio[ROUNDS], hand[ROUNDS] = {0};
    run r = {.job = j, .bytes = bytes * (size_t)parts, .parts = parts};
    const bool by_hand = j->hand && hand_can_run();
    const double elements = (double)(r.bytes / cz_dtype_size(j->dtype));
    cz__kernel_threads *threads;
    r.repeats = bytes < (size_t)2 << 20 ? (int)(((size_t)2 << 20) / bytes) : 1;
    prepare(&r);
    CZ_CHECK(cz__kernel_threads_start(&threads, parts));
    for (int k = 0; k < j->arrays; k++) {
        void *memory;
        CZ_CHECK(cz_device_cpu()->allocate(CZ_MEMORY_STATE, r.bytes, &memory));
        r.memory[k] = memory;
    }
    if (j->averages)
        create_optim(&r);
    for (int round = -1; round < ROUNDS; round++) { /* the first only warms up */
        const double mix = seconds_of(threads, mix_part, &r);
        const double kernel =
            j->averages ? seconds_of_steps(threads, &r) : seconds_of(threads, kernel_part, &r);
        const double own = by_hand ? seconds_of(threads, hand_part, &r) : 0;
        if (round < 0)
            continue;
        ns[round] = kernel * 1e9 / elements / r.repeats;
        ratio[round] = mix / kernel;
        hand[round] = own / kernel;
    }
    const double middle = median(ratio, ROUNDS);
    printf("%-19s %-6s %d %6.3f %6.3f %7.3f ", j->name, place, parts, middle, half_spread(ratio),
           median(ns, ROUNDS));
    if (by_hand)
        printf("%6.3f\n", median(hand, ROUNDS));
    else
        printf("     -\n");
    fflush(stdout);
    cz_optim_destroy(&r.optim);
    cz_model_destroy(&r.model);
    for (int k = 0; k < j->arrays; k++)
        cz_device_cpu()->release(r.memory[k]);
    cz__kernel_threads_stop(&threads);
}

static bool wanted(int argc, char **argv, int place, const char *what)
{
    return argc <= place || strcmp(argv[place], what) == 0;
}

int main(int argc, char **argv)
{
    const job jobs[] = {
        {"sgd", "sgd", CZ_HYPERS({"lr", 1e-6}), CZ_F32, 2, NULL, false},
        {"sgd_momentum", "sgd", CZ_HYPERS({"lr", 1e-6}, {"momentum", 0.9}), CZ_F32, 3,
         hand_sgd_momentum, false},
        {"adam", "adam", NULL, CZ_F32, 4, NULL, false},
        {"adamw", "adamw", NULL, CZ_F32, 4, hand_adamw, false},
        {"amsgrad", "adam", CZ_HYPERS({"amsgrad", 1}), CZ_F32, 5, NULL, false},
        {"adamw_f64", "adamw", NULL, CZ_F64, 4, NULL, false},
        {"sgd_average", "sgd", CZ_HYPERS({"lr", 1e-6}), CZ_F32, 3, NULL, true},
        {"adamw_average", "adamw", NULL, CZ_F32, 5, NULL, true},
        {"adamax", "adamax", NULL, CZ_F32, 4, hand_adamax, false},
        {"adadelta", "adadelta", NULL, CZ_F32, 4, hand_adadelta, false},
        {"adagrad", "adagrad", NULL, CZ_F32, 3, hand_adagrad, false},
        {"rmsprop", "rmsprop", NULL, CZ_F32, 3, hand_rmsprop, false},
        {"rprop", "rprop", NULL, CZ_F32, 4, NULL, false},
        {"nadam", "nadam", NULL, CZ_F32, 4, hand_nadam, false},
        {"radam", "radam", NULL, CZ_F32, 4, NULL, false},
        {"lion", "lion", NULL, CZ_F32, 3, NULL, false},
        {"ademamix", "ademamix", NULL, CZ_F32, 5, NULL, false},
        {"schedule_free_sgd", "schedule_free_sgd", NULL, CZ_F32, 3, NULL, false},
        {"schedule_free_adamw", "schedule_free_adamw", NULL, CZ_F32, 4, NULL, false},
    };
    /* Bytes of an array on each thread. */
    const struct {
        const char *name;
        size_t bytes;
    } places[] = {{"L2", (size_t)96 << 10}, {"L3", (size_t)1 << 20}, {"memory", (size_t)24 << 20}};
    printf("# %s\n# update kernels: rule size threads ratio spread ns hand\n", cz_build_info());
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        for (size_t k = 0; k < sizeof places / sizeof *places; k++)
            for (int parts = 1; parts <= MAX_PARTS; parts++)
                if (wanted(argc, argv, 1, jobs[i].name) && wanted(argc, argv, 2, places[k].name) &&
                    wanted(argc, argv, 3, parts == 1 ? "1" : "2"))
                    measure(&jobs[i], places[k].bytes, places[k].name, parts);
    return 0;
}
