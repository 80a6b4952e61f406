/* SPDX-License-Identifier: MIT */
/* R1, two models and two optimizers in one process; P3, ends in every order. */
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 4, ROUNDS = 5 };
static const int64_t sizes[2][PARAMS] = {{33, 7, 0, 100}, {5, 64, 1, 18}};

static cz_test_training layout(int which)
{
    return (cz_test_training){.param_count = PARAMS, .sizes = sizes[which], .dtype = CZ_F32};
}

static void set_gradients(const cz_test_memory *memory, int which, int t, double first, double step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[which][p]; i++)
            cz_test_store(memory->grads[p], CZ_F32, i,
                          (first + step) * (t + 1 + which) * (double)(i % 7 + 1) / 64);
}

/* D and G; the first pass has gradients of D only, the second of both, and D's are thrown away. */
static cz_status gan(cz_group *group, cz_test_memory *memory, cz_zero **zero)
{
    const int rank = cz_group_rank(group), ranks = cz_group_size(group);
    const double mean = (ranks + 1) / 2.0;
    for (int k = 0; k < 2; k++) {
        const cz_test_training training = layout(k);
        CZ_TRY(cz_test_memory_create(&memory[k], &training));
        CZ_TRY(cz_zero_create(&zero[k], group, memory[k].model, cz_rule_adam(), NULL, NULL));
    }
    for (int t = 0; t < ROUNDS; t++) {
        set_gradients(&memory[0], 0, t, rank + 1, 0);
        CZ_TRY(cz_zero_step(zero[0], NULL, NULL));
        set_gradients(&memory[0], 0, t, rank + 1, 100); /* on the way to G's */
        set_gradients(&memory[1], 1, t, rank + 1, 0);
        CZ_TRY(cz_zero_zero_grad(zero[0], false));
        CZ_TRY(cz_zero_step(zero[1], NULL, NULL));
    }
    for (int k = 0; k < 2; k++) {
        const cz_test_training training = layout(k);
        cz_test_memory reference;
        cz_optim *optim;
        CZ_TRY(cz_test_memory_create(&reference, &training));
        CZ_TRY(cz_optim_create(&optim, reference.model, cz_rule_adam(), NULL, NULL));
        for (int t = 0; t < ROUNDS; t++) {
            set_gradients(&reference, k, t, mean, 0);
            CZ_TRY(cz_optim_step(optim, NULL, NULL));
        }
        cz_status status = CZ_OK;
        for (int p = 0; p < PARAMS; p++)
            if (memcmp(reference.values[p], memory[k].values[p],
                       (size_t)sizes[k][p] * sizeof(float)) != 0)
                status = cz_fail(CZ_ERR_STATE, "parameter %d of model %d differs", p, k);
        cz_optim_destroy(&optim);
        cz_test_memory_destroy(&reference);
        CZ_TRY(status);
    }
    return CZ_OK;
}

static cz_status gan_body(cz_group *group, void *context)
{
    cz_test_memory memory[2] = {0};
    cz_zero *zero[2] = {NULL, NULL};
    const cz_status status = gan(group, memory, zero);
    for (int k = 0; k < 2; k++) {
        cz_zero_destroy(&zero[k]);
        cz_test_memory_destroy(&memory[k]);
    }
    return status;
}

TEST(two_models_with_an_optimizer_each)
{
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, gan_body, NULL);
}

/* Made and destroyed again and again; with a reduction in flight; twice; before and after the
 * model. */
static cz_status ends(cz_group *world, void *context)
{
    static float buffer[4][1000];
    const cz_test_training training = layout(0);
    for (int n = 0; n < 50; n++) {
        cz_test_memory memory;
        cz_zero *zero;
        cz_group *group;
        cz_work *work;
        CZ_TRY(cz_group_split(world, 0, 0, &group));
        CZ_TRY(cz_test_memory_create(&memory, &training));
        CZ_TRY(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, NULL));
        set_gradients(&memory, 0, n, 1, 0);
        CZ_TRY(cz_zero_step(zero, NULL, NULL));
        if (n % 2)
            cz_model_destroy(&memory.model);
        CZ_TRY(cz_all_reduce(group, buffer[cz_group_rank(world)], 1000, CZ_F32, CZ_SUM,
                             CZ_START("in flight", &work)));
        cz_zero_destroy(&zero);
        cz_zero_destroy(&zero);
        if (n % 3)
            cz_work_destroy(&work);
        cz_group_destroy(&group);
        cz_group_destroy(&group);
        cz_work_destroy(&work);
        cz_test_memory_destroy(&memory);
    }
    return CZ_OK;
}

/* What is made on each other, in one of the orders; also in the middle of a pass. */
static cz_status ends_on_each_other(cz_group *world, void *context)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const cz_test_training training = layout(0);
    cz_status status = CZ_OK;
    for (int n = 0; n < 24 && status == CZ_OK; n++) {
        cz_test_memory memory;
        cz_parts *parts = NULL;
        cz_ddp *ddp = NULL;
        cz_zero *zero = NULL;
        cz_optim *optim = NULL;
        cz_in_backward *in_backward = NULL;
        cz_parts_options cut = CZ_PARTS_OPTIONS_INIT;
        cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
        cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
        const bool sharded = n < 12, begun = n % 12 >= 6;
        CZ_TRY(cz_test_memory_create(&memory, &training));
        set_gradients(&memory, 0, n, 1, 0);
        cut.count = cz_group_size(world);
        if (sharded)
            THEN(cz_parts_create(&parts, world, memory.model, &cut));
        buckets.parts = parts;
        THEN(cz_ddp_create(&ddp, world, memory.model, &buckets));
        options.ddp = ddp;
        if (sharded) {
            THEN(cz_zero_create(&zero, world, memory.model, cz_rule_adam(), NULL, &options));
        } else {
            THEN(cz_optim_create(&optim, memory.model, cz_rule_adam(), NULL, NULL));
            THEN(cz_in_backward_create(&in_backward, &optim, 1, NULL));
            THEN(cz_ddp_step_in_backward(ddp, in_backward));
        }
        if (begun) {
            THEN(cz_ddp_begin(ddp, true));
            THEN(cz_ddp_mark_ready(ddp, 0));
        }
        for (int k = 0; k < 3; k++) {
            const int which = orders[n % 6][k];
            if (which == 0)
                cz_ddp_destroy(&ddp);
            if (which == 0 && zero) { /* it is there, and has no passes any more */
                cz_zero_info info = CZ_ZERO_INFO_INIT;
                THEN(cz_zero_get_info(zero, &info));
                if (status == CZ_OK && cz_zero_step(zero, NULL, NULL) == CZ_OK)
                    status = cz_fail(CZ_ERR_INTERNAL, "a step without a pass");
                if (status == CZ_OK &&
                    cz_zero_set_overlap(zero, CZ_OVERLAP_INTERLEAVED, NULL) != CZ_ERR_STATE)
                    status = cz_fail(CZ_ERR_INTERNAL, "steps in passes that there are none of");
            }
            if (which == 1)
                cz_zero_destroy(&zero);
            if (which == 1)
                cz_in_backward_destroy(&in_backward);
            if (which == 1 && !sharded && ddp && !begun &&
                cz_ddp_begin(ddp, true) == CZ_OK) /* with what is gone */
                status = cz_fail(CZ_ERR_INTERNAL, "a pass with optimizers that were destroyed");
            if (which == 2)
                cz_parts_destroy(&parts);
            if (which == 2)
                cz_optim_destroy(&optim);
        }
        cz_test_memory_destroy(&memory);
        THEN(cz_barrier(world, NULL));
    }
    return status;
}

TEST(objects_that_are_made_on_each_other_end_in_every_order)
{
    const size_t before = cz_memory_bytes(CZ_MEMORY_GENERAL);
    for (int world = 1; world <= 3; world += 2)
        assert_ranks_ok(world, ends_on_each_other, NULL);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_GENERAL), before);
}

TEST(objects_end_in_every_order)
{
    assert_int_equal(cz_test_allocations_held(), 0);
    for (int world = 1; world <= 4; world++)
        assert_ranks_ok(world, ends, NULL);
    assert_int_equal(cz_test_allocations_held(), 0);
}
