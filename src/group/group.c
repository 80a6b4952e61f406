/* SPDX-License-Identifier: MIT */
/* Process groups: making and leaving them, and the memory they keep for operations. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "group/internal.h"
#include "group/work.h"

enum { DEFAULT_SEGMENT_BYTES = 256 * 1024, LARGEST_SEGMENT_BYTES = 1 << 30 };

static cz_status read_options(cz_group_options *read, const cz_group_options *options)
{
    CZ_TRY(cz__options_read(read, sizeof *read, options, "cz_group_options"));
    if (!(read->timeout_seconds >= 0) || !(read->warn_seconds >= 0))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "group: timeout_seconds %g and warn_seconds %g must be >= 0",
                        read->timeout_seconds, read->warn_seconds);
    if (read->segment_bytes % 64 || read->segment_bytes > LARGEST_SEGMENT_BYTES)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "group: segment_bytes is %zu, allowed are multiples of 64 up to %d",
                        read->segment_bytes, LARGEST_SEGMENT_BYTES);
    if (read->timeout_seconds == 0)
        read->timeout_seconds = cz__environment_number("CZERO_TIMEOUT", 1e-3, 1e9, 600);
    if (read->warn_seconds == 0)
        read->warn_seconds = cz__environment_number("CZERO_WARN", 1e-3, 1e9, 30);
    if (read->segment_bytes == 0)
        read->segment_bytes = DEFAULT_SEGMENT_BYTES;
    return CZ_OK;
}

/* Without an endpoint yet. */
static cz_status create(cz_group **out, int rank, int size, const cz_backend *backend,
                        const cz_group_options *options)
{
    cz_group *group = cz__calloc(1, sizeof *group);
    if (!group)
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for rank %d of %d", rank, size);
    *group = (cz_group){.references = 1,
                        .rank = rank,
                        .size = size,
                        .backend = backend,
                        .device = cz_device_cpu(),
                        .timeout_seconds = options->timeout_seconds,
                        .warn_seconds = options->warn_seconds,
                        .segment_bytes = options->segment_bytes};
    const cz_status status = cz__executor_create(&group->executor);
    if (status != CZ_OK) {
        cz__free(group);
        return status;
    }
    *out = group;
    return CZ_OK;
}

cz_status cz_group_create_self(cz_group **out, const cz_group_options *options)
{
    cz_group_options read;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "group_create_self: out is NULL");
    *out = NULL;
    CZ_TRY(read_options(&read, options));
    CZ_TRY(create(out, 0, 1, &cz__backend_self, &read));
    (*out)->endpoint = *out; /* nothing to keep: any address that is not NULL */
    return CZ_OK;
}

cz_status cz_group_create_threads(cz_group **out, int world_size, const cz_group_options *options)
{
    cz_group_options read;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "group_create_threads: out is NULL");
    if (world_size < 1 || world_size > CZ__MAX_WORLD)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "group_create_threads: world_size is %d, allowed is 1 to %d", world_size,
                        CZ__MAX_WORLD);
    memset(out, 0, (size_t)world_size * sizeof *out);
    CZ_TRY(read_options(&read, options));
    void **endpoints = cz__calloc((size_t)world_size, sizeof *endpoints);
    void **executors = cz__calloc((size_t)world_size, sizeof *executors);
    cz_status status = endpoints && executors
                           ? CZ_OK
                           : cz__fail(CZ_ERR_MEMORY, "group: no memory for %d ranks", world_size);
    for (int r = 0; r < world_size && status == CZ_OK; r++) {
        status = create(&out[r], r, world_size, &cz__backend_threads, &read);
        if (status == CZ_OK)
            executors[r] = out[r]->executor;
    }
    if (status == CZ_OK)
        status = cz__threads_create(endpoints, world_size, cz__executor_notify, executors);
    for (int r = 0; r < world_size; r++) {
        if (status == CZ_OK)
            out[r]->endpoint = endpoints[r];
        else
            cz_group_destroy(&out[r]);
    }
    cz__free(endpoints);
    cz__free(executors);
    return status;
}

int cz_group_rank(const cz_group *group)
{
    return group ? group->rank : -1;
}

int cz_group_size(const cz_group *group)
{
    return group ? group->size : 0;
}

const char *cz_group_backend(const cz_group *group)
{
    return group ? group->backend->name : "";
}

/* ---- the end ---- */

void cz__group_break(cz_group *group, cz_status status, const char *sentence)
{
    cz__executor_lock(group->executor);
    const bool first = group->broken == CZ_OK;
    if (first) {
        group->broken = status;
        snprintf(group->why, sizeof group->why, "%s", sentence);
    }
    cz__executor_unlock(group->executor);
    if (first && group->endpoint)
        group->backend->break_group(group->endpoint, status, sentence);
}

/* Nobody refers to it any more; its executor's thread has ended. */
static void free_group(cz_group *group)
{
    for (cz_work *work = group->idle_works, *next; work; work = next) {
        next = work->next;
        cz__free(work);
    }
    for (cz__staging *staging = group->idle_staging, *next; staging; staging = next) {
        next = staging->next;
        group->device->release(staging->data);
        cz__free(staging);
    }
    cz__executor_free(group->executor);
    cz__free(group);
}

void cz__group_unreference(cz_group *group)
{
    const bool last = --group->references == 0;
    cz__executor_unlock(group->executor);
    if (last)
        free_group(group);
}

/* End what is in flight; the lock is held at call and return. */
static void end_operations(cz_group *group)
{
    cz__executor *executor = group->executor;
    cz_work *work;
    cz__executor_seize(executor);
    while ((work = cz__executor_first(executor))) {
        cz__executor_unlock(executor);
        if (work->phase < CZ__PHASE_CONTINUE) {
            cz__flights_withdraw(work);
            work->status = CZ_ERR_STATE;
            snprintf(work->sentence, sizeof work->sentence, "%s", group->why);
            work->phase = CZ__PHASE_CONTINUE;
        } else if (work->phase == CZ__PHASE_CONTINUE) {
            cz__flights_withdraw(work);
        }
        (void)cz__operation_advance(work);
        cz__executor_lock(executor);
        if (cz__work_retire(work))
            cz__executor_remove(executor, work);
        else /* waits for its children, or for its turn: those behind it first */
            cz__executor_rotate(executor, work);
    }
    cz__executor_release(executor);
}

void cz__group_leave(cz_group *group, const char *why)
{
    cz__executor *executor = group->executor;
    cz__executor_lock(executor);
    if (group->broken == CZ_OK)
        snprintf(group->why, sizeof group->why,
                 "the group was destroyed with operations in flight");
    group->broken = CZ_ERR_STATE;
    end_operations(group);
    cz__executor_unlock(executor);
    if (group->endpoint)
        group->backend->leave(group->endpoint, why);
    cz__executor_stop(executor);
    cz__executor_lock(executor);
    group->endpoint = NULL;
    cz__group_unreference(group);
}

void cz_group_destroy(cz_group **group)
{
    if (!group || !*group)
        return;
    cz__group_leave(*group, NULL);
    *group = NULL;
}

/* ---- memory for operations ---- */

cz_work *cz__group_take_work(cz_group *group)
{
    const size_t size = (size_t)group->size;
    const size_t bytes = sizeof(cz_work) + size * sizeof(cz__peer) + size * sizeof(void *);
    cz_work *work = group->idle_works;
    if (work) {
        group->idle_works = work->next;
        memset(work, 0, bytes);
    } else if (!(work = cz__calloc(1, bytes))) {
        return NULL;
    }
    work->group = group;
    work->sources = (const void **)(void *)&work->peers[size];
    return work;
}

void cz__work_unreference(cz_work *work)
{
    if (--work->references > 0)
        return;
    work->next = work->group->idle_works;
    work->group->idle_works = work;
}

void cz_work_destroy(cz_work **handle)
{
    if (!handle || !*handle)
        return;
    cz_work *work = *handle;
    cz_group *group = work->group;
    *handle = NULL;
    cz__executor_lock(group->executor);
    cz__work_unreference(work);
    cz__group_unreference(group);
}

cz__staging *cz__group_take_staging(cz_group *group, size_t bytes)
{
    cz__staging **best = NULL; /* the smallest that will do: large ones stay for who needs them */
    for (cz__staging **link = &group->idle_staging; *link; link = &(*link)->next)
        if ((*link)->bytes >= bytes && (!best || (*link)->bytes < (*best)->bytes))
            best = link;
    if (best) {
        cz__staging *found = *best;
        *best = found->next;
        return found;
    }
    cz__staging *staging = cz__calloc(1, sizeof *staging);
    void *data = NULL;
    if (staging && group->device->allocate(CZ_MEMORY_STAGING, bytes, &data) == CZ_OK) {
        *staging = (cz__staging){.bytes = bytes, .data = data};
        return staging;
    }
    cz__free(staging);
    return NULL;
}

void cz__group_return_staging(cz_group *group, cz__staging *staging)
{
    if (!staging)
        return;
    staging->next = group->idle_staging;
    group->idle_staging = staging;
}
