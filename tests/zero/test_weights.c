/* SPDX-License-Identifier: MIT */
/* Batches of unequal size without a data-parallel model: with weights the mean is that over all
 * samples, whoever has them, also where some ranks have none; and sums that nothing divides. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "czero/random.h"
#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 4, STEPS = 3, SAMPLES = 16, MOST = 7 };

static const int64_t small[PARAMS] = {4011, 0, 3, 131}, large[PARAMS] = {300007, 0, 3, 131};
static const int worlds[] = {1, 2, 3, 5, 7};

/* How many of the samples each rank has. With powers of two all arithmetic is exact. */
static const int dealt[][MOST] = {{16}, {0, 16}, {8, 4, 4}, {8, 4, 2, 2, 0}, {0, 4, 4, 2, 2, 2, 2}};

typedef struct trial {
    const int64_t *sizes;
    const cz_rule *rule;
    const cz_hyper *hypers;
    cz_partition partition;
    cz_gradients gradients;
    double max_norm;
    const int *dealt; /* of each rank */
    bool rough;       /* sums are rounded */
    bool unread;      /* gradients of ranks without samples are not finite */
} trial;

typedef struct subject {
    cz_test_memory memory;
    cz_zero *zero;
    cz_optim *optim;
} subject;

static cz_status create(subject *s, const trial *t, cz_group *group)
{
    const cz_test_training training = {
        .param_count = PARAMS, .sizes = t->sizes, .dtype = CZ_F32, .rule = t->rule};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    *s = (subject){0};
    options.partition = t->partition;
    options.gradients = t->gradients;
    CZ_TRY(cz_test_memory_create(&s->memory, &training));
    return group ? cz_zero_create(&s->zero, group, s->memory.model, t->rule, t->hypers, &options)
                 : cz_optim_create(&s->optim, s->memory.model, t->rule, t->hypers, NULL);
}

static void clear(subject *s)
{
    cz_zero_destroy(&s->zero);
    cz_optim_destroy(&s->optim);
    cz_test_memory_destroy(&s->memory);
}

/* The gradient of one sample. */
static double element(const trial *t, int sample, int step, int p, int64_t i)
{
    if (t->rough)
        return cz_random_normal(9, (uint64_t)(sample * STEPS + step), (uint64_t)(p + 1) << 32 | i);
    return (double)((sample + 3 * step + p + i) % 9 - 4) / 64;
}

/* Of samples `first` up to `end`, divided by `by`. */
static void fill(const trial *t, const subject *s, int step, int first, int end, double by)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < t->sizes[p]; i++) {
            double sum = 0;
            for (int k = first; k < end; k++)
                sum += element(t, k, step, p, i);
            cz_test_store(s->memory.grads[p], CZ_F32, i, sum / by);
        }
}

static cz_status expect_values(const trial *t, const subject *s, const subject *reference, int step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < t->sizes[p]; i++) {
            const double mine = cz_test_load(s->memory.values[p], CZ_F32, i);
            const double its = cz_test_load(reference->memory.values[p], CZ_F32, i);
            if (t->rough ? fabs(mine - its) > 4e-6 * (1 + fabs(its)) : mine != its)
                return cz_fail(CZ_ERR_STATE, "step %d: element %d of p%d is %.9g, wanted %.9g",
                               step, (int)i, p, mine, its);
        }
    return CZ_OK;
}

/* With weights a rank has the mean of its samples, for a sum that of a part of the batch. */
static cz_status fill_mine(const trial *t, subject *s, const cz_group *group, int step)
{
    const int rank = cz_group_rank(group), mine = t->dealt[rank];
    int first = 0;
    for (int r = 0; r < rank; r++)
        first += t->dealt[r];
    if (t->gradients == CZ_GRADIENTS_SUM) {
        fill(t, s, step, first, first + mine, SAMPLES);
        return CZ_OK;
    }
    fill(t, s, step, first, first + mine, mine > 0 ? mine : 1);
    for (int p = 0; p < PARAMS && mine == 0 && t->unread; p++)
        for (int64_t i = 0; i < t->sizes[p]; i++)
            cz_test_store(s->memory.grads[p], CZ_F32, i, i % 2 ? NAN : INFINITY);
    return cz_zero_set_weight(s->zero, mine);
}

static cz_status compare(const trial *t, subject *s, subject *reference, const cz_group *group)
{
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_step_result mine = CZ_STEP_RESULT_INIT, its = CZ_STEP_RESULT_INIT;
    options.max_norm = t->max_norm;
    for (int step = 0; step < STEPS; step++) {
        CZ_TRY(fill_mine(t, s, group, step));
        fill(t, reference, step, 0, SAMPLES, SAMPLES);
        CZ_TRY(cz_zero_step(s->zero, &options, &mine));
        CZ_TRY(cz_optim_step(reference->optim, &options, &its));
        CZ_TRY(expect_values(t, s, reference, step));
        if (t->max_norm > 0 && !t->rough && mine.norm != its.norm)
            return cz_fail(CZ_ERR_STATE, "norm %.17g, wanted %.17g", mine.norm, its.norm);
    }
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    subject s, reference;
    cz_status status = create(&s, t, group);
    THEN(create(&reference, t, NULL));
    THEN(compare(t, &s, &reference, group));
    clear(&s);
    clear(&reference);
    return status;
}

static void run_on(int w, trial t)
{
    t.dealt = dealt[w];
    assert_ranks_ok(worlds[w], each_rank, &t);
}

static void run_everywhere(trial t)
{
    for (int w = 0; w < (int)(sizeof worlds / sizeof *worlds); w++)
        run_on(w, t);
}

static const cz_hyper rates[] = {{"lr", 0.0625}, {NULL, 0}};

TEST(a_mean_with_weights_has_the_bits_of_the_mean_over_all_samples)
{
    run_everywhere((trial){.sizes = small, .rule = cz_rule_sgd(), .hypers = rates, .unread = true});
    run_everywhere((trial){.sizes = small, .rule = cz_rule_adamw()});
    run_on(3, (trial){.sizes = large, .rule = cz_rule_adamw(), .unread = true});
    run_everywhere(
        (trial){.sizes = small, .rule = cz_rule_adamw(), .partition = CZ_PARTITION_GREEDY});
    run_everywhere(
        (trial){.sizes = small, .rule = cz_rule_adamw(), .max_norm = 0.5, .unread = true});
    run_everywhere((trial){.sizes = small, .rule = cz_test_probe_rule()});
}

TEST(a_sum_has_the_bits_of_one_process_that_adds_all_samples)
{
    const cz_gradients sum = CZ_GRADIENTS_SUM;
    run_everywhere(
        (trial){.sizes = small, .rule = cz_rule_sgd(), .hypers = rates, .gradients = sum});
    run_on(2, (trial){.sizes = large, .rule = cz_rule_adamw(), .gradients = sum});
    run_everywhere((trial){.sizes = small,
                           .rule = cz_rule_adamw(),
                           .gradients = sum,
                           .partition = CZ_PARTITION_GREEDY});
    run_everywhere(
        (trial){.sizes = small, .rule = cz_rule_adamw(), .gradients = sum, .max_norm = 0.5});
    run_everywhere((trial){.sizes = small, .rule = cz_test_probe_rule(), .gradients = sum});
}

TEST(where_numbers_are_rounded_it_is_the_mean_over_all_samples_to_rounding)
{
    static const int uneven[][MOST] = {
        {13, 3}, {1, 0, 15}, {7, 5, 3, 1, 0}, {0, 0, 1, 13, 1, 1, 0}};
    trial t = {.sizes = small, .rule = cz_rule_sgd(), .hypers = rates, .rough = true};
    for (size_t w = 0; w < sizeof uneven / sizeof *uneven; w++)
        for (int sum = 0; sum < 2; sum++) {
            t.dealt = uneven[w];
            t.gradients = sum ? CZ_GRADIENTS_SUM : CZ_GRADIENTS_LOCAL;
            assert_ranks_ok(worlds[w + 1], each_rank, &t);
        }
}

/* ---- what is left alone ---- */

static cz_status expect_start(const trial *t, const subject *s)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < t->sizes[p]; i++)
            if (cz_test_load(s->memory.values[p], CZ_F32, i) != (double)i / 64)
                return cz_fail(CZ_ERR_STATE, "element %d of p%d was changed", (int)i, p);
    return CZ_OK;
}

static cz_status try_weights(const trial *t, subject *s, cz_group *group)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    cz_step_result result = CZ_STEP_RESULT_INIT;
    fill(t, s, 0, 0, 1, 1);
    if (size > 1) {
        if (rank == size - 1)
            CZ_TRY(cz_zero_set_weight(s->zero, 3));
        CZ_TRY(expect(cz_zero_step(s->zero, NULL, &result), CZ_ERR_MISMATCH, "the mean is with"));
    }
    CZ_TRY(cz_zero_set_weight(s->zero, 1.7e308));
    if (size > 1)
        CZ_TRY(expect(cz_zero_step(s->zero, NULL, &result), CZ_ERR_ARGUMENT,
                      "the weights of all ranks sum up to inf; see cz_zero_set_weight()"));
    CZ_TRY(expect(cz_zero_set_weight(s->zero, -1), CZ_ERR_ARGUMENT, "weight is -1"));
    CZ_TRY(expect(cz_zero_set_weight(s->zero, NAN), CZ_ERR_ARGUMENT, "weight is nan"));
    CZ_TRY(cz_zero_set_weight(s->zero, 0));
    CZ_TRY(cz_zero_step(s->zero, NULL, &result));
    if (!result.skipped)
        return cz_fail(CZ_ERR_STATE, "a step without samples was not skipped");
    CZ_TRY(expect_start(t, s));
    CZ_TRY(cz_zero_set_weight(s->zero, 7)); /* equal ones change no bit */
    CZ_TRY(cz_zero_step(s->zero, NULL, &result));
    return result.skipped ? cz_fail(CZ_ERR_STATE, "skipped") : CZ_OK;
}

static cz_status errors_of_weights(cz_group *group, void *arg)
{
    const trial *t = arg;
    subject s;
    cz_status status = create(&s, t, group);
    THEN(try_weights(t, &s, group));
    clear(&s);
    return status;
}

TEST(without_samples_nothing_changes_and_mistakes_are_seen_by_all)
{
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        assert_ranks_ok(worlds[w], errors_of_weights,
                        &(trial){.sizes = small, .rule = cz_rule_sgd(), .hypers = rates});
}

static cz_status refusals(cz_group *group, void *arg)
{
    const cz_test_training training = {.param_count = PARAMS, .sizes = small, .dtype = CZ_F32};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_parts_options twelve = CZ_PARTS_OPTIONS_INIT;
    cz_test_memory memory;
    cz_ddp *ddp = NULL;
    cz_zero *zero = NULL;
    cz_parts *parts = NULL;
    twelve.count = 12;
    cz_status status = cz_test_memory_create(&memory, &training);
    THEN(cz_ddp_create(&ddp, group, memory.model, NULL));
    options.ddp = ddp;
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_sgd(), rates, &options));
    THEN(expect(cz_zero_set_weight(zero, 1), CZ_ERR_UNSUPPORTED, "see cz_ddp_set_weight()"));
    cz_zero_destroy(&zero);
    options.gradients = CZ_GRADIENTS_SUM;
    THEN(expect(cz_zero_create(&zero, group, memory.model, cz_rule_sgd(), rates, &options),
                CZ_ERR_ARGUMENT, "option gradients is sum"));
    cz_ddp_destroy(&ddp);
    options.ddp = NULL;
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_sgd(), rates, &options));
    THEN(expect(cz_zero_set_weight(zero, 1), CZ_ERR_UNSUPPORTED, "option gradients is sum"));
    cz_zero_destroy(&zero);
    THEN(cz_parts_create(&parts, group, memory.model, &twelve));
    options.parts = parts;
    THEN(expect(cz_zero_create(&zero, group, memory.model, cz_rule_sgd(), rates, &options),
                CZ_ERR_ARGUMENT, "of parts it is the mean"));
    options.gradients = CZ_GRADIENTS_LOCAL;
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_sgd(), rates, &options));
    THEN(expect(cz_zero_set_weight(zero, 1), CZ_ERR_UNSUPPORTED, "see cz_parts_set_weights()"));
    cz_zero_destroy(&zero);
    cz_parts_destroy(&parts);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(who_else_makes_the_mean_has_the_weights)
{
    assert_ranks_ok(2, refusals, NULL);
}
