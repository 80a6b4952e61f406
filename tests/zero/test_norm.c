/* SPDX-License-Identifier: MIT */
/* Norm, clipping and skipping: the numbers and bits of one unsharded process, decisions of all
 * ranks. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 6, STEPS = 6 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 16};

typedef struct trial {
    cz_dtype dtype;
    cz_partition partition;
    cz_gradients gradients;
    double max_norm;
    /* -1: none; else the parameter and element that rank `odd` sets to `value` at step 3 */
    int param, element, odd;
    double value;
} trial;

typedef struct subject {
    cz_test_memory memory;
    cz_optim *optim;
    cz_zero *zero;
} subject;

static void clear(subject *s)
{
    cz_optim_destroy(&s->optim);
    cz_zero_destroy(&s->zero);
    cz_test_memory_destroy(&s->memory);
}

/* The last parameter is frozen, the third one has no gradient in odd steps. */
static cz_status set_gradients(subject *s, const trial *t, double factor, int step)
{
    CZ_TRY(cz_model_set_gradient(s->memory.model, 2, step % 2 ? NULL : s->memory.grads[2]));
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(s->memory.grads[p], t->dtype, i,
                          factor * (step + 1) * (double)(i % 7 - 3) / 64);
    return CZ_OK;
}

static double closed_form(int ranks, int step)
{
    double sum = 0;
    for (int p = 0; p < PARAMS - 1; p++)
        for (int64_t i = 0; i < sizes[p] && !(p == 2 && step % 2); i++)
            sum += pow((ranks + 1) / 2.0 * (step + 1) * (double)(i % 7 - 3) / 64, 2);
    return sqrt(sum);
}

static cz_status create(subject *s, const trial *t, cz_group *group)
{
    const cz_test_training training = {.param_count = PARAMS, .sizes = sizes, .dtype = t->dtype};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = t->partition;
    options.gradients = t->gradients;
    CZ_TRY(cz_test_memory_create(&s->memory, &training));
    CZ_TRY(cz_model_set_requires_grad(s->memory.model, PARAMS - 1, false));
    if (!group)
        return cz_optim_create(&s->optim, s->memory.model, cz_rule_sgd(),
                               CZ_HYPERS({"lr", 0.25}, {"momentum", 0.5}), NULL);
    return cz_zero_create(&s->zero, group, s->memory.model, cz_rule_sgd(),
                          CZ_HYPERS({"lr", 0.25}, {"momentum", 0.5}), &options);
}

static cz_status compare(const subject *s, const subject *reference, cz_dtype dtype, int step)
{
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(s->memory.values[p], reference->memory.values[p],
                   (size_t)sizes[p] * cz_dtype_size(dtype)) != 0)
            return cz_fail(CZ_ERR_STATE, "parameter %d differs after step %d", p, step);
    return CZ_OK;
}

static cz_status train(subject *s, subject *reference, const trial *t, cz_group *group)
{
    const int ranks = cz_group_size(group), rank = cz_group_rank(group);
    const double mean = (ranks + 1) / 2.0;
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    options.max_norm = t->max_norm;
    options.skip_nonfinite = t->param >= 0;
    options.norm = 1;
    CZ_TRY(create(s, t, group));
    CZ_TRY(create(reference, t, NULL));
    for (int step = 0; step < STEPS; step++) {
        cz_step_result result = CZ_STEP_RESULT_INIT, wanted = CZ_STEP_RESULT_INIT;
        const bool bad = t->param >= 0 && step == 3;
        CZ_TRY(set_gradients(s, t, t->gradients == CZ_GRADIENTS_LOCAL ? rank + 1 : mean, step));
        CZ_TRY(set_gradients(reference, t, mean, step));
        if (bad && rank == t->odd % ranks)
            cz_test_store(s->memory.grads[t->param], t->dtype, t->element, t->value);
        if (bad)
            cz_test_store(reference->memory.grads[t->param], t->dtype, t->element, t->value);
        CZ_TRY(cz_zero_step(s->zero, &options, &result));
        CZ_TRY(cz_optim_step(reference->optim, &options, &wanted));
        const double norm = closed_form(ranks, step);
        if (result.skipped != bad || wanted.skipped != bad)
            return cz_fail(CZ_ERR_STATE, "step %d: skipped is %d", step, (int)result.skipped);
        if (!bad && (result.norm != wanted.norm || fabs(result.norm - norm) > 1e-12 * norm))
            return cz_fail(CZ_ERR_STATE, "step %d: norm %.17g, %.17g, wanted %.17g", step,
                           result.norm, wanted.norm, norm);
        CZ_TRY(compare(s, reference, t->dtype, step));
    }
    CZ_TRY(cz_zero_get_info(s->zero, &info));
    if (info.skip_count != (t->param >= 0))
        return cz_fail(CZ_ERR_STATE, "%d skips", (int)info.skip_count);
    return CZ_OK;
}

static cz_status body(cz_group *group, void *context)
{
    subject s = {0}, reference = {0};
    const cz_status status = train(&s, &reference, context, group);
    clear(&s);
    clear(&reference);
    return status;
}

static void run(trial t)
{
    static const int worlds[] = {1, 2, 3, 4, 5, 7};
    char why[256];
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        if (cz_test_run_ranks(worlds[w], body, &t, why) != CZ_OK)
            fail_msg("world size %d, partition %d, max_norm %g: %s", worlds[w], (int)t.partition,
                     t.max_norm, why);
}

TEST(the_norm_is_of_the_whole_mean_gradient)
{
    static const double limits[] = {0, 1e-3, 0.5, 1, 1e6};
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++)
        for (int partition = 0; partition < 2; partition++) {
            run((trial){CZ_F32, (cz_partition)partition, CZ_GRADIENTS_LOCAL, limits[k], -1, 0, 0,
                        0});
            run((trial){CZ_F64, (cz_partition)partition, CZ_GRADIENTS_REDUCED, limits[k], -1, 0, 0,
                        0});
        }
}

TEST(a_step_with_nan_is_skipped_on_all_ranks_and_counted)
{
    run((trial){CZ_F32, CZ_PARTITION_ELEMENTS, CZ_GRADIENTS_LOCAL, 0, 3, 77, 1, NAN});
    run((trial){CZ_F64, CZ_PARTITION_GREEDY, CZ_GRADIENTS_LOCAL, 1, 0, 0, 1, NAN});
}

TEST(infinity_in_one_shard_skips_the_step_on_all_ranks)
{
    for (int element = 0; element < 131; element += 26)
        run((trial){CZ_F32, CZ_PARTITION_ELEMENTS, CZ_GRADIENTS_LOCAL, 1, 3, element, 2,
                    -INFINITY});
    run((trial){CZ_F32, CZ_PARTITION_GREEDY, CZ_GRADIENTS_LOCAL, 0, 4, 6, 0, INFINITY});
}

/* Ranks that ask for different things; nonsense. */
static cz_status differ(subject *s, cz_group *group)
{
    const trial t = {CZ_F32, CZ_PARTITION_ELEMENTS, CZ_GRADIENTS_LOCAL, 0, -1, 0, 0, 0};
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    CZ_TRY(create(s, &t, group));
    options.max_norm = cz_group_rank(group) == 1 ? 2 : 1;
    cz_status status = cz_zero_step(s->zero, &options, NULL);
    if (status != CZ_ERR_MISMATCH ||
        !strstr(cz_last_error(), "max_norm of the step is 2 on rank 1"))
        return cz_fail(CZ_ERR_STATE, "got %s '%s'", cz_status_name(status), cz_last_error());
    options.max_norm = cz_group_rank(group) == 1 ? NAN : 1;
    status = cz_zero_step(s->zero, &options, NULL);
    if (status != CZ_ERR_ARGUMENT || !strstr(cz_last_error(), "max_norm is nan"))
        return cz_fail(CZ_ERR_STATE, "got %s '%s'", cz_status_name(status), cz_last_error());
    options.max_norm = 1;
    return cz_zero_step(s->zero, &options, NULL);
}

RANK_BODY(differ, subject, clear, group)

TEST(ranks_differ)
{
    assert_ranks_ok(3, differ_body, NULL);
}
