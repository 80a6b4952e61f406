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
static void begin(cz_optim *optim, int64_t param, cz__prepared *prepared)
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
    void *slots[CZ__RULE_SLOTS]; /* the rule's; NULL where not in use */
} span_memory;

static void find_memory(span_memory *memory, const cz_optim *optim, const cz__piece *piece)
{
    const cz__local_span *span = &optim->shard.spans[piece->place];
    const unsigned in_use = optim->groups[span->group].slots_used;
    const size_t first = (size_t)piece->first * optim->element_size;
    const size_t offset = (size_t)span->begin * optim->element_size + first;
    char *const *slots = (char *const *)optim->shard.slots + piece->place * optim->slot_count;
    memory->count = piece->count;
    memory->value = (char *)optim->tables.values[span->param] + offset;
    memory->gradient = piece->gradient + offset;
    for (int e = 0; e < optim->slot_count; e++)
        memory->slots[e] = in_use >> e & 1u ? slots[e] + first : NULL;
}

static void update_tensor(const cz_optim *optim, int64_t param, const span_memory *memory,
                          const cz__prepared *prepared, int part)
{
    const cz_device *device = cz__device_of(cz_model_value(optim->model, param));
    const cz_tensor_update update = {
        .param = cz_model_value(optim->model, param),
        .grad = memory->gradient,
        .slots = memory->slots,
        .coefficients = prepared->coefficients,
        .flags = prepared->flags,
        .scratch = cz__optim_scratch(optim, device, part),
        .context = optim->rule->context,
    };
    optim->rule->update_tensor(&update);
}

void cz__optim_update_piece(const cz_optim *optim, const cz__piece *piece,
                            const cz__prepared *prepared)
{
    span_memory memory;
    find_memory(&memory, optim, piece);
    if (optim->rule->update_tensor)
        update_tensor(optim, optim->shard.spans[piece->place].param, &memory, prepared,
                      piece->part);
    else
        optim->kernel(NULL, memory.count, memory.value, memory.gradient, memory.slots,
                      prepared->coefficients, prepared->flags);
}

void cz__optim_add_sums_of_piece(const cz_optim *optim, const cz__piece *piece,
                                 const cz__prepared *prepared, cz_sum *sums)
{
    span_memory memory;
    find_memory(&memory, optim, piece);
    optim->sums_kernel(NULL, memory.count, memory.value, memory.gradient, memory.slots,
                       prepared->coefficients, prepared->flags, sums);
}

static cz__piece whole(const cz_optim *optim, int64_t place, const char *gradient)
{
    const cz__local_span *span = &optim->shard.spans[place];
    return (cz__piece){.place = place, .count = span->end - span->begin, .gradient = gradient};
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

void cz__optim_begin_param(cz_optim *optim, int64_t param, cz__prepared *prepared)
{
    if (optim->rule->sum_count > 0) {
        *prepared = optim->shard.prepared[optim->shard.first_span[param]];
        combine(optim, param, prepared);
    } else {
        begin(optim, param, prepared);
    }
}

/* The gradient is read, the others are read and written. */
uint64_t cz__optim_element_traffic(const cz_optim *optim, int64_t param_group)
{
    const unsigned in_use = optim->groups[param_group].slots_used;
    return (3 + 2 * (uint64_t)__builtin_popcount(in_use)) * optim->element_size;
}

/* And its step count. Returns the bytes that were read and written. */
static uint64_t update_param(cz_optim *optim, int64_t param, const char *gradient)
{
    cz__prepared prepared;
    uint64_t elements = 0;
    cz__optim_begin_param(optim, param, &prepared);
    for (int64_t s = optim->shard.first_span[param]; s >= 0; s = optim->shard.spans[s].next) {
        const cz__piece piece = whole(optim, s, gradient);
        if (piece.count > 0)
            cz__optim_update_piece(optim, &piece, &prepared);
        elements += (uint64_t)piece.count;
    }
    optim->steps[param]++;
    return elements * cz__optim_element_traffic(optim, optim->group_of[param]);
}

void cz__optim_begin_sums(cz_optim *optim, int64_t param)
{
    begin(optim, param, &optim->shard.prepared[optim->shard.first_span[param]]);
    memset(cz__optim_sums(optim, param), 0, (size_t)optim->rule->sum_count * sizeof(cz_sum));
}

void cz__optim_end_sums(cz_optim *optim, int64_t param)
{
    cz_sum *sums = cz__optim_sums(optim, param);
    for (int k = 0; k < optim->rule->sum_count; k++)
        cz_sum_settle(&sums[k]);
}

static void add_sums_of_param(cz_optim *optim, int64_t param, const char *gradient)
{
    const int64_t head = optim->shard.first_span[param];
    cz__optim_begin_sums(optim, param);
    for (int64_t s = head; s >= 0; s = optim->shard.spans[s].next) {
        const cz__piece piece = whole(optim, s, gradient);
        if (piece.count > 0)
            cz__optim_add_sums_of_piece(optim, &piece, &optim->shard.prepared[head],
                                        cz__optim_sums(optim, param));
    }
    cz__optim_end_sums(optim, param);
}

/* ---- all of them ---- */

/* Does a span begin the list of a parameter that takes part in the step? */
static bool begins_param(const cz_optim *optim, int64_t place, void *const *gradients)
{
    const int64_t param = optim->shard.spans[place].param;
    return optim->shard.first_span[param] == place && gradients[param] &&
           optim->tables.trainable[param];
}

void cz__optim_update_sums(cz_optim *optim, void *const *gradients)
{
    if (cz__optim_works_in_parts(optim)) {
        cz__optim_update_sums_in_parts(optim, gradients);
        return;
    }
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (begins_param(optim, s, gradients))
            add_sums_of_param(optim, optim->shard.spans[s].param,
                              gradients[optim->shard.spans[s].param]);
}

/* Is something of it here, and does it take part in steps? */
static bool is_updated(const cz_optim *optim, int64_t param)
{
    return cz__optim_holds(optim, param) && optim->tables.trainable[param];
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
    if (cz__optim_works_in_parts(optim))
        return cz__optim_update_in_parts(optim, gradients);
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

bool cz__optim_is_fresh(const cz_optim *optim)
{
    return !optim->stepped && !optim->loaded;
}
