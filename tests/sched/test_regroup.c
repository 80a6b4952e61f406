/* SPDX-License-Identifier: MIT */
/* Parameter groups registered in another order at resume: all that a scheduler keeps for a group
 * goes where its members are, through dictionaries and through checkpoints; and where members are
 * in other groups, that is refused. */
#include "support/cz_test.h"

#include "czero/checkpoint.h"
#include "czero/sched.h"

#include "checkpoint/folder.h"

#include <math.h>

enum { GROUPS = 3, EPOCHS = 5, MORE = 6, KINDS = 9 };

static const char *const names[GROUPS] = {"weight", "bias", "scale"};
static const double rates[GROUPS] = {0.1, 0.01, 0.003};
static const double tops[GROUPS] = {0.2, 0.02, 0.05}, lows[GROUPS] = {1e-3, 1e-4, 3e-3};

static const int orders[6][GROUPS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                      {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

typedef struct training {
    float values[GROUPS][6], gradients[GROUPS][6];
    const int *order; /* which of the names each group has */
    cz_model *model;
    cz_optim *optim; /* owned, unless it is that of a sharded one */
    cz_zero *zero;
    cz_sched *sched;
} training;

static void end(training *t)
{
    cz_sched_destroy(&t->sched);
    if (t->zero)
        cz_zero_destroy(&t->zero);
    else
        cz_optim_destroy(&t->optim);
    cz_model_destroy(&t->model);
}

/* Lists of options, in the order of the groups. */
static cz_status make_sched(training *t, int kind)
{
    static const int64_t milestones[] = {3};
    double top[GROUPS], low[GROUPS];
    cz_sched *members[2] = {NULL};
    cz_sched_one_cycle_options one = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
    cz_sched_plateau_options plateau = CZ_SCHED_PLATEAU_OPTIONS_INIT;
    cz_sched_cyclic_options cyclic = CZ_SCHED_CYCLIC_OPTIONS_INIT;
    for (int g = 0; g < GROUPS; g++) {
        top[g] = tops[t->order[g]];
        low[g] = lows[t->order[g]];
    }
    one.max_lrs = cyclic.max_lrs = top;
    one.fixed_momentum = cyclic.fixed_momentum = 1;
    plateau.min_lrs = cyclic.base_lrs = low;
    plateau.patience = -1; /* none */
    cyclic.step_size_up = 4;
    switch (kind) {
    case 0:
        return cz_sched_create_step(&t->sched, t->optim, 3, 0.5, NULL);
    case 1:
        return cz_sched_create_cosine(&t->sched, t->optim, 20, 0, NULL);
    case 2:
        return cz_sched_create_one_cycle(&t->sched, t->optim, 1, 30, &one);
    case 3:
        return cz_sched_create_plateau(&t->sched, t->optim, &plateau);
    case 4:
        return cz_sched_create_linear(&t->sched, t->optim, 0.1, 1, 10, NULL);
    case 5:
        return cz_sched_create_warm_restarts(&t->sched, t->optim, 4, 2, 0, NULL);
    case 6:
        return cz_sched_create_cyclic(&t->sched, t->optim, 1, 1, &cyclic);
    default:
        CZ_TRY(cz_sched_create_linear(&members[0], t->optim, 0.1, 1, 4, NULL));
        CZ_TRY(cz_sched_create_cosine(&members[1], t->optim, 20, 0, NULL));
        return kind == 7 ? cz_sched_create_sequential(&t->sched, members, 2, milestones)
                         : cz_sched_create_chained(&t->sched, members, 2);
    }
}

/* With a group: a sharded optimizer. Parameters too are registered in that order. */
static cz_status begin(training *t, cz_group *group, const int *order, int kind)
{
    static const int64_t shape[] = {6}, members[GROUPS] = {0, 1, 2};
    cz_hyper hypers[GROUPS][2];
    cz_param_group groups[GROUPS];
    *t = (training){.order = order};
    CZ_TRY(cz_model_create(&t->model));
    for (int g = 0; g < GROUPS; g++) {
        const int p = order[g];
        for (int i = 0; i < 6; i++)
            t->values[p][i] = 1;
        CZ_TRY(cz_model_add(t->model, names[p], t->values[p], t->gradients[p], CZ_F32, 1, shape));
        hypers[g][0] = (cz_hyper){"lr", rates[p]};
        hypers[g][1] = (cz_hyper){NULL, 0};
        groups[g] = (cz_param_group){sizeof *groups, &members[g], 1, hypers[g]};
    }
    if (!group) {
        cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
        options.groups = groups;
        options.group_count = GROUPS;
        CZ_TRY(cz_optim_create(&t->optim, t->model, cz_rule_adamw(), NULL, &options));
    } else {
        cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
        options.groups = groups;
        options.group_count = GROUPS;
        CZ_TRY(cz_zero_create(&t->zero, group, t->model, cz_rule_adamw(), NULL, &options));
        t->optim = cz_zero_local_optim(t->zero);
    }
    return make_sched(t, kind);
}

static cz_status train(training *t, int kind, int steps)
{
    for (int k = 0; k < steps; k++) {
        for (int p = 0; p < GROUPS; p++)
            for (int i = 0; i < 6; i++)
                t->gradients[p][i] = 0.1F * (float)(i + 1);
        CZ_TRY(t->zero ? cz_zero_step(t->zero, NULL, NULL) : cz_optim_step(t->optim, NULL, NULL));
        CZ_TRY(kind == 3 ? cz_sched_step_metric(t->sched, 1) : cz_sched_step(t->sched));
    }
    return CZ_OK;
}

static double rate_of(const training *t, int param, double *last)
{
    int64_t group = 0;
    double rate = NAN;
    while (t->order[group] != param)
        group++;
    (void)cz_optim_get_hyper(t->optim, group, "lr", &rate);
    *last = cz_sched_last_lr(t->sched, group);
    return rate;
}

static cz_status compare(const training *a, const training *b)
{
    for (int p = 0; p < GROUPS; p++) {
        double last, other_last;
        const double rate = rate_of(a, p, &last), other = rate_of(b, p, &other_last);
        if (rate != other || last != other_last)
            return cz_fail(CZ_ERR_STATE, "'%s' has rate %g and last rate %g, wanted %g and %g",
                           names[p], other, other_last, rate, last);
        if (memcmp(a->values[p], b->values[p], sizeof a->values[p]) != 0)
            return cz_fail(CZ_ERR_STATE, "'%s' has other values", names[p]);
    }
    return CZ_OK;
}

/* ---- through dictionaries ---- */

static void resume(int kind, const int *saved, const int *order)
{
    training a, b;
    cz_state_dict *of_optim, *of_sched;
    CZ_CHECK(begin(&a, NULL, saved, kind));
    CZ_CHECK(train(&a, kind, EPOCHS));
    CZ_CHECK(cz_optim_state_dict(a.optim, &of_optim));
    CZ_CHECK(cz_sched_state_dict(a.sched, &of_sched));
    CZ_CHECK(begin(&b, NULL, order, kind));
    memcpy(b.values, a.values, sizeof a.values);
    CZ_CHECK(cz_optim_load_state_dict(b.optim, of_optim, NULL));
    if (cz_sched_load_state_dict(b.sched, of_sched) != CZ_OK || compare(&a, &b) != CZ_OK)
        fail_msg("kind %d: %s", kind, cz_last_error());
    for (int k = 0; k < MORE; k++) {
        CZ_CHECK(train(&a, kind, 1));
        CZ_CHECK(train(&b, kind, 1));
        if (compare(&a, &b) != CZ_OK)
            fail_msg("kind %d, epoch %d: %s", kind, EPOCHS + k, cz_last_error());
    }
    cz_state_dict_destroy(&of_sched);
    cz_state_dict_destroy(&of_optim);
    end(&b);
    end(&a);
}

TEST(state_of_groups_follows_their_members)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int from = 0; from < 6; from += 5)
            for (int to = 0; to < 6; to++)
                resume(kind, orders[from], orders[to]);
}

/* ---- through checkpoints ---- */

static char folder[FOLDER_BYTES];

static cz_status save(training *t, cz_checkpoint *checkpoint)
{
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    cz_state_dict *dict = NULL, *common = NULL;
    cz_status status = cz_sched_state_dict(t->sched, &dict);
    THEN(cz_state_dict_create(&common));
    THEN(cz_state_dict_set_dict(common, "scheduler", dict));
    options.common = common;
    THEN(cz_checkpoint_save(checkpoint, &options));
    cz_state_dict_destroy(&common);
    cz_state_dict_destroy(&dict);
    return status;
}

static cz_status load(training *t, cz_checkpoint *checkpoint)
{
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    const cz_state_dict *dict;
    cz_status status = cz_checkpoint_load(checkpoint, NULL, &result);
    THEN(cz_state_dict_get_dict(result.common, "scheduler", &dict));
    THEN(cz_sched_load_state_dict(t->sched, dict));
    cz_state_dict_destroy(&result.common);
    cz_state_dict_destroy(&result.own);
    return status;
}

static cz_status through_checkpoints(cz_group *group, void *context)
{
    const int kind = *(const int *)context;
    training a = {0}, b = {0};
    cz_checkpoint *of_a = NULL, *of_b = NULL;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_status status = begin(&a, group, orders[0], kind);
    THEN(begin(&b, group, orders[4], kind));
    options.zero = a.zero;
    THEN(cz_checkpoint_create(&of_a, group, folder, &options));
    options.zero = b.zero;
    THEN(cz_checkpoint_create(&of_b, group, folder, &options));
    THEN(train(&a, kind, EPOCHS));
    THEN(save(&a, of_a));
    THEN(load(&b, of_b));
    for (int k = 0; status == CZ_OK && k < MORE; k++) {
        status = compare(&a, &b);
        THEN(train(&a, kind, 1));
        THEN(train(&b, kind, 1));
    }
    cz_checkpoint_destroy(&of_b);
    cz_checkpoint_destroy(&of_a);
    end(&b);
    end(&a);
    return status;
}

TEST(checkpoints_bring_it_to_the_same_members)
{
    for (int world = 1; world <= 3; world++)
        for (int kind = 2; kind < KINDS; kind += world) {
            char why[256];
            make_quick_folder(folder);
            if (cz_test_run_ranks(world, through_checkpoints, &kind, why) != CZ_OK)
                fail_msg("world size %d, kind %d: %s", world, kind, why);
            remove_folder(folder);
        }
}

/* ---- other groups ---- */

/* One group more or less, and others' members: `groups[p]` is the group of a parameter. */
static cz_status load_into(const cz_state_dict *dict, const int groups[GROUPS], int count)
{
    static const int64_t shape[] = {1};
    float values[GROUPS], gradients[GROUPS];
    int64_t members[GROUPS][GROUPS];
    cz_param_group given[GROUPS];
    cz_model *model;
    cz_optim *optim;
    cz_sched *sched;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    CZ_CHECK(cz_model_create(&model));
    for (int g = 0; g < count; g++)
        given[g] = (cz_param_group){sizeof *given, members[g], 0, NULL};
    for (int p = 0; p < GROUPS; p++) {
        CZ_CHECK(cz_model_add(model, names[p], &values[p], &gradients[p], CZ_F32, 1, shape));
        if (groups[p] >= 0)
            members[groups[p]][given[groups[p]].param_count++] = p;
    }
    options.groups = given;
    options.group_count = count;
    CZ_CHECK(cz_optim_create(&optim, model, cz_rule_adamw(), NULL, &options));
    CZ_CHECK(cz_sched_create_step(&sched, optim, 3, 0.5, NULL));
    const cz_status status = cz_sched_load_state_dict(sched, dict);
    cz_sched_destroy(&sched);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    return status;
}

static void expect_dict(const cz_state_dict *dict, const int groups[GROUPS], int count,
                        const char *word)
{
    const cz_status status = load_into(dict, groups, count);
    assert_int_equal(status, word ? CZ_ERR_ARGUMENT : CZ_OK);
    if (word && !strstr(cz_last_error(), word))
        fail_msg("\"%s\" is not in: %s", word, cz_last_error());
}

TEST(other_members_are_refused)
{
    training t;
    cz_state_dict *dict;
    CZ_CHECK(begin(&t, NULL, orders[0], 0));
    CZ_CHECK(cz_sched_state_dict(t.sched, &dict));
    expect_dict(dict, (int[]){2, 0, 1}, 3, NULL);
    expect_dict(dict, (int[]){0, 0, 1}, 2, "'weight' of saved group 0 and 'bias' of saved group 1");
    expect_dict(dict, (int[]){0, 1, -1}, 2, "saved parameter group 2 (with 'scale')");
    cz_state_dict_destroy(&dict);
    end(&t);
}

/* A state from before there were members: rates tell whether the order of groups is the same. */
TEST(older_states_are_taken_only_where_rates_tell_the_order)
{
    for (int order = 0; order < 6; order += 2) {
        training a, b;
        cz_state_dict *of_optim, *of_sched;
        CZ_CHECK(begin(&a, NULL, orders[0], 1));
        CZ_CHECK(train(&a, 1, EPOCHS));
        CZ_CHECK(cz_optim_state_dict(a.optim, &of_optim));
        CZ_CHECK(cz_sched_state_dict(a.sched, &of_sched));
        CZ_CHECK(cz_state_dict_remove(of_sched, "param_groups"));
        CZ_CHECK(begin(&b, NULL, orders[order], 1));
        CZ_CHECK(cz_optim_load_state_dict(b.optim, of_optim, NULL));
        assert_int_equal(cz_sched_load_state_dict(b.sched, of_sched),
                         order == 0 ? CZ_OK : CZ_ERR_ARGUMENT);
        if (order > 0)
            assert_non_null(strstr(cz_last_error(), "keep the order of groups"));
        cz_state_dict_destroy(&of_sched);
        cz_state_dict_destroy(&of_optim);
        end(&b);
        end(&a);
    }
}
