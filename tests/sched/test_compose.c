/* SPDX-License-Identifier: MIT */
/* Sequential and chained schedulers: who owns the members, what is refused, one in another. */
#include "sched/two_groups.h"

TEST(members_are_taken_over)
{
    subject s;
    make_sgd(&s);
    cz_sched *members[] = {new_kind(&s, 4), new_kind(&s, 2)}, *kept[2], *sched;
    memcpy(kept, members, sizeof kept);
    /* a failure leaves them, and the rates */
    const double before = rate(&s, 0);
    static const int64_t zero[] = {0}, five[] = {5};
    assert_int_equal(cz_sched_create_sequential(&sched, members, 2, zero), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_sched_create_sequential(&sched, members, 2, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_sched_create_sequential(&sched, members, 0, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_sched_create_sequential(&sched, NULL, 2, five), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_sched_create_chained(&sched, members, -1), CZ_ERR_ARGUMENT);
    assert_true(members[0] == kept[0] && members[1] == kept[1] && rate(&s, 0) == before);
    sched_step(members[0]);
    assert_ok(cz_sched_create_sequential(&sched, members, 2, five));
    assert_true(!members[0] && !members[1]);
    assert_true(rate(&s, 0) == 0.1 * 0.25); /* epoch 0 of the first, whatever was done before */
    cz_sched_destroy(&sched);
    assert_null(sched);
    destroy(&s);
}

static void refuse(cz_sched *a, cz_sched *b, const char *why)
{
    static const int64_t five[] = {5};
    cz_sched *members[] = {a, b}, *sched;
    assert_int_equal(cz_sched_create_sequential(&sched, members, 2, five), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), why));
    assert_int_equal(cz_sched_create_chained(&sched, members, 2), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), why));
    assert_true(members[0] == a && members[1] == b);
}

TEST(what_cannot_be_a_member)
{
    subject s, other;
    make_sgd(&s);
    make_sgd(&other);
    cz_sched *a = new_kind(&s, 0), *b = new_kind(&other, 0), *plateau, *sched;
    assert_ok(cz_sched_create_plateau(&plateau, s.optim, NULL));
    refuse(a, NULL, "member 1 is NULL");
    refuse(NULL, a, "member 0 is NULL");
    refuse(a, a, "members 0 and 1 are the same");
    refuse(a, b, "members 0 and 1 are of different optimizers");
    refuse(a, plateau, "member 1 is a plateau scheduler, which has no epochs");
    static const int64_t falling[] = {7, 6}, equal[] = {3, 3};
    cz_sched *three[] = {new_kind(&s, 0), new_kind(&s, 3), new_kind(&s, 2)};
    assert_int_equal(cz_sched_create_sequential(&sched, three, 3, falling), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "sequential scheduler: milestone 1 is 6, after 7");
    /* the one in the middle has no epochs */
    assert_ok(cz_sched_create_sequential(&sched, three, 3, equal));
    for (int t = 0; t < 4; t++)
        sched_step(sched);
    assert_true(rate(&s, 0) == 0.1 * 0.93);
    cz_sched_destroy(&a);
    cz_sched_destroy(&b);
    cz_sched_destroy(&plateau);
    cz_sched_destroy(&sched);
    destroy(&s);
    destroy(&other);
}

/* In PyTorch neither can be in a sequential one: a sequential one's step takes no epoch, a chained
 * one has none. Here: 3 epochs of (1 linear, then exponential), then constant and exponential
 * together. */
TEST(composites_in_composites)
{
    subject s;
    make_sgd(&s);
    cz_sched *sched, *m[2], *outer[2];
    assert_ok(cz_sched_create_linear(&m[0], s.optim, 0.5, 1, 2, NULL));
    assert_ok(cz_sched_create_exponential(&m[1], s.optim, 0.5, NULL));
    assert_ok(cz_sched_create_sequential(&outer[0], m, 2, (const int64_t[]){1}));
    assert_ok(cz_sched_create_constant(&m[0], s.optim, 0.25, 2, NULL));
    assert_ok(cz_sched_create_exponential(&m[1], s.optim, 0.5, NULL));
    assert_ok(cz_sched_create_chained(&outer[1], m, 2));
    assert_ok(cz_sched_create_sequential(&sched, outer, 2, (const int64_t[]){4}));
    static const double factors[] = {0.5, 1, 0.5, 0.25, 0.25, 0.125, 0.25, 0.125};
    for (int round = 0; round < 2; round++) {
        for (int t = 0; t < 8; t++) {
            if (rate(&s, 0) != 0.1 * factors[t] || rate(&s, 1) != 0.02 * factors[t])
                fail_msg("epoch %d: %g, wanted %g", t, rate(&s, 0), 0.1 * factors[t]);
            sched_step(sched);
        }
        assert_ok(cz_sched_step_to(sched, 0));
    }
    cz_sched_destroy(&sched);
    destroy(&s);
}

TEST(nesting_ends_somewhere)
{
    subject s;
    make_sgd(&s);
    cz_sched *sched = new_kind(&s, 2);
    int depth = 1;
    for (;; depth++) {
        cz_sched *outer, *member = sched;
        if (cz_sched_create_chained(&outer, &member, 1) != CZ_OK)
            break;
        assert_null(member);
        sched = outer;
    }
    assert_int_equal(depth, 16);
    cz_state_dict *dict; /* and it can be saved */
    assert_ok(cz_sched_state_dict(sched, &dict));
    assert_ok(cz_sched_load_state_dict(sched, dict));
    sched_step(sched);
    assert_true(rate(&s, 0) == 0.1 * 0.93);
    cz_state_dict_destroy(&dict);
    cz_sched_destroy(&sched);
    destroy(&s);
}

/* The one-cycle scheduler sets initial_lr to its own; the warm-up before it still begins at its
 * base. */
TEST(a_warm_up_before_one_cycle)
{
    subject s;
    make_sgd(&s);
    cz_sched *m[2], *sched;
    assert_ok(cz_sched_create_linear(&m[0], s.optim, 0.25, 1, 3, NULL));
    assert_ok(cz_sched_create_one_cycle(&m[1], s.optim, 0.5, 20, NULL));
    assert_ok(cz_sched_create_sequential(&sched, m, 2, (const int64_t[]){3}));
    assert_true(rate(&s, 0) == 0.1 * 0.25 && rate(&s, 1) == 0.02 * 0.25);
    for (int t = 0; t < 3; t++)
        sched_step(sched);
    assert_true(close_to(rate(&s, 0), 0.5 / 25, 1e-15));
    assert_true(close_to(rate(&s, 1), 0.5 / 25, 1e-15));
    for (int t = 0; t < 20; t++)
        sched_step(sched);
    assert_int_equal(cz_sched_step(sched), CZ_ERR_STATE); /* a member's error is the whole's */
    assert_true(rate(&s, 0) == 0.5 / 25 / 1e4);
    cz_sched_destroy(&sched);
    destroy(&s);
}

/* Changes by hand are kept by what multiplies. */
TEST(changes_by_hand)
{
    subject s;
    make_sgd(&s);
    cz_sched *sched = new_kind(&s, 2);
    sched_step(sched);
    assert_ok(cz_optim_set_hyper(s.optim, 1, "lr", 0.5));
    sched_step(sched);
    assert_true(rate(&s, 1) == 0.5 * 0.93 && hyper(&s, 1, "initial_lr") == 0.02);
    cz_sched_destroy(&sched);
    /* the next scheduler's base is initial_lr still, and so is what a jump leads to */
    sched = new_kind(&s, 2);
    assert_true(rate(&s, 1) == 0.5 * 0.93);
    assert_ok(cz_sched_step_to(sched, 1));
    assert_true(rate(&s, 1) == 0.02 * 0.93);
    cz_sched_destroy(&sched);
    destroy(&s);
}

/* A cosine towards 0.05 takes a rate that another scheduler has brought below 0.05 away from it on
 * the way up, in the end below 0. PyTorch trains on with it. */
TEST(a_rate_below_zero_is_refused)
{
    subject s;
    make_sgd(&s);
    cz_sched *m[2], *sched;
    assert_ok(cz_sched_create_cosine(&m[0], s.optim, 6, 0.05, NULL));
    assert_ok(cz_sched_create_exponential(&m[1], s.optim, 0.7, NULL));
    assert_ok(cz_sched_create_chained(&sched, m, 2));
    int t = 0;
    while (t < 12 && cz_sched_step(sched) == CZ_OK)
        t++;
    assert_true(t > 6 && t < 12);
    assert_non_null(strstr(cz_last_error(), "chained scheduler: parameter group 0: "));
    assert_true(rate(&s, 0) == cz_sched_last_lr(sched, 0) && rate(&s, 0) >= 0);
    cz_sched_destroy(&sched);
    destroy(&s);
}

int main(void)
{
    cz_log_set_level(CZ_LOG_ERROR); /* the optimizer is not stepped here */
    return cz_test_run(NULL, NULL);
}
