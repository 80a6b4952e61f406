/* SPDX-License-Identifier: MIT */
/* Steps: what takes part, closures and results, frozen parameters, slots that come late, maps. */
#include "base/clock.h"
#include "optim/optim.h"
#include "support/cz_test.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define N 37

static float values[2][N], grads[2][N];

/* Parameters a, b of N elements, all 1, gradients all 1. */
static cz_model *make_model(void)
{
    static const int64_t shape = N;
    cz_model *model;
    assert_int_equal(cz_model_create(&model), CZ_OK);
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < N; i++)
            values[p][i] = grads[p][i] = 1;
        assert_int_equal(
            cz_model_add(model, p ? "b" : "a", values[p], grads[p], CZ_F32, 1, &shape), CZ_OK);
    }
    return model;
}

static cz_optim *make_sgd(cz_model *model, double momentum)
{
    cz_optim *optim;
    assert_int_equal(cz_optim_create(&optim, model, cz_rule_sgd(),
                                     CZ_HYPERS({"lr", 0.5}, {"momentum", momentum}), NULL),
                     CZ_OK);
    return optim;
}

/* The first value of a slot, NaN where it is absent. */
static float state_of(const cz_optim *optim, int64_t param, const char *slot)
{
    const void *data;
    int64_t count;
    assert_int_equal(cz_optim_state(optim, param, slot, 0, &data, &count), CZ_OK);
    assert_int_equal(count, N);
    return data ? *(const float *)data : NAN;
}

static void step(cz_optim *optim)
{
    assert_int_equal(cz_optim_step(optim, NULL, NULL), CZ_OK);
}

static void test_without_gradient_nothing_happens(void **state)
{
    cz_model *model = make_model();
    cz_optim *optim = make_sgd(model, 0.5);
    assert_int_equal(cz_model_set_gradient(model, 1, NULL), CZ_OK);
    step(optim);
    assert_true(values[0][N - 1] == 0.5f && values[1][N - 1] == 1);
    assert_int_equal(cz_optim_step_count(optim, 0), 1);
    assert_int_equal(cz_optim_step_count(optim, 1), 0);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1);
    assert_true(isnan(state_of(optim, 1, "momentum_buffer")));
    assert_int_equal(cz_model_set_gradient(model, 1, grads[1]), CZ_OK);
    step(optim); /* the first for b: its buffer is the gradient, without dampening */
    assert_true(state_of(optim, 1, "momentum_buffer") == 1);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1.5f);
    assert_int_equal(cz_optim_step_count(optim, 1), 1);
    assert_int_equal(cz_optim_step_count(optim, 2), 0);
    assert_int_equal(cz_optim_step_count(NULL, 0), 0);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

static int closure_calls;

static cz_status closure(double *loss, void *context)
{
    closure_calls++;
    *loss = 2.5;
    grads[0][0] = 3;
    return context ? cz_fail(*(cz_status *)context, "no data") : CZ_OK;
}

static void test_closure_and_result(void **state)
{
    cz_model *model = make_model();
    cz_optim *optim = make_sgd(model, 0);
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    cz_status refusal = CZ_ERR_IO;
    assert_int_equal(cz_optim_step(optim, NULL, &result), CZ_OK);
    assert_true(isnan(result.loss));
    options.closure = closure;
    assert_int_equal(cz_optim_step(optim, &options, &result), CZ_OK);
    assert_true(result.loss == 2.5 && closure_calls == 1);
    assert_true(values[0][0] == -1 && values[0][1] == 0); /* it ran before the update */
    options.closure_context = &refusal;
    assert_int_equal(cz_optim_step(optim, &options, &result), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "no data");
    assert_true(values[0][0] == -1 && cz_optim_step_count(optim, 0) == 2);
    result.size = sizeof(size_t); /* an older program, without room for the loss */
    result.loss = 7;
    options.closure_context = NULL;
    assert_int_equal(cz_optim_step(optim, &options, &result), CZ_OK);
    assert_true(result.loss == 7);
    result.size = 0;
    assert_int_equal(cz_optim_step(optim, &options, &result), CZ_ERR_ARGUMENT);
    options.size = 0;
    assert_int_equal(cz_optim_step(optim, &options, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_step(NULL, NULL, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(closure_calls, 3);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

static void test_zero_grad(void **state)
{
    const cz_param_group group = {sizeof group, (int64_t[]){1}, 1, NULL};
    const cz_optim_options options = {sizeof options, &group, 1};
    cz_model *model = make_model();
    cz_optim *optim;
    assert_int_equal(
        cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), &options), CZ_OK);
    assert_int_equal(cz_optim_zero_grad(optim), CZ_OK);
    assert_true(grads[0][0] == 1 && grads[1][0] == 0 && grads[1][N - 1] == 0);
    step(optim); /* parameters in no group are left alone */
    assert_true(values[0][0] == 1 && cz_optim_step_count(optim, 0) == 0);
    assert_int_equal(cz_model_set_gradient(model, 1, NULL), CZ_OK);
    assert_int_equal(cz_optim_zero_grad(optim), CZ_OK);
    assert_int_equal(cz_optim_zero_grad(NULL), CZ_ERR_ARGUMENT);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

static void test_frozen_and_unfrozen(void **state)
{
    cz_model *model = make_model();
    assert_int_equal(cz_model_set_requires_grad(model, 1, false), CZ_OK);
    cz_optim *optim = make_sgd(model, 0.5);
    assert_int_equal(cz_optim_state_bytes(optim), 192);
    step(optim);
    assert_true(values[1][0] == 1 && cz_optim_step_count(optim, 1) == 0);
    assert_int_equal(cz_model_set_requires_grad(model, 1, true), CZ_OK);
    for (int n = 1; n <= 2; n++) { /* the handle of the arena, the arena */
        cz_test_fail_allocation(n);
        assert_int_equal(cz_optim_step(optim, NULL, NULL), CZ_ERR_MEMORY);
        assert_true(cz_test_allocation_reset());
        assert_true(values[0][0] == 0.5f && cz_optim_step_count(optim, 0) == 1);
        assert_int_equal(cz_optim_state_bytes(optim), 192);
    }
    step(optim);
    assert_int_equal(cz_optim_state_bytes(optim), 384);
    assert_true(state_of(optim, 1, "momentum_buffer") == 1 && values[1][0] == 0.5f);
    assert_int_equal(cz_model_set_requires_grad(model, 0, false), CZ_OK);
    const float before = values[0][0];
    step(optim);
    assert_true(values[0][0] == before && cz_optim_step_count(optim, 0) == 2);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1.5f); /* it is kept */
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

/* Momentum comes after three steps, and goes again: its first use copies the gradient, whatever the
 * step count; while it is off the buffer keeps what it holds. */
static void test_momentum_comes_and_goes(void **state)
{
    cz_model *model = make_model();
    cz_optim *optim = make_sgd(model, 0);
    for (int i = 0; i < 3; i++)
        step(optim);
    assert_int_equal(cz_optim_state_bytes(optim), 0);
    assert_true(isnan(state_of(optim, 0, "momentum_buffer")));
    assert_int_equal(cz_optim_set_hyper(optim, 0, "dampening", 0.5), CZ_OK);
    assert_int_equal(cz_optim_set_hyper(optim, 0, "momentum", 0.5), CZ_OK);
    assert_int_equal(cz_optim_state_bytes(optim), 384);
    assert_true(isnan(state_of(optim, 0, "momentum_buffer")));
    step(optim);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1); /* not 0.5: no dampening at first */
    step(optim);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1); /* 0.5 + 0.5 */
    assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "momentum", 0), CZ_OK);
    values[0][0] = 1;
    step(optim);
    assert_true(values[0][0] == 0.5f && state_of(optim, 0, "momentum_buffer") == 1);
    assert_int_equal(cz_optim_set_hyper(optim, 0, "momentum", 0.25), CZ_OK);
    step(optim);
    assert_true(state_of(optim, 0, "momentum_buffer") == 0.75f); /* 0.25 + 0.5: not the first use */
    assert_int_equal(cz_optim_state_bytes(optim), 384);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

static void test_amsgrad_comes_late(void **state)
{
    cz_model *model = make_model();
    cz_optim *optim;
    assert_int_equal(cz_optim_create(&optim, model, cz_rule_adam(), NULL, NULL), CZ_OK);
    step(optim);
    const float second = state_of(optim, 0, "exp_avg_sq");
    assert_true(isnan(state_of(optim, 0, "max_exp_avg_sq")));
    assert_int_equal(cz_optim_set_hyper(optim, 0, "amsgrad", 1), CZ_OK);
    assert_int_equal(cz_optim_state_bytes(optim), 6 * 192);
    assert_true(state_of(optim, 0, "exp_avg_sq") == second); /* the others stay where they are */
    step(optim);
    assert_true(state_of(optim, 0, "exp_avg_sq") > second);
    assert_true(state_of(optim, 0, "max_exp_avg_sq") == state_of(optim, 0, "exp_avg_sq"));
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

static void test_set_and_get_hyper(void **state)
{
    const cz_param_group groups[] = {{sizeof groups[0], (int64_t[]){0}, 1, NULL},
                                     {sizeof groups[0], (int64_t[]){1}, 1,
                                      CZ_HYPERS({"momentum", 0.9}, {"nesterov", 1})}};
    const cz_optim_options options = {sizeof options, groups, 2};
    cz_model *model = make_model();
    cz_optim *optim;
    double value = -1;
    assert_int_equal(
        cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), &options), CZ_OK);
    /* the second group refuses, so the first stays too */
    assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "momentum", 0), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "dampening", 0.5), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_get_hyper(optim, 0, "dampening", &value), CZ_OK);
    assert_true(value == 0);
    assert_int_equal(cz_optim_set_hyper(optim, 0, "dampening", 0.5), CZ_OK);
    assert_int_equal(cz_optim_get_hyper(optim, 0, "dampening", &value), CZ_OK);
    assert_true(value == 0.5);
    for (int n = 1; n <= 2; n++) {
        cz_test_fail_allocation(n);
        assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "momentum", 0.7), CZ_ERR_MEMORY);
        assert_true(cz_test_allocation_reset());
        assert_int_equal(cz_optim_get_hyper(optim, 1, "momentum", &value), CZ_OK);
        assert_true(value == 0.9);
        step(optim); /* still without a buffer for the first */
    }
    assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "momentum", 0.7), CZ_OK);
    assert_int_equal(cz_optim_get_hyper(optim, 0, "momentum", &value), CZ_OK);
    assert_true(value == 0.7);
    assert_int_equal(cz_optim_set_hyper(optim, 0, "lr", NAN), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_set_hyper(optim, 0, "rate", 1), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "'rate' (it has lr, momentum"));
    assert_int_equal(cz_optim_set_hyper(optim, 0, NULL, 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_set_hyper(optim, 2, "lr", 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_set_hyper(optim, -2, "lr", 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_set_hyper(NULL, 0, "lr", 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_get_hyper(optim, CZ_ALL_GROUPS, "lr", &value), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_get_hyper(optim, 0, "rate", &value), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_get_hyper(optim, 0, "lr", NULL), CZ_ERR_ARGUMENT);
    assert_true(value == 0.7);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

static void test_lr_counts_from_the_next_step(void **state)
{
    cz_model *model = make_model();
    cz_optim *optim = make_sgd(model, 0);
    step(optim);
    assert_true(values[0][5] == 0.5f);
    assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "lr", 0.25), CZ_OK);
    assert_int_equal(cz_model_set_gradient(model, 1, NULL), CZ_OK); /* b stays a step behind */
    step(optim);
    assert_true(values[0][5] == 0.25f);
    assert_int_equal(cz_optim_set_hyper(optim, 0, "lr", 0), CZ_OK);
    assert_int_equal(cz_model_set_gradient(model, 1, grads[1]), CZ_OK);
    step(optim);
    assert_true(values[0][5] == 0.25f && values[1][5] == 0.5f);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

static void test_state_arguments(void **state)
{
    const void *data;
    int64_t count;
    cz_model *model = make_model();
    cz_optim *optim;
    assert_int_equal(cz_optim_create(&optim, model, cz_rule_adam(), NULL, NULL), CZ_OK);
    step(optim);
    assert_int_equal(cz_optim_state(optim, 1, "exp_avg", 30, &data, &count), CZ_OK);
    assert_true(data && count == N - 30);
    assert_int_equal(cz_optim_state(optim, 0, "step", 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, "exp", 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, "exp_avg", N, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, "exp_avg", -1, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 2, "exp_avg", 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, -1, "exp_avg", 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, NULL, 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, "exp_avg", 0, NULL, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(optim, 0, "exp_avg", 0, &data, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state(NULL, 0, "exp_avg", 0, &data, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state_bytes(NULL), 0);
    assert_int_equal(cz_optim_group_count(NULL), 0);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

/* The middle of a parameter is elsewhere or nowhere: runs end where ownership does. */
static void test_spans_of_a_map(void **state)
{
    static const int64_t counts[] = {N, N};
    const void *data;
    int64_t count;
    cz_shard_map *map, *other;
    cz_model *model = make_model();
    cz_optim *optim;
    void *gradients[] = {grads[0], grads[1]};
    assert_int_equal(cz_shard_map_create_even(&map, 3, 2, counts, NULL, 0, NULL, 4), CZ_OK);
    assert_int_equal(cz_shard_map_create_even(&other, 3, 1, counts, NULL, 0, NULL, 4), CZ_OK);
    assert_int_equal(cz__optim_create(&optim, model, cz_rule_sgd(),
                                      CZ_HYPERS({"lr", 1}, {"momentum", 0.5}), NULL),
                     CZ_OK);
    assert_int_equal(cz__optim_set_map(optim, other, 0), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__optim_set_map(optim, map, 3), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__optim_set_map(optim, map, -1), CZ_ERR_ARGUMENT);
    for (int n = 1; n <= 4; n++) { /* spans, slots, handle, arena: as if it had not been called */
        cz_test_fail_allocation(n);
        assert_int_equal(cz__optim_set_map(optim, map, 1), CZ_ERR_MEMORY);
        assert_true(cz_test_allocation_reset());
    }
    assert_int_equal(cz__optim_set_map(optim, map, 1), CZ_OK);
    assert_int_equal(cz__optim_set_map(optim, map, 1), CZ_ERR_STATE);
    cz_span_iterator iterator;
    cz_span span;
    uint64_t bytes = 0;
    assert_int_equal(cz__optim_prepare(optim), CZ_OK);
    const uint64_t told = cz__optim_update(optim, gradients);
    cz_span_iterate(map, 1, &iterator);
    while (cz_span_next(&iterator, &span)) {
        bytes += (uint64_t)(span.end - span.begin) * 4 * 5; /* p, buffer read and written, g read */
        assert_int_equal(
            cz_optim_state(optim, span.param, "momentum_buffer", span.begin, &data, &count), CZ_OK);
        assert_true(data && count == span.end - span.begin);
        assert_int_equal((uintptr_t)data % 64, 0);
        assert_int_equal(cz_optim_step_count(optim, span.param), 1);
        if (span.begin > 0) {
            assert_int_equal(
                cz_optim_state(optim, span.param, "momentum_buffer", 0, &data, &count), CZ_OK);
            assert_true(!data && count == span.begin);
            assert_true(values[span.param][span.begin - 1] == 1);
        }
        assert_true(values[span.param][span.begin] == 0 && values[span.param][span.end - 1] == 0);
        if (span.end < N) {
            assert_int_equal(
                cz_optim_state(optim, span.param, "momentum_buffer", span.end, &data, &count), CZ_OK);
            assert_true(!data && count == N - span.end);
            assert_true(values[span.param][span.end] == 1);
        }
    }
    assert_true(bytes > 0 && told == bytes);
    cz_optim_destroy(&optim);
    cz_shard_map_destroy(&map);
    cz_shard_map_destroy(&other);
    cz_model_destroy(&model);
}

/* An empty parameter counts its steps where it is at home. */
static void test_empty_parameters(void **state)
{
    static const int64_t none = 0, some = 5;
    static const int64_t counts[] = {0, 5};
    cz_model *model;
    cz_optim *optim;
    cz_shard_map *map;
    void *gradients[] = {grads[0], grads[0]};
    int64_t steps = 0;
    assert_int_equal(cz_model_create(&model), CZ_OK);
    assert_int_equal(cz_model_add(model, "none", NULL, grads[1], CZ_F32, 1, &none), CZ_OK);
    assert_int_equal(cz_model_add(model, "some", values[0], grads[0], CZ_F32, 1, &some), CZ_OK);
    assert_int_equal(cz_optim_create(&optim, model, cz_rule_adam(), NULL, NULL), CZ_OK);
    step(optim);
    assert_int_equal(cz_optim_step_count(optim, 0), 1);
    cz_optim_destroy(&optim);
    assert_int_equal(cz_shard_map_create_even(&map, 3, 2, counts, NULL, 0, NULL, 4), CZ_OK);
    for (int rank = 0; rank < 3; rank++) { /* two ranks own nothing at all */
        assert_int_equal(cz__optim_create(&optim, model, cz_rule_adam(), NULL, NULL), CZ_OK);
        assert_int_equal(cz__optim_set_map(optim, map, rank), CZ_OK);
        cz__optim_update(optim, gradients);
        assert_int_equal(cz_optim_step_count(optim, 0), cz_shard_map_home(map, 0) == rank);
        steps += cz_optim_step_count(optim, 1);
        cz_optim_destroy(&optim);
    }
    assert_int_equal(steps, 1);
    cz_shard_map_destroy(&map);
    cz_model_destroy(&model);
}

static void test_no_allocation_in_a_step(void **state)
{
    cz_model *model = make_model();
    cz_optim *optim;
    assert_int_equal(cz_optim_create(&optim, model, cz_rule_adamw(), NULL, NULL), CZ_OK);
    const int64_t made = cz_test_allocations_made();
    for (int i = 0; i < 5; i++) {
        step(optim);
        assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "lr", 0.1 / (i + 1)), CZ_OK);
        assert_int_equal(cz_optim_zero_grad(optim), CZ_OK);
    }
    assert_int_equal(cz_test_allocations_made(), made);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

static int prepare_calls;

static void count_and_prepare(const double *hypers, int64_t s, double *coefficients, unsigned *flags)
{
    prepare_calls++;
    cz_rule_adamw()->prepare(hypers, s, coefficients, flags);
}

/* 10,000 tiny parameters, half of which are a step behind: coefficients once per step count. */
static void test_many_tiny_parameters(void **state)
{
    enum { MANY = 10000, EACH = 3, STEPS = 6 };
    static float p[MANY * EACH], g[MANY * EACH];
    static int64_t sizes[MANY];
    cz_model *model;
    cz_optim *optim;
    cz_rule rule = *cz_rule_adamw();
    double best = 1;
    rule.prepare = count_and_prepare;
    for (int i = 0; i < MANY; i++)
        sizes[i] = EACH;
    assert_int_equal(cz_model_create(&model), CZ_OK);
    assert_int_equal(cz_model_add_flat(model, p, g, CZ_F32, MANY, NULL, sizes), CZ_OK);
    assert_int_equal(cz_optim_create(&optim, model, &rule, NULL, NULL), CZ_OK);
    for (int i = 0; i < MANY; i += 2)
        assert_int_equal(cz_model_set_gradient(model, i, NULL), CZ_OK);
    step(optim);
    for (int i = 0; i < MANY; i += 2)
        assert_int_equal(cz_model_set_gradient(model, i, g + (ptrdiff_t)i * EACH), CZ_OK);
    for (int s = 1; s < STEPS; s++) {
        const double begin = cz__seconds();
        step(optim);
        best = fmin(best, cz__seconds() - begin);
    }
    assert_int_equal(prepare_calls, STEPS);
    print_message("one step of %d parameters: %.3f ms\n", MANY, best * 1e3);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_gradient_nothing_happens),
        cmocka_unit_test(test_closure_and_result),
        cmocka_unit_test(test_zero_grad),
        cmocka_unit_test(test_frozen_and_unfrozen),
        cmocka_unit_test(test_momentum_comes_and_goes),
        cmocka_unit_test(test_amsgrad_comes_late),
        cmocka_unit_test(test_set_and_get_hyper),
        cmocka_unit_test(test_lr_counts_from_the_next_step),
        cmocka_unit_test(test_state_arguments),
        cmocka_unit_test(test_spans_of_a_map),
        cmocka_unit_test(test_empty_parameters),
        cmocka_unit_test(test_no_allocation_in_a_step),
        cmocka_unit_test(test_many_tiny_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
