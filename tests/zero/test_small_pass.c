/* SPDX-License-Identifier: MIT */
/* A pass over one small bucket that makes its step at its end: both are one operation, which a rank
 * whose pass has failed ends on all. (Its bits are those of any other: test_overlap.c.) */
#include <string.h>

#include "czero/czero.h"
#include "support/cz_test.h"

enum { PARAMS = 3, ELEMENTS = 61 };
static const int64_t sizes[PARAMS] = {40, 20, 1};

typedef struct training {
    float values[ELEMENTS], gradients[ELEMENTS];
    cz_model *model;
    cz_ddp *ddp;
    cz_zero *zero;
} training;

static cz_status make(training *t, cz_group *group, cz_overlap overlap)
{
    int64_t at = 0;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    CZ_TRY(cz_model_create(&t->model));
    for (int p = 0; p < PARAMS; at += sizes[p++]) {
        const char name[] = {'p', (char)('0' + p), '\0'};
        CZ_TRY(
            cz_model_add(t->model, name, t->values + at, t->gradients + at, CZ_F32, 1, &sizes[p]));
    }
    CZ_TRY(cz_ddp_create(&t->ddp, group, t->model, NULL));
    options.ddp = t->ddp;
    options.overlap = overlap;
    return cz_zero_create(&t->zero, group, t->model, cz_rule_adamw(), NULL, &options);
}

static void clear(training *t)
{
    cz_zero_destroy(&t->zero);
    cz_ddp_destroy(&t->ddp);
    cz_model_destroy(&t->model);
}

static cz_status pass(training *t, const cz_group *group, int marks)
{
    for (int i = 0; i < ELEMENTS; i++)
        t->gradients[i] = (float)(i + cz_group_rank(group));
    CZ_TRY(cz_ddp_begin(t->ddp, true));
    for (int p = 0; p < marks; p++)
        CZ_TRY(cz_ddp_mark_ready(t->ddp, p));
    CZ_TRY(cz_ddp_finish(t->ddp));
    return cz_zero_step(t->zero, NULL, NULL);
}

static uint64_t header_bytes(const cz_group *group)
{
    cz_group_info info = CZ_GROUP_INFO_INIT;
    (void)cz_group_get_info(group, &info);
    return info.header_bytes;
}

/* Of three passes, once the first ones have taught what there is to learn. */
static cz_status count(training *t, cz_group *group, cz_overlap overlap, uint64_t *bytes)
{
    CZ_TRY(make(t, group, overlap));
    for (int k = 0; k < 3; k++)
        CZ_TRY(pass(t, group, PARAMS));
    const uint64_t before = header_bytes(group);
    for (int k = 0; k < 3; k++)
        CZ_TRY(pass(t, group, PARAMS));
    *bytes = header_bytes(group) - before;
    return CZ_OK;
}

static cz_status compare_counts(cz_group *group, void *context)
{
    uint64_t bytes[2];
    for (int k = 0; k < 2; k++) {
        training t = {0};
        const cz_status status = count(&t, group, k ? CZ_OVERLAP_STEP : CZ_OVERLAP_NONE, &bytes[k]);
        clear(&t);
        CZ_TRY(status);
    }
    /* that a pass begins, its reduction, its step: three, or one */
    CHECK(bytes[0] > 0 && bytes[0] == 3 * bytes[1], "%u bytes of headers, and %u",
          (unsigned)bytes[0], (unsigned)bytes[1]);
    return CZ_OK;
}

TEST(a_small_pass_and_its_step_are_one_operation)
{
    for (int world = 2; world <= 5; world++)
        assert_ranks_ok(world, compare_counts, NULL);
}

static cz_status fail_once(training *t, cz_group *group, const int *who)
{
    float before[ELEMENTS];
    const bool fails = cz_group_rank(group) == *who;
    CZ_TRY(make(t, group, CZ_OVERLAP_STEP));
    CZ_TRY(pass(t, group, PARAMS));
    memcpy(before, t->values, sizeof before);
    const cz_status status = pass(t, group, fails ? PARAMS - 1 : PARAMS);
    CHECK(status == CZ_ERR_STATE && strstr(cz_last_error(), "'p2'"), "%s: %.200s",
          cz_status_name(status), status ? cz_last_error() : "");
    CHECK(memcmp(before, t->values, sizeof before) == 0, "values have changed");
    CHECK(cz_zero_step(t->zero, NULL, NULL) == CZ_ERR_STATE, "there was a step");
    CZ_TRY(pass(t, group, PARAMS));
    CHECK(memcmp(before, t->values, sizeof before) != 0, "values have not changed");
    return cz_zero_check_replicas(t->zero);
}
RANK_BODY(fail_once, training, clear, group, context)

TEST(a_pass_that_fails_on_one_rank_makes_no_step_on_any)
{
    for (int world = 1; world <= 5; world++)
        for (int who = 0; who<world; who += world> 1 ? world - 1 : 1)
            assert_ranks_ok(world, fail_once_body, &who);
}

/* What one rank has changed before its pass: all hear of it, that one where its pass begins. */
typedef enum change { WEIGHT, FROZEN, CHANGES } change;
static const char *const sentences[CHANGES] = {"the mean is with", "parameter 1 'p1' is "};

static cz_status make_change(training *t, change what)
{
    return what == WEIGHT ? cz_ddp_set_weight(t->ddp, 2)
                          : cz_model_set_requires_grad(t->model, 1, false);
}

typedef struct differing {
    change what;
    int who;
} differing;

static cz_status differ(training *t, cz_group *group, const differing *d)
{
    float before[ELEMENTS];
    const bool differs = cz_group_rank(group) == d->who;
    CZ_TRY(make(t, group, CZ_OVERLAP_STEP));
    for (int k = 0; k < 2; k++)
        CZ_TRY(pass(t, group, PARAMS));
    memcpy(before, t->values, sizeof before);
    if (differs)
        CZ_TRY(make_change(t, d->what));
    const cz_status status = pass(t, group, PARAMS);
    CHECK(status == CZ_ERR_MISMATCH && strstr(cz_last_error(), sentences[d->what]), "%s: %.200s",
          cz_status_name(status), status ? cz_last_error() : "");
    CHECK(memcmp(before, t->values, sizeof before) == 0, "values have changed");
    if (!differs) /* the others follow */
        CZ_TRY(make_change(t, d->what));
    CZ_TRY(pass(t, group, PARAMS));
    CHECK(memcmp(before, t->values, sizeof before) != 0, "values have not changed");
    return cz_zero_check_replicas(t->zero);
}
RANK_BODY(differ, training, clear, group, context)

TEST(passes_that_differ_make_no_step_and_say_in_what)
{
    for (int world = 2; world <= 5; world++)
        for (int what = 0; what < CHANGES; what++)
            for (int who = 0; who < world; who += world - 1) {
                differing d = {(change)what, who};
                assert_ranks_ok(world, differ_body, &d);
            }
}
