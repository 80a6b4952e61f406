/* SPDX-License-Identifier: MIT */
/* What docs/rules.md shows: the mean of a schedule-free rule on every rank, and the training that
 * goes on as if nobody had looked. */
#include "support/cz_test.h"
#include "support/training.h"

#include <string.h>

#include "evaluate.c"

enum { PARAMS = 4, ELEMENTS = 35 + 300 + 1, STEPS = 6, LOOK_AT = 3 };
static const int64_t sizes[PARAMS] = {35, 0, 300, 1};

typedef struct run {
    cz_partition partition;
    bool looks;
    float average[ELEMENTS], trained[ELEMENTS]; /* of one rank; compared with on others */
} run;

/* The same on every rank, so that the mean is the same for any number of them. */
static void make_gradients(const cz_test_memory *memory, int step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(memory->grads[p], CZ_F32, i, cz_test_gradient(p, step, i) - 0.125);
}

/* All values into `list`, or compared with it. */
static cz_status compare(const cz_group *group, const cz_test_memory *memory, float *list,
                         const char *what)
{
    for (int p = 0; p < PARAMS; list += sizes[p++]) {
        const size_t bytes = (size_t)sizes[p] * sizeof *list;
        if (sizes[p] == 0)
            continue;
        if (cz_group_size(group) == 1)
            memcpy(list, memory->values[p], bytes);
        else if (memcmp(list, memory->values[p], bytes) != 0)
            return cz_fail(CZ_ERR_STATE, "%s of parameter %d: other bits", what, p);
    }
    return CZ_OK;
}

typedef struct view {
    const cz_group *group;
    const cz_test_memory *memory;
    run *r;
} view;

static cz_status look(void *context)
{
    const view *v = context;
    return compare(v->group, v->memory, v->r->average, "the average");
}

static cz_status train(cz_group *group, void *context)
{
    run *r = context;
    const cz_test_training about = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_test_memory memory;
    cz_zero *zero = NULL;
    cz_status status = cz_test_memory_create(&memory, &about);
    options.partition = r->partition;
    if (!status)
        status = cz_zero_create(&zero, group, memory.model, cz_rule_schedule_free_adamw(),
                                CZ_HYPERS({"lr", 0.05}, {"warmup_steps", 2}), &options);
    for (int step = 0; !status && step < STEPS; step++) {
        make_gradients(&memory, step);
        status = cz_zero_step(zero, NULL, NULL);
        if (!status && r->looks && step == LOOK_AT)
            status = evaluate(zero, look, &(view){group, &memory, r});
    }
    if (!status)
        status = compare(group, &memory, r->trained, "the value");
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(the_average_on_every_rank_and_a_training_that_goes_on)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    static run r, unseen;
    char why[256];
    r.looks = true;
    for (int partition = 0; partition < 2; partition++)
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
            r.partition = (cz_partition)partition;
            if (cz_test_run_ranks(worlds[w], train, &r, why) != CZ_OK)
                fail_msg("partition %d, world size %d: %s", partition, worlds[w], why);
        }
    assert_ok(cz_test_run_ranks(1, train, &unseen, why));
    assert_memory_equal(unseen.trained, r.trained, sizeof r.trained);
    assert_memory_not_equal(r.average, r.trained, sizeof r.trained);
}

/* Steps of plain SGD with a constant rate: x is the mean of all z. */
TEST(what_the_average_is)
{
    float y = 1, g;
    double z = 1, mean = 0;
    cz_model *model;
    cz_group *group;
    cz_zero *zero;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "y", &y, &g, CZ_F32, 1, (int64_t[]){1}));
    assert_ok(cz_zero_create(&zero, group, model, cz_rule_schedule_free_sgd(),
                             CZ_HYPERS({"lr", 0.25}), NULL));
    for (int step = 1; step <= 8; step++) {
        g = y;
        z -= 0.25 * (double)g;
        mean += (z - mean) / step;
        assert_ok(cz_zero_step(zero, NULL, NULL));
        const float trained = y;
        assert_ok(cz_zero_evaluate(zero, true));
        assert_true(y > mean - 1e-5 && y < mean + 1e-5);
        assert_ok(cz_zero_evaluate(zero, false));
        assert_true(y == trained);
    }
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    cz_group_destroy(&group);
}
