/* SPDX-License-Identifier: MIT */
/* Missing gradients, frozen parameters, hyper-parameters that change: what ranks may differ in,
 * what they may not, and what a step then leaves alone. */
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"
#include "support/spans.h"
#include "zero/zero.h"
#include "shard/shard.h"

static const int worlds[] = {1, 2, 3, 5, 7};
static const int64_t sizes[] = {40, 0, 1, 100, 3, 250};
enum { PARAMS = sizeof sizes / sizeof *sizes };

static void check_everywhere(cz_test_training training)
{
    training.param_count = PARAMS;
    training.sizes = sizes;
    training.dtype = CZ_F32;
    training.rule = cz_rule_adamw();
    for (int mode = 0; mode < 6; mode++)
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
            char why[256];
            training.partition = (cz_partition)(mode % 3);
            int owners[PARAMS];
            for (int p = 0; p < PARAMS; p++)
                owners[p] = p * 7 % worlds[w];
            training.owners = mode % 3 == CZ_PARTITION_GIVEN ? owners : NULL;
            training.flat = mode / 3;
            if (cz_test_train(&training, worlds[w], NULL, why) != CZ_OK)
                fail_msg("partition %d, world size %d: %s", mode % 3, worlds[w], why);
        }
}

/* Any pattern: also parameters that nobody has in some step, and ranks that have none. */
static bool scattered(int rank, int step, int64_t param)
{
    return (rank * 5 + step * 3 + param * 7) % 4 > 1;
}

TEST(gradients_missing_per_rank_and_step)
{
    check_everywhere((cz_test_training){.steps = 9, .has_gradient = scattered});
}

static bool never_on_rank_1(int rank, int step, int64_t param)
{
    return rank != 1;
}

TEST(a_rank_without_any)
{
    check_everywhere((cz_test_training){.steps = 3, .has_gradient = never_on_rank_1});
}

static bool same_everywhere(int rank, int step, int64_t param)
{
    return (step + param) % 3 != 0;
}

TEST(already_reduced_ones_missing)
{
    check_everywhere((cz_test_training){
        .steps = 5, .has_gradient = same_everywhere, .gradients = CZ_GRADIENTS_REDUCED});
}

static cz_status thaw_and_freeze(const cz_test_subject *subject, int step)
{
    for (int64_t p = 0; p < PARAMS; p++)
        CZ_TRY(cz_model_set_requires_grad(subject->model, p, (step + 1 + p) % 4 > 1));
    return CZ_OK;
}

TEST(freezing_between_steps)
{
    check_everywhere((cz_test_training){.steps = 9, .edit = thaw_and_freeze});
    check_everywhere(
        (cz_test_training){.steps = 9, .edit = thaw_and_freeze, .has_gradient = scattered});
    check_everywhere(
        (cz_test_training){.steps = 9, .edit = thaw_and_freeze, .gradients = CZ_GRADIENTS_REDUCED});
}

/* ---- bodies on a small model; `why` is what went wrong on this rank ---- */

typedef struct rank_trial {
    cz_test_memory memory;
    cz_zero *zero;
} rank_trial;

static cz_status trial_create(rank_trial *trial, cz_group *group, cz_partition partition,
                              cz_gradients gradients)
{
    const cz_test_training small = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = partition;
    options.gradients = gradients;
    CZ_TRY(cz_test_memory_create(&trial->memory, &small));
    return cz_zero_create(&trial->zero, group, trial->memory.model, cz_rule_adam(), NULL, &options);
}

static void trial_destroy(rank_trial *trial)
{
    cz_zero_destroy(&trial->zero);
    cz_test_memory_destroy(&trial->memory);
}

static cz_status values_are_as_made(const rank_trial *trial)
{
    for (int64_t p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            if (cz_test_load(trial->memory.values[p], CZ_F32, i) != (double)i / 64)
                return cz_fail(CZ_ERR_STATE, "parameter %d was changed", (int)p);
    return CZ_OK;
}

/* A parameter that is cut, reduced, and present on one owner only: an error on all, then all is
 * well. */
static cz_status torn(rank_trial *trial, cz_group *group)
{
    const int rank = cz_group_rank(group);
    CZ_TRY(trial_create(trial, group, CZ_PARTITION_ELEMENTS, CZ_GRADIENTS_REDUCED));
    if (rank == 1)
        CZ_TRY(cz_model_set_gradient(trial->memory.model, 5, NULL));
    CZ_TRY(expect(cz_zero_step(trial->zero, NULL, NULL), CZ_ERR_STATE, "parameter 5 'p5'"));
    CZ_TRY(values_are_as_made(trial));
    CZ_TRY(cz_model_set_gradient(trial->memory.model, 5, trial->memory.grads[5]));
    return cz_zero_step(trial->zero, NULL, NULL);
}

RANK_BODY(torn, rank_trial, trial_destroy, group)

TEST(reduced_on_some_owners_only)
{
    assert_ranks_ok(2, torn_body, NULL);
    assert_ranks_ok(3, torn_body, NULL);
}

/* With whole parameters only the owner's gradient counts, wherever others have one. */
static cz_status owners_only(rank_trial *trial, cz_group *group)
{
    const int rank = cz_group_rank(group);
    CZ_TRY(trial_create(trial, group, CZ_PARTITION_GREEDY, CZ_GRADIENTS_REDUCED));
    for (int64_t p = 0; p < PARAMS; p++) {
        const bool own = cz__shard_map_home(cz_test_shard_map(trial->zero), p) == rank;
        const bool present = p == 5 ? !own : own; /* 5: on all but the owner */
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(trial->memory.grads[p], CZ_F32, i, 1);
        CZ_TRY(
            cz_model_set_gradient(trial->memory.model, p, present ? trial->memory.grads[p] : NULL));
    }
    CZ_TRY(cz_zero_step(trial->zero, NULL, NULL));
    for (int64_t p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            if ((cz_test_load(trial->memory.values[p], CZ_F32, i) == (double)i / 64) != (p == 5))
                return cz_fail(CZ_ERR_STATE, "parameter %d is wrong", (int)p);
    return CZ_OK;
}

RANK_BODY(owners_only, rank_trial, trial_destroy, group)

TEST(reduced_on_owners_only)
{
    assert_ranks_ok(2, owners_only_body, NULL);
    assert_ranks_ok(5, owners_only_body, NULL);
}

/* ---- differences that are errors ---- */

typedef struct difference {
    int odd_rank; /* the one that differs */
    const char *hyper;
    double value;
    int64_t param; /* to freeze, -1: none */
    const char *sentence;
} difference;

static cz_status differs(rank_trial *trial, cz_group *group, const difference *d)
{
    const bool odd = cz_group_rank(group) == d->odd_rank;
    double kept = 0;
    CZ_TRY(trial_create(trial, group, CZ_PARTITION_ELEMENTS, CZ_GRADIENTS_LOCAL));
    if (d->hyper)
        CZ_TRY(cz_optim_get_hyper(cz_zero_local_optim(trial->zero), 0, d->hyper, &kept));
    if (odd && d->hyper)
        CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(trial->zero), 0, d->hyper, d->value));
    if (odd && d->param >= 0)
        CZ_TRY(cz_model_set_requires_grad(trial->memory.model, d->param, false));
    CZ_TRY(expect(cz_zero_step(trial->zero, NULL, NULL), CZ_ERR_MISMATCH, d->sentence));
    CZ_TRY(values_are_as_made(trial));
    if (odd && d->hyper)
        CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(trial->zero), 0, d->hyper, kept));
    if (odd && d->param >= 0)
        CZ_TRY(cz_model_set_requires_grad(trial->memory.model, d->param, true));
    return cz_zero_step(trial->zero, NULL, NULL);
}

static cz_status difference_body(cz_group *group, void *context)
{
    rank_trial trial = {0};
    const cz_status status = differs(&trial, group, context);
    trial_destroy(&trial);
    return status;
}

TEST(ranks_that_differ_get_an_error)
{
    difference cases[] = {
        {1, "lr", 0.1, -1, "lr of parameter group 0 is 0.1 on rank 1, 0.001 on rank 0"},
        {2, "beta2", 0.5, -1, "beta2 of parameter group 0 is 0.5 on rank 2, 0.999 on rank 0"},
        {0, "lr", 0.1, -1, "lr of parameter group 0 is 0.001 on rank 1, 0.1 on rank 0"},
        {2, NULL, 0, 3, "parameter 3 'p3' is frozen on rank 2, trainable on rank 0"},
        {0, NULL, 0, 0, "parameter 0 'p0' is trainable on rank 1, frozen on rank 0"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        assert_ranks_ok(3, difference_body, &cases[k]);
        assert_ranks_ok(5, difference_body, &cases[k]);
    }
}

/* Ranks differ in a value that was added: in the value, in its name, in having it. */
static cz_status added_differs(rank_trial *trial, cz_group *group, int odd_rank)
{
    const bool odd = cz_group_rank(group) == odd_rank;
    CZ_TRY(trial_create(trial, group, CZ_PARTITION_ELEMENTS, CZ_GRADIENTS_LOCAL));
    cz_optim *optim = cz_zero_local_optim(trial->zero);
    CZ_TRY(expect(cz_optim_step(optim, NULL, NULL), CZ_ERR_STATE, "part of a sharded optimizer"));
    if (odd)
        CZ_TRY(cz_optim_add_hyper(optim, 0, "initial_lr", 1));
    CZ_TRY(expect(cz_zero_step(trial->zero, NULL, NULL), CZ_ERR_MISMATCH,
                  "the number of hyper-parameters of parameter group 0 is"));
    if (!odd)
        CZ_TRY(cz_optim_add_hyper(optim, 0, "max_lr", 1));
    CZ_TRY(expect(
        cz_zero_step(trial->zero, NULL, NULL), CZ_ERR_MISMATCH,
        "an added hyper-parameter of parameter group 0 is 'initial_lr' on rank 2, 'max_lr' "));
    if (odd)
        CZ_TRY(cz_optim_add_hyper(optim, 0, "max_lr", 1));
    else
        CZ_TRY(cz_optim_add_hyper(optim, 0, "initial_lr", 1));
    CZ_TRY(expect(cz_zero_step(trial->zero, NULL, NULL), CZ_ERR_MISMATCH, "'initial_lr'"));
    return values_are_as_made(trial);
}

static cz_status added_body(cz_group *group, void *context)
{
    rank_trial trial = {0};
    const cz_status status = added_differs(&trial, group, *(const int *)context);
    trial_destroy(&trial);
    return status;
}

TEST(added_values_that_differ)
{
    assert_ranks_ok(3, added_body, &(int){2});
}

static cz_status fails(double *loss, void *context)
{
    return cz_fail(CZ_ERR_IO, "no more data");
}

static cz_status says_nothing(double *loss, void *context)
{
    return CZ_ERR_IO;
}

static cz_status closure_fails(rank_trial *trial, cz_group *group, int odd_rank)
{
    const cz_step_options options = {.size = sizeof options, .closure = fails};
    const cz_step_options quiet = {.size = sizeof quiet, .closure = says_nothing};
    const cz_step_options unknown = {.size = 1};
    const bool odd = cz_group_rank(group) == odd_rank;
    char sentence[64];
    CZ_TRY(trial_create(trial, group, CZ_PARTITION_ELEMENTS, CZ_GRADIENTS_LOCAL));
    snprintf(sentence, sizeof sentence, "rank %d: closure: no more data", odd_rank);
    CZ_TRY(expect(cz_zero_step(trial->zero, odd ? &options : NULL, NULL), CZ_ERR_IO, sentence));
    snprintf(sentence, sizeof sentence, "rank %d: closure: CZ_ERR_IO", odd_rank);
    CZ_TRY(expect(cz_zero_step(trial->zero, odd ? &quiet : NULL, NULL), CZ_ERR_IO, sentence));
    CZ_TRY(expect(cz_zero_step(trial->zero, odd ? &unknown : NULL, NULL), CZ_ERR_ARGUMENT, NULL));
    CZ_TRY(values_are_as_made(trial));
    return cz_zero_step(trial->zero, NULL, NULL);
}

static cz_status closure_body(cz_group *group, void *context)
{
    rank_trial trial = {0};
    const cz_status status = closure_fails(&trial, group, *(int *)context);
    trial_destroy(&trial);
    return status;
}

TEST(a_failing_closure_is_everybodys_error)
{
    for (int odd = 0; odd < 3; odd++)
        assert_ranks_ok(3, closure_body, &odd);
}

/* ---- a gradient that only others have is kept where the tensors are ---- */

static _Thread_local int kept, released; /* by this rank */

static cz_status count_allocate(cz_memory_kind kind, size_t bytes, void **out)
{
    kept += kind == CZ_MEMORY_GRADIENT;
    return cz_device_cpu()->allocate(kind, bytes, out);
}

static void count_release(void *memory)
{
    released += memory != NULL;
    cz_device_cpu()->release(memory);
}

static cz_status device_body(cz_group *group, void *context)
{
    const bool odd = cz_group_rank(group) == 1;
    cz_device counting = *cz_device_cpu();
    rank_trial trial = {0};
    counting.allocate = count_allocate;
    counting.release = count_release;
    cz_status status = trial_create(&trial, group, CZ_PARTITION_ELEMENTS, CZ_GRADIENTS_LOCAL);
    for (int64_t p = 0; p < PARAMS && status == CZ_OK && odd; p++)
        status = cz_model_set_gradient(trial.memory.model, p, NULL);
    if (status == CZ_OK) {
        trial.zero->device = &counting;
        status = cz_zero_step(trial.zero, NULL, NULL);
    }
    THEN(cz_zero_step(trial.zero, NULL, NULL)); /* they are kept */
    trial_destroy(&trial);
    if (status == CZ_OK && (kept != released || (kept > 0) != odd))
        status = cz_fail(CZ_ERR_STATE, "%d kept, %d released", kept, released);
    return status;
}

TEST(kept_gradients_are_the_devices_memory)
{
    assert_ranks_ok(2, device_body, NULL);
}
