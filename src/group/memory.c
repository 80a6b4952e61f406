/* SPDX-License-Identifier: MIT */
/* The memory that a group keeps for operations: works and staging, used again by the next one; and
 * reserves, had in advance. */
#include <string.h>

#include "base/memory.h"
#include "base/process.h"
#include "base/status.h"
#include "group/internal.h"

static size_t work_bytes(const cz_group *group)
{
    return cz__work_own_bytes(group->size, group->meetings);
}

/* As new, but for peers and parcels: what these have is written before it is read, and their flights have landed or were
 * taken back. */
static cz_work *prepare(cz_group *group, cz_work *work)
{
    memset(work, 0, work->has_messages ? sizeof *work : offsetof(cz_work, sentence));
    work->group = group;
    work->has_messages = !group->meetings;
    work->sentence[0] = '\0';
    work->parcels = (cz__parcel *)(void *)&work->peers[group->size];
    work->sources =
        (const void **)(void *)&work->parcels[cz__parcel_rounds(group->meetings) * group->size];
    return work;
}

/* With a meeting for it. NULL: no memory. */
static cz_work *create_work(cz_group *group)
{
    cz_work *work = cz__calloc(1, work_bytes(group));
    if (work && group->meetings && cz__meetings_stock(group->meetings) != CZ_OK) {
        cz__free(work);
        return NULL;
    }
    return work;
}

/* Of a reserve: with its meeting, unless the group was left and these are gone; and with the reference to the group. */
static void free_work(cz_group *group, cz_work *work)
{
    if (group->process == cz__process()) {
        cz__executor_lock(group->executor);
        if (work && group->meetings && !group->left)
            cz__meetings_unstock(group->meetings);
        cz__group_unreference(group);
    }
    cz__free(work);
}

cz_work *cz__group_take_work(cz_group *group, cz__reserve *reserve)
{
    cz_work *work = reserve ? reserve->work : NULL;
    if (work)
        reserve->work = NULL;
    else if ((work = group->idle_works))
        group->idle_works = work->next;
    else
        work = create_work(group);
    return work ? prepare(group, work) : NULL;
}

/* Who uses the spare work gives it back when its operation has ended: the header then tells all ranks
 * that there was no memory, and the group lives on. */
cz_status cz__group_make_spare(cz_group *group)
{
    group->spare = create_work(group);
    return group->spare ? CZ_OK
                        : cz__fail(CZ_ERR_MEMORY, "group: no memory for the spare operation");
}

cz_work *cz__group_take_spare(cz_group *group)
{
    cz_work *work = group->spare;
    group->spare = NULL;
    return work ? prepare(group, work) : NULL;
}

void cz__work_unreference(cz_work *work)
{
    cz__reserve *reserve = work->operation.reserve;
    if (--work->references > 0 || work->stuck)
        return;
    if (reserve && !reserve->work) {
        reserve->work = work;
        return;
    }
    if (!work->group->spare) {
        work->group->spare = work;
        return;
    }
    work->next = work->group->idle_works;
    work->group->idle_works = work;
}

cz_status cz__group_make_tiles(cz_group *group)
{
    void *tiles = NULL;
    CZ_TRY(group->device->allocate(CZ_MEMORY_STAGING, 2 * CZ__TILE_BYTES, &tiles));
    group->tile = tiles;
    group->zeros = group->tile + CZ__TILE_BYTES;
    return CZ_OK;
}

/* NULL: no memory. */
static cz__staging *create_staging(const cz_group *group, size_t size)
{
    cz__staging *staging = cz__calloc(1, sizeof *staging);
    void *data = NULL;
    if (staging && group->device->allocate(CZ_MEMORY_STAGING, size, &data) == CZ_OK) {
        *staging = (cz__staging){.bytes = size, .data = data};
        return staging;
    }
    cz__free(staging);
    return NULL;
}

static void free_staging(const cz_device *device, cz__staging *staging)
{
    if (!staging)
        return;
    device->release(staging->data);
    cz__free(staging);
}

cz__staging *cz__group_take_staging(cz_group *group, size_t bytes, cz__reserve *reserve)
{
    cz__staging **link = &group->idle_staging; /* large ones stay for who needs them */
    if (reserve && reserve->staging && reserve->staging->bytes >= bytes)
        link = &reserve->staging;
    else
        while (*link && (*link)->bytes != cz__staging_class(bytes))
            link = &(*link)->next;
    cz__staging *found = *link;
    if (!found)
        return create_staging(group, cz__staging_class(bytes));
    *link = found->next;
    found->next = NULL;
    return found;
}

void cz__work_return_staging(cz_work *work)
{
    if (work->operation.pool) {
        cz__pool_leave(work);
        return;
    }
    cz__staging *staging = work->staging;
    cz__reserve *reserve = work->operation.reserve;
    work->staging = NULL;
    if (!staging || work->stuck) /* stuck: the backend may still write into it */
        return;
    if (reserve && !reserve->staging && !reserve->bare) {
        reserve->staging = staging;
        return;
    }
    staging->next = work->group->idle_staging;
    work->group->idle_staging = staging;
}

void cz__group_free_memory(cz_group *group)
{
    cz__window_forget(group);
    cz__free(group->spare);
    if (group->tile)
        group->device->release(group->tile);
    for (cz_work *work = group->idle_works, *next; work; work = next) {
        next = work->next;
        cz__free(work);
    }
    for (cz__staging *staging = group->idle_staging, *next; staging; staging = next) {
        next = staging->next;
        free_staging(group->device, staging);
    }
}

cz_status cz__reserve_create_bare(cz__reserve **out, cz_group *group)
{
    *out = NULL;
    cz__reserve *reserve = cz__calloc(1, sizeof *reserve);
    if (!reserve)
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for a reserve");
    cz__executor_lock(group->executor);
    group->references++;
    cz__executor_unlock(group->executor);
    reserve->group = group;
    reserve->device = group->device;
    reserve->bare = true;
    reserve->work = create_work(group);
    if (!reserve->work) {
        cz__reserve_destroy(&reserve);
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for an operation");
    }
    *out = reserve;
    return CZ_OK;
}

cz_status cz__reserve_create(cz__reserve **out, cz_group *group, size_t longest)
{
    const size_t bytes = cz__staging_bytes(group, longest);
    CZ_TRY(cz__reserve_create_bare(out, group));
    (*out)->bare = false;
    if (bytes == 0)
        return CZ_OK;
    (*out)->staging = create_staging(group, bytes);
    if ((*out)->staging)
        return CZ_OK;
    cz__reserve_destroy(out);
    return cz__fail(CZ_ERR_MEMORY, "group: no memory for %zu bytes of staging", bytes);
}

bool cz__reserve_is_bare(const cz__reserve *reserve)
{
    return reserve && reserve->bare;
}

void cz__reserve_destroy(cz__reserve **reserve)
{
    if (!reserve || !*reserve)
        return;
    free_work((*reserve)->group, (*reserve)->work);
    free_staging((*reserve)->device, (*reserve)->staging);
    cz__free(*reserve);
    *reserve = NULL;
}
