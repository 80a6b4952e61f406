/* SPDX-License-Identifier: MIT */
/* Rules of the caller's own in one process: what is refused and in which words; the argument, the
 * beginning and the gradients of a step; whole tensors and their scratch memory. */
#include "optim/two_params.h"
#include "support/training.h"
#include "optim/optim.h"

static void expect_refusal(const cz_rule *rule, cz_status wanted, const char *sentence)
{
    cz_optim *optim;
    assert_int_equal(cz_optim_create(&optim, model, rule, NULL, NULL), wanted);
    assert_string_equal(cz_last_error(), sentence);
    assert_null(optim);
}

static cz_update_kernel no_kernel(const cz_device *device, cz_dtype param, cz_dtype grad,
                                  cz_dtype state, void *context)
{
    return NULL;
}

static cz_sums_kernel no_sums(const cz_device *device, cz_dtype param, cz_dtype grad,
                              cz_dtype state, void *context)
{
    return NULL;
}

static cz_status not_b(const cz_tensor *param, void *context)
{
    return param->data == values[1] ? cz_fail(CZ_ERR_UNSUPPORTED, "%s", (const char *)context)
                                    : CZ_OK;
}

TEST(what_is_refused)
{
    static char words[] = "only a";
    char sentence[128];
    snprintf(sentence, sizeof sentence,
             "rule: ABI %u of 7 bytes, this library takes %u of at least %zu", CZ_RULE_ABI + 1,
             CZ_RULE_ABI, offsetof(cz_rule, granule));
    cz_rule rule = *cz_test_probe_rule();
    rule.find_kernel = no_kernel;
    expect_refusal(&rule, CZ_ERR_UNSUPPORTED,
                   "optim: parameter 'a': device cpu has no kernel of rule probe for f32");
    rule.find_kernel = NULL; /* of that name */
    expect_refusal(&rule, CZ_ERR_UNSUPPORTED,
                   "optim: parameter 'a': device cpu has no kernel of rule probe for f32");
    rule = *cz_test_probe_rule();
    rule.find_sums = no_sums;
    expect_refusal(
        &rule, CZ_ERR_UNSUPPORTED,
        "optim: parameter 'a': device cpu has no kernel of rule probe for f32's partial sums");
    rule = *cz_test_probe_rule();
    rule.check_param = not_b;
    rule.context = words;
    expect_refusal(&rule, CZ_ERR_UNSUPPORTED, "optim: parameter 'b': only a");
    rule.abi++; /* tables are checked: test_hyper has the rest */
    rule.size = 7;
    expect_refusal(&rule, CZ_ERR_UNSUPPORTED, sentence);
}

/* ---- the argument of a step ---- */

TEST(argument)
{
    const double half = 0.5, two = 2;
    cz_optim *optim;
    cz_rule rule = *cz_test_probe_rule();
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    float moves[4];
    assert_ok(cz_optim_create(&optim, model, &rule, NULL, NULL));
    const void *arguments[] = {&half, NULL, &two, &half};
    for (int s = 0; s < 4; s++) {
        values[0][3] = 1; /* the same step again, but for argument and step count */
        options.argument = arguments[s];
        assert_ok(cz_optim_step(optim, &options, NULL));
        moves[s] = (1 - values[0][3]) * (float)(s + 1);
    }
    assert_true(moves[0] > 0 && moves[1] > 1.5f * moves[0] && moves[2] > 1.5f * moves[1] &&
                moves[3] < 0.5f * moves[2]);
    cz_optim_destroy(&optim);
}

/* ---- the beginning of a step ---- */

static cz_status counts(struct cz_optim *optim, const void *argument, void *context)
{
    int *calls = context;
    if (argument)
        return CZ_ERR_IO; /* without a word */
    return cz_optim_set_hyper(optim, 0, "momentum", ++*calls > 1 ? 0.5 : 0);
}

/* A slot that the beginning makes necessary is there in the same step. */
TEST(beginning)
{
    int calls = 0;
    cz_optim *optim;
    cz_rule rule = *cz_rule_sgd();
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    rule.begin_step = counts;
    rule.context = &calls;
    assert_ok(cz_optim_create(&optim, model, &rule, CZ_HYPERS({"lr", 0.5}), NULL));
    step(optim);
    assert_true(calls == 1 && isnan(state_of(optim, 0, "momentum_buffer")));
    step(optim);
    assert_true(calls == 2 && state_of(optim, 0, "momentum_buffer") == 1);
    options.argument = "anything";
    assert_int_equal(cz_optim_step(optim, &options, NULL), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "sgd: CZ_ERR_IO");
    assert_int_equal(cz__optim_step_count(optim, 0), 2);
    cz_optim_destroy(&optim);
}

/* ---- gradients given to a step ---- */

TEST(given_gradients)
{
    static float given[N];
    void *gradients[] = {NULL, given};
    cz_optim *optim = make_sgd(model, 0);
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    for (int i = 0; i < N; i++)
        given[i] = 4;
    options.gradients = gradients;
    for (int64_t count = 0; count < 4; count++) {
        options.gradient_count = count;
        if (count != 2)
            assert_int_equal(cz_optim_step(optim, &options, NULL), CZ_ERR_ARGUMENT);
    }
    assert_string_equal(cz_last_error(), "step: gradient_count is 3, wanted is 2, the number of "
                                         "parameters of the model");
    options.gradient_count = 2;
    assert_ok(cz_model_set_gradient(model, 1, NULL)); /* the model's do not count */
    assert_ok(cz_optim_step(optim, &options, NULL));
    assert_true(values[0][0] == 1 && values[1][0] == -1 && values[1][N - 1] == -1);
    assert_true(cz__optim_step_count(optim, 0) == 0 && cz__optim_step_count(optim, 1) == 1);
    options.gradients = NULL;
    assert_int_equal(cz_optim_step(optim, &options, NULL), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(),
                        "step: gradient_count is 2, wanted is 0 where gradients is NULL");
    step(optim); /* the model's again */
    assert_true(values[0][0] == 0.5f && values[1][0] == -1);
    cz_optim_destroy(&optim);
}

/* ---- whole tensors ---- */

static size_t as_large(const cz_tensor *param, void *context)
{
    return (size_t)cz_tensor_count(param) * sizeof(float);
}

/* Through the scratch memory, which is aligned and large enough. */
static void reverse(const cz_tensor_update *update)
{
    const int64_t count = cz_tensor_count(update->param);
    float *p = update->param->data, *scratch = update->scratch, *seen = update->slots[0];
    assert_int_equal((uintptr_t)scratch % 64, 0);
    for (int64_t i = 0; i < count; i++)
        scratch[i] = p[i];
    for (int64_t i = 0; i < count; i++) {
        p[i] = scratch[count - 1 - i] +
               (float)update->coefficients[0] * ((const float *)update->grad)[i];
        seen[i] = seen[i] + (update->flags & CZ_UPDATE_FIRST ? 10 : 1);
    }
}

static unsigned one_slot(const double *hypers)
{
    return 1;
}

static void step_as_coefficient(const cz_rule_step *s, double *coefficients, unsigned *flags)
{
    coefficients[0] = (double)s->step;
}

static const cz_slot_spec seen_slot[] = {{"seen", CZ_SLOT_ELEMENT, 3, NULL}};

static cz_rule reversing_rule(void)
{
    return (cz_rule){
        .abi = CZ_RULE_ABI,
        .size = sizeof(cz_rule),
        .name = "reverse",
        .slot_size = sizeof(cz_slot_spec),
        .slot_count = 1,
        .slots = seen_slot,
        .slots_used = one_slot,
        .prepare = step_as_coefficient,
        .update_tensor = reverse,
        .scratch_bytes = as_large,
    };
}

TEST(whole_tensors)
{
    const cz_rule rule = reversing_rule();
    cz_optim *optim;
    assert_ok(cz_model_set_requires_grad(model, 1, false));
    assert_ok(cz_optim_create(&optim, model, &rule, NULL, NULL));
    for (int i = 0; i < N; i++)
        values[0][i] = (float)i;
    step(optim);
    assert_true(values[0][0] == N && values[0][N - 1] == 1 && values[1][0] == 1);
    assert_true(state_of(optim, 0, "seen") == 13 && isnan(state_of(optim, 1, "seen")));
    const int64_t made = cz_test_allocations_made();
    step(optim);
    assert_int_equal(cz_test_allocations_made(), made);
    assert_true(values[0][0] == 3 && state_of(optim, 0, "seen") == 14);
    cz_optim_destroy(&optim);
}

/* They are given their slots as they are, so these are of the value's type. */
TEST(whole_tensors_have_no_narrow_state)
{
    const cz_rule rule = reversing_rule();
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_optim *optim;
    options.state_dtype = CZ_BF16;
    assert_int_equal(cz_optim_create(&optim, model, &rule, NULL, &options), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "state_dtype of parameter group 0 is bf16"));
}

/* ---- memory ---- */

static void try_without_memory(const cz_rule *rule)
{
    const int64_t held = cz_test_allocations_held();
    int64_t failures = 0;
    for (int64_t n = 1;; n++) {
        cz_optim *optim;
        cz_test_fail_allocation(n);
        const cz_status status = cz_optim_create(&optim, model, rule, NULL, NULL);
        const bool failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_true(failed == !optim);
        cz_optim_destroy(&optim);
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed)
            break;
        failures++;
    }
    assert_true(failures > 15);
}

TEST(every_allocation_fails_in_turn)
{
    const cz_rule rule = reversing_rule();
    try_without_memory(cz_test_probe_rule());
    try_without_memory(&rule);
}
