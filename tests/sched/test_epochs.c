/* SPDX-License-Identifier: MIT */
/* Epochs: one after the other, to any of them, beginning at one that is not the first. */
#include "sched/two_groups.h"

#define EPOCHS 50

/* rates[t] and momenta[t] of both groups, by steps. */
static double rates[EPOCHS][2], momenta[EPOCHS];

static void record(int kind)
{
    subject s;
    make_sgd(&s);
    cz_sched *sched = new_kind(&s, kind);
    for (int t = 0; t < EPOCHS; t++) {
        rates[t][0] = rate(&s, 0);
        rates[t][1] = rate(&s, 1);
        momenta[t] = hyper(&s, 0, "momentum");
        optim_step(&s);
        sched_step(sched);
    }
    cz_sched_destroy(&sched);
    destroy(&s);
}

static void check(const subject *s, const char *name, int t, double tolerance)
{
    for (int g = 0; g < 2; g++)
        if (!close_to(rate(s, g), rates[t][g], tolerance))
            fail_msg("%s: rate %d at epoch %d is %a, by steps %a", name, g, t, rate(s, g),
                     rates[t][g]);
    if (!close_to(hyper(s, 0, "momentum"), momenta[t], tolerance))
        fail_msg("%s: momentum at epoch %d is %a, by steps %a", name, t, hyper(s, 0, "momentum"),
                 momenta[t]);
}

/* Forwards and back, and a few steps on from there. */
TEST(any_epoch_is_what_steps_lead_to)
{
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        record(kind);
        subject s;
        make_sgd(&s);
        cz_sched *sched = new_kind(&s, kind);
        for (int i = 0; i < 40; i++) {
            int t = 1 + (31 * i + 7) % (EPOCHS - 4);
            assert_ok(cz_sched_step_to(sched, t));
            check(&s, kind_names[kind], t, 1e-13);
            for (int k = 0; k < 3; k++) {
                sched_step(sched);
                check(&s, kind_names[kind], ++t, 1e-13);
            }
        }
        assert_ok(cz_sched_step_to(sched, 0));
        if (strcmp(kind_names[kind], "multiplicative") != 0) /* it keeps the present rate */
            check(&s, kind_names[kind], 0, 1e-13);
        cz_sched_destroy(&sched);
        destroy(&s);
    }
}

/* Without a saved state: a new scheduler for rates that were left at some epoch. */
TEST(beginning_at_an_epoch)
{
    for (int kind = 0; kind < 12; kind++) { /* the composite ones have saved states only */
        record(kind);
        for (int begin = 1; begin < 40; begin++) {
            subject s;
            make_sgd(&s);
            cz_sched *first = new_kind(&s, kind), *second;
            for (int t = 0; t < begin - 1; t++)
                sched_step(first);
            cz_sched_destroy(&first);
            assert_ok(make_kind(&second, s.optim, kind, begin));
            for (int t = begin; t < EPOCHS; t++) {
                check(&s, kind_names[kind], t, 1e-13);
                sched_step(second);
            }
            cz_sched_destroy(&second);
            destroy(&s);
        }
    }
}

TEST(beginning_needs_the_first_rate)
{
    for (int kind = 0; kind < 12; kind++) {
        subject s;
        make_sgd(&s);
        cz_sched *sched = (cz_sched *)0x1;
        assert_int_equal(make_kind(&sched, s.optim, kind, 3), CZ_ERR_ARGUMENT);
        assert_null(sched);
        assert_non_null(strstr(cz_last_error(), "parameter group 0 has no 'initial_lr'"));
        assert_int_equal(make_kind(&sched, s.optim, kind, -1), CZ_ERR_ARGUMENT);
        assert_true(rate(&s, 0) == 0.1 && !has(&s, 0, "initial_lr"));
        destroy(&s);
    }
}

/* PyTorch finds the cycle with a logarithm: log(1000) / log(10) is below 3, so that epoch 111 would
 * be the last moment of a cycle of 100 epochs, not the first of one of 1000. */
TEST(restarts_are_found_exactly)
{
    for (int64_t mult = 1; mult <= 10; mult++) {
        subject s;
        make_sgd(&s);
        cz_sched *sched;
        assert_ok(cz_sched_create_warm_restarts(&sched, s.optim, 1, mult, 0, NULL));
        double restart = 0, length = 1;
        for (int i = 0; i < 8; i++, length *= (double)mult) {
            assert_ok(cz_sched_step_to(sched, restart));
            assert_true(rate(&s, 0) == 0.1 && rate(&s, 1) == 0.02);
            restart += length;
        }
        cz_sched_destroy(&sched);
        destroy(&s);
    }
}

TEST(restarts_take_fractions)
{
    subject s;
    make_sgd(&s);
    cz_sched *sched;
    assert_ok(cz_sched_create_warm_restarts(&sched, s.optim, 4, 2, 0.01, NULL));
    const double at_half = 0.01 + (0.1 - 0.01) * (1 + cos(3.14159265358979323846 * 0.5 / 4)) / 2;
    assert_ok(cz_sched_step_to(sched, 0.5));
    assert_true(close_to(rate(&s, 0), at_half, 1e-15));
    for (int t = 0; t < 5; t++)
        sched_step(sched); /* 5.5: 1.5 of the second cycle, of 8 */
    const double later = 0.01 + (0.1 - 0.01) * (1 + cos(3.14159265358979323846 * 1.5 / 8)) / 2;
    assert_true(close_to(rate(&s, 0), later, 1e-15));
    cz_sched_destroy(&sched);
    /* the others do not */
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        if (strcmp(kind_names[kind], "warm_restarts") == 0)
            continue;
        sched = new_kind(&s, kind);
        const double before = rate(&s, 0);
        static const double no_epochs[] = {0.5, -1, NAN, INFINITY, 1e300};
        for (int i = 0; i < 5; i++)
            assert_int_equal(cz_sched_step_to(sched, no_epochs[i]), CZ_ERR_ARGUMENT);
        assert_true(rate(&s, 0) == before);
        cz_sched_destroy(&sched);
    }
    destroy(&s);
}

/* The last epoch of one cycle has the last rate; a loop that steps once more, after its last batch,
 * too. */
TEST(the_end_of_one_cycle)
{
    for (int linear = 0; linear < 2; linear++) {
        subject s;
        make_sgd(&s);
        cz_sched_one_cycle_options o = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
        o.linear = linear;
        o.final_div_factor = 1e30;
        cz_sched *sched;
        assert_ok(cz_sched_create_one_cycle(&sched, s.optim, 0.1, 10, &o));
        for (int t = 1; t < 10; t++)
            sched_step(sched);
        const double last = rate(&s, 0);
        assert_true(last >= 0 && last < 1e-17);
        sched_step(sched);
        assert_true(rate(&s, 0) == last); /* extrapolated it would be above, or below 0 */
        for (int i = 0; i < 2; i++) {
            assert_int_equal(cz_sched_step(sched), CZ_ERR_STATE);
            assert_string_equal(cz_last_error(),
                                "one_cycle scheduler: epoch 11 is beyond its 10 steps");
            assert_true(rate(&s, 0) == last);
        }
        assert_int_equal(cz_sched_step_to(sched, 11), CZ_ERR_STATE);
        assert_ok(cz_sched_step_to(sched, 0));
        assert_true(close_to(rate(&s, 0), 0.1 / 25, 1e-15));
        cz_sched_destroy(&sched);
        destroy(&s);
    }
}

/* Where pct_start * total_steps is 1 or total_steps, a leg has no length: PyTorch divides by
 * zero. */
TEST(legs_without_length)
{
    static const double pct_starts[] = {-1, 0.1, 0.5, 1};
    for (int64_t steps = 1; steps <= 10; steps++)
        for (int i = 0; i < 8; i++) {
            subject s;
            make_sgd(&s);
            cz_sched_one_cycle_options o = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
            o.pct_start = pct_starts[i / 2];
            o.three_phase = i % 2;
            cz_sched *sched;
            assert_ok(cz_sched_create_one_cycle(&sched, s.optim, 0.1, steps, &o));
            for (int64_t t = 0; t < steps; t++) {
                assert_true(rate(&s, 0) > 0 && rate(&s, 0) <= 0.1);
                sched_step(sched);
            }
            cz_sched_destroy(&sched);
            destroy(&s);
        }
}

/* Rounding takes PyTorch's rate below 0 here, by 1e-18. */
TEST(a_line_to_zero_ends_there)
{
    for (int64_t n = 1; n <= 60; n++)
        for (int f = 1; f <= 10; f++) {
            subject s;
            make_sgd(&s);
            cz_sched *sched;
            assert_ok(cz_sched_create_linear(&sched, s.optim, f * 0.1, 0, n, NULL));
            for (int64_t t = 1; t < n; t++) {
                sched_step(sched);
                assert_true(rate(&s, 0) > 0);
            }
            sched_step(sched);
            assert_true(rate(&s, 0) >= 0 && rate(&s, 0) < 1e-16);
            assert_ok(cz_sched_step_to(sched, (double)n));
            assert_true(rate(&s, 0) >= 0 && rate(&s, 0) < 1e-16);
            cz_sched_destroy(&sched);
            destroy(&s);
        }
}

int main(void)
{
    cz_log_set_level(CZ_LOG_ERROR); /* the optimizer is not stepped here */
    return cz_test_run(NULL, NULL);
}
