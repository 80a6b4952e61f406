/* SPDX-License-Identifier: MIT */
/* frozen, unused and tied parameters. */
#include "support/spans.h"
#include "zero/cases.h"
#include "tensor/model.h"

/* In every mode on this many ranks, and in stages from there to others. */
static void check(cz_test_training training, int world,
                  cz_status (*inspect)(const cz_test_subject *subject, cz_group *group))
{
    const stage list[] = {{world, training.steps, (cz_partition)(world % 2), 0, 0, 0},
                          {2, 2, (cz_partition)(world / 2 % 2), 0, 0, 0},
                          {LARGEST_WORLD + 1 - world, 1, CZ_PARTITION_GREEDY, 0, 0, 0}};
    check_all(training, world, inspect);
    training.dtype = CZ_F64;
    check_stages(NULL, &training, list, 3, NULL);
}

/* ---- frozen ones break no table ---- */

static cz_status freeze_every_third(const cz_test_subject *subject, int step)
{
    for (int64_t p = 0; step < 0 && p < 9; p += 3)
        CZ_TRY(cz_model_set_requires_grad(subject->model, p, false));
    return CZ_OK;
}

static cz_status freeze_all_but_one(const cz_test_subject *subject, int step)
{
    for (int64_t p = 0; step < 0 && p < 9; p++)
        CZ_TRY(cz_model_set_requires_grad(subject->model, p, p == 4));
    return CZ_OK;
}

/* State for trainable parameters only: in bytes, and when asked for. */
static cz_status has_state_where_trained(const cz_test_subject *subject, cz_group *group)
{
    const cz_shard_map *map = cz_test_shard_map(subject->zero);
    int64_t elements = 0;
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(map, cz_group_rank(group), &iterator);
    while (cz_span_next(&iterator, &span)) {
        const void *data = NULL;
        int64_t count;
        const bool trained = cz__model_requires_grad(subject->model, span.param);
        CZ_TRY(cz_optim_state(cz_zero_local_optim(subject->zero), span.param, "exp_avg", span.begin,
                              &data, &count));
        if (trained != (data != NULL))
            return cz_fail(CZ_ERR_STATE, "state of parameter %d", (int)span.param);
        elements += trained ? span.end - span.begin : 0;
    }
    CZ_TRY(cz_zero_get_info(subject->zero, &info));
    if ((int64_t)info.state_bytes != 8 * elements)
        return cz_fail(CZ_ERR_STATE, "%d bytes for %d elements", (int)info.state_bytes,
                       (int)elements);
    return CZ_OK;
}

TEST(frozen_parameters_break_no_table)
{
    static const int64_t sizes[][9] = {{10, 20, 30, 40, 50, 60, 70, 80, 90},
                                       {0, 1, 100, 17, 3, 0, 64, 16, 1}};
    for (int world = 1; world <= LARGEST_WORLD; world++)
        for (int k = 0; k < 4; k++)
            check((cz_test_training){.param_count = 9,
                                     .sizes = sizes[k % 2],
                                     .rule = cz_rule_adam(),
                                     .steps = 5,
                                     .edit = k / 2 ? freeze_all_but_one : freeze_every_third},
                  world, has_state_where_trained);
}

/* ---- unused on all ranks: not decayed, not moved; used on one: others count as zeros ---- */

static bool marked(int rank, int step, int64_t param)
{
    if (param != 1 || step < 2)
        return true;
    return step == 5 && rank == 1;
}

TEST(parameters_unused_on_all_ranks_do_not_move)
{
    static const int64_t sizes[] = {40, 33};
    cz_test_training training = {
        .param_count = 2,
        .sizes = sizes,
        .dtype = CZ_F32,
        .rule = cz_rule_sgd(),
        .hypers = CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.1}),
        .has_gradient = marked};
    char why[256];
    for (int world = 1; world <= LARGEST_WORLD; world++)
        for (training.steps = 2; training.steps <= 6; training.steps++) {
            for (int partition = 0; partition < 2; partition++) {
                training.partition = (cz_partition)partition;
                if (cz_test_train(&training, world, NULL, why) != CZ_OK)
                    fail_msg("partition %d, world size %d: %s", partition, world, why);
            }
            const stage list[] = {{world, training.steps, CZ_PARTITION_ELEMENTS, 0, 0, 0},
                                  {LARGEST_WORLD + 1 - world, 5, CZ_PARTITION_GREEDY, 0, 0, 0}};
            check_stages(NULL, &training, list, 2, NULL);
        }
}

/* ---- used twice: who uses a parameter again adds to its gradient; steps take the sum ---- */

static cz_status tied(cz_group *group, cz_test_memory *memory, cz_test_memory *reference,
                      cz_zero **zero, cz_optim **optim)
{
    const int rank = cz_group_rank(group), world = cz_group_size(group);
    CZ_TRY(cz_zero_create(zero, group, memory->model, cz_rule_adam(), NULL, NULL));
    CZ_TRY(cz_optim_create(optim, reference->model, cz_rule_adam(), NULL, NULL));
    for (int step = 0; step < 4; step++) {
        for (int use = 0; use < 2; use++)
            for (int64_t i = 0; i < 40; i++) {
                float *sum = (float *)memory->grads[0] + i,
                      *mean = (float *)reference->grads[0] + i;
                double all = 0;
                for (int r = 0; r < world; r++)
                    all += (use + 1) * cz_test_gradient(r, step, i);
                *sum = (use ? *sum : 0) + (float)((use + 1) * cz_test_gradient(rank, step, i));
                *mean = (use ? *mean : 0) + (float)all;
            }
        for (int64_t i = 0; i < 40; i++)
            ((float *)reference->grads[0])[i] /= (float)world;
        CZ_TRY(cz_zero_step(*zero, NULL, NULL));
        CZ_TRY(cz_optim_step(*optim, NULL, NULL));
    }
    return memcmp(memory->values[0], reference->values[0], 40 * sizeof(float)) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "parameters differ");
}

static cz_status tied_body(cz_group *group, void *context)
{
    const cz_test_training one = {.param_count = 1, .sizes = (int64_t[]){40}, .dtype = CZ_F32};
    cz_test_memory memory = {0}, reference = {0};
    cz_zero *zero = NULL;
    cz_optim *optim = NULL;
    cz_status status = cz_test_memory_create(&memory, &one);
    THEN(cz_test_memory_create(&reference, &one));
    THEN(expect(
        cz_model_add(memory.model, "p0", memory.values[0], memory.grads[0], CZ_F32, 1, one.sizes),
        CZ_ERR_ARGUMENT, "\"p0\" is taken")); /* under one name it is in the model once */
    THEN(tied(group, &memory, &reference, &zero, &optim));
    cz_zero_destroy(&zero);
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
    cz_test_memory_destroy(&reference);
    return status;
}

TEST(a_parameter_used_twice_in_a_pass_gets_the_sum)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, tied_body, NULL);
}

/* ---- 90 % frozen; one is unfrozen at step 5: zero moments from there, no other state lost ---- */

static cz_status edit_J8(const cz_test_subject *subject, int step)
{
    for (int64_t p = 1; step < 0 && p < 10; p++)
        CZ_TRY(cz_model_set_requires_grad(subject->model, p, false));
    return step == 5 ? cz_model_set_requires_grad(subject->model, 4, true) : CZ_OK;
}

TEST(frozen_parameters_have_no_state_until_unfrozen)
{
    static const int64_t sizes[] = {90, 90, 90, 90, 90, 90, 90, 90, 90, 90};
    cz_test_training training = {
        .param_count = 10, .sizes = sizes, .rule = cz_rule_adam(), .edit = edit_J8};
    for (int world = 1; world <= LARGEST_WORLD; world++)
        for (training.steps = 4; training.steps <= 10; training.steps += 3)
            check(training, world, has_state_where_trained);
}
