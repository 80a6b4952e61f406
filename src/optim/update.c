/* SPDX-License-Identifier: MIT */
/* The update: the rule's kernel over every span that is here and has a gradient. */
#include "optim/object.h"

#include <string.h>

static const cz__prepared *prepare(const cz_rule *rule, cz__optim_group *group, int64_t step)
{
    cz__prepared *prepared = &group->prepared[step % CZ__PREPARED];
    if (prepared->step != step) {
        memset(prepared, 0, sizeof *prepared);
        rule->prepare(group->hypers, step, prepared->coefficients, &prepared->flags);
        prepared->flags &= ~CZ_UPDATE_FIRST;
        prepared->step = step;
    }
    return prepared;
}

static bool takes_part(const cz_optim *optim, const cz__local_span *span, void *const *gradients)
{
    return gradients[span->param] && cz_model_requires_grad(optim->model, span->param);
}

/* Returns the bytes that were read and written. */
static uint64_t update_span(cz_optim *optim, int64_t place, const char *gradient)
{
    const cz__local_span *span = &optim->shard.spans[place];
    const int64_t count = span->end - span->begin;
    if (count == 0)
        return 0;
    cz__optim_group *group = &optim->groups[span->group];
    const unsigned in_use = group->slots_used;
    const cz__prepared *prepared = prepare(optim->rule, group, optim->steps[span->param] + 1);
    void *slots[CZ__RULE_SLOTS] = {NULL};
    for (int e = 0; e < optim->slot_count; e++)
        slots[e] = in_use >> e & 1u ? optim->shard.slots[place * optim->slot_count + e] : NULL;
    const bool first = in_use && !(optim->used[span->param] & in_use);
    optim->kernel(NULL, count, span->value, gradient + (size_t)span->begin * optim->element_size,
                  slots, prepared->coefficients, prepared->flags | (first ? CZ_UPDATE_FIRST : 0u));
    /* the gradient is read, the others are read and written */
    const uint64_t accesses = 3 + 2 * (uint64_t)__builtin_popcount(in_use);
    return accesses * (uint64_t)count * optim->element_size;
}

uint64_t cz__optim_update(cz_optim *optim, void *const *gradients)
{
    uint64_t bytes = 0;
    optim->stepped = true;
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (takes_part(optim, &optim->shard.spans[s], gradients))
            bytes += update_span(optim, s, gradients[optim->shard.spans[s].param]);
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const cz__local_span *span = &optim->shard.spans[s];
        if (optim->shard.first_span[span->param] != s || !takes_part(optim, span, gradients))
            continue; /* counted once, after all its spans */
        optim->steps[span->param]++;
        optim->used[span->param] |= optim->groups[span->group].slots_used;
    }
    return bytes;
}

int64_t cz_optim_step_count(const cz_optim *optim, int64_t param)
{
    return optim && param >= 0 && param < optim->param_count ? optim->steps[param] : 0;
}

bool cz__optim_stepped(const cz_optim *optim)
{
    return optim->stepped;
}
