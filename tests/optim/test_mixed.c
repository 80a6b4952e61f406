/* SPDX-License-Identifier: MIT */
/* The optimizer over values, gradients and state of several types: options, clipping and skipping,
 * what is frozen, comes late or has no gradient, threads, rules with partial sums, dictionaries. */
#include "rule/mixed.h"

static mixed m;

static cz_optim *make(cz_model *model, const char *rule)
{
    cz_optim *optim;
    assert_ok(cz_optim_create(&optim, model, cz_rule_find(rule), CZ_HYPERS({"lr", 0.05}), NULL));
    return optim;
}

static void expect_twin(const cz_optim *optim)
{
    for (int p = 0; p < MIXED_PARAMS; p++) {
        for (int64_t i = 0; i < mixed_counts[p]; i++)
            mixed_expect_value(&m, p, i);
        if (m.dtypes[p] != CZ_F32 && cz__optim_step_count(optim, p) > 0)
            mixed_expect_slot(optim, p, "master_param", 0, mixed_counts[p], m.twins[p]);
    }
}

/* ---- options ---- */

static void expect_refusal(const cz_rule *rule, const cz_optim_options *options, cz_status status,
                           const char *words)
{
    cz_optim *optim;
    assert_int_equal(cz_optim_create(&optim, m.model, rule, CZ_HYPERS({"lr", 0.1}), options),
                     status);
    if (!strstr(cz_last_error(), words))
        fail_msg("\"%s\" does not say \"%s\"", cz_last_error(), words);
    assert_null(optim);
}

static void no_tensor(const cz_tensor_update *update)
{
}

TEST(what_cannot_be_is_refused_with_a_sentence)
{
    static double wide[3];
    cz_optim *optim;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    mixed_create(&m, CZ_BF16, CZ_F32, CZ_BF16);
    options.state_dtype = CZ_F64;
    expect_refusal(cz_rule_sgd(), &options, CZ_ERR_ARGUMENT,
                   "state_dtype of parameter group 0 is f64, wanted is f32, bf16 or u8");
    options.state_dtype = CZ_F16;
    expect_refusal(cz_rule_sgd(), &options, CZ_ERR_ARGUMENT, "is f16, wanted is f32, bf16 or u8");
    options = (cz_optim_options)CZ_OPTIM_OPTIONS_INIT;
    options.master = (cz_master)3;
    expect_refusal(cz_rule_sgd(), &options, CZ_ERR_ARGUMENT, "option master is 3, wanted 0 to 2");
    cz_rule rule = *cz_rule_sgd();
    rule.update_tensor = no_tensor;
    expect_refusal(&rule, NULL, CZ_ERR_ARGUMENT, "'b' is f32, 'a' is bf16");
    mixed_destroy(&m);
    mixed_create(&m, CZ_BF16, CZ_BF16, CZ_F32);
    expect_refusal(&rule, NULL, CZ_ERR_UNSUPPORTED,
                   "'a' is bf16 and its gradient f32: rule sgd updates whole tensors");
    static const cz_slot_spec slots[] = {{"master_param", CZ_SLOT_ELEMENT, 0, NULL}};
    rule = *cz_rule_sgd();
    rule.slots = slots;
    rule.slot_count = 1;
    expect_refusal(&rule, NULL, CZ_ERR_UNSUPPORTED, "rule sgd has a slot 'master_param'");
    mixed_destroy(&m);
    assert_ok(cz_model_create(&m.model));
    assert_ok(cz_model_add(m.model, "wide", wide, wide, CZ_F64, 1, &(int64_t){3}));
    options = (cz_optim_options)CZ_OPTIM_OPTIONS_INIT;
    options.state_dtype = CZ_BF16;
    expect_refusal(cz_rule_sgd(), &options, CZ_ERR_ARGUMENT, "is bf16, wanted is f64");
    options.state_dtype = CZ_F64;
    options.master = CZ_MASTER_NONE; /* f64 has no masters anyway */
    static double gradients[3];
    assert_ok(cz_model_set_gradient(m.model, 0, gradients));
    assert_ok(cz_optim_create(&optim, m.model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}), &options));
    cz_optim_destroy(&optim);
    cz_model_destroy(&m.model);
}

static void a_device_without(bool refresh)
{
    static uint16_t memory[2][4];
    cz_device device = *cz_device_cpu();
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_optim *optim;
    device.name = "plain";
    const cz_tensor value = {memory[0], CZ_F16, CZ_DENSE, 1, {4}, &device};
    cz_tensor grad = value;
    grad.data = memory[1];
    if (refresh)
        device.refresh = NULL;
    else
        device.convert_stochastic = NULL;
    assert_ok(cz_model_create(&m.model));
    assert_ok(cz_model_add_tensor(m.model, "a", &value, &grad));
    if (refresh) {
        expect_refusal(cz_rule_sgd(), NULL, CZ_ERR_UNSUPPORTED,
                       "device plain has no copies in f32 of f16 values");
        options.master = CZ_MASTER_NONE;
    } else {
        options.master = CZ_MASTER_NONE;
        expect_refusal(cz_rule_sgd(), &options, CZ_ERR_UNSUPPORTED,
                       "device plain cannot round by chance to f16");
        options.master = CZ_MASTER_COPY;
        options.state_dtype = CZ_BF16;
        expect_refusal(cz_rule_sgd(), &options, CZ_ERR_UNSUPPORTED,
                       "device plain cannot round by chance to bf16");
        options.state_dtype = CZ_F32;
    }
    assert_ok(cz_optim_create(&optim, m.model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}), &options));
    assert_ok(cz_optim_step(optim, NULL, NULL));
    cz_optim_destroy(&optim);
    cz_model_destroy(&m.model);
}

TEST(devices_that_cannot_are_refused)
{
    a_device_without(true);
    a_device_without(false);
}

/* Each group as it says, and else as the optimizer. */
TEST(groups_differ)
{
    cz_optim *optim;
    cz_param_group groups[3];
    const int64_t members[] = {0, 1, 2};
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    for (int g = 0; g < 3; g++) {
        groups[g] = (cz_param_group)CZ_PARAM_GROUP_INIT;
        groups[g].params = &members[g];
        groups[g].param_count = 1;
    }
    groups[1].master = CZ_MASTER_COPY;
    groups[1].state_dtype = CZ_F32;
    options.groups = groups;
    options.group_count = 2;
    options.master = CZ_MASTER_NONE;
    options.state_dtype = CZ_BF16;
    mixed_create(&m, CZ_F16, CZ_BF16, CZ_F32);
    assert_ok(cz_optim_create(&optim, m.model, cz_rule_adamw(), NULL, &options));
    assert_int_equal(cz__optim_state_bytes(optim), 2600 * 2 * 2 + 37 * (4 + 2 * 4));
    groups[2].master = CZ_MASTER_COPY;
    assert_ok(cz_optim_step(optim, NULL, NULL));
    const uint16_t before = m.halves[2][0];
    assert_ok(cz_optim_add_param_group(optim, &groups[2]));
    assert_int_equal(cz__optim_state_bytes(optim), 2600 * 2 * 2 + 37 * (4 + 2 * 4) + 4 + 2 * 2);
    assert_ok(cz_optim_step(optim, NULL, NULL));
    assert_true(m.halves[2][0] != before);
    assert_int_equal(cz__optim_step_count(optim, 0), 2);
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}

/* ---- what a step does beside the update ---- */

/* 16-bit gradients are multiplied in f32 and stay as they are, those in f32 in their memory. */
TEST(clipping)
{
    static const cz_dtype types[] = {CZ_BF16, CZ_F16, CZ_F32};
    for (int t = 0; t < 3; t++)
        for (int threads = 1; threads < 4; threads += 2) {
            cz_step_options options = CZ_STEP_OPTIONS_INIT;
            cz_optim_options together = CZ_OPTIM_OPTIONS_INIT;
            cz_step_result result = CZ_STEP_RESULT_INIT, other = CZ_STEP_RESULT_INIT;
            cz_optim *optim, *twin;
            mixed_create(&m, CZ_BF16, CZ_F32, types[t]);
            twin = make(m.twin, "adam");
            together.threads = threads;
            assert_ok(cz_optim_create(&optim, m.model, cz_rule_adam(), CZ_HYPERS({"lr", 0.05}),
                                      &together));
            for (int step = 0; step < 3; step++) {
                mixed_set_gradients(&m, step);
                const mixed before = m;
                options.max_norm = step == 1 ? 1e9 : 0.75;
                assert_ok(cz_optim_step(optim, &options, &result));
                assert_true(types[t] == CZ_F32 && step != 1
                                ? m.gradients[0].wide[3] != before.gradients[0].wide[3]
                                : memcmp(m.gradients, before.gradients, sizeof m.gradients) == 0);
                options.max_norm = 0;
                options.norm = 1;
                if (step != 1) {
                    cz_step_options ask = CZ_STEP_OPTIONS_INIT;
                    ask.max_norm = 0.75;
                    assert_ok(cz_optim_step(twin, &ask, &other));
                } else {
                    assert_ok(cz_optim_step(twin, &options, &other));
                }
                assert_true(result.norm == other.norm && result.norm > 1);
                expect_twin(optim);
            }
            cz_optim_destroy(&optim);
            cz_optim_destroy(&twin);
            mixed_destroy(&m);
        }
}

TEST(a_step_that_is_skipped_changes_nothing)
{
    uint64_t before[2], after[2];
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    mixed_create(&m, CZ_F16, CZ_BF16, CZ_F16);
    cz_optim *optim = make(m.model, "adam");
    assert_ok(cz_optim_step(optim, NULL, NULL));
    assert_ok(cz_optim_fingerprint(optim, before));
    options.skip_nonfinite = 1;
    m.gradients[1].half[5] = 0x7c00;
    assert_ok(cz_optim_step(optim, &options, &result));
    assert_true(result.skipped && isinf(result.norm));
    assert_ok(cz_optim_fingerprint(optim, after));
    assert_memory_equal(before, after, sizeof before);
    cz_optim_destroy(&optim);
    mixed_destroy(&m);
}

TEST(frozen_late_and_absent)
{
    mixed_create(&m, CZ_BF16, CZ_F16, CZ_BF16);
    cz_optim *optim = make(m.model, "adamw"), *twin = make(m.twin, "adamw");
    for (int step = 0; step < 6; step++) {
        mixed_set_gradients(&m, step);
        for (int which = 0; which < 2; which++) {
            cz_model *model = which ? m.twin : m.model;
            assert_ok(cz_model_set_requires_grad(model, 0, step % 3 != 1));
            assert_ok(cz_model_set_gradient(model, 1,
                                            step < 2 || step == 4 ? NULL
                                            : which               ? (void *)m.twin_gradients[1]
                                                                  : &m.gradients[1]));
        }
        assert_ok(cz_optim_step(optim, NULL, NULL));
        assert_ok(cz_optim_step(twin, NULL, NULL));
        expect_twin(optim);
    }
    cz_optim_destroy(&optim);
    cz_optim_destroy(&twin);
    mixed_destroy(&m);
}

TEST(inside_the_backward_pass)
{
    cz_in_backward *inside;
    mixed_create(&m, CZ_BF16, CZ_F32, CZ_BF16);
    cz_optim *optim = make(m.model, "rmsprop"), *twin = make(m.twin, "rmsprop");
    assert_ok(cz_in_backward_create(&inside, &optim, 1, NULL));
    for (int step = 0; step < 3; step++) {
        mixed_set_gradients(&m, step);
        assert_ok(cz_in_backward_begin(inside, NULL));
        for (int p = MIXED_PARAMS - 1; p >= 0; p--)
            assert_ok(cz_in_backward_mark_ready(inside, p, NULL));
        assert_ok(cz_optim_step(twin, NULL, NULL));
        expect_twin(optim);
    }
    cz_in_backward_destroy(&inside);
    cz_optim_destroy(&optim);
    cz_optim_destroy(&twin);
    mixed_destroy(&m);
}

/* Who writes to a value, writes to what the next update starts from. */
TEST(a_master_follows_what_the_program_writes)
{
    mixed_create(&m, CZ_BF16, CZ_F16, CZ_BF16);
    cz_optim *optim = make(m.model, "adamw"), *twin = make(m.twin, "adamw");
    for (int step = 0; step < 4; step++) {
        mixed_set_gradients(&m, step);
        for (int64_t i = step; i < mixed_counts[0]; i += 97)
            mixed_set(&m, 0, i, 0.3f * (float)(step + 1));
        assert_ok(cz_optim_step(optim, NULL, NULL));
        assert_ok(cz_optim_step(twin, NULL, NULL));
        expect_twin(optim);
    }
    cz_optim_destroy(&optim);
    cz_optim_destroy(&twin);
    mixed_destroy(&m);
}

/* An f16 value may be infinite while its master is not. */
TEST(a_master_may_be_larger_than_its_value_can_be)
{
    mixed_create(&m, CZ_F16, CZ_F16, CZ_F32);
    cz_optim *optim, *twin;
    mixed_set(&m, 0, 7, 65504);
    m.gradients[0].wide[7] = m.twin_gradients[0][7] = -100;
    assert_ok(cz_optim_create(&optim, m.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    assert_ok(cz_optim_create(&twin, m.twin, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    for (int step = 0; step < 2; step++) {
        assert_ok(cz_optim_step(optim, NULL, NULL));
        assert_ok(cz_optim_step(twin, NULL, NULL));
        expect_twin(optim);
        assert_int_equal(m.halves[0][7], 0x7c00);
    }
    m.gradients[0].wide[7] = m.twin_gradients[0][7] = 300;
    assert_ok(cz_optim_step(optim, NULL, NULL));
    assert_ok(cz_optim_step(twin, NULL, NULL));
    expect_twin(optim);
    assert_true(m.twins[0][7] == 65404);
    cz_optim_destroy(&optim);
    cz_optim_destroy(&twin);
    mixed_destroy(&m);
}

/* ---- a rule with partial sums ---- */

static const cz_hyper_spec sums_hypers[] = {{"lr", 1, 0, INFINITY, false, false}};
static const cz_slot_spec sums_slots[] = {{"kept", CZ_SLOT_ELEMENT, 0, NULL}};

static unsigned one_slot(const double *hypers)
{
    return 1;
}

static void prepare_rate(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    coefficients[0] = step->hypers[0];
}

/* The first pass changes the slot, the second too. */
static void add_sums(void *queue, int64_t count, const void *param, const void *grad,
                     void *const *slots, const double *coefficients, unsigned flags, cz_sum *sums)
{
    const float *p = param, *g = grad;
    float *kept = slots[0];
    for (int64_t i = 0; i < count; i++) {
        kept[i] = kept[i] * 0.5f + g[i];
        const double term = (double)p[i] * (double)kept[i];
        cz_sum_add(&sums[0], 1, &term);
    }
}

static void combine_sums(const cz_rule_step *step, const double *sums, double *coefficients,
                         unsigned *flags)
{
    coefficients[1] = 1 / (1 + fabs(sums[0]));
}

static void update_with_sums(void *queue, int64_t count, void *param, const void *grad,
                             void *const *slots, const double *coefficients, unsigned flags)
{
    float *p = param, *kept = slots[0];
    const float rate = (float)(coefficients[0] * coefficients[1]);
    for (int64_t i = 0; i < count; i++) {
        p[i] -= rate * kept[i];
        kept[i] *= 0.75f;
    }
}

static cz_update_kernel find_f32(const cz_device *device, cz_dtype param, cz_dtype grad,
                                 cz_dtype state, void *context)
{
    return param == CZ_F32 && grad == CZ_F32 && state == CZ_F32 ? update_with_sums : NULL;
}

static cz_sums_kernel find_sums_f32(const cz_device *device, cz_dtype param, cz_dtype grad,
                                    cz_dtype state, void *context)
{
    return param == CZ_F32 && grad == CZ_F32 && state == CZ_F32 ? add_sums : NULL;
}

static const cz_rule with_sums = {
    .abi = CZ_RULE_ABI,
    .size = sizeof(cz_rule),
    .name = "with_sums",
    .hyper_size = sizeof *sums_hypers,
    .slot_size = sizeof *sums_slots,
    .hyper_count = 1,
    .hypers = sums_hypers,
    .slot_count = 1,
    .slots = sums_slots,
    .slots_used = one_slot,
    .prepare = prepare_rate,
    .find_kernel = find_f32,
    .sum_count = 1,
    .find_sums = find_sums_f32,
    .combine = combine_sums,
};

TEST(a_rule_with_partial_sums)
{
    for (int threads = 1; threads < 4; threads += 2) {
        cz_optim *optim, *twin;
        cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
        options.threads = threads;
        mixed_create(&m, CZ_BF16, CZ_F16, CZ_BF16);
        assert_ok(cz_optim_create(&optim, m.model, &with_sums, NULL, &options));
        assert_ok(cz_optim_create(&twin, m.twin, &with_sums, NULL, NULL));
        for (int step = 0; step < 3; step++) {
            cz_step_options clip = CZ_STEP_OPTIONS_INIT;
            clip.max_norm = step == 2 ? 0.5 : 0;
            mixed_set_gradients(&m, step);
            for (int64_t i = step; i < mixed_counts[0]; i += 97)
                mixed_set(&m, 0, i, 0.3f * (float)(step + 1));
            assert_ok(cz_optim_step(optim, &clip, NULL));
            assert_ok(cz_optim_step(twin, &clip, NULL));
            expect_twin(optim);
        }
        cz_optim_destroy(&optim);
        cz_optim_destroy(&twin);
        mixed_destroy(&m);
    }
}

/* ---- threads ---- */

/* Large enough that all of them work. */
TEST(threads_change_no_bit)
{
    enum { MANY = 700001 };
    static uint16_t values[2][MANY], gradients[MANY];
    uint64_t prints[2][2];
    for (int way = 0; way < 2; way++) {
        cz_model *model;
        cz_optim *optim;
        cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
        options.threads = way ? 3 : 1;
        options.master = CZ_MASTER_NONE;
        options.state_dtype = CZ_BF16;
        for (int64_t i = 0; i < MANY; i++) {
            values[way][i] = cz__bf16_from_f32(number(3, i, 1));
            gradients[i] = cz__bf16_from_f32(number(4, i, 1));
        }
        assert_ok(cz_model_create(&model));
        assert_ok(cz_model_add(model, "w", values[way], gradients, CZ_BF16, 1, &(int64_t){MANY}));
        assert_ok(cz_optim_create(&optim, model, cz_rule_adamw(), NULL, &options));
        for (int step = 0; step < 2; step++)
            assert_ok(cz_optim_step(optim, NULL, NULL));
        assert_ok(cz_optim_fingerprint(optim, prints[way]));
        cz_optim_destroy(&optim);
        cz_model_destroy(&model);
    }
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    assert_memory_equal(prints[0], prints[1], sizeof prints[0]);
}

/* ---- dictionaries ---- */

static void steps(cz_optim *optim, cz_optim *twin, int from, int to)
{
    for (int step = from; step < to; step++) {
        mixed_set_gradients(&m, step);
        assert_ok(cz_optim_step(optim, NULL, NULL));
        if (twin)
            assert_ok(cz_optim_step(twin, NULL, NULL));
    }
}

TEST(a_dictionary_has_masters_and_all_goes_on)
{
    cz_state_dict *dict;
    const cz_state_dict *params, *entry;
    cz_tensor tensor;
    mixed_create(&m, CZ_BF16, CZ_F32, CZ_BF16);
    cz_optim *optim = make(m.model, "adamw"), *twin = make(m.twin, "adamw");
    steps(optim, twin, 0, 2);
    assert_ok(cz_optim_state_dict(optim, &dict));
    assert_ok(cz_state_dict_get_dict(dict, "state", &params));
    assert_ok(cz_state_dict_get_dict(params, "a", &entry));
    assert_ok(cz_state_dict_get_tensor(entry, "master_param", &tensor));
    assert_true(tensor.dtype == CZ_F32 && cz_tensor_count(&tensor) == mixed_counts[0]);
    assert_memory_equal(tensor.data, m.twins[0], sizeof(float) * (size_t)mixed_counts[0]);
    assert_ok(cz_state_dict_get_dict(params, "b", &entry));
    assert_int_equal(cz_state_dict_kind(entry, "master_param"), CZ_STATE_NONE);
    cz_optim_destroy(&optim);
    optim = make(m.model, "adamw");
    assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
    cz_state_dict_destroy(&dict);
    steps(optim, twin, 2, 4);
    expect_twin(optim);
    cz_optim_destroy(&optim);
    cz_optim_destroy(&twin);
    mixed_destroy(&m);
}

/* A run with masters goes on in f32, where the masters are the values, and a run in f32 with
 * masters, which begin as the values. */
TEST(from_masters_to_f32_and_back)
{
    cz_state_dict *dict;
    mixed_create(&m, CZ_BF16, CZ_F16, CZ_BF16);
    cz_optim *optim = make(m.model, "adamw"), *twin = make(m.twin, "adamw"), *other;
    steps(optim, twin, 0, 2);
    assert_ok(cz_optim_state_dict(optim, &dict));
    static float kept[MIXED_PARAMS][MIXED_MOST];
    memcpy(kept, m.twins, sizeof kept);
    for (int p = 0; p < MIXED_PARAMS; p++) /* as a file of the model's 16-bit values has them */
        for (int64_t i = 0; i < mixed_counts[p]; i++)
            m.twins[p][i] = widen_one(m.dtypes[p], m.halves[p][i]);
    other = make(m.twin, "adamw");
    assert_ok(cz_optim_load_state_dict(other, dict, NULL));
    assert_memory_equal(kept, m.twins, sizeof kept);
    cz_state_dict_destroy(&dict);
    steps(optim, other, 2, 3);
    expect_twin(optim);
    assert_ok(cz_optim_state_dict(other, &dict));
    cz_optim_destroy(&optim);
    optim = make(m.model, "adamw");
    assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
    cz_state_dict_destroy(&dict);
    for (int p = 0; p < MIXED_PARAMS; p++) /* what has 16 bits has lost the rest */
        for (int64_t i = 0; i < mixed_counts[p]; i++)
            m.twins[p][i] = widen_one(m.dtypes[p], m.halves[p][i]);
    steps(optim, other, 3, 5);
    expect_twin(optim);
    cz_optim_destroy(&optim);
    cz_optim_destroy(&twin);
    cz_optim_destroy(&other);
    mixed_destroy(&m);
}

TEST(state_of_another_type_is_converted)
{
    cz_state_dict *dict;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    const void *data;
    int64_t count;
    cz_optim *narrow;
    options.state_dtype = CZ_BF16;
    options.master = CZ_MASTER_NONE;
    mixed_create(&m, CZ_BF16, CZ_F16, CZ_BF16);
    cz_optim *optim = make(m.model, "adamw");
    steps(optim, NULL, 0, 2);
    assert_ok(cz_optim_state_dict(optim, &dict));
    assert_ok(cz_optim_create(&narrow, m.model, cz_rule_adamw(), NULL, &options));
    assert_ok(cz_optim_load_state_dict(narrow, dict, NULL));
    assert_ok(cz_optim_state(optim, 0, "exp_avg_sq", 0, &data, &count));
    const float *wide = data;
    assert_ok(cz_optim_state(narrow, 0, "exp_avg_sq", 0, &data, &count));
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(((const uint16_t *)data)[i], cz__bf16_from_f32(wide[i]));
    cz_state_dict_destroy(&dict);
    assert_ok(cz_optim_state_dict(narrow, &dict));
    cz_optim_destroy(&optim);
    optim = make(m.model, "adamw");
    assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
    steps(optim, NULL, 2, 3);
    cz_state_dict_destroy(&dict);
    cz_optim_destroy(&optim);
    cz_optim_destroy(&narrow);
    mixed_destroy(&m);
}

/* Every allocation of a creation and a load fails once. */
TEST(without_memory_nothing_changes)
{
    cz_state_dict *dict;
    uint64_t before[2], after[2];
    mixed_create(&m, CZ_BF16, CZ_F16, CZ_BF16);
    cz_optim *optim = make(m.model, "adamw"), *other;
    steps(optim, NULL, 0, 1);
    assert_ok(cz_optim_state_dict(optim, &dict));
    steps(optim, NULL, 1, 2);
    assert_ok(cz_optim_fingerprint(optim, before));
    cz_status status = CZ_ERR_MEMORY;
    for (int n = 1; status == CZ_ERR_MEMORY; n++) {
        cz_test_fail_allocation(n);
        status = cz_optim_load_state_dict(optim, dict, NULL);
        cz_test_allocation_reset();
        assert_ok(cz_optim_fingerprint(optim, after));
        assert_true(status == CZ_OK || memcmp(before, after, sizeof before) == 0);
    }
    assert_ok(status);
    status = CZ_ERR_MEMORY;
    for (int n = 1; status == CZ_ERR_MEMORY; n++) {
        cz_test_fail_allocation(n);
        status = cz_optim_create(&other, m.model, cz_rule_adamw(), NULL, NULL);
        cz_test_allocation_reset();
    }
    assert_ok(status);
    cz_optim_destroy(&other);
    cz_optim_destroy(&optim);
    cz_state_dict_destroy(&dict);
    mixed_destroy(&m);
}
