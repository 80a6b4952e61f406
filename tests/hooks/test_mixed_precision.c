/* SPDX-License-Identifier: MIT */
/* Low-precision gradients, reduced in another type: full-precision means are not rounded twice; a
 * parameter is handed over once, when its gradient is final; a program that fails then ends the
 * pass everywhere. */
#include "hooks/hook_test.h"
#include "tensor/model.h"

enum { MOST = 700 };

typedef struct trial {
    layout layout;
    cz_dtype reduce_dtype, full_dtype;
    bool by_default; /* no type to reduce in is given: it has to be that one */
    int fails;       /* the parameter whose hand-over fails on the last rank; -1: none */
} trial;

typedef struct receiver {
    const subject *s;
    int calls[MOST_PARAMS];
    int fails;
    void *full[MOST_PARAMS];
    cz_tensor tensors[MOST_PARAMS];
} receiver;

static cz_status receive(void *context, int64_t param)
{
    receiver *r = context;
    r->calls[param]++;
    return r->fails == param ? cz_fail(CZ_ERR_UNSUPPORTED, "no room for it") : CZ_OK;
}

static cz_status make_full(receiver *r, const trial *t)
{
    for (int k = 0; k < t->layout.count; k++) {
        const int64_t p = r->s->params[k];
        r->full[p] = calloc((size_t)r->s->counts[k] + 1, cz_dtype_size(t->full_dtype));
        if (!r->full[p])
            return cz_fail(CZ_ERR_MEMORY, "test");
        r->tensors[p] = *cz__model_value(r->s->model, p);
        r->tensors[p].data = k == 1 ? NULL : r->full[p]; /* one is not wanted */
        r->tensors[p].dtype = t->full_dtype;
    }
    return CZ_OK;
}

/* The mean of what all ranks have, in the type in which it is reduced; gradients are exact in
 * theirs. */
static cz_status mean_of(const trial *t, cz_group *group, const float *in, int64_t count,
                         float *out)
{
    static _Thread_local double room[MOST];
    for (int64_t i = 0; i < count; i++)
        put(room, t->reduce_dtype, i, in[i]);
    CZ_TRY(cz_all_reduce(group, room, count, t->reduce_dtype, CZ_AVERAGE, NULL));
    return cz_device_cpu()->convert(NULL, CZ_F32, out, t->reduce_dtype, room, count);
}

static cz_status check_pass(const receiver *r, const trial *t, const float *mean, int pass)
{
    const bool unused = pass == 1;
    for (int k = 0; k < t->layout.count; k++) {
        const subject *s = r->s;
        const int64_t p = s->params[k];
        if (r->calls[p] != pass + 1 - (k == 0 && pass >= 1))
            return cz_fail(CZ_ERR_STATE, "pass %d: parameter %d was handed over %d times", pass, k,
                           r->calls[p]);
        for (int64_t i = 0; i < s->counts[k]; i++, mean++) {
            float rounded = *mean, full = *mean;
            put(&rounded, t->layout.dtype, 0, *mean);
            rounded = get(&rounded, t->layout.dtype, 0);
            put(&full, t->full_dtype, 0, *mean);
            full = get(&full, t->full_dtype, 0);
            if (unused && k == 0)
                continue;
            if (get(s->grads[k], t->layout.dtype, i) != rounded)
                return cz_fail(CZ_ERR_STATE, "gradient %d[%d] is %g, wanted %g", k, (int)i,
                               (double)get(s->grads[k], t->layout.dtype, i), (double)rounded);
            if (k != 1 && get(r->full[p], t->full_dtype, i) != full)
                return cz_fail(CZ_ERR_STATE, "in full %d[%d] is %g, wanted %g", k, (int)i,
                               (double)get(r->full[p], t->full_dtype, i), (double)full);
        }
    }
    return CZ_OK;
}

static cz_status passes(receiver *r, subject *s, const trial *t, const cz_mixed_precision *mixed)
{
    const int64_t count = element_count(&t->layout);
    float in[MOST], mean[MOST];
    CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, "mixed_precision", (void *)(uintptr_t)mixed));
    for (int pass = 0; pass < 3; pass++) {
        const bool unused[MOST_PARAMS] = {[0] = pass == 1};
        for (int64_t i = 0; i < count; i++)
            in[i] = (float)((i * 7 + cz_group_rank(s->group) * 13 + pass) % 100 - 50) / 64;
        CZ_TRY(mean_of(t, s->group, in, count, mean));
        if (t->fails >= 0)
            return expect(subject_pass(s, in, NULL), CZ_ERR_UNSUPPORTED, "no room for it");
        CZ_TRY(subject_pass(s, in, unused));
        CZ_TRY(check_pass(r, t, mean, pass));
    }
    return CZ_OK;
}

static cz_status mixed_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    subject s;
    receiver r = {.s = &s, .fails = -1};
    cz_mixed_precision mixed = CZ_MIXED_PRECISION_INIT;
    mixed.reduce_dtype = t->by_default ? (cz_dtype)0 : t->reduce_dtype;
    mixed.full = r.tensors;
    mixed.ready = receive;
    mixed.context = &r;
    if (cz_group_rank(group) == cz_group_size(group) - 1)
        r.fails = t->fails;
    cz_status status = subject_create(&s, group, &t->layout);
    THEN(make_full(&r, t));
    THEN(passes(&r, &s, t, &mixed));
    subject_clear(&s);
    for (int k = 0; k < MOST_PARAMS; k++)
        free(r.full[k]);
    return status;
}

TEST(any_types)
{
    static const cz_dtype reduced[] = {CZ_F32, CZ_BF16, CZ_F64}, own[] = {CZ_BF16, CZ_F16, CZ_F32};
    static const size_t caps[] = {1, 300, 1 << 20};
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 27; k++) {
            trial t = {.layout = {.count = 4, .shapes = {{33, 7}, {64}, {-1}, {129}}},
                       .reduce_dtype = reduced[k / 3 % 3],
                       .full_dtype = CZ_F32,
                       .fails = -1};
            t.layout.dtype = own[k % 3];
            t.layout.options.find_unused = 1;
            t.layout.options.bucket_bytes = t.layout.options.first_bucket_bytes = caps[k / 9];
            assert_ranks_ok(worlds[w], mixed_rank, &t);
        }
}

TEST(means_in_full_precision_are_not_rounded_by_default)
{
    static const cz_dtype own[] = {CZ_BF16, CZ_F16, CZ_F32};
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 3; k++) {
            trial t = {.layout = {.count = 4, .shapes = {{33, 7}, {64}, {-1}, {129}}},
                       .reduce_dtype = CZ_F32,
                       .by_default = true,
                       .full_dtype = CZ_F32,
                       .fails = -1};
            t.layout.dtype = own[k];
            t.layout.options.find_unused = 1;
            assert_ranks_ok(worlds[w], mixed_rank, &t);
        }
}

/* 128 and 129: bfloat16 has no 128.5, and f32 no 2^24 + 0.5. */
static cz_status between_rank(cz_group *group, void *arg)
{
    const cz_dtype *types = arg;
    const double low = types[0] == CZ_BF16 ? 128 : 0x1p24;
    double value = 0, gradient = 0, full = 0;
    float one = (float)(low + cz_group_rank(group) * (types[0] == CZ_BF16 ? 1 : 2));
    /* NULL is the CPU, and the CPU is, too. */
    cz_tensor mean = {&full, types[1], CZ_DENSE,
                      1,     {1},      types[1] == CZ_F32 ? cz_device_cpu() : NULL};
    cz_mixed_precision mixed = CZ_MIXED_PRECISION_INIT;
    cz_model *model;
    cz_ddp *ddp;
    put(&gradient, types[0], 0, one);
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "w", &value, &gradient, types[0], 1, (int64_t[]){1}));
    CZ_TRY(cz_ddp_create(&ddp, group, model, NULL));
    mixed.full = &mean;
    CZ_TRY(cz_ddp_register_hook_by_name(ddp, "mixed_precision", &mixed));
    CZ_TRY(cz_ddp_begin(ddp, true));
    CZ_TRY(cz_ddp_mark_ready(ddp, 0));
    CZ_TRY(cz_ddp_finish(ddp));
    cz_ddp_destroy(&ddp);
    cz_model_destroy(&model);
    float narrow;
    memcpy(&narrow, &full, sizeof narrow);
    if (types[1] == CZ_F32 ? narrow != 128.5f : full != 0x1p24 + 1)
        return cz_fail(CZ_ERR_INTERNAL, "the mean is %g or %g", (double)narrow, full);
    return CZ_OK;
}

TEST(a_mean_between_two_numbers_of_its_type)
{
    cz_dtype types[] = {CZ_BF16, CZ_F32}, wider[] = {CZ_F32, CZ_F64};
    assert_ranks_ok(2, between_rank, types);
    assert_ranks_ok(2, between_rank, wider);
}

TEST(a_failure_when_handed_over)
{
    for (int w = 0; w < WORLDS; w++)
        for (int fails = 0; fails < 4; fails++) {
            trial t = {.layout = {.count = 4, .shapes = {{33, 7}, {64}, {-1}, {129}}},
                       .reduce_dtype = CZ_F32,
                       .full_dtype = CZ_F32,
                       .fails = fails};
            t.layout.dtype = CZ_BF16;
            t.layout.options.bucket_bytes = t.layout.options.first_bucket_bytes = 200;
            assert_ranks_ok(worlds[w], mixed_rank, &t);
        }
}

static cz_status refused_rank(cz_group *group, void *arg)
{
    const layout l = {.count = 1, .shapes = {{4}}, .dtype = CZ_F32};
    cz_mixed_precision mixed = CZ_MIXED_PRECISION_INIT;
    const int64_t shape[] = {3};
    cz_device other = *cz_device_cpu();
    float small[4];
    cz_tensor wrong = {small, CZ_F32, CZ_DENSE, 1, {shape[0]}, NULL};
    subject s;
    cz_status status = subject_create(&s, group, &l);
    THEN(expect(cz_ddp_register_hook_by_name(s.ddp, "mixed_precision", NULL), CZ_ERR_ARGUMENT,
                "wants a cz_mixed_precision"));
    mixed.reduce_dtype = CZ_I32;
    THEN(expect(cz_ddp_register_hook_by_name(s.ddp, "mixed_precision", &mixed), CZ_ERR_ARGUMENT,
                "gradients are reduced as i32"));
    mixed.reduce_dtype = CZ_F32;
    mixed.full = &wrong;
    THEN(expect(cz_ddp_register_hook_by_name(s.ddp, "mixed_precision", &mixed), CZ_ERR_ARGUMENT,
                "the gradient of 'p0' in full precision has 3 elements, the parameter 4"));
    wrong.shape[0] = 4;
    wrong.layout = CZ_SPARSE_ROWS;
    THEN(expect(cz_ddp_register_hook_by_name(s.ddp, "mixed_precision", &mixed), CZ_ERR_ARGUMENT,
                "the gradient of 'p0' in full precision is not dense"));
    wrong.layout = CZ_DENSE;
    wrong.dtype = CZ_I32;
    THEN(expect(cz_ddp_register_hook_by_name(s.ddp, "mixed_precision", &mixed), CZ_ERR_ARGUMENT,
                "the gradient of 'p0' in full precision is i32, wanted is a floating type"));
    wrong.dtype = CZ_F32;
    other.name = "other";
    wrong.device = &other;
    THEN(expect(cz_ddp_register_hook_by_name(s.ddp, "mixed_precision", &mixed), CZ_ERR_ARGUMENT,
                "the gradient of 'p0' in full precision is on device 'other', the parameter on"));
    subject_clear(&s);
    return status;
}

TEST(what_is_refused)
{
    assert_ranks_ok(1, refused_rank, NULL);
}
