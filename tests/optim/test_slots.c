/* SPDX-License-Identifier: MIT */
/* Slots: what they start with and when, scalars of a parameter, and state that is set from
 * outside. */
#include "optim/two_params.h"
#include "optim/optim.h"

static float scalar_of(const cz_optim *optim, int64_t param, const char *slot)
{
    double value = 0;
    assert_ok(cz_optim_scalar(optim, param, slot, &value));
    return (float)value;
}

/* Adagrad's sum is there from creation on; of a frozen parameter, from when it is unfrozen on. */
TEST(state_at_create)
{
    cz_optim *optim;
    assert_ok(cz_model_set_requires_grad(model, 1, false));
    assert_ok(cz_optim_create(&optim, model, cz_rule_adagrad(),
                              CZ_HYPERS({"initial_accumulator_value", 0.5}), NULL));
    assert_true(state_of(optim, 0, "sum") == 0.5f && isnan(state_of(optim, 1, "sum")));
    assert_int_equal(cz__optim_step_count(optim, 0), 0);
    step(optim);
    assert_true(state_of(optim, 0, "sum") == 1.5f && isnan(state_of(optim, 1, "sum")));
    assert_ok(cz_model_set_requires_grad(model, 1, true));
    assert_ok(cz_optim_set_hyper(optim, 0, "initial_accumulator_value", 2));
    assert_ok(cz_model_set_gradient(model, 1, NULL));
    step(optim);
    assert_true(state_of(optim, 0, "sum") == 2.5f && state_of(optim, 1, "sum") == 2);
    assert_int_equal(cz__optim_step_count(optim, 1), 0);
    cz_optim_destroy(&optim);
}

/* Rprop's step sizes start with the learning rate of each parameter's first step, and not again. */
TEST(initial_value_at_the_first_step)
{
    cz_optim *optim;
    assert_ok(cz_optim_create(&optim, model, cz_rule_rprop(), CZ_HYPERS({"lr", 0.25}), NULL));
    assert_true(isnan(state_of(optim, 0, "step_size")));
    assert_ok(cz_model_set_gradient(model, 1, NULL));
    step(optim);
    assert_true(state_of(optim, 0, "step_size") == 0.25f && values[0][N - 1] == 0.75f);
    assert_true(isnan(state_of(optim, 1, "step_size")));
    assert_ok(cz_optim_set_hyper(optim, 0, "lr", 0.5));
    assert_ok(cz_model_set_gradient(model, 1, grads[1]));
    step(optim);
    assert_true(state_of(optim, 0, "step_size") == 0.25f * 1.2f);
    assert_true(state_of(optim, 1, "step_size") == 0.5f && values[1][0] == 0.5f);
    cz_optim_destroy(&optim);
}

TEST(scalars)
{
    cz_optim *optim, *adam;
    double value;
    assert_ok(cz_optim_create(&optim, model, cz_rule_nadam(), NULL, NULL));
    assert_ok(cz_optim_create(&adam, model, cz_rule_adam(), NULL, NULL));
    assert_true(isnan(scalar_of(optim, 0, "mu_product")));
    assert_ok(cz_model_set_gradient(model, 1, NULL));
    step(optim);
    assert_true(scalar_of(optim, 0, "mu_product") == 0x1.cce01p-2f); /* as recorded */
    assert_true(isnan(scalar_of(optim, 1, "mu_product")));
    step(optim);
    assert_true(scalar_of(optim, 0, "mu_product") == 0x1.9eec54p-3f);
    assert_int_equal(cz_optim_scalar(optim, 0, "exp_avg", &value), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "optim scalar: nadam has no scalar slot 'exp_avg'");
    assert_true(scalar_of(optim, 0, "step") == 2 && scalar_of(optim, 1, "step") == 0);
    assert_true(scalar_of(adam, 0, "step") == 0);
    assert_int_equal(cz_optim_scalar(optim, 2, "mu_product", &value), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_scalar(optim, -1, "mu_product", &value), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_scalar(optim, 0, NULL, &value), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_scalar(optim, 0, "mu_product", NULL), CZ_ERR_ARGUMENT);
    cz_optim_destroy(&adam);
    cz_optim_destroy(&optim);
}

/* State moves to another optimizer, a frozen parameter's too, and the training goes on alike. */
TEST(state_from_outside)
{
    float kept[2][N], after[2][N];
    cz_optim *first, *second;
    assert_ok(cz_optim_create(&first, model, cz_rule_nadam(), NULL, NULL));
    step(first);
    assert_ok(cz_model_set_requires_grad(model, 1, false));
    step(first);
    assert_ok(cz_optim_create(&second, model, cz_rule_nadam(), NULL, NULL));
    assert_int_equal(cz__optim_state_bytes(second),
                     2 * sizeof kept[0]); /* none for what is frozen */
    cz_state_dict *dict;
    assert_ok(cz_optim_state_dict(first, &dict));
    assert_ok(cz_optim_load_state_dict(second, dict, NULL));
    cz_state_dict_destroy(&dict);
    assert_int_equal(cz__optim_state_bytes(second), 4 * sizeof kept[0]);
    assert_ok(cz_model_set_requires_grad(model, 1, true));
    memcpy(kept, values, sizeof kept);
    step(first);
    memcpy(after, values, sizeof after);
    memcpy(values, kept, sizeof kept);
    step(second);
    assert_memory_equal(values, after, sizeof after);
    for (int p = 0; p < 2; p++) {
        assert_int_equal(cz__optim_step_count(second, p), p ? 2 : 3);
        assert_true(state_of(second, p, "exp_avg") == state_of(first, p, "exp_avg"));
        assert_true(scalar_of(second, p, "mu_product") == scalar_of(first, p, "mu_product"));
    }
    cz_optim_destroy(&second);
    cz_optim_destroy(&first);
}

/* A rule may list its step count anywhere: a dictionary without it is not complete. */
static unsigned both_moments(const double *hypers)
{
    return 7;
}

TEST(the_step_is_not_the_first_slot)
{
    static const cz_slot_spec slots[] = {{"exp_avg", CZ_SLOT_ELEMENT, 0, NULL},
                                         {"exp_avg_sq", CZ_SLOT_ELEMENT, 0, NULL},
                                         {"step", CZ_SLOT_SCALAR, 0, NULL}};
    cz_rule rule = *cz_rule_adam();
    rule.slots = slots;
    rule.slot_count = 3;
    rule.slots_used = both_moments;
    for (int s = 0; s < 3; s++) {
        char sentence[64];
        cz_optim *optim;
        cz_state_dict *dict;
        const cz_state_dict *entry;
        assert_ok(cz_optim_create(&optim, model, &rule, NULL, NULL));
        step(optim);
        assert_ok(cz_optim_state_dict(optim, &dict));
        assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
        assert_ok(cz_state_dict_get_dict(dict, "state", &entry));
        assert_ok(cz_state_dict_get_dict(entry, "b", &entry));
        assert_ok(cz_state_dict_remove((cz_state_dict *)entry, slots[s].name));
        assert_int_equal(cz_optim_load_state_dict(optim, dict, NULL), CZ_ERR_ARGUMENT);
        snprintf(sentence, sizeof sentence, "load: parameter 'b' has no '%s'", slots[s].name);
        assert_string_equal(cz_last_error(), sentence);
        cz_state_dict_destroy(&dict);
        cz_optim_destroy(&optim);
    }
}
