/* SPDX-License-Identifier: MIT */
/* Recorded PyTorch schedules: bit for bit where only the four operations and whole powers are used,
 * to 1e-15 relative where the C library's cos() and pow() are, which are not the same on all
 * machines. */
#include "sched/two_groups.h"

#define EPOCHS 50
#define EXACT 0
#define LIBM 1e-15

static cz_sched *made;

static void compose(cz_optim *optim, bool sequential, int count, cz_sched **members,
                    const int64_t *milestones)
{
    assert_ok(sequential ? cz_sched_create_sequential(&made, members, count, milestones)
                         : cz_sched_create_chained(&made, members, count));
}

/* The scheduler of a recorded name, in `made`; how close it has to be. */
static double make(cz_optim *o, int index)
{
    cz_sched *m[3] = {NULL};
    cz_sched_one_cycle_options one = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
    cz_sched_cyclic_options cyclic = CZ_SCHED_CYCLIC_OPTIONS_INIT;
    switch (index) {
    case 0: /* StepLR step_size=7 gamma=0.5 */
        CZ_CHECK(cz_sched_create_step(&made, o, 7, 0.5, NULL));
        return EXACT;
    case 1: /* MultiStepLR milestones=5,12,12,30 gamma=0.3 */
        CZ_CHECK(
            cz_sched_create_multi_step(&made, o, (const int64_t[]){5, 12, 12, 30}, 4, 0.3, NULL));
        return EXACT;
    case 2: /* ExponentialLR gamma=0.93 */
        CZ_CHECK(cz_sched_create_exponential(&made, o, 0.93, NULL));
        return EXACT;
    case 3: /* CosineAnnealingLR T_max=20 eta_min=0.001 */
        CZ_CHECK(cz_sched_create_cosine(&made, o, 20, 0.001, NULL));
        return LIBM;
    case 4: /* CosineAnnealingLR T_max=50 eta_min=0 */
        CZ_CHECK(cz_sched_create_cosine(&made, o, 50, 0, NULL));
        return LIBM;
    case 5: /* LinearLR start_factor=0.25 end_factor=1 total_iters=10 */
        CZ_CHECK(cz_sched_create_linear(&made, o, 0.25, 1, 10, NULL));
        return EXACT;
    case 6: /* LinearLR start_factor=1 end_factor=0.1 total_iters=30 */
        CZ_CHECK(cz_sched_create_linear(&made, o, 1, 0.1, 30, NULL));
        return EXACT;
    case 7: /* ConstantLR factor=0.5 total_iters=8 */
        CZ_CHECK(cz_sched_create_constant(&made, o, 0.5, 8, NULL));
        return EXACT;
    case 8: /* PolynomialLR total_iters=40 power=1 */
        CZ_CHECK(cz_sched_create_polynomial(&made, o, 40, 1, NULL));
        return LIBM;
    case 9: /* PolynomialLR total_iters=40 power=2.5 */
        CZ_CHECK(cz_sched_create_polynomial(&made, o, 40, 2.5, NULL));
        return LIBM;
    case 10: /* OneCycleLR max_lr=0.1 total_steps=60 */
        CZ_CHECK(cz_sched_create_one_cycle(&made, o, 0.1, 60, NULL));
        return LIBM;
    case 11: /* OneCycleLR … anneal_strategy=linear three_phase=1 pct_start=0.25 */
        one.linear = one.three_phase = 1;
        one.pct_start = 0.25;
        CZ_CHECK(cz_sched_create_one_cycle(&made, o, 0.1, 60, &one));
        return EXACT;
    case 12: /* CosineAnnealingWarmRestarts T_0=6 T_mult=2 eta_min=0.001 */
        CZ_CHECK(cz_sched_create_warm_restarts(&made, o, 6, 2, 0.001, NULL));
        return LIBM;
    case 13: /* CosineAnnealingWarmRestarts T_0=10 T_mult=1 */
        CZ_CHECK(cz_sched_create_warm_restarts(&made, o, 10, 1, 0, NULL));
        return LIBM;
    case 14: /* LambdaLR lambda=0.95^epoch */
        CZ_CHECK(cz_sched_create_lambda(&made, o, power_of_095, NULL, NULL));
        return LIBM;
    case 15: /* MultiplicativeLR lambda=0.97 */
        CZ_CHECK(cz_sched_create_multiplicative(&made, o, factor_097, NULL, NULL));
        return EXACT;
    case 16: /* SequentialLR Linear(0.1,5)->CosineAnnealing(45) milestones=5 */
        CZ_CHECK(cz_sched_create_linear(&m[0], o, 0.1, 1, 5, NULL));
        CZ_CHECK(cz_sched_create_cosine(&m[1], o, 45, 0, NULL));
        compose(o, true, 2, m, (const int64_t[]){5});
        return LIBM;
    case 17: /* SequentialLR Constant(0.1,2)->Exponential(0.9)->StepLR(5,0.5) milestones=4,20 */
        CZ_CHECK(cz_sched_create_constant(&m[0], o, 0.1, 2, NULL));
        CZ_CHECK(cz_sched_create_exponential(&m[1], o, 0.9, NULL));
        CZ_CHECK(cz_sched_create_step(&m[2], o, 5, 0.5, NULL));
        compose(o, true, 3, m, (const int64_t[]){4, 20});
        return EXACT;
    case 18: /* ChainedScheduler Constant(0.1,10)+Exponential(0.9) */
        CZ_CHECK(cz_sched_create_constant(&m[0], o, 0.1, 10, NULL));
        CZ_CHECK(cz_sched_create_exponential(&m[1], o, 0.9, NULL));
        compose(o, false, 2, m, NULL);
        return EXACT;
    default: /* CyclicLR base_lr=0.01 max_lr=0.1 step_size_up=8 mode=triangular2 */
        cyclic.step_size_up = 8;
        cyclic.mode = CZ_SCHED_TRIANGULAR2;
        CZ_CHECK(cz_sched_create_cyclic(&made, o, 0.01, 0.1, &cyclic));
        return EXACT;
    }
}

static void compare(const char *name, const char *what, int epoch, double got, double wanted,
                    double tolerance)
{
    if (!close_to(got, wanted, tolerance))
        fail_msg("%s: %s of epoch %d is %a, recorded is %a", name, what, epoch, got, wanted);
}

TEST(schedules)
{
    cz_test_gold *gold = cz_test_gold_open("lr_schedulers.gold");
    assert_non_null(gold);
    for (int i = 0; i < 20; i++) {
        char key[32];
        snprintf(key, sizeof key, "sched.%d", i);
        const cz_test_case *c = cz_test_gold_find(gold, key);
        assert_non_null(c);
        const char *name = cz_test_case_str(c, "name");
        const double *lr[] = {cz_test_case_f64(c, "lr0", NULL), cz_test_case_f64(c, "lr1", NULL)};
        const double *momentum = cz_test_case_f64(c, "momentum", NULL);
        subject s;
        make_sgd(&s);
        const double tolerance = make(s.optim, i);
        for (int t = 0; t < EPOCHS; t++) {
            compare(name, "rate 0", t, rate(&s, 0), lr[0][t], tolerance);
            compare(name, "rate 1", t, rate(&s, 1), lr[1][t], tolerance);
            compare(name, "momentum", t, hyper(&s, 0, "momentum"), momentum ? momentum[t] : 0.9,
                    tolerance);
            assert_true(cz_sched_last_lr(made, 1) == rate(&s, 1));
            optim_step(&s);
            sched_step(made);
        }
        cz_sched_destroy(&made);
        destroy(&s);
    }
    cz_test_gold_close(&gold);
}

/* Products only: bit for bit. */
TEST(plateaus)
{
    cz_sched_plateau_options options[3] = {CZ_SCHED_PLATEAU_OPTIONS_INIT,
                                           CZ_SCHED_PLATEAU_OPTIONS_INIT,
                                           CZ_SCHED_PLATEAU_OPTIONS_INIT};
    options[0].factor = options[2].factor = 0.5; /* mode=min factor=0.5 patience=3 */
    options[0].patience = options[2].patience = 3;
    options[1].patience = 2; /* factor=0.1 patience=2 cooldown=4 min_lr=0.0005 */
    options[1].cooldown = 4;
    options[1].min_lr = 0.0005;
    options[2].maximize = options[2].absolute = 1; /* mode=max … threshold=0.01 */
    options[2].threshold = 0.01;
    cz_test_gold *gold = cz_test_gold_open("lr_schedulers.gold");
    assert_non_null(gold);
    for (int i = 0; i < 3; i++) {
        char key[32];
        snprintf(key, sizeof key, "plateau.%d", i);
        const cz_test_case *c = cz_test_gold_find(gold, key);
        assert_non_null(c);
        subject s;
        make_sgd(&s);
        CZ_CHECK(cz_sched_create_plateau(&made, s.optim, &options[i]));
        for (int t = 0; t < EPOCHS; t++) {
            optim_step(&s);
            CZ_CHECK(cz_sched_step_metric(made, cz_test_case_f64(c, "metric", NULL)[t]));
            compare(key, "rate 0", t, rate(&s, 0), cz_test_case_f64(c, "lr0", NULL)[t], EXACT);
            compare(key, "rate 1", t, rate(&s, 1), cz_test_case_f64(c, "lr1", NULL)[t], EXACT);
        }
        cz_sched_destroy(&made);
        destroy(&s);
    }
    cz_test_gold_close(&gold);
}
