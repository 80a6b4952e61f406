/* SPDX-License-Identifier: MIT */
/* Unsharded optimizers inside passes: the bits of one process that steps on the mean, several groups and rules, ranks
 * that differ, and what cannot be had together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "czero/hooks.h"
#include "czero/zero.h"
#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 9, STEPS = 5, OPTIMS = 2 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 16, 300, 1, 64};

typedef struct trial {
    const cz_rule *rules[OPTIMS]; /* the second NULL: one optimizer */
    size_t bucket_bytes;
    const char *hook;
    bool uneven; /* parameters that are unused here and there, or everywhere, and a frozen one */
    bool micro;  /* every other pass does not synchronise */
} trial;

typedef struct subject {
    cz_test_memory memory;
    cz_optim *optims[OPTIMS];
    int optim_count;
    cz_in_backward *in_backward;
    cz_ddp *ddp;
    int released[PARAMS];
} subject;

static void clear(subject *s)
{
    cz_ddp_destroy(&s->ddp);
    cz_in_backward_destroy(&s->in_backward);
    for (int k = 0; k < OPTIMS; k++)
        cz_optim_destroy(&s->optims[k]);
    cz_test_memory_destroy(&s->memory);
}

/* Three groups with a rate and a decay of their own. */
static cz_status create_optims(subject *s, const trial *t)
{
    static const int64_t members[] = {8, 1, 3, 0, 2, 4, 7, 5, 6}, some[] = {3, 6, 8};
    const cz_param_group groups[] = {
        {sizeof(cz_param_group), members, 3, CZ_HYPERS({"weight_decay", 0.25})},
        {sizeof(cz_param_group), members + 3, 4, CZ_HYPERS({"lr", 0.25})},
        {sizeof(cz_param_group), members + 7, 2, CZ_HYPERS({"lr", 0.0625}, {"weight_decay", 0.5})}};
    const cz_param_group other = {sizeof(cz_param_group), some, 3, NULL};
    const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_optim_options options = {sizeof options, groups, 3};
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    s->optim_count = t->rules[1] ? 2 : 1;
    for (int k = 0; k < s->optim_count; k++) {
        CZ_TRY(cz_optim_create(&s->optims[k], s->memory.model, t->rules[k],
                               CZ_HYPERS({"lr", 0.125}), &options));
        options = (cz_optim_options){sizeof options, &other, 1};
    }
    return CZ_OK;
}

static void released(int64_t param, void *gradient, void *context)
{
    subject *s = context;
    s->released[param] += gradient == s->memory.grads[param] ? 1 : 1000;
}

static cz_status create(subject *s, cz_group *group, const trial *t)
{
    const cz_in_backward_options options = {sizeof options, released, s};
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    buckets.bucket_bytes = buckets.first_bucket_bytes = t->bucket_bytes;
    buckets.find_unused = t->uneven;
    CZ_TRY(create_optims(s, t));
    CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &buckets));
    if (t->hook)
        CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, t->hook, NULL));
    return cz_in_backward_create(&s->in_backward, s->optims, s->optim_count, &options);
}

/* ---- passes ---- */

static float part(int rank, int pass, int p, int64_t i)
{
    return (float)((rank + 1) * ((i + p + pass) % 5 - 2)) / 32;
}

static bool unused(const trial *t, int rank, int p)
{
    return t->uneven && (p == 5 || (p == 3 && rank % 2 == 1));
}

static bool frozen(const trial *t, int pass, int p)
{
    return t->uneven && p == 4 && pass % 3 == 1;
}

static cz_status one_pass(subject *s, cz_group *group, const trial *t, int pass, bool sync)
{
    const int rank = cz_group_rank(group);
    const bool adds = t->micro && pass % 2 == 1;
    for (int p = 0; p < PARAMS; p++) {
        CZ_TRY(cz_model_set_requires_grad(s->memory.model, p, !frozen(t, pass, p)));
        float *gradient = s->memory.grads[p];
        for (int64_t i = 0; i < sizes[p]; i++)
            gradient[i] =
                (adds ? gradient[i] : 0) + (unused(t, rank, p) ? 0 : part(rank, pass, p, i));
    }
    CZ_TRY(cz_ddp_begin(s->ddp, sync));
    for (int k = 0; k < PARAMS; k++) {
        static const int strides[] = {1, 2, 4, 5};
        const int p = (k * strides[(rank + pass) % 4] + rank) % PARAMS;
        if (!unused(t, rank, p))
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    }
    return cz_ddp_finish(s->ddp);
}

/* ---- the reference ---- */

static cz_status reference_step(subject *s, const trial *t, int world, int pass)
{
    for (int p = 0; p < PARAMS; p++) {
        bool any = false;
        CZ_TRY(cz_model_set_requires_grad(s->memory.model, p, !frozen(t, pass, p)));
        for (int r = 0; r < world; r++)
            any = any || !unused(t, r, p);
        for (int64_t i = 0; i < sizes[p]; i++) {
            float sum = 0;
            for (int r = 0; r < world; r++) {
                sum += unused(t, r, p) ? 0 : part(r, pass, p, i);
                sum += unused(t, r, p) || !t->micro ? 0 : part(r, pass - 1, p, i);
            }
            ((float *)s->memory.grads[p])[i] = sum / (float)world;
        }
        CZ_TRY(cz_model_set_gradient(s->memory.model, p, any ? s->memory.grads[p] : NULL));
    }
    for (int k = 0; k < s->optim_count; k++)
        CZ_TRY(cz_optim_step(s->optims[k], NULL, NULL));
    return CZ_OK;
}

static cz_status compare(const subject *s, const subject *wanted, int pass)
{
    for (int p = 0; p < PARAMS; p++)
        if (memcmp(s->memory.values[p], wanted->memory.values[p],
                   (size_t)sizes[p] * sizeof(float)) != 0)
            return cz_fail(CZ_ERR_STATE, "pass %d: parameter %d differs", pass, p);
    for (int k = 0; k < s->optim_count; k++) {
        cz_state_dict *a = NULL, *b = NULL;
        cz_status status = cz_optim_state_dict(s->optims[k], &a);
        if (status == CZ_OK)
            status = cz_optim_state_dict(wanted->optims[k], &b);
        if (status == CZ_OK && !cz_state_dict_equal(a, b))
            status = cz_fail(CZ_ERR_STATE, "pass %d: state of optimizer %d differs", pass, k);
        cz_state_dict_destroy(&a);
        cz_state_dict_destroy(&b);
        CZ_TRY(status);
    }
    return CZ_OK;
}

static cz_status check_released(subject *s, cz_group *group, const trial *t, int pass, bool sync)
{
    for (int p = 0; p < PARAMS; p++) {
        bool any = false;
        for (int r = 0; r < cz_group_size(group); r++)
            any = any || !unused(t, r, p);
        const int wanted = sync && any && !frozen(t, pass, p);
        if (s->released[p] != wanted)
            return cz_fail(CZ_ERR_STATE, "pass %d: parameter %d was released %d times, wanted %d",
                           pass, p, s->released[p], wanted);
        s->released[p] = 0;
    }
    return CZ_OK;
}

static cz_status train(subject *s, subject *reference, cz_group *group, const trial *t)
{
    CZ_TRY(cz_ddp_step_in_backward(s->ddp, s->in_backward));
    for (int pass = 0; pass < STEPS * (t->micro ? 2 : 1); pass++) {
        const bool sync = !t->micro || pass % 2 == 1;
        if (pass == 4) /* a schedule's work */
            for (int k = 0; k < s->optim_count; k++) {
                CZ_TRY(cz_optim_set_hyper(s->optims[k], 0, "lr", 0.03125));
                CZ_TRY(cz_optim_set_hyper(reference->optims[k], 0, "lr", 0.03125));
            }
        CZ_TRY(one_pass(s, group, t, pass, sync));
        if (sync)
            CZ_TRY(reference_step(reference, t, cz_group_size(group), pass));
        CZ_TRY(compare(s, reference, pass));
        CZ_TRY(check_released(s, group, t, pass, sync));
    }
    return CZ_OK;
}

static cz_status train_body(cz_group *group, void *context)
{
    const trial *t = context;
    subject s = {0}, reference = {0};
    cz_status status = create(&s, group, t);
    if (status == CZ_OK)
        status = create_optims(&reference, t);
    if (status == CZ_OK)
        status = train(&s, &reference, group, t);
    clear(&s);
    clear(&reference);
    return status;
}

static void run(int world, cz_rank_main body, void *context)
{
    char why[256];
    if (cz_test_run_ranks(world, body, context, why) != CZ_OK)
        fail_msg("world size %d: %s", world, why);
}

static const int worlds[] = {1, 2, 3, 5, 7};

/* case_L3: groups with a rate and decay each, update inside the pass. */
static void case_L3_the_bits_of_one_process(void **state)
{
    static const size_t caps[] = {1, 200, 1 << 20};
    static const char *const hooks[] = {NULL, "all_reduce"};
    for (size_t w = 0; w < 5; w++)
        for (size_t k = 0; k < 6; k++)
            run(worlds[w], train_body,
                &(trial){
                    .rules = {cz_rule_adam()}, .bucket_bytes = caps[k / 2], .hook = hooks[k % 2]});
}

static void test_rules(void **state)
{
    const cz_rule *rules[] = {cz_rule_sgd(), cz_rule_nadam(), cz_rule_adagrad()};
    for (size_t w = 0; w < 5; w++)
        for (size_t k = 0; k < 3; k++)
            run(worlds[w], train_body,
                &(trial){{rules[k], cz_rule_adam()}, 200, NULL, false, false});
}

static void test_unused_frozen_and_added_up(void **state)
{
    for (size_t w = 0; w < 5; w++)
        for (int k = 0; k < 4; k++)
            run(worlds[w], train_body,
                &(trial){{cz_rule_adam(), cz_rule_sgd()},
                         200,
                         k / 2 ? "all_reduce" : NULL,
                         k % 2 == 0,
                         k % 2 == 1});
}

/* ---- failures ---- */

static const trial plain = {{NULL, NULL}, 1, NULL, false, false};

static cz_status expect(cz_status got, cz_status status, const char *sentence)
{
    if (got == status && strstr(cz_last_error(), sentence))
        return CZ_OK;
    return cz_fail(CZ_ERR_STATE, "got %s '%s', wanted %s '%s'", cz_status_name(got),
                   got == CZ_OK ? "" : cz_last_error(), cz_status_name(status), sentence);
}

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
    if (*(bool *)state && cz_bucket_index(bucket) == 3)
        return cz_fail(CZ_ERR_STATE, "no hook");
    return cz_all_reduce(cz_bucket_group(bucket), cz_bucket_buffer(bucket), cz_bucket_count(bucket),
                         cz_bucket_dtype(bucket), CZ_AVERAGE, NULL);
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
    CZ_TRY(expect(one_pass(s, group, t, 0, true), CZ_ERR_MISMATCH, "hyper-parameters"));
    CZ_TRY(cz_optim_set_hyper(s->optims[0], 2, "lr", 0.25));
    *fails = odd;
    CZ_TRY(expect(one_pass(s, group, t, 0, true), CZ_ERR_STATE, "not now"));
    *fails = false;
    CZ_TRY(check_equal(s, group));
    for (int p = 0; p < PARAMS; p++)
        if (cz_optim_step_count(s->optims[0], p) != 0)
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
    if (status == CZ_OK)
        status = fail_on_one(&s, group, &t, &fails);
    clear(&s);
    return status;
}

static void test_what_is_wrong_on_one_rank(void **state)
{
    for (int world = 2; world <= 5; world++)
        run(world, fail_body, NULL);
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
    if (status == CZ_OK)
        status = cz_ddp_register_hook(s.ddp, &hook);
    if (status == CZ_OK)
        status = cz_ddp_step_in_backward(s.ddp, s.in_backward);
    for (int pass = 0; pass < 3 && status == CZ_OK; pass++) {
        status = one_pass(&s, group, &t, pass, true);
        if (pass == 0)
            status = expect(status, CZ_ERR_STATE, "no hook");
        if (status == CZ_OK)
            status = check_equal(&s, group);
        fails = false;
    }
    int64_t steps = 0;
    for (int p = 0; p < PARAMS; p++)
        steps += cz_optim_step_count(s.optims[0], p);
    if (status == CZ_OK && (steps <= 2 * PARAMS || steps >= 3 * PARAMS))
        status = cz_fail(CZ_ERR_STATE, "%d updates in all", (int)steps);
    clear(&s);
    return status;
}

static void test_a_hook_that_fails_on_one_rank(void **state)
{
    for (int world = 2; world <= 5; world++)
        run(world, hook_body, NULL);
}

/* ---- refused ---- */

static void test_what_is_refused(void **state)
{
    trial t = plain;
    subject s = {0}, other = {0};
    cz_group *group;
    cz_zero *zero;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    t.rules[0] = cz_rule_sgd();
    assert_int_equal(cz_group_create_self(&group, NULL), CZ_OK);
    assert_int_equal(create(&s, group, &t), CZ_OK);
    assert_int_equal(create(&other, group, &t), CZ_OK);
    assert_int_equal(cz_ddp_step_in_backward(NULL, s.in_backward), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, other.in_backward), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, NULL), CZ_OK);
    assert_int_equal(cz_ddp_begin(s.ddp, true), CZ_OK);
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, s.in_backward), CZ_ERR_STATE);
    for (int p = 0; p < PARAMS; p++)
        assert_int_equal(cz_ddp_mark_ready(s.ddp, p), CZ_OK);
    assert_int_equal(cz_ddp_finish(s.ddp), CZ_OK);

    assert_int_equal(cz_ddp_step_in_backward(s.ddp, s.in_backward), CZ_OK);
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

    /* taken off, they are the program's again, and a sharded one can come, which in turn keeps them out */
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, NULL), CZ_OK);
    assert_int_equal(cz_in_backward_begin(s.in_backward, NULL), CZ_OK);
    assert_int_equal(cz_in_backward_mark_ready(s.in_backward, 0, NULL), CZ_OK);
    assert_int_equal(
        cz_zero_create(&zero, group, s.memory.model, cz_rule_sgd(), CZ_HYPERS({"lr", 1}), &options),
        CZ_OK);
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, s.in_backward), CZ_ERR_STATE);
    cz_zero_destroy(&zero);
    assert_int_equal(cz_ddp_register_hook_by_name(s.ddp, "reduce_scatter", NULL), CZ_OK);
    assert_int_equal(cz_ddp_step_in_backward(s.ddp, s.in_backward), CZ_ERR_UNSUPPORTED);

    /* with the ddp gone, too */
    assert_int_equal(cz_ddp_step_in_backward(other.ddp, other.in_backward), CZ_OK);
    cz_ddp_destroy(&other.ddp);
    assert_int_equal(cz_in_backward_begin(other.in_backward, NULL), CZ_OK);
    clear(&s);
    clear(&other);
    cz_group_destroy(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_L3_the_bits_of_one_process),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_unused_frozen_and_added_up),
        cmocka_unit_test(test_what_is_wrong_on_one_rank),
        cmocka_unit_test(test_a_hook_that_fails_on_one_rank),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
