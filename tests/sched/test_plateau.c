/* SPDX-License-Identifier: MIT */
/* When a metric counts as better, and which of several ranks' metrics counts. */
#include "sched/two_groups.h"

/* Was `metric` after `best` no better, so that rates fell? */
static bool falls(bool maximize, bool absolute, double threshold, double best, double metric)
{
    subject s;
    make_sgd(&s);
    cz_sched_plateau_options o = CZ_SCHED_PLATEAU_OPTIONS_INIT;
    o.patience = -1; /* none */
    o.maximize = maximize;
    o.absolute = absolute;
    o.threshold = threshold > 0 ? threshold : -1; /* none */
    cz_sched *sched;
    assert_ok(cz_sched_create_plateau(&sched, s.optim, &o));
    assert_ok(cz_sched_step_metric(sched, best));
    assert_true(rate(&s, 0) == 0.1); /* the first is always better */
    assert_ok(cz_sched_step_metric(sched, metric));
    const bool fell = rate(&s, 0) != 0.1;
    assert_true(!fell || (rate(&s, 0) == 0.1 * 0.1 && rate(&s, 1) == 0.02 * 0.1));
    cz_sched_destroy(&sched);
    destroy(&s);
    return fell;
}

TEST(what_is_better)
{
    assert_false(falls(false, false, 0.1, 1, 0.89));
    assert_true(falls(false, false, 0.1, 1, 0.91));
    assert_false(falls(true, false, 0.1, 1, 1.11));
    assert_true(falls(true, false, 0.1, 1, 1.09));
    assert_false(falls(false, true, 0.1, 5, 4.89));
    assert_true(falls(false, true, 0.1, 5, 4.91));
    assert_false(falls(true, true, 0.1, -5, -4.89));
    assert_true(falls(true, true, 0.1, -5, -4.91));
    assert_true(falls(false, false, 0, 1, 1)); /* the same is not better */
    assert_false(falls(true, false, 2, 1, 3.1));
    assert_true(falls(true, false, 2, 1, 2.9));
}

/* PyTorch multiplies a negative best by 1 - threshold, so that what is a little worse counts as
 * better, again and again. */
TEST(a_negative_best)
{
    assert_true(falls(false, false, 0.1, -1, -0.95));
    assert_true(falls(false, false, 0.1, -1, -1.05));
    assert_false(falls(false, false, 0.1, -1, -1.15));
    assert_true(falls(true, false, 0.1, -1, -1.05));
    assert_true(falls(true, false, 0.1, -1, -0.95));
    assert_false(falls(true, false, 0.1, -1, -0.85));
}

TEST(what_is_no_number)
{
    subject s;
    make_sgd(&s);
    cz_sched_plateau_options o = CZ_SCHED_PLATEAU_OPTIONS_INIT;
    o.patience = 1;
    cz_sched *sched;
    assert_ok(cz_sched_create_plateau(&sched, s.optim, &o));
    assert_ok(cz_sched_step_metric(sched, NAN));
    assert_true(rate(&s, 0) == 0.1);
    assert_ok(cz_sched_step_metric(sched, INFINITY));
    assert_true(rate(&s, 0) == 0.1 * 0.1);
    assert_ok(cz_sched_step_metric(sched, 1e300)); /* the first that is something */
    assert_ok(cz_sched_step_metric(sched, NAN));
    assert_true(rate(&s, 0) == 0.1 * 0.1);
    assert_false(has(&s, 0, "initial_lr"));
    cz_sched_destroy(&sched);
    destroy(&s);
}

TEST(limits)
{
    static const double limits[] = {0.03, 0.0199999999};
    subject s;
    make_sgd(&s);
    cz_sched_plateau_options o = CZ_SCHED_PLATEAU_OPTIONS_INIT;
    o.patience = -1; /* none */
    o.min_lrs = limits;
    cz_sched *sched;
    assert_ok(cz_sched_create_plateau(&sched, s.optim, &o));
    for (int t = 0; t < 3; t++)
        assert_ok(cz_sched_step_metric(sched, 1));
    assert_true(rate(&s, 0) == 0.03);
    assert_true(rate(&s, 1) == 0.02); /* a fall by 1e-10 is left out: eps is 1e-8 */
    cz_sched_destroy(&sched);
    destroy(&s);
}

/* Metrics of rank r: on their own, half of the ranks would lower their rates at another time. */
static double metric_of(int rank, int world_size, int t)
{
    return rank == world_size - 1 ? 10 - 0.5 * t : 1.0 + rank;
}

typedef struct want {
    cz_reduction agree;
    int falls; /* after that many reports the rates fall for the first time; -1: never */
} want;

static cz_status each_rank(cz_group *group, void *context)
{
    const want *w = context;
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    static const int64_t one = 1;
    float value = 0, grad = 0;
    cz_model *model;
    cz_optim *optim;
    cz_sched *sched;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "a", &value, &grad, CZ_F32, 1, &one));
    CZ_TRY(cz_optim_create(&optim, model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}), NULL));
    cz_sched_plateau_options o = CZ_SCHED_PLATEAU_OPTIONS_INIT;
    o.patience = 2;
    o.group = group;
    o.agree = w->agree;
    CZ_TRY(cz_sched_create_plateau(&sched, optim, &o));
    int fell = -1;
    for (int t = 0; t < 12; t++) {
        double lr, lowest;
        CZ_TRY(cz_sched_step_metric(sched, t == 11 && rank == 0 ? NAN : metric_of(rank, size, t)));
        CZ_TRY(cz_optim_get_hyper(optim, 0, "lr", &lr));
        lowest = lr;
        CZ_TRY(cz_all_reduce(group, &lowest, 1, CZ_F64, CZ_MIN, NULL));
        if (lowest != lr)
            return cz_fail(CZ_ERR_STATE, "rank %d has rate %g, another %g", rank, lr, lowest);
        if (lr != 0.1 && fell < 0)
            fell = t;
    }
    cz_sched_destroy(&sched);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    return fell == (size > 1 ? w->falls : -1)
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "rank %d: rates fell at %d, wanted %d", rank, fell,
                         w->falls);
}

TEST(ranks_agree)
{
    /* the last rank's metric becomes better all the time: so do mean and maximum, not the
     * minimum */
    static want wants[] = {{CZ_AVERAGE, -1}, {CZ_MAX, -1}, {CZ_MIN, 3}};
    char why[256];
    for (int world_size = 1; world_size <= 9; world_size++)
        for (int i = 0; i < 3; i++) {
            want w = wants[i];
            if (w.agree == CZ_MAX &&
                world_size >= 7) /* until it is below that of the one before it */
                w.falls = 2 * (11 - world_size) + 3;
            if (cz_test_run_ranks(world_size, each_rank, &w, why) != CZ_OK)
                fail_msg("world size %d, reduction %d: %s", world_size, (int)w.agree, why);
        }
}

/* ---- ranks that differ ---- */

typedef struct differing {
    int what;
    const char *sentence;
} differing;

/* With other options, or the other of two optimizers, on rank 1; then it is as on the others. */
static cz_status each_rank_differs(cz_group *group, void *context)
{
    const differing *d = context;
    static const int64_t one = 1;
    static const char *const names[] = {"a", "b"};
    float values[2] = {0}, grads[2] = {0};
    cz_model *models[2];
    cz_optim *optims[2];
    cz_sched *scheds[2];
    const int odd = cz_group_rank(group) == 1;
    cz_sched_plateau_options o = CZ_SCHED_PLATEAU_OPTIONS_INIT;
    o.group = group;
    for (int k = 0; k < 2; k++) {
        CZ_TRY(cz_model_create(&models[k]));
        CZ_TRY(cz_model_add(models[k], names[k], &values[k], &grads[k], CZ_F32, 1, &one));
        CZ_TRY(cz_optim_create(&optims[k], models[k], cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}), NULL));
    }
    if (odd) {
        o.factor = d->what == 1 ? 0.5 : 0;
        o.patience = d->what == 2 ? 3 : 0;
        o.threshold = d->what == 3 ? 0.2 : 0;
        o.cooldown = d->what == 4;
        o.min_lr = d->what == 5 ? 0.01 : 0;
        o.eps = d->what == 6 ? 0.1 : 0;
        o.maximize = d->what == 7;
        o.absolute = d->what == 8;
        o.agree = d->what == 9 ? CZ_MAX : (cz_reduction)0;
    }
    CZ_TRY(cz_sched_create_plateau(&scheds[0], optims[0], &o));
    o = (cz_sched_plateau_options)CZ_SCHED_PLATEAU_OPTIONS_INIT;
    o.group = group;
    CZ_TRY(cz_sched_create_plateau(&scheds[1], optims[1], &o));
    if (odd && d->what == 10)
        CZ_TRY(cz_optim_set_hyper(optims[0], 0, "lr", 0.2));
    const cz_status status = cz_sched_step_metric(scheds[odd && d->what == 0], 1);
    if (status != CZ_ERR_MISMATCH || !strstr(cz_last_error(), d->sentence))
        return cz_fail(CZ_ERR_STATE, "%s: %.200s, wanted …%s…", cz_status_name(status),
                       cz_last_error(), d->sentence);
    CZ_TRY(cz_sched_step_metric(scheds[1], 1));
    for (int k = 0; k < 2; k++) {
        cz_sched_destroy(&scheds[k]);
        cz_optim_destroy(&optims[k]);
        cz_model_destroy(&models[k]);
    }
    return CZ_OK;
}

TEST(ranks_that_differ_take_no_metric)
{
    static const differing all[] = {
        {0, "is 'b' on rank 1, 'a' on rank 0"},
        {1, "factor is 0.5 on rank 1, 0.1 on rank 0"},
        {2, "patience is 3 on rank 1, 10 on rank 0"},
        {3, "threshold is 0.2 on rank 1"},
        {4, "cooldown is 1 on rank 1, 0 on rank 0"},
        {5, "min_lr 0 is 0.01 on rank 1, 0 on rank 0"},
        {6, "eps is 0.1 on rank 1"},
        {7, "maximize is 1 on rank 1, 0 on rank 0"},
        {8, "absolute is 1 on rank 1, 0 on rank 0"},
        {9, "option agree is max on rank 1, average on rank 0"},
        {10, "lr of parameter group 0 is 0.2 on rank 1, 0.1 on rank 0"}};
    char why[256];
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (cz_test_run_ranks(2, each_rank_differs, (void *)&all[k], why) != CZ_OK)
            fail_msg("%d: %s", all[k].what, why);
}

int main(void)
{
    cz_log_set_level(CZ_LOG_ERROR); /* the optimizer is not stepped here */
    return cz_test_run(NULL, NULL);
}
