/* SPDX-License-Identifier: MIT */
/* Steps: what takes part, closures and results, frozen parameters, what a step costs. */
#include "base/clock.h"
#include "optim/two_params.h"
#include "optim/optim.h"

TEST(without_gradient_nothing_happens)
{
    cz_optim *optim = make_sgd(model, 0.5);
    assert_ok(cz_model_set_gradient(model, 1, NULL));
    step(optim);
    assert_true(values[0][N - 1] == 0.5f && values[1][N - 1] == 1);
    assert_int_equal(cz__optim_step_count(optim, 0), 1);
    assert_int_equal(cz__optim_step_count(optim, 1), 0);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1);
    assert_true(isnan(state_of(optim, 1, "momentum_buffer")));
    assert_ok(cz_model_set_gradient(model, 1, grads[1]));
    step(optim); /* the first for b: its buffer is the gradient, without dampening */
    assert_true(state_of(optim, 1, "momentum_buffer") == 1);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1.5f);
    assert_int_equal(cz__optim_step_count(optim, 1), 1);
    assert_int_equal(cz__optim_step_count(optim, 2), 0);
    assert_int_equal(cz__optim_step_count(NULL, 0), 0);
    cz_optim_destroy(&optim);
}

static int closure_calls;

static cz_status closure(double *loss, void *context)
{
    closure_calls++;
    *loss = 2.5;
    grads[0][0] = 3;
    return context ? cz_fail(*(cz_status *)context, "no data") : CZ_OK;
}

static cz_status says_nothing(double *loss, void *context)
{
    return CZ_ERR_IO;
}

TEST(closure_and_result)
{
    cz_optim *optim = make_sgd(model, 0);
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    cz_status refusal = CZ_ERR_IO;
    assert_ok(cz_optim_step(optim, NULL, &result));
    assert_true(isnan(result.loss));
    options.closure = closure;
    assert_ok(cz_optim_step(optim, &options, &result));
    assert_true(result.loss == 2.5 && closure_calls == 1);
    assert_true(values[0][0] == -1 && values[0][1] == 0); /* it ran before the update */
    options.closure_context = &refusal;
    assert_int_equal(cz_optim_step(optim, &options, &result), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "closure: no data");
    options.closure = says_nothing;
    assert_int_equal(cz_optim_step(optim, &options, &result), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "closure: CZ_ERR_IO");
    options.closure = closure;
    assert_true(values[0][0] == -1 && cz__optim_step_count(optim, 0) == 2);
    result.size = sizeof(size_t); /* an older program, without room for the loss */
    result.loss = 7;
    options.closure_context = NULL;
    assert_ok(cz_optim_step(optim, &options, &result));
    assert_true(result.loss == 7);
    result.size = 0;
    assert_int_equal(cz_optim_step(optim, &options, &result), CZ_ERR_ARGUMENT);
    result.size = 4097;
    assert_int_equal(cz_optim_step(optim, &options, &result), CZ_ERR_ARGUMENT);
    options.size = 0;
    assert_int_equal(cz_optim_step(optim, &options, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(closure_calls, 5); /* a result that is wrong keeps it from nothing */
    cz_optim_destroy(&optim);
}

TEST(zero_grad)
{
    const cz_param_group group = {sizeof group, (int64_t[]){1}, 1, NULL};
    const cz_optim_options options = {sizeof options, &group, 1, 0, 0};
    cz_optim *optim;
    assert_ok(cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), &options));
    assert_ok(cz_optim_zero_grad(optim, false));
    assert_true(grads[0][0] == 1 && grads[1][0] == 0 && grads[1][N - 1] == 0);
    step(optim); /* parameters in no group are left alone */
    assert_true(values[0][0] == 1 && cz__optim_step_count(optim, 0) == 0);
    assert_ok(cz_model_set_gradient(model, 1, NULL));
    assert_ok(cz_optim_zero_grad(optim, false));
    cz_optim_destroy(&optim);
}

TEST(frozen_and_unfrozen)
{
    assert_ok(cz_model_set_requires_grad(model, 1, false));
    cz_optim *optim = make_sgd(model, 0.5);
    assert_int_equal(cz__optim_state_bytes(optim), N * 4);
    step(optim);
    assert_true(values[1][0] == 1 && cz__optim_step_count(optim, 1) == 0);
    assert_ok(cz_model_set_requires_grad(model, 1, true));
    for (int n = 1; n <= 2; n++) { /* the handle of the arena, the arena */
        cz_test_fail_allocation(n);
        assert_int_equal(cz_optim_step(optim, NULL, NULL), CZ_ERR_MEMORY);
        assert_true(cz_test_allocation_reset());
        assert_true(values[0][0] == 0.5f && cz__optim_step_count(optim, 0) == 1);
        assert_int_equal(cz__optim_state_bytes(optim), N * 4);
    }
    step(optim);
    assert_int_equal(cz__optim_state_bytes(optim), 2 * N * 4);
    assert_true(state_of(optim, 1, "momentum_buffer") == 1 && values[1][0] == 0.5f);
    assert_ok(cz_model_set_requires_grad(model, 0, false));
    const float before = values[0][0];
    step(optim);
    assert_true(values[0][0] == before && cz__optim_step_count(optim, 0) == 2);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1.5f); /* it is kept */
    cz_optim_destroy(&optim);
}

TEST(no_allocation_in_a_step)
{
    cz_optim *optim;
    assert_ok(cz_optim_create(&optim, model, cz_rule_adamw(), NULL, NULL));
    const int64_t made = cz_test_allocations_made();
    for (int i = 0; i < 5; i++) {
        step(optim);
        assert_ok(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "lr", 0.1 / (i + 1)));
        assert_ok(cz_optim_zero_grad(optim, false));
    }
    assert_int_equal(cz_test_allocations_made(), made);
    cz_optim_destroy(&optim);
}

static int prepare_calls;

static void count_and_prepare(const cz_rule_step *s, double *coefficients, unsigned *flags)
{
    prepare_calls++;
    cz_rule_adamw()->prepare(s, coefficients, flags);
}

/* 10,000 tiny parameters, half of which are a step behind: coefficients once per step count. */
TEST(many_tiny_parameters)
{
    enum { MANY = 10000, EACH = 3, STEPS = 6 };
    static float p[MANY * EACH], g[MANY * EACH];
    static int64_t sizes[MANY];
    cz_model *another;
    cz_optim *optim;
    cz_rule rule = *cz_rule_adamw();
    double best = 1;
    rule.prepare = count_and_prepare;
    for (int i = 0; i < MANY; i++)
        sizes[i] = EACH;
    assert_ok(cz_model_create(&another));
    assert_ok(cz_model_add_flat(another, p, g, CZ_F32, MANY, NULL, sizes));
    assert_ok(cz_optim_create(&optim, another, &rule, NULL, NULL));
    for (int i = 0; i < MANY; i += 2)
        assert_ok(cz_model_set_gradient(another, i, NULL));
    step(optim);
    for (int i = 0; i < MANY; i += 2)
        assert_ok(cz_model_set_gradient(another, i, g + (ptrdiff_t)i * EACH));
    for (int s = 1; s < STEPS; s++) {
        const double begin = cz__seconds();
        step(optim);
        best = fmin(best, cz__seconds() - begin);
    }
    assert_int_equal(prepare_calls, STEPS);
    print_message("one step of %d parameters: %.3f ms\n", MANY, best * 1e3);
    cz_optim_destroy(&optim);
    cz_model_destroy(&another);
}
