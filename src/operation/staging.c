/* SPDX-License-Identifier: MIT */
/* Staging memory: blocks that a group keeps for the next operation, and pools, with which
 * operations take turns. The queue of a pool has them in the order of their start, which is the
 * same on all ranks: so the first of those that have not ended on all ranks has a block on every
 * rank, or gets the next one, and nobody waits for ever. */
#include "base/memory.h"
#include "base/status.h"
#include "operation/operation.h"

size_t cz__chunk_bytes(const cz_group *group, size_t longest)
{
    return cz__chunk_of(group->segment_bytes, longest);
}

size_t cz__staging_bytes(const cz_group *group, size_t longest)
{
    return group->rendezvous ? 0 : cz__staging_of(group->size, group->segment_bytes, longest);
}

cz__staging *cz__staging_create(const cz_group *group, size_t size)
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

void cz__staging_destroy(const cz_device *device, cz__staging *staging)
{
    if (!staging)
        return;
    device->release(staging->data);
    cz__free(staging);
}

static cz__staging *take_staging(cz_group *group, size_t bytes, cz__reserve *reserve)
{
    cz__staging **link = &group->idle_staging; /* large ones stay for who needs them */
    if (reserve && reserve->staging && reserve->staging->bytes >= bytes)
        link = &reserve->staging;
    else
        while (*link && (*link)->bytes != cz__staging_class(bytes))
            link = &(*link)->next;
    cz__staging *found = *link;
    if (!found)
        return cz__staging_create(group, cz__staging_class(bytes));
    *link = found->next;
    found->next = NULL;
    return found;
}

/* ---- pools ---- */

/* Two, so that one is on its way while the other is added up; of small ones more, since they wait
 * for messages. */
static int block_count(size_t block_bytes, int most)
{
    if (block_bytes == 0) /* nobody needs any */
        return 0;
    const size_t worth = ((size_t)2 << 20) / block_bytes;
    const int count = worth > 2 ? (int)worth : 2;
    return most < count ? most : count;
}

size_t cz__pool_plan(int size, size_t segment_bytes, size_t longest, int most)
{
    const size_t bytes = cz__staging_of(size, segment_bytes, longest);
    return bytes * (size_t)block_count(bytes, most);
}

size_t cz__pool_bytes(const cz__pool *pool)
{
    return pool ? pool->block_bytes * (size_t)pool->count : 0;
}

static cz_status add_block(cz__pool *pool)
{
    cz__staging *block = cz__calloc(1, sizeof *block);
    void *data = NULL;
    if (!block || pool->device->allocate(CZ_MEMORY_STAGING, pool->block_bytes, &data) != CZ_OK) {
        cz__free(block);
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for %zu bytes of staging",
                        pool->block_bytes);
    }
    *block = (cz__staging){.next = pool->idle, .bytes = pool->block_bytes, .data = data};
    pool->idle = block;
    return CZ_OK;
}

cz_status cz__pool_create(cz__pool **out, cz_group *group, size_t longest, int most)
{
    cz__pool *pool = *out = cz__calloc(1, sizeof *pool);
    if (!pool)
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for a pool");
    pool->device = group->device;
    pool->block_bytes = cz__staging_bytes(group, longest);
    pool->count = block_count(pool->block_bytes, most);
    for (int k = 0; k < pool->count; k++) {
        const cz_status status = add_block(pool);
        if (status != CZ_OK) {
            cz__pool_destroy(out);
            return status;
        }
    }
    return CZ_OK;
}

void cz__pool_destroy(cz__pool **pool)
{
    if (!pool || !*pool)
        return;
    while ((*pool)->idle) {
        cz__staging *block = (*pool)->idle;
        (*pool)->idle = block->next;
        (*pool)->device->release(block->data);
        cz__free(block);
    }
    cz__free(*pool);
    *pool = NULL;
}

static void queue_for_pool(cz_work *work)
{
    cz__pool *pool = work->operation.pool;
    *(pool->last ? &pool->last->staging.next : &pool->first) = work;
    pool->last = work;
    work->staging.queued = true;
}

/* Off the queue, if it is in it. */
static void unqueue(cz__pool *pool, const cz_work *work)
{
    cz_work *before = NULL, *at = pool->first;
    while (at && at != work) {
        before = at;
        at = at->staging.next;
    }
    if (!at)
        return;
    *(before ? &before->staging.next : &pool->first) = at->staging.next;
    if (pool->last == at)
        pool->last = before;
    at->staging.next = NULL;
}

bool cz__pool_take(cz_work *work)
{
    cz__pool *pool = work->operation.pool;
    if (work->staging.block)
        return true;
    cz__executor_lock(work->group->executor);
    if (pool->first == work && pool->idle) {
        unqueue(pool, work);
        work->staging.block = pool->idle;
        work->staging.queued = false;
        pool->idle = work->staging.block->next;
    }
    cz__executor_unlock(work->group->executor);
    return work->staging.block != NULL;
}

void cz__pool_leave(cz_work *work)
{
    cz__pool *pool = work->operation.pool;
    cz__staging *staging = work->staging.block;
    unqueue(pool, work);
    work->staging.block = NULL;
    work->staging.queued = false;
    work->operation.pool = NULL; /* which may be gone before the work is */
    if (!staging || work->stuck) /* stuck: the backend may still write into it */
        return;
    staging->next = pool->idle;
    pool->idle = staging;
}

void cz__pool_pass(cz_work *work)
{
    cz__executor *executor = work->group->executor;
    if (!work->operation.pool)
        return;
    cz__executor_lock(executor);
    cz__pool_leave(work);
    cz__executor_unlock(executor);
}

/* ---- of an operation ---- */

/* Where nothing is reduced, only streams of more than one piece are packed. */
cz_status cz__work_take_staging(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const bool packs = operation->exchanges && operation->source.kind == CZ__REGION_MAPPED;
    if (work->group->rendezvous || (!operation->reduces && !packs))
        return CZ_OK;
    if (operation->pool) {
        queue_for_pool(work);
        return CZ_OK;
    }
    const size_t bytes = cz__staging_bytes(work->group, operation->longest);
    work->staging.block = take_staging(work->group, bytes, operation->reserve);
    return work->staging.block
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "%s: no memory for %zu bytes of staging",
                          cz__operation_name((cz__operation_kind)operation->header.kind), bytes);
}

void cz__work_return_staging(cz_work *work)
{
    if (work->operation.pool) {
        cz__pool_leave(work);
        return;
    }
    cz__staging *staging = work->staging.block;
    cz__reserve *reserve = work->operation.reserve;
    work->staging.block = NULL;
    if (!staging || work->stuck) /* stuck: the backend may still write into it */
        return;
    if (reserve && !reserve->staging && !reserve->bare) {
        reserve->staging = staging;
        return;
    }
    staging->next = work->group->idle_staging;
    work->group->idle_staging = staging;
}
