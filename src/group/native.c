/* SPDX-License-Identifier: MIT */
/* Collectives that the backend does itself. Without checked mode there is no header before them: nobody
 * waits for anybody before the backend has the operation. */
#include <string.h>
#include "base/status.h"
#include "group/internal.h"

typedef cz_status (*entry)(void *endpoint, cz_collective *collective);

static entry entry_of(const cz_backend *backend, cz__operation_kind kind)
{
    return kind == CZ__ALL_REDUCE       ? backend->all_reduce
           : kind == CZ__REDUCE_SCATTER ? backend->reduce_scatter
           : kind == CZ__ALL_GATHER     ? backend->all_gather
           : kind == CZ__BROADCAST      ? backend->broadcast
           : kind == CZ__BARRIER        ? backend->barrier
                                        : NULL;
}

bool cz__native_has(const cz_backend *backend, cz__operation_kind kind)
{
    return entry_of(backend, kind) != NULL;
}

bool cz__native_any(const cz_backend *backend)
{
    return backend->all_reduce || backend->reduce_scatter || backend->all_gather ||
           backend->broadcast || backend->barrier;
}

/* Headers end in any order, these begin in that of the program's calls: the backend may match by it.
 * Without headers, which is after the first operation of an unchecked group, the driver comes to them in that
 * order anyway. */
static bool is_turn(const cz_work *work)
{
    const cz_work *other = work;
    if (work->lane != 0 || (!work->group->checked && work->group->settled))
        return true;
    cz__executor_lock(work->group->executor);
    for (other = cz__executor_first(work->group->executor); other != work; other = other->next)
        if (other->group == work->group && other->lane == 0 && other->native && !other->native_up &&
            other->phase <= CZ__PHASE_NATIVE)
            break;
    cz__executor_unlock(work->group->executor);
    if (other == work)
        work->group->settled = true;
    return other == work;
}

/* This rank's own check failed, and there is no header to tell the others. */
static void refuse(cz_work *work)
{
    const cz__header *header = &work->operation.header;
    cz__operation_fail(work, CZ_ERR_PEER, header->sentence);
    work->status = (cz_status)header->status;
    memcpy(work->sentence, header->sentence, sizeof work->sentence);
}

static cz_status start(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const cz__header *header = &operation->header;
    const cz_group *group = work->group;
    const cz__region *source = &operation->source, *target = &operation->target;
    CZ_TRY(cz__group_intact(group, work->sequence)); /* others may have taken back their parts */
    work->collective = (cz_collective){.tag = cz__work_tag(work, 0),
                                       .in_order = work->lane == 0,
                                       .root = header->root,
                                       .input = source->base,
                                       .output = target->own ? target->own : target->base,
                                       .count = header->count,
                                       .dtype = (cz_dtype)header->dtype,
                                       .reduction = (cz_reduction)header->reduction,
                                       .device = group->device};
    const cz_status status = entry_of(group->backend, (cz__operation_kind)header->kind)(
        group->endpoint, &work->collective);
    work->native_up = status == CZ_OK;
    work->native = status != CZ_ERR_UNSUPPORTED;
    if (work->native_up)
        cz__traffic_native(group);
    return work->native ? status : CZ_OK;
}

/* One move; *moved says whether there was one. */
static cz_status move(cz_work *work, bool *moved)
{
    const cz_group *group = work->group;
    const cz__header *header = &work->operation.header;
    *moved = true;
    if (!work->native_up) {
        *moved = is_turn(work);
        if (*moved && header->count == 0 && header->kind != CZ__BARRIER)
            work->phase = CZ__PHASE_CONTINUE;
        else if (*moved)
            return start(work);
        return CZ_OK;
    }
    bool done;
    CZ_TRY(group->backend->test_collective(group->endpoint, &work->collective, &done));
    *moved = done;
    if (!done)
        return cz__group_intact(group, work->sequence);
    work->native_up = false;
    work->phase = CZ__PHASE_CONTINUE;
    return CZ_OK;
}

bool cz__native_advance(cz_work *work)
{
    bool moved;
    if (work->operation.header.status != CZ_OK) {
        refuse(work);
        return true;
    }
    const cz_status status = move(work, &moved);
    if (status != CZ_OK) {
        cz__operation_fail(work, status, cz_last_error());
        return true;
    }
    return moved;
}

void cz__native_withdraw(cz_work *work)
{
    const cz_group *group = work->group;
    if (work->native_up && !group->backend->withdraw_collective(group->endpoint, &work->collective))
        work->stuck = true;
    work->native_up = false;
}
