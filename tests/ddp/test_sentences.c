/* SPDX-License-Identifier: MIT */
/* What a program is told where it asks for something that is not there: which parameter, in what,
 * and the way out. */
#include "czero/ddp.h"
#include "czero/optim.h"
#include "support/cz_test.h"
#include "ddp/ddp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static float memory[8];
static uint16_t halves[8];

static void expect_words(cz_status status, cz_status wanted, const char *const *words)
{
    if (status != wanted)
        fail_msg("%s: %s", cz_status_name(status), cz_last_error());
    for (; *words; words++)
        if (!strstr(cz_last_error(), *words))
            fail_msg("no '%s' in: %s", *words, cz_last_error());
}
#define EXPECT(status, wanted, ...)                                                                \
    expect_words(status, wanted, (const char *const[]){__VA_ARGS__, NULL})

TEST(value_and_gradient_say_in_what_they_differ)
{
    cz_model *model;
    const cz_tensor value = {memory, CZ_F32, CZ_DENSE, 1, {4}, NULL};
    cz_tensor shape = value, type = value;
    shape.shape[0] = 3;
    type.dtype = CZ_F64;
    assert_ok(cz_model_create(&model));
    EXPECT(cz_model_add_tensor(model, "w", &value, &shape), CZ_ERR_ARGUMENT,
           "\"w\" differ in shape");
    EXPECT(cz_model_add_tensor(model, "w", &value, &type), CZ_ERR_ARGUMENT, "\"w\" differ in type");
    cz_model_destroy(&model);
}

TEST(types_that_no_rule_takes_together_have_a_way_out)
{
    cz_model *model;
    cz_optim *optim;
    double wide[8];
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "half", halves, halves + 4, CZ_BF16, 1, (int64_t[]){4}));
    assert_ok(cz_model_add(model, "wide", wide, wide + 4, CZ_F64, 1, (int64_t[]){4}));
    EXPECT(cz_optim_create(&optim, model, cz_rule_adamw(), NULL, NULL), CZ_ERR_ARGUMENT,
           "'wide' is f64, 'half' is bf16", "make one for each");
    cz_model_destroy(&model);
}

static cz_status mark_once(cz_group *group, void *context)
{
    float value[2] = {0}, gradient[2] = {0};
    cz_model *model;
    cz_ddp *ddp;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "tied", value, gradient, CZ_F32, 1, (int64_t[]){2}));
    CZ_TRY(cz_ddp_create(&ddp, group, model, NULL));
    CZ_TRY(cz_ddp_set_uses(ddp, 0, 2));
    CZ_TRY(cz_ddp_begin(ddp, true));
    CZ_TRY(cz_ddp_mark_ready(ddp, 0));
    const cz_status status = cz_ddp_finish(ddp);
    const bool told = status == CZ_ERR_STATE &&
                      strstr(cz_last_error(), "'tied' with 1 of 2 marks") &&
                      strstr(cz_last_error(), "cz_ddp_set_uses()");
    const cz_status result =
        told ? CZ_OK : cz_fail(CZ_ERR_INTERNAL, "%s: %s", cz_status_name(status), cz_last_error());
    cz_ddp_destroy(&ddp);
    cz_model_destroy(&model);
    return result;
}

TEST(a_parameter_that_lacks_marks_says_how_many)
{
    assert_ranks_ok(2, mark_once, NULL);
}

static cz_status abandon_on_one(cz_group *group, void *context)
{
    float value[2] = {0}, gradient[2] = {0};
    const int rank = cz_group_rank(group), last = cz_group_size(group) - 1;
    char sentence[32] = "abandoned";
    cz_model *model;
    cz_ddp *ddp;
    cz_ddp_options options = CZ_DDP_OPTIONS_INIT;
    options.find_unused = *(const bool *)context;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "w", value, gradient, CZ_F32, 1, (int64_t[]){2}));
    CZ_TRY(cz_ddp_create(&ddp, group, model, &options));
    CZ_TRY(cz_ddp_set_passes(ddp, 40));
    for (int turn = 0; turn < 2; turn++) {
        CZ_TRY(cz_ddp_begin(ddp, true));
        if (rank != last)
            CZ_TRY(cz_ddp_mark_ready(ddp, 0));
        const cz_status status = rank == last ? cz_ddp_abandon(ddp) : cz_ddp_finish(ddp);
        if (status != (rank == last ? CZ_OK : CZ_ERR_STATE) ||
            (rank != last && !strstr(cz_last_error(), sentence)))
            return cz_fail(CZ_ERR_INTERNAL, "%s: %s", cz_status_name(status), cz_last_error());
        gradient[0] = (float)(rank + 1);
        CZ_TRY(cz_ddp_begin(ddp, true));
        CZ_TRY(cz_ddp_mark_ready(ddp, 0));
        CZ_TRY(cz_ddp_finish(ddp));
        if (gradient[0] != (float)(last + 2) / 2)
            return cz_fail(CZ_ERR_INTERNAL, "the pass after: %g", (double)gradient[0]);
    }
    if (cz__ddp_passes(ddp) != 42 || cz_ddp_set_passes(ddp, 0) != CZ_ERR_STATE)
        return cz_fail(CZ_ERR_INTERNAL, "%d passes", (int)cz__ddp_passes(ddp));
    CZ_TRY(cz_ddp_begin(ddp, false));
    CZ_TRY(cz_ddp_abandon(ddp));
    cz_ddp_destroy(&ddp);
    cz_model_destroy(&model);
    return CZ_OK;
}

TEST(a_pass_that_one_rank_abandons_ends_on_all)
{
    for (int way = 0; way < 2; way++)
        for (int ranks = 1; ranks <= 3; ranks++)
            assert_ranks_ok(ranks, abandon_on_one, &(bool){way});
}

static cz_status other_passes(cz_group *group, void *context)
{
    float value[2] = {0}, gradient[2] = {0};
    cz_model *model;
    cz_ddp *ddp;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "w", value, gradient, CZ_F32, 1, (int64_t[]){2}));
    CZ_TRY(cz_ddp_create(&ddp, group, model, NULL));
    CZ_TRY(cz_ddp_set_passes(ddp, cz_group_rank(group)));
    const cz_status status = cz_ddp_begin(ddp, true);
    const bool told =
        status == CZ_ERR_MISMATCH && strstr(cz_last_error(), "the number of the pass");
    cz_ddp_destroy(&ddp);
    cz_model_destroy(&model);
    return told ? CZ_OK : cz_fail(CZ_ERR_INTERNAL, "%s", cz_last_error());
}

TEST(numbers_of_passes_that_differ_are_refused)
{
    assert_ranks_ok(2, other_passes, NULL);
}

static char warning[400];

static void keep_warning(cz_log_level level, const char *line, void *context)
{
    if (level == CZ_LOG_WARN)
        snprintf(warning, sizeof warning, "%s", line);
}

/* Micro-batches for which no pass came that reduces. */
TEST(marks_that_die_with_a_ddp_are_said)
{
    float value[4] = {0}, gradient[4] = {0};
    cz_group *group;
    cz_model *model;
    cz_ddp *ddp;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(cz_model_create(&model));
    for (int p = 0; p < 2; p++)
        assert_ok(cz_model_add(model, p ? "b" : "a", value + 2 * p, gradient + 2 * p, CZ_F32, 1,
                               (int64_t[]){2}));
    assert_ok(cz_ddp_create(&ddp, group, model, NULL));
    assert_ok(cz_ddp_begin(ddp, false));
    assert_ok(cz_ddp_mark_ready(ddp, 1));
    assert_ok(cz_ddp_finish(ddp));
    cz_model_destroy(&model); /* its names are still there */
    cz_log_set_sink(keep_warning, NULL);
    cz_ddp_destroy(&ddp);
    cz_log_set_sink(NULL, NULL);
    if (!strstr(warning, "rank 0: ddp 1 of group 'world' is destroyed") ||
        !strstr(warning, "were reduced, those of 'b' (parameters: 1)"))
        fail_msg("%s", warning);
    cz_group_destroy(&group);
}

/* PyTorch's idiom for having the norm and changing nothing. */
TEST(an_infinite_max_norm_measures)
{
    float value[2] = {0}, gradient[2] = {3, 4};
    cz_model *model;
    cz_optim *optim;
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_step_result result = CZ_STEP_RESULT_INIT;
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "w", value, gradient, CZ_F32, 1, (int64_t[]){2}));
    assert_ok(cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), NULL));
    options.max_norm = INFINITY;
    assert_ok(cz_optim_step(optim, &options, &result));
    assert_true(result.norm == 5 && gradient[0] == 3 && value[1] == -4);
    gradient[0] = INFINITY; /* nothing becomes NaN that was not */
    assert_ok(cz_optim_step(optim, &options, &result));
    assert_true(isinf(result.norm) && gradient[1] == 4 && value[1] == -8);
    options.max_norm = NAN;
    EXPECT(cz_optim_step(optim, &options, &result), CZ_ERR_ARGUMENT, "max_norm is nan");
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}
