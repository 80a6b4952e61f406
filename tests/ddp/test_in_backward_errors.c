/* SPDX-License-Identifier: MIT */
/* Unsharded optimizers inside passes: ranks that differ, what is wrong on one of them, and what
 * cannot be had together. */
#include "czero/czero.h"
#include "ddp/in_backward_test.h"
#include "ddp/ddp.h"
#include "optim/optim.h"

/* ---- failures ---- */

static const trial plain = {.bucket_bytes = 1};

static cz_status check_equal(const subject *s, cz_group *group)
{
    for (int p = 0; p < PARAMS; p++) {
        float values[300];
        const size_t bytes = (size_t)sizes[p] * sizeof(float);
        memcpy(values, s->memory.values[p], bytes);
        CZ_TRY(cz_broadcast(group, values, sizes[p], CZ_F32, 0, NULL));
        if (memcmp(values, s->memory.values[p], bytes) != 0)
            return cz_fail(CZ_ERR_STATE, "parameter %d is not that of rank 0", p);
    }
    return CZ_OK;
}

static cz_status begin_fails(cz_optim *optim, const void *argument, void *context)
{
    return *(bool *)context ? cz_fail(CZ_ERR_STATE, "not now") : CZ_OK;
}

static cz_status hook_fails(void *state, cz_bucket *bucket)
{
    if (*(bool *)state && cz__bucket_index(bucket) == 3)
        return cz_fail(CZ_ERR_STATE, "no hook");
    return cz_all_reduce(cz__bucket_group(bucket), cz__bucket_buffer(bucket),
                         cz__bucket_count(bucket), cz__bucket_dtype(bucket), CZ_AVERAGE, NULL);
}

static cz_status fail_on_one(subject *s, cz_group *group, const trial *t, bool *fails)
{
    const bool odd = cz_group_rank(group) == 1;
    if (!odd) /* the others' do, this one's does not */
        CZ_TRY(cz_ddp_step_in_backward(s->ddp, s->in_backward));
    CZ_TRY(expect(one_pass(s, group, t, 0, true), CZ_ERR_MISMATCH, "its optimizer's overlap"));
    if (odd)
        CZ_TRY(cz_ddp_step_in_backward(s->ddp, s->in_backward));
    CZ_TRY(cz_optim_set_hyper(s->optims[0], 2, "lr", odd ? 0.5 : 0.25));
    CZ_TRY(expect(one_pass(s, group, t, 0, true), CZ_ERR_MISMATCH,
                  "lr of parameter group 2 is 0.5 on rank 1, 0.25 on rank 0"));
    CZ_TRY(cz_optim_set_hyper(s->optims[0], 2, "lr", 0.25));
    *fails = odd;
    CZ_TRY(expect(one_pass(s, group, t, 0, true), CZ_ERR_STATE, "not now"));
    *fails = false;
    CZ_TRY(check_equal(s, group));
    for (int p = 0; p < PARAMS; p++)
        if (cz__optim_step_count(s->optims[0], p) != 0)
            return cz_fail(CZ_ERR_STATE, "parameter %d was updated", p);
    CZ_TRY(one_pass(s, group, t, 0, true));
    return check_equal(s, group);
}

static cz_status fail_body(cz_group *group, void *context)
{
    bool fails = false;
    cz_rule rule = *cz_rule_sgd();
    rule.begin_step = begin_fails;
    rule.context = &fails;
    trial t = plain;
    t.rules[0] = &rule;
    subject s = {0};
    cz_status status = create(&s, group, &t);
    THEN(fail_on_one(&s, group, &t, &fails));
    clear(&s);
    return status;
}

TEST(what_is_wrong_on_one_rank)
{
    for (int world = 2; world <= 5; world++)
        assert_ranks_ok(world, fail_body, NULL);
}

static cz_status seed_body(cz_group *group, void *context)
{
    const trial t = {.rules = {cz_rule_sgd()}, .bucket_bytes = 1, .seeded = true};
    subject s = {0};
    cz_status status = create(&s, group, &t);
    THEN(cz_ddp_step_in_backward(s.ddp, s.in_backward));
    THEN(expect(one_pass(&s, group, &t, 0, true), CZ_ERR_MISMATCH, "the seed of roundings is 1"));
    clear(&s);
    return status;
}

TEST(ranks_that_round_in_other_ways)
{
    assert_ranks_ok(3, seed_body, NULL);
}

/* Buckets before the failure are updated, on all ranks; the next pass goes on from there. */
static cz_status hook_body(cz_group *group, void *context)
{
    bool fails = cz_group_rank(group) == 1;
    const cz_hook hook = {.size = sizeof hook,
                          .name = "fails",
                          .result = CZ_HOOK_WHOLE,
                          .run = hook_fails,
                          .state = &fails};
    trial t = plain;
    t.rules[0] = cz_rule_adam();
    subject s = {0};
    cz_status status = create(&s, group, &t);
    THEN(cz_ddp_register_hook(s.ddp, &hook));
    THEN(cz_ddp_step_in_backward(s.ddp, s.in_backward));
    for (int pass = 0; pass < 3 && status == CZ_OK; pass++) {
        status = one_pass(&s, group, &t, pass, true);
        if (pass == 0)
            status = expect(status, CZ_ERR_STATE, "no hook");
        THEN(check_equal(&s, group));
        fails = false;
    }
    int64_t steps = 0;
    for (int p = 0; p < PARAMS; p++)
        steps += cz__optim_step_count(s.optims[0], p);
    if (status == CZ_OK && (steps <= 2 * PARAMS || steps >= 3 * PARAMS))
        status = cz_fail(CZ_ERR_STATE, "%d updates in all", (int)steps);
    clear(&s);
    return status;
}

TEST(a_hook_that_fails_on_one_rank)
{
    for (int world = 2; world <= 5; world++)
        assert_ranks_ok(world, hook_body, NULL);
}

/* Marks are wrong on one rank: one too many, one too few. */
static cz_status wrong_marks(subject *s, cz_group *group, int pass)
{
    const bool odd = cz_group_rank(group) == 1;
    const int lacking = odd && pass == 0 ? 0 : PARAMS;
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int p = PARAMS - 1; p >= 0; p--) /* in the order of buckets: some are updated before */
        if (p != lacking)
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    if (odd && pass == 1)
        CZ_TRY(expect(cz_ddp_mark_ready(s->ddp, 4), CZ_ERR_STATE, "was marked ready 2 times"));
    CZ_TRY(expect(cz_ddp_finish(s->ddp), CZ_ERR_STATE, pass == 0 ? "'p0'" : "'p4'"));
    return check_equal(s, group);
}

static cz_status marks_body(cz_group *group, void *context)
{
    trial t = plain;
    t.rules[0] = cz_rule_adam();
    t.keep = true;
    subject s = {0};
    cz_status status = create(&s, group, &t);
    THEN(cz_ddp_step_in_backward(s.ddp, s.in_backward));
    for (int pass = 0; pass < 2 && status == CZ_OK; pass++) {
        status = wrong_marks(&s, group, pass);
        THEN(one_pass(&s, group, &t, pass, true));
        THEN(check_equal(&s, group));
    }
    if (status == CZ_OK && cz__optim_step_count(s.optims[0], 0) != 3) /* not in the first */
        status = cz_fail(CZ_ERR_STATE, "p0: %d steps", (int)cz__optim_step_count(s.optims[0], 0));
    clear(&s);
    return status;
}

TEST(marks_that_are_wrong_on_one_rank)
{
    for (int world = 2; world <= 5; world++)
        assert_ranks_ok(world, marks_body, NULL);
}

/* ---- refused ---- */

TEST(what_is_refused)
{
    trial t = plain;
    subject s = {0}, other = {0};
    cz_group *group;
    cz_zero *zero;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    t.rules[0] = cz_rule_sgd();
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(create(&s, group, &t));
    assert_ok(create(&other, group, &t));
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, other.in_backward), CZ_ERR_ARGUMENT);
    assert_ok(cz_ddp_step_in_backward(s.ddp, NULL));
    cz_in_backward_options undo = CZ_IN_BACKWARD_OPTIONS_INIT;
    cz_in_backward *with_end;
    undo.undo = 1;
    assert_ok(cz_in_backward_create(&with_end, s.optims, 1, &undo));
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, with_end), CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "want an end"));
    cz_in_backward_destroy(&with_end);
    assert_ok(cz_ddp_begin(s.ddp, true));
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, s.in_backward), CZ_ERR_STATE);
    for (int p = 0; p < PARAMS; p++)
        assert_ok(cz_ddp_mark_ready(s.ddp, p));
    assert_ok(cz_ddp_finish(s.ddp));

    assert_ok(cz_ddp_step_in_backward(s.ddp, s.in_backward));
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, s.in_backward), CZ_ERR_STATE);
    assert_int_equal(cz_in_backward_begin(s.in_backward, NULL), CZ_ERR_STATE);
    assert_int_equal(cz_in_backward_mark_ready(s.in_backward, 0, NULL), CZ_ERR_STATE);
    assert_int_equal(cz_ddp_register_hook_by_name(s.ddp, "reduce_scatter", NULL),
                     CZ_ERR_UNSUPPORTED);
    options.ddp = s.ddp;
    assert_int_equal(
        cz_zero_create(&zero, group, s.memory.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), &options),
        CZ_ERR_STATE);
    assert_non_null(strstr(cz_last_error(), "unsharded optimizers"));

    /* taken off, they are the program's again, and a sharded one can come, which in turn keeps them
     * out */
    assert_ok(cz_ddp_step_in_backward(s.ddp, NULL));
    assert_ok(cz_in_backward_begin(s.in_backward, NULL));
    assert_ok(cz_in_backward_mark_ready(s.in_backward, 0, NULL));
    assert_ok(cz_zero_create(&zero, group, s.memory.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}),
                             &options));
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, s.in_backward), CZ_ERR_STATE);
    cz_zero_destroy(&zero);
    assert_ok(cz_ddp_register_hook_by_name(s.ddp, "reduce_scatter", NULL));
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, s.in_backward), CZ_ERR_UNSUPPORTED);

    /* with the ddp gone, too */
    assert_ok(cz_ddp_step_in_backward(other.ddp, other.in_backward));
    cz_ddp_destroy(&other.ddp);
    assert_ok(cz_in_backward_begin(other.in_backward, NULL));
    clear(&s);
    clear(&other);
    cz_group_destroy(&group);
}
