/* SPDX-License-Identifier: MIT */
/* Moving averages of values: which values join them, and with which weight; and what is evaluated
 * in the place of what trains, and back. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "optim/object.h"

/* ---- in the pass of an update ---- */

/* Of the next value, after so many. */
static double weight_of(const cz__optim_group *group, double averaged)
{
    if (averaged == 0)
        return 1;
    if (group->average.kind == CZ_MOVING_AVERAGE_MEAN)
        return 1 / (averaged + 1);
    const double decay = cz__optim_find_extra(group, CZ__AVERAGE_DECAY)->value;
    return 1 - (group->average.warm_up ? fmin(decay, (1 + averaged) / (10 + averaged)) : decay);
}

double cz__optim_begin_average(cz_optim *optim, int64_t param)
{
    const cz__optim_group *group = &optim->groups[optim->group_of[param]];
    const int64_t updates = optim->steps[param] + 1 - group->average.start;
    if (!group->average.kind || updates <= 0 || updates % group->average.every != 0)
        return 0;
    double *averaged = cz__optim_averaged(optim, param);
    if (!(optim->used[param] & cz__optim_average_bit(optim)))
        *averaged = 0;
    else if (*averaged < 1) /* a dictionary has not said how many */
        *averaged = 1;
    cz__optim_start(optim, param, cz__optim_average_bit(optim));
    const double weight = weight_of(group, *averaged);
    *averaged += 1;
    return weight;
}

void cz__optim_average(const cz_device *device, cz_dtype dtype, double weight, int64_t count,
                       const void *values, void *averages)
{
    if (weight == 1)
        (void)device->copy(NULL, averages, values, (size_t)count * cz_dtype_size(dtype));
    else
        (void)device->average(NULL, dtype, weight, count, values, averages);
}

/* ---- in the place of values ---- */

/* How a value becomes the one that is evaluated, and comes back. */
typedef enum way {
    STAYS,
    EXCHANGED,   /* with its average, of its type */
    FROM_MASTER, /* rounded from what is evaluated, and then from the master */
    PUT_ASIDE
} way;

/* What the rule evaluates: the weight of a slot; false: the values. */
static bool ask_rule(const cz__optim_group *group, int *slot, double *weight)
{
    *slot = -1;
    if (!group->rule->evaluated)
        return false;
    *weight = group->rule->evaluated(group->hypers, slot);
    return true;
}

bool cz__optim_has_evaluated(const cz_optim *optim, int64_t param, unsigned used)
{
    int slot;
    double weight;
    if (optim->group_of[param] < 0)
        return false;
    const bool asked = ask_rule(&optim->groups[optim->group_of[param]], &slot, &weight);
    return used & cz__optim_average_bit(optim) || (asked && used >> slot & 1u);
}

static way way_of(const cz_optim *optim, int64_t param)
{
    const unsigned used = optim->used[param];
    const cz_dtype dtype = cz__model_value(optim->model, param)->dtype;
    if (!cz__optim_has_evaluated(optim, param, used))
        return STAYS;
    if (used & cz__optim_average_bit(optim) &&
        cz__optim_slot_dtype(optim, param, optim->average_slot) == dtype)
        return EXCHANGED;
    return used & cz__optim_master_bit(optim) ? FROM_MASTER : PUT_ASIDE;
}

/* A span, where it is. */
typedef struct place {
    const cz__local_span *span;
    const cz_device *device;
    cz_dtype dtype; /* of the value */
    size_t size;
    int64_t count;
    char *value;
    void *const *slots;
    char *kept; /* NULL: nothing */
} place;

static place place_of(const cz_optim *optim, int64_t s)
{
    const cz__local_span *span = &optim->shard.spans[s];
    const cz_dtype dtype = cz__model_value(optim->model, span->param)->dtype;
    const size_t size = cz_dtype_size(dtype);
    return (place){.span = span,
                   .device = span->device,
                   .dtype = dtype,
                   .size = size,
                   .count = span->end - span->begin,
                   .value = (char *)optim->tables.values[span->param] + (size_t)span->begin * size,
                   .slots = optim->shard.slots + s * optim->slot_count,
                   .kept = optim->kept ? optim->kept[s] : NULL};
}

static void exchange(const cz_optim *optim, const place *at)
{
    char *row = cz__optim_scratch(optim, at->device, 0);
    for (int64_t first = 0; first < at->count; first += CZ__TILE) {
        const int64_t left = at->count - first;
        const size_t bytes = (size_t)(left < CZ__TILE ? left : CZ__TILE) * at->size;
        char *value = at->value + (size_t)first * at->size;
        char *average = (char *)at->slots[optim->average_slot] + (size_t)first * at->size;
        (void)at->device->copy(NULL, row, value, bytes);
        (void)at->device->copy(NULL, value, average, bytes);
        (void)at->device->copy(NULL, average, row, bytes);
    }
}

/* value + weight (slot - value), from the master where there is one. */
static void mix(const cz_optim *optim, const place *at, bool from_master, int slot, double weight)
{
    const cz_dtype dtype = optim->dtype;
    const cz_dtype slot_dtype = cz__optim_slot_dtype(optim, at->span->param, slot);
    const size_t slot_size = cz_dtype_size(slot_dtype);
    char *mixed = cz__optim_scratch(optim, at->device, 0);
    char *other = mixed + CZ__ROW * sizeof(double);
    for (int64_t first = 0; first < at->count; first += CZ__TILE) {
        const int64_t left = at->count - first, count = left < CZ__TILE ? left : CZ__TILE;
        char *value = at->value + (size_t)first * at->size;
        if (from_master)
            (void)at->device->copy(NULL, mixed, (float *)at->slots[optim->master_slot] + first,
                                   (size_t)count * sizeof(float));
        else
            (void)at->device->convert(NULL, dtype, mixed, at->dtype, value, count);
        (void)at->device->convert(NULL, dtype, other, slot_dtype,
                                  (char *)at->slots[slot] + (size_t)first * slot_size, count);
        (void)at->device->average(NULL, dtype, weight, count, other, mixed);
        (void)at->device->convert(NULL, at->dtype, value, dtype, mixed, count);
    }
}

static void bring_evaluated(const cz_optim *optim, const place *at, way how)
{
    int slot;
    double weight;
    if (how == FROM_MASTER)
        (void)at->device->refresh(NULL, at->dtype, at->value, at->slots[optim->master_slot],
                                  at->count);
    else
        (void)at->device->copy(NULL, at->kept, at->value, (size_t)at->count * at->size);
    if (optim->used[at->span->param] & cz__optim_average_bit(optim))
        (void)at->device->convert(NULL, at->dtype, at->value,
                                  cz__optim_slot_dtype(optim, at->span->param, optim->average_slot),
                                  at->slots[optim->average_slot], at->count);
    else if (ask_rule(&optim->groups[at->span->group], &slot, &weight))
        mix(optim, at, how == FROM_MASTER, slot, weight);
}

static void bring_trained(const cz_optim *optim, const place *at, way how)
{
    if (how == FROM_MASTER)
        (void)at->device->convert(NULL, at->dtype, at->value, CZ_F32, at->slots[optim->master_slot],
                                  at->count);
    else
        (void)at->device->copy(NULL, at->value, at->kept, (size_t)at->count * at->size);
}

/* ---- in advance, and then ---- */

static cz_status check_group(const cz_optim *optim, int64_t g, bool *any)
{
    int slot;
    double weight;
    const cz__optim_group *group = &optim->groups[g];
    *any = *any || group->average.kind;
    if (group->average.kind || !ask_rule(group, &slot, &weight))
        return CZ_OK;
    *any = true;
    const int slots = cz__optim_use(optim, g)->slot_count;
    if (slot < 0 || slot >= slots)
        return cz__fail(CZ_ERR_ARGUMENT, "evaluate: rule %s names element slot %d of %d",
                        group->rule->name, slot, slots);
    return isfinite(weight) ? CZ_OK
                            : cz__fail(CZ_ERR_STATE,
                                       "evaluate: with the hyper-parameters of parameter group "
                                       "%" PRId64 " rule %s has nothing to evaluate",
                                       g, group->rule->name);
}

static cz_status check_any(const cz_optim *optim)
{
    bool any = false;
    for (int64_t g = 0; g < optim->group_count; g++)
        CZ_TRY(check_group(optim, g, &any));
    return any ? CZ_OK
               : cz__fail(CZ_ERR_STATE,
                          "evaluate: no parameter group has an average (option average), and what "
                          "rule %s evaluates is what it trains",
                          optim->rule->name);
}

void cz__optim_release_kept(cz_optim *optim)
{
    for (int64_t s = 0; optim->kept && s < optim->shard.span_count; s++)
        if (optim->kept[s])
            optim->shard.spans[s].device->release(optim->kept[s]);
    cz__free(optim->kept);
    optim->kept = NULL;
}

static cz_status keep(cz_optim *optim)
{
    optim->kept = cz__calloc((size_t)optim->shard.span_count, sizeof *optim->kept);
    if (!optim->kept)
        return cz__fail(CZ_ERR_MEMORY, "evaluate: no memory for a table of %" PRId64 " spans",
                        optim->shard.span_count);
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const place at = place_of(optim, s);
        if (at.count == 0 || way_of(optim, at.span->param) != PUT_ASIDE)
            continue;
        const cz_status status =
            at.device->allocate(CZ_MEMORY_STAGING, (size_t)at.count * at.size, &optim->kept[s]);
        if (status) {
            optim->kept[s] = NULL;
            return cz__fail_in(status, "evaluate: values that are put aside");
        }
    }
    return CZ_OK;
}

cz_status cz__optim_prepare_evaluation(cz_optim *optim)
{
    CZ_TRY(check_any(optim));
    const cz_status status = keep(optim);
    if (status)
        cz__optim_release_kept(optim);
    return status;
}

void cz__optim_evaluate(cz_optim *optim, bool evaluated)
{
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const place at = place_of(optim, s);
        const way how = way_of(optim, at.span->param);
        if (at.count == 0 || how == STAYS)
            continue;
        if (how == EXCHANGED)
            exchange(optim, &at);
        else if (evaluated)
            bring_evaluated(optim, &at, how);
        else
            bring_trained(optim, &at, how);
    }
    optim->evaluated = evaluated;
    if (!evaluated)
        cz__optim_release_kept(optim);
}

bool cz__optim_is_evaluated(const cz_optim *optim)
{
    return optim->evaluated;
}

cz_status cz__optim_check_trained(const cz_optim *optim, const char *call)
{
    if (!optim->evaluated)
        return CZ_OK;
    return cz__fail(CZ_ERR_STATE,
                    "%s: the values are those to be evaluated; %s(…, false) brings back those that "
                    "train",
                    call, optim->own_map ? "cz_optim_evaluate" : "cz_zero_evaluate");
}

cz_status cz_optim_evaluate(cz_optim *optim, bool evaluated)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!optim)
        return cz__fail(CZ_ERR_ARGUMENT, "optim evaluate: optim is NULL");
    if (!optim->own_map)
        return cz__fail(
            CZ_ERR_STATE,
            "optim evaluate: it is part of a sharded optimizer; see cz_zero_evaluate()");
    if (evaluated == optim->evaluated)
        return CZ_OK;
    if (evaluated) {
        CZ_TRY(cz__optim_prepare(optim));
        CZ_TRY(cz__optim_prepare_evaluation(optim));
    }
    cz__optim_evaluate(optim, evaluated);
    return CZ_OK;
}
