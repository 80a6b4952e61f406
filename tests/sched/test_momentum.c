/* SPDX-License-Identifier: MIT */
/* Schedulers that drive momentum: `momentum` or `beta1`, whatever was given when the optimizer was
 * made. */
#include "sched/two_groups.h"

static cz_status make(cz_sched **out, cz_optim *optim, bool cyclic, bool fixed)
{
    cz_sched_cyclic_options c = CZ_SCHED_CYCLIC_OPTIONS_INIT;
    cz_sched_one_cycle_options o = CZ_SCHED_ONE_CYCLE_OPTIONS_INIT;
    c.fixed_momentum = o.fixed_momentum = fixed;
    c.step_size_up = 4;
    return cyclic ? cz_sched_create_cyclic(out, optim, 0.01, 0.1, &c)
                  : cz_sched_create_one_cycle(out, optim, 0.1, 20, &o);
}

/* Down from the maximum to the base while the rate rises. */
static void check(const subject *s, const char *name, bool cyclic)
{
    cz_sched *sched;
    assert_ok(make(&sched, s->optim, cyclic, false));
    const double high = cyclic ? 0.9 : 0.95, low = cyclic ? 0.8 : 0.85;
    for (int g = 0; g < 2; g++)
        assert_true(close_to(hyper(s, g, name), high, 1e-15));
    for (int t = 1; t <= (cyclic ? 4 : 5); t++) {
        const double before = hyper(s, 1, name);
        sched_step(sched);
        assert_true(hyper(s, 1, name) < before);
    }
    for (int g = 0; g < 2; g++)
        assert_true(close_to(hyper(s, g, name), low, 1e-15) && close_to(rate(s, g), 0.1, 1e-15));
    cz_sched_destroy(&sched);
}

/* Nothing but lr was given: PyTorch looks for `momentum` among what was given to ZeRO, and for
 * nothing else in its cyclic scheduler. */
TEST(whichever_the_rule_has)
{
    for (int cyclic = 0; cyclic < 2; cyclic++) {
        subject s;
        make_adam(&s);
        check(&s, "beta1", cyclic);
        assert_true(hyper(&s, 0, "beta2") == 0.999);
        destroy(&s);
        make_optim(&s, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}));
        check(&s, "momentum", cyclic);
        optim_step(&s); /* with the slot that no momentum at first had not asked for */
        destroy(&s);
    }
}

TEST(left_alone)
{
    for (int cyclic = 0; cyclic < 2; cyclic++) {
        subject s;
        make_sgd(&s);
        cz_sched *sched;
        assert_ok(make(&sched, s.optim, cyclic, true));
        for (int t = 0; t < 10; t++) {
            assert_true(hyper(&s, 0, "momentum") == 0.9);
            sched_step(sched);
        }
        assert_false(has(&s, 0, "max_momentum"));
        cz_sched_destroy(&sched);
        destroy(&s);
    }
}

/* A rule of lr alone; the CPU has a kernel of that name. */
static unsigned no_slots(const double *hypers)
{
    return 0;
}

static void plain_prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    coefficients[0] = -step->hypers[0];
}

TEST(a_rule_without)
{
    static const cz_hyper_spec specs[] = {{"lr", 0.1, 0, INFINITY, false, false}};
    const cz_rule *sgd = cz_rule_sgd();
    cz_rule plain = *sgd;
    plain.hyper_count = 1;
    plain.hypers = specs;
    plain.slot_count = 0;
    plain.check = NULL;
    plain.slots_used = no_slots;
    plain.prepare = plain_prepare;
    for (int cyclic = 0; cyclic < 2; cyclic++) {
        subject s;
        cz_sched *sched;
        make_optim(&s, &plain, CZ_HYPERS({"lr", 0.1}));
        assert_int_equal(make(&sched, s.optim, cyclic, false), CZ_ERR_ARGUMENT);
        assert_non_null(strstr(cz_last_error(), "neither 'momentum' nor 'beta1'"));
        assert_true(rate(&s, 0) == 0.1 && !has(&s, 0, "initial_lr"));
        assert_ok(make(&sched, s.optim, cyclic, true));
        /* a state that drives momentum does not go into it */
        subject other;
        make_sgd(&other);
        cz_sched *driving;
        cz_state_dict *dict;
        assert_ok(make(&driving, other.optim, cyclic, false));
        assert_ok(cz_sched_state_dict(driving, &dict));
        assert_int_equal(cz_sched_load_state_dict(sched, dict), CZ_ERR_ARGUMENT);
        sched_step(sched);
        cz_state_dict_destroy(&dict);
        cz_sched_destroy(&driving);
        cz_sched_destroy(&sched);
        destroy(&other);
        destroy(&s);
    }
}

/* An older initial_lr: PyTorch's cyclic scheduler begins with that, and a resumed one takes the
 * momentum of the moment for the base. */
TEST(cyclic_begins_at_its_own_base)
{
    subject s;
    make_sgd(&s);
    cz_sched *first = new_kind(&s, 0), *sched;
    assert_ok(make(&sched, s.optim, true, false));
    assert_true(rate(&s, 0) == 0.01 && rate(&s, 1) == 0.01 && hyper(&s, 0, "initial_lr") == 0.1);
    for (int t = 0; t < 3; t++)
        sched_step(sched);
    cz_sched_destroy(&sched);
    cz_sched_cyclic_options o = CZ_SCHED_CYCLIC_OPTIONS_INIT;
    o.step_size_up = 4;
    o.first_epoch = 4;
    assert_ok(cz_sched_create_cyclic(&sched, s.optim, 0.01, 0.1, &o));
    assert_true(close_to(hyper(&s, 0, "momentum"), 0.8, 1e-15));
    for (int t = 0; t < 4; t++)
        sched_step(sched);
    assert_true(close_to(hyper(&s, 0, "momentum"), 0.9, 1e-15) && rate(&s, 0) == 0.01);
    cz_sched_destroy(&sched);
    cz_sched_destroy(&first);
    destroy(&s);
}

int main(void)
{
    cz_log_set_level(CZ_LOG_ERROR); /* the optimizer is not stepped here */
    return cz_test_run(NULL, NULL);
}
