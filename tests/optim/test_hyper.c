/* SPDX-License-Identifier: MIT */
/* Hyper-parameters while training: values that bring slots and take them away, what is refused. */
#include "optim/two_params.h"

#include <time.h>

/* Momentum comes after three steps, and goes again: its first use copies the gradient, whatever the
 * step count; while it is off the buffer keeps what it holds. */
TEST(momentum_comes_and_goes)
{
    cz_optim *optim = make_sgd(model, 0);
    for (int i = 0; i < 3; i++)
        step(optim);
    assert_int_equal(cz__optim_state_bytes(optim), 0);
    assert_true(isnan(state_of(optim, 0, "momentum_buffer")));
    assert_ok(cz_optim_set_hyper(optim, 0, "dampening", 0.5));
    assert_ok(cz_optim_set_hyper(optim, 0, "momentum", 0.5));
    assert_int_equal(cz__optim_state_bytes(optim), 2 * N * 4);
    assert_true(isnan(state_of(optim, 0, "momentum_buffer")));
    step(optim);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1); /* not 0.5: no dampening at first */
    step(optim);
    assert_true(state_of(optim, 0, "momentum_buffer") == 1); /* 0.5 + 0.5 */
    assert_ok(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "momentum", 0));
    values[0][0] = 1;
    step(optim);
    assert_true(values[0][0] == 0.5f && state_of(optim, 0, "momentum_buffer") == 1);
    assert_ok(cz_optim_set_hyper(optim, 0, "momentum", 0.25));
    step(optim);
    assert_true(state_of(optim, 0, "momentum_buffer") == 0.75f); /* 0.25 + 0.5: not the first use */
    assert_int_equal(cz__optim_state_bytes(optim), 2 * N * 4);
    cz_optim_destroy(&optim);
}

TEST(amsgrad_comes_late)
{
    cz_optim *optim;
    assert_ok(cz_optim_create(&optim, model, cz_rule_adam(), NULL, NULL));
    step(optim);
    const float second = state_of(optim, 0, "exp_avg_sq");
    assert_true(isnan(state_of(optim, 0, "max_exp_avg_sq")));
    assert_ok(cz_optim_set_hyper(optim, 0, "amsgrad", 1));
    assert_int_equal(cz__optim_state_bytes(optim), 6 * N * 4);
    assert_true(state_of(optim, 0, "exp_avg_sq") == second); /* the others stay where they are */
    step(optim);
    assert_true(state_of(optim, 0, "exp_avg_sq") > second);
    assert_true(state_of(optim, 0, "max_exp_avg_sq") == state_of(optim, 0, "exp_avg_sq"));
    cz_optim_destroy(&optim);
}

TEST(set_and_get_hyper)
{
    const cz_param_group groups[] = {
        {sizeof groups[0], (int64_t[]){0}, 1, NULL},
        {sizeof groups[0], (int64_t[]){1}, 1, CZ_HYPERS({"momentum", 0.9}, {"nesterov", 1})}};
    const cz_optim_options options = {sizeof options, groups, 2, 0, 0};
    cz_optim *optim;
    double value = -1;
    assert_ok(cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), &options));
    /* the second group refuses, so the first stays too */
    assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "momentum", 0), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "dampening", 0.5), CZ_ERR_ARGUMENT);
    assert_ok(cz_optim_get_hyper(optim, 0, "dampening", &value));
    assert_true(value == 0);
    assert_ok(cz_optim_set_hyper(optim, 0, "dampening", 0.5));
    assert_ok(cz_optim_get_hyper(optim, 0, "dampening", &value));
    assert_true(value == 0.5);
    for (int n = 1; n <= 2; n++) {
        cz_test_fail_allocation(n);
        assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "momentum", 0.7), CZ_ERR_MEMORY);
        assert_true(cz_test_allocation_reset());
        assert_ok(cz_optim_get_hyper(optim, 1, "momentum", &value));
        assert_true(value == 0.9);
        step(optim); /* still without a buffer for the first */
    }
    assert_ok(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "momentum", 0.7));
    assert_ok(cz_optim_get_hyper(optim, 0, "momentum", &value));
    assert_true(value == 0.7);
    assert_int_equal(cz_optim_set_hyper(optim, 0, "lr", NAN), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_set_hyper(optim, 0, "rate", 1), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "'rate' (it has lr, momentum"));
    assert_int_equal(cz_optim_set_hyper(optim, 0, NULL, 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_set_hyper(optim, 2, "lr", 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_set_hyper(optim, -2, "lr", 1), CZ_ERR_ARGUMENT);
    double of_a_new_group = 0;
    assert_ok(cz_optim_get_hyper(optim, CZ_ALL_GROUPS, "lr", &of_a_new_group));
    assert_true(of_a_new_group == 0.5);
    assert_int_equal(cz_optim_get_hyper(optim, CZ_ALL_GROUPS, "rate", &value), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_get_hyper(optim, 0, "rate", &value), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_get_hyper(optim, 0, "lr", NULL), CZ_ERR_ARGUMENT);
    assert_true(value == 0.7);
    cz_optim_destroy(&optim);
}

/* A value that is a number in double, and in the type of the parameters infinite, or a divisor of
 * 0. */
TEST(values_that_the_parameters_type_has_not_are_refused)
{
    static const char *const rules[] = {"adam",
                                        "adamw",
                                        "adamax",
                                        "adadelta",
                                        "adagrad",
                                        "rmsprop",
                                        "nadam",
                                        "radam",
                                        "lamb",
                                        "ademamix",
                                        "schedule_free_adamw",
                                        "adam_mini"};
    double wide[2] = {0}, wide_gradients[2] = {0};
    cz_model *double_model;
    cz_param_group first = CZ_PARAM_GROUP_INIT, second = CZ_PARAM_GROUP_INIT;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    assert_ok(cz_model_create(&double_model));
    assert_ok(cz_model_add(double_model, "d", wide, wide_gradients, CZ_F64, 1, (int64_t[]){2}));
    first.params = (const int64_t[]){0};
    second.params = (const int64_t[]){1};
    first.param_count = second.param_count = 1;
    second.hypers = CZ_HYPERS({"eps", 1e-46});
    options.groups = &first;
    options.group_count = 1;
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        const cz_rule *rule = cz_rule_find(rules[k]);
        char sentence[200];
        cz_optim *optim;
        cz_state_dict *dict;
        snprintf(sentence, sizeof sentence,
                 "%s: eps is 1e-46, which is 0 in f32, the type of the parameters, and gives NaN "
                 "where a gradient is 0; allowed are 0 and from 1.4e-45 on",
                 rules[k]);
        assert_int_equal(cz_optim_create(&optim, model, rule, CZ_HYPERS({"eps", 1e-46}), NULL),
                         CZ_ERR_ARGUMENT);
        assert_string_equal(cz_last_error(), sentence);
        assert_ok(cz_optim_create(&optim, double_model, rule, CZ_HYPERS({"eps", 1e-46}), NULL));
        assert_ok(cz_optim_state_dict(optim, &dict));
        cz_optim_destroy(&optim);
        cz_state_dict_destroy(&dict);
        assert_ok(cz_optim_create(&optim, model, rule, NULL, &options));
        assert_int_equal(cz_optim_set_hyper(optim, 0, "eps", 1e-46), CZ_ERR_ARGUMENT);
        assert_string_equal(cz_last_error(), sentence);
        assert_int_equal(cz_optim_add_param_group(optim, &second), CZ_ERR_ARGUMENT);
        assert_string_equal(cz_last_error(), sentence);
        assert_int_equal(cz__optim_group_count(optim), 1);
        assert_int_equal(cz_optim_set_hyper(optim, 0, "lr", 1e39), CZ_ERR_ARGUMENT);
        assert_non_null(strstr(cz_last_error(), "lr is 1e+39, which is infinite in f32"));
        assert_int_equal(cz_optim_set_hyper(optim, 0, "weight_decay", 3.5e38), CZ_ERR_ARGUMENT);
        assert_ok(cz_optim_set_hyper(optim, 0, "lr", 1e-60)); /* too small to count */
        assert_ok(cz_optim_set_hyper(optim, 0, "eps", 1e-44));
        memset(grads, 0, sizeof grads);
        assert_ok(cz_optim_step(optim, NULL, NULL));
        assert_false(isnan(values[0][0]));
        assert_ok(cz_optim_set_hyper(optim, 0, "eps", 0)); /* as it is said */
        cz_optim_destroy(&optim);
    }
    cz_model_destroy(&double_model);
}

TEST(a_loaded_value_that_the_parameters_type_has_not_is_refused)
{
    cz_optim *optim;
    cz_state_dict *dict;
    const cz_state_dict *groups, *group;
    double eps = 0;
    assert_ok(cz_optim_create(&optim, model, cz_rule_adam(), NULL, NULL));
    assert_ok(cz_optim_state_dict(optim, &dict));
    assert_ok(cz_state_dict_get_dict(dict, "param_groups", &groups));
    assert_ok(cz_state_dict_get_dict(groups, "0", &group));
    assert_ok(cz_state_dict_set_real((cz_state_dict *)(uintptr_t)group, "eps", 1e-300));
    assert_int_equal(cz_optim_load_state_dict(optim, dict, NULL), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "eps is 1e-300, which is 0 in f32"));
    assert_ok(cz_optim_get_hyper(optim, 0, "eps", &eps));
    assert_true(eps == 1e-8);
    cz_state_dict_destroy(&dict);
    cz_optim_destroy(&optim);
}

TEST(lr_counts_from_the_next_step)
{
    cz_optim *optim = make_sgd(model, 0);
    step(optim);
    assert_true(values[0][5] == 0.5f);
    assert_ok(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "lr", 0.25));
    assert_ok(cz_model_set_gradient(model, 1, NULL)); /* b stays a step behind */
    step(optim);
    assert_true(values[0][5] == 0.25f);
    assert_ok(cz_optim_set_hyper(optim, 0, "lr", 0));
    assert_ok(cz_model_set_gradient(model, 1, grads[1]));
    step(optim);
    assert_true(values[0][5] == 0.25f && values[1][5] == 0.5f);
    cz_optim_destroy(&optim);
}

/* Values that the rule does not know: kept per group, enumerated after the rule's. */
TEST(added_values)
{
    const cz_param_group groups[] = {{sizeof groups[0], (int64_t[]){0}, 1, NULL},
                                     {sizeof groups[0], (int64_t[]){1}, 1, NULL}};
    const cz_optim_options options = {sizeof options, groups, 2, 0, 0};
    char long_name[80];
    double value = -1;
    cz_optim *optim;
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_ok(cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), &options));
    const int own = cz_rule_sgd()->hyper_count;
    assert_int_equal(cz__optim_hyper_count(optim, 0), own);
    assert_ok(cz_optim_add_hyper(optim, 0, "initial_lr", 0.5));
    assert_ok(cz_optim_add_hyper(optim, 0, "max_lr", 2));
    assert_ok(cz_optim_add_hyper(optim, 0, "initial_lr", 0.25)); /* set again */
    assert_int_equal(cz__optim_hyper_count(optim, 0), own + 2);
    assert_int_equal(cz__optim_hyper_count(optim, 1), own);
    assert_string_equal(cz_optim_hyper_name(optim, 0, 0), "lr");
    assert_string_equal(cz_optim_hyper_name(optim, 0, own), "initial_lr");
    assert_string_equal(cz_optim_hyper_name(optim, 0, own + 1), "max_lr");
    assert_null(cz_optim_hyper_name(optim, 0, own + 2));
    assert_null(cz_optim_hyper_name(optim, 1, own));
    assert_null(cz_optim_hyper_name(optim, 2, 0));
    assert_null(cz_optim_hyper_name(optim, 0, -1));
    assert_ok(cz_optim_set_hyper(optim, 0, "max_lr", 3));
    assert_ok(cz_optim_get_hyper(optim, 0, "max_lr", &value));
    assert_true(value == 3);
    assert_int_equal(cz_optim_get_hyper(optim, 1, "max_lr", &value), CZ_ERR_ARGUMENT);
    /* not in every group: nothing is set */
    assert_int_equal(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "max_lr", 4), CZ_ERR_ARGUMENT);
    assert_ok(cz_optim_get_hyper(optim, 0, "max_lr", &value));
    assert_true(value == 3);
    assert_int_equal(cz_optim_set_hyper(optim, 0, "max_lr", NAN), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_add_hyper(optim, 0, "max_lr", INFINITY), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_add_hyper(optim, 0, "lr", 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_add_hyper(optim, 0, "", 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_add_hyper(optim, 0, long_name, 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_add_hyper(optim, 2, "x", 1), CZ_ERR_ARGUMENT);
    cz_test_fail_allocation(1);
    assert_int_equal(cz_optim_add_hyper(optim, 0, "x", 1), CZ_ERR_MEMORY);
    assert_true(cz_test_allocation_reset());
    assert_int_equal(cz__optim_hyper_count(optim, 0), own + 2);
    cz_optim_destroy(&optim);
}

/* Seconds of this thread to give each of so many groups, of one parameter each, a rate of its own;
 * the least of three. */
static double time_of_rates(int64_t groups)
{
    double least = INFINITY;
    int64_t *params = calloc((size_t)groups, sizeof *params);
    cz_param_group *list = calloc((size_t)groups, sizeof *list);
    float *memory = calloc(2 * (size_t)groups, sizeof *memory);
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_optim *optim;
    cz_model *another;
    assert_ok(cz_model_create(&another));
    for (int64_t g = 0; g < groups; g++) {
        char name[24];
        snprintf(name, sizeof name, "p%d", (int)g);
        assert_ok(cz_model_add(another, name, memory + g, memory + groups + g, CZ_F32, 1,
                               (int64_t[]){1}));
        params[g] = g;
        list[g] = (cz_param_group){sizeof *list, params + g, 1, NULL};
    }
    options.groups = list;
    options.group_count = groups;
    assert_ok(cz_optim_create(&optim, another, cz_rule_adamw(), NULL, &options));
    for (int turn = 1; turn <= 3; turn++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        for (int64_t g = 0; g < groups; g++)
            assert_ok(cz_optim_set_hyper(optim, g, "lr", 1e-3 * turn));
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        least = fmin(least, (double)(end.tv_sec - begin.tv_sec) +
                                1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
    }
    cz_optim_destroy(&optim);
    cz_model_destroy(&another);
    free(memory);
    free(list);
    free(params);
    return least;
}

TEST(rates_of_many_groups_do_not_walk_all_parameters)
{
    const double few = time_of_rates(500), many = time_of_rates(8000);
    if (many > 16 * 5 * few)
        fail_msg("500 groups: %.2f ms, 8000: %.2f ms", 1e3 * few, 1e3 * many);
}
