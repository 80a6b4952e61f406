/* SPDX-License-Identifier: MIT */
/* The update: the rule's kernel over every span that is here and has a gradient. Rules with partial sums make
 * two passes; those that need whole tensors have a function of their own. */
#include "optim/object.h"
#include "tensor/model.h"

#include <string.h>

/* ---- what a rule prepares ---- */

static cz_rule_step step_of(const cz_optim *optim, int64_t param)
{
    return (cz_rule_step){
        .hypers = optim->groups[optim->group_of[param]].hypers,
        .step = optim->steps[param] + 1,
        .scalars = optim->scalar_count > 0 ? optim->scalars + param * optim->scalar_count : NULL,
        .argument = optim->argument,
        .context = optim->rule->context,
    };
}

static void prepare_afresh(const cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    const cz_rule_step step = step_of(optim, param);
    memset(prepared, 0, sizeof *prepared);
    optim->rule->prepare(&step, prepared->coefficients, &prepared->flags);
    prepared->flags &= ~CZ_UPDATE_FIRST;
    prepared->step = step.step;
}

/* Where parameters have nothing of their own to prepare from, those of a group share the outcome. */
static void prepare(const cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    const int64_t step = optim->steps[param] + 1;
    cz__prepared *shared = &optim->groups[optim->group_of[param]].prepared[step % CZ__PREPARED];
    if (optim->scalar_count > 0 || optim->argument) {
        prepare_afresh(optim, param, prepared);
        return;
    }
    if (shared->step != step)
        prepare_afresh(optim, param, shared);
    *prepared = *shared;
}

/* A parameter's step begins: its slots are in use, the coefficients are made. */
static void begin_param(cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    const unsigned in_use = optim->groups[optim->group_of[param]].slots_used;
    const bool first = in_use && !(optim->used[param] & in_use);
    cz__optim_start(optim, param, in_use);
    prepare(optim, param, prepared);
    prepared->flags |= first ? CZ_UPDATE_FIRST : 0u;
}

/* ---- one span ---- */

/* Where it is now: another optimizer may have moved the value into its buckets, or back. */
typedef struct span_memory {
    int64_t count;
    char *value;
    const char *gradient;
    void *slots[CZ__RULE_SLOTS]; /* NULL where not in use */
} span_memory;

static span_memory memory_of(const cz_optim *optim, int64_t place, const char *gradient)
{
    const cz__local_span *span = &optim->shard.spans[place];
    const unsigned in_use = optim->groups[span->group].slots_used;
    const size_t offset = (size_t)span->begin * optim->element_size;
    span_memory memory = {
        .count = span->end - span->begin,
        .value = (char *)cz_model_value(optim->model, span->param)->data + offset,
        .gradient = gradient + offset,
    };
    for (int e = 0; e < optim->slot_count; e++)
        if (in_use >> e & 1u)
            memory.slots[e] = optim->shard.slots[place * optim->slot_count + e];
    return memory;
}

static void update_tensor(const cz_optim *optim, int64_t param, const span_memory *memory,
                          const cz__prepared *prepared)
{
    const cz_tensor_update update = {
        .param = cz_model_value(optim->model, param),
        .grad = memory->gradient,
        .slots = memory->slots,
        .coefficients = prepared->coefficients,
        .flags = prepared->flags,
        .scratch = cz__optim_scratch(optim, cz__device_of(cz_model_value(optim->model, param))),
        .context = optim->rule->context,
    };
    optim->rule->update_tensor(&update);
}

static void update_span(const cz_optim *optim, int64_t place, const char *gradient,
                        const cz__prepared *prepared)
{
    const cz__local_span *span = &optim->shard.spans[place];
    const span_memory memory = memory_of(optim, place, gradient);
    if (optim->rule->update_tensor)
        update_tensor(optim, span->param, &memory, prepared);
    else
        optim->kernel(NULL, memory.count, memory.value, memory.gradient, memory.slots,
                      prepared->coefficients, prepared->flags);
}

static void add_sums_of_span(const cz_optim *optim, int64_t place, const char *gradient,
                             const cz__prepared *prepared, cz_sum *sums)
{
    const span_memory memory = memory_of(optim, place, gradient);
    optim->sums_kernel(NULL, memory.count, memory.value, memory.gradient, memory.slots,
                       prepared->coefficients, prepared->flags, sums);
}

/* ---- one parameter: all that is here of it ---- */

static void combine(const cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    const cz_rule_step step = step_of(optim, param);
    const unsigned first = prepared->flags & CZ_UPDATE_FIRST;
    optim->rule->combine(&step, cz__optim_sum_values(optim, param), prepared->coefficients,
                         &prepared->flags);
    prepared->flags = (prepared->flags & ~CZ_UPDATE_FIRST) | first;
}

/* And its step count. Returns the bytes that were read and written. */
static uint64_t update_param(cz_optim *optim, int64_t param, const char *gradient)
{
    cz__prepared prepared;
    uint64_t elements = 0;
    const int64_t head = optim->shard.first_span[param];
    if (optim->rule->sum_count > 0) {
        prepared = optim->shard.prepared[head];
        combine(optim, param, &prepared);
    } else {
        begin_param(optim, param, &prepared);
    }
    for (int64_t s = head; s >= 0; s = optim->shard.spans[s].next) {
        const int64_t count = optim->shard.spans[s].end - optim->shard.spans[s].begin;
        if (count > 0)
            update_span(optim, s, gradient, &prepared);
        elements += (uint64_t)count;
    }
    optim->steps[param]++;
    /* the gradient is read, the others are read and written */
    const unsigned in_use = optim->groups[optim->group_of[param]].slots_used;
    return (3 + 2 * (uint64_t)__builtin_popcount(in_use)) * elements * optim->element_size;
}

static void add_sums_of_param(cz_optim *optim, int64_t param, const char *gradient)
{
    const int count = optim->rule->sum_count;
    cz_sum *sums = cz__optim_sums(optim, param);
    cz__prepared *prepared = &optim->shard.prepared[optim->shard.first_span[param]];
    begin_param(optim, param, prepared);
    memset(sums, 0, (size_t)count * sizeof *sums);
    for (int64_t s = optim->shard.first_span[param]; s >= 0; s = optim->shard.spans[s].next)
        if (optim->shard.spans[s].end > optim->shard.spans[s].begin)
            add_sums_of_span(optim, s, gradient, prepared, sums);
    for (int k = 0; k < count; k++)
        cz_sum_settle(&sums[k]);
}

/* ---- all of them ---- */

/* Does a span begin the list of a parameter that takes part in the step? */
static bool begins_param(const cz_optim *optim, int64_t place, void *const *gradients)
{
    const int64_t param = optim->shard.spans[place].param;
    return optim->shard.first_span[param] == place && gradients[param] &&
           cz_model_requires_grad(optim->model, param);
}

void cz__optim_update_sums(cz_optim *optim, void *const *gradients)
{
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (begins_param(optim, s, gradients))
            add_sums_of_param(optim, optim->shard.spans[s].param,
                              gradients[optim->shard.spans[s].param]);
}

/* Is something of it here, and does it take part in steps? */
static bool is_updated(const cz_optim *optim, int64_t param)
{
    return cz__optim_holds(optim, param) && cz_model_requires_grad(optim->model, param);
}

void cz__optim_update_sums_param(cz_optim *optim, int64_t param, const void *gradient)
{
    if (is_updated(optim, param))
        add_sums_of_param(optim, param, gradient);
}

uint64_t cz__optim_update(cz_optim *optim, void *const *gradients)
{
    uint64_t bytes = 0;
    optim->stepped = true;
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (begins_param(optim, s, gradients))
            bytes += update_param(optim, optim->shard.spans[s].param,
                                  gradients[optim->shard.spans[s].param]);
    return bytes;
}

uint64_t cz__optim_update_param(cz_optim *optim, int64_t param, const void *gradient)
{
    optim->stepped = true;
    return is_updated(optim, param) ? update_param(optim, param, gradient) : 0;
}

int cz__optim_sum_count(const cz_optim *optim)
{
    return optim->rule->sum_count;
}

cz_sum *cz__optim_sums(const cz_optim *optim, int64_t param)
{
    const int64_t head = optim->shard.first_span[param];
    return head < 0 ? NULL : optim->shard.sums + head * optim->rule->sum_count;
}

double *cz__optim_sum_values(const cz_optim *optim, int64_t param)
{
    return optim->sum_values + param * optim->rule->sum_count;
}

bool cz__optim_stepped(const cz_optim *optim)
{
    return optim->stepped;
}
