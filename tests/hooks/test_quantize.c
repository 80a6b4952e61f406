/* SPDX-License-Identifier: MIT */
/* Gradients as bytes: golden scales, zero points, bytes and results, and a bound on the error for
 * any world, cap and type. */
#include <math.h>

#include "hooks/hook_test.h"
#include "hooks/hooks.h"

enum { MOST = 1200 };

static const char *name_of(const int64_t *width)
{
    return *width ? "quantize_per_channel" : "QUANTIZE_PER_TENSOR";
}

static cz_status golden_rank(cz_group *group, void *arg)
{
    const cz_test_case *c = arg;
    int64_t width = *cz_test_case_i64(c, "channel_width", NULL), count;
    const float *in = cz_test_case_f32(c, cz_group_rank(group) ? "in1" : "in0", &count);
    const float *out = cz_test_case_f32(c, "out", NULL);
    const layout l = {.count = 1, .shapes = {{count}}, .dtype = CZ_F32};
    subject s;
    cz_status status = subject_create(&s, group, &l);
    THEN(cz_ddp_register_hook_by_name(s.ddp, name_of(&width), width ? &width : NULL));
    THEN(subject_pass(&s, in, NULL));
    for (int64_t i = 0; status == CZ_OK && i < count; i++)
        if (((float *)s.grads[0])[i] != out[i])
            status = cz_fail(CZ_ERR_STATE, "element %d is %a, wanted %a", (int)i,
                             (double)((float *)s.grads[0])[i], (double)out[i]);
    subject_clear(&s);
    return status;
}

static const char *const names[] = {"quantize.pertensor", "quantize.perchannel",
                                    "quantize.perchannel_exact_multiple"};

TEST(golden)
{
    cz_test_gold *gold = cz_test_gold_open("hooks.gold");
    assert_non_null(gold);
    for (int k = 0; k < 3; k++) {
        const cz_test_case *c = cz_test_gold_find(gold, names[k]);
        assert_non_null(c);
        assert_ranks_ok(2, golden_rank, (void *)(uintptr_t)c);
    }
    cz_test_gold_close(&gold);
}

/* What travels: of rank r, padded with zeros to full rows. */
static void check_bytes(const cz_test_case *c, int r)
{
    static const char *const keys[2][4] = {{"in0", "s0", "z0", "u8.0"},
                                           {"in1", "s1", "z1", "u8.1"}};
    float x[MOST] = {0};
    uint8_t q[MOST];
    int64_t count, rows, padded;
    const float *in = cz_test_case_f32(c, keys[r][0], &count);
    const float *s = cz_test_case_f32(c, keys[r][1], &rows);
    const float *z = cz_test_case_f32(c, keys[r][2], NULL);
    const int64_t *bytes = cz_test_case_i64(c, keys[r][3], &padded);
    assert_true(padded <= MOST && count <= padded);
    memcpy(x, in, (size_t)count * sizeof *x);
    for (int64_t row = 0, width = padded / rows; row < rows; row++) {
        float scale[2];
        cz__quantize_row(width, x + row * width, scale, q + row * width);
        assert_memory_equal(&scale[0], &s[row], sizeof *s);
        assert_memory_equal(&scale[1], &z[row], sizeof *z);
    }
    for (int64_t i = 0; i < padded; i++)
        if (q[i] != bytes[i])
            fail_msg("rank %d: byte %d is %d, wanted %d", r, (int)i, q[i], (int)bytes[i]);
}

TEST(golden_bytes)
{
    cz_test_gold *gold = cz_test_gold_open("hooks.gold");
    assert_non_null(gold);
    for (int k = 0; k < 3; k++)
        for (int r = 0; r < 2; r++)
            check_bytes(cz_test_gold_find(gold, names[k]), r);
    cz_test_gold_close(&gold);
}

/* ---- the error is at most half a step of each rank ---- */

typedef struct trial {
    layout layout;
    int64_t width; /* 0: per tensor */
} trial;

static float gradient(int rank, int pass, int64_t i)
{
    float value;
    cz_test_stream_f32(7 + (uint64_t)rank + 100 * (uint64_t)pass, 1, &value);
    return pass == 2 ? 0 : value * (float)((i * 31) % 17 - 5) / 8 * (float)(rank + 1);
}

static cz_status bounded(subject *s, const trial *t)
{
    const int64_t count = element_count(&t->layout);
    const int ranks = cz_group_size(s->group);
    int64_t width = t->width;
    float in[MOST], got[MOST];
    CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, name_of(&width), width ? &width : NULL));
    for (int pass = 0; pass < 4; pass++) {
        for (int64_t i = 0; i < count; i++)
            in[i] = gradient(cz_group_rank(s->group), pass, i);
        if (pass == 3 && cz_group_rank(s->group) == ranks / 2)
            in[0] = ranks % 2 ? NAN : INFINITY;
        CZ_TRY(subject_pass(s, in, NULL));
        subject_result(s, got);
        CZ_TRY(equal_everywhere(s->group, got, (size_t)count * sizeof *got));
        if (pass == 3 && !isnan(got[0]))
            return cz_fail(CZ_ERR_STATE, "a NaN became %g", (double)got[0]);
        for (int64_t i = 0; i < count && pass < 3; i++) {
            double wanted = 0, bound = 0;
            for (int r = 0; r < ranks; r++) {
                wanted += (double)gradient(r, pass, i) / ranks;
                bound += 16. / 8 * (r + 1) / 255 * 0.51 / ranks;
            }
            bound += t->layout.dtype == CZ_BF16 ? fabs(wanted) / 32 + 0.02 * ranks : 0;
            if (!(fabs((double)got[i] - wanted) <= bound + 1e-6))
                return cz_fail(CZ_ERR_STATE, "pass %d: element %d is %g, wanted %g +- %g", pass,
                               (int)i, (double)got[i], wanted, bound);
        }
    }
    return CZ_OK;
}

static cz_status bounded_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    subject s;
    cz_status status = subject_create(&s, group, &t->layout);
    THEN(bounded(&s, t));
    subject_clear(&s);
    return status;
}

TEST(errors_are_bounded)
{
    static const cz_dtype dtypes[] = {CZ_F32, CZ_F64, CZ_BF16};
    static const size_t caps[] = {1, 600, 1 << 20};
    static const int64_t widths[] = {0, 1, 7, 512};
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 36; k++) {
            trial t = {.layout = {.count = 6, .shapes = {{33, 7}, {-1}, {1}, {300}, {129}, {512}}},
                       .width = widths[k / 9]};
            t.layout.dtype = dtypes[k % 3];
            t.layout.options.bucket_bytes = t.layout.options.first_bucket_bytes = caps[k / 3 % 3];
            assert_ranks_ok(worlds[w], bounded_rank, &t);
        }
}

static cz_status refused_rank(cz_group *group, void *arg)
{
    const layout l = {.count = 1, .shapes = {{7}}, .dtype = CZ_F32};
    int64_t width = 0;
    subject s;
    cz_status status = subject_create(&s, group, &l);
    THEN(expect(cz_ddp_register_hook_by_name(s.ddp, "quantize_per_channel", &width),
                CZ_ERR_ARGUMENT, "the width of a channel is 0"));
    THEN(expect(cz_ddp_register_hook_by_name(s.ddp, "quantize_per_tensor", &width), CZ_ERR_ARGUMENT,
                "has no state"));
    subject_clear(&s);
    return status;
}

TEST(what_is_refused)
{
    assert_ranks_ok(1, refused_rank, NULL);
}
