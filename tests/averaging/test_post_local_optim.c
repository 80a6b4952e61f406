/* SPDX-License-Identifier: MIT */
/* Post-local SGD against the same in one process: an optimizer per rank, and their mean. Saved and
 * loaded in the middle, with schedulers that go on. */
#include <string.h>

#include "czero/averaging.h"
#include "czero/sched.h"
#include "support/cz_test.h"
#include "averaging/averager.h"
#include "optim/optim.h"

enum { STEPS = 11, N = 61 };

typedef struct local {
    float values[2][N], grads[2][N];
    cz_model *model;
    cz_optim *optim;
    cz_sched *sched;
} local;

static void local_destroy(local *l)
{
    cz_sched_destroy(&l->sched);
    cz_optim_destroy(&l->optim);
    cz_model_destroy(&l->model);
}

static cz_status local_create(local *l)
{
    static const int64_t shape = N;
    CZ_TRY(cz_model_create(&l->model));
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < N; i++)
            l->values[p][i] = (float)i / 8;
        CZ_TRY(cz_model_add(l->model, p ? "b" : "a", l->values[p], l->grads[p], CZ_F32, 1, &shape));
    }
    CZ_TRY(cz_optim_create(&l->optim, l->model, cz_rule_adam(), CZ_HYPERS({"lr", 0.25}), NULL));
    return cz_sched_create_step(&l->sched, l->optim, 3, 0.5, NULL);
}

static void set_gradients(local *l, int rank, int step)
{
    for (int p = 0; p < 2; p++)
        cz_test_stream_f32((uint64_t)(100 * rank + 2 * step + p + 1), N, l->grads[p]);
}

/* ---- the reference ---- */

static float sum_of(const local *all, int first, int count, int p, int i)
{
    int left = 1;
    if (count == 1)
        return all[first].values[p][i];
    while (2 * left < count)
        left *= 2;
    return sum_of(all, first, left, p, i) + sum_of(all, first + left, count - left, p, i);
}

static cz_status reference_step(local *all, int world, int64_t period, int64_t warmup, int step)
{
    for (int r = 0; r < world; r++) {
        set_gradients(&all[r], r, step);
        CZ_TRY(cz_optim_step(all[r].optim, NULL, NULL));
        CZ_TRY(cz_sched_step(all[r].sched));
    }
    for (int p = 0; step >= warmup && (step - warmup) % period == 0 && p < 2; p++)
        for (int i = 0; i < N; i++) {
            const float mean = sum_of(all, 0, world, p, i) / (float)world;
            for (int r = 0; r < world; r++)
                all[r].values[p][i] = mean;
        }
    return CZ_OK;
}

/* ---- a rank ---- */

typedef struct trainer {
    local local;
    cz_averager *averager;
    cz_post_local_optim *post;
} trainer;

static void trainer_destroy(trainer *t)
{
    cz_post_local_optim_destroy(&t->post);
    cz_averager_destroy(&t->averager);
    local_destroy(&t->local);
}

static cz_status trainer_create(trainer *t, cz_group *group, int64_t period, int64_t warmup)
{
    cz_averager_options options = CZ_AVERAGER_OPTIONS_INIT;
    options.warmup_steps = warmup;
    CZ_TRY(local_create(&t->local));
    CZ_TRY(cz_averager_create_periodic(&t->averager, group, t->local.model, period, &options));
    return cz_post_local_optim_create(&t->post, t->local.optim, t->averager);
}

/* All state goes to a trainer that is made anew, or, `in_place`, back into the same one later
 * on. */
static cz_status move(trainer *t, cz_group *group, int64_t period, int64_t warmup, bool in_place)
{
    cz_state_dict *dict = NULL, *sched = NULL;
    float values[2][N];
    memcpy(values, t->local.values, sizeof values);
    cz_status status = cz_post_local_optim_state_dict(t->post, &dict);
    THEN(cz_sched_state_dict(t->local.sched, &sched));
    if (!in_place) {
        trainer_destroy(t);
        THEN(trainer_create(t, group, period, warmup));
        THEN(cz_sched_load_state_dict(t->local.sched, sched));
    }
    THEN(cz_post_local_optim_load_state_dict(t->post, dict, false));
    memcpy(t->local.values, values, sizeof values);
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&sched);
    return status;
}

static cz_status train(trainer *t, local *all, cz_group *group, int64_t period, int64_t warmup)
{
    const int rank = cz_group_rank(group), world = cz_group_size(group);
    for (int s = 0; s < STEPS; s++) {
        if (s == 4 || s == 7)
            CZ_TRY(move(t, group, period, warmup, s == 4));
        set_gradients(&t->local, rank, s);
        CZ_TRY(cz_post_local_optim_step(t->post, NULL, NULL));
        CZ_TRY(cz_sched_step(t->local.sched)); /* which upstream's, after a load, does in vain */
        CZ_TRY(reference_step(all, world, period, warmup, s));
        if (memcmp(t->local.values, all[rank].values, sizeof t->local.values) != 0)
            return cz_fail(CZ_ERR_STATE, "step %d: values differ from the reference", s);
        double rate, wanted;
        CZ_TRY(cz_optim_get_hyper(t->local.optim, 0, "lr", &rate));
        CZ_TRY(cz_optim_get_hyper(all[rank].optim, 0, "lr", &wanted));
        if (rate != wanted)
            return cz_fail(CZ_ERR_STATE, "step %d: lr is %g, wanted %g", s, rate, wanted);
    }
    return CZ_OK;
}

static const int64_t *settings; /* period, warm-up */

static cz_status each_rank(cz_group *group, void *arg)
{
    const int world = cz_group_size(group);
    local *all = calloc((size_t)world, sizeof *all);
    trainer t = {0};
    cz_status status = trainer_create(&t, group, settings[0], settings[1]);
    for (int r = 0; r < world && status == CZ_OK; r++)
        status = local_create(&all[r]);
    THEN(train(&t, all, group, settings[0], settings[1]));
    for (int r = 0; r < world; r++)
        local_destroy(&all[r]);
    trainer_destroy(&t);
    free(all);
    return status;
}

TEST(the_same_in_one_process)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    static const int64_t all[][2] = {{2, 0}, {3, 5}, {4, 2}};
    char why[256];
    for (size_t k = 0; k < 3; k++)
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
            settings = all[k];
            if (cz_test_run_ranks(worlds[w], each_rank, NULL, why) != CZ_OK)
                fail_msg("%d ranks, period %d: %s", worlds[w], (int)all[k][0], why);
        }
}

/* ---- failures ---- */

static cz_status closure(double *loss, void *context)
{
    *loss = 0;
    return *(bool *)context ? cz_fail(CZ_ERR_STATE, "no more data") : CZ_OK;
}

static cz_status fail_on_one(trainer *t, cz_group *group)
{
    bool fails = cz_group_rank(group) == 1;
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    options.closure = closure;
    options.closure_context = &fails;
    for (int s = 0; s < 2; s++) {
        set_gradients(&t->local, cz_group_rank(group), s);
        const cz_status status = cz_post_local_optim_step(t->post, &options, NULL);
        const bool wanted = s == 0 || fails; /* it averages after step 0 only */
        if ((status != CZ_OK) != wanted || (wanted && !strstr(cz_last_error(), "no more data")) ||
            t->averager->step != (s == 0  ? 0
                                  : fails ? 1
                                          : 2))
            return cz_fail(CZ_ERR_STATE, "step %d: %s, '%s', counted %d", s, cz_status_name(status),
                           cz_last_error(), (int)t->averager->step);
        if (s == 0) /* made up for */
            CZ_TRY(cz_averager_average(t->averager, NULL));
    }
    return CZ_OK;
}

static cz_status each_rank_fails(cz_group *group, void *arg)
{
    trainer t = {0};
    cz_status status = trainer_create(&t, group, 2, 0);
    THEN(fail_on_one(&t, group));
    trainer_destroy(&t);
    return status;
}

TEST(a_step_that_fails_on_one_rank)
{
    for (int world = 2; world <= 5; world++)
        assert_ranks_ok(world, each_rank_fails, NULL);
}

/* ---- dictionaries that lack something ---- */

TEST(a_dictionary_without_step)
{
    cz_group *group;
    cz_state_dict *own, *dict;
    trainer t = {0};
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(trainer_create(&t, group, 2, 0));
    for (int s = 0; s < 3; s++) {
        set_gradients(&t.local, 0, s);
        assert_ok(cz_post_local_optim_step(t.post, NULL, NULL));
        if (s == 0)
            assert_ok(cz_optim_state_dict(t.local.optim, &own));
    }
    assert_int_equal(cz_post_local_optim_load_state_dict(t.post, own, false), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "step"));
    assert_int_equal(cz__optim_step_count(t.local.optim, 0), 3);
    assert_int_equal(t.averager->step, 3);
    assert_ok(cz_post_local_optim_load_state_dict(t.post, own, true));
    assert_int_equal(cz__optim_step_count(t.local.optim, 0), 1);
    assert_int_equal(t.averager->step, 0);

    /* what is wrong elsewhere leaves the counter alone; where there is a step, it counts */
    assert_ok(cz_post_local_optim_state_dict(t.post, &dict));
    assert_ok(cz_state_dict_set_integer(dict, "step", 5));
    assert_ok(cz_post_local_optim_load_state_dict(t.post, dict, true));
    assert_int_equal(t.averager->step, 5);
    assert_ok(cz_state_dict_set_integer(dict, "step", -5));
    assert_int_equal(cz_post_local_optim_load_state_dict(t.post, dict, true), CZ_ERR_ARGUMENT);
    assert_ok(cz_state_dict_set_integer(dict, "step", 7));
    assert_ok(cz_state_dict_set_text(dict, "rule", "sgd"));
    assert_int_equal(cz_post_local_optim_load_state_dict(t.post, dict, true), CZ_ERR_ARGUMENT);
    assert_int_equal(t.averager->step, 5);
    cz_state_dict_destroy(&dict);
    cz_state_dict_destroy(&own);
    trainer_destroy(&t);
    cz_group_destroy(&group);
}

TEST(what_is_refused)
{
    cz_group *group;
    cz_post_local_optim *post;
    trainer a = {0}, b = {0};
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(trainer_create(&a, group, 2, 0));
    assert_ok(trainer_create(&b, group, 2, 0));
    assert_int_equal(cz_post_local_optim_create(&post, a.local.optim, b.averager), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_post_local_optim_create(&post, NULL, b.averager), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_post_local_optim_create(&post, a.local.optim, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_post_local_optim_load_state_dict(a.post, NULL, true), CZ_ERR_ARGUMENT);
    cz_post_local_optim_destroy(NULL);
    trainer_destroy(&a);
    trainer_destroy(&b);
    cz_group_destroy(&group);
}
