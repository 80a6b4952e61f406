/* SPDX-License-Identifier: MIT */
/* What upstream's NamedOptimizer is for: state by the names of parameters, groups found by their
 * members, and a fresh optimizer that takes a dictionary without having stepped. */
#include "optim/two_params.h"

#include "czero/state.h"
#include "optim/optim.h"

/* Groups of one parameter each, with an empty one at a place; group of `a` first, or that of
 * `b`. */
static cz_optim *make_groups(bool b_first, int empty, double lr_a, double lr_b)
{
    static const int64_t params[] = {0, 1};
    const cz_hyper *of_a = CZ_HYPERS({"lr", lr_a}, {"weight_decay", 0.5}),
                   *of_b = CZ_HYPERS({"lr", lr_b});
    cz_param_group groups[3];
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_optim *optim;
    for (int k = 0, member = b_first; k < 3; k++) {
        groups[k] = (cz_param_group)CZ_PARAM_GROUP_INIT;
        if (k == empty)
            continue;
        groups[k].params = &params[member];
        groups[k].param_count = 1;
        groups[k].hypers = member ? of_b : of_a;
        member = !member;
    }
    options.groups = groups;
    options.group_count = 3;
    assert_ok(cz_optim_create(&optim, model, cz_rule_adam(), NULL, &options));
    return optim;
}

static double lr_of(const cz_optim *optim, int64_t param)
{
    double lr = NAN;
    for (int64_t g = 0; g < cz__optim_group_count(optim); g++)
        if (cz__optim_group_param(optim, g, 0) == param)
            assert_ok(cz_optim_get_hyper(optim, g, "lr", &lr));
    return lr;
}

TEST(groups_are_found_by_their_members)
{
    for (int k = 0; k < 9; k++) {
        cz_state_dict *dict;
        cz_optim *optim = make_groups(false, k / 3, 0.25, 0.125);
        step(optim);
        assert_ok(cz_optim_state_dict(optim, &dict));
        float wanted[2][N], begun[2][N];
        memcpy(begun, values, sizeof begun);
        step(optim);
        memcpy(wanted, values, sizeof wanted);
        cz_optim_destroy(&optim);

        memcpy(values, begun, sizeof values);
        optim = make_groups(true, k % 3, 1, 2);
        assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
        assert_true(lr_of(optim, 0) == 0.25 && lr_of(optim, 1) == 0.125);
        step(optim);
        assert_memory_equal(values, wanted, sizeof values);
        cz_state_dict_destroy(&dict);
        cz_optim_destroy(&optim);
    }
}

static cz_state_dict *entry(const cz_state_dict *dict, const char *first, const char *second)
{
    assert_ok(cz_state_dict_get_dict(dict, first, &dict));
    assert_ok(cz_state_dict_get_dict(dict, second, &dict));
    return (cz_state_dict *)dict;
}

/* Members dealt out otherwise are no order: refused, with what is where. */
TEST(other_members_are_refused)
{
    static const struct {
        const char *first[2], *second[2];
        int64_t first_count, second_count;
        const char *sentence;
    } cases[] = {
        {{"a"}, {"a"}, 1, 1, "group 1 has 1 parameters in the dictionary, 0 here"},
        {{"a", "b"}, {NULL}, 2, 0, "group 0 has 2 parameters in the dictionary, 1 here"},
        {{"c"}, {"b"}, 1, 1, "'c' of group 0 is not in the model"},
    };
    cz_optim *optim = make_groups(false, 1, 0.25, 0.125);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        cz_state_dict *dict;
        assert_ok(cz_optim_state_dict(optim, &dict));
        assert_ok(cz_state_dict_set_texts(entry(dict, "param_groups", "0"), "params",
                                          cases[k].first, cases[k].first_count));
        assert_ok(cz_state_dict_set_texts(entry(dict, "param_groups", "1"), "params",
                                          cases[k].second, cases[k].second_count));
        assert_ok(cz_state_dict_set_texts(entry(dict, "param_groups", "2"), "params", NULL, 0));
        assert_int_equal(cz_optim_load_state_dict(optim, dict, NULL), CZ_ERR_ARGUMENT);
        if (!strstr(cz_last_error(), cases[k].sentence))
            fail_msg("case %d: '%s'", (int)k, cz_last_error());
        cz_state_dict_destroy(&dict);
    }
    cz_optim_destroy(&optim);
}

TEST(members_in_another_group_are_refused)
{
    static float memory[4];
    static const int64_t params[] = {0, 1, 2, 3}, one = 1;
    const cz_param_group groups[] = {
        {.size = sizeof(cz_param_group), .params = params, .param_count = 2, .hypers = NULL},
        {.size = sizeof(cz_param_group), .params = params + 2, .param_count = 2, .hypers = NULL}};
    const cz_optim_options options = {sizeof options, groups, 2, 0, 0};
    cz_model *another;
    cz_optim *optim;
    cz_state_dict *dict;
    assert_ok(cz_model_create(&another));
    for (int p = 0; p < 4; p++)
        assert_ok(cz_model_add(another, (const char[]){(char)('a' + p), 0}, &memory[p], NULL,
                               CZ_F32, 1, &one));
    assert_ok(cz_optim_create(&optim, another, cz_rule_adam(), NULL, &options));
    assert_ok(cz_optim_state_dict(optim, &dict));
    assert_ok(cz_state_dict_set_texts(entry(dict, "param_groups", "0"), "params",
                                      (const char *[]){"c", "a"}, 2));
    assert_ok(cz_state_dict_set_texts(entry(dict, "param_groups", "1"), "params",
                                      (const char *[]){"b", "d"}, 2));
    assert_int_equal(cz_optim_load_state_dict(optim, dict, NULL), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "'d' is in group 1 of the dictionary, which is group "
                                            "0 here, and here in group 1"));
    cz_state_dict_destroy(&dict);
    cz_optim_destroy(&optim);
    cz_model_destroy(&another);
}

/* Upstream wants a step first, with gradients of zero, which changes parameters that decay. */
TEST(a_fresh_optimizer_takes_a_dictionary)
{
    cz_state_dict *dict;
    cz_optim *optim = make_groups(false, 2, 0.25, 0.125);
    step(optim);
    step(optim);
    assert_ok(cz_optim_state_dict(optim, &dict));
    cz_optim_destroy(&optim);
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < N; i++)
            values[p][i] = 7;
    optim = make_groups(false, 2, 0.25, 0.125);
    assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < N; i++)
            assert_true(values[p][i] == 7);
    assert_int_equal(cz__optim_step_count(optim, 0), 2);
    cz_state_dict_destroy(&dict);
    cz_optim_destroy(&optim);
}

/* A dictionary of some parameters only: the others begin, those go on. */
TEST(parameters_that_are_not_in_it)
{
    cz_state_dict *dict;
    const cz_state_dict *inner;
    cz_optim *optim = make_groups(false, 2, 0.25, 0.125);
    step(optim);
    assert_ok(cz_optim_state_dict(optim, &dict));
    assert_ok(cz_state_dict_get_dict(dict, "state", &inner));
    assert_ok(cz_state_dict_remove((cz_state_dict *)inner, "a"));
    const float moment = state_of(optim, 1, "exp_avg");
    step(optim);
    assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
    assert_int_equal(cz__optim_step_count(optim, 0), 0);
    assert_true(isnan(state_of(optim, 0, "exp_avg")));
    assert_int_equal(cz__optim_step_count(optim, 1), 1);
    assert_true(state_of(optim, 1, "exp_avg") == moment);

    /* now `a` has the bits of a first step */
    float begun[N];
    memcpy(begun, values[0], sizeof begun);
    step(optim);
    float after[N];
    memcpy(after, values[0], sizeof after);
    memcpy(values[0], begun, sizeof begun);
    cz_optim *fresh = make_groups(false, 2, 0.25, 0.125);
    step(fresh);
    assert_memory_equal(values[0], after, sizeof after);
    cz_optim_destroy(&fresh);
    cz_state_dict_destroy(&dict);
    cz_optim_destroy(&optim);
}

/* ---- or the dictionary must not lack any, or those that it lacks go on ---- */

/* Of this rule after some steps; without the state of `a`. */
static cz_state_dict *without_a(cz_optim *optim)
{
    cz_state_dict *dict;
    assert_ok(cz_optim_state_dict(optim, &dict));
    const cz_state_dict *inner;
    assert_ok(cz_state_dict_get_dict(dict, "state", &inner));
    assert_ok(cz_state_dict_remove((cz_state_dict *)inner, "a"));
    return dict;
}

static cz_optim *make_optim(const cz_rule *rule)
{
    cz_optim *optim;
    assert_ok(cz_optim_create(&optim, model, rule, CZ_HYPERS({"lr", 0.125}), NULL));
    return optim;
}

/* The state of `a` from one optimizer, that of `b` from another: each goes on with its own bits. */
static void keep_with(const cz_rule *rule)
{
    const cz_optim_load_options keep = {sizeof keep, CZ_MISSING_KEEP, 0};
    float of_a[N], of_b[N], begun[N];
    cz_optim *one = make_optim(rule), *other = make_optim(rule);
    step(one);
    cz_state_dict *dict = without_a(one);
    memcpy(begun, values[1], sizeof begun);
    step(one);
    memcpy(of_b, values[1], sizeof of_b);

    for (int k = 0; k < 3; k++)
        step(other);
    memcpy(values[1], begun, sizeof begun);
    float before[N];
    memcpy(before, values[0], sizeof before);
    cz_state_dict *all;
    assert_ok(cz_optim_state_dict(other, &all));
    step(other);
    memcpy(of_a, values[0], sizeof of_a);
    assert_ok(cz_optim_load_state_dict(other, all, NULL));

    memcpy(values[0], before, sizeof before);
    memcpy(values[1], begun, sizeof begun);
    assert_ok(cz_optim_load_state_dict(other, dict, &keep));
    assert_int_equal(cz__optim_step_count(other, 0), 3);
    assert_int_equal(cz__optim_step_count(other, 1), 1);
    step(other);
    assert_memory_equal(values[0], of_a, sizeof of_a);
    assert_memory_equal(values[1], of_b, sizeof of_b);
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&all);
    cz_optim_destroy(&one);
    cz_optim_destroy(&other);
}

TEST(missing_state_is_kept)
{
    keep_with(cz_rule_adam());
    keep_with(cz_rule_nadam()); /* has a scalar */
    keep_with(cz_rule_adagrad());
}

TEST(missing_state_is_refused)
{
    cz_optim_load_options refuse = {sizeof refuse, CZ_MISSING_REFUSE, 0};
    cz_optim *optim = make_optim(cz_rule_adam());
    step(optim);
    cz_state_dict *dict = without_a(optim), *before, *after;
    step(optim);
    assert_ok(cz_optim_state_dict(optim, &before));
    assert_int_equal(cz_optim_load_state_dict(optim, dict, &refuse), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "has no state of 1 parameters: 'a'"));
    assert_ok(cz_optim_state_dict(optim, &after));
    assert_true(cz_state_dict_equal(before, after));
    assert_ok(cz_optim_load_state_dict(optim, before, &refuse));

    assert_ok(cz_model_set_requires_grad(model, 0, false)); /* needs none */
    assert_ok(cz_optim_load_state_dict(optim, dict, &refuse));
    assert_int_equal(cz__optim_step_count(optim, 0), 0);
    refuse.missing = (cz_missing_state)3;
    assert_int_equal(cz_optim_load_state_dict(optim, dict, &refuse), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "missing is 3"));
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&before);
    cz_state_dict_destroy(&after);
    cz_optim_destroy(&optim);
}
