/* SPDX-License-Identifier: MIT */
/* Saved and loaded: the same bits as without a stop; a dictionary that is wrong changes nothing. */
#include "sched/two_groups.h"

#define EPOCHS 50

/* As make_kind() with other options, all of which the state brings. */
static cz_status make_other(cz_sched **out, cz_optim *optim, int kind)
{
    static const int64_t milestones[] = {3};
    cz_sched_one_cycle_options one = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
    cz_sched_cyclic_options cyclic = CZ_SCHED_CYCLIC_OPTIONS_INIT;
    one.linear = one.three_phase = one.fixed_momentum = cyclic.fixed_momentum = 1;
    one.div_factor = 7;
    cyclic.gamma = 0.5;
    cyclic.mode = CZ_SCHED_EXP_RANGE;
    switch (kind) {
    case 0:
        return cz_sched_create_step(out, optim, 1, 0, NULL);
    case 1:
        return cz_sched_create_multi_step(out, optim, milestones, 1, 1, NULL);
    case 2:
        return cz_sched_create_exponential(out, optim, 0.5, NULL);
    case 3:
        return cz_sched_create_constant(out, optim, 1, 1, NULL);
    case 4:
        return cz_sched_create_linear(out, optim, 1, 0, 2, NULL);
    case 5:
        return cz_sched_create_polynomial(out, optim, 3, 1, NULL);
    case 6:
        return cz_sched_create_cosine(out, optim, 3, 0.5, NULL);
    case 9:
        return cz_sched_create_warm_restarts(out, optim, 1, 1, 0.5, NULL);
    case 10:
        return cz_sched_create_one_cycle(out, optim, 9, 3, &one);
    case 11:
        return cz_sched_create_cyclic(out, optim, 7, 9, &cyclic);
    default:
        return make_kind(out, optim, kind, 0);
    }
}

static cz_state_dict *saved(const cz_sched *sched)
{
    cz_state_dict *dict = NULL;
    assert_ok(cz_sched_state_dict(sched, &dict));
    return dict;
}

static void check_same(const subject *a, const subject *b, const char *name, int t)
{
    for (int g = 0; g < 2; g++)
        if (rate(a, g) != rate(b, g) || hyper(a, g, "momentum") != hyper(b, g, "momentum"))
            fail_msg("%s: after a stop, group %d has %a at epoch %d, without one %a", name, g,
                     rate(b, g), t, rate(a, g));
}

/* Stop at epoch `stop`, go on with everything new. */
static void stop_and_go_on(int kind, int stop)
{
    subject s, later;
    make_sgd(&s);
    cz_sched *sched = new_kind(&s, kind), *next;
    for (int t = 0; t < stop; t++)
        sched_step(sched);
    cz_state_dict *state = saved(sched), *of_optim, *again;
    assert_ok(cz_optim_state_dict(s.optim, &of_optim));
    make_sgd(&later);
    assert_ok(make_other(&next, later.optim, kind));
    assert_ok(cz_optim_load_state_dict(later.optim, of_optim, NULL));
    assert_ok(cz_sched_load_state_dict(next, state));
    again = saved(next);
    assert_true(cz_state_dict_equal(state, again));
    for (int g = 0; g < 2; g++)
        assert_true(cz_sched_last_lr(next, g) == cz_sched_last_lr(sched, g));
    for (int t = stop; t < EPOCHS; t++) {
        check_same(&s, &later, kind_names[kind], t);
        sched_step(sched);
        sched_step(next);
    }
    cz_state_dict_destroy(&again);
    cz_state_dict_destroy(&of_optim);
    cz_state_dict_destroy(&state);
    cz_sched_destroy(&next);
    cz_sched_destroy(&sched);
    destroy(&later);
    destroy(&s);
}

TEST(a_stop_changes_no_bit)
{
    for (int kind = 0; kind < KIND_COUNT; kind++)
        for (int stop = 0; stop < 45; stop += 4)
            stop_and_go_on(kind, stop);
}

TEST(a_plateau_goes_on)
{
    for (int stop = 0; stop < 30; stop++) {
        subject s, later;
        make_sgd(&s);
        make_sgd(&later);
        cz_sched_plateau_options o = CZ_SCHED_PLATEAU_OPTIONS_INIT;
        cz_sched *sched, *next;
        assert_ok(cz_sched_create_plateau(&next, later.optim, &o));
        o.factor = 0.5;
        o.patience = 2;
        o.cooldown = 3;
        o.maximize = 1;
        assert_ok(cz_sched_create_plateau(&sched, s.optim, &o));
        for (int t = 0; t < 40; t++) {
            if (t == stop) { /* at 0 the best is minus infinity */
                cz_state_dict *state_of = saved(sched);
                assert_ok(cz_sched_load_state_dict(next, state_of));
                cz_state_dict_destroy(&state_of);
                for (int g = 0; g < 2; g++)
                    CZ_CHECK(cz_optim_set_hyper(later.optim, g, "lr", rate(&s, g)));
            }
            const double metric = t < 5 ? t : t == 20 ? 9 : 1;
            assert_ok(cz_sched_step_metric(sched, metric));
            if (t >= stop)
                assert_ok(cz_sched_step_metric(next, metric));
            assert_true(t < stop || rate(&s, 1) == rate(&later, 1));
        }
        assert_true(rate(&s, 0) < 0.01);
        cz_sched_destroy(&next);
        cz_sched_destroy(&sched);
        destroy(&later);
        destroy(&s);
    }
}

/* Every key, one at a time, at every level: taken out, or made something else. Nothing is changed
 * unless all was right. */
static void spoil(cz_sched *sched, const cz_state_dict *good, cz_state_dict *dict,
                  cz_state_dict *level)
{
    const int64_t count = cz_state_dict_count(level);
    for (int64_t i = 0; i < count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s", cz_state_dict_key(level, 0)); /* rotates, as below */
        const cz_state_dict *child = NULL, *first = NULL;
        cz_state_dict *kept;
        if (cz_state_dict_kind(level, key) == CZ_STATE_DICT) {
            assert_ok(cz_state_dict_get_dict(level, key, &child));
            spoil(sched, good, dict, (cz_state_dict *)child);
        }
        assert_ok(cz_state_dict_copy(&kept, level));
        for (int how = 0; how < 5; how++) {
            assert_ok(how == 0   ? cz_state_dict_remove(level, key)
                      : how == 1 ? cz_state_dict_set_text(level, key, "?")
                      : how == 2 ? cz_state_dict_set_real(level, key, NAN)
                      : how == 3 ? cz_state_dict_set_integer(level, key, -7)
                                 : cz_state_dict_set_texts(level, key, NULL, 0));
            /* older states have no members: they are taken where rates tell the order of groups */
            const bool older = how == 0 && strcmp(key, "param_groups") == 0;
            const cz_status status = cz_sched_load_state_dict(sched, dict);
            cz_state_dict *now = saved(sched);
            if ((status != CZ_ERR_ARGUMENT && !older) || !cz_state_dict_equal(now, good))
                fail_msg("'%s' spoiled in way %d: status %d, %s", key, how, (int)status,
                         cz_state_dict_equal(now, good) ? "unchanged" : "changed");
            cz_state_dict_destroy(&now);
        }
        /* back as it was, at the end of the order */
        assert_ok(cz_state_dict_remove(level, key));
        cz_tensor view;
        int64_t integer;
        double real;
        const char *text;
        const char *const *texts;
        switch (cz_state_dict_kind(kept, key)) {
        case CZ_STATE_INTEGER:
            CZ_CHECK(cz_state_dict_get_integer(kept, key, &integer));
            CZ_CHECK(cz_state_dict_set_integer(level, key, integer));
            break;
        case CZ_STATE_REAL:
            CZ_CHECK(cz_state_dict_get_real(kept, key, &real));
            CZ_CHECK(cz_state_dict_set_real(level, key, real));
            break;
        case CZ_STATE_TEXT:
            CZ_CHECK(cz_state_dict_get_text(kept, key, &text));
            CZ_CHECK(cz_state_dict_set_text(level, key, text));
            break;
        case CZ_STATE_TEXTS: /* members: one in each group */
            CZ_CHECK(cz_state_dict_get_texts(kept, key, &texts, &integer));
            CZ_CHECK(cz_state_dict_set_texts(level, key, texts, 1));
            break;
        case CZ_STATE_TENSOR:
            CZ_CHECK(cz_state_dict_get_tensor(kept, key, &view));
            CZ_CHECK(cz_state_dict_set_tensor(level, key, &view));
            break;
        default: /* a dictionary is not put back: it is the last thing spoiled */
            CZ_CHECK(cz_state_dict_get_dict(kept, key, &first));
            cz_state_dict_destroy(&kept);
            return;
        }
        cz_state_dict_destroy(&kept);
    }
}

static cz_status make_any(cz_sched **out, const subject *s, int kind)
{
    return kind < KIND_COUNT ? make_kind(out, s->optim, kind, 0)
                             : cz_sched_create_plateau(out, s->optim, NULL);
}

TEST(what_is_wrong_changes_nothing)
{
    for (int kind = 0; kind <= KIND_COUNT; kind++) {
        subject s;
        make_sgd(&s);
        cz_sched *sched;
        assert_ok(make_any(&sched, &s, kind));
        cz_state_dict *good = saved(sched), *dict;
        assert_ok(cz_state_dict_copy(&dict, good));
        spoil(sched, good, dict, dict);
        assert_ok(cz_sched_load_state_dict(sched, good));
        cz_state_dict_destroy(&dict);
        cz_state_dict_destroy(&good);
        cz_sched_destroy(&sched);
        destroy(&s);
    }
}

TEST(another_kind_is_refused)
{
    subject s;
    make_sgd(&s);
    for (int from = 0; from <= KIND_COUNT; from++)
        for (int to = 0; to <= KIND_COUNT; to++) {
            cz_sched *a, *b;
            assert_ok(make_any(&a, &s, from));
            assert_ok(make_any(&b, &s, to));
            cz_state_dict *dict = saved(a);
            assert_int_equal(cz_sched_load_state_dict(b, dict),
                             from == to ? CZ_OK : CZ_ERR_ARGUMENT);
            cz_state_dict_destroy(&dict);
            cz_sched_destroy(&b);
            cz_sched_destroy(&a);
        }
    cz_sched *sched = new_kind(&s, 0);
    cz_state_dict *dict = saved(sched);
    assert_int_equal(cz_sched_load_state_dict(sched, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_sched_state_dict(sched, NULL), CZ_ERR_ARGUMENT);
    cz_state_dict_destroy(&dict);
    cz_sched_destroy(&sched);
    destroy(&s);
}

/* A saved epoch beyond the end of the schedule is a wrong number like others. */
TEST(an_epoch_beyond_the_end)
{
    subject s;
    cz_sched *sched;
    make_sgd(&s);
    assert_ok(cz_sched_create_one_cycle(&sched, s.optim, 9, 3, NULL));
    cz_state_dict *dict = saved(sched);
    CZ_CHECK(cz_state_dict_set_integer(dict, "last_epoch", 10));
    assert_int_equal(cz_sched_load_state_dict(sched, dict), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "one_cycle scheduler: epoch 10 is beyond its 3 steps");
    sched_step(sched);
    cz_state_dict_destroy(&dict);
    cz_sched_destroy(&sched);
    destroy(&s);
}

/* Lists of the wrong form: another type, two dimensions, too long, entries that are no rates. */
TEST(lists_of_the_wrong_form)
{
    static const double numbers[] = {0.1, -1, NAN, INFINITY};
    const cz_tensor wrong[] = {
        {.data = (void *)numbers, .dtype = CZ_I64, .dimensions = 1, .shape = {2}},
        {.data = (void *)numbers, .dtype = CZ_F64, .dimensions = 2, .shape = {2, 1}},
        {.data = (void *)numbers, .dtype = CZ_F64, .dimensions = 0},
        {.data = (void *)numbers, .dtype = CZ_F64, .dimensions = 1, .shape = {3}},
        {.data = (void *)numbers, .dtype = CZ_F64, .dimensions = 1, .shape = {2}},
        {.data = (void *)(numbers + 2), .dtype = CZ_F64, .dimensions = 1, .shape = {1}},
        {.data = (void *)(numbers + 3), .dtype = CZ_F64, .dimensions = 1, .shape = {1}},
    };
    static const char *const keys[] = {"last_lr", "base_lrs", "max_lr", "milestones"};
    for (int kind = 0; kind < KIND_COUNT; kind++)
        for (int k = 0; k < 4; k++)
            for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                subject s;
                make_sgd(&s);
                cz_sched *sched = new_kind(&s, kind);
                cz_state_dict *dict = saved(sched);
                if (cz_state_dict_kind(dict, keys[k]) == CZ_STATE_TENSOR) {
                    CZ_CHECK(cz_state_dict_set_tensor(dict, keys[k], &wrong[i]));
                    if (cz_sched_load_state_dict(sched, dict) != CZ_ERR_ARGUMENT)
                        fail_msg("%s: tensor %zu was taken as %s", kind_names[kind], i, keys[k]);
                }
                sched_step(sched);
                cz_state_dict_destroy(&dict);
                cz_sched_destroy(&sched);
                destroy(&s);
            }
}

int main(void)
{
    cz_log_set_level(CZ_LOG_ERROR); /* the optimizer is not stepped here */
    return cz_test_run(NULL, NULL);
}
