/* SPDX-License-Identifier: MIT */
/* Collectives that the backend does itself. Without checked mode there is no header before them:
 * nobody waits for anybody before the backend has the operation. */
#include "base/status.h"
#include "engine/engine.h"

typedef cz_status (*entry)(void *endpoint, cz_collective *collective);

static entry entry_of(const cz_backend *backend, cz__operation_kind kind)
{
    switch (kind) {
    case CZ__ALL_REDUCE:
        return backend->all_reduce;
    case CZ__REDUCE_SCATTER:
        return backend->reduce_scatter;
    case CZ__ALL_GATHER:
        return backend->all_gather;
    case CZ__BROADCAST:
        return backend->broadcast;
    case CZ__BARRIER:
        return backend->barrier;
    default:
        return NULL;
    }
}

typedef struct native {
    bool up; /* the collective is with the backend */
    cz_collective collective;
} native;

static native *native_of(const cz_work *work)
{
    return work->data.state;
}

/* Where the backend refuses, all ranks go on as if it had no such collective. */
static bool is_offered(const cz_work *work)
{
    return !work->meeting.refused &&
           entry_of(work->group->backend, (cz__operation_kind)work->operation.header.kind);
}

static size_t bytes(int size, bool in_process)
{
    return sizeof(native);
}

static void begin(cz_work *work)
{
    native_of(work)->up = false;
}

/* Not with the backend yet, but to be. */
static bool is_to_start(const cz_work *work)
{
    const bool up = work->data.engine == &cz__engine_native && native_of(work)->up;
    return is_offered(work) && !up && work->phase < CZ__PHASE_CONTINUE;
}

/* Headers end in any order, these begin in that of the program's calls: the backend may match by
 * it. Without headers, which is after the first operation of an unchecked group, the driver comes
 * to them in that order anyway. */
static bool is_turn(const cz_work *work)
{
    const cz_work *other = work;
    if (work->lane != 0 || (!work->group->checked && work->group->settled))
        return true;
    cz__executor_lock(work->group->executor);
    for (other = cz__executor_first(work->group->executor); other != work; other = other->next)
        if (other->group == work->group && other->lane == 0 && is_to_start(other))
            break;
    cz__executor_unlock(work->group->executor);
    if (other == work)
        work->group->settled = true;
    return other == work;
}

static cz_status start(cz_work *work, cz__engine_progress *progress)
{
    const cz__operation *operation = &work->operation;
    const cz__header *header = &operation->header;
    const cz_group *group = work->group;
    const cz__region *source = &operation->source, *target = &operation->target;
    native *n = native_of(work);
    CZ_TRY(cz__group_intact(group, work->sequence)); /* others may have taken back their parts */
    n->collective = (cz_collective){.size = sizeof(cz_collective),
                                    .tag = cz__work_tag(work, 0),
                                    .in_order = work->lane == 0,
                                    .root = header->root,
                                    .input = source->base,
                                    .output = target->own ? target->own : target->base,
                                    .count = header->count,
                                    .dtype = (cz_dtype)header->dtype,
                                    .reduction = (cz_reduction)header->reduction,
                                    .device = group->device};
    const cz_status status =
        entry_of(group->backend, (cz__operation_kind)header->kind)(group->endpoint, &n->collective);
    n->up = status == CZ_OK;
    work->meeting.refused = status == CZ_ERR_UNSUPPORTED;
    if (n->up)
        cz__traffic_native(group);
    *progress = work->meeting.refused ? CZ__REFUSED : CZ__MOVED;
    return work->meeting.refused ? CZ_OK : status;
}

static cz_status advance(cz_work *work, cz__engine_progress *progress)
{
    const cz_group *group = work->group;
    const cz__header *header = &work->operation.header;
    native *n = native_of(work);
    bool done;
    if (!n->up) {
        if (!is_turn(work))
            return CZ_OK;
        if (header->count > 0 || header->kind == CZ__BARRIER)
            return start(work, progress);
        *progress = CZ__DONE;
        return CZ_OK;
    }
    CZ_TRY(group->backend->test_collective(group->endpoint, &n->collective, &done));
    if (!done)
        return cz__group_intact(group, work->sequence);
    n->up = false;
    *progress = CZ__DONE;
    return CZ_OK;
}

static void withdraw(cz_work *work)
{
    const cz_group *group = work->group;
    native *n = native_of(work);
    if (n->up && !group->backend->withdraw_collective(group->endpoint, &n->collective))
        work->stuck = true;
    n->up = false;
}

static bool awaits(const cz_work *work, int rank)
{
    return false; /* the backend does not say */
}

const cz__engine cz__engine_native = {.takes = is_offered,
                                      .bytes = bytes,
                                      .begin = begin,
                                      .advance = advance,
                                      .withdraw = withdraw,
                                      .awaits = awaits};
