/* SPDX-License-Identifier: MIT */
/* Steps of AdamW over values of 16 bits, beside a plain mix of the same reads and writes, in
 * memory. Rounds of both alternate, since the speed of the memory drifts; a ratio is the median of
 * those of the rounds, its spread half the distance between the quartiles. One line for each:
 * variant threads bytes ratio spread ns, where bytes are an element's of memory (values, gradients
 * and state), ratio is time of the mix / time of the step, and ns is an element's.
 *     bench_mixed [VARIANT [THREADS]] */
#include "base/clock.h"
#include "base/kernel_threads.h"
#include "czero/optim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "median.h"

#define ROUNDS 15
#define COUNT ((int64_t)6 << 20)
#define MAX_PARTS 2

typedef struct variant {
    const char *name;
    cz_dtype dtype, gradient, state;
    cz_master master;
} variant;

static const variant variants[] = {
    {"f32", CZ_F32, CZ_F32, CZ_F32, CZ_MASTER_NONE},
    {"f32_u8_moments", CZ_F32, CZ_F32, CZ_U8, CZ_MASTER_NONE},
    {"bf16", CZ_BF16, CZ_BF16, CZ_F32, CZ_MASTER_COPY},
    {"f16", CZ_F16, CZ_F16, CZ_F32, CZ_MASTER_COPY},
    {"bf16_f32_gradients", CZ_BF16, CZ_F32, CZ_F32, CZ_MASTER_COPY},
    {"bf16_bf16_moments", CZ_BF16, CZ_BF16, CZ_BF16, CZ_MASTER_COPY},
    {"bf16_u8_moments", CZ_BF16, CZ_BF16, CZ_U8, CZ_MASTER_COPY},
    {"bf16_no_master", CZ_BF16, CZ_BF16, CZ_F32, CZ_MASTER_NONE},
    {"f16_no_master", CZ_F16, CZ_F16, CZ_F32, CZ_MASTER_NONE},
    {"bf16_no_master_bf16_moments", CZ_BF16, CZ_BF16, CZ_BF16, CZ_MASTER_NONE},
};

/* The gradient is read, the others are read and written; lengths in lanes of 16 bytes. */
typedef int32_t lanes __attribute__((vector_size(16), may_alias));
typedef struct arrays {
    lanes *gradient, *written[4];
    size_t gradient_size, sizes[4]; /* of an element */
} arrays;

typedef struct run {
    const arrays *arrays;
    int parts;
} run;

#define BLOCK 16 /* elements: as many lanes as an element has bytes */

static inline __attribute__((always_inline)) void mix_blocks(int64_t begin, int64_t end,
                                                             lanes *restrict g, size_t g_lanes,
                                                             lanes *restrict a, size_t a_lanes,
                                                             lanes *restrict b, size_t b_lanes,
                                                             lanes *restrict c, size_t c_lanes,
                                                             lanes *restrict d, size_t d_lanes)
{
    for (int64_t k = begin; k < end; k++) {
        lanes sum = g[(size_t)k * g_lanes];
        for (size_t i = 1; i < g_lanes; i++)
            sum += g[(size_t)k * g_lanes + i];
        for (size_t i = 0; i < a_lanes; i++)
            a[(size_t)k * a_lanes + i] += sum;
        for (size_t i = 0; i < b_lanes; i++)
            b[(size_t)k * b_lanes + i] += sum;
        for (size_t i = 0; i < c_lanes; i++)
            c[(size_t)k * c_lanes + i] += sum;
        for (size_t i = 0; i < d_lanes; i++)
            d[(size_t)k * d_lanes + i] += sum;
    }
}

/* a: the values, b, c: moments, d: the master. */
static void mix_part(void *context, int part)
{
    const run *r = context;
    const arrays *m = r->arrays;
    const int64_t blocks = COUNT / BLOCK, begin = blocks * part / r->parts;
    const int64_t end = blocks * (part + 1) / r->parts;
#define MIX(g, a, b, d)                                                                            \
    if (m->gradient_size == (g) && m->sizes[0] == (a) && m->sizes[1] == (b) && m->sizes[3] == (d)) \
    mix_blocks(begin, end, m->gradient, g, m->written[0], a, m->written[1], b, m->written[2], b,   \
               m->written[3], d)
    MIX(4, 4, 4, 0);
    MIX(4, 4, 1, 0);
    MIX(2, 2, 4, 4);
    MIX(4, 2, 4, 4);
    MIX(2, 2, 2, 4);
    MIX(2, 2, 1, 4);
    MIX(2, 2, 4, 0);
    MIX(2, 2, 2, 0);
}

static void *memory_of(size_t bytes)
{
    void *memory;
    CZ_CHECK(cz_device_cpu()->allocate(CZ_MEMORY_STATE, bytes ? bytes : 64, &memory));
    return memory;
}

static void fill(const variant *v, void *values, void *gradients)
{
    float block[1024];
    for (int64_t i = 0; i < COUNT; i += 1024) {
        for (int k = 0; k < 1024; k++)
            block[k] = (float)(k + 1) * 1e-3f;
        CZ_CHECK(cz_device_cpu()->convert(NULL, v->dtype,
                                          (char *)values + (size_t)i * cz_dtype_size(v->dtype),
                                          CZ_F32, block, 1024));
        CZ_CHECK(cz_device_cpu()->convert(
            NULL, v->gradient, (char *)gradients + (size_t)i * cz_dtype_size(v->gradient), CZ_F32,
            block, 1024));
    }
}

static double half_spread(const double *sorted)
{
    return (sorted[3 * ROUNDS / 4] - sorted[ROUNDS / 4]) / 2;
}

static void measure(const variant *v, int parts)
{
    double ns[ROUNDS], ratio[ROUNDS];
    arrays m = {.gradient_size = cz_dtype_size(v->gradient),
                .sizes = {cz_dtype_size(v->dtype), cz_dtype_size(v->state), cz_dtype_size(v->state),
                          v->master == CZ_MASTER_COPY ? 4 : 0}};
    const run r = {&m, parts};
    size_t bytes = m.gradient_size;
    m.gradient = memory_of((size_t)COUNT * m.gradient_size);
    for (int k = 0; k < 4; k++) {
        m.written[k] = memory_of((size_t)COUNT * m.sizes[k]);
        bytes += m.sizes[k];
    }
    void *values = memory_of((size_t)COUNT * m.sizes[0]);
    void *gradients = memory_of((size_t)COUNT * m.gradient_size);
    const cz_tensor value = {values, v->dtype, CZ_DENSE, 1, {COUNT}, NULL};
    const cz_tensor gradient = {gradients, v->gradient, CZ_DENSE, 1, {COUNT}, NULL};
    cz_model *model;
    cz_optim *optim;
    cz__kernel_threads *threads;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.threads = parts;
    options.master = v->master;
    options.state_dtype = v->state;
    fill(v, values, gradients);
    CZ_CHECK(cz_model_create(&model));
    CZ_CHECK(cz_model_add_tensor(model, "w", &value, &gradient));
    CZ_CHECK(cz_optim_create(&optim, model, cz_rule_adamw(), NULL, &options));
    CZ_CHECK(cz__kernel_threads_start(&threads, parts));
    for (int round = -2; round < ROUNDS; round++) { /* the first only warm up */
        const double begin = cz__seconds();
        cz__kernel_threads_run(threads, mix_part, (void *)&r);
        const double middle = cz__seconds();
        CZ_CHECK(cz_optim_step(optim, NULL, NULL));
        const double end = cz__seconds();
        if (round < 0)
            continue;
        ns[round] = (end - middle) * 1e9 / (double)COUNT;
        ratio[round] = (middle - begin) / (end - middle);
    }
    const double middle = median(ratio, ROUNDS);
    printf("%-28s %d %3zu %6.3f %6.3f %7.3f\n", v->name, parts, bytes, middle, half_spread(ratio),
           median(ns, ROUNDS));
    fflush(stdout);
    cz__kernel_threads_stop(&threads);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    cz_device_cpu()->release(m.gradient);
    for (int k = 0; k < 4; k++)
        cz_device_cpu()->release(m.written[k]);
    cz_device_cpu()->release(values);
    cz_device_cpu()->release(gradients);
}

static bool wanted(int argc, char **argv, int place, const char *what)
{
    return argc <= place || strcmp(argv[place], what) == 0;
}

int main(int argc, char **argv)
{
    printf("# %s\n# steps of AdamW: variant threads bytes ratio spread ns\n", cz_build_info());
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        for (int parts = 1; parts <= MAX_PARTS; parts++)
            if (wanted(argc, argv, 1, variants[i].name) &&
                wanted(argc, argv, 2, parts == 1 ? "1" : "2"))
                measure(&variants[i], parts);
    return 0;
}
