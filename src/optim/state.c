/* SPDX-License-Identifier: MIT */
/* Which spans are here, and the memory of their state. What is needed at one time comes from one arena:
 * for each slot an array over all spans, without gaps, however small they are. */
#include "base/memory.h"
#include "base/status.h"
#include "optim/object.h"

#include <inttypes.h>
#include <string.h>

static size_t span_bytes(const cz_optim *optim, const cz__local_span *span)
{
    return (size_t)(span->end - span->begin) * optim->element_size;
}

/* Slots that the span should have memory for and has not. */
static unsigned missing_slots(const cz_optim *optim, const cz__local_span *span)
{
    const bool trained = cz_model_requires_grad(optim->model, span->param);
    const unsigned wanted = trained ? optim->groups[span->group].slots_wanted : 0;
    return (wanted | optim->asked[span->param]) & ~span->slots;
}

/* Bytes of one slot that are missing, over all spans. */
static size_t missing_bytes(const cz_optim *optim, int slot)
{
    size_t bytes = 0;
    for (int64_t s = 0; s < optim->span_count; s++)
        if (missing_slots(optim, &optim->spans[s]) >> slot & 1u)
            bytes += span_bytes(optim, &optim->spans[s]);
    return bytes;
}

static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static cz_status add_arena(cz_optim *optim, size_t bytes)
{
    cz__arena *arena = cz__calloc(1, sizeof *arena);
    if (!arena)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for a handle of state");
    const cz_status status = optim->device->allocate(CZ_MEMORY_STATE, bytes, &arena->memory);
    if (status != CZ_OK) {
        cz__free(arena);
        return cz__fail_in(status, "optim state");
    }
    arena->next = optim->arenas;
    optim->arenas = arena;
    return CZ_OK;
}

cz_status cz__optim_reserve(cz_optim *optim)
{
    size_t bytes = 0;
    for (int e = 0; e < optim->slot_count; e++)
        bytes += whole_lines(missing_bytes(optim, e));
    if (bytes == 0)
        return CZ_OK;
    CZ_TRY(add_arena(optim, bytes));
    char *array = optim->arenas->memory;
    for (int e = 0; e < optim->slot_count; e++) {
        const size_t missing = missing_bytes(optim, e);
        char *next = array;
        array += whole_lines(missing);
        optim->state_bytes += missing;
        for (int64_t s = 0; s < optim->span_count; s++) {
            if (missing_slots(optim, &optim->spans[s]) >> e & 1u) {
                optim->slots[s * optim->slot_count + e] = next;
                next += span_bytes(optim, &optim->spans[s]);
            }
        }
    }
    for (int64_t s = 0; s < optim->span_count; s++)
        optim->spans[s].slots |= missing_slots(optim, &optim->spans[s]);
    return CZ_OK;
}

cz_status cz__optim_prepare(cz_optim *optim)
{
    CZ_TRY(cz__optim_reserve(optim));
    for (int64_t s = 0; optim->rule->state_at_create && s < optim->span_count; s++) {
        const cz__local_span *span = &optim->spans[s];
        if (cz_model_requires_grad(optim->model, span->param))
            cz__optim_start(optim, span->param, optim->groups[span->group].slots_used);
    }
    return CZ_OK;
}

/* Append a span, once there is room; before that, count it. */
static void add_span(cz_optim *optim, int64_t param, int64_t begin, int64_t end)
{
    const int64_t place = optim->span_count++;
    if (!optim->spans)
        return;
    const cz_tensor *value = cz_model_value(optim->model, param);
    optim->spans[place] = (cz__local_span){
        .param = param,
        .begin = begin,
        .end = end,
        .group = optim->group_of[param],
        .next = optim->first_span[param],
        .value = begin < end ? (char *)value->data + (size_t)begin * optim->element_size : NULL,
    };
    optim->first_span[param] = place;
}

static void add_spans(cz_optim *optim, int rank)
{
    cz_span_iterator iterator;
    cz_span span;
    optim->span_count = 0;
    cz_span_iterate(optim->map, rank, &iterator);
    while (cz_span_next(&iterator, &span))
        if (optim->group_of[span.param] >= 0)
            add_span(optim, span.param, span.begin, span.end);
    for (int64_t p = 0; p < optim->param_count; p++) /* their home counts their steps */
        if (optim->group_of[p] >= 0 && cz_shard_map_count(optim->map, p) == 0 &&
            cz_shard_map_home(optim->map, p) == rank)
            add_span(optim, p, 0, 0);
}

static cz_status list_spans(cz_optim *optim, int rank)
{
    add_spans(optim, rank);
    const size_t count = (size_t)optim->span_count, cells = count * (size_t)optim->slot_count;
    optim->spans = cz__calloc(count, sizeof *optim->spans);
    optim->slots = cz__calloc(cells, sizeof *optim->slots);
    if (!optim->spans || !optim->slots)
        return cz__fail(CZ_ERR_MEMORY, "optim: a list of %zu spans", count);
    add_spans(optim, rank);
    return CZ_OK;
}

static cz_status check_map(const cz_optim *optim, const cz_shard_map *map, int rank)
{
    if (optim->map)
        return cz__fail(CZ_ERR_STATE, "optim: it has a shard map already");
    if (rank < 0 || rank >= cz_shard_map_world_size(map))
        return cz__fail(CZ_ERR_ARGUMENT, "optim: rank %d, the shard map has %d", rank,
                        cz_shard_map_world_size(map));
    if (cz_shard_map_param_count(map) != optim->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim: the shard map has %" PRId64 " parameters, the model %" PRId64,
                        cz_shard_map_param_count(map), optim->param_count);
    for (int64_t p = 0; p < optim->param_count; p++) {
        const int64_t count = cz_tensor_count(cz_model_value(optim->model, p));
        if (cz_shard_map_count(map, p) != count)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "optim: parameter '%s' has %" PRId64
                            " elements in the shard map, %" PRId64 " in the model",
                            cz_model_name(optim->model, p), cz_shard_map_count(map, p), count);
    }
    return CZ_OK;
}

static void forget_spans(cz_optim *optim)
{
    cz__free(optim->spans);
    cz__free(optim->slots);
    optim->spans = NULL;
    optim->slots = NULL;
    optim->span_count = 0;
    optim->map = NULL;
    for (int64_t p = 0; optim->first_span && p < optim->param_count; p++)
        optim->first_span[p] = -1;
}

cz_status cz__optim_set_map(cz_optim *optim, const cz_shard_map *map, int rank)
{
    CZ_TRY(check_map(optim, map, rank));
    optim->map = map;
    cz_status status = list_spans(optim, rank);
    if (status == CZ_OK)
        status = cz__optim_prepare(optim);
    if (status != CZ_OK)
        forget_spans(optim);
    return status;
}

void cz__optim_state_destroy(cz_optim *optim)
{
    forget_spans(optim);
    while (optim->arenas) {
        cz__arena *arena = optim->arenas;
        optim->arenas = arena->next;
        optim->device->release(arena->memory);
        cz__free(arena);
    }
}

/* The place of a slot among the element slots, -1 if there is none of that name. */
static int find_slot(const cz_optim *optim, const char *name)
{
    for (int e = 0; e < optim->slot_count; e++)
        if (strcmp(cz__optim_element_slot(optim, e)->name, name) == 0)
            return e;
    return -1;
}

cz_status cz_optim_state(const cz_optim *optim, int64_t param, const char *slot, int64_t begin,
                         const void **data, int64_t *count)
{
    if (!optim || !slot || !data || !count)
        return cz__fail(CZ_ERR_ARGUMENT, "optim state: an argument is NULL");
    const cz_tensor *value = cz_model_value(optim->model, param);
    const int64_t end = value ? cz_tensor_count(value) : 0;
    const int e = find_slot(optim, slot);
    if (begin < 0 || begin >= end)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim state: no element %" PRId64 " of parameter %" PRId64, begin, param);
    if (e < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "optim state: %s has no element slot '%s'",
                        optim->rule->name, slot);
    *data = NULL;
    *count = end - begin; /* up to the next span that is here, or the end */
    for (int64_t s = optim->first_span[param]; s >= 0; s = optim->spans[s].next) {
        const cz__local_span *span = &optim->spans[s];
        if (span->begin > begin && span->begin - begin < *count)
            *count = span->begin - begin;
        if (span->begin > begin || span->end <= begin)
            continue;
        if (optim->used[param] & span->slots & 1u << e)
            *data = (const char *)optim->slots[s * optim->slot_count + e] +
                    (size_t)(begin - span->begin) * optim->element_size;
        *count = span->end - begin;
        break;
    }
    return CZ_OK;
}

size_t cz_optim_state_bytes(const cz_optim *optim)
{
    return optim ? optim->state_bytes : 0;
}
