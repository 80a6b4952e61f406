/* SPDX-License-Identifier: MIT */
/* Moving averages of an unsharded optimizer: steps taken apart, rules over whole tensors, types,
 * groups, what is skipped, what the schedule-free rules evaluate, and what is refused. */
#include "rule/mixed.h"
#include "czero/in_backward.h"

static mixed m;

static cz_moving_average ema(double decay)
{
    cz_moving_average average = CZ_MOVING_AVERAGE_INIT;
    average.decay = decay;
    return average;
}

static cz_optim *make(const cz_rule *rule, const cz_moving_average *average, cz_master master)
{
    cz_optim *optim;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.average = average;
    options.master = master;
    options.threads = 2;
    assert_ok(cz_optim_create(&optim, m.model, rule, CZ_HYPERS({"lr", 0.05}), &options));
    return optim;
}

static float value_of(int p, int64_t i)
{
    return m.dtypes[p] == CZ_F32 ? m.wide[p][i] : widen_one(m.dtypes[p], m.halves[p][i]);
}

static float average_of(const cz_optim *optim, int p, int64_t i)
{
    const void *data;
    int64_t count;
    assert_ok(cz_optim_state(optim, p, "average", i, &data, &count));
    assert_non_null(data);
    return *(const float *)data;
}

/* Values are not those that were averaged where there are masters: plain[p][i] follows `from`. */
static float plain[MIXED_PARAMS][MIXED_MOST];

static void average_plainly(const cz_optim *optim, int step, float weight)
{
    for (int p = 0; p < MIXED_PARAMS; p++)
        for (int64_t i = 0; i < mixed_counts[p]; i++) {
            float value = value_of(p, i);
            const void *master = NULL;
            int64_t count;
            if (cz_optim_state(optim, p, "master_param", i, &master, &count) == CZ_OK && master)
                value = *(const float *)master;
            if (step == 0)
                plain[p][i] = value;
            else
                plain[p][i] = plain[p][i] + weight * (value - plain[p][i]);
        }
}

static void expect_plain(const cz_optim *optim)
{
    for (int p = 0; p < MIXED_PARAMS; p++)
        for (int64_t i = 0; i < mixed_counts[p]; i++)
            assert_true(average_of(optim, p, i) == plain[p][i]);
}

/* Evaluated are averages, rounded; then all is as it was. */
static void look(cz_optim *optim)
{
    static mixed before;
    uint64_t prints[2][2];
    assert_ok(cz_optim_fingerprint(optim, prints[0]));
    before = m;
    assert_ok(cz_optim_evaluate(optim, true));
    for (int p = 0; p < MIXED_PARAMS; p++)
        for (int64_t i = 0; i < mixed_counts[p]; i++)
            assert_true(m.dtypes[p] == CZ_F32
                            ? m.wide[p][i] == plain[p][i]
                            : m.halves[p][i] == narrow_one(m.dtypes[p], plain[p][i]));
    assert_ok(cz_optim_evaluate(optim, false));
    assert_memory_equal(&m, &before, sizeof m);
    assert_ok(cz_optim_fingerprint(optim, prints[1]));
    assert_memory_equal(prints[0], prints[1], sizeof prints[0]);
}

static void train(const cz_rule *rule, cz_dtype first, cz_dtype second, cz_dtype gradient,
                  cz_master master)
{
    const cz_moving_average average = ema(0.75);
    mixed_create(&m, first, second, gradient);
    cz_optim *optim = make(rule, &average, master);
    for (int step = 0; step < 4; step++) {
        mixed_set_gradients(&m, step);
        assert_ok(cz_optim_step(optim, NULL, NULL));
        average_plainly(optim, step, 0.25f);
        expect_plain(optim);
        look(optim);
    }
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}

TEST(of_any_types)
{
    for (cz_master master = CZ_MASTER_COPY; master <= CZ_MASTER_NONE; master++) {
        train(cz_rule_adamw(), CZ_BF16, CZ_F32, CZ_BF16, master);
        train(cz_rule_lamb(), CZ_F16, CZ_BF16, CZ_F32, master);
        train(cz_rule_sgd(), CZ_F32, CZ_F16, CZ_F32, master);
    }
}

/* ---- rules over whole tensors ---- */

static unsigned no_slots(const double *hypers)
{
    return 0;
}

static void prepare_rate(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    coefficients[0] = step->hypers[0];
}

static void update_whole(const cz_tensor_update *u)
{
    for (int64_t i = 0; i < cz_tensor_count(u->param); i++)
        if (u->param->dtype == CZ_F32)
            ((float *)u->param->data)[i] -= (float)u->coefficients[0] * ((const float *)u->grad)[i];
        else
            ((uint16_t *)u->param->data)[i] =
                narrow_one(u->param->dtype,
                           widen_one(u->param->dtype, ((uint16_t *)u->param->data)[i]) -
                               (float)u->coefficients[0] *
                                   widen_one(u->param->dtype, ((const uint16_t *)u->grad)[i]));
}

static const cz_hyper_spec rate[] = {{"lr", 1, 0, INFINITY, false, false}};
static const cz_rule whole = {
    .abi = CZ_RULE_ABI,
    .size = sizeof(cz_rule),
    .name = "whole",
    .hyper_size = sizeof *rate,
    .slot_size = sizeof(cz_slot_spec),
    .hyper_count = 1,
    .hypers = rate,
    .slots_used = no_slots,
    .prepare = prepare_rate,
    .update_tensor = update_whole,
};

TEST(of_rules_over_whole_tensors)
{
    train(&whole, CZ_F32, CZ_F32, CZ_F32, CZ_MASTER_DEFAULT);
    train(&whole, CZ_BF16, CZ_BF16, CZ_BF16, CZ_MASTER_DEFAULT);
}

/* ---- which steps ---- */

TEST(inside_the_backward_pass)
{
    cz_in_backward *inside;
    const cz_moving_average average = ema(0.75);
    mixed_create(&m, CZ_F32, CZ_F32, CZ_F32);
    cz_optim *optim = make(cz_rule_rmsprop(), &average, CZ_MASTER_DEFAULT);
    assert_ok(cz_in_backward_create(&inside, &optim, 1, NULL));
    for (int step = 0; step < 3; step++) {
        mixed_set_gradients(&m, step);
        assert_ok(cz_in_backward_begin(inside, NULL));
        for (int p = MIXED_PARAMS - 1; p >= 0; p--)
            assert_ok(cz_in_backward_mark_ready(inside, p, NULL));
        average_plainly(optim, step, 0.25f);
        expect_plain(optim);
    }
    assert_ok(cz_optim_evaluate(optim, true));
    assert_int_equal(cz_in_backward_begin(inside, NULL), CZ_ERR_STATE);
    assert_ok(cz_optim_evaluate(optim, false));
    cz_in_backward_destroy(&inside);
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}

TEST(a_step_that_is_skipped_does_not_count)
{
    double n;
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_loss_scale scale = CZ_LOSS_SCALE_INIT;
    const cz_moving_average average = ema(0.75);
    mixed_create(&m, CZ_BF16, CZ_BF16, CZ_BF16);
    cz_optim *optim = make(cz_rule_adam(), &average, CZ_MASTER_DEFAULT);
    options.loss_scale = &scale;
    assert_ok(cz_optim_step(optim, &options, NULL));
    average_plainly(optim, 0, 1);
    m.gradients[1].half[5] = 0x7f80;
    assert_ok(cz_optim_step(optim, &options, NULL));
    expect_plain(optim);
    assert_ok(cz_optim_scalar(optim, 1, "n_averaged", &n));
    assert_true(n == 1);
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}

/* ---- groups ---- */

TEST(groups_differ)
{
    double n;
    const void *data;
    cz_param_group groups[3];
    const int64_t members[] = {0, 1, 2};
    cz_moving_average none = CZ_MOVING_AVERAGE_INIT, average = ema(0.5), mean = ema(0);
    cz_optim *optim;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    none.kind = CZ_MOVING_AVERAGE_NONE;
    mean.kind = CZ_MOVING_AVERAGE_MEAN;
    for (int g = 0; g < 3; g++)
        groups[g] =
            (cz_param_group){.size = sizeof *groups, .params = &members[g], .param_count = 1};
    groups[1].average = &none;
    groups[2].average = &mean;
    options.groups = groups;
    options.group_count = 2;
    options.average = &average;
    mixed_create(&m, CZ_F32, CZ_F32, CZ_F32);
    assert_ok(cz_optim_create(&optim, m.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), &options));
    cz_optim_info info = CZ_OPTIM_INFO_INIT;
    assert_ok(cz_optim_get_info(optim, &info));
    assert_int_equal(info.state_bytes, 2600 * 4);
    assert_ok(cz_optim_add_param_group(optim, &groups[2]));
    for (int step = 0; step < 3; step++) {
        mixed_set_gradients(&m, step);
        assert_ok(cz_optim_step(optim, NULL, NULL));
    }
    int64_t count;
    assert_ok(cz_optim_state(optim, 1, "average", 0, &data, &count));
    assert_null(data);
    assert_ok(cz_optim_scalar(optim, 2, "n_averaged", &n));
    assert_true(n == 3);
    assert_ok(cz_optim_get_hyper(optim, 0, "average_decay", &n));
    assert_true(n == 0.5);
    assert_int_equal(cz_optim_set_hyper(optim, 0, "average_decay", 1.5), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "average_decay is 1.5, allowed is 0 to 1"));
    assert_int_equal(cz_optim_get_hyper(optim, 2, "average_decay", &n), CZ_ERR_ARGUMENT);
    const float before = m.wide[1][7];
    assert_ok(cz_optim_evaluate(optim, true));
    assert_true(m.wide[1][7] == before);
    cz_optim_destroy(&optim); /* as they are */
    mixed_destroy(&m);
}

/* ---- what the schedule-free rules evaluate ---- */

static void evaluate_mean(cz_dtype first, cz_master master)
{
    static mixed before;
    mixed_create(&m, first, CZ_F32, CZ_F32);
    cz_optim *optim = make(cz_rule_schedule_free_adamw(), NULL, master);
    for (int step = 0; step < 4; step++) {
        mixed_set_gradients(&m, step);
        assert_ok(cz_optim_step(optim, NULL, NULL));
        before = m;
        assert_ok(cz_optim_evaluate(optim, true));
        for (int p = 0; p < MIXED_PARAMS; p++)
            for (int64_t i = 0; i < mixed_counts[p]; i++) {
                const void *z, *y = NULL;
                int64_t count;
                float x = m.dtypes[p] == CZ_F32 ? before.wide[p][i]
                                                : widen_one(m.dtypes[p], before.halves[p][i]);
                assert_ok(cz_optim_state(optim, p, "z", i, &z, &count));
                if (cz_optim_state(optim, p, "master_param", i, &y, &count) == CZ_OK && y)
                    x = *(const float *)y;
                x += (float)(1 - 1 / 0.9) * (*(const float *)z - x);
                assert_true(m.dtypes[p] == CZ_F32 ? m.wide[p][i] == x
                                                  : m.halves[p][i] == narrow_one(m.dtypes[p], x));
            }
        assert_ok(cz_optim_evaluate(optim, false));
        assert_memory_equal(&m, &before, sizeof m);
    }
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}

TEST(the_mean_of_a_schedule_free_rule)
{
    evaluate_mean(CZ_F32, CZ_MASTER_DEFAULT);
    evaluate_mean(CZ_BF16, CZ_MASTER_COPY);
    evaluate_mean(CZ_F16, CZ_MASTER_NONE);
}

/* ---- what is refused ---- */

static void expect_words(cz_status status, cz_status wanted, const char *words)
{
    assert_int_equal(status, wanted);
    if (!strstr(cz_last_error(), words))
        fail_msg("\"%s\" does not say \"%s\"", cz_last_error(), words);
}

static void expect_refusal(const cz_rule *rule, const cz_moving_average *average, cz_status status,
                           const char *words)
{
    cz_optim *optim;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.average = average;
    expect_words(cz_optim_create(&optim, m.model, rule, CZ_HYPERS({"lr", 0.1}), &options), status,
                 words);
}

TEST(what_cannot_be_is_refused_with_a_sentence)
{
    static const cz_slot_spec slots[] = {{"average", CZ_SLOT_ELEMENT, 0, NULL}};
    static const cz_slot_spec counts[] = {{"n_averaged", CZ_SLOT_SCALAR, 0, NULL}};
    cz_moving_average average = ema(1.5);
    cz_optim *optim;
    mixed_create(&m, CZ_F32, CZ_F32, CZ_F32);
    expect_refusal(cz_rule_sgd(), &average, CZ_ERR_ARGUMENT,
                   "optim: average: option decay is 1.5, wanted 0 to 1");
    average = ema(0.9);
    average.kind = (cz_moving_average_kind)3;
    expect_refusal(cz_rule_sgd(), &average, CZ_ERR_ARGUMENT, "option kind is 3, wanted 0 to 2");
    average = ema(0.9);
    average.start = -1;
    expect_refusal(cz_rule_sgd(), &average, CZ_ERR_ARGUMENT, "option start is -1");
    average.start = 0;
    cz_rule rule = *cz_rule_sgd();
    rule.slots = slots;
    rule.slot_count = 1;
    expect_refusal(&rule, &average, CZ_ERR_UNSUPPORTED,
                   "rule sgd has a slot 'average', which is the name of that of averages");
    rule.slots = counts;
    expect_refusal(&rule, &average, CZ_ERR_UNSUPPORTED, "rule sgd has a slot 'n_averaged'");

    optim = make(cz_rule_adamw(), NULL, CZ_MASTER_DEFAULT);
    expect_words(cz_optim_evaluate(optim, true), CZ_ERR_STATE,
                 "no parameter group has an average (option average), and what rule adamw "
                 "evaluates is what it trains");
    assert_ok(cz_optim_evaluate(optim, false));
    const cz_param_group late = {.size = sizeof late, .average = &average};
    expect_words(cz_optim_add_param_group(optim, &late), CZ_ERR_UNSUPPORTED,
                 "parameter group 1 wants averages, and no group had them");
    cz_optim_destroy(&optim);

    optim = make(cz_rule_schedule_free_sgd(), NULL, CZ_MASTER_DEFAULT);
    assert_ok(cz_optim_set_hyper(optim, 0, "momentum", 0));
    expect_words(
        cz_optim_evaluate(optim, true), CZ_ERR_STATE,
        "with the hyper-parameters of parameter group 0 rule schedule_free_sgd has nothing "
        "to evaluate");
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}

TEST(while_values_are_evaluated)
{
    uint64_t print[2];
    cz_state_dict *dict;
    const cz_moving_average average = ema(0.9);
    const cz_param_group none = CZ_PARAM_GROUP_INIT;
    const char *const words = "cz_optim_evaluate(…, false) brings back those that train";
    mixed_create(&m, CZ_F32, CZ_F32, CZ_F32);
    cz_optim *optim = make(cz_rule_adamw(), &average, CZ_MASTER_DEFAULT);
    assert_ok(cz_optim_state_dict(optim, &dict));
    assert_ok(cz_optim_evaluate(optim, true));
    expect_words(cz_optim_step(optim, NULL, NULL), CZ_ERR_STATE, words);
    expect_words(cz_optim_fingerprint(optim, print), CZ_ERR_STATE, words);
    expect_words(cz_optim_load_state_dict(optim, dict, NULL), CZ_ERR_STATE, words);
    expect_words(cz_optim_add_param_group(optim, &none), CZ_ERR_STATE, words);
    cz_state_dict_destroy(&dict);
    expect_words(cz_optim_state_dict(optim, &dict), CZ_ERR_STATE, words);
    assert_ok(cz_optim_evaluate(optim, false));
    assert_ok(cz_optim_step(optim, NULL, NULL));
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}

TEST(a_device_that_cannot)
{
    static float memory[2][4];
    cz_device device = *cz_device_cpu();
    const cz_moving_average average = ema(0.9);
    device.name = "plain";
    device.average = NULL;
    const cz_tensor value = {memory[0], CZ_F32, CZ_DENSE, 1, {4}, &device};
    cz_tensor grad = value;
    grad.data = memory[1];
    assert_ok(cz_model_create(&m.model));
    assert_ok(cz_model_add_tensor(m.model, "a", &value, &grad));
    expect_refusal(cz_rule_sgd(), &average, CZ_ERR_UNSUPPORTED,
                   "parameter 'a': device plain keeps no moving averages");
    cz_model_destroy(&m.model);
}

/* ---- groups with rules of their own ---- */

/* The slots of averages and masters move when a rule with more slots comes. */
TEST(a_wider_rule_comes_later)
{
    double n;
    const cz_moving_average average = ema(0.75);
    const int64_t first[] = {0, 1}, second[] = {2};
    cz_param_group groups[2] = {CZ_PARAM_GROUP_INIT, CZ_PARAM_GROUP_INIT};
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_optim *optim;
    groups[0].params = first;
    groups[0].param_count = 2;
    groups[1].params = second;
    groups[1].param_count = 1;
    groups[1].rule = cz_rule_nadam();
    options.groups = groups;
    options.group_count = 1;
    options.average = &average;
    mixed_create(&m, CZ_BF16, CZ_F32, CZ_F32);
    assert_ok(cz_optim_create(&optim, m.model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), &options));
    for (int step = 0; step < 4; step++) {
        mixed_set_gradients(&m, step);
        if (step == 2)
            assert_ok(cz_optim_add_param_group(optim, &groups[1]));
        assert_ok(cz_optim_step(optim, NULL, NULL));
        for (int p = 0; p < MIXED_PARAMS - (step < 2); p++)
            for (int64_t i = 0; i < mixed_counts[p]; i++) {
                const void *master = NULL;
                int64_t count;
                float value = value_of(p, i);
                if (cz_optim_state(optim, p, "master_param", i, &master, &count) == CZ_OK && master)
                    value = *(const float *)master;
                if (step == (p == 2 ? 2 : 0))
                    plain[p][i] = value;
                else
                    plain[p][i] = plain[p][i] + 0.25f * (value - plain[p][i]);
                assert_true(average_of(optim, p, i) == plain[p][i]);
            }
    }
    look(optim);
    assert_ok(cz_optim_scalar(optim, 2, "n_averaged", &n));
    assert_true(n == 2);
    assert_ok(cz_optim_scalar(optim, 0, "n_averaged", &n));
    assert_true(n == 4);
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}
