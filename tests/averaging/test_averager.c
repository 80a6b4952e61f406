/* SPDX-License-Identifier: MIT */
/* Averagers that are refused, ranks that differ or have no memory, the counter in a dictionary. */
#include "averaging/replicas.h"
#include "averaging/averager.h"

typedef struct subject {
    replica replica;
    cz_model *model;
    cz_averager *averager;
} subject;

static void clear(subject *s)
{
    cz_averager_destroy(&s->averager);
    cz_model_destroy(&s->model);
    free(s);
}

static subject *make(void)
{
    subject *s = calloc(1, sizeof *s);
    fill(&s->replica);
    return make_model(&s->model, &s->replica) == CZ_OK ? s : NULL;
}

/* ---- making one ---- */

/* What a rank of several asks for; the others ask for 2 ranks after each step and 4 after every
 * second, without a warm-up. */
typedef struct request {
    cz_averager_level levels[2];
    int64_t count, warmup;
    bool no_model, no_out, no_levels, frozen;
    cz_status wanted;
    const char *sentence; /* is part of it */
} request;

static const request requests[] = {
    {{LEVEL(0, 2), LEVEL(2, 4)},
     2,
     .wanted = CZ_ERR_ARGUMENT,
     .sentence = "the period of level 0 is 0"},
    {{LEVEL(2, 2), LEVEL(2, 4)}, 2, .wanted = CZ_ERR_ARGUMENT, .sentence = "they ascend"},
    {{LEVEL(3, 2), LEVEL(2, 4)}, 2, .wanted = CZ_ERR_ARGUMENT, .sentence = "they ascend"},
    {{LEVEL(1, 3), LEVEL(2, 4)}, 2, .wanted = CZ_ERR_ARGUMENT, .sentence = "wanted a divisor of 4"},
    {{LEVEL(1, 0), LEVEL(2, 4)}, 2, .wanted = CZ_ERR_ARGUMENT, .sentence = "wanted a divisor of 4"},
    {{LEVEL(1, 4), LEVEL(2, 2)}, 2, .wanted = CZ_ERR_ARGUMENT, .sentence = "wanted all 4"},
    {{LEVEL(1, 2), LEVEL(2, 4)}, 0, .wanted = CZ_ERR_ARGUMENT, .sentence = "0 levels"},
    {{LEVEL(1, 2), LEVEL(2, 4)},
     2,
     -1,
     .wanted = CZ_ERR_ARGUMENT,
     .sentence = "warmup_steps is -1"},
    {{LEVEL(1, 2), LEVEL(2, 4)},
     2,
     .no_model = true,
     .wanted = CZ_ERR_ARGUMENT,
     .sentence = "model is NULL"},
    {{LEVEL(1, 2), LEVEL(2, 4)},
     2,
     .no_out = true,
     .wanted = CZ_ERR_ARGUMENT,
     .sentence = "out is NULL"},
    {{LEVEL(1, 2), LEVEL(2, 4)},
     2,
     .no_levels = true,
     .wanted = CZ_ERR_ARGUMENT,
     .sentence = "at NULL"},
    {{LEVEL(1, 2), LEVEL(3, 4)}, 2, .wanted = CZ_ERR_MISMATCH, .sentence = "the period of level 1"},
    {{LEVEL(1, 1), LEVEL(2, 4)},
     2,
     .wanted = CZ_ERR_MISMATCH,
     .sentence = "the number of ranks of level 0"},
    {{LEVEL(2, 4)}, 1, .wanted = CZ_ERR_MISMATCH, .sentence = "the number of levels"},
    {{LEVEL(1, 2), LEVEL(2, 4)}, 2, 7, .wanted = CZ_ERR_MISMATCH, .sentence = "warmup_steps"},
    {{LEVEL(1, 2), LEVEL(2, 4)}, 2, .frozen = true, .wanted = CZ_ERR_MISMATCH, .sentence = "'p3'"},
};

static cz_status ask(cz_group *group, const request *asked)
{
    cz_averager_options options = CZ_AVERAGER_OPTIONS_INIT;
    subject *s = make();
    cz_status status = s ? CZ_OK : cz_fail(CZ_ERR_MEMORY, "test");
    options.warmup_steps = asked->warmup;
    if (s && asked->frozen)
        status = cz_model_set_requires_grad(s->model, 3, false);
    THEN(cz_averager_create_hierarchical(
        asked->no_out ? NULL : &s->averager, group, asked->no_model ? NULL : s->model,
        asked->no_levels ? NULL : asked->levels, asked->count, &options));
    if (s)
        clear(s);
    return status;
}

static cz_status each_rank_asks(cz_group *group, void *arg)
{
    const request *odd = arg, ordinary = {.levels = {LEVEL(1, 2), LEVEL(2, 4)}, .count = 2};
    const cz_status status = ask(group, cz_group_rank(group) == 1 ? odd : &ordinary);
    if (status != odd->wanted || !strstr(cz_last_error(), odd->sentence))
        return cz_fail(CZ_ERR_STATE, "got %s, '%s'", cz_status_name(status), cz_last_error());
    return ask(group, &ordinary);
}

TEST(what_is_refused)
{
    char why[256];
    for (size_t k = 0; k < sizeof requests / sizeof *requests; k++) {
        request r = requests[k];
        if (cz_test_run_ranks(4, each_rank_asks, &r, why) != CZ_OK)
            fail_msg("request %d: %s", (int)k, why);
    }
}

/* ---- averaging on ranks that differ ---- */

static cz_status set_step(cz_averager *averager, int64_t step)
{
    cz_state_dict *dict = NULL;
    cz_status status = cz_state_dict_create(&dict);
    THEN(cz_state_dict_set_integer(dict, "step", step));
    THEN(cz_averager_load_state_dict(averager, dict));
    cz_state_dict_destroy(&dict);
    return status;
}

/* Everybody gets the error, nothing was changed and no step counted; mended, it works. */
static cz_status expect_refused(subject *s, cz_status wanted, const char *sentence)
{
    const replica before = s->replica;
    const int64_t step = s->averager->step;
    int ranks = -1;
    const cz_status status = cz_averager_average(s->averager, &ranks);
    if (status != wanted || !strstr(cz_last_error(), sentence) || ranks != 0)
        return cz_fail(CZ_ERR_STATE, "wanted '%s', got %s, '%s', %d ranks", sentence,
                       cz_status_name(status), cz_last_error(), ranks);
    if (s->averager->step != step)
        return cz_fail(CZ_ERR_STATE, "the step was counted");
    return compare(&s->replica, &before, (int)step);
}

static cz_status differ(subject *s, cz_group *group)
{
    const bool odd = cz_group_rank(group) == 1;
    int ranks;
    drift(&s->replica, cz_group_rank(group), 0);
    CZ_TRY(set_step(s->averager, odd ? 9 : 6));
    CZ_TRY(expect_refused(s, CZ_ERR_MISMATCH, "the number of steps is 9"));
    CZ_TRY(set_step(s->averager, 6));
    CZ_TRY(cz_model_set_requires_grad(s->model, 4, !odd));
    CZ_TRY(expect_refused(s, CZ_ERR_MISMATCH, "'p4'"));
    CZ_TRY(cz_model_set_requires_grad(s->model, 4, true));
    CZ_TRY(cz_model_set_requires_grad(s->model, PARAMS, odd)); /* which is of integers */
    CZ_TRY(expect_refused(s, CZ_ERR_UNSUPPORTED, "rank 1: "));
    CZ_TRY(cz_model_set_requires_grad(s->model, PARAMS, false));
    CZ_TRY(cz_averager_average(s->averager, &ranks));
    return ranks == cz_group_size(group) ? CZ_OK : cz_fail(CZ_ERR_STATE, "%d ranks", ranks);
}

static cz_status each_rank_differs(cz_group *group, void *arg)
{
    static int32_t integers[2];
    static const int64_t two = 2;
    subject *s = make();
    cz_status status = cz_model_add(s->model, "integers", integers, NULL, CZ_I32, 1, &two);
    THEN(cz_model_set_requires_grad(s->model, PARAMS, false));
    THEN(cz_averager_create_periodic(&s->averager, group, s->model, 3, NULL));
    THEN(differ(s, group));
    clear(s);
    return status;
}

TEST(ranks_that_differ)
{
    for (int world = 2; world <= 5; world++)
        assert_ranks_ok(world, each_rank_differs, NULL);
}

/* ---- no memory ---- */

static cz_status verdict(cz_group *group, cz_status status)
{
    int32_t statuses[2] = {(int32_t)status, -(int32_t)status};
    CZ_TRY(cz_all_reduce(group, statuses, 2, CZ_I32, CZ_MAX, NULL));
    if (statuses[0] != -statuses[1] || (status != CZ_OK && status != CZ_ERR_MEMORY))
        return cz_fail(CZ_ERR_STATE, "ranks got %d and %d", (int)statuses[0], -(int)statuses[1]);
    return CZ_OK;
}

/* The n-th allocation fails, on whichever rank that is. */
static cz_status try_once(cz_group *group, subject *s, int64_t n, bool creating, bool *failed)
{
    const cz_averager_level levels[] = {LEVEL(1, 2), LEVEL(2, cz_group_size(group))};
    const replica before = s->replica;
    uint8_t any;
    if (cz_group_rank(group) == 0)
        cz_test_fail_allocation(n);
    const cz_status status =
        creating ? cz_averager_create_hierarchical(&s->averager, group, s->model, levels, 2, NULL)
                 : cz_averager_average(s->averager, NULL);
    any = cz_test_allocation_reset();
    CZ_TRY(cz_all_reduce(group, &any, 1, CZ_U8, CZ_MAX, NULL));
    CZ_TRY(verdict(group, status));
    *failed = any;
    if (status != CZ_OK && creating && s->averager)
        return cz_fail(CZ_ERR_STATE, "there is an averager");
    return status == CZ_OK ? CZ_OK : compare(&s->replica, &before, (int)n);
}

static cz_status each_rank_without_memory(cz_group *group, void *arg)
{
    cz_status status = CZ_OK;
    subject *s = make();
    for (int creating = 1; creating >= 0; creating--) {
        bool failed = true;
        for (int64_t n = 1; failed && status == CZ_OK; n++) {
            if (creating)
                cz_averager_destroy(&s->averager);
            drift(&s->replica, cz_group_rank(group), (int)n);
            status = try_once(group, s, n, creating, &failed);
        }
    }
    clear(s);
    return status;
}

TEST(no_memory)
{
    for (int world = 2; world <= 4; world += 2)
        assert_ranks_ok(world, each_rank_without_memory, NULL);
    assert_int_equal(cz_test_allocations_held(), 0);
}

/* ---- the counter ---- */

static cz_status each_rank_saves(cz_group *group, void *arg)
{
    subject *s = make();
    cz_state_dict *dict = NULL;
    cz_status status = cz_averager_create_periodic(&s->averager, group, s->model, 4, NULL);
    for (int k = 0; k < 5 && status == CZ_OK; k++)
        status = cz_averager_average(s->averager, NULL);
    THEN(cz_averager_state_dict(s->averager, &dict));
    cz_averager_destroy(&s->averager);
    THEN(cz_averager_create_periodic(&s->averager, group, s->model, 4, NULL));
    THEN(cz_averager_load_state_dict(s->averager, dict));
    for (int k = 5, ranks; k < 10 && status == CZ_OK; k++) {
        status = cz_averager_average(s->averager, &ranks);
        if (status == CZ_OK && ranks != (k == 8 ? cz_group_size(group) : 0))
            status = cz_fail(CZ_ERR_STATE, "step %d: averaged over %d", k, ranks);
    }
    if (status == CZ_OK && (set_step(s->averager, -1) != CZ_ERR_ARGUMENT ||
                            cz_state_dict_remove(dict, "step") != CZ_OK ||
                            cz_averager_load_state_dict(s->averager, dict) != CZ_ERR_ARGUMENT ||
                            s->averager->step != 10))
        status = cz_fail(CZ_ERR_STATE, "a bad dictionary was taken");
    cz_state_dict_destroy(&dict);
    clear(s);
    return status;
}

TEST(the_counter_goes_on)
{
    assert_ranks_ok(3, each_rank_saves, NULL);
}

/* ---- a word of warning ---- */

static int warnings;

static void sink(cz_log_level level, const char *line, void *context)
{
    warnings += level == CZ_LOG_WARN && strstr(line, "period 1 ") != NULL;
}

static cz_status each_rank_averages_always(cz_group *group, void *arg)
{
    const int64_t *period = arg;
    subject *s = make();
    const cz_status status =
        cz_averager_create_periodic(&s->averager, group, s->model, *period, NULL);
    clear(s);
    return status;
}

TEST(period_1_is_warned_of_once)
{
    char why[256];
    int64_t period = 1;
    cz_log_set_sink(sink, NULL);
    warnings = 0;
    assert_ok(cz_test_run_ranks(3, each_rank_averages_always, &period, why));
    assert_int_equal(warnings, 1);
    period = 2;
    assert_ok(cz_test_run_ranks(3, each_rank_averages_always, &period, why));
    assert_int_equal(warnings, 1);
    cz_log_set_sink(NULL, NULL);
}
