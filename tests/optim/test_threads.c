/* SPDX-License-Identifier: MIT */
/* Kernel threads: the same bits from any number of them, for every rule; who gets some. */
#include "optim/object.h"
#include "support/cz_test.h"
#include "support/training.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARAMS = 8, STEPS = 3 };

/* Parts of equal size begin within the large ones. */
static const int64_t sizes[PARAMS] = {60001, 7, 0, 33333, 64, 1, 48000, 1023};

typedef struct run {
    const cz_rule *rule;
    const cz_hyper *hypers;
    cz_dtype dtype;
    int threads;
    cz_test_memory memory;
    cz_optim *optim;
} run;

static void begin(run *r)
{
    const cz_test_training training = {
        .param_count = PARAMS, .sizes = sizes, .dtype = r->dtype, .rule = r->rule};
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.threads = r->threads;
    assert_ok(cz_test_memory_create(&r->memory, &training));
    assert_ok(cz_optim_create(&r->optim, r->memory.model, r->rule, r->hypers, &options));
    assert_int_equal(cz__optim_parts(r->optim), r->threads);
}

static void end(run *r)
{
    cz_optim_destroy(&r->optim);
    cz_test_memory_destroy(&r->memory);
}

/* Frozen, without a gradient, clipped: what takes part changes from step to step. */
static void make_step(run *r, int step)
{
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    void *gradients[PARAMS];
    for (int p = 0; p < PARAMS; p++) {
        gradients[p] = step == 1 && p == 3 ? NULL : r->memory.grads[p];
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(r->memory.grads[p], r->dtype, i,
                          cz_test_gradient(p, step, i * 13 + i / 1000) - 0.3);
    }
    options.gradients = gradients;
    options.gradient_count = PARAMS;
    options.max_norm = step == 2 ? 0.1 : 0;
    options.norm = 1;
    assert_ok(cz_model_set_requires_grad(r->memory.model, 6, step != 2));
    assert_ok(cz_optim_step(r->optim, &options, &result));
    assert_true(result.norm > 0);
}

static void compare(const run *one, const run *many)
{
    const size_t size = cz_dtype_size(one->dtype);
    for (int p = 0; p < PARAMS; p++) {
        if (sizes[p] == 0)
            continue;
        assert_memory_equal(one->memory.values[p], many->memory.values[p], (size_t)sizes[p] * size);
        assert_memory_equal(one->memory.grads[p], many->memory.grads[p], (size_t)sizes[p] * size);
        for (int e = 0; e < one->optim->slot_count; e++) {
            const void *a = cz__optim_slot_address(one->optim, p, e, 0);
            const void *b = cz__optim_slot_address(many->optim, p, e, 0);
            assert_int_equal(a != NULL, b != NULL);
            if (a)
                assert_memory_equal(a, b, (size_t)sizes[p] * size);
        }
        for (int k = 0; k < one->optim->scalar_count; k++)
            assert_memory_equal(&one->optim->scalars[p * one->optim->scalar_count + k],
                                &many->optim->scalars[p * one->optim->scalar_count + k],
                                sizeof(double));
    }
    assert_memory_equal(one->optim->steps, many->optim->steps, PARAMS * sizeof(int64_t));
}

static void try_rule(const cz_rule *rule, const cz_hyper *hypers, cz_dtype dtype)
{
    static const int counts[] = {2, 3, 7};
    run one = {.rule = rule, .hypers = hypers, .dtype = dtype, .threads = 1};
    begin(&one);
    for (int step = 0; step < STEPS; step++)
        make_step(&one, step);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        run many = {.rule = rule, .hypers = hypers, .dtype = dtype, .threads = counts[i]};
        begin(&many);
        for (int step = 0; step < STEPS; step++)
            make_step(&many, step);
        compare(&one, &many);
        end(&many);
    }
    end(&one);
}

TEST(every_rule)
{
    const struct {
        const char *rule;
        const cz_hyper *hypers;
    } cases[] = {
        {"sgd", CZ_HYPERS({"lr", 0.1})},
        {"sgd", CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9}, {"nesterov", 1}, {"weight_decay", 0.1})},
        {"adam", CZ_HYPERS({"amsgrad", 1}, {"lerp", 1})},
        {"adamw", NULL},
        {"adamax", NULL},
        {"adadelta", NULL},
        {"adagrad", CZ_HYPERS({"initial_accumulator_value", 0.5})},
        {"rmsprop", CZ_HYPERS({"momentum", 0.9}, {"centered", 1})},
        {"rprop", NULL},
        {"nadam", NULL},
        {"radam", CZ_HYPERS({"weight_decay", 0.1}, {"decoupled_weight_decay", 1})},
        {"lion", CZ_HYPERS({"weight_decay", 0.1})},
        {"lamb", CZ_HYPERS({"always_adapt", 0})},
        {"lars", CZ_HYPERS({"lr", 0.5}, {"weight_decay", 0.1})},
        {"ademamix", CZ_HYPERS({"alpha_warmup", 5}, {"beta3_warmup", 5})},
        {"schedule_free_sgd", CZ_HYPERS({"lr", 0.1}, {"warmup_steps", 3}, {"weight_decay", 0.1})},
        {"schedule_free_adamw", CZ_HYPERS({"warmup_steps", 3}, {"r", 1})},
        {"adam_mini", CZ_HYPERS({"weight_decay", 0.1})},
        {"muon", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        try_rule(cz_rule_find(cases[i].rule), cases[i].hypers, CZ_F32);
        try_rule(cz_rule_find(cases[i].rule), cases[i].hypers, CZ_F64);
    }
}

/* ---- rules of the program's own ---- */

TEST(partial_sums)
{
    try_rule(cz_test_probe_rule(), NULL, CZ_F32);
}

static const cz_hyper_spec hypers[] = {{"lr", 0.125, 0, 1, false, false}};
static const cz_slot_spec slots[] = {{"sum", CZ_SLOT_ELEMENT, 0, NULL}};

static unsigned slots_used(const double *values)
{
    return 1;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    coefficients[0] = step->hypers[0];
}

static size_t scratch_bytes(const cz_tensor *param, void *context)
{
    return (size_t)cz_tensor_count(param) * sizeof(float);
}

/* Running sums in scratch memory: of a whole tensor, and nobody else's. */
static void run_up(const cz_tensor_update *update)
{
    float *p = update->param->data, *sum = update->slots[0], *scratch = update->scratch;
    const float *g = update->grad;
    float total = 0;
    for (int64_t i = 0; i < cz_tensor_count(update->param); i++)
        scratch[i] = total = total + g[i];
    for (int64_t i = 0; i < cz_tensor_count(update->param); i++) {
        sum[i] = sum[i] + scratch[i];
        p[i] = p[i] - (float)update->coefficients[0] * (sum[i] - total);
    }
}

static const cz_rule whole = {
    .abi = CZ_RULE_ABI,
    .size = sizeof(cz_rule),
    .name = "whole",
    .hyper_size = sizeof(cz_hyper_spec),
    .slot_size = sizeof(cz_slot_spec),
    .hyper_count = 1,
    .hypers = hypers,
    .slot_count = 1,
    .slots = slots,
    .slots_used = slots_used,
    .prepare = prepare,
    .update_tensor = run_up,
    .scratch_bytes = scratch_bytes,
};

TEST(whole_tensors)
{
    try_rule(&whole, NULL, CZ_F32);
}

/* ---- who gets threads ---- */

static int parts_with(const cz_rule *rule, int threads, int64_t size)
{
    const cz_test_training training = {.param_count = 1, .sizes = &size, .dtype = CZ_F32};
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_test_memory memory;
    cz_optim *optim;
    options.threads = threads;
    assert_ok(cz_test_memory_create(&memory, &training));
    assert_ok(cz_optim_create(&optim, memory.model, rule, NULL, &options));
    const int parts = cz__optim_parts(optim);
    cz_optim_destroy(&optim);
    cz_test_memory_destroy(&memory);
    return parts;
}

TEST(who_gets_threads)
{
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    setenv("CZERO_THREADS", "3", 1);
    assert_int_equal(parts_with(cz_rule_adam(), 0, 200000), 3);
    assert_int_equal(parts_with(cz_rule_adam(), 2, 200000), 2); /* the option decides */
    assert_int_equal(parts_with(cz_rule_adam(), 0, 1000), 1);   /* too little work */
    assert_int_equal(parts_with(&whole, 0, 200000), 3);
    setenv("CZERO_THREADS", "1", 1);
    assert_int_equal(parts_with(cz_rule_adam(), 0, 200000), 1);
    unsetenv("CZERO_THREADS");
    assert_int_equal(parts_with(&whole, 0, 200000), 1); /* the program's own code */
    assert_int_equal(parts_with(&whole, 2, 200000), 2);
    run r = {.rule = cz_rule_adam(), .dtype = CZ_F32, .threads = 1};
    begin(&r);
    options.threads = -1;
    cz_optim *none;
    assert_int_equal(cz_optim_create(&none, r.memory.model, r.rule, NULL, &options),
                     CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "optim: option threads is -1, wanted 0 or more");
    end(&r);
}

/* A group that is added makes work for more threads; what there was keeps its state. */
TEST(groups_that_are_added)
{
    run one = {.rule = cz_rule_adam(), .dtype = CZ_F32, .threads = 1};
    run two = {.rule = cz_rule_adam(), .dtype = CZ_F32, .threads = 2};
    static const int64_t small[] = {1, 4}, large[] = {0, 3, 6};
    const cz_param_group first = {sizeof first, small, 2, NULL};
    const cz_param_group second = {sizeof second, large, 3, NULL};
    run *runs[] = {&one, &two};
    for (int k = 0; k < 2; k++) {
        run *r = runs[k];
        const cz_test_training training = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
        cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
        options.threads = r->threads;
        options.groups = &first;
        options.group_count = 1;
        assert_ok(cz_test_memory_create(&r->memory, &training));
        assert_ok(cz_optim_create(&r->optim, r->memory.model, r->rule, NULL, &options));
        assert_int_equal(cz__optim_parts(r->optim), 1);
        make_step(r, 0);
        assert_ok(cz_optim_add_param_group(r->optim, &second));
        assert_int_equal(cz__optim_parts(r->optim), r->threads);
        make_step(r, 1);
    }
    compare(&one, &two);
    end(&one);
    end(&two);
}

/* ---- fork ---- */

TEST(child_process)
{
#if !SLOW
    run one = {.rule = cz_rule_adam(), .dtype = CZ_F32, .threads = 1};
    run two = {.rule = cz_rule_adam(), .dtype = CZ_F32, .threads = 2};
    int status = -1;
    begin(&one);
    begin(&two);
    make_step(&one, 0);
    make_step(&two, 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cz_optim_step(one.optim, NULL, NULL);
        cz_optim_step(two.optim, NULL, NULL);
        const int differ =
            memcmp(one.memory.values[0], two.memory.values[0], (size_t)sizes[0] * sizeof(float));
        cz_optim_destroy(&two.optim);
        _exit(differ ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    end(&one);
    end(&two);
#endif
}

/* ---- allocations that fail ---- */

TEST(no_memory)
{
    for (int64_t n = 1;; n++) {
        const int64_t held = cz_test_allocations_held();
        const cz_test_training training = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
        cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
        cz_test_memory memory;
        cz_optim *optim;
        options.threads = 2;
        assert_ok(cz_test_memory_create(&memory, &training));
        cz_test_fail_allocation(n);
        const cz_status status =
            cz_optim_create(&optim, memory.model, cz_test_probe_rule(), NULL, &options);
        const bool failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        cz_optim_destroy(&optim);
        cz_test_memory_destroy(&memory);
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed)
            break;
    }
}
