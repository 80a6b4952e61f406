/* SPDX-License-Identifier: MIT */
/* Unsharded optimizers inside passes: the bits of one process that steps on the mean, with several
 * groups and rules, and gradients whose memory is used again within the pass. */
#include <sched.h>

#include "czero/czero.h"
#include "ddp/in_backward_test.h"
#include "support/joinables.h"
#include "ddp/ddp.h"

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
                sum += unused(t, r, p) || (t->join && pass > r) ? 0 : part(r, pass, p, i);
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
        THEN(cz_optim_state_dict(wanted->optims[k], &b));
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

/* Ranks that have joined make the others' updates. */
static cz_status train_unevenly(subject *s, subject *reference, cz_group *group, const trial *t)
{
    const int rank = cz_group_rank(group), passes = cz_group_size(group);
    const cz_joinable joinable = cz_test_join_ddp(s->ddp);
    cz_join *join = NULL;
    CZ_TRY(cz_ddp_step_in_backward(s->ddp, s->in_backward));
    CZ_TRY(cz_join_begin(&join, group, &joinable, 1, NULL));
    cz_status status = CZ_OK;
    for (int pass = 0; pass <= rank && status == CZ_OK; pass++)
        status = one_pass(s, group, t, pass, true);
    CZ_TRY(cz_join_end(&join, status));
    for (int pass = 0; pass < passes; pass++)
        CZ_TRY(reference_step(reference, t, passes, pass));
    for (int p = 0; p < PARAMS; p++)
        if (s->released[p] != passes)
            return cz_fail(CZ_ERR_STATE, "parameter %d was released %d times", p, s->released[p]);
    return compare(s, reference, passes);
}

/* ---- one gradient after the other in the same memory ---- */

static void share_memory(subject *s, float *shared)
{
    for (int p = 0; p < PARAMS; p++) {
        s->memory.grads[p] = shared;
        (void)cz_model_set_gradient(s->memory.model, p, shared);
    }
}

/* Bucket by bucket, of one parameter each but for that without elements. */
static cz_status pass_in_shared_memory(subject *s, cz_group *group, int pass)
{
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int b = 0; b < cz__ddp_bucket_count(s->ddp); b++) {
        const int64_t params = cz__ddp_bucket_param_count(s->ddp, b);
        for (int64_t k = 0; k < params; k++) {
            const int p = (int)cz__ddp_bucket_param(s->ddp, b, k);
            for (int64_t i = 0; i < sizes[p]; i++)
                ((float *)s->memory.grads[p])[i] = part(cz_group_rank(group), pass, p, i);
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
        }
        for (int64_t k = 0; k < params; k++)
            while (s->released[cz__ddp_bucket_param(s->ddp, b, k)] == pass)
                sched_yield();
    }
    return cz_ddp_finish(s->ddp);
}

static cz_status train_in_shared_memory(subject *s, subject *reference, cz_group *group,
                                        const trial *t)
{
    float shared[300];
    share_memory(s, shared);
    CZ_TRY(cz_ddp_step_in_backward(s->ddp, s->in_backward));
    for (int pass = 0; pass < STEPS; pass++) {
        CZ_TRY(pass_in_shared_memory(s, group, pass));
        CZ_TRY(reference_step(reference, t, cz_group_size(group), pass));
        CZ_TRY(compare(s, reference, pass));
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

typedef cz_status (*training)(subject *s, subject *reference, cz_group *group, const trial *t);

static cz_status run_way(cz_group *group, const trial *t, training train_it)
{
    subject s = {0}, reference = {0};
    cz_status status = create(&s, group, t);
    THEN(create_optims(&reference, group, t));
    THEN(train_it(&s, &reference, group, t));
    clear(&s);
    clear(&reference);
    return status;
}

static cz_status train_body(cz_group *group, void *context)
{
    const trial *t = context;
    return run_way(group, t, t->join ? train_unevenly : train);
}

static cz_status shared_body(cz_group *group, void *context)
{
    return run_way(group, context, train_in_shared_memory);
}

static const int worlds[] = {1, 2, 3, 5, 7};

/* groups with a rate and decay each, update inside the pass. */
TEST(groups_updated_inside_passes_have_the_bits_of_one_process)
{
    static const size_t caps[] = {1, 200, 1 << 20};
    static const char *const hooks[] = {NULL, "all_reduce"};
    for (size_t w = 0; w < 5; w++)
        for (size_t k = 0; k < 6; k++)
            assert_ranks_ok(worlds[w], train_body,
                            &(trial){.rules = {cz_rule_adam()},
                                     .bucket_bytes = caps[k / 2],
                                     .hook = hooks[k % 2]});
}

TEST(rules)
{
    const cz_rule *rules[] = {cz_rule_sgd(), cz_rule_nadam(), cz_rule_adagrad(), cz_rule_lamb(),
                              cz_rule_schedule_free_adamw()};
    for (size_t w = 0; w < 5; w++)
        for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
            assert_ranks_ok(worlds[w], train_body,
                            &(trial){.rules = {rules[k], cz_rule_adam()}, .bucket_bytes = 200});
}

TEST(unused_frozen_and_added_up)
{
    for (size_t w = 0; w < 5; w++)
        for (int k = 0; k < 4; k++)
            assert_ranks_ok(worlds[w], train_body,
                            &(trial){.rules = {cz_rule_adam(), cz_rule_sgd()},
                                     .bucket_bytes = 200,
                                     .hook = k / 2 ? "all_reduce" : NULL,
                                     .uneven = k % 2 == 0,
                                     .micro = k % 2 == 1});
}

TEST(tied)
{
    static const size_t caps[] = {1, 200, 1 << 20};
    for (size_t w = 0; w < 5; w++)
        for (size_t c = 0; c < 3; c++)
            for (int micro = 0; micro < 2; micro++)
                assert_ranks_ok(worlds[w], train_body,
                                &(trial){.rules = {cz_rule_adam()},
                                         .bucket_bytes = caps[c],
                                         .micro = micro,
                                         .tied = true});
}

TEST(uneven_inputs)
{
    for (size_t w = 0; w < 5; w++)
        for (int hooked = 0; hooked < 2; hooked++)
            assert_ranks_ok(worlds[w], train_body,
                            &(trial){.rules = {cz_rule_adam()},
                                     .bucket_bytes = 200,
                                     .hook = hooked ? "all_reduce" : NULL,
                                     .join = true});
}

/* All gradients of a pass in the memory of the largest. */
TEST(memory_is_free_again)
{
    for (size_t w = 0; w < 5; w++)
        for (int hooked = 0; hooked < 2; hooked++)
            assert_ranks_ok(worlds[w], shared_body,
                            &(trial){.rules = {cz_rule_adam()},
                                     .bucket_bytes = 1,
                                     .hook = hooked ? "all_reduce" : NULL,
                                     .keep = true});
}
