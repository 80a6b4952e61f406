/* SPDX-License-Identifier: MIT */
/* What upstream's optimizers do by accident, done otherwise: docs/pytorch-differences.md. */
#include "optim/two_params.h"

#include "czero/state.h"
#include "optim/optim.h"

static cz_state_dict *dict_of(const cz_optim *optim)
{
    cz_state_dict *dict;
    assert_ok(cz_optim_state_dict(optim, &dict));
    return dict;
}

static cz_state_dict *at(const cz_state_dict *dict, const char *first, const char *second)
{
    const cz_state_dict *inner;
    assert_ok(cz_state_dict_get_dict(dict, first, &inner));
    assert_ok(cz_state_dict_get_dict(inner, second, &inner));
    return (cz_state_dict *)inner;
}

/* Upstream counts steps in f32, where 2^24 + 1 does not exist: the count would stay there for
 * ever. */
TEST(counts_beyond_f32)
{
    static const int64_t counts[] = {(1 << 24) - 1, 1 << 24, INT64_C(1) << 31, INT64_C(1) << 53};
    for (int k = 0; k < 4; k++) {
        cz_optim *optim;
        int64_t saved;
        assert_ok(cz_optim_create(&optim, model, cz_rule_adam(), NULL, NULL));
        step(optim);
        cz_state_dict *dict = dict_of(optim);
        assert_ok(cz_state_dict_set_integer(at(dict, "state", "a"), "step", counts[k]));
        assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
        cz_state_dict_destroy(&dict);
        step(optim);
        step(optim);
        assert_int_equal(cz__optim_step_count(optim, 0), counts[k] + 2);
        dict = dict_of(optim);
        assert_ok(cz_state_dict_get_integer(at(dict, "state", "a"), "step", &saved));
        assert_int_equal(saved, counts[k] + 2);
        cz_state_dict_destroy(&dict);
        cz_optim_destroy(&optim);
    }
}

/* A slot that is not in use is not in the dictionary: upstream stores a momentum_buffer that is
 * null. */
TEST(nothing_is_saved_of_nothing)
{
    cz_optim *optim = make_sgd(model, 0);
    step(optim);
    cz_state_dict *dict = dict_of(optim);
    assert_int_equal(cz_state_dict_kind(at(dict, "state", "a"), "momentum_buffer"), CZ_STATE_NONE);
    cz_state_dict_destroy(&dict);
    cz_optim_destroy(&optim);
}

/* Upstream puts the dictionary's options in the place of those that are there: what is missing is
 * gone, and an error later on. */
TEST(values_not_listed_stay)
{
    cz_optim *optim = make_sgd(model, 0.5);
    double momentum, lr;
    step(optim);
    cz_state_dict *dict = dict_of(optim);
    assert_ok(cz_state_dict_remove(at(dict, "param_groups", "0"), "momentum"));
    assert_ok(cz_state_dict_set_real(at(dict, "param_groups", "0"), "lr", 0.25));
    assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
    assert_ok(cz_optim_get_hyper(optim, 0, "momentum", &momentum));
    assert_ok(cz_optim_get_hyper(optim, 0, "lr", &lr));
    assert_true(momentum == 0.5 && lr == 0.25);
    step(optim);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1.5f);
    cz_state_dict_destroy(&dict);
    cz_optim_destroy(&optim);
}

/* Upstream's Adagrad makes state for all parameters; here frozen ones have none until they are
 * unfrozen, and begin with the same value then. */
TEST(adagrad_of_frozen_ones)
{
    cz_optim *optim;
    assert_ok(cz_model_set_requires_grad(model, 1, false));
    assert_ok(cz_optim_create(&optim, model, cz_rule_adagrad(),
                              CZ_HYPERS({"initial_accumulator_value", 0.5}), NULL));
    assert_true(state_of(optim, 0, "sum") == 0.5f);
    assert_true(isnan(state_of(optim, 1, "sum")));
    assert_int_equal(cz__optim_state_bytes(optim), N * sizeof(float));
    assert_ok(cz_model_set_requires_grad(model, 1, true));
    step(optim);
    assert_true(state_of(optim, 1, "sum") == 1.5f);
    cz_optim_destroy(&optim);
}

/* Upstream's sharded optimizer knows only what the program gave of what a new group begins with. */
TEST(defaults)
{
    cz_model *matrix;
    const char *name;
    assert_ok(cz_model_create(&matrix)); /* of a matrix, which all of them take */
    assert_ok(cz_model_add(matrix, "a", values[0], grads[0], CZ_F32, 2, (int64_t[]){1, N}));
    for (int k = 0; (name = cz_rule_name(k)); k++) {
        const cz_rule *rule = cz_rule_find(name);
        cz_optim *optim;
        assert_ok(cz_optim_create(&optim, matrix, rule, CZ_HYPERS({"lr", 0.25}), NULL));
        assert_ok(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "lr", 0.5));
        for (int h = 0; h < rule->hyper_count; h++) {
            const bool given = strcmp(rule->hypers[h].name, "lr") == 0;
            double value = 0;
            assert_ok(cz_optim_get_hyper(optim, CZ_ALL_GROUPS, rule->hypers[h].name, &value));
            assert_true(value == (given ? 0.25 : rule->hypers[h].initial));
        }
        assert_ptr_equal(cz__optim_rule(optim), rule);
        double value = 0;
        assert_int_equal(cz_optim_get_hyper(optim, CZ_ALL_GROUPS, "speed", &value),
                         CZ_ERR_ARGUMENT);
        assert_int_equal(cz_optim_get_hyper(optim, CZ_ALL_GROUPS, NULL, &value), CZ_ERR_ARGUMENT);
        cz_optim_destroy(&optim);
    }
    cz_model_destroy(&matrix);
    assert_null(cz__optim_rule(NULL));
}
