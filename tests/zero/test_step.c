/* SPDX-License-Identifier: MIT */
/* Steps against the unsharded optimizer, bit for bit: rules, partitions, sizes, groups, memory. */
#include "support/cz_test.h"
#include "support/training.h"
#include "support/spans.h"

static const int worlds[] = {1, 2, 3, 5, 7};

/* Nothing, one element, primes, blocks and one beside, more than a block per rank. */
static const int64_t sizes[] = {7, 0, 1, 1000, 3, 16, 127, 0, 33, 5};
enum { PARAMS = sizeof sizes / sizeof *sizes };

/* Given owners: everybody in turn, and, with stride 0, nobody but the last. */
static void check_on(cz_test_training training, int world, int stride)
{
    int owners[PARAMS];
    char why[256];
    for (int p = 0; p < PARAMS; p++)
        owners[p] = stride ? p * stride % world : world - 1;
    training.owners = training.partition == CZ_PARTITION_GIVEN ? owners : NULL;
    if (cz_test_train(&training, world, NULL, why) != CZ_OK)
        fail_msg("partition %d (stride %d), gradients %d, %s%s, world size %d: %s",
                 (int)training.partition, stride, (int)training.gradients, training.rule->name,
                 training.flat ? ", flat" : "", world, why);
}

static void check(const cz_test_training *training)
{
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        check_on(*training, worlds[w], 7);
}

/* All partitions, both modes, both kinds of memory. */
static void check_everywhere(cz_test_training training)
{
    for (int mode = 0; mode < 12; mode++) {
        training.partition = (cz_partition)(mode % 3);
        training.gradients = (cz_gradients)(mode / 3 % 2);
        training.flat = mode / 6;
        check(&training);
    }
}

static cz_test_training plain(const cz_rule *rule, const cz_hyper *hypers)
{
    return (cz_test_training){.param_count = PARAMS,
                              .sizes = sizes,
                              .dtype = CZ_F32,
                              .rule = rule,
                              .hypers = hypers,
                              .steps = 4};
}

TEST(sgd_has_the_bits_of_one_process)
{
    check_everywhere(plain(cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9})));
}

TEST(adam_has_the_bits_of_one_process)
{
    check_everywhere(plain(cz_rule_adam(), NULL));
}

TEST(adam_in_double)
{
    cz_test_training training = plain(cz_rule_adam(), NULL);
    training.dtype = CZ_F64;
    check(&training);
    training.partition = CZ_PARTITION_GREEDY;
    training.gradients = CZ_GRADIENTS_REDUCED;
    check(&training);
}

TEST(adamw_with_amsgrad_has_the_bits_of_one_process)
{
    check_everywhere(plain(cz_rule_adamw(), CZ_HYPERS({"lr", 0.01}, {"amsgrad", 1})));
}

/* Interleaved, of different values; parameters 3 and 8 are in none. */
TEST(groups)
{
    static const int64_t even[] = {0, 2, 4, 6}, odd[] = {9, 1, 7, 5};
    const cz_param_group groups[] = {
        {sizeof *groups, even, 4, CZ_HYPERS({"lr", 0.5}, {"weight_decay", 0.1})},
        {sizeof *groups, odd, 4, NULL}};
    cz_test_training training = plain(cz_rule_adam(), CZ_HYPERS({"lr", 0.01}));
    training.groups = groups;
    training.group_count = 2;
    check_everywhere(training);
}

TEST(one_parameter)
{
    static const int64_t counts[] = {0, 1, 3, 16, 17, 1000};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        cz_test_training training = plain(cz_rule_adam(), NULL);
        training.param_count = 1;
        training.sizes = &counts[k];
        check(&training);
        training.partition = CZ_PARTITION_GREEDY;
        check(&training);
    }
}

/* Where a slice ends and who owns it must not show: vector bodies and scalar tails round alike. */
TEST(the_same_bits_on_1_to_9_ranks)
{
    cz_test_training training = plain(cz_rule_adam(), NULL);
    for (int world = 1; world <= 9; world++)
        for (int mode = 0; mode < 6; mode++) {
            training.partition = (cz_partition)(mode % 3);
            training.gradients = (cz_gradients)(mode / 3);
            check_on(training, world, 7);
            if (training.partition == CZ_PARTITION_GIVEN) {
                check_on(training, world, 2);
                check_on(training, world, 0);
            }
        }
}

TEST(random_sizes)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        int64_t random[PARAMS];
        cz_test_training training = plain(cz_rule_adamw(), NULL);
        cz_test_sizes(seed, PARAMS, seed % 2 ? 40 : 400, random);
        training.sizes = random;
        training.partition = (cz_partition)(seed % 2);
        training.flat = seed % 3 == 0;
        check(&training);
    }
}

static cz_status freeze_all(const cz_test_subject *subject, int step)
{
    for (int64_t p = 0; step < 0 && p < PARAMS; p++)
        CZ_TRY(cz_model_set_requires_grad(subject->model, p, false));
    return CZ_OK;
}

TEST(everything_frozen)
{
    cz_test_training training = plain(cz_rule_adam(), NULL);
    training.edit = freeze_all;
    check_everywhere(training);
}

/* ---- what a step is told and tells ---- */

static const cz_test_training small = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

static cz_status sets_loss(double *loss, void *context)
{
    ++*(int *)context;
    *loss = 2.5;
    return CZ_OK;
}

static cz_status closure_body(cz_group *group, void *context)
{
    cz_test_memory memory;
    cz_zero *zero = NULL;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    int calls = 0;
    const cz_step_options options = {
        .size = sizeof options, .closure = sets_loss, .closure_context = &calls};
    cz_status status = cz_test_memory_create(&memory, &small);
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, NULL));
    THEN(cz_zero_step(zero, &options, &result));
    if (status == CZ_OK && (calls != 1 || result.loss != 2.5))
        status = cz_fail(CZ_ERR_STATE, "%d calls, loss %g", calls, result.loss);
    THEN(cz_zero_step(zero, NULL, &result));
    if (status == CZ_OK && result.loss == result.loss)
        status = cz_fail(CZ_ERR_STATE, "loss %g without a closure", result.loss);
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(a_closure_runs_once_on_each_rank)
{
    assert_ranks_ok(3, closure_body, NULL);
}

/* A closure whose ranks wait for each other, and a step that one of them asks for wrongly. */
static cz_status meets(double *loss, void *context)
{
    *loss = 1;
    return cz_all_reduce(context, loss, 1, CZ_F64, CZ_SUM, NULL);
}

typedef struct newer_step {
    cz_step_options known;
    double more;
} newer_step;

/* The same on all ranks, and nobody's closure is left alone with it. */
static cz_status ask_wrongly(cz_zero *zero, cz_group *group, const cz_test_memory *memory)
{
    static const cz_status wanted[] = {CZ_ERR_ARGUMENT, CZ_ERR_ARGUMENT, CZ_ERR_ARGUMENT,
                                       CZ_ERR_ARGUMENT, CZ_ERR_UNSUPPORTED};
    for (int k = 0; k < 5; k++) {
        newer_step options = {{.size = sizeof options, .closure = meets, .closure_context = group},
                              0};
        cz_step_result result = CZ_STEP_RESULT_INIT;
        if (cz_group_rank(group) == k % cz_group_size(group)) {
            options.known.max_norm = k == 0 ? -1 : 0;
            options.known.skip_nonfinite = k == 1 ? 2 : 0;
            options.known.gradient_count = k == 2 ? 1 : 0;
            result.size = k == 3 ? 0 : sizeof result;
            options.more = k == 4;
        }
        const cz_status status = cz_zero_step(zero, &options.known, &result);
        if (status != wanted[k] || cz_test_load(memory->values[0], CZ_F32, 1) != 1.0 / 64)
            return cz_fail(CZ_ERR_STATE, "wrong %d: got %s: %.120s", k, cz_status_name(status),
                           cz_last_error());
    }
    return cz_zero_step(zero, NULL, NULL);
}

static cz_status wrong_options_body(cz_group *group, void *context)
{
    cz_test_memory memory;
    cz_zero *zero = NULL;
    cz_status status = cz_test_memory_create(&memory, &small);
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, NULL));
    THEN(ask_wrongly(zero, group, &memory));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(a_closure_runs_whatever_is_wrong)
{
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, wrong_options_body, NULL);
}

/* Steps in a row make no memory, also the first, and every point of the trace is passed. */
typedef struct quiet_plan {
    cz_gradients gradients;
    const cz_rule *rule;
    double max_norm;
} quiet_plan;

static cz_status quiet_body(cz_group *group, void *context)
{
    cz_test_memory memory;
    cz_zero *zero = NULL;
    int64_t before = 0;
    cz_status status = cz_test_memory_create(&memory, &small);
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    const quiet_plan *plan = context;
    const cz_step_options step_options = {.size = sizeof step_options, .max_norm = plan->max_norm};
    options.gradients = plan->gradients;
    THEN(cz_zero_create(&zero, group, memory.model, plan->rule, NULL, &options));
    THEN(cz_barrier(group, NULL));
    before = cz_test_allocations_made();
    THEN(cz_barrier(group, NULL));
    for (int step = 0; step < 5 && status == CZ_OK; step++)
        status = cz_zero_step(zero, &step_options, NULL);
    if (status == CZ_OK && cz_test_allocations_made() != before)
        status = cz_fail(CZ_ERR_STATE, "steps allocated");
    for (int point = 0; point <= CZ_TRACE_SYNC && status == CZ_OK; point++) {
        int64_t wanted =
            point == CZ_TRACE_REDUCE && options.gradients == CZ_GRADIENTS_REDUCED ? 0 : 5;
        if (plan->rule->sum_count > 0 && (point == CZ_TRACE_REDUCE || point == CZ_TRACE_UPDATE))
            wanted += 5; /* two passes, and the sums between them */
        if (plan->max_norm > 0 && point == CZ_TRACE_REDUCE)
            wanted += 5;
        cz_trace_totals totals = CZ_TRACE_TOTALS_INIT;
        status = cz_zero_trace(zero, (cz_trace_point)point, &totals);
        if (status == CZ_OK && totals.count != wanted)
            status =
                cz_fail(CZ_ERR_STATE, "point %d was passed %d times", point, (int)totals.count);
    }
    THEN(cz_barrier(group, NULL)); /* nobody destroys while others count */
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(steps_allocate_nothing)
{
    char why[256];
    for (int mode = 0; mode < 8; mode++) {
        quiet_plan plan = {(cz_gradients)(mode % 2),
                           mode & 2 ? cz_test_probe_rule() : cz_rule_adam(), mode & 4 ? 0.5 : 0};
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
            if (cz_test_run_ranks(worlds[w], quiet_body, &plan, why) != CZ_OK)
                fail_msg("%s, world size %d: %s", plan.rule->name, worlds[w], why);
    }
}

/* ---- the end ---- */

/* The model and its memory first; what the optimizers need of it stays until they go. */
static cz_status model_first_body(cz_group *group, void *context)
{
    cz_test_memory memory = {0};
    cz_zero *zero = NULL, *second = NULL;
    cz_status status = cz_test_memory_create(&memory, &small);
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, NULL));
    THEN(cz_zero_create(&second, group, memory.model, cz_rule_adam(), NULL, NULL));
    if (status == CZ_OK && cz_group_rank(group) == 0)
        status = cz_model_set_gradient(memory.model, 3, NULL);
    THEN(cz_zero_step(zero, NULL, NULL));
    const int64_t held = cz_test_allocations_held();
    cz_test_memory_destroy(&memory);
    if (status == CZ_OK && cz_group_size(group) == 1 && cz_test_allocations_held() != held)
        status = cz_fail(CZ_ERR_STATE, "the model was freed under its optimizers");
    cz_zero_destroy(&zero);
    cz_zero_destroy(&second);
    return status;
}

TEST(the_model_is_destroyed_first)
{
    const int64_t held = cz_test_allocations_held();
    for (int world = 1; world <= 3; world++)
        assert_ranks_ok(world, model_first_body, NULL);
    assert_int_equal(cz_test_allocations_held(), held);
}

TEST(null_handles)
{
    cz_zero *zero = NULL;
    double value;
    cz_zero_destroy(NULL);
    cz_zero_destroy(&zero);
    assert_int_equal(cz_optim_set_hyper(cz_zero_local_optim(NULL), 0, "lr", 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_get_hyper(cz_zero_local_optim(NULL), 0, "lr", &value),
                     CZ_ERR_ARGUMENT);
    assert_null(cz_zero_local_optim(NULL));
}
