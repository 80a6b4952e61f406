/* SPDX-License-Identifier: MIT */
/* The program's floating-point environment (rounding, flush to zero, traps), on some ranks or all,
 * is in no result and is left as it was, its exception flags too: steps, reductions, passes with
 * hooks, schedulers, sums, with any number of threads. Closures run in the program's
 * environment. */
#include "support/cz_test.h"
#include "support/float_mode.h"

#include <math.h>
#include <stdlib.h>

#include "czero/czero.h"

enum { N = 1 << 16, RESULTS = 64, MOST_RANKS = 3 };

typedef struct trial {
    test_mode mode;
    int only; /* the rank that has it; -1: all */
    int threads;
    uint64_t results[MOST_RANKS][RESULTS];
    int counts[MOST_RANKS];
} trial;

typedef struct run {
    trial *t;
    cz_group *group;
    test_mode mode; /* of this rank */
    void *value, *gradient;
    cz_dtype dtype;
} run;

static void note(const run *r, const void *data, size_t bytes)
{
    uint64_t hash = 1469598103934665603u;
    const int rank = cz_group_rank(r->group);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    r->t->results[rank][r->t->counts[rank]++] = hash;
}

static void put(const run *r, void *to, int64_t i, double value)
{
    if (r->dtype == CZ_F64)
        ((double *)to)[i] = value;
    else
        ((float *)to)[i] = (float)value;
}

/* Numbers that must be rounded, and those whose squares and products are below the smallest normal
 * one. */
static void fill(const run *r, int step)
{
    const double tiny = r->dtype == CZ_F64 ? 1e-160 : 1e-20;
    const int rank = cz_group_rank(r->group);
    for (int64_t i = 0; i < N; i++) {
        const double x = (1.0 + (double)((i * 7 + step) % 97)) / (3 + rank);
        put(r, r->gradient, i, i % 3 == 0 ? x * tiny : i % 3 == 1 ? -x : x * tiny * tiny * 5);
    }
}

static void start_values(const run *r)
{
    for (int64_t i = 0; i < N; i++)
        put(r, r->value, i, (double)(i % 13 - 6) / 7);
}

static size_t bytes_of(const run *r)
{
    return N * cz_dtype_size(r->dtype);
}

static cz_status make_model(const run *r, cz_model **model)
{
    start_values(r);
    CZ_TRY(cz_model_create(model));
    return cz_model_add(*model, "w", r->value, r->gradient, r->dtype, 2, (int64_t[]){256, N / 256});
}

/* ---- what is tried ---- */

static cz_status reduce(run *r)
{
    fill(r, 1);
    IN_MODE(r->mode, cz_all_reduce(r->group, r->gradient, N, r->dtype, CZ_AVERAGE, NULL));
    note(r, r->gradient, bytes_of(r));
    cz_work *work;
    fill(r, 2);
    IN_MODE(r->mode, cz_all_reduce(r->group, r->gradient, N, r->dtype, CZ_SUM,
                                   CZ_START("in the background", &work)));
    IN_MODE(r->mode, cz_work_wait(work));
    cz_work_destroy(&work);
    note(r, r->gradient, bytes_of(r));
    return CZ_OK;
}

static cz_status step_unsharded(run *r, const cz_rule *rule)
{
    cz_model *model;
    cz_optim *optim;
    cz_sched *sched;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    cz_step_options step = CZ_STEP_OPTIONS_INIT;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    CZ_TRY(make_model(r, &model));
    options.threads = r->t->threads;
    step.max_norm = 10;
    IN_MODE(r->mode, cz_optim_create(&optim, model, rule, CZ_HYPERS({"lr", 1e-3}), &options));
    IN_MODE(r->mode, cz_sched_create_cosine(&sched, optim, 7, 1e-5, NULL));
    for (int k = 0; k < 3; k++) {
        fill(r, k);
        IN_MODE(r->mode, cz_optim_step(optim, &step, &result));
        IN_MODE(r->mode, cz_sched_step(sched));
        const double lr = cz_sched_last_lr(sched, 0);
        note(r, &lr, sizeof lr);
        note(r, &result.norm, sizeof result.norm);
    }
    note(r, r->value, bytes_of(r));
    cz_sched_destroy(&sched);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    return CZ_OK;
}

static cz_status step_sharded(run *r)
{
    cz_model *model;
    cz_zero *zero;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_step_options step = CZ_STEP_OPTIONS_INIT;
    CZ_TRY(make_model(r, &model));
    step.max_norm = 3;
    options.threads = r->t->threads;
    IN_MODE(r->mode, cz_zero_create(&zero, r->group, model, cz_rule_adamw(),
                                    CZ_HYPERS({"lr", 1e-3}), &options));
    for (int k = 0; k < 3; k++) {
        fill(r, k);
        IN_MODE(r->mode, cz_zero_step(zero, k > 0 ? &step : NULL, NULL));
    }
    note(r, r->value, bytes_of(r));
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return CZ_OK;
}

static cz_status pass(run *r, const char *hook)
{
    cz_model *model;
    cz_ddp *ddp;
    cz_powersgd *state = NULL;
    cz_powersgd_options options = CZ_POWERSGD_OPTIONS_INIT;
    const double weight = 1.0 / (cz_group_rank(r->group) + 1);
    CZ_TRY(make_model(r, &model));
    options.rank = 4;
    options.start_iter = -1;
    IN_MODE(r->mode, cz_ddp_create(&ddp, r->group, model, NULL));
    IN_MODE(r->mode, cz_powersgd_create(&state, model, &options));
    IN_MODE(r->mode,
            cz_ddp_register_hook_by_name(ddp, hook, strcmp(hook, "powersgd") == 0 ? state : NULL));
    for (int k = 0; k < 2; k++) {
        fill(r, k);
        IN_MODE(r->mode, cz_ddp_set_weight(ddp, weight));
        IN_MODE(r->mode, cz_ddp_begin(ddp, true));
        IN_MODE(r->mode, cz_ddp_mark_ready(ddp, 0));
        IN_MODE(r->mode, cz_ddp_finish(ddp));
        note(r, r->gradient, bytes_of(r));
    }
    cz_ddp_destroy(&ddp);
    cz_powersgd_destroy(&state);
    cz_model_destroy(&model);
    return CZ_OK;
}

static cz_status compute_numbers(float *normal, double *value)
{
    cz_sum sum = {{0}};
    const double terms[] = {1, 0x1p-60, 3 * 0x1p-1074, -0.1};
    cz_sum_add(&sum, 4, terms);
    *normal = cz_random_normal(1, 2, 3);
    *value = cz_sum_value(&sum);
    return CZ_OK;
}

static cz_status count_to(double *loss, void *context)
{
    *(int *)context = fegetround();
    *loss = 1;
    return CZ_OK;
}

static cz_status refuse_bad_numbers(run *r)
{
    cz_model *model;
    cz_optim *optim;
    CZ_TRY(make_model(r, &model));
    CZ_TRY(cz_optim_create(&optim, model, cz_rule_adam(), NULL, NULL));
    set_mode(r->mode);
    const cz_status refused = cz_optim_set_hyper(optim, 0, "lr", NAN);
    fesetenv(FE_DFL_ENV);
    if (refused != CZ_ERR_ARGUMENT ||
        strcmp(cz_last_error(), "adam: lr is nan, allowed is 0 <= lr, finite"))
        return cz_fail(CZ_ERR_INTERNAL, "a rate of NaN gives %s: %s", cz_status_name(refused),
                       cz_last_error());
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    return CZ_OK;
}

static cz_status try_all(run *r)
{
    float normal;
    double value;
    CZ_TRY(reduce(r));
    CZ_TRY(step_unsharded(r, cz_rule_adam()));
    CZ_TRY(step_unsharded(r, cz_rule_nadam()));
    CZ_TRY(step_sharded(r));
    CZ_TRY(refuse_bad_numbers(r));
    if (r->dtype == CZ_F32) {
        CZ_TRY(pass(r, "all_reduce"));
        CZ_TRY(pass(r, "fp16_compress"));
        CZ_TRY(pass(r, "bf16_compress"));
        CZ_TRY(pass(r, "quantize_per_tensor"));
        CZ_TRY(pass(r, "powersgd"));
    }
    IN_MODE(r->mode, compute_numbers(&normal, &value));
    note(r, &normal, sizeof normal);
    note(r, &value, sizeof value);
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *context)
{
    trial *t = context;
    run r = {.t = t, .group = group};
    fesetenv(FE_DFL_ENV); /* threads have that of who started them */
    r.mode = t->only < 0 || t->only == cz_group_rank(group) ? t->mode : MODE_DEFAULT;
    r.value = malloc(N * sizeof(double));
    r.gradient = malloc(N * sizeof(double));
    cz_status status = CZ_OK;
    for (int k = 0; k < 2 && status == CZ_OK; k++) {
        r.dtype = k == 0 ? CZ_F32 : CZ_F64;
        status = try_all(&r);
    }
    free(r.value);
    free(r.gradient);
    return status;
}

static void compare(const trial *t, const trial *expected, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(t->counts[r], expected->counts[r]);
        for (int k = 0; k < t->counts[r]; k++)
            if (t->results[r][k] != expected->results[r][k])
                fail_msg("%s on rank %d of %d, %d threads: result %d of rank %d differs",
                         mode_name(t->mode), t->only, ranks, t->threads, k, r);
    }
}

static void run_ranks(trial *t, int ranks)
{
    char why[256];
    if (cz_test_run_ranks(ranks, each_rank, t, why) != CZ_OK)
        fail_msg("%s on rank %d of %d, %d threads: %s", mode_name(t->mode), t->only, ranks,
                 t->threads, why);
}

TEST(results_do_not_depend_on_the_programs_floating_point_environment)
{
    static trial expected[MOST_RANKS + 1], t;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks += 2) {
        expected[ranks] = (trial){.mode = MODE_DEFAULT, .only = -1, .threads = 1};
        run_ranks(&expected[ranks], ranks);
        for (int mode = MODE_DEFAULT; mode < MODE_COUNT; mode++) {
            t = (trial){.mode = (test_mode)mode, .only = -1, .threads = mode % 2 ? 2 : 4};
            run_ranks(&t, ranks);
            compare(&t, &expected[ranks], ranks);
            if (ranks == 1 || mode == MODE_DEFAULT)
                continue;
            t = (trial){.mode = (test_mode)mode, .only = mode % ranks, .threads = 1};
            run_ranks(&t, ranks);
            compare(&t, &expected[ranks], ranks);
        }
    }
}

/* Threads of the library begin when groups and optimizers are made. */
TEST(threads_do_not_inherit_the_environment_of_who_started_them)
{
    static trial expected, t;
    char why[256];
    expected = (trial){.mode = MODE_DEFAULT, .only = -1, .threads = 1};
    run_ranks(&expected, 3);
    for (int mode = MODE_UP; mode < MODE_COUNT; mode++) {
        t = (trial){.mode = (test_mode)mode, .only = -1, .threads = 3};
        set_mode((test_mode)mode);
        const cz_status status = cz_test_run_ranks(3, each_rank, &t, why);
        fesetenv(FE_DFL_ENV);
        if (status != CZ_OK)
            fail_msg("%s: %s", mode_name(t.mode), why);
        compare(&t, &expected, 3);
    }
}

TEST(closures_run_in_the_programs_environment)
{
    float w[2] = {0}, g[2] = {1, 1};
    cz_model *model;
    cz_optim *optim;
    cz_zero *zero;
    cz_group *group;
    int seen = -1;
    cz_step_options step = CZ_STEP_OPTIONS_INIT;
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "w", w, g, CZ_F32, 1, (int64_t[]){2}));
    assert_ok(cz_optim_create(&optim, model, cz_rule_adam(), NULL, NULL));
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(cz_zero_create(&zero, group, model, cz_rule_adam(), NULL, NULL));
    step.closure = count_to;
    step.closure_context = &seen;
    fesetround(FE_UPWARD);
    assert_ok(cz_optim_step(optim, &step, NULL));
    assert_int_equal(seen, FE_UPWARD);
    seen = -1;
    assert_ok(cz_zero_step(zero, &step, NULL));
    assert_int_equal(seen, FE_UPWARD);
    fesetround(FE_TONEAREST);
    cz_zero_destroy(&zero);
    cz_group_destroy(&group);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}
