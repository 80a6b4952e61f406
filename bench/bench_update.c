/* SPDX-License-Identifier: MIT */
/* The update kernels in use here: nanoseconds per element, in the second-level cache and in memory,
 * beside a plain mix of the same reads and writes. Rounds of both alternate, since the speed of the
 * memory drifts; times and their ratio are medians. */
#include "base/clock.h"
#include "device/cpu/cpu.h"
#include "rule/rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "median.h"

#define ROUNDS 15
#define MAX_ARRAYS 4

typedef float lanes __attribute__((vector_size(16), may_alias));

typedef struct job {
    const char *rule;
    const cz_hyper *hypers;
    cz_dtype dtype;
} job;

/* Parameter, gradient, slots. */
typedef struct arrays {
    void *memory[MAX_ARRAYS];
    int count;
    size_t bytes; /* of each; a multiple of 64 */
} arrays;

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

/* Read every array, write all but the gradient. */
static void stream_mix(const arrays *a)
{
    const size_t rows = a->bytes / sizeof(lanes);
    if (a->count == 2)
        mix2(rows, a->memory[0], a->memory[1]);
    else if (a->count == 3)
        mix3(rows, a->memory[0], a->memory[1], a->memory[2]);
    else
        mix4(rows, a->memory[0], a->memory[1], a->memory[2], a->memory[3]);
}

static void update(const job *j, const arrays *a)
{
    const cz_rule *rule = cz_rule_find(j->rule);
    const cz_update_kernel kernel =
        cz_device_cpu()->find_update(j->rule, j->dtype, j->dtype, j->dtype);
    double values[16], coefficients[CZ_RULE_COEFFICIENTS], scalars[1] = {0.5};
    void *slots[3] = {NULL};
    unsigned flags = 0;
    cz__rule_defaults(rule, values);
    CZ_CHECK(cz__rule_set_list(rule, values, j->hypers));
    for (int i = 2; i < a->count; i++)
        slots[i - 2] = a->memory[i];
    rule->prepare(&(cz_rule_step){.hypers = values, .step = 1000, .scalars = scalars}, coefficients,
                  &flags);
    kernel(NULL, (int64_t)(a->bytes / cz_dtype_size(j->dtype)), a->memory[0], a->memory[1], slots,
           coefficients, flags);
}

/* Small and normal numbers, which stay so: the slots shrink towards the gradient. */
static void fill(cz_dtype dtype, const arrays *a)
{
    const size_t count = a->bytes / cz_dtype_size(dtype);
    for (int k = 0; k < a->count; k++)
        for (size_t i = 0; i < count; i++) {
            const double value = (double)(i % 1000 + 1) * (k == 3 ? 1e-9 : 1e-6);
            if (dtype == CZ_F32)
                ((float *)a->memory[k])[i] = (float)value;
            else
                ((double *)a->memory[k])[i] = value;
        }
}

static void measure(const job *j, int array_count, size_t bytes, const char *place)
{
    double mix[ROUNDS], kernel[ROUNDS], ratio[ROUNDS];
    arrays a = {.count = array_count, .bytes = bytes};
    const int repeats = (int)(((size_t)64 << 20) / bytes);
    const double elements = (double)repeats * (double)(bytes / cz_dtype_size(j->dtype));
    for (int k = 0; k < array_count; k++)
        CZ_CHECK(cz_device_cpu()->allocate(CZ_MEMORY_STATE, bytes, &a.memory[k]));
    for (int round = -1; round < ROUNDS; round++) { /* the first only warms up */
        fill(j->dtype, &a);
        const double begin = cz__seconds();
        for (int i = 0; i < repeats; i++)
            stream_mix(&a);
        const double middle = cz__seconds();
        fill(j->dtype, &a);
        const double again = cz__seconds();
        for (int i = 0; i < repeats; i++)
            update(j, &a);
        const double end = cz__seconds();
        if (round < 0)
            continue;
        mix[round] = (middle - begin) * 1e9 / elements;
        kernel[round] = (end - again) * 1e9 / elements;
        ratio[round] = mix[round] / kernel[round];
    }
    printf("%-8s %s  %-4s %8zu KiB  %6.3f ns  mix %6.3f ns  %4.0f %% of the mix\n", j->rule,
           cz_dtype_name(j->dtype), place, bytes >> 10, median(kernel, ROUNDS), median(mix, ROUNDS),
           100 * median(ratio, ROUNDS));
    for (int k = 0; k < array_count; k++)
        cz_device_cpu()->release(a.memory[k]);
}

int main(void)
{
    const struct {
        job job;
        int arrays;
    } jobs[] = {
        {{"sgd", CZ_HYPERS({"lr", 1e-6}), CZ_F32}, 2},
        {{"sgd", CZ_HYPERS({"lr", 1e-6}, {"momentum", 0.9}), CZ_F32}, 3},
        {{"adam", NULL, CZ_F32}, 4},
        {{"adamw", NULL, CZ_F32}, 4},
        {{"adamw", NULL, CZ_F64}, 4},
        {{"adamax", NULL, CZ_F32}, 4},
        {{"adadelta", NULL, CZ_F32}, 4},
        {{"adagrad", NULL, CZ_F32}, 3},
        {{"rmsprop", NULL, CZ_F32}, 3},
        {{"rprop", NULL, CZ_F32}, 4},
        {{"nadam", NULL, CZ_F32}, 4},
        {{"radam", NULL, CZ_F32}, 4},
    };
    printf("update kernels at level %s, one thread, per element\n", cz_cpu_level());
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        measure(&jobs[i].job, jobs[i].arrays, (size_t)128 << 10, "L2");
        measure(&jobs[i].job, jobs[i].arrays, (size_t)64 << 20, "DRAM");
    }
    return 0;
}
