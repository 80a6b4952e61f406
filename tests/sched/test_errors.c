/* SPDX-License-Identifier: MIT */
/* What is refused, and that nothing changes then: arguments, rates the rule does not allow, no
 * memory. */
#include "sched/two_groups.h"

static void unchanged(const subject *s)
{
    assert_true(rate(s, 0) == 0.1 && rate(s, 1) == 0.02 && hyper(s, 0, "momentum") == 0.9);
    assert_false(has(s, 0, "initial_lr") || has(s, 1, "initial_lr") || has(s, 0, "max_lr"));
}

static void refuse(const subject *s, cz_status status, cz_sched *sched, const char *why)
{
    if (status != CZ_ERR_ARGUMENT || sched || strcmp(cz_last_error(), why) != 0)
        fail_msg("status %d, '%s', wanted '%s'", (int)status, cz_last_error(), why);
    unchanged(s);
}

#define REFUSE(why, function, ...)                                                                 \
    do {                                                                                           \
        cz_sched *sched_ = (cz_sched *)0x1;                                                        \
        const cz_status status_ = cz_sched_create_##function(&sched_, __VA_ARGS__);                \
        refuse(&s, status_, sched_, why);                                                          \
    } while (0)

TEST(numbers_outside_their_range)
{
    static const int64_t below[] = {3, -1};
    subject s;
    make_sgd(&s);
    cz_optim *o = s.optim;
    REFUSE("step scheduler: step_size is 0, wanted 1 or more", step, o, 0, 0.1, NULL);
    REFUSE("step scheduler: gamma is -0.1, wanted 0 or more", step, o, 1, -0.1, NULL);
    REFUSE("step scheduler: gamma is nan, wanted 0 or more", step, o, 1, (double)NAN, NULL);
    REFUSE("multi_step scheduler: number 1 of milestones is -1, wanted 0 or more", multi_step, o,
           below, 2, 0.1, NULL);
    REFUSE("exponential scheduler: gamma is inf, wanted 0 or more", exponential, o,
           (double)INFINITY, NULL);
    REFUSE("constant scheduler: factor is 0, wanted above 0, at most 1", constant, o, 0, 5, NULL);
    REFUSE("constant scheduler: total_iters is 0, wanted 1 or more", constant, o, 1, 0, NULL);
    REFUSE("linear scheduler: start_factor is 0, wanted above 0, at most 1", linear, o, 0, 1, 5,
           NULL);
    REFUSE("linear scheduler: start_factor is 1.1, wanted above 0, at most 1", linear, o, 1.1, 1, 5,
           NULL);
    REFUSE("linear scheduler: end_factor is -0.1, wanted 0 to 1", linear, o, 1, -0.1, 5, NULL);
    REFUSE("linear scheduler: total_iters is 0, wanted 1 or more", linear, o, 1, 1, 0, NULL);
    REFUSE("polynomial scheduler: power is -1, wanted 0 or more", polynomial, o, 5, -1, NULL);
    REFUSE("polynomial scheduler: total_iters is -5, wanted 1 or more", polynomial, o, -5, 1, NULL);
    REFUSE("cosine scheduler: t_max is 0, wanted 1 or more", cosine, o, 0, 0, NULL);
    REFUSE("cosine scheduler: eta_min is -1, wanted 0 or more", cosine, o, 1, -1, NULL);
    REFUSE("warm_restarts scheduler: t_0 is 0, wanted 1 or more", warm_restarts, o, 0, 1, 0, NULL);
    REFUSE("warm_restarts scheduler: t_mult is 0, wanted 1 or more", warm_restarts, o, 1, 0, 0,
           NULL);
    REFUSE("lambda scheduler: function is NULL", lambda, o, NULL, NULL, NULL);
    REFUSE("one_cycle scheduler: total_steps is 0, wanted 1 or more", one_cycle, o, 1, 0, NULL);
    REFUSE("one_cycle scheduler: number 0 of max_lr is -1, wanted 0 or more", one_cycle, o, -1, 9,
           NULL);
    REFUSE("step scheduler: optim is NULL", step, NULL, 1, 1, NULL);
    REFUSE("multi_step scheduler: 1 milestones at NULL", multi_step, o, NULL, 1, 0.1, NULL);
    destroy(&s);
}

TEST(options_outside_their_range)
{
    subject s;
    make_sgd(&s);
#define REFUSE_OPTION(kind, type, INIT, field, value, why, ...)                                    \
    do {                                                                                           \
        type options = INIT;                                                                       \
        options.field = value;                                                                     \
        REFUSE(why, kind, __VA_ARGS__, &options);                                                  \
    } while (0)
#define ONE_CYCLE(field, value, why)                                                               \
    REFUSE_OPTION(one_cycle, cz_sched_one_cycle_options, CZ_SCHED_ONE_CYCLE_OPTIONS_INIT, field,   \
                  value, why, s.optim, 0.1, 9)
#define CYCLIC(field, value, why)                                                                  \
    REFUSE_OPTION(cyclic, cz_sched_cyclic_options, CZ_SCHED_CYCLIC_OPTIONS_INIT, field, value,     \
                  why, s.optim, 0.1, 0.2)
#define PLATEAU(field, value, why)                                                                 \
    REFUSE_OPTION(plateau, cz_sched_plateau_options, CZ_SCHED_PLATEAU_OPTIONS_INIT, field, value,  \
                  why, s.optim)
    ONE_CYCLE(pct_start, 1.5, "one_cycle scheduler: pct_start is 1.5, wanted 0 to 1");
    ONE_CYCLE(div_factor, -1, "one_cycle scheduler: div_factor is -1, wanted above 0");
    ONE_CYCLE(final_div_factor, -1, "one_cycle scheduler: final_div_factor is -1, wanted above 0");
    ONE_CYCLE(max_momentum, 1, "one_cycle scheduler: max_momentum is 1, wanted 0 or more, below 1");
    ONE_CYCLE(base_momentum, -2,
              "one_cycle scheduler: base_momentum is -2, wanted 0 or more, below 1");
    ONE_CYCLE(linear, 2, "one_cycle scheduler: linear is 2, wanted 0 or 1");
    ONE_CYCLE(first_epoch, -1, "one_cycle scheduler: first_epoch is -1, wanted 0 or more");
    ONE_CYCLE(size, 3,
              "cz_sched_one_cycle_options: size is 3, set it to "
              "sizeof(cz_sched_one_cycle_options)");
    CYCLIC(step_size_up, -1, "cyclic scheduler: step_size_up is -1, wanted 1 or more");
    CYCLIC(step_size_down, -1, "cyclic scheduler: step_size_down is -1, wanted 0 or more");
    CYCLIC(mode, (cz_sched_cycle)9, "cyclic scheduler: mode is 9, wanted 0 to 2");
    CYCLIC(gamma, NAN, "cyclic scheduler: gamma is nan, wanted 0 or more");
    PLATEAU(factor, 1, "plateau scheduler: factor is 1, wanted above 0, below 1");
    PLATEAU(patience, -2, "plateau scheduler: patience is -2, wanted 0 or more");
    PLATEAU(cooldown, -1, "plateau scheduler: cooldown is -1, wanted 0 or more");
    PLATEAU(threshold, -2, "plateau scheduler: threshold is -2, wanted 0 or more");
    PLATEAU(eps, NAN, "plateau scheduler: eps is nan, wanted 0 or more");
    PLATEAU(min_lr, -1, "plateau scheduler: number 0 of min_lr is -1, wanted 0 or more");
    cz_sched_plateau_options sum = CZ_SCHED_PLATEAU_OPTIONS_INIT;
    sum.agree = CZ_SUM;
    cz_sched *sched;
    assert_int_equal(cz_sched_create_plateau(&sched, s.optim, &sum), CZ_ERR_UNSUPPORTED);
    destroy(&s);
}

TEST(calls_that_make_no_sense)
{
    subject s;
    make_sgd(&s);
    cz_sched *step = new_kind(&s, 0), *plateau;
    assert_ok(cz_sched_create_plateau(&plateau, s.optim, NULL));
    assert_int_equal(cz_sched_step(plateau), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_sched_step_to(plateau, 1), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_sched_step_metric(step, 1), CZ_ERR_ARGUMENT);
    assert_true(isnan(cz_sched_last_lr(NULL, 0)) && isnan(cz_sched_last_lr(step, -1)) &&
                isnan(cz_sched_last_lr(step, 2)));
    assert_true(cz_sched_last_lr(plateau, 1) == 0.02); /* before its first metric, too */
    cz_sched_destroy(&step);
    cz_sched_destroy(&step);
    cz_sched_destroy(NULL);
    destroy(&s);
    cz_sched_destroy(&plateau); /* after its optimizer */
}

/* The second group's rate becomes -1, or NaN, in epoch `*context`. */
static double bad_rate(int64_t epoch, int64_t group, void *context)
{
    const int64_t when = *(const int64_t *)context;
    return group == 1 && epoch >= llabs(when) ? when < 0 ? NAN : -1 : 0.5;
}

TEST(a_bad_rate_changes_nothing)
{
    static int64_t at_once[] = {0}, later[] = {3}, nan_later[] = {-3};
    subject s;
    make_sgd(&s);
    cz_sched *sched;
    assert_int_equal(cz_sched_create_lambda(&sched, s.optim, bad_rate, at_once, NULL),
                     CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "lambda scheduler: parameter group 1: "));
    unchanged(&s);
    for (int which = 0; which < 4; which++) {
        cz_sched *members[] = {new_kind(&s, 11), NULL}; /* cyclic: momentum too */
        assert_ok(cz_sched_create_lambda(&members[1], s.optim, bad_rate,
                                         which % 2 ? nan_later : later, NULL));
        assert_ok(which < 2 ? cz_sched_create_chained(&sched, members, 2)
                            : cz_sched_create_sequential(&sched, members, 2, (int64_t[]){1}));
        for (int t = 1; t < (which < 2 ? 3 : 4); t++)
            sched_step(sched);
        cz_state_dict *before, *after;
        const double momentum = hyper(&s, 0, "momentum"), lr = rate(&s, 0);
        assert_ok(cz_sched_state_dict(sched, &before));
        for (int again = 0; again < 2; again++) {
            assert_int_equal(cz_sched_step(sched), CZ_ERR_ARGUMENT);
            assert_int_equal(cz_sched_step_to(sched, 9), CZ_ERR_ARGUMENT);
            assert_ok(cz_sched_state_dict(sched, &after));
            assert_true(cz_state_dict_equal(before, after));
            assert_true(rate(&s, 0) == lr && hyper(&s, 0, "momentum") == momentum);
            cz_state_dict_destroy(&after);
        }
        cz_state_dict_destroy(&before);
        cz_sched_destroy(&sched);
    }
    destroy(&s);
}

TEST(without_memory)
{
    for (int kind = 0; kind <= KIND_COUNT; kind++) {
        const int64_t held = cz_test_allocations_held();
        for (int64_t n = 1;; n++) {
            subject s;
            cz_sched *sched;
            make_sgd(&s);
            cz_test_fail_allocation(n);
            const cz_status status = kind < KIND_COUNT
                                         ? make_kind(&sched, s.optim, kind, 0)
                                         : cz_sched_create_plateau(&sched, s.optim, NULL);
            const bool failed = cz_test_allocation_reset();
            assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
            if (failed && kind < 12) /* composites begin with members that have set rates */
                assert_true(rate(&s, 0) == 0.1 && rate(&s, 1) == 0.02);
            cz_sched_destroy(&sched);
            destroy(&s);
            assert_int_equal(cz_test_allocations_held(), held);
            if (!failed)
                break;
        }
    }
}

/* A group that came later needs memory; so do saving and loading. */
TEST(without_memory_later)
{
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        subject s;
        make_sgd(&s);
        cz_sched *sched = new_kind(&s, kind);
        cz_state_dict *before, *dict, *after;
        assert_ok(cz_sched_state_dict(sched, &before));
        for (int64_t n = 1;; n++) {
            cz_test_fail_allocation(n);
            cz_status status = cz_sched_state_dict(sched, &dict);
            const bool failed = cz_test_allocation_reset();
            assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
            if (!failed)
                break;
            assert_null(dict);
        }
        sched_step(sched);
        for (int64_t n = 1;; n++) {
            cz_test_fail_allocation(n);
            const cz_status status = cz_sched_load_state_dict(sched, dict);
            const bool failed = cz_test_allocation_reset();
            assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
            assert_ok(cz_sched_state_dict(sched, &after));
            assert_true(cz_state_dict_equal(after, before) == !failed);
            cz_state_dict_destroy(&after);
            if (!failed)
                break;
        }
        add_group(&s, 0.05);
        const double lr = rate(&s, 0);
        for (int64_t n = 1;; n++) {
            cz_test_fail_allocation(n);
            const cz_status status = cz_sched_step(sched);
            if (!cz_test_allocation_reset()) {
                assert_ok(status);
                break;
            }
            assert_int_equal(status, CZ_ERR_MEMORY);
            assert_true(rate(&s, 0) == lr && rate(&s, 2) == 0.05);
            assert_ok(cz_sched_state_dict(sched, &after));
            assert_true(cz_state_dict_equal(after, before));
            cz_state_dict_destroy(&after);
        }
        const int64_t made = cz_test_allocations_made();
        sched_step(sched); /* nothing new: no memory */
        assert_int_equal(cz_test_allocations_made(), made);
        cz_state_dict_destroy(&dict);
        cz_state_dict_destroy(&before);
        cz_sched_destroy(&sched);
        destroy(&s);
    }
}

static int lines;
static char last_line[256];

static void count_line(cz_log_level level, const char *line, void *context)
{
    lines += level == CZ_LOG_WARN;
    snprintf(last_line, sizeof last_line, "%s", line);
}

TEST(the_order_of_steps_is_warned_of_once)
{
    cz_log_set_level(CZ_LOG_WARN);
    cz_log_set_sink(count_line, NULL);
    for (int in_order = 0; in_order < 2; in_order++) {
        subject s;
        make_sgd(&s);
        cz_sched *sched = new_kind(&s, 0), *second;
        lines = 0;
        for (int t = 0; t < 3; t++) {
            if (in_order || t > 0)
                optim_step(&s);
            sched_step(sched);
        }
        assert_int_equal(lines, in_order ? 0 : 1);
        if (!in_order)
            assert_non_null(strstr(last_line, "stepped before the optimizer"));
        /* making one does not make the optimizer forget its steps, nor does loading one warn
         * again */
        second = new_kind(&s, 0);
        sched_step(second);
        assert_int_equal(lines, in_order ? 0 : 1);
        cz_state_dict *dict;
        assert_ok(cz_sched_state_dict(sched, &dict));
        subject later;
        make_sgd(&later);
        cz_sched *loaded = new_kind(&later, 0);
        assert_ok(cz_sched_load_state_dict(loaded, dict));
        sched_step(loaded);
        assert_int_equal(lines, in_order ? 0 : 1);
        cz_state_dict_destroy(&dict);
        cz_sched_destroy(&loaded);
        cz_sched_destroy(&second);
        cz_sched_destroy(&sched);
        destroy(&later);
        destroy(&s);
    }
    cz_log_set_sink(NULL, NULL);
    cz_log_set_level(CZ_LOG_ERROR);
}

int main(void)
{
    cz_log_set_level(CZ_LOG_ERROR); /* the optimizer is not stepped here */
    return cz_test_run(NULL, NULL);
}
