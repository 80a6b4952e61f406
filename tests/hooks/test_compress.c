/* SPDX-License-Identifier: MIT */
/* Gradients in 16 bits: golden results, the definition (a sum in f32, one division, one rounding)
 * for any world, and what may not overflow. */
#include <math.h>

#include "hooks/hook_test.h"
#include "ddp/ddp.h"

/* ---- golden ---- */

static cz_status golden_rank(cz_group *group, void *arg)
{
    const cz_test_case *c = arg;
    const bool half = strcmp(cz_test_case_name(c), "compress.fp16") == 0;
    int64_t count;
    const float *in = cz_test_case_f32(c, cz_group_rank(group) ? "in1" : "in0", &count);
    const float *out = cz_test_case_f32(c, "out", NULL);
    const layout l = {.count = 1, .shapes = {{count}}, .dtype = CZ_F32};
    subject s;
    cz_status status = subject_create(&s, group, &l);
    THEN(cz_ddp_register_hook_by_name(s.ddp, half ? "fp16_compress" : "BF16_COMPRESS", NULL));
    THEN(subject_pass(&s, in, NULL));
    for (int64_t i = 0; status == CZ_OK && i < count; i++)
        if (((float *)s.grads[0])[i] != out[i])
            status = cz_fail(CZ_ERR_STATE, "%s: element %d is %a, wanted %a", cz_test_case_name(c),
                             (int)i, (double)((float *)s.grads[0])[i], (double)out[i]);
    subject_clear(&s);
    return status;
}

TEST(golden)
{
    cz_test_gold *gold = cz_test_gold_open("hooks.gold");
    assert_non_null(gold);
    static const char *const names[] = {"compress.fp16", "compress.bf16"};
    for (int k = 0; k < 2; k++) {
        const cz_test_case *c = cz_test_gold_find(gold, names[k]);
        assert_non_null(c);
        assert_ranks_ok(2, golden_rank, (void *)(uintptr_t)c);
    }
    cz_test_gold_close(&gold);
}

/* ---- the definition ---- */

enum { MOST = 800, MOST_RANKS = 8 };

typedef struct trial {
    layout layout;
    cz_dtype wire;
    const char *inner; /* NULL: none */
} trial;

static float gradient(int rank, int64_t i)
{
    float value;
    cz_test_stream_f32(77 + (uint64_t)rank + 1000 * (uint64_t)i, 1, &value);
    return ldexpf(value, (int)(i % 40) - 28); /* f16 has numbers down to 2^-24 */
}

/* On every rank: what all send, and the mean of it. */
static cz_status wanted(const trial *t, int ranks, int64_t count, float *out)
{
    static _Thread_local uint16_t sent[MOST_RANKS][MOST];
    const void *sources[MOST_RANKS];
    const cz_device *cpu = cz_device_cpu();
    union {
        double f64[MOST];
        float f32[MOST];
        uint16_t half[MOST];
    } from;
    for (int r = 0; r < ranks; r++) {
        for (int64_t i = 0; i < count; i++)
            put(&from, t->layout.dtype, i, gradient(r, i));
        CZ_TRY(cpu->convert(NULL, t->wire, sent[r], t->layout.dtype, &from, count));
        sources[r] = sent[r];
    }
    CZ_TRY(cpu->reduce(NULL, t->wire, CZ_AVERAGE, ranks, sources, count, t->wire, sent[0]));
    CZ_TRY(cpu->convert(NULL, t->layout.dtype, &from, t->wire, sent[0], count));
    for (int64_t i = 0; i < count; i++)
        out[i] = get(&from, t->layout.dtype, i);
    return CZ_OK;
}

static cz_status definition(subject *s, const trial *t, const cz_hook *inner)
{
    const int64_t count = element_count(&t->layout);
    float gradients[MOST], got[MOST], right[MOST];
    CZ_TRY(cz_ddp_register_hook_by_name(
        s->ddp, t->wire == CZ_F16 ? "fp16_compress" : "bf16_compress", (void *)(uintptr_t)inner));
    char name[48] = "";
    snprintf(name, sizeof name, "%s%s%s%s", t->wire == CZ_F16 ? "fp16_compress" : "bf16_compress",
             inner ? "(" : "", inner ? inner->name : "", inner ? ")" : "");
    if (strcmp(cz__ddp_hook(s->ddp), name) != 0)
        return cz_fail(CZ_ERR_STATE, "the hook is called '%s'", cz__ddp_hook(s->ddp));
    for (int64_t i = 0; i < count; i++)
        gradients[i] = gradient(cz_group_rank(s->group), i);
    CZ_TRY(wanted(t, cz_group_size(s->group), count, right));
    for (int pass = 0; pass < 3; pass++) {
        CZ_TRY(subject_pass(s, gradients, NULL));
        subject_result(s, got);
        for (int64_t i = 0; i < count; i++)
            if (memcmp(&got[i], &right[i], sizeof *got) != 0)
                return cz_fail(CZ_ERR_STATE, "pass %d: element %d is %a, wanted %a", pass, (int)i,
                               (double)got[i], (double)right[i]);
    }
    return CZ_OK;
}

static cz_status definition_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    subject s;
    cz_hook inner = CZ_HOOK_INIT;
    cz_status status = subject_create(&s, group, &t->layout);
    if (status == CZ_OK && t->inner)
        status = cz_hook_find(&inner, t->inner, NULL, NULL);
    THEN(definition(&s, t, t->inner ? &inner : NULL));
    subject_clear(&s);
    return status;
}

TEST(the_definition)
{
    static const cz_dtype dtypes[] = {CZ_F32, CZ_F64, CZ_BF16, CZ_F16};
    static const char *const inners[] = {NULL, "all_reduce", "reduce_scatter"};
    static const size_t caps[] = {1, 600, 1 << 20};
    for (int w = 0; w < WORLDS; w++)
        for (int d = 0; d < 4; d++)
            for (int k = 0; k < 18; k++) {
                trial t = {.layout = {.count = 5, .shapes = {{33, 7}, {-1}, {1}, {300}, {129}}},
                           .wire = k % 2 ? CZ_F16 : CZ_BF16,
                           .inner = inners[k / 2 % 3]};
                t.layout.dtype = dtypes[d];
                t.layout.options.bucket_bytes = t.layout.options.first_bucket_bytes = caps[k / 6];
                assert_ranks_ok(worlds[w], definition_rank, &t);
            }
}

/* ---- what PyTorch's order of operations loses ---- */

static cz_status extremes_rank(cz_group *group, void *arg)
{
    static const float values[] = {30000, 65504, 0x1p-24f, -0x1p-24f, 6e-8f, 0, 1e6f};
    static const float means[] = {30000, 65504, 0x1p-24f, -0x1p-24f, 0x1p-24f, 0, INFINITY};
    const layout l = {.count = 1, .shapes = {{7}}, .dtype = CZ_F32};
    subject s;
    float got[7];
    cz_status status = subject_create(&s, group, &l);
    THEN(cz_ddp_register_hook_by_name(s.ddp, "fp16_compress", NULL));
    THEN(subject_pass(&s, values, NULL));
    if (status == CZ_OK)
        subject_result(&s, got);
    for (int i = 0; status == CZ_OK && i < 7; i++)
        if (got[i] != means[i])
            status =
                cz_fail(CZ_ERR_STATE, "the mean of %g is %g", (double)values[i], (double)got[i]);
    subject_clear(&s);
    return status;
}

TEST(sums_of_16_bit_gradients_do_not_overflow)
{
    assert_ranks_ok(8, extremes_rank, NULL);
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(worlds[w], extremes_rank, NULL);
}

/* ---- what is refused ---- */

static cz_status refused_rank(cz_group *group, void *arg)
{
    const layout l = {.count = 1, .shapes = {{7}}, .dtype = CZ_F32};
    subject s;
    cz_hook empty = CZ_HOOK_INIT;
    cz_status status = subject_create(&s, group, &l);
    THEN(expect(cz_ddp_register_hook_by_name(s.ddp, "fp16_compress", &empty), CZ_ERR_ARGUMENT,
                "hook 'fp16_compress': the hook inside it has no run"));
    THEN(expect(cz_hook_find(&empty, "zero_step", NULL, NULL), CZ_ERR_UNSUPPORTED,
                "can only be registered"));
    THEN(expect(cz_hook_find(NULL, "no_op", NULL, NULL), CZ_ERR_ARGUMENT, "out is NULL"));
    subject_clear(&s);
    return status;
}

TEST(what_is_refused)
{
    assert_ranks_ok(1, refused_rank, NULL);
}
