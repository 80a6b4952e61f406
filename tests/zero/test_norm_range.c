/* SPDX-License-Identifier: MIT */
/* Norms of f64 gradients whose squares are beyond the range of double: every finite gradient is
 * finite, whatever the cuts and the number of ranks; clipping and skipping follow. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"
#include "support/cz_test.h"

enum { N = 1000 };

typedef struct trial {
    double scale;
    double max_norm;
    bool reduced; /* gradients are reduced already */
    int threads;
    double norm[8];
    double values[N]; /* of rank 0 */
} trial;

static double element(int64_t i)
{
    return (double)(i % 13 - 6) / 8;
}

static double norm_of_elements(void)
{
    double sum = 0;
    for (int64_t i = 0; i < N; i++)
        sum += element(i) * element(i); /* exact */
    return sqrt(sum);
}

static cz_status step(cz_group *group, void *context)
{
    trial *t = context;
    double *values = calloc(N, sizeof *values), *gradients = calloc(N, sizeof *gradients);
    cz_model *model;
    cz_zero *zero;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_step_options step = CZ_STEP_OPTIONS_INIT;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add_flat(model, values, gradients, CZ_F64, 3, NULL, (int64_t[]){7, 900, 93}));
    options.gradients = t->reduced ? CZ_GRADIENTS_REDUCED : CZ_GRADIENTS_LOCAL;
    options.threads = t->threads;
    for (int64_t i = 0; i < N; i++)
        gradients[i] = element(i) * t->scale;
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), &options));
    step.max_norm = t->max_norm;
    step.skip_nonfinite = 1;
    step.norm = 1;
    CZ_TRY(cz_zero_step(zero, &step, &result));
    t->norm[cz_group_rank(group)] = result.skipped ? NAN : result.norm;
    if (cz_group_rank(group) == 0)
        memcpy(t->values, values, sizeof t->values);
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    free(values);
    free(gradients);
    return CZ_OK;
}

static void run(int ranks, trial *t)
{
    assert_ranks_ok(ranks, step, t);
}

TEST(every_finite_gradient_has_a_norm)
{
    /* Powers of two: the norm is exact wherever it can be. One rank or a power of two: the mean is
     * the gradient. */
    static const double scales[] = {1, 0x1p520, 0x1p1010, 0x1p-440, 0x1p-500, 0x1p-600, 0x1p-1020};
    static const int worlds[] = {1, 2, 4};
    const double one = norm_of_elements();
    for (size_t k = 0; k < sizeof scales / sizeof *scales; k++)
        for (size_t w = 0; w < 3; w++)
            for (int mode = 0; mode < 4; mode++) {
                trial t = {.scale = scales[k], .reduced = mode & 1, .threads = mode & 2 ? 3 : 1};
                run(worlds[w], &t);
                for (int r = 0; r < worlds[w]; r++)
                    if (t.norm[r] != one * scales[k])
                        fail_msg("scale %a, %d ranks, mode %d: %a, wanted %a", scales[k], worlds[w],
                                 mode, t.norm[r], one * scales[k]);
            }
}

TEST(large_gradients_are_clipped_not_erased)
{
    const double one = norm_of_elements();
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        trial t = {.scale = 0x1p600, .max_norm = 3};
        run(ranks, &t);
        for (int64_t i = 0; i < N; i++)
            assert_true(fabs(t.values[i] + element(i) * 3 / one) < 1e-14);
        t.scale = 0x1p1022; /* the norm itself is beyond double: the gradients are not */
        run(ranks, &t);
        assert_true(isinf(t.norm[0]));
        for (int64_t i = 0; i < N; i++)
            assert_true(fabs(t.values[i] + element(i) * 3 / one) < 1e-14);
    }
}

TEST(what_is_infinite_is_still_skipped)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        trial t = {.scale = INFINITY}; /* and NaN, where an element is 0 */
        run(ranks, &t);
        assert_true(isnan(t.norm[0]));
        for (int64_t i = 0; i < N; i++)
            assert_true(t.values[i] == 0);
    }
}

TEST(an_optimizer_alone)
{
    double value[2] = {0}, gradient[2] = {3e-170, 4e-170};
    cz_model *model;
    cz_optim *optim;
    cz_step_options step = CZ_STEP_OPTIONS_INIT;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "w", value, gradient, CZ_F64, 1, (int64_t[]){2}));
    assert_ok(cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    step.norm = step.skip_nonfinite = 1;
    assert_ok(cz_optim_step(optim, &step, &result));
    assert_true(fabs(result.norm / 5e-170 - 1) < 1e-15);
    gradient[0] = 3e200;
    gradient[1] = 4e200;
    assert_ok(cz_optim_step(optim, &step, &result));
    assert_true(!result.skipped && fabs(result.norm / 5e200 - 1) < 1e-15);
    gradient[1] = INFINITY;
    assert_ok(cz_optim_step(optim, &step, &result));
    assert_true(result.skipped && isinf(result.norm));
    gradient[0] = gradient[1] = 0;
    assert_ok(cz_optim_step(optim, &step, &result));
    assert_true(!result.skipped && result.norm == 0);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}
