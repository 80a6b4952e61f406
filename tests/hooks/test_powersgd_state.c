/* SPDX-License-Identifier: MIT */
/* PowerSGD's state in and out: a run that is cut in two has the bits of one that is not, also where
 * buckets are made anew in between; what is refused changes nothing. */
#include "hooks/hook_test.h"

enum { MOST = 1200, PASSES = 8, CUT = 4 };

typedef struct trial {
    layout layout;
    cz_powersgd_options options;
} trial;

static trial make_trial(int k)
{
    trial t = {.layout = {.count = 6,
                          .shapes = {{20, 9}, {11}, {9, 20}, {20, 3, 3}, {1}, {17, 18}},
                          .dtype = k % 2 ? CZ_F64 : CZ_F32},
               .options = CZ_POWERSGD_OPTIONS_INIT};
    t.layout.options.bucket_bytes = t.layout.options.first_bucket_bytes = 900;
    t.options.start_iter = 2;
    t.options.rank = 1 + k % 3;
    t.options.batched = k == 3;
    t.options.cold_start = k == 4;
    t.options.drop_errors = k == 5;
    t.layout.options.keep_buckets = t.options.batched; /* Q belongs to buckets there */
    return t;
}

static cz_status one_pass(subject *s, int pass)
{
    float in[MOST];
    cz_test_stream_f32(70 * (uint64_t)pass + (uint64_t)cz_group_rank(s->group) + 1,
                       element_count(s->layout), in);
    return subject_pass(s, in, NULL);
}

static cz_status start(subject *s, cz_powersgd **p, cz_group *group, const trial *t)
{
    CZ_TRY(subject_create(s, group, &t->layout));
    CZ_TRY(cz_powersgd_create(p, s->model, &t->options));
    return cz_ddp_register_hook_by_name(s->ddp, "powersgd", *p);
}

/* The same passes on both, from the cut on. */
static cz_status go_on(subject *whole, subject *second, const trial *t)
{
    static _Thread_local float a[MOST], b[MOST];
    const size_t bytes = (size_t)element_count(&t->layout) * sizeof *a;
    for (int pass = CUT; pass < PASSES; pass++) {
        CZ_TRY(one_pass(whole, pass));
        CZ_TRY(one_pass(second, pass));
        subject_result(whole, a);
        subject_result(second, b);
        if (memcmp(a, b, bytes) != 0)
            return cz_fail(CZ_ERR_STATE, "pass %d differs from that of a run in one piece", pass);
    }
    return CZ_OK;
}

/* A dictionary of the state now is equal to what was loaded. */
static cz_status same_dict(const cz_powersgd *p, const cz_state_dict *dict)
{
    cz_state_dict *now;
    CZ_TRY(cz_powersgd_state_dict(p, &now));
    const bool same = cz_state_dict_equal(now, dict);
    cz_state_dict_destroy(&now);
    return same ? CZ_OK : cz_fail(CZ_ERR_STATE, "what was loaded is not what is there");
}

static cz_status cut_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    subject whole = {0}, second = {0};
    cz_powersgd *p = NULL, *q = NULL;
    cz_state_dict *dict = NULL;
    cz_status status = start(&whole, &p, group, t);
    for (int pass = 0; status == CZ_OK && pass < CUT; pass++)
        status = one_pass(&whole, pass);
    THEN(cz_powersgd_state_dict(p, &dict));
    THEN(start(&second, &q, group, t));
    THEN(cz_powersgd_load_state_dict(q, dict));
    THEN(same_dict(q, dict));
    THEN(go_on(&whole, &second, t));
    cz_state_dict_destroy(&dict);
    subject_clear(&whole);
    subject_clear(&second);
    cz_powersgd_destroy(&p);
    cz_powersgd_destroy(&q);
    return status;
}

TEST(a_run_in_two_pieces)
{
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 6; k++) {
            trial t = make_trial(k);
            assert_ranks_ok(worlds[w], cut_rank, &t);
        }
}

/* ---- what is refused ---- */

static void refuse(cz_powersgd *p, const cz_state_dict *dict, cz_status status,
                   const char *sentence)
{
    cz_state_dict *before;
    assert_ok(cz_powersgd_state_dict(p, &before));
    assert_int_equal(cz_powersgd_load_state_dict(p, dict), status);
    if (!strstr(cz_last_error(), sentence))
        fail_msg("'%s', wanted '%s'", cz_last_error(), sentence);
    assert_ok(same_dict(p, before));
    cz_state_dict_destroy(&before);
}

/* Parts of a good dictionary, each made wrong. */
static void change(cz_state_dict *dict, cz_powersgd *p)
{
    const cz_state_dict *found;
    cz_state_dict *errors;
    int64_t shape[] = {3};
    void *data;
    assert_ok(cz_state_dict_set_integer(dict, "rank", 7));
    refuse(p, dict, CZ_ERR_MISMATCH, "rank is 7 in the dictionary, here 2");
    assert_ok(cz_state_dict_set_integer(dict, "rank", 2));
    assert_ok(cz_state_dict_set_integer(dict, "batched", 1));
    refuse(p, dict, CZ_ERR_MISMATCH, "batched is 1");
    assert_ok(cz_state_dict_set_integer(dict, "batched", 0));
    assert_ok(cz_state_dict_set_integer(dict, "iter", -1));
    refuse(p, dict, CZ_ERR_ARGUMENT, "iter is -1");
    assert_ok(cz_state_dict_remove(dict, "iter"));
    refuse(p, dict, CZ_ERR_ARGUMENT, "iter");
    assert_ok(cz_state_dict_set_integer(dict, "iter", 4));
    assert_ok(cz_state_dict_get_dict(dict, "errors", &found));
    assert_ok(cz_state_dict_remove(dict, "errors"));
    assert_ok(cz_powersgd_load_state_dict(p, dict)); /* another number of ranks */
    assert_ok(cz_state_dict_add_dict(dict, "errors", &errors));
    assert_ok(cz_state_dict_add_tensor(errors, "p0", CZ_F32, 1, shape, &data));
    refuse(p, dict, CZ_ERR_MISMATCH, "the error of 'p0' has 3 elements of f32, wanted 180 of f32");
    assert_ok(cz_state_dict_remove(errors, "p0"));
    assert_ok(cz_state_dict_add_tensor(errors, "elsewhere", CZ_F32, 1, shape, &data));
    refuse(p, dict, CZ_ERR_MISMATCH, "there is no parameter 'elsewhere'");
    assert_ok(cz_state_dict_remove(errors, "elsewhere"));
    shape[0] = 180;
    assert_ok(cz_state_dict_add_tensor(errors, "p0", CZ_I32, 1, shape, &data));
    refuse(p, dict, CZ_ERR_MISMATCH, "'p0' is i32, wanted f32 or f64");
}

typedef struct trained {
    trial trial;
    subject s;
    cz_powersgd *p;
} trained;

static cz_status trained_rank(cz_group *group, void *arg)
{
    trained *t = arg;
    cz_status status = start(&t->s, &t->p, group, &t->trial);
    for (int pass = 0; status == CZ_OK && pass < CUT; pass++)
        status = one_pass(&t->s, pass);
    cz_ddp_destroy(&t->s.ddp);
    return status;
}

TEST(what_is_refused)
{
    trained t = {.trial = make_trial(0)};
    cz_powersgd **p = &t.p;
    cz_state_dict *dict;
    t.trial.options.rank = 2;
    assert_ranks_ok(1, trained_rank, &t);
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_powersgd_state_dict(*p, &dict);
        if (!cz_test_allocation_reset())
            break;
        assert_int_equal(status, CZ_ERR_MEMORY);
        assert_null(dict);
    }
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_powersgd_load_state_dict(*p, dict);
        if (!cz_test_allocation_reset())
            break;
        assert_int_equal(status, CZ_ERR_MEMORY);
        assert_ok(same_dict(*p, dict));
    }
    change(dict, *p);
    assert_int_equal(cz_powersgd_load_state_dict(*p, NULL), CZ_ERR_ARGUMENT);
    cz_state_dict_destroy(&dict);
    cz_powersgd_destroy(p);
    subject_clear(&t.s);
}

TEST(options)
{
    cz_model *model;
    cz_powersgd *p;
    assert_ok(cz_model_create(&model));
    const struct {
        cz_powersgd_options options;
        const char *sentence;
    } wrong[] = {
        {{sizeof(cz_powersgd_options), .rank = -1}, "option rank is -1"},
        {{sizeof(cz_powersgd_options), .drop_errors = 2}, "option drop_errors is 2"},
        {{sizeof(cz_powersgd_options), .cold_start = -1}, "option cold_start is -1"},
        {{sizeof(cz_powersgd_options), .batched = 3}, "option batched is 3"},
        {{sizeof(cz_powersgd_options), .draw_by_shape = 3}, "option draw_by_shape is 3"},
        {{sizeof(cz_powersgd_options), .start_iter = -2}, "option start_iter is -2"},
        {{sizeof(cz_powersgd_options), .min_compression_rate = -1}, "min_compression_rate is -1"},
        {{sizeof(cz_powersgd_options), .epsilon = -1}, "option epsilon is -1"},
        {{sizeof(cz_powersgd_options), .log_every = -1}, "option log_every is -1"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        assert_int_equal(cz_powersgd_create(&p, model, &wrong[k].options), CZ_ERR_ARGUMENT);
        assert_null(p);
        if (!strstr(cz_last_error(), wrong[k].sentence))
            fail_msg("'%s', wanted '%s'", cz_last_error(), wrong[k].sentence);
    }
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_powersgd_create(&p, model, NULL);
        if (!cz_test_allocation_reset())
            break;
        assert_int_equal(status, CZ_ERR_MEMORY);
    }
    cz_powersgd_destroy(&p);
    assert_null(p);
    cz_powersgd_destroy(NULL);
    assert_int_equal(cz_powersgd_create(&p, NULL, NULL), CZ_ERR_ARGUMENT);
    cz_model_destroy(&model);
}
