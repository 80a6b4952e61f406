/* SPDX-License-Identifier: MIT */
/* Which spans are here, and the memory of their state. What is needed at one time comes from one
 * arena on each device: for each slot an array over all spans, without gaps, however small they
 * are. */
#include <inttypes.h>
#include <string.h>

#include "base/kernel_threads.h"
#include "base/memory.h"
#include "base/status.h"
#include "optim/object.h"
#include "tensor/model.h"
#include "shard/shard.h"

/* ---- threads that share the work ---- */

int cz__optim_parts(const cz_optim *optim)
{
    return cz__kernel_threads_parts(optim->kernel_threads);
}

bool cz__optim_works_in_parts(const cz_optim *optim)
{
    return optim->kernel_threads && !optim->alone && optim->shard.in_parts &&
           (!optim->shard.scratch || optim->shard.parts == cz__optim_parts(optim));
}

/* Is all of it in the host's memory, and does what is here of a parameter lie in one row? */
static bool can_be_cut(const cz__optim_shard *shard)
{
    for (int64_t s = 0; s < shard->span_count; s++)
        if (shard->spans[s].device != cz_device_cpu() ||
            (shard->spans[s].next >= 0 && shard->spans[s].next != s - 1))
            return false;
    return true;
}

static int parts_of(const cz_optim *optim, const cz__optim_shard *shard)
{
    int64_t elements = 0;
    for (int64_t s = 0; s < shard->span_count; s++)
        elements += shard->spans[s].end - shard->spans[s].begin;
    const uint64_t arrays = 3 + 2 * (uint64_t)optim->slot_count;
    const uint64_t size = cz_dtype_size(optim->dtype);
    const uint64_t parts = (uint64_t)elements * size * arrays / optim->part_bytes;
    const int most = optim->alone ? 1 : optim->thread_count;
    return parts < (uint64_t)most ? (int)parts : most;
}

static void drop_threads(cz_optim *optim)
{
    cz__kernel_threads_stop(&optim->kernel_threads);
    cz__free(optim->part_sums);
    cz__free(optim->part_prepared);
    optim->part_sums = NULL;
    optim->part_prepared = NULL;
}

static cz_status start_threads(cz_optim *optim, cz__optim_shard *shard)
{
    const int parts = parts_of(optim, shard), sums = optim->sum_count;
    shard->in_parts = can_be_cut(shard);
    if (!shard->in_parts || parts <= cz__optim_parts(optim))
        return CZ_OK;
    drop_threads(optim);
    CZ_TRY(cz__kernel_threads_start(&optim->kernel_threads, parts));
    if (!optim->kernel_threads)
        return CZ_OK;
    const size_t rows = (size_t)cz__optim_parts(optim);
    optim->part_sums = cz__calloc(rows * (size_t)(sums > 1 ? sums : 1), sizeof *optim->part_sums);
    optim->part_prepared = cz__calloc(CZ__PART_PARAMS, sizeof *optim->part_prepared);
    if (optim->part_sums && optim->part_prepared)
        return CZ_OK;
    drop_threads(optim);
    return cz__fail(CZ_ERR_MEMORY, "optim: no memory for the work of %zu threads", rows);
}

/* Zero fresh memory for state, each part by the thread that will work on it. */
typedef struct touch {
    char *memory;
    size_t bytes;
    int parts;
} touch;

static void touch_part(void *context, int part)
{
    const touch *t = context;
    const size_t lines = t->bytes / CZ__LINE, parts = (size_t)t->parts, k = (size_t)part;
    const size_t begin = lines / parts * k * CZ__LINE;
    const size_t end = k + 1 == parts ? t->bytes : lines / parts * (k + 1) * CZ__LINE;
    memset(t->memory + begin, 0, end - begin);
}

static void touch_memory(const cz_optim *optim, void *memory, size_t bytes)
{
    touch t = {memory, bytes, cz__optim_parts(optim)};
    if (bytes > 0)
        cz__kernel_threads_run(optim->kernel_threads, touch_part, &t);
}

/* ---- spans and their memory ---- */

static size_t span_bytes(const cz_optim *optim, const cz__local_span *span, int slot)
{
    const int64_t count = span->end - span->begin;
    return cz__optim_is_packed(optim, span->param, slot)
               ? cz__packed_bytes(count)
               : (size_t)count * cz__optim_slot_size(optim, span->param, slot);
}

/* Where a span's part of a slot begins, after so many bytes of others: groups have slots of several
 * types. */
static size_t span_offset(const cz_optim *optim, const cz__local_span *span, int slot, size_t bytes)
{
    const size_t size = cz__optim_slot_size(optim, span->param, slot);
    return (bytes + size - 1) / size * size;
}

/* Slots that the span should have memory for and has not. */
static unsigned missing_slots(const cz_optim *optim, const cz__local_span *span)
{
    unsigned needed = optim->used[span->param] | optim->expected[span->param];
    if (optim->tables.trainable[span->param])
        needed |= cz__optim_slots_of(optim, span->param, optim->groups[span->group].slots_wanted);
    return needed & ~span->slots;
}

/* Bytes of one slot that are missing, over all spans on a device. */
static size_t missing_bytes(const cz_optim *optim, const cz__optim_shard *shard,
                            const cz_device *device, int slot)
{
    size_t bytes = 0;
    for (int64_t s = 0; s < shard->span_count; s++) {
        const cz__local_span *span = &shard->spans[s];
        if (span->device == device && missing_slots(optim, span) >> slot & 1u)
            bytes = span_offset(optim, span, slot, bytes) + span_bytes(optim, span, slot);
    }
    return bytes;
}

size_t cz__slot_bytes(size_t bytes)
{
    return (bytes + CZ__LINE - 1) / CZ__LINE * CZ__LINE;
}

/* The state that is missing on a device. */
static size_t arena_bytes(const cz_optim *optim, const cz__optim_shard *shard,
                          const cz_device *device)
{
    size_t bytes = 0;
    for (int e = 0; e < optim->slot_count; e++)
        bytes += cz__slot_bytes(missing_bytes(optim, shard, device, e));
    return bytes;
}

static cz_status add_arena(cz__arena **first, const cz_device *device, cz_memory_kind kind,
                           size_t bytes, const char *what)
{
    cz__arena *arena = cz__calloc(1, sizeof *arena);
    if (!arena)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a handle", what);
    const cz_status status = device->allocate(kind, bytes, &arena->memory);
    if (status != CZ_OK) {
        cz__free(arena);
        return cz__fail_in(status, what);
    }
    arena->device = device;
    arena->next = *first;
    *first = arena;
    return CZ_OK;
}

/* Back to when `kept` was the first one. */
static void drop_arenas(cz__arena **first, const cz__arena *kept)
{
    while (*first != kept) {
        cz__arena *arena = *first;
        *first = arena->next;
        arena->device->release(arena->memory);
        cz__free(arena);
    }
}

static bool has_arena(const cz__arena *arena, const cz__arena *end, const cz_device *device)
{
    while (arena != end && arena->device != device)
        arena = arena->next;
    return arena != end;
}

/* An arena for each device on which something is missing. */
static cz_status add_arenas(const cz_optim *optim, cz__optim_shard *shard)
{
    const cz__arena *before = shard->arenas;
    for (int64_t s = 0; s < shard->span_count; s++) {
        const cz__local_span *span = &shard->spans[s];
        if (span->begin == span->end || !missing_slots(optim, span) ||
            has_arena(shard->arenas, before, span->device))
            continue;
        const cz_status status = add_arena(&shard->arenas, span->device, CZ_MEMORY_STATE,
                                           arena_bytes(optim, shard, span->device), "optim state");
        if (status != CZ_OK) {
            drop_arenas(&shard->arenas, before);
            return status;
        }
    }
    return CZ_OK;
}

static void deal_out(const cz_optim *optim, cz__optim_shard *shard, const cz__arena *arena)
{
    char *array = arena->memory;
    for (int e = 0; e < optim->slot_count; e++) {
        const size_t missing = missing_bytes(optim, shard, arena->device, e);
        char *const begin = array;
        size_t bytes = 0;
        array += cz__slot_bytes(missing);
        if (arena->device == cz_device_cpu())
            touch_memory(optim, begin, missing);
        shard->state_bytes += missing;
        for (int64_t s = 0; s < shard->span_count; s++) {
            const cz__local_span *span = &shard->spans[s];
            if (span->device == arena->device && missing_slots(optim, span) >> e & 1u) {
                bytes = span_offset(optim, span, e, bytes);
                shard->slots[s * optim->slot_count + e] = begin + bytes;
                bytes += span_bytes(optim, span, e);
            }
        }
    }
}

cz_status cz__optim_reserve(const cz_optim *optim, cz__optim_shard *shard)
{
    const cz__arena *before = shard->arenas;
    CZ_TRY(add_arenas(optim, shard));
    for (const cz__arena *arena = shard->arenas; arena != before; arena = arena->next)
        deal_out(optim, shard, arena);
    for (int64_t s = 0; s < shard->span_count; s++)
        shard->spans[s].slots |= missing_slots(optim, &shard->spans[s]);
    return CZ_OK;
}

void *cz__shard_slot_address(const cz_optim *optim, const cz__optim_shard *shard, int64_t param,
                             int slot, int64_t element)
{
    for (int64_t s = shard->first_span[param]; s >= 0; s = shard->spans[s].next) {
        const cz__local_span *span = &shard->spans[s];
        if (span->begin > element || span->end <= element)
            continue;
        if (!(span->slots >> slot & 1u))
            return NULL;
        if (cz__optim_is_packed(optim, param, slot))
            return shard->unpacked
                       ? shard->unpacked[s * optim->slot_count + slot] + (element - span->begin)
                       : NULL;
        return (char *)shard->slots[s * optim->slot_count + slot] +
               (size_t)(element - span->begin) * cz__optim_slot_size(optim, param, slot);
    }
    return NULL;
}

/* Append a span, once there is room; before that, count it. */
static void add_span(const cz_optim *optim, cz__optim_shard *shard, int64_t param, int64_t begin,
                     int64_t end)
{
    const int64_t place = shard->span_count++;
    if (!shard->spans)
        return;
    shard->spans[place] = (cz__local_span){
        .param = param,
        .begin = begin,
        .end = end,
        .group = optim->group_of[param],
        .next = shard->first_span[param],
        .device = cz__device_of(cz__model_value(optim->model, param)),
    };
    shard->first_span[param] = place;
}

static void add_spans(const cz_optim *optim, cz__optim_shard *shard, int rank)
{
    cz_span_iterator iterator;
    cz_span span;
    shard->span_count = 0;
    cz_span_iterate(shard->map, rank, &iterator);
    while (cz_span_next(&iterator, &span))
        if (optim->group_of[span.param] >= 0)
            add_span(optim, shard, span.param, span.begin, span.end);
    for (int64_t p = 0; p < optim->param_count; p++) /* their home counts their steps */
        if (optim->group_of[p] >= 0 && cz__shard_map_count(shard->map, p) == 0 &&
            cz__shard_map_home(shard->map, p) == rank)
            add_span(optim, shard, p, 0, 0);
}

static cz_status list_spans(const cz_optim *optim, cz__optim_shard *shard, int rank)
{
    shard->first_span = cz__calloc((size_t)optim->param_count, sizeof *shard->first_span);
    if (!shard->first_span)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for a table of %" PRId64 " parameters",
                        optim->param_count);
    for (int64_t p = 0; p < optim->param_count; p++)
        shard->first_span[p] = -1;
    add_spans(optim, shard, rank);
    const size_t count = (size_t)shard->span_count, cells = count * (size_t)optim->slot_count;
    shard->spans = cz__calloc(count, sizeof *shard->spans);
    shard->slots = cz__calloc(cells, sizeof *shard->slots);
    if (!shard->spans || !shard->slots)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for a list of %zu spans", count);
    add_spans(optim, shard, rank);
    return CZ_OK;
}

static cz_status check_map(const cz_optim *optim, const cz_shard_map *map, int rank)
{
    if (rank < 0 || rank >= cz__shard_map_world_size(map))
        return cz__fail(CZ_ERR_ARGUMENT, "optim: rank %d, the shard map has %d", rank,
                        cz__shard_map_world_size(map));
    if (cz__shard_map_param_count(map) != optim->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim: the shard map has %" PRId64 " parameters, the model %" PRId64,
                        cz__shard_map_param_count(map), optim->param_count);
    for (int64_t p = 0; p < optim->param_count; p++) {
        const int64_t count = cz_tensor_count(cz__model_value(optim->model, p));
        if (cz__shard_map_count(map, p) != count)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "optim: parameter '%s' has %" PRId64
                            " elements in the shard map, %" PRId64 " in the model",
                            cz__model_name(optim->model, p), cz__shard_map_count(map, p), count);
    }
    return CZ_OK;
}

/* Rules that need whole tensors get them from one owner each. */
static cz_status check_whole(const cz_optim *optim, const cz_shard_map *map)
{
    if (!cz__optim_any_rule(optim, CZ__NEEDS_WHOLE_TENSORS))
        return CZ_OK;
    for (int64_t p = 0; p < optim->param_count; p++) {
        cz_span span;
        const cz_rule *rule = cz__optim_rule_of(optim, p);
        if (rule->update_tensor && optim->group_of[p] >= 0 &&
            cz__shard_map_locate(map, p, 0, &span) && span.end < cz__shard_map_count(map, p))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "optim: rule %s updates whole tensors, and the shard map cuts "
                            "parameter '%.60s' at element %" PRId64 " of %" PRId64
                            "; partition greedily or with given owners",
                            rule->name, cz__model_name(optim->model, p), span.end,
                            cz__shard_map_count(map, p));
    }
    return CZ_OK;
}

static bool wants_scratch(const cz_rule *rule)
{
    return rule->update_tensor && rule->scratch_bytes;
}

size_t cz__optim_own_scratch_bytes(const cz_optim *optim, int64_t param)
{
    const cz_rule *rule = cz__optim_rule_of(optim, param);
    cz_tensor given = *cz__model_value(optim->model, param);
    given.dtype = optim->dtype;
    return rule->scratch_bytes ? cz__slot_bytes(rule->scratch_bytes(&given, rule->context)) : 0;
}

size_t cz__optim_row_bytes(const cz_optim *optim, int64_t param)
{
    return cz__slot_bytes((size_t)cz_tensor_count(cz__model_value(optim->model, param)) *
                          sizeof(float));
}

/* Of a whole tensor: its rule's, and rows for copies in f32. */
static size_t tensor_scratch_bytes(const cz_optim *optim, int64_t param)
{
    const size_t count =
        optim->is_mixed ? 2 + (size_t)cz__optim_use_of(optim, param)->slot_count : 0;
    return cz__optim_own_scratch_bytes(optim, param) + count * cz__optim_row_bytes(optim, param);
}

/* The most that a whole tensor on a device needs, or tiles. */
static size_t scratch_bytes(const cz_optim *optim, const cz__optim_shard *shard,
                            const cz_device *device)
{
    const size_t mixed = cz__optim_mixed_scratch_bytes(optim);
    const size_t average = cz__optim_average_scratch_bytes(optim);
    size_t most = mixed > average ? mixed : average;
    for (int64_t s = 0; s < shard->span_count; s++) {
        const cz_rule *rule = optim->groups[shard->spans[s].group].rule;
        const bool asks = rule->update_tensor && shard->spans[s].device == device;
        const size_t bytes = asks ? tensor_scratch_bytes(optim, shard->spans[s].param) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* One piece for each device. */
static cz_status allocate_scratch(const cz_optim *optim, cz__optim_shard *shard)
{
    bool any = optim->is_mixed;
    shard->parts = cz__optim_parts(optim);
    any = any || cz__optim_average_scratch_bytes(optim) > 0;
    for (int k = 0; k < optim->rule_count; k++)
        any = any || wants_scratch(optim->rules[k].rule);
    if (!any)
        return CZ_OK;
    for (int64_t s = 0; s < shard->span_count; s++) {
        const cz_device *device = shard->spans[s].device;
        if (has_arena(shard->scratch, NULL, device))
            continue;
        const size_t stride = cz__slot_bytes(scratch_bytes(optim, shard, device));
        CZ_TRY(add_arena(&shard->scratch, device, CZ_MEMORY_GENERAL, stride * (size_t)shard->parts,
                         "optim: scratch memory of the rule"));
        shard->scratch->stride = stride;
    }
    return CZ_OK;
}

void *cz__optim_scratch(const cz_optim *optim, const cz_device *device, int part)
{
    const cz__arena *arena = optim->shard.scratch;
    while (arena && arena->device != device)
        arena = arena->next;
    return arena ? (char *)arena->memory + (size_t)part * arena->stride : NULL;
}

/* What a step works with beside the state. */
static cz_status allocate_work(const cz_optim *optim, cz__optim_shard *shard)
{
    const size_t rows = (size_t)shard->span_count, sums = (size_t)optim->sum_count;
    CZ_TRY(allocate_scratch(optim, shard));
    if (sums == 0)
        return CZ_OK;
    shard->sums = cz__calloc(rows * sums, sizeof *shard->sums);
    shard->prepared = cz__calloc(rows, sizeof *shard->prepared);
    return shard->sums && shard->prepared
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "optim: no memory for %zu partial sums of %zu spans", sums,
                          rows);
}

/* The place of the same span, -1: there is none. */
static int64_t find_span(const cz__optim_shard *shard, const cz__local_span *span)
{
    int64_t s = shard->first_span[span->param];
    while (s >= 0 && (shard->spans[s].begin != span->begin || shard->spans[s].end != span->end))
        s = shard->spans[s].next;
    return s;
}

/* Does the new shard have every span of the present one? */
static bool has_all(const cz__optim_shard *shard, const cz__optim_shard *present)
{
    for (int64_t s = 0; s < present->span_count; s++)
        if (find_span(shard, &present->spans[s]) < 0)
            return false;
    return present->span_count > 0;
}

static void inherit(const cz_optim *optim, cz__optim_shard *shard)
{
    const cz__optim_shard *present = &optim->shard;
    for (int64_t s = 0; s < present->span_count; s++) {
        const int64_t place = find_span(shard, &present->spans[s]);
        shard->spans[place].slots = present->spans[s].slots;
        for (int e = 0; e < optim->slot_count; e++)
            shard->slots[place * optim->slot_count + e] = present->slots[s * optim->slot_count + e];
    }
    shard->state_bytes = present->state_bytes;
    shard->inherits = true;
}

cz_status cz__optim_shard_create(cz_optim *optim, cz__optim_shard *shard, const cz_shard_map *map,
                                 int rank)
{
    *shard = (cz__optim_shard){.map = map};
    CZ_TRY(check_map(optim, map, rank));
    CZ_TRY(check_whole(optim, map));
    CZ_TRY(cz__optim_check_blocks(optim, map));
    CZ_TRY(list_spans(optim, shard, rank));
    CZ_TRY(start_threads(optim, shard));
    CZ_TRY(allocate_work(optim, shard));
    if (has_all(shard, &optim->shard))
        inherit(optim, shard);
    return cz__optim_reserve(optim, shard);
}

void cz__optim_shard_adopt(cz_optim *optim, cz__optim_shard *shard)
{
    if (shard->inherits) {
        cz__arena **last = &shard->arenas;
        while (*last)
            last = &(*last)->next;
        *last = optim->shard.arenas;
        optim->shard.arenas = NULL;
        shard->inherits = false;
    }
    cz__optim_shard_clear(optim, &optim->shard);
    optim->shard = *shard;
}

void cz__optim_shard_clear(const cz_optim *optim, cz__optim_shard *shard)
{
    cz__shard_drop_unpacked(optim, shard);
    drop_arenas(&shard->arenas, NULL);
    drop_arenas(&shard->scratch, NULL);
    cz__free(shard->first_span);
    cz__free(shard->spans);
    cz__free(shard->slots);
    cz__free(shard->sums);
    cz__free(shard->prepared);
    *shard = (cz__optim_shard){0};
}
