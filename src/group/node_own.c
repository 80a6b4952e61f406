/* SPDX-License-Identifier: MIT */
/* What an owner makes of its stream in a round between machines: the sum of all that came, and in a step the values
 * that follow from it; both then go to all. */
#include "group/internal.h"

cz_status cz__node_take(const cz_work *work, const cz__region *region, const cz__segment *segment,
                        const char *from)
{
    if (segment->data)
        return work->group->device->copy(NULL, segment->data, from, segment->bytes);
    cz__segment_unpack(region, segment, work->group->device, from);
    return CZ_OK;
}

/* What is reduced is in the target, and in the slot, too, if others want it. */
static cz_status reduce_own(cz_work *work, const cz__segment *target, char *slot)
{
    char *result = work->operation.exchanges || !target->data ? slot : target->data;
    CZ_TRY(cz__node_reduce(work, work->window.reduced, result));
    return result == slot ? cz__node_take(work, &work->operation.target, target, slot) : CZ_OK;
}

/* The same, and what it makes of the values is in the slot. */
static cz_status step_own(cz_work *work, const cz__segment *target, char *slot)
{
    const cz__operation *operation = &work->operation;
    char *gradient = target->data ? target->data : slot;
    cz__cursor at = target->begin;
    cz__segment values;
    CZ_TRY(cz__node_reduce(work, work->window.reduced, gradient));
    if (gradient == slot)
        cz__segment_unpack(&operation->target, target, work->group->device, slot);
    cz__update_segment(operation, target, gradient);
    if (!operation->exchanges)
        return CZ_OK;
    (void)cz__segment_next(&operation->values, &at, work->window.segment_bytes, &values);
    return cz__node_put(work, &operation->values, &values, slot);
}

cz_status cz__node_do_own(cz_work *work, const cz__segment *target)
{
    const uint32_t round = work->window.reduced;
    char *slot = cz__window_slot(work, work->group->rank, round, work->group->size);
    CZ_TRY(work->operation.update ? step_own(work, target, slot) : reduce_own(work, target, slot));
    if (!work->operation.exchanges)
        return CZ_OK;
    cz__node_count_handed_over(work, CZ__STEP_EXCHANGE, target->bytes);
    return cz__node_send_result(work, round, slot, target->bytes);
}
