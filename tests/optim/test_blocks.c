/* SPDX-License-Identifier: MIT */
/* State in 8 bits: a step is that over state in f32, which is rounded to codes, block by block,
 * after it. Values of all types, threads, small parameters, dictionaries, what is refused. */
#include <math.h>
#include <string.h>

#include "device/blocks.h"
#include "optim/optim.h"
#include "base/half.h"
#include "support/cz_test.h"

enum { PARAMS = 6, MOST = 30011, STEPS = 6, FROM = 200 };
static const int64_t counts[PARAMS] = {MOST, 257, 1, 256, 199, 255};

typedef struct side {
    cz_model *model;
    cz_optim *optim;
    float values[PARAMS][MOST], gradients[PARAMS][MOST];
    uint16_t halves[PARAMS][MOST];
} side;

static side packed, twin;

static float number(int64_t a, int64_t b, int64_t c)
{
    return (float)sin((double)(a * 31 + b) * 0.7 + (double)c * 1.3) *
           (float)ldexp(1, (int)((a + b) % 23) - 17);
}

static void open_side(side *s, cz_dtype dtype, const char *rule, const cz_hyper *hypers,
                      const cz_optim_options *options)
{
    assert_ok(cz_model_create(&s->model));
    for (int p = 0; p < PARAMS; p++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", p);
        for (int64_t i = 0; i < counts[p]; i++) {
            s->values[p][i] = number(p, i, -1);
            s->halves[p][i] = cz__bf16_from_f32(s->values[p][i]);
        }
        void *value = dtype == CZ_F32 ? (void *)s->values[p] : s->halves[p];
        const cz_tensor of_value = {value, dtype, CZ_DENSE, 1, {counts[p]}, NULL};
        const cz_tensor of_gradient = {s->gradients[p], CZ_F32, CZ_DENSE, 1, {counts[p]}, NULL};
        assert_ok(cz_model_add_tensor(s->model, name, &of_value, &of_gradient));
    }
    assert_ok(cz_optim_create(&s->optim, s->model, cz_rule_find(rule), hypers, options));
}

static void close_side(side *s)
{
    cz_optim_destroy(&s->optim);
    cz_model_destroy(&s->model);
}

static void step(side *s, int64_t number_of_step)
{
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < counts[p]; i++)
            s->gradients[p][i] = number(i, p, number_of_step);
    assert_ok(cz_optim_step(s->optim, NULL, NULL));
}

/* ---- the twin: its state in f32, rounded by what tests/device/test_blocks.c tries ---- */

static const char *const slots[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"};

static const cz_state_dict *entry_of(const cz_state_dict *dict, int p)
{
    const cz_state_dict *state, *entry;
    char name[8];
    snprintf(name, sizeof name, "p%d", p);
    assert_ok(cz_state_dict_get_dict(dict, "state", &state));
    assert_ok(cz_state_dict_get_dict(state, name, &entry));
    return entry;
}

static void round_slot(const cz_state_dict *entry, int slot)
{
    static uint8_t codes[MOST];
    static float scales[MOST / CZ__BLOCK + 1];
    const bool is_signed = slot == 0 || slot == 3;
    cz_tensor tensor;
    if (cz_state_dict_kind(entry, slots[slot]) == CZ_STATE_NONE)
        return;
    assert_ok(cz_state_dict_get_tensor(entry, slots[slot], &tensor));
    assert_int_equal(tensor.dtype, CZ_F32);
    const int64_t count = cz_tensor_count(&tensor);
    cz__pack(is_signed, count, tensor.data, codes, scales);
    cz__unpack(is_signed, count, codes, scales, tensor.data);
}

static void round_twin(void)
{
    cz_state_dict *dict;
    assert_ok(cz_optim_state_dict(twin.optim, &dict));
    for (int p = 0; p < PARAMS; p++)
        for (int slot = 0; slot < 4; slot++)
            if (counts[p] >= FROM)
                round_slot(entry_of(dict, p), slot);
    assert_ok(cz_optim_load_state_dict(twin.optim, dict, NULL));
    cz_state_dict_destroy(&dict);
}

static void expect_same_state(const cz_optim *a, const cz_optim *b)
{
    uint64_t prints[2][2];
    assert_ok(cz_optim_fingerprint(a, prints[0]));
    assert_ok(cz_optim_fingerprint(b, prints[1]));
    assert_memory_equal(prints[0], prints[1], sizeof prints[0]);
}

static void expect_same_values(void)
{
    for (int p = 0; p < PARAMS; p++) {
        assert_memory_equal(packed.values[p], twin.values[p], (size_t)counts[p] * 4);
        assert_memory_equal(packed.halves[p], twin.halves[p], (size_t)counts[p] * 2);
    }
}

static void compare(cz_dtype dtype, const char *rule, const cz_hyper *hypers, int threads)
{
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    open_side(&twin, dtype, rule, hypers, NULL);
    options.state_dtype = CZ_U8;
    options.u8_from = FROM;
    options.threads = threads;
    open_side(&packed, dtype, rule, hypers, &options);
    for (int t = 0; t < STEPS; t++) {
        step(&packed, t);
        step(&twin, t);
        expect_same_values();
        round_twin();
        expect_same_state(packed.optim, twin.optim);
    }
    close_side(&packed);
    close_side(&twin);
}

static const cz_hyper adam[] = {{"lr", 0.01}, {"weight_decay", 0.1}, {0}};
static const cz_hyper amsgrad[] = {{"lr", 0.01}, {"amsgrad", 1}, {0}};
static const cz_hyper lion[] = {{"lr", 0.001}, {0}};
static const cz_hyper momentum[] = {{"lr", 0.1}, {"momentum", 0.9}, {"nesterov", 1}, {0}};
static const cz_hyper plain[] = {{"lr", 0.1}, {0}};

TEST(a_step_is_that_of_f32_and_then_state_is_rounded_by_blocks)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        compare(CZ_F32, "adamw", adam, threads);
        compare(CZ_F32, "adam", amsgrad, threads);
        compare(CZ_F32, "lion", lion, threads);
        compare(CZ_F32, "sgd", momentum, threads);
        compare(CZ_F32, "sgd", plain, threads);
    }
}

TEST(values_of_16_bits_have_their_masters)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        compare(CZ_BF16, "adamw", adam, threads);
        compare(CZ_BF16, "sgd", momentum, threads);
    }
}

static void open_packed(cz_dtype state, int64_t from)
{
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.state_dtype = state;
    options.u8_from = from;
    open_side(&packed, CZ_F32, "adamw", adam, &options);
}

static size_t state_bytes(void)
{
    cz_optim_info info = CZ_OPTIM_INFO_INIT;
    assert_ok(cz_optim_get_info(packed.optim, &info));
    return info.state_bytes;
}

TEST(state_has_a_byte_for_an_element_and_a_scale_for_a_block)
{
    size_t expected = 0;
    for (int p = 0; p < PARAMS; p++)
        expected += 2 * (counts[p] < FROM ? 4 * (size_t)counts[p]
                                          : (size_t)(counts[p] + 4 * cz__blocks(counts[p])));
    open_packed(CZ_U8, FROM);
    assert_in_range(state_bytes(), expected, expected + 64); /* where a scale is to begin */
    close_side(&packed);
    open_packed(CZ_U8, 0); /* 4096 */
    const size_t rest = 4 * (257 + 1 + 256 + 199 + 255);
    expected = 2 * (MOST + 4 * (size_t)cz__blocks(MOST) + rest);
    assert_in_range(state_bytes(), expected, expected + 64);
    assert_true((double)(MOST + 4 * cz__blocks(MOST)) * 2 / MOST < 2.06);
    close_side(&packed);
}

/* ---- dictionaries ---- */

/* From the state of one to another type, and as many steps there. */
static void go_on(cz_dtype from, cz_dtype to)
{
    cz_state_dict *dict;
    static float values[PARAMS][MOST];
    open_packed(from, FROM);
    for (int t = 0; t < 3; t++)
        step(&packed, t);
    assert_ok(cz_optim_state_dict(packed.optim, &dict));
    memcpy(values, packed.values, sizeof values);
    uint64_t before[2], after[2];
    assert_ok(cz_optim_fingerprint(packed.optim, before));
    close_side(&packed);
    open_packed(to, FROM);
    memcpy(packed.values, values, sizeof values);
    assert_ok(cz_optim_load_state_dict(packed.optim, dict, NULL));
    assert_ok(cz_optim_fingerprint(packed.optim, after));
    if (from == CZ_U8 && to != CZ_BF16) /* what codes stand for is the state */
        assert_memory_equal(before, after, sizeof before);
    cz_state_dict *again;
    assert_ok(cz_optim_state_dict(packed.optim, &again));
    for (int p = 0; p < PARAMS; p++)
        for (int slot = 0; slot < 2; slot++) {
            cz_tensor a, b;
            assert_ok(cz_state_dict_get_tensor(entry_of(dict, p), slots[slot], &a));
            assert_ok(cz_state_dict_get_tensor(entry_of(again, p), slots[slot], &b));
            if (to != CZ_U8 || from != CZ_F32 || counts[p] < FROM)
                continue;
            round_slot(entry_of(dict, p), slot);
            assert_memory_equal(a.data, b.data, (size_t)counts[p] * sizeof(float));
        }
    step(&packed, 3);
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&again);
    close_side(&packed);
}

TEST(state_goes_on_in_another_type)
{
    go_on(CZ_U8, CZ_U8);
    go_on(CZ_U8, CZ_F32);
    go_on(CZ_F32, CZ_U8);
    go_on(CZ_BF16, CZ_U8);
    go_on(CZ_U8, CZ_BF16);
}

TEST(a_load_without_state_of_a_parameter_makes_it_zero)
{
    cz_state_dict *dict;
    uint64_t fresh[2], emptied[2];
    open_packed(CZ_U8, FROM);
    assert_ok(cz_optim_state_dict(packed.optim, &dict));
    assert_ok(cz_optim_fingerprint(packed.optim, fresh));
    static float values[PARAMS][MOST];
    memcpy(values, packed.values, sizeof values);
    step(&packed, 0);
    assert_ok(cz_optim_load_state_dict(packed.optim, dict, NULL));
    memcpy(packed.values, values, sizeof values);
    assert_ok(cz_optim_fingerprint(packed.optim, emptied));
    assert_memory_equal(fresh, emptied, sizeof fresh);
    open_side(&twin, CZ_F32, "adamw", adam, NULL);
    step(&packed, 1);
    step(&twin, 1);
    expect_same_values();
    cz_state_dict_destroy(&dict);
    close_side(&packed);
    close_side(&twin);
}

/* ---- what is not finite ---- */

TEST(a_gradient_that_is_not_finite_spoils_its_block_alone)
{
    const float odd[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        open_packed(CZ_U8, FROM);
        step(&packed, 0);
        for (int p = 0; p < PARAMS; p++)
            for (int64_t i = 0; i < counts[p]; i++)
                packed.gradients[p][i] = p == 0 && i == 1000 ? odd[k] : 0.5f;
        assert_ok(cz_optim_step(packed.optim, NULL, NULL));
        step(&packed, 2);
        for (int p = 0; p < PARAMS; p++)
            for (int64_t i = 0; i < counts[p]; i++)
                assert_int_equal(isnan(packed.values[p][i]), p == 0 && i / CZ__BLOCK == 3);
        close_side(&packed);
    }
}

/* ---- what cannot be ---- */

static void expect_refusal(const char *rule, const cz_optim_options *options, cz_status status,
                           const char *words)
{
    cz_optim *optim;
    assert_int_equal(
        cz_optim_create(&optim, twin.model, cz_rule_find(rule), CZ_HYPERS({"lr", 0.1}), options),
        status);
    if (!strstr(cz_last_error(), words))
        fail_msg("\"%s\" does not say \"%s\"", cz_last_error(), words);
    assert_null(optim);
}

static cz_status no_memory(cz_memory_kind kind, size_t bytes, void **out)
{
    *out = NULL;
    return CZ_ERR_MEMORY;
}

TEST(what_cannot_be_is_refused_with_a_sentence)
{
    static double wide[300];
    const void *data;
    int64_t count;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    open_side(&twin, CZ_F32, "adamw", adam, NULL);
    options.state_dtype = CZ_U8;
    expect_refusal("adagrad", &options, CZ_ERR_ARGUMENT,
                   "is u8, and rule adagrad has no state that is kept in 8 bits: adam, adamw, lion "
                   "and sgd have");
    expect_refusal("muon", &options, CZ_ERR_ARGUMENT, "is u8, and rule muon has no state that");
    options.u8_from = -1;
    expect_refusal("adamw", &options, CZ_ERR_ARGUMENT, "u8_from");
    close_side(&twin);
    open_packed(CZ_U8, FROM);
    step(&packed, 0);
    assert_int_equal(cz_optim_state(packed.optim, 0, "exp_avg", 0, &data, &count),
                     CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "'exp_avg' of parameter 'p0' is in 8 bits"));
    assert_ok(cz_optim_state(packed.optim, 4, "exp_avg", 0, &data, &count)); /* a small one */
    assert_non_null(data);
    close_side(&packed);
    assert_ok(cz_model_create(&twin.model));
    assert_ok(cz_model_add(twin.model, "wide", wide, wide, CZ_F64, 1, &(int64_t){300}));
    options.u8_from = 0;
    expect_refusal("adamw", &options, CZ_ERR_ARGUMENT, "is u8, wanted is f64");
    cz_model_destroy(&twin.model);
    cz_device device = *cz_device_cpu();
    device.name = "other";
    device.allocate = no_memory;
    const cz_tensor value = {twin.values, CZ_F32, CZ_DENSE, 1, {5000}, &device};
    assert_ok(cz_model_create(&twin.model));
    assert_ok(cz_model_add_tensor(twin.model, "a", &value, NULL));
    expect_refusal("adamw", &options, CZ_ERR_UNSUPPORTED,
                   "'a' is on device other: state in 8 bits is for the host's memory");
    cz_model_destroy(&twin.model);
}
