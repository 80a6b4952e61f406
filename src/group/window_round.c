/* SPDX-License-Identifier: MIT */
/* What a rank does with the data of one round in the window: it publishes what others need of its streams, reduces its
 * own stream from its memory and the others' slots (and updates what becomes of it, in a step), and takes out what
 * others published or reduced. When is window_data.c's. */
#include "base/status.h"
#include "group/internal.h"

/* ---- segments ---- */

static bool next_segment(const cz_work *work, const cz__region *region, cz__cursor *cursor,
                         cz__segment *segment)
{
    return cz__segment_next(region, cursor, work->window.segment_bytes, segment);
}

static cz_status put(const cz_work *work, const cz__region *region, const cz__segment *segment,
                     char *slot)
{
    const cz_device *device = work->group->device;
    if (segment->data && work->window.stream)
        return cz__copy_once(device, slot, segment->data, segment->bytes);
    else if (segment->data)
        return device->copy(NULL, slot, segment->data, segment->bytes);
    else
        cz__segment_pack(region, segment, device, slot);
    return CZ_OK;
}

/* `fresh`: this rank has not read the memory that it writes. */
static cz_status take(const cz_work *work, const cz__region *region, const cz__segment *segment,
                      const char *from, bool fresh)
{
    const cz_device *device = work->group->device;
    if (!segment->data)
        cz__segment_unpack(region, segment, device, from);
    else if (fresh && work->window.past_caches)
        return cz__copy_once(device, segment->data, from, segment->bytes);
    else
        return device->copy(NULL, segment->data, from, segment->bytes);
    return CZ_OK;
}

/* ---- publish: slot r of this rank's part has what is for rank r; slot 0 what is for all ---- */

static cz_status publish_to_each(cz_work *work, unsigned step, bool *any)
{
    const int me = work->group->rank;
    const cz__region *source = &work->operation.source;
    for (int r = 0; r < work->group->size; r++) {
        cz__segment segment;
        if (!next_segment(work, source, &work->peers[r].out, &segment))
            continue;
        *any = true;
        if (r == me)
            continue;
        CZ_TRY(put(work, source, &segment, cz__window_slot(work, me, work->window.published, r)));
        cz__traffic_sent(work->group, step, segment.bytes);
    }
    return CZ_OK;
}

static void count_to_all(const cz_work *work, size_t bytes)
{
    for (int r = 1; r < work->group->size; r++)
        cz__traffic_sent(work->group, CZ__STEP_EXCHANGE, bytes);
}

static cz_status publish_to_all(cz_work *work, bool *any)
{
    const int me = work->group->rank;
    const cz__operation *operation = &work->operation;
    const cz__region *source = cz__region_given(operation);
    cz__segment segment;
    *any = next_segment(work, source, &work->peers[me].out, &segment);
    if (!*any)
        return CZ_OK;
    if (operation->update)
        cz__update_segment(operation, &segment, NULL);
    if (operation->shared_values)
        return CZ_OK;
    count_to_all(work, segment.bytes);
    return put(work, source, &segment, cz__window_slot(work, me, work->window.published, 0));
}

cz_status cz__window_publish(cz_work *work, bool *any)
{
    const cz__operation *operation = &work->operation;
    *any = false;
    if (operation->same_to_all && !operation->reduces)
        return publish_to_all(work, any);
    return publish_to_each(work, operation->reduces ? CZ__STEP_REDUCE : CZ__STEP_EXCHANGE, any);
}

/* ---- reduce: the last slot has the result, if others want it or it goes elsewhere from there ---- */

static void collect(cz_work *work, const cz__segment *own)
{
    const int me = work->group->rank;
    const uint32_t round = work->window.reduced;
    for (int r = 0; r < work->group->size; r++)
        work->sources[r] = cz__window_slot(work, r, round, me);
    if (own->data)
        work->sources[me] = own->data;
    else
        cz__segment_pack(&work->operation.source, own, work->group->device,
                         cz__window_slot(work, me, round, me));
}

static cz_status reduce_into(cz_work *work, size_t bytes, void *out)
{
    const cz__operation *operation = &work->operation;
    return work->group->device->reduce(
        NULL, (cz_dtype)operation->header.dtype, (cz_reduction)operation->header.reduction,
        work->group->size, work->sources, (int64_t)(bytes / operation->source.element_size), out);
}

static cz_status reduce_segment(cz_work *work, const cz__segment *own, const cz__segment *target,
                                char *shared)
{
    const cz__operation *operation = &work->operation;
    const bool fresh = target->data != own->data;
    const bool stream = operation->exchanges && work->window.stream && target->data;
    const bool through =
        !stream && (operation->exchanges || !target->data || (fresh && work->window.past_caches));
    CZ_TRY(reduce_into(work, own->bytes, through ? shared : target->data));
    if (stream)
        CZ_TRY(cz__copy_once(work->group->device, shared, target->data, own->bytes));
    return through ? take(work, &operation->target, target, shared, fresh) : CZ_OK;
}

/* Reduced, updated piece by piece, and what became of it to the others, if they want it. */
static cz_status step_segment(cz_work *work, const cz__segment *own, const cz__segment *target,
                              char *shared)
{
    const cz__operation *operation = &work->operation;
    char *gradient = target->data ? target->data : shared;
    CZ_TRY(reduce_into(work, own->bytes, gradient));
    if (gradient == shared)
        cz__segment_unpack(&operation->target, target, work->group->device, shared);
    cz__update_segment(operation, target, gradient);
    if (!operation->exchanges || operation->shared_values)
        return CZ_OK;
    cz__cursor at = target->begin;
    cz__segment values;
    (void)next_segment(work, &operation->values, &at, &values);
    return put(work, &operation->values, &values, shared);
}

cz_status cz__window_reduce(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    cz__window_run *run = &work->window;
    char *shared = cz__window_slot(work, work->group->rank, run->reduced, work->group->size);
    cz__segment own, target;
    if (!next_segment(work, &operation->source, &run->own, &own))
        return CZ_OK;
    (void)next_segment(work, &operation->target, &run->result, &target);
    collect(work, &own);
    CZ_TRY(operation->update ? step_segment(work, &own, &target, shared)
                             : reduce_segment(work, &own, &target, shared));
    if (operation->exchanges && !operation->shared_values)
        count_to_all(work, own.bytes);
    return CZ_OK;
}

/* ---- copy out ---- */

bool cz__window_open_copies(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    bool any = false;
    for (int r = 0; r < work->group->size; r++)
        any |= next_segment(work, cz__region_taken(&work->operation), &work->peers[r].in,
                            &work->parcels[r].received);
    if (!operation->reduces)
        next_segment(work, &operation->source, &work->window.own, &work->kept[0]);
    return any;
}

cz_status cz__window_keep_own(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    const cz__segment *from = &work->kept[0], *to = &work->parcels[me].received;
    if (to->bytes == 0 || operation->reduces || operation->update ||
        cz__region_same_memory(&operation->source, &operation->target) ||
        (from->data && from->data == to->data))
        return CZ_OK;
    if (from->data)
        return take(work, &operation->target, to, from->data, true);
    char *slot = cz__window_slot(work, me, work->window.copied, work->group->size);
    CZ_TRY(put(work, &operation->source, from, slot));
    return take(work, &operation->target, to, slot, true);
}

cz_status cz__window_copy_from(cz_work *work, int rank)
{
    const cz__operation *operation = &work->operation;
    const int index = operation->reduces       ? work->group->size
                      : operation->same_to_all ? 0
                                               : work->group->rank;
    cz__segment *segment = &work->parcels[rank].received;
    if (!operation->shared_values)
        CZ_TRY(take(work, cz__region_taken(&work->operation), segment,
                    cz__window_slot(work, rank, work->window.copied, index),
                    !operation->reduces || operation->update));
    segment->bytes = 0;
    return CZ_OK;
}
