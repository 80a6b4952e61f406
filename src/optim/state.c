/* SPDX-License-Identifier: MIT */
/* The state that is here: which slots are present and what they start with, looked at by address,
 * moved to other spans. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "optim/object.h"

/* The k-th of the rule's slots of a kind, the step count left out; its name is NULL if there are
 * fewer. */
static cz_slot_spec slot_of_kind(const cz_rule *rule, cz_slot_kind kind, int k)
{
    for (int i = 0; i < rule->slot_count; i++) {
        const cz_slot_spec slot = cz__rule_slot(rule, i);
        if (slot.kind == kind && !cz__slot_is_step(slot) && k-- == 0)
            return slot;
    }
    return (cz_slot_spec){0};
}

cz_slot_spec cz__optim_element_slot(const cz_optim *optim, int64_t param, int e)
{
    if (e == optim->master_slot)
        return (cz_slot_spec){.name = CZ__MASTER, .kind = CZ_SLOT_ELEMENT};
    if (e == optim->average_slot)
        return (cz_slot_spec){.name = CZ__AVERAGE, .kind = CZ_SLOT_ELEMENT};
    return slot_of_kind(cz__optim_rule_of(optim, param), CZ_SLOT_ELEMENT, e);
}

cz_slot_spec cz__optim_scalar_slot(const cz_optim *optim, int64_t param, int k)
{
    if (optim->average_slot >= 0 && k == optim->rule_scalars)
        return (cz_slot_spec){.name = CZ__AVERAGED, .kind = CZ_SLOT_SCALAR};
    return slot_of_kind(cz__optim_rule_of(optim, param), CZ_SLOT_SCALAR, k);
}

/* ---- coming into use ---- */

double cz__optim_first_value(const cz_optim *optim, cz_slot_spec slot, int64_t param)
{
    if (!slot.initial_hyper)
        return slot.initial;
    int place = 0; /* there is one of that name: the table was checked */
    (void)cz__rule_find_hyper(cz__optim_rule_of(optim, param), slot.initial_hyper, &place);
    return optim->groups[optim->group_of[param]].hypers[place];
}

static void start_master(cz_optim *optim, int64_t param)
{
    const cz_dtype dtype = cz__model_value(optim->model, param)->dtype;
    const char *value = optim->tables.values[param];
    for (int64_t s = optim->shard.first_span[param]; s >= 0; s = optim->shard.spans[s].next) {
        const cz__local_span *span = &optim->shard.spans[s];
        if (span->slots >> optim->master_slot & 1u)
            (void)span->device->convert(
                NULL, CZ_F32, optim->shard.slots[s * optim->slot_count + optim->master_slot], dtype,
                value + (size_t)span->begin * cz_dtype_size(dtype), span->end - span->begin);
    }
}

static void start_slot(cz_optim *optim, int64_t param, int e)
{
    if (e == optim->master_slot) {
        start_master(optim, param);
        return;
    }
    const double value =
        cz__optim_first_value(optim, cz__optim_element_slot(optim, param, e), param);
    if (value == 0 && !signbit(value)) /* as memory is reserved */
        return;
    for (int64_t s = optim->shard.first_span[param]; s >= 0; s = optim->shard.spans[s].next) {
        const cz__local_span *span = &optim->shard.spans[s];
        /* A device that cannot write to its own memory cannot run the kernel either. */
        if (span->slots >> e & 1u)
            (void)span->device->fill(NULL, cz__optim_slot_dtype(optim, param, e), value,
                                     span->end - span->begin,
                                     optim->shard.slots[s * optim->slot_count + e]);
    }
}

static void start_scalars(cz_optim *optim, int64_t param)
{
    double *scalars = optim->scalars + param * optim->scalar_count;
    if (!optim->scalars_used[param])
        for (int k = 0; k < optim->scalar_count; k++) /* 0 where the rule has fewer */
            scalars[k] =
                cz__optim_first_value(optim, cz__optim_scalar_slot(optim, param, k), param);
    optim->scalars_used[param] = true;
}

void cz__optim_start(cz_optim *optim, int64_t param, unsigned slots)
{
    const unsigned fresh = slots & ~optim->used[param];
    for (int e = 0; e < optim->slot_count; e++)
        if (fresh >> e & 1u)
            start_slot(optim, param, e);
    optim->used[param] |= slots;
    start_scalars(optim, param);
}

/* ---- asked ---- */

int64_t cz__optim_step_count(const cz_optim *optim, int64_t param)
{
    return optim && param >= 0 && param < optim->param_count ? optim->steps[param] : 0;
}

cz_status cz_optim_scalar(const cz_optim *optim, int64_t param, const char *slot, double *value)
{
    CZ__OWN_FLOATS;
    if (!optim || !slot || !value)
        return cz__fail(CZ_ERR_ARGUMENT, "optim scalar: an argument is NULL");
    if (param < 0 || param >= optim->param_count)
        return cz__fail(CZ_ERR_ARGUMENT, "optim scalar: parameter %" PRId64 " of %" PRId64, param,
                        optim->param_count);
    if (strcmp(slot, "step") == 0) {
        *value = (double)optim->steps[param];
        return CZ_OK;
    }
    for (int k = 0; k < optim->scalar_count; k++) {
        const char *name = cz__optim_scalar_slot(optim, param, k).name;
        if (!name || strcmp(name, slot) != 0)
            continue;
        const bool present = optim->shard.first_span[param] >= 0 && optim->scalars_used[param];
        *value = present ? optim->scalars[param * optim->scalar_count + k] : NAN;
        return CZ_OK;
    }
    return cz__fail(CZ_ERR_ARGUMENT, "optim scalar: %s has no scalar slot '%s'",
                    cz__optim_rule_of(optim, param)->name, slot);
}

/* ---- before a step ---- */

/* What is frozen has no average. */
static void forget_averages(cz_optim *optim)
{
    const unsigned average = cz__optim_average_bit(optim);
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const int64_t param = optim->shard.spans[s].param;
        if (optim->tables.trainable[param] || !(optim->used[param] & average))
            continue;
        optim->used[param] &= ~average;
        *cz__optim_averaged(optim, param) = 0;
    }
}

cz_status cz__optim_prepare(cz_optim *optim)
{
    CZ_TRY(cz__optim_reserve(optim, &optim->shard));
    if (optim->average_slot >= 0 && !optim->evaluated)
        forget_averages(optim);
    if (!cz__optim_any_rule(optim, CZ__HAS_STATE_AT_CREATE))
        return CZ_OK;
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const cz__local_span *span = &optim->shard.spans[s];
        if (optim->tables.trainable[span->param] &&
            optim->groups[span->group].rule->state_at_create)
            cz__optim_start(optim, span->param,
                            cz__optim_slots_in_use(optim, span->param) &
                                ~cz__optim_average_bit(optim));
    }
    return CZ_OK;
}

/* ---- by address ---- */

cz_model *cz__optim_model(const cz_optim *optim)
{
    return optim->model;
}

bool cz__optim_is_part(const cz_optim *optim)
{
    return !optim->own_map;
}

int cz__optim_slot_count(const cz_optim *optim)
{
    return optim->slot_count;
}

int cz__optim_scalar_count(const cz_optim *optim)
{
    return optim->scalar_count;
}

bool cz__optim_holds(const cz_optim *optim, int64_t param)
{
    return optim->shard.first_span[param] >= 0;
}

void *cz__optim_slot_address(const cz_optim *optim, int64_t param, int slot, int64_t element)
{
    return cz__shard_slot_address(optim, &optim->shard, param, slot, element);
}

int cz__optim_find_slot(const cz_optim *optim, int64_t param, const char *name)
{
    for (int e = 0; e < optim->slot_count; e++) {
        const char *its = cz__optim_element_slot(optim, param, e).name;
        if (its && strcmp(its, name) == 0)
            return e;
    }
    return -1;
}

bool cz__optim_has_slot(const cz_optim *optim, int64_t param, const char *name)
{
    const int e = cz__optim_find_slot(optim, param, name);
    return e >= 0 && optim->group_of[param] >= 0 && cz__optim_slots_in_use(optim, param) >> e & 1u;
}

cz_status cz_optim_state(const cz_optim *optim, int64_t param, const char *slot, int64_t begin,
                         const void **data, int64_t *count)
{
    if (!optim || !slot || !data || !count)
        return cz__fail(CZ_ERR_ARGUMENT, "optim state: an argument is NULL");
    const cz_tensor *value = cz__model_value(optim->model, param);
    const int64_t end = value ? cz_tensor_count(value) : 0;
    if (begin < 0 || begin >= end)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim state: no element %" PRId64 " of parameter %" PRId64, begin, param);
    const int e = cz__optim_find_slot(optim, param, slot);
    if (e < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "optim state: %s has no element slot '%s'",
                        cz__optim_rule_of(optim, param)->name, slot);
    if (cz__optim_is_packed(optim, param, e))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim state: '%s' of parameter '%.60s' is in 8 bits and has no address; a "
                        "state dictionary has it in f32",
                        slot, cz__model_name(optim->model, param));
    *data = NULL;
    *count = end - begin; /* up to the next span that is here, or the end */
    for (int64_t s = optim->shard.first_span[param]; s >= 0; s = optim->shard.spans[s].next) {
        const cz__local_span *span = &optim->shard.spans[s];
        if (span->begin > begin && span->begin - begin < *count)
            *count = span->begin - begin;
        if (span->begin > begin || span->end <= begin)
            continue;
        if (optim->used[param] & span->slots & 1u << e)
            *data = (const char *)optim->shard.slots[s * optim->slot_count + e] +
                    (size_t)(begin - span->begin) * cz__optim_slot_size(optim, param, e);
        *count = span->end - begin;
        break;
    }
    return CZ_OK;
}

size_t cz__optim_state_bytes(const cz_optim *optim)
{
    return optim ? optim->shard.state_bytes : 0;
}

bool cz__optim_stepped(const cz_optim *optim)
{
    return optim->stepped;
}

bool cz__optim_is_fresh(const cz_optim *optim)
{
    return !optim->stepped && !optim->loaded;
}

/* ---- other spans ---- */
/* An optimizer that is to hold other spans than now: the new ones beside the old until the elements
 * have been moved. */

struct cz__relocation {
    cz_optim *optim;              /* borrowed */
    const cz__progress *progress; /* borrowed; of all ranks */
    cz__optim_shard shard;        /* owned until it is adopted */
};

cz_status cz__relocation_create(cz__relocation **out, cz_optim *optim, const cz_shard_map *map,
                                int rank, const cz__progress *progress)
{
    cz__relocation *relocation = cz__calloc(1, sizeof *relocation);
    *out = NULL;
    if (!relocation)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory to move to other spans");
    relocation->optim = optim;
    relocation->progress = progress;
    for (int64_t p = 0; p < optim->param_count; p++)
        optim->expected[p] = progress->used[p];
    cz_status status = cz__optim_shard_create(optim, &relocation->shard, map, rank);
    for (int64_t p = 0; p < optim->param_count; p++)
        optim->expected[p] = 0;
    if (status == CZ_OK)
        status = cz__shard_unpack(optim, &relocation->shard);
    if (status == CZ_OK)
        status = cz__optim_unpack(optim);
    if (status != CZ_OK)
        cz__relocation_destroy(&relocation);
    *out = relocation;
    return status;
}

void *cz__relocation_slot_address(const cz__relocation *relocation, int64_t param, int slot,
                                  int64_t element)
{
    return cz__shard_slot_address(relocation->optim, &relocation->shard, param, slot, element);
}

void cz__relocation_commit(cz__relocation *relocation)
{
    cz_optim *optim = relocation->optim;
    const cz__progress *progress = relocation->progress;
    const size_t row = (size_t)optim->scalar_count * sizeof *optim->scalars;
    cz__shard_pack(optim, &relocation->shard);
    cz__optim_shard_adopt(optim, &relocation->shard);
    relocation->shard = (cz__optim_shard){0};
    for (int64_t p = 0; p < optim->param_count; p++) {
        const bool held = cz__optim_holds(optim, p);
        optim->steps[p] = held ? progress->steps[p] : 0;
        optim->used[p] = held ? progress->used[p] : 0;
        optim->scalars_used[p] = held && (progress->steps[p] > 0 || progress->used[p]);
        if (row > 0 && held)
            memcpy(&optim->scalars[p * optim->scalar_count],
                   &progress->scalars[p * optim->scalar_count], row);
    }
    (void)cz__optim_prepare(optim); /* there is memory; Adagrad's sums begin */
}

void cz__relocation_destroy(cz__relocation **relocation)
{
    if (!relocation || !*relocation)
        return;
    cz__optim_drop_unpacked((*relocation)->optim);
    cz__optim_shard_clear((*relocation)->optim, &(*relocation)->shard);
    cz__free(*relocation);
    *relocation = NULL;
}
