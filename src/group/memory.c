/* SPDX-License-Identifier: MIT */
/* The memory that a group keeps for operations, which the next one uses again; reserves, had in
 * advance; and the end of a group's memory. */
#include <stddef.h>
#include <string.h>

#include "base/memory.h"
#include "base/process.h"
#include "base/status.h"
#include "group/internal.h"
#include "engine/rendezvous.h"

static size_t work_bytes(int size, bool in_process)
{
    return offsetof(cz_work, states) + cz__engines_bytes(true, size, in_process) +
           cz__engines_bytes(false, size, in_process);
}

size_t cz__work_bytes(int size, bool in_process)
{
    return work_bytes(size, in_process) + (in_process ? cz__rendezvous_bytes(size) : 0);
}

/* With the spare operation, and the one that is kept for the next call. */
size_t cz__group_bytes(int size, bool first, bool in_process)
{
    const size_t ring = cz__rendezvous_ring_bytes(size) / (size_t)size;
    const size_t endpoint =
        in_process ? cz__threads_endpoint_bytes() + 2 * CZ__TILE_BYTES + ring : 0;
    return sizeof(cz_group) + 2 * cz__work_bytes(size, in_process) +
           (first ? 0 : (size_t)size * sizeof(int)) + endpoint;
}

/* As new, as far as it is read before it is written. */
static cz_work *clear_work(cz_group *group, cz_work *work)
{
    memset(work, 0, offsetof(cz_work, sentence));
    work->group = group;
    work->sentence[0] = '\0';
    work->rendezvous.state = work->states;
    work->data.state = work->states + group->rendezvous_bytes;
    return work;
}

/* With a rendezvous for it. NULL: no memory. */
static cz_work *create_work(cz_group *group)
{
    cz_work *work = cz__calloc(1, work_bytes(group->size, group->rendezvous));
    if (work && group->rendezvous && cz__rendezvous_set_stock(group->rendezvous) != CZ_OK) {
        cz__free(work);
        return NULL;
    }
    return work;
}

void cz__group_free_memory(cz_group *group)
{
    cz__engines_forget(group);
    cz__free(group->spare);
    if (group->tile)
        group->device->release(group->tile);
    for (cz_work *work = group->idle_works, *next; work; work = next) {
        next = work->next;
        cz__free(work);
    }
    for (cz__staging *staging = group->idle_staging, *next; staging; staging = next) {
        next = staging->next;
        cz__staging_destroy(group->device, staging);
    }
    if (group->owns_rendezvous)
        cz__rendezvous_set_destroy(&group->rendezvous);
}

/* Nobody refers to it any more; its executor's thread has ended. */
static void free_group(cz_group *group)
{
    cz__group_free_memory(group);
    cz__executor_free(group->executor);
    cz__free(group->global_ranks);
    cz__free(group);
}

void cz__group_unreference(cz_group *group)
{
    const bool last = --group->references == 0;
    cz__executor_unlock(group->executor);
    if (last)
        free_group(group);
}

/* Of a reserve: with its rendezvous, unless the group was left and these are gone; and with the
 * reference to the group. */
static void free_work(cz_group *group, cz_work *work)
{
    if (group->process == cz__process()) {
        cz__executor_lock(group->executor);
        if (work && group->rendezvous && !group->left)
            cz__rendezvous_set_unstock(group->rendezvous);
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
    return work ? clear_work(group, work) : NULL;
}

/* Who uses the spare work gives it back when its operation has ended: the header then tells all
 * ranks that there was no memory, and the group lives on. */
cz_status cz__group_make_spare(cz_group *group)
{
    group->rendezvous_bytes = cz__engines_bytes(true, group->size, group->rendezvous);
    group->spare = create_work(group);
    return group->spare ? CZ_OK
                        : cz__fail(CZ_ERR_MEMORY, "group: no memory for the spare operation");
}

cz_work *cz__group_take_spare(cz_group *group)
{
    cz_work *work = group->spare;
    group->spare = NULL;
    return work ? clear_work(group, work) : NULL;
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
    (*out)->staging = cz__staging_create(group, bytes);
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
    cz__staging_destroy((*reserve)->device, (*reserve)->staging);
    cz__free(*reserve);
    *reserve = NULL;
}
