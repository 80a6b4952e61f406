/* SPDX-License-Identifier: MIT */
/* State dictionaries of the local optimizer: what they hold, what goes back in, what is refused. */
#include "optim/two_params.h"

#include "czero/state.h"
#include "tensor/model.h"
#include "base/half.h"
#include "optim/optim.h"

static cz_optim *make_adam(double amsgrad)
{
    cz_optim *optim;
    assert_ok(
        cz_optim_create(&optim, model, cz_rule_adam(), CZ_HYPERS({"amsgrad", amsgrad}), NULL));
    return optim;
}

static cz_state_dict *dict_of(const cz_optim *optim)
{
    cz_state_dict *dict;
    assert_ok(cz_optim_state_dict(optim, &dict));
    return dict;
}

/* The nested dictionary at two keys, to be changed. */
static cz_state_dict *at(cz_state_dict *dict, const char *first, const char *second)
{
    const cz_state_dict *inner = dict;
    assert_ok(cz_state_dict_get_dict(inner, first, &inner));
    if (second)
        assert_ok(cz_state_dict_get_dict(inner, second, &inner));
    return (cz_state_dict *)inner;
}

TEST(what_it_holds)
{
    cz_optim *optim = make_sgd(model, 0.9);
    cz_state_dict *before = dict_of(optim);
    assert_int_equal(cz_state_dict_count(at(before, "state", NULL)), 0); /* nobody has state */
    step(optim);
    cz_state_dict *dict = dict_of(optim);
    const char *text;
    double value;
    int64_t steps;
    cz_tensor tensor;
    assert_ok(cz_state_dict_get_text(dict, "rule", &text));
    assert_string_equal(text, "sgd");
    assert_int_equal(cz_state_dict_count(at(dict, "param_groups", NULL)), 1);
    cz_state_dict *group = at(dict, "param_groups", "0");
    assert_ok(cz_state_dict_get_real(group, "momentum", &value));
    assert_true(value == 0.9);
    const char *const *members;
    int64_t count;
    assert_ok(cz_state_dict_get_texts(group, "params", &members, &count));
    assert_int_equal(count, 2);
    assert_string_equal(members[1], "b");
    assert_string_equal(cz_state_dict_key(at(dict, "state", NULL), 0), "a");
    assert_ok(cz_state_dict_get_integer(at(dict, "state", "b"), "step", &steps));
    assert_int_equal(steps, 1);
    assert_ok(cz_state_dict_get_tensor(at(dict, "state", "b"), "momentum_buffer", &tensor));
    assert_int_equal(cz_tensor_count(&tensor), N);
    step(optim); /* the dictionary is a snapshot */
    assert_true(((const float *)tensor.data)[N - 1] == 1);
    cz_state_dict_destroy(&before);
    cz_state_dict_destroy(&dict);
    cz_optim_destroy(&optim);
}

/* x = 1, lr 0.1, momentum 0.9, gradient 1: 0.9 and 1; loaded by one with lr 0.01 and no momentum
 * option:
 * 0.71 and 1.9. */
TEST(upstream_state_dict)
{
    float x = 1, g = 1;
    const int64_t shape = 1;
    double value;
    cz_model *another;
    cz_optim *first, *second;
    assert_ok(cz_model_create(&another));
    assert_ok(cz_model_add(another, "x", &x, &g, CZ_F32, 1, &shape));
    assert_ok(cz_optim_create(&first, another, cz_rule_sgd(),
                              CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9}), NULL));
    step(first);
    assert_true(x == 0.9f);
    cz_state_dict *dict = dict_of(first), *copy;
    assert_ok(cz_state_dict_copy(&copy, dict));
    assert_ok(cz_optim_create(&second, another, cz_rule_sgd(), CZ_HYPERS({"lr", 0.01}), NULL));
    assert_ok(cz_optim_load_state_dict(second, dict, NULL));
    assert_true(cz_state_dict_equal(dict, copy)); /* the caller's stays as it is */
    assert_ok(cz_optim_get_hyper(second, 0, "lr", &value));
    assert_true(value == 0.1);
    assert_ok(cz_optim_get_hyper(second, 0, "momentum", &value));
    assert_true(value == 0.9);
    const void *data;
    int64_t count;
    assert_ok(cz_optim_state(second, 0, "momentum_buffer", 0, &data, &count));
    assert_true(*(const float *)data == 1);
    step(second);
    assert_true(x == 0.71f && *(const float *)data == 1.9f);
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&copy);
    cz_optim_destroy(&first);
    cz_optim_destroy(&second);
    cz_model_destroy(&another);
}

/* A slot that came late, one that is out of use, values that were added, a parameter that never had
 * a gradient: out and in is the identity, and the next steps have the same bits. */
TEST(round_trip)
{
    cz_optim *optim = make_adam(0);
    assert_ok(cz_model_set_gradient(model, 1, NULL));
    step(optim);
    assert_ok(cz_optim_set_hyper(optim, 0, "amsgrad", 1));
    assert_ok(cz_optim_add_hyper(optim, 0, "initial_lr", 0.5));
    cz_state_dict *dict = dict_of(optim);
    assert_int_equal(cz_state_dict_count(at(dict, "state", NULL)), 1);
    step(optim);
    assert_ok(cz_optim_set_hyper(optim, 0, "amsgrad", 0)); /* now out of use, kept */
    cz_state_dict *later = dict_of(optim);
    assert_int_equal(cz_state_dict_kind(at(later, "state", "a"), "max_exp_avg_sq"),
                     CZ_STATE_TENSOR);
    float wanted[2][N], begun[2][N];
    memcpy(begun, values, sizeof begun);
    step(optim);
    memcpy(wanted, values, sizeof wanted);

    cz_optim *other = make_adam(0);
    const cz_state_dict *dicts[] = {dict, later, dict, later};
    for (size_t k = 0; k < 4; k++) {
        assert_ok(cz_optim_load_state_dict(other, dicts[k], NULL));
        cz_state_dict *again = dict_of(other);
        assert_true(cz_state_dict_equal(again, dicts[k]));
        cz_state_dict_destroy(&again);
    }
    memcpy(values, begun, sizeof begun);
    step(other);
    assert_memory_equal(values, wanted, sizeof wanted);
    assert_int_equal(cz__optim_step_count(other, 0), 3);
    assert_int_equal(cz__optim_step_count(other, 1), 0);
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&later);
    cz_optim_destroy(&optim);
    cz_optim_destroy(&other);
}

/* Moments of other types are converted; a parameter that the dictionary does not know of starts
 * anew. */
TEST(other_types_and_missing_state)
{
    cz_optim *optim = make_adam(0);
    step(optim);
    cz_state_dict *dict = dict_of(optim);
    cz_state_dict *entry = at(dict, "state", "a");
    const int64_t shape = N;
    static double doubles[N];
    static uint16_t halves[N];
    for (int i = 0; i < N; i++) {
        doubles[i] = 1.0 / (i + 3);
        halves[i] = cz__bf16_from_f32((float)i);
    }
    const cz_tensor wide = {doubles, CZ_F64, CZ_DENSE, 1, {shape}, NULL};
    const cz_tensor narrow = {halves, CZ_BF16, CZ_DENSE, 1, {shape}, NULL};
    assert_ok(cz_state_dict_set_tensor(entry, "exp_avg", &wide));
    assert_ok(cz_state_dict_set_tensor(entry, "exp_avg_sq", &narrow));
    assert_ok(cz_state_dict_remove(entry, "step"));
    assert_ok(cz_state_dict_set_real(entry, "step", 7));
    assert_ok(cz_state_dict_remove(at(dict, "state", NULL), "b"));
    assert_ok(cz_optim_load_state_dict(optim, dict, NULL));
    const void *data;
    int64_t count;
    for (int i = 0; i < N; i++) {
        assert_ok(cz_optim_state(optim, 0, "exp_avg", i, &data, &count));
        assert_true(*(const float *)data == (float)doubles[i]);
        assert_ok(cz_optim_state(optim, 0, "exp_avg_sq", i, &data, &count));
        assert_true(*(const float *)data == (float)i);
    }
    assert_int_equal(cz__optim_step_count(optim, 0), 7);
    assert_int_equal(cz__optim_step_count(optim, 1), 0);
    assert_true(isnan(state_of(optim, 1, "exp_avg")));
    cz_state_dict *again = dict_of(optim);
    assert_int_equal(cz_state_dict_count(at(again, "state", NULL)), 1);
    cz_state_dict_destroy(&again);
    cz_state_dict_destroy(&dict);
    cz_optim_destroy(&optim);
}

/* Two groups with the members in other order and the model in another order: names decide. */
TEST(names_decide)
{
    const int64_t shape = N;
    cz_model *swapped;
    static float other[2][N], gradient[2][N];
    assert_ok(cz_model_create(&swapped));
    assert_ok(cz_model_add(swapped, "b", other[0], gradient[0], CZ_F32, 1, &shape));
    assert_ok(cz_model_add(swapped, "a", other[1], gradient[1], CZ_F32, 1, &shape));
    for (int i = 0; i < N; i++)
        grads[0][i] = 2;
    cz_optim *optim = make_sgd(model, 0.9), *second = make_sgd(swapped, 0);
    step(optim);
    cz_state_dict *dict = dict_of(optim);
    assert_ok(cz_optim_load_state_dict(second, dict, NULL));
    assert_true(state_of(second, 0, "momentum_buffer") == 1);
    assert_true(state_of(second, 1, "momentum_buffer") == 2);
    cz_state_dict_destroy(&dict);
    cz_optim_destroy(&optim);
    cz_optim_destroy(&second);
    cz_model_destroy(&swapped);
}

/* ---- what is refused ---- */

static float zeros[N];
static const cz_tensor reshaped = {zeros, CZ_F32, CZ_DENSE, 2, {N, 1}, NULL};
static const cz_tensor shorter = {zeros, CZ_F32, CZ_DENSE, 1, {N - 1}, NULL};
static const cz_tensor integers = {zeros, CZ_I32, CZ_DENSE, 1, {N}, NULL};

/* `d` is spoilt, and so not loaded: nothing is changed. */
#define REFUSE(spoil, words)                                                                       \
    do {                                                                                           \
        cz_state_dict *d;                                                                          \
        assert_ok(cz_state_dict_copy(&d, good));                                                   \
        spoil;                                                                                     \
        assert_int_equal(cz_optim_load_state_dict(optim, d, NULL), CZ_ERR_ARGUMENT);               \
        if (!strstr(cz_last_error(), words))                                                       \
            fail_msg("'%s' lacks '%s'", cz_last_error(), words);                                   \
        cz_state_dict_destroy(&d);                                                                 \
        d = dict_of(optim);                                                                        \
        assert_true(cz_state_dict_equal(d, present));                                              \
        cz_state_dict_destroy(&d);                                                                 \
    } while (0)
#define GROUP at(d, "param_groups", "0")
#define ENTRY at(d, "state", "b")

TEST(what_is_refused)
{
    cz_state_dict *child;
    cz_optim *optim = make_adam(0);
    step(optim);
    cz_state_dict *good = dict_of(optim);
    step(optim);
    cz_state_dict *present = dict_of(optim);
    REFUSE(cz_state_dict_set_text(d, "rule", "adamw"), "of rule adamw, this optimizer of adam");
    REFUSE(cz_state_dict_remove(d, "rule"), "'rule'");
    REFUSE(cz_state_dict_remove(d, "param_groups"), "'param_groups'");
    REFUSE(cz_state_dict_remove(d, "state"), "'state'");
    REFUSE(cz_state_dict_add_dict(at(d, "param_groups", NULL), "1", &child),
           "2 parameter groups in the dictionary, 1 here");
    REFUSE(cz_state_dict_set_texts(GROUP, "params", (const char *[]){"a"}, 1),
           "group 0 has 1 parameters in the dictionary, 2 here");
    REFUSE(cz_state_dict_set_texts(GROUP, "params", (const char *[]){"a", "a"}, 2), "'a' is twice");
    REFUSE(cz_state_dict_set_texts(GROUP, "params", (const char *[]){"a", "c"}, 2),
           "'c' of group 0 is not in the model");
    REFUSE(cz_state_dict_remove(GROUP, "params"), "'params'");
    REFUSE(cz_state_dict_set_real(GROUP, "beta1", 1), "beta1 is 1");
    REFUSE(cz_state_dict_set_text(GROUP, "lr", "0.1"), "param_groups/0/lr");
    REFUSE(cz_state_dict_set_real(GROUP, "initial_lr", INFINITY), "initial_lr is inf");
    REFUSE(cz_state_dict_add_dict(at(d, "state", NULL), "c", &child),
           "'c' of the dictionary is not in the model");
    REFUSE(cz_state_dict_set_real(at(d, "state", NULL), "b", 1), "state/b");
    REFUSE(cz_state_dict_set_tensor(ENTRY, "exp_avg", &reshaped), "shapes differ");
    REFUSE(cz_state_dict_set_tensor(ENTRY, "exp_avg", &shorter), "shapes differ");
    REFUSE(cz_state_dict_set_tensor(ENTRY, "exp_avg", &integers),
           "'exp_avg' of parameter 'b' is i32");
    REFUSE(cz_state_dict_remove(ENTRY, "exp_avg_sq"), "'b' has no 'exp_avg_sq'");
    REFUSE((cz_state_dict_remove(ENTRY, "exp_avg"), cz_state_dict_remove(ENTRY, "exp_avg_sq")),
           "'b' has no 'exp_avg'");
    REFUSE(cz_state_dict_remove(ENTRY, "step"), "'b' has no 'step'");
    REFUSE(cz_state_dict_set_real(ENTRY, "step", 1.5), "step count of parameter 'b' is 1.5");
    REFUSE(cz_state_dict_set_integer(ENTRY, "step", -1), "step count of parameter 'b' is -1");
    REFUSE(cz_state_dict_set_real(ENTRY, "momentum_buffer", 1),
           "'momentum_buffer', which adam has not");
    REFUSE(cz_state_dict_set_real(GROUP, "amsgrad", 1), "has no 'max_exp_avg_sq'");
    assert_int_equal(cz_optim_load_state_dict(optim, NULL, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_optim_state_dict(optim, NULL), CZ_ERR_ARGUMENT);
    cz_state_dict_destroy(&good);
    cz_state_dict_destroy(&present);
    cz_optim_destroy(&optim);
}

TEST(out_of_memory)
{
    cz_optim *optim = make_adam(1), *other = make_adam(0);
    step(optim);
    cz_state_dict *dict = dict_of(optim), *before = dict_of(other), *got;
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_optim_state_dict(optim, &got);
        if (!cz_test_allocation_reset())
            break;
        assert_int_equal(status, CZ_ERR_MEMORY);
        assert_null(got);
    }
    assert_true(cz_state_dict_equal(got, dict));
    cz_state_dict_destroy(&got);
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_optim_load_state_dict(other, dict, NULL);
        if (!cz_test_allocation_reset())
            break;
        assert_int_equal(status, CZ_ERR_MEMORY);
        got = dict_of(other);
        assert_true(cz_state_dict_equal(got, before));
        cz_state_dict_destroy(&got);
    }
    got = dict_of(other);
    assert_true(cz_state_dict_equal(got, dict));
    cz_state_dict_destroy(&got);
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&before);
    cz_optim_destroy(&optim);
    cz_optim_destroy(&other);
    cz_model_destroy(&model);
    assert_int_equal(cz_test_allocations_held(), 0);
}

/* A narrower type is rounded once, also on the way from f64 past f32: halfway cases go to even only
 * if they are halfway in f64. */
TEST(conversion_rounds_once)
{
    const double just_above = 1 + 0x1p-8 + 0x1p-40, just_below = 1 + 3 * 0x1p-8 - 0x1p-40;
    const double from[] = {just_above, just_below, 1 + 0x1p-8, -just_above,
                           0,          -0.0,       INFINITY,   1e300};
    const uint16_t wanted[] = {0x3f81, 0x3f81, 0x3f80, 0xbf81, 0, 0x8000, 0x7f80, 0x7f80};
    uint16_t got[8];
    cz__convert(CZ_BF16, got, CZ_F64, from, 8);
    assert_memory_equal(got, wanted, sizeof wanted);
    const double fine[] = {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11, 65519.99999, 65520};
    const uint16_t halves[] = {0x3c01, 0x3c00, 0x7bff, 0x7c00};
    cz__convert(CZ_F16, got, CZ_F64, fine, 4);
    assert_memory_equal(got, halves, sizeof halves);
}
