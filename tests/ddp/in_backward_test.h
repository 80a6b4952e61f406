/* SPDX-License-Identifier: MIT */
/* One rank's model and ddp with unsharded optimizers inside its passes. */
#ifndef CZ_IN_BACKWARD_TEST_H
#define CZ_IN_BACKWARD_TEST_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "czero/hooks.h"
#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 9, STEPS = 5, OPTIMS = 2, TIED = 3 };
static const int64_t sizes[PARAMS] = {40, 0, 3, 131, 7, 16, 300, 1, 64};

typedef struct trial {
    const cz_rule *rules[OPTIMS]; /* the second NULL: one optimizer */
    size_t bucket_bytes;
    const char *hook;
    bool uneven; /* parameters that are unused here and there, or everywhere, and a frozen one */
    bool micro;  /* every other pass does not synchronise */
    bool tied;   /* one is complete at its second mark */
    bool join;   /* rank r has r + 1 inputs */
    bool keep;   /* buckets stay as they are */
    bool seeded; /* ranks round by chance, each in its own way */
} trial;

typedef struct subject {
    cz_test_memory memory;
    cz_optim *optims[OPTIMS];
    int optim_count;
    cz_in_backward *in_backward;
    cz_ddp *ddp;
    atomic_int released[PARAMS];
} subject;

static inline void clear(subject *s)
{
    cz_ddp_destroy(&s->ddp);
    cz_in_backward_destroy(&s->in_backward);
    for (int k = 0; k < OPTIMS; k++)
        cz_optim_destroy(&s->optims[k]);
    cz_test_memory_destroy(&s->memory);
}

/* Three groups with a rate and a decay of their own. */
static inline cz_status create_optims(subject *s, cz_group *group, const trial *t)
{
    static const int64_t members[] = {8, 1, 3, 0, 2, 4, 7, 5, 6}, some[] = {3, 6, 8};
    const cz_param_group groups[] = {{.size = sizeof(cz_param_group),
                                      .params = members,
                                      .param_count = 3,
                                      .hypers = CZ_HYPERS({"weight_decay", 0.25})},
                                     {.size = sizeof(cz_param_group),
                                      .params = members + 3,
                                      .param_count = 4,
                                      .hypers = CZ_HYPERS({"lr", 0.25})},
                                     {.size = sizeof(cz_param_group),
                                      .params = members + 7,
                                      .param_count = 2,
                                      .hypers = CZ_HYPERS({"lr", 0.0625}, {"weight_decay", 0.5})}};
    const cz_param_group other = {
        .size = sizeof(cz_param_group), .params = some, .param_count = 3, .hypers = NULL};
    const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};
    cz_optim_options options = {sizeof options, groups, 3, 0, 0};
    options.seed = t->seeded ? (uint64_t)cz_group_rank(group) : 0;
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    s->optim_count = t->rules[1] ? 2 : 1;
    for (int k = 0; k < s->optim_count; k++) {
        CZ_TRY(cz_optim_create(&s->optims[k], s->memory.model, t->rules[k],
                               CZ_HYPERS({"lr", 0.125}), &options));
        options = (cz_optim_options){sizeof options, &other, 1, 0, 0};
    }
    return CZ_OK;
}

/* Nothing may need what is there any more. */
static inline void released(int64_t param, void *gradient, void *context)
{
    subject *s = context;
    memset(gradient, 0xff, (size_t)sizes[param] * sizeof(float));
    atomic_fetch_add(&s->released[param], gradient == s->memory.grads[param] ? 1 : 1000);
}

static inline cz_status create(subject *s, cz_group *group, const trial *t)
{
    const cz_in_backward_options options = {sizeof options, released, s};
    cz_ddp_options buckets = CZ_DDP_OPTIONS_INIT;
    buckets.bucket_bytes = buckets.first_bucket_bytes = t->bucket_bytes;
    buckets.find_unused = t->uneven;
    buckets.keep_buckets = t->keep;
    CZ_TRY(create_optims(s, group, t));
    CZ_TRY(cz_ddp_create(&s->ddp, group, s->memory.model, &buckets));
    CZ_TRY(cz_ddp_set_uses(s->ddp, TIED, t->tied ? 2 : 1));
    if (t->hook)
        CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, t->hook, NULL));
    return cz_in_backward_create(&s->in_backward, s->optims, s->optim_count, &options);
}

/* ---- passes ---- */

static inline float part(int rank, int pass, int p, int64_t i)
{
    return (float)((rank + 1) * ((i + p + pass) % 5 - 2)) / 32;
}

static inline bool unused(const trial *t, int rank, int p)
{
    return t->uneven && (p == 5 || (p == 3 && rank % 2 == 1));
}

static inline bool frozen(const trial *t, int pass, int p)
{
    return t->uneven && p == 4 && pass % 3 == 1;
}

static inline cz_status one_pass(subject *s, cz_group *group, const trial *t, int pass, bool sync)
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
    if (t->tied) /* not all of it is there at its first mark */
        ((float *)s->memory.grads[TIED])[0] -= 64;
    CZ_TRY(cz_ddp_begin(s->ddp, sync));
    for (int k = 0; k < PARAMS; k++) {
        static const int strides[] = {1, 2, 4, 5};
        const int p = (k * strides[(rank + pass) % 4] + rank) % PARAMS;
        if (!unused(t, rank, p))
            CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    }
    if (t->tied) {
        ((float *)s->memory.grads[TIED])[0] += 64;
        CZ_TRY(cz_ddp_mark_ready(s->ddp, TIED));
    }
    return cz_ddp_finish(s->ddp);
}

#endif
