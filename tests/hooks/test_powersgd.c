/* SPDX-License-Identifier: MIT */
/* PowerSGD: golden runs and the numbers drawn in them; what an exact approximation gives; errors,
 * lost columns, overflow, parameters that come and go. */
#include <math.h>

#include "hooks/gemm_test.h"
#include "hooks/hook_test.h"
#include "hooks/powersgd.h"

enum { ITERATIONS = 3, MOST = 1200 };

/* ---- golden ---- */

static double option(const cz_test_case *c, const char *name, double otherwise)
{
    const char *place = strstr(cz_test_case_str(c, "options"), name);
    return place ? strtod(place + strlen(name) + 1, NULL) : otherwise;
}

static cz_powersgd_gemm golden_gemm; /* of the run at hand */

static cz_powersgd_options golden_options(const cz_test_case *c)
{
    cz_powersgd_options options = CZ_POWERSGD_OPTIONS_INIT;
    options.rank = (int32_t)*cz_test_case_i64(c, "matrix_approximation_rank", NULL);
    options.drop_errors = option(c, "use_error_feedback", 1) == 0;
    options.cold_start = option(c, "warm_start", 1) == 0;
    options.min_compression_rate = option(c, "min_compression_rate", 0);
    options.epsilon = option(c, "orthogonalization_epsilon", 0);
    options.start_iter = -1;
    options.gemm = golden_gemm;
    return options;
}

static const layout golden_layout = {
    .count = 5, .shapes = {{7, 5}, {13}, {6, 4}, {1}, {4, 3, 2}}, .dtype = CZ_F32};
enum { GOLDEN_COUNT = 97 };

/* Columns with which tensor k travels; 0: as it is. */
static int64_t columns_of(const cz_test_case *c, int k, int64_t *cols)
{
    static const int64_t rows[] = {7, 13, 6, 1, 4}, all_cols[] = {5, 1, 4, 1, 6};
    const double rate = option(c, "min_compression_rate", 2);
    int64_t r = *cz_test_case_i64(c, "matrix_approximation_rank", NULL);
    *cols = all_cols[k];
    r = r < rows[k] ? r : rows[k];
    r = r < *cols ? r : *cols;
    return (double)((rows[k] + *cols) * r) * rate < (double)(rows[k] * *cols) ? r : 0;
}

static cz_status near(const char *what, const float *got, const float *wanted, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - wanted[i]) <= 1e-5f))
            return cz_fail(CZ_ERR_STATE, "%s: element %d is %g, wanted %g", what, (int)i,
                           (double)got[i], (double)wanted[i]);
    return CZ_OK;
}

static const float *record(const cz_test_case *c, const char *name, int iteration, int64_t *count)
{
    char key[24];
    snprintf(key, sizeof key, "%s.%d", name, iteration);
    return cz_test_case_f32(c, key, count);
}

/* Of gradients that are compressed, as PyTorch keeps them; of the others they are zero here. */
static cz_status check_errors(const subject *s, const cz_powersgd *p, const cz_test_case *c,
                              int iteration)
{
    int64_t count;
    const float *wanted = record(c, cz_group_rank(s->group) ? "err1" : "err0", iteration, &count);
    for (int k = 0; k < s->layout->count && count > 0; k++) {
        const cz__powersgd_memory *error = &p->errors[s->params[k]];
        int64_t cols;
        if (error->known != (columns_of(c, k, &cols) > 0))
            return cz_fail(CZ_ERR_STATE, "tensor %d has %s error", k, error->known ? "an" : "no");
        if (error->known)
            CZ_TRY(near("error", error->data, wanted, s->counts[k]));
        wanted += s->counts[k];
    }
    return CZ_OK;
}

/* Columns side by side there, one after the other here, and up to their signs. */
static cz_status check_q(const subject *s, const cz_powersgd *p, const cz_test_case *c,
                         int iteration)
{
    int64_t count;
    const float *wanted = record(c, "q", iteration, &count);
    for (int k = 0; k < s->layout->count && count > 0; k++) {
        const float *q = p->starts[s->params[k]].data;
        int64_t cols;
        const int64_t r = columns_of(c, k, &cols);
        for (int64_t j = 0; j < r; j++) {
            float flipped[8], column[8];
            const float sign = q[j * cols] * wanted[j] < 0 ? -1 : 1;
            for (int64_t i = 0; i < cols; i++) {
                flipped[i] = sign * wanted[i * r + j];
                column[i] = q[j * cols + i];
            }
            CZ_TRY(near("Q", column, flipped, cols));
        }
        wanted += r * cols;
    }
    return CZ_OK;
}

static cz_status golden_run(subject *s, cz_powersgd *p, const cz_test_case *c)
{
    float got[GOLDEN_COUNT];
    const int64_t *stats = cz_test_case_i64(c, "stats.before_after", NULL);
    cz_powersgd_stats mine = CZ_POWERSGD_STATS_INIT;
    CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, "powersgd", p));
    for (int k = 0; k < ITERATIONS; k++) {
        CZ_TRY(subject_pass(s, record(c, cz_group_rank(s->group) ? "in1" : "in0", k, NULL), NULL));
        subject_result(s, got);
        CZ_TRY(near("result", got, record(c, "out", k, NULL), GOLDEN_COUNT));
        CZ_TRY(equal_everywhere(s->group, got, sizeof got));
        CZ_TRY(check_errors(s, p, c, k));
        CZ_TRY(check_q(s, p, c, k));
    }
    CZ_TRY(cz_powersgd_get_stats(p, &mine));
    if (mine.iter != ITERATIONS || mine.before != stats[0] || mine.after != stats[1] ||
        mine.rate != (double)stats[0] / (double)stats[1])
        return cz_fail(CZ_ERR_STATE, "%d iterations, %d before, %d after, rate %g", (int)mine.iter,
                       (int)mine.before, (int)mine.after, mine.rate);
    return CZ_OK;
}

static cz_status golden_rank(cz_group *group, void *arg)
{
    const cz_powersgd_options options = golden_options(arg);
    subject s;
    cz_powersgd *p = NULL;
    cz_status status = subject_create(&s, group, &golden_layout);
    THEN(cz_powersgd_create(&p, s.model, &options));
    THEN(golden_run(&s, p, arg));
    subject_clear(&s);
    cz_powersgd_destroy(&p);
    return status;
}

static void each_golden_case(void (*what)(const cz_test_case *))
{
    cz_test_gold *gold = cz_test_gold_open("powersgd.gold");
    assert_non_null(gold);
    assert_int_equal(cz_test_gold_count(gold), 6);
    for (int64_t k = 0; k < cz_test_gold_count(gold); k++)
        what(cz_test_gold_case(gold, k));
    cz_test_gold_close(&gold);
}

static void replay(const cz_test_case *c)
{
    char why[256];
    if (cz_test_run_ranks(2, golden_rank, (void *)(uintptr_t)c, why) != CZ_OK)
        fail_msg("%s: %s", cz_test_case_name(c), why);
}

TEST(golden)
{
    each_golden_case(replay);
}

/* With M Q and M^T P from elsewhere. */
TEST(golden_with_a_blas)
{
    golden_gemm = blas_gemm;
    each_golden_case(replay);
    golden_gemm = NULL;
    assert_true(atomic_load(&products[0]) > 0 && atomic_load(&products[1]) > 0);
}

/* ---- the numbers drawn ---- */

static void redraw(const cz_test_case *c)
{
    cz__mersenne seeds, normals;
    cz__mersenne_seed(&seeds, 0);
    for (int it = 0; it < ITERATIONS; it++) {
        int64_t count, done = 0;
        float got[64];
        const float *wanted = record(c, "q0", it, &count);
        if (count == 0)
            continue;
        cz__mersenne_seed(&normals, cz__mersenne_below_1e9(&seeds));
        for (int k = 0; k < 5; k++) {
            int64_t cols;
            const int64_t r = columns_of(c, k, &cols), n = r * cols;
            cz__mersenne_normals(&normals, n, got + done);
            done += n;
        }
        assert_int_equal(done, count);
        for (int64_t i = 0; i < count; i++)
            if (!(fabsf(got[i] - wanted[i]) < 1e-6f))
                fail_msg("%s: number %d of draw %d is %g, wanted %g", cz_test_case_name(c), (int)i,
                         it, (double)got[i], (double)wanted[i]);
    }
}

TEST(numbers_drawn)
{
    static const uint32_t first[] = {209652396, 398764591, 924231285, 404868288, 441365315};
    cz__mersenne m;
    cz__mersenne_seed(&m, 0);
    for (int k = 0; k < 5; k++)
        assert_int_equal(cz__mersenne_below_1e9(&m), first[k]);
    each_golden_case(redraw);
}

/* ---- any world, cap, type ---- */

typedef struct trial {
    layout layout;
    cz_powersgd_options options;
    const char *wrapper; /* NULL: none */
    int passes;
} trial;

static const layout uneven = {
    .count = 8,
    .shapes = {{20, 9}, {11}, {-1}, {9, 20}, {20, 3, 3}, {1}, {17, 18}, {2, 60}},
    .dtype = CZ_F32};

static cz_status start(subject *s, cz_powersgd **p, cz_hook *inner, cz_group *group, const trial *t)
{
    CZ_TRY(subject_create(s, group, &t->layout));
    CZ_TRY(cz_powersgd_create(p, s->model, &t->options));
    if (!t->wrapper)
        return cz_ddp_register_hook_by_name(s->ddp, "POWER_SGD", *p);
    CZ_TRY(cz_hook_find(inner, "powersgd", NULL, *p));
    return cz_ddp_register_hook_by_name(s->ddp, t->wrapper, inner);
}

static void end(subject *s, cz_powersgd **p)
{
    subject_clear(s);
    cz_powersgd_destroy(p);
}

/* The same matrices of rank 2 on all ranks, but for a factor: M of rank 2 is exact. */
static void rank_2(const layout *l, int rank, int pass, float *out)
{
    for (int k = 0; k < l->count; k++) {
        if (l->shapes[k][0] < 0)
            continue;
        const int64_t rows = l->shapes[k][0];
        int64_t cols = 1;
        for (int d = 1; d < 3 && l->shapes[k][d] > 0; d++)
            cols *= l->shapes[k][d];
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                *out++ = (float)(rank + 1) *
                         ((float)((i * 5 + k) % 7 - 3) * (float)(j % 3 - 1) +
                          (float)(i % 2) * (float)(j % 5 - 2)) *
                         (float)(1 + pass % 3) / 16;
    }
}

static cz_status exact(subject *s, const trial *t)
{
    const int64_t count = element_count(&t->layout);
    const int ranks = cz_group_size(s->group);
    const double unit = t->wrapper || t->layout.dtype == CZ_BF16 ? 3e-2 : 1e-5;
    float in[MOST], got[MOST], first[MOST];
    for (int pass = 0; pass < t->passes; pass++) {
        rank_2(&t->layout, cz_group_rank(s->group), pass, in);
        rank_2(&t->layout, 0, pass, first);
        CZ_TRY(subject_pass(s, in, NULL));
        subject_result(s, got);
        CZ_TRY(equal_everywhere(s->group, got, (size_t)count * sizeof *got));
        for (int64_t i = 0; i < count; i++) {
            const double wanted = (double)first[i] * (ranks + 1) / 2;
            if (!(fabs((double)got[i] - wanted) <= unit * (ranks + 1)))
                return cz_fail(CZ_ERR_STATE, "pass %d: element %d is %g, wanted %g", pass, (int)i,
                               (double)got[i], wanted);
        }
    }
    return CZ_OK;
}

static cz_status exact_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    subject s;
    cz_powersgd *p = NULL;
    cz_hook inner = CZ_HOOK_INIT;
    cz_status status = start(&s, &p, &inner, group, t);
    THEN(exact(&s, t));
    end(&s, &p);
    return status;
}

/* Of a rank above that of the gradients, too: columns that depend on others must not count
 * twice. */
TEST(low_ranks_are_exact)
{
    static const size_t caps[] = {1, 1000, 1 << 20};
    static const cz_dtype dtypes[] = {CZ_F32, CZ_F64, CZ_BF16};
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 27; k++) {
            trial t = {.layout = uneven, .passes = 3};
            t.options = (cz_powersgd_options)CZ_POWERSGD_OPTIONS_INIT;
            t.options.rank = 2 + k % 3;
            t.options.min_compression_rate = 1;
            t.options.start_iter = -1;
            t.options.draw_by_shape = k & 1;
            t.layout.options.bucket_bytes = t.layout.options.first_bucket_bytes = caps[k / 3 % 3];
            t.layout.dtype = dtypes[k / 9];
            t.wrapper = t.layout.dtype == CZ_F32 && k % 3 == 0 ? "fp16_compress" : NULL;
            assert_ranks_ok(worlds[w], exact_rank, &t);
        }
}

/* ---- batched: the bucket is one matrix ---- */

static cz_status batched_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    const int64_t count = element_count(&t->layout), side = 32;
    float in[MOST], got[MOST], sum[MOST] = {0};
    subject s;
    cz_powersgd *p = NULL;
    cz_powersgd_stats stats = CZ_POWERSGD_STATS_INIT;
    cz_status status = start(&s, &p, NULL, group, t);
    for (int64_t i = 0; i < count; i++) /* u v^T in rows of `side` elements */
        in[i] = (float)(i / side % 5 - 2) * (float)(i % side % 7 - 3) / 16;
    for (int pass = 0; status == CZ_OK && pass < t->passes; pass++) {
        status = subject_pass(&s, in, NULL);
        subject_result(&s, got);
        THEN(equal_everywhere(group, got, (size_t)count * sizeof *got));
        for (int64_t i = 0; i < count; i++)
            sum[i] += got[i];
    }
    THEN(cz_powersgd_get_stats(p, &stats));
    if (status == CZ_OK &&
        (stats.before != count * t->passes || stats.after != 2 * side * t->passes))
        status = cz_fail(CZ_ERR_STATE, "%d before, %d after", (int)stats.before, (int)stats.after);
    /* the end of the last row is padding, so that one iteration is not exact; all together are */
    for (int64_t i = 0; status == CZ_OK && i < count; i++)
        if (!(fabsf(sum[i] / (float)t->passes - in[i]) < 0.02f))
            status = cz_fail(CZ_ERR_STATE, "element %d is %g, wanted %g", (int)i,
                             (double)(sum[i] / (float)t->passes), (double)in[i]);
    end(&s, &p);
    return status;
}

TEST(batched)
{
    for (int w = 0; w < WORLDS; w++) {
        trial t = {.layout = uneven, .passes = 40};
        t.options = (cz_powersgd_options)CZ_POWERSGD_OPTIONS_INIT;
        t.options.batched = 1;
        t.options.start_iter = -1;
        assert_in_range(element_count(&uneven), 31 * 31 + 1, 32 * 32 - 1);
        assert_ranks_ok(worlds[w], batched_rank, &t);
    }
}

/* ---- errors come back ---- */

static void any_gradient(int rank, int pass, int64_t count, float *out)
{
    cz_test_stream_f32(100 * (uint64_t)pass + (uint64_t)rank + 1, count, out);
}

/* Sums over iterations: what has come out, and the mean of the errors, are what went in. */
static cz_status feedback_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    const int64_t count = element_count(&t->layout);
    float in[MOST], got[MOST], mean[MOST] = {0}, sum[MOST] = {0}, left[MOST] = {0};
    subject s;
    cz_powersgd *p = NULL;
    cz_status status = start(&s, &p, NULL, group, t);
    for (int pass = 0; status == CZ_OK && pass < t->passes; pass++) {
        any_gradient(cz_group_rank(group), pass, count, in);
        status = subject_pass(&s, in, NULL);
        subject_result(&s, got);
        for (int64_t i = 0; i < count; i++) {
            mean[i] += in[i];
            sum[i] += got[i];
        }
    }
    int64_t done = 0;
    for (int k = 0; status == CZ_OK && k < s.layout->count; done += s.counts[k++])
        if (p->errors[s.params[k]].known)
            memcpy(left + done, p->errors[s.params[k]].data, (size_t)s.counts[k] * sizeof *left);
    THEN(cz_all_reduce(group, mean, count, CZ_F32, CZ_AVERAGE, NULL));
    THEN(cz_all_reduce(group, left, count, CZ_F32, CZ_AVERAGE, NULL));
    for (int64_t i = 0; status == CZ_OK && i < count; i++)
        if (!(fabsf(sum[i] + left[i] - mean[i]) < 1e-4f))
            status = cz_fail(CZ_ERR_STATE, "element %d: %g came out, %g is left, %g went in",
                             (int)i, (double)sum[i], (double)left[i], (double)mean[i]);
    end(&s, &p);
    return status;
}

TEST(nothing_is_lost)
{
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 8; k++) {
            trial t = {.layout = uneven, .passes = 10};
            t.options = (cz_powersgd_options)CZ_POWERSGD_OPTIONS_INIT;
            t.options.rank = 1 + k % 3;
            t.options.batched = k >= 6;
            t.options.cold_start = k == 3 || k == 7;
            t.options.start_iter = k == 4 ? 3 : -1;
            t.options.epsilon = k == 5 ? 1e-3 : 0;
            t.layout.options.bucket_bytes = t.layout.options.first_bucket_bytes = 700;
            assert_ranks_ok(worlds[w], feedback_rank, &t);
        }
}

/* ---- before the first compressed iteration: the bits of a plain mean ---- */

static cz_status plain_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    const int64_t count = element_count(&t->layout);
    float in[MOST], got[MOST], mean[MOST];
    subject s;
    cz_powersgd *p = NULL;
    cz_status status = start(&s, &p, NULL, group, t);
    for (int pass = 0; status == CZ_OK && pass < t->passes; pass++) {
        any_gradient(cz_group_rank(group), pass, count, in);
        memcpy(mean, in, sizeof mean);
        status = subject_pass(&s, in, NULL);
        subject_result(&s, got);
        THEN(cz_all_reduce(group, mean, count, CZ_F32, CZ_AVERAGE, NULL));
        const bool same = memcmp(got, mean, (size_t)count * sizeof *got) == 0;
        if (status == CZ_OK && same != (pass < 4))
            status = cz_fail(CZ_ERR_STATE, "pass %d is%s a plain mean", pass, same ? "" : " not");
        if (status == CZ_OK && p->iter != pass + 1)
            status = cz_fail(CZ_ERR_STATE, "%d iterations after %d", (int)p->iter, pass + 1);
    }
    end(&s, &p);
    return status;
}

TEST(start_iter)
{
    for (int w = 0; w < WORLDS; w++) {
        trial t = {.layout = uneven, .passes = 6};
        t.options = (cz_powersgd_options)CZ_POWERSGD_OPTIONS_INIT;
        t.options.start_iter = 4;
        t.layout.options.bucket_bytes = t.layout.options.first_bucket_bytes = 700;
        assert_ranks_ok(worlds[w], plain_rank, &t);
    }
}

/* ---- zeros, overflow ---- */

static cz_status odd_numbers(subject *s, const trial *t)
{
    const int64_t count = element_count(&t->layout);
    float in[MOST], got[MOST];
    for (int pass = 0; pass < t->passes; pass++) {
        const bool zero = pass < 2 || pass == 4, huge = pass == 6;
        rank_2(&t->layout, cz_group_rank(s->group), pass, in);
        for (int64_t i = 0; i < count; i++)
            in[i] = zero ? 0 : in[i] * 0x1p-100f;
        if (huge && cz_group_rank(s->group) == 0)
            in[0] = INFINITY;
        CZ_TRY(subject_pass(s, in, NULL));
        subject_result(s, got);
        if (huge && isfinite(got[0]))
            return cz_fail(CZ_ERR_STATE, "an infinite gradient became %g", (double)got[0]);
        for (int64_t i = 0; i < count && !huge; i++) {
            float first[MOST];
            rank_2(&t->layout, 0, pass, first);
            const double wanted = zero ? 0 : (double)first[i] * (cz_group_size(s->group) + 1) / 2;
            if (!(fabs((double)got[i] * 0x1p100 - wanted) < 1e-3))
                return cz_fail(CZ_ERR_STATE, "pass %d: element %d is %g, wanted %g", pass, (int)i,
                               (double)got[i] * 0x1p100, wanted);
        }
    }
    return CZ_OK;
}

static cz_status odd_numbers_rank(cz_group *group, void *arg)
{
    subject s;
    cz_powersgd *p = NULL;
    cz_status status = start(&s, &p, NULL, group, arg);
    THEN(odd_numbers(&s, arg));
    end(&s, &p);
    return status;
}

TEST(zeros_and_overflow_pass_by)
{
    for (int w = 0; w < WORLDS; w++)
        for (int rank = 2; rank < 4; rank++) {
            trial t = {.layout = uneven, .passes = 10};
            t.options = (cz_powersgd_options)CZ_POWERSGD_OPTIONS_INIT;
            t.options.rank = rank;
            t.options.min_compression_rate = 1;
            t.options.start_iter = -1;
            assert_ranks_ok(worlds[w], odd_numbers_rank, &t);
        }
}

/* ---- a gradient that nobody uses keeps its error ---- */

static cz_status waiting(subject *s, const cz_powersgd *p, const trial *t)
{
    const int64_t count = element_count(&t->layout);
    const bool unused[MOST_PARAMS] = {[0] = true};
    float in[MOST], before[180], got[MOST];
    const cz__powersgd_memory *error = &p->errors[s->params[0]];
    for (int pass = 0; pass < 2; pass++) {
        any_gradient(cz_group_rank(s->group), pass, count, in);
        CZ_TRY(subject_pass(s, in, NULL));
    }
    memcpy(before, error->data, sizeof before);
    for (int pass = 2; pass < 4; pass++) {
        any_gradient(cz_group_rank(s->group), pass, count, in);
        CZ_TRY(subject_pass(s, in, unused));
        subject_result(s, got);
        if (memcmp(got, in, sizeof before) != 0 || memcmp(error->data, before, sizeof before) != 0)
            return cz_fail(CZ_ERR_STATE, "pass %d: the %s changed", pass,
                           memcmp(got, in, sizeof before) ? "gradient" : "error");
    }
    CZ_TRY(subject_pass(s, in, NULL));
    return memcmp(error->data, before, sizeof before) == 0
               ? cz_fail(CZ_ERR_STATE, "the error was not used")
               : CZ_OK;
}

static cz_status waiting_rank(cz_group *group, void *arg)
{
    subject s;
    cz_powersgd *p = NULL;
    cz_status status = start(&s, &p, NULL, group, arg);
    THEN(waiting(&s, p, arg));
    end(&s, &p);
    return status;
}

TEST(errors_wait)
{
    for (int w = 0; w < WORLDS; w++) {
        trial t = {.layout = uneven};
        t.options = (cz_powersgd_options)CZ_POWERSGD_OPTIONS_INIT;
        t.options.start_iter = -1;
        t.layout.options.find_unused = 1;
        assert_ranks_ok(worlds[w], waiting_rank, &t);
    }
}

int main(void)
{
    blas_setup();
    return cz_test_run(NULL, NULL);
}
