/* SPDX-License-Identifier: MIT */
/* Parameter groups that are added to the optimizer while a scheduler runs. */
#include "sched/two_groups.h"

#define EPOCHS 50

/* The rate of a group of base 0.05 that is there from the beginning. */
static void record(int kind, double *rates)
{
    subject s;
    make_sgd(&s);
    add_group(&s, 0.05);
    cz_sched *sched = new_kind(&s, kind);
    for (int t = 0; t < EPOCHS; t++) {
        rates[t] = rate(&s, 2);
        sched_step(sched);
    }
    cz_sched_destroy(&sched);
    destroy(&s);
}

TEST(later_groups_have_the_rate_of_their_base)
{
    double wanted[EPOCHS];
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        record(kind, wanted);
        for (int begin = 0; begin < 40; begin += 3) {
            subject s, other;
            make_sgd(&s);
            make_sgd(&other);
            cz_sched *sched = new_kind(&s, kind), *same = new_kind(&other, kind);
            for (int t = 1; t < EPOCHS; t++) {
                if (t == begin + 1) {
                    add_group(&s, 0.05);
                    assert_true(isnan(cz_sched_last_lr(sched, 2)));
                }
                sched_step(sched);
                sched_step(same);
                assert_true(rate(&s, 0) == rate(&other, 0) && rate(&s, 1) == rate(&other, 1));
                if (t <= begin)
                    continue;
                if (!close_to(rate(&s, 2), wanted[t], 1e-13))
                    fail_msg("%s: added at %d, at epoch %d %a, wanted %a", kind_names[kind], begin,
                             t, rate(&s, 2), wanted[t]);
                assert_true(cz_sched_last_lr(sched, 2) == rate(&s, 2));
                assert_true(has(&s, 2, "initial_lr") && !has(&s, 3, "initial_lr"));
            }
            cz_sched_destroy(&sched);
            cz_sched_destroy(&same);
            destroy(&s);
            destroy(&other);
        }
    }
}

/* A saved state of two groups goes into an optimizer of three; the third has come since. */
TEST(saved_before_the_group_came)
{
    double wanted[EPOCHS];
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        record(kind, wanted);
        subject s;
        make_sgd(&s);
        cz_sched *sched = new_kind(&s, kind);
        for (int t = 1; t <= 9; t++)
            sched_step(sched);
        cz_state_dict *dict;
        assert_ok(cz_sched_state_dict(sched, &dict));
        add_group(&s, 0.05);
        assert_ok(cz_sched_load_state_dict(sched, dict));
        for (int t = 10; t < EPOCHS; t++) {
            sched_step(sched);
            assert_true(close_to(rate(&s, 2), wanted[t], 1e-13));
        }
        /* and one of three groups does not go into an optimizer of two */
        cz_state_dict_destroy(&dict);
        assert_ok(cz_sched_state_dict(sched, &dict));
        cz_sched_destroy(&sched);
        destroy(&s);
        make_sgd(&s);
        sched = new_kind(&s, kind);
        assert_int_equal(cz_sched_load_state_dict(sched, dict), CZ_ERR_ARGUMENT);
        assert_non_null(strstr(cz_last_error(), "saved parameter group 2 (with 'c')"));
        cz_state_dict_destroy(&dict);
        cz_sched_destroy(&sched);
        destroy(&s);
    }
}

/* Lists with an entry per group have none for a group that comes later. */
TEST(lists_do_not_grow)
{
    static const double lists[] = {0.3, 0.4};
    cz_sched_one_cycle_options one = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
    cz_sched_cyclic_options cyclic = CZ_SCHED_CYCLIC_OPTIONS_INIT;
    cz_sched_plateau_options plateau = CZ_SCHED_PLATEAU_OPTIONS_INIT;
    one.max_lrs = cyclic.max_lrs = plateau.min_lrs = lists;
    plateau.patience = -1; /* none */
    for (int which = 0; which < 3; which++) {
        subject s;
        make_sgd(&s);
        cz_sched *sched;
        assert_ok(which == 0   ? cz_sched_create_one_cycle(&sched, s.optim, 0, 20, &one)
                  : which == 1 ? cz_sched_create_cyclic(&sched, s.optim, 0.01, 0, &cyclic)
                               : cz_sched_create_plateau(&sched, s.optim, &plateau));
        const double before = rate(&s, 0);
        add_group(&s, 0.05);
        assert_int_equal(which == 2 ? cz_sched_step_metric(sched, 1) : cz_sched_step(sched),
                         CZ_ERR_STATE);
        assert_non_null(strstr(cz_last_error(), "has 2 entries, there are 3 parameter groups"));
        assert_true(rate(&s, 0) == before && rate(&s, 2) == 0.05);
        assert_false(has(&s, 2, "initial_lr"));
        cz_sched_destroy(&sched);
        destroy(&s);
    }
}

TEST(lists_count)
{
    static const double lists[] = {0.3, 0.4}, below[] = {0.3, -0.4};
    subject s;
    make_sgd(&s);
    cz_sched_one_cycle_options one = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
    cz_sched *sched;
    one.max_lrs = below;
    assert_int_equal(cz_sched_create_one_cycle(&sched, s.optim, 0, 20, &one), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(),
                        "one_cycle scheduler: number 1 of max_lr is -0.4, wanted 0 or more");
    one.max_lrs = lists;
    assert_ok(cz_sched_create_one_cycle(&sched, s.optim, 0, 20, &one));
    assert_true(hyper(&s, 0, "max_lr") == 0.3 && hyper(&s, 1, "max_lr") == 0.4);
    assert_true(hyper(&s, 1, "initial_lr") == 0.4 / 25);
    assert_true(hyper(&s, 1, "min_lr") == 0.4 / 25 / 1e4);
    assert_true(hyper(&s, 1, "max_momentum") == 0.95 && hyper(&s, 1, "base_momentum") == 0.85);
    for (int t = 0; t < 5; t++) /* the rise ends at 0.3 * 20 - 1 */
        sched_step(sched);
    assert_true(rate(&s, 0) == 0.3 && rate(&s, 1) == 0.4);
    cz_sched_destroy(&sched);
    destroy(&s);
}

int main(void)
{
    cz_log_set_level(CZ_LOG_ERROR); /* the optimizer is not stepped here */
    return cz_test_run(NULL, NULL);
}
