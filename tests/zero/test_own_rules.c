/* SPDX-License-Identifier: MIT */
/* Rules of the caller's own, sharded: partial sums to the last bit, whole tensors, the beginning
 * and the argument of a step; gradients given to a step; closures. */
#include "support/cz_test.h"
#include "support/training.h"
#include "support/spans.h"
#include "shard/shard.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

static const int worlds[] = {1, 2, 3, 5, 7};
static const int64_t sizes[] = {7, 0, 1, 1000, 3, 16, 127, 33};
enum { PARAMS = sizeof sizes / sizeof *sizes };

/* ---- partial sums, and the argument of a step ---- */

static bool mostly(int rank, int step, int64_t param)
{
    return param == 3 ? step > 0 : param == 4 ? rank > 0 || step > 1 : param == 5 ? step % 2 : true;
}

static cz_status unfreeze(const cz_test_subject *subject, int step)
{
    return step < 3 ? cz_model_set_requires_grad(subject->model, 6, step == 2) : CZ_OK;
}

/* None in some steps; never the same twice, so what is prepared cannot be kept. */
static const void *factor(int step)
{
    static const double factors[] = {0.5, 2, 0.25, 1, 3};
    return step == 1 ? NULL : &factors[step % 5];
}

TEST(partial_sums)
{
    cz_test_training training = {.param_count = PARAMS,
                                 .sizes = sizes,
                                 .dtype = CZ_F32,
                                 .rule = cz_test_probe_rule(),
                                 .steps = 5};
    char why[256];
    for (int mode = 0; mode < 8; mode++)
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
            training.partition = (cz_partition)(mode & 1);
            training.gradients = (cz_gradients)(mode >> 1 & 1);
            training.has_gradient = mode & 4 ? mostly : NULL;
            training.edit = mode & 4 ? unfreeze : NULL;
            training.argument = mode & 4 ? factor : NULL;
            if (cz_test_train(&training, worlds[w], NULL, why) != CZ_OK)
                fail_msg("mode %d, world size %d: %s", mode, worlds[w], why);
        }
}

/* ---- one rank's part ---- */

typedef struct own_part {
    cz_group *group;
    cz_test_memory memory;
    cz_zero *zero;
} own_part;

static const cz_test_training small = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

static cz_status make(own_part *part, cz_group *group, const cz_rule *rule, cz_partition partition)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = partition;
    part->group = group;
    CZ_TRY(cz_test_memory_create(&part->memory, &small));
    return cz_zero_create(&part->zero, group, part->memory.model, rule, NULL, &options);
}

/* Runs `test` on a part that is taken down whatever happened. */
static cz_status with_part(cz_group *group, cz_status (*test)(own_part *part))
{
    own_part part = {.group = group};
    const cz_status status = test(&part);
    cz_zero_destroy(&part.zero);
    cz_test_memory_destroy(&part.memory);
    return status;
}

static cz_status expect_exactly(cz_status got, cz_status wanted, const char *sentence)
{
    if (got != wanted || strcmp(cz_last_error(), sentence) != 0)
        return cz_fail(CZ_ERR_STATE, "got %s: %.180s", cz_status_name(got), cz_last_error());
    return CZ_OK;
}

/* ---- whole tensors ---- */

static unsigned no_slots(const double *hypers)
{
    return 0;
}

static void nothing_to_prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
}

/* Every element becomes the mean of its tensor's gradient. */
static void to_the_mean(const cz_tensor_update *update)
{
    const int64_t count = cz_tensor_count(update->param);
    const float *g = update->grad;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += g[i];
    for (int64_t i = 0; i < count; i++)
        ((float *)update->param->data)[i] = (float)(sum / (double)count);
}

static const cz_rule mean_rule = {
    .abi = CZ_RULE_ABI,
    .size = sizeof(cz_rule),
    .name = "mean",
    .slots_used = no_slots,
    .prepare = nothing_to_prepare,
    .update_tensor = to_the_mean,
};

static cz_status is_whole(const own_part *part)
{
    const cz_shard_map *map = cz_test_shard_map(part->zero);
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    cz_span span;
    CZ_TRY(cz_zero_get_info(part->zero, &info));
    if (info.partition != CZ_PARTITION_GREEDY)
        return cz_fail(CZ_ERR_STATE, "the partition is %d", (int)info.partition);
    for (int64_t p = 0; p < cz__shard_map_param_count(map); p++)
        if (cz__shard_map_locate(map, p, 0, &span) && span.end != cz__shard_map_count(map, p))
            return cz_fail(CZ_ERR_STATE, "parameter %d is cut", (int)p);
    return cz_zero_step(part->zero, NULL, NULL);
}

static cz_status makes_no_cuts(own_part *part)
{
    CZ_TRY(make(part, part->group, &mean_rule, CZ_PARTITION_ELEMENTS));
    CZ_TRY(is_whole(part));
    CZ_TRY(cz_zero_reshard(part->zero, CZ_PARTITION_ELEMENTS, NULL, 0));
    return is_whole(part);
}

static cz_status makes_no_cuts_body(cz_group *group, void *context)
{
    return with_part(group, makes_no_cuts);
}

TEST(whole_tensors_are_not_cut_on_any_number_of_ranks)
{
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, makes_no_cuts_body, NULL);
}

/* ---- the beginning of a step ---- */

static atomic_int begun;

/* What the argument says becomes the learning rate and an added value; a negative one is
 * refused. */
static cz_status begin_step(struct cz_optim *optim, const void *argument, void *context)
{
    const double *lr = argument;
    atomic_fetch_add((atomic_int *)context, 1);
    if (!lr)
        return CZ_OK;
    if (*lr < 0)
        return cz_fail(CZ_ERR_ARGUMENT, "no step of %g", *lr);
    CZ_TRY(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "lr", *lr));
    return cz_optim_add_hyper(optim, 0, "told", *lr);
}

static cz_rule beginning_rule(void)
{
    cz_rule rule = *cz_test_probe_rule();
    rule.name = "beginner";
    rule.begin_step = begin_step;
    rule.context = &begun;
    return rule;
}

static cz_status begins(own_part *part)
{
    static cz_rule rule; /* the same on all ranks */
    const int rank = cz_group_rank(part->group);
    const double good = 0.5, odd = rank == 1 ? -1 : 0.75;
    double value = 0;
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    if (rank == 0)
        rule = beginning_rule();
    CZ_TRY(cz_barrier(part->group, NULL));
    CZ_TRY(make(part, part->group, &rule, CZ_PARTITION_GREEDY));
    options.argument = &good;
    CZ_TRY(cz_zero_step(part->zero, &options, NULL));
    CZ_TRY(cz_optim_get_hyper(cz_zero_local_optim(part->zero), 0, "told", &value));
    if (value != good)
        return cz_fail(CZ_ERR_STATE, "told is %g", value);
    const float before = ((float *)part->memory.values[3])[5];
    options.argument = &odd;
    CZ_TRY(expect_exactly(cz_zero_step(part->zero, &options, NULL), CZ_ERR_ARGUMENT,
                          "rank 1: beginner: no step of -1"));
    if (((float *)part->memory.values[3])[5] != before)
        return cz_fail(CZ_ERR_STATE, "a parameter was changed");
    return cz_optim_set_hyper(cz_zero_local_optim(part->zero), 0, "lr", 0.5); /* again alike */
}

static cz_status begins_body(cz_group *group, void *context)
{
    return with_part(group, begins);
}

TEST(the_beginning_of_a_step)
{
    enum { WORLD = 9 }; /* some own nothing */
    atomic_store(&begun, 0);
    assert_ranks_ok(WORLD, begins_body, NULL);
    assert_int_equal(atomic_load(&begun), 2 * WORLD);
}

/* ---- gradients given to a step ---- */

static float spare[8][PARAMS][1000]; /* per rank */

/* Instead of the model's, which are elsewhere or nonsense; parameter 2 is skipped. */
static cz_status gives_gradients(own_part *part)
{
    const int rank = cz_group_rank(part->group);
    void *given[PARAMS];
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    CZ_TRY(make(part, part->group, cz_rule_adam(), CZ_PARTITION_ELEMENTS));
    for (int p = 0; p < PARAMS; p++) {
        given[p] = p == 2 ? NULL : spare[rank][p];
        for (int64_t i = 0; i < sizes[p]; i++) {
            spare[rank][p][i] = (float)cz_test_gradient(rank, 0, i);
            ((float *)part->memory.grads[p])[i] = 1e9f;
        }
    }
    CZ_TRY(cz_model_set_gradient(part->memory.model, 5, NULL));
    options.gradients = given;
    options.gradient_count = rank == 1 ? PARAMS - 1 : PARAMS;
    CZ_TRY(expect_exactly(
        cz_zero_step(part->zero, &options, NULL), CZ_ERR_ARGUMENT,
        "rank 1: step: gradient_count is 7, wanted is 8, the number of parameters of the "
        "model"));
    options.gradient_count = PARAMS;
    return cz_zero_step(part->zero, &options, NULL);
}

/* The same step with the mean in the model. */
static cz_status compare_with_one_process(own_part *part)
{
    cz_test_memory memory;
    cz_optim *optim = NULL;
    cz_status status = cz_test_memory_create(&memory, &small);
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            double sum = 0;
            for (int r = 0; r < cz_group_size(part->group); r++)
                sum += cz_test_gradient(r, 0, i);
            cz_test_store(memory.grads[p], CZ_F32, i, (float)sum / cz_group_size(part->group));
        }
    THEN(cz_model_set_gradient(memory.model, 2, NULL));
    THEN(cz_optim_create(&optim, memory.model, cz_rule_adam(), NULL, NULL));
    THEN(cz_optim_step(optim, NULL, NULL));
    for (int p = 0; p < PARAMS && status == CZ_OK; p++)
        if (memcmp(memory.values[p], part->memory.values[p], (size_t)sizes[p] * 4) != 0)
            status = cz_fail(CZ_ERR_STATE, "parameter %d has other bits", p);
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
    return status;
}

static cz_status gives_and_compares(own_part *part)
{
    CZ_TRY(gives_gradients(part));
    return compare_with_one_process(part);
}

static cz_status gives_body(cz_group *group, void *context)
{
    return with_part(group, gives_and_compares);
}

TEST(gradients_given_to_a_step)
{
    static const int many[] = {2, 3, 5, 7};
    for (int w = 0; w < 4; w++)
        assert_ranks_ok(many[w], gives_body, NULL);
}

/* ---- closures ---- */

/* One that makes the gradients, as a backward pass does. */
static cz_status backward(double *loss, void *context)
{
    const own_part *part = context;
    const int rank = cz_group_rank(part->group);
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            ((float *)part->memory.grads[p])[i] = (float)cz_test_gradient(rank, 0, i);
    *loss = rank + 0.25;
    return cz_model_set_gradient(part->memory.model, 2, NULL);
}

/* One that only tells a loss: gradients are those from before. */
static cz_status only_a_loss(double *loss, void *context)
{
    *loss = 7;
    return CZ_OK;
}

static cz_status runs_closures(own_part *part, bool makes_gradients)
{
    cz_step_result result = CZ_STEP_RESULT_INIT;
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    double loss;
    CZ_TRY(make(part, part->group, cz_rule_adam(), CZ_PARTITION_ELEMENTS));
    options.closure = makes_gradients ? backward : only_a_loss;
    options.closure_context = part;
    if (!makes_gradients)
        CZ_TRY(backward(&loss, part));
    CZ_TRY(cz_zero_step(part->zero, &options, &result));
    if (result.loss != (makes_gradients ? cz_group_rank(part->group) + 0.25 : 7))
        return cz_fail(CZ_ERR_STATE, "the loss is %g", result.loss);
    return compare_with_one_process(part);
}

static cz_status makes_gradients(own_part *part)
{
    return runs_closures(part, true);
}

static cz_status tells_a_loss(own_part *part)
{
    return runs_closures(part, false);
}

static cz_status closure_body(cz_group *group, void *context)
{
    return with_part(group, context ? makes_gradients : tells_a_loss);
}

TEST(closures)
{
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        assert_ranks_ok(worlds[w], closure_body, NULL);
        assert_ranks_ok(worlds[w], closure_body, &begun);
    }
}
