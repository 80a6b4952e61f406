/* SPDX-License-Identifier: MIT */
/* Parameter groups with rules of their own: which values they begin with, what is said and refused,
 * in which order rules begin a step. */
#include "czero/sched.h"
#include "optim/two_params.h"

#define assert_status(call, status, sentence)                                                      \
    do {                                                                                           \
        assert_int_equal(call, status);                                                            \
        if (!strstr(cz_last_error(), sentence))                                                    \
            fail_msg("'%s' is not in: %s", sentence, cz_last_error());                             \
    } while (0)

static const int64_t first[] = {0}, second[] = {1};

/* The second group has a rule of its own; NULL: the optimizer's. */
static cz_optim *make_two(const cz_rule *rule, const cz_hyper *hypers, const cz_rule *own,
                          const cz_hyper *own_hypers)
{
    cz_optim *optim;
    cz_param_group groups[] = {CZ_PARAM_GROUP_INIT, CZ_PARAM_GROUP_INIT};
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    groups[0].params = first;
    groups[1].params = second;
    groups[0].param_count = groups[1].param_count = 1;
    groups[1].rule = own;
    groups[1].hypers = own_hypers;
    options.groups = groups;
    options.group_count = 2;
    assert_ok(cz_optim_create(&optim, model, rule, hypers, &options));
    return optim;
}

static double value_of(const cz_optim *optim, int64_t group, const char *name)
{
    double value;
    assert_ok(cz_optim_get_hyper(optim, group, name, &value));
    return value;
}

TEST(a_group_of_another_rule_begins_with_the_defaults_of_that)
{
    cz_optim *optim = make_two(cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}, {"beta1", 0.25}),
                               cz_rule_lion(), CZ_HYPERS({"weight_decay", 0.125}));
    assert_true(value_of(optim, 0, "lr") == 0.5 && value_of(optim, 0, "beta1") == 0.25);
    assert_true(value_of(optim, 1, "lr") == 1e-4 && value_of(optim, 1, "beta1") == 0.9);
    assert_true(value_of(optim, 1, "weight_decay") == 0.125);
    assert_string_equal(cz_optim_hyper_name(optim, 1, 0), "lr");
    step(optim);
    assert_true(!isnan(state_of(optim, 0, "exp_avg_sq")));
    assert_true(!isnan(state_of(optim, 1, "exp_avg")));
    const void *data;
    int64_t count;
    assert_status(cz_optim_state(optim, 1, "exp_avg_sq", 0, &data, &count), CZ_ERR_ARGUMENT,
                  "lion has no element slot 'exp_avg_sq'");
    assert_int_equal(cz__optim_state_bytes(optim), 3 * N * sizeof(float));
    cz_optim_destroy(&optim);
}

TEST(a_value_for_all_groups_is_for_those_whose_rule_has_it)
{
    cz_optim *optim = make_two(cz_rule_adamw(), NULL, cz_rule_sgd(), CZ_HYPERS({"lr", 1}));
    assert_ok(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "lr", 0.5));
    assert_true(value_of(optim, 0, "lr") == 0.5 && value_of(optim, 1, "lr") == 0.5);
    assert_ok(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "momentum", 0.25));
    assert_true(value_of(optim, 1, "momentum") == 0.25);
    assert_ok(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "beta2", 0.5));
    assert_true(value_of(optim, 0, "beta2") == 0.5);
    assert_status(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "rho", 1), CZ_ERR_ARGUMENT,
                  "no hyper-parameter 'rho'");
    assert_status(cz_optim_set_hyper(optim, 1, "beta1", 0.5), CZ_ERR_ARGUMENT,
                  "sgd: no hyper-parameter 'beta1'");
    assert_ok(cz_optim_add_hyper(optim, 1, "beta1", 3)); /* sgd has none */
    assert_status(cz_optim_add_hyper(optim, 0, "beta1", 3), CZ_ERR_ARGUMENT, "of adamw already");
    assert_status(cz_optim_add_hyper(optim, 0, "rule", 3), CZ_ERR_ARGUMENT, "'rule' is no name");
    cz_optim_destroy(&optim);
}

TEST(what_a_group_cannot_have_is_refused_with_its_number)
{
    cz_optim *optim;
    cz_param_group group = CZ_PARAM_GROUP_INIT;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_rule old = *cz_rule_sgd();
    old.abi = CZ_RULE_ABI - 1;
    group.params = first;
    group.param_count = 1;
    group.rule = &old;
    options.groups = &group;
    options.group_count = 1;
    assert_status(cz_optim_create(&optim, model, cz_rule_adamw(), NULL, &options),
                  CZ_ERR_UNSUPPORTED, "parameter group 0: rule: ABI 2");
    group.rule = cz_rule_sgd();
    assert_status(cz_optim_create(&optim, model, cz_rule_adamw(), CZ_HYPERS({"lr", 1}), &options),
                  CZ_ERR_ARGUMENT, "sgd: lr has no default");
    group.hypers = CZ_HYPERS({"beta1", 0.5});
    assert_status(cz_optim_create(&optim, model, cz_rule_adamw(), NULL, &options), CZ_ERR_ARGUMENT,
                  "sgd: no hyper-parameter 'beta1'");
}

/* ---- a step begins ---- */

static char order[16];
static int fails_at = -1;

static cz_status begin(cz_optim *optim, const void *argument, void *context)
{
    const char *name = context;
    strncat(order, name, 1);
    return fails_at == *name ? cz_fail(CZ_ERR_IO, "rule %s would not begin", name) : CZ_OK;
}

static unsigned none(const double *hypers)
{
    return 0;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
}

static void to_zero(const cz_tensor_update *update)
{
    memset(update->param->data, 0, (size_t)cz_tensor_count(update->param) * sizeof(float));
}

#define RULE(letter)                                                                               \
    {                                                                                              \
        .abi = CZ_RULE_ABI, .size = sizeof(cz_rule), .name = letter, .context = (void *)(letter),  \
        .slots_used = none, .prepare = prepare, .begin_step = begin, .update_tensor = to_zero      \
    }
static const cz_rule a = RULE("a"), b = RULE("b"), c = RULE("c");

TEST(rules_begin_a_step_once_each_in_the_order_of_their_first_groups)
{
    cz_optim *optim = make_two(&a, NULL, &b, NULL);
    cz_param_group last = CZ_PARAM_GROUP_INIT;
    *order = '\0';
    step(optim);
    assert_string_equal(order, "ab");
    last.rule = &c; /* without parameters */
    assert_ok(cz_optim_add_param_group(optim, &last));
    last.rule = &a;
    assert_ok(cz_optim_add_param_group(optim, &last));
    *order = '\0';
    fails_at = 'c';
    values[0][0] = 5;
    assert_status(cz_optim_step(optim, NULL, NULL), CZ_ERR_IO, "c: rule c would not begin");
    assert_string_equal(order, "abc");
    assert_true(values[0][0] == 5);
    fails_at = -1;
    cz_optim_destroy(&optim);
    optim = make_two(&c, NULL, &b, NULL);
    cz_optim_destroy(&optim);
    optim = make_two(&b, NULL, &b, NULL);
    *order = '\0';
    step(optim);
    assert_string_equal(order, "b");
    cz_optim_destroy(&optim);
}

/* ---- dictionaries ---- */

static cz_state_dict *dict_of(const cz_optim *optim)
{
    cz_state_dict *dict;
    assert_ok(cz_optim_state_dict(optim, &dict));
    return dict;
}

TEST(a_dictionary_says_the_rules_of_groups_that_have_another)
{
    cz_optim *optim = make_two(cz_rule_adamw(), NULL, cz_rule_lion(), NULL);
    cz_optim *plain = make_two(cz_rule_adamw(), NULL, NULL, NULL);
    cz_optim *said = make_two(cz_rule_adamw(), NULL, cz_rule_adamw(), NULL);
    cz_optim *other_way = make_two(cz_rule_lion(), NULL, NULL, NULL);
    const cz_state_dict *groups, *group;
    const char *rule;
    step(optim);
    step(plain);
    step(said);
    cz_state_dict *dict = dict_of(optim), *one = dict_of(plain), *same = dict_of(said);
    assert_true(cz_state_dict_equal(one, same)); /* the optimizer's own rule is not said again */
    assert_ok(cz_state_dict_get_dict(dict, "param_groups", &groups));
    assert_ok(cz_state_dict_get_dict(groups, "1", &group));
    assert_ok(cz_state_dict_get_text(group, "rule", &rule));
    assert_string_equal(rule, "lion");
    assert_ok(cz_state_dict_get_dict(groups, "0", &group));
    assert_int_equal(cz_state_dict_kind(group, "rule"), CZ_STATE_NONE);
    assert_status(cz_optim_load_state_dict(plain, dict, NULL), CZ_ERR_ARGUMENT,
                  "parameter group 1 of the dictionary is of rule lion, group 1 here of adamw");
    assert_status(cz_optim_load_state_dict(optim, one, NULL), CZ_ERR_ARGUMENT,
                  "parameter group 1 of the dictionary is of rule adamw, group 1 here of lion");
    assert_status(cz_optim_load_state_dict(other_way, one, NULL), CZ_ERR_ARGUMENT,
                  "the dictionary is of rule adamw, this optimizer of lion");
    assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
    cz_optim_destroy(&other_way);
    /* which of two rules is the optimizer's does not matter, nor in which order groups are */
    const cz_param_group turned[] = {
        {sizeof *turned, second, 1, NULL, CZ_MASTER_DEFAULT, (cz_dtype)0, NULL},
        {sizeof *turned, first, 1, NULL, CZ_MASTER_DEFAULT, (cz_dtype)0, cz_rule_adamw()}};
    const cz_optim_options options = {.size = sizeof options, .groups = turned, .group_count = 2};
    assert_ok(cz_optim_create(&other_way, model, cz_rule_lion(), NULL, &options));
    assert_ok(cz_optim_load_state_dict(other_way, dict, NULL));
    assert_true(state_of(other_way, 1, "exp_avg") == state_of(optim, 1, "exp_avg"));
    assert_true(state_of(other_way, 0, "exp_avg_sq") == state_of(optim, 0, "exp_avg_sq"));
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&one);
    cz_state_dict_destroy(&same);
    cz_optim_destroy(&other_way);
    cz_optim_destroy(&optim);
    cz_optim_destroy(&plain);
    cz_optim_destroy(&said);
}

/* ---- tables become wider, and narrow again ---- */

/* Masters are in the last slot, which a wider rule moves; what is refused leaves all as it was. */
TEST(a_wider_rule_comes_later)
{
    static uint16_t halves[2][N], gradients[2][N];
    static const int64_t shape = N;
    cz_model *another;
    cz_optim *optim;
    cz_param_group group = CZ_PARAM_GROUP_INIT;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    assert_ok(cz_model_create(&another));
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < N; i++)
            halves[p][i] = gradients[p][i] = 0x3f80; /* 1 */
        assert_ok(
            cz_model_add(another, p ? "b" : "a", halves[p], gradients[p], CZ_BF16, 1, &shape));
    }
    group.params = first;
    group.param_count = 1;
    options.groups = &group;
    options.group_count = 1;
    assert_ok(
        cz_optim_create(&optim, another, cz_rule_sgd(), CZ_HYPERS({"lr", 0x1p-12}), &options));
    step(optim);
    const float master = state_of(optim, 0, "master_param");
    assert_true(master == 1 - 0x1p-12F);
    group.rule = cz_rule_adam_mini();
    assert_status(cz_optim_add_param_group(optim, &group), CZ_ERR_ARGUMENT, "in parameter groups");
    assert_true(state_of(optim, 0, "master_param") == master);
    group.rule = cz_rule_ademamix();
    group.params = second;
    group.hypers = CZ_HYPERS({"lr", -1});
    assert_status(cz_optim_add_param_group(optim, &group), CZ_ERR_ARGUMENT, "lr is -1");
    group.hypers = NULL;
    assert_ok(cz_optim_add_param_group(optim, &group));
    assert_true(state_of(optim, 0, "master_param") == master);
    step(optim);
    assert_true(state_of(optim, 0, "master_param") == 1 - 0x1p-11F);
    assert_true(state_of(optim, 1, "master_param") < 1);
    assert_true(!isnan(state_of(optim, 1, "exp_avg_sq")));
    cz_optim_destroy(&optim);
    cz_model_destroy(&another);
}

/* ---- schedulers ---- */

TEST(a_scheduler_changes_the_momentum_of_each_rule)
{
    cz_optim *optim =
        make_two(cz_rule_adamw(), NULL, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}, {"momentum", 0.5}));
    cz_sched *sched;
    assert_ok(cz_sched_create_one_cycle(&sched, optim, 0.5, 10, NULL));
    for (int k = 0; k < 4; k++) {
        step(optim);
        assert_ok(cz_sched_step(sched));
        assert_true(value_of(optim, 0, "lr") == value_of(optim, 1, "lr"));
        assert_true(value_of(optim, 0, "beta1") == value_of(optim, 1, "momentum"));
    }
    cz_sched_destroy(&sched);
    cz_optim_destroy(&optim);
    optim = make_two(cz_rule_adamw(), NULL, cz_rule_adagrad(), NULL);
    assert_status(cz_sched_create_one_cycle(&sched, optim, 0.5, 10, NULL), CZ_ERR_ARGUMENT,
                  "(parameter group 1: adagrad)");
    cz_optim_destroy(&optim);
}
