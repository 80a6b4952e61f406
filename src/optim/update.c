/* SPDX-License-Identifier: MIT */
/* The update: the rule's kernel over every span that is here and has a gradient. */
#include "optim/object.h"

#include <string.h>

static void prepare_afresh(cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    const cz_rule_step step = {
        .hypers = optim->groups[optim->group_of[param]].hypers,
        .step = optim->steps[param] + 1,
        .scalars = optim->scalar_count > 0 ? optim->scalars + param * optim->scalar_count : NULL,
    };
    memset(prepared, 0, sizeof *prepared);
    optim->rule->prepare(&step, prepared->coefficients, &prepared->flags);
    prepared->flags &= ~CZ_UPDATE_FIRST;
    prepared->step = step.step;
}

/* Where parameters have nothing of their own to prepare from, those of a group share the outcome. */
static const cz__prepared *prepare(cz_optim *optim, int64_t param, cz__prepared *own)
{
    const int64_t step = optim->steps[param] + 1;
    cz__prepared *shared = &optim->groups[optim->group_of[param]].prepared[step % CZ__PREPARED];
    cz__prepared *prepared = optim->scalar_count > 0 ? own : shared;
    if (prepared == own || prepared->step != step)
        prepare_afresh(optim, param, prepared);
    return prepared;
}

static bool takes_part(const cz_optim *optim, const cz__local_span *span, void *const *gradients)
{
    return gradients[span->param] && cz_model_requires_grad(optim->model, span->param);
}

static void update_span(const cz_optim *optim, int64_t place, const char *gradient,
                        const cz__prepared *prepared, unsigned flags)
{
    const cz__local_span *span = &optim->shard.spans[place];
    const unsigned in_use = optim->groups[span->group].slots_used;
    void *slots[CZ__RULE_SLOTS] = {NULL};
    for (int e = 0; e < optim->slot_count; e++)
        slots[e] = in_use >> e & 1u ? optim->shard.slots[place * optim->slot_count + e] : NULL;
    optim->kernel(NULL, span->end - span->begin, span->value,
                  gradient + (size_t)span->begin * optim->element_size, slots,
                  prepared->coefficients, flags);
}

/* All that is here of a parameter, and its step count. Returns the bytes that were read and written. */
static uint64_t update_param(cz_optim *optim, int64_t param, const char *gradient)
{
    cz__prepared own;
    uint64_t elements = 0;
    const unsigned in_use = optim->groups[optim->group_of[param]].slots_used;
    const bool first = in_use && !(optim->used[param] & in_use);
    cz__optim_start(optim, param, in_use);
    const cz__prepared *prepared = prepare(optim, param, &own);
    const unsigned flags = prepared->flags | (first ? CZ_UPDATE_FIRST : 0u);
    for (int64_t s = optim->shard.first_span[param]; s >= 0; s = optim->shard.spans[s].next) {
        const int64_t count = optim->shard.spans[s].end - optim->shard.spans[s].begin;
        if (count > 0)
            update_span(optim, s, gradient, prepared, flags);
        elements += (uint64_t)count;
    }
    optim->steps[param]++;
    /* the gradient is read, the others are read and written */
    return (3 + 2 * (uint64_t)__builtin_popcount(in_use)) * elements * optim->element_size;
}

uint64_t cz__optim_update(cz_optim *optim, void *const *gradients)
{
    uint64_t bytes = 0;
    optim->stepped = true;
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const int64_t param = optim->shard.spans[s].param;
        if (optim->shard.first_span[param] == s &&
            takes_part(optim, &optim->shard.spans[s], gradients))
            bytes += update_param(optim, param, gradients[param]);
    }
    return bytes;
}

bool cz__optim_stepped(const cz_optim *optim)
{
    return optim->stepped;
}
