/* SPDX-License-Identifier: MIT */
/* Memory that ranks share: rank 0 makes a block and says which, the others take it, from the
 * process's list of blocks or out of the file of another process. Nobody has one unless all
 * have. */
#include "collective/shared.h"

#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/process.h"
#include "base/status.h"
#include "base/thread.h"
#include "collective/description.h"
#include "group/internal.h"

/* A block as one process sees it, for all its ranks. */
typedef struct block {
    struct block *next;
    uint64_t id;
    char *data;
    size_t bytes;
    int ranks;
    int handles;  /* of ranks of this process; under the lock, as the list */
    bool mapped;  /* of a file; else of the device */
    bool counted; /* in the bytes that the library holds: once for all processes */
} block;

struct cz_shared {
    block *block;
};

CZ__PROCESS_LOCK(lock)
static block *blocks;

/* ---- the blocks of this process ---- */

/* It is found from now on, with one handle. */
static void enlist(block *made)
{
    made->handles = 1;
    cz__process_lock_take(&lock);
    made->next = blocks;
    blocks = made;
    cz__process_lock_release(&lock);
}

/* One handle more, if it is here. */
static block *take_block(uint64_t id)
{
    cz__process_lock_take(&lock);
    block *at = blocks;
    while (at && at->id != id)
        at = at->next;
    if (at)
        at->handles++;
    cz__process_lock_release(&lock);
    return at;
}

static void free_block(block *b)
{
    if (b->counted)
        cz__memory_uncount(CZ_MEMORY_GENERAL, b->bytes);
    if (b->mapped)
        cz__shared_file_unmap(b->data, b->bytes);
    else
        cz_device_cpu()->release(b->data);
    cz__free(b);
}

/* One handle less. */
static void give_back(block *b)
{
    if (!b)
        return;
    cz__process_lock_take(&lock);
    const bool last = --b->handles == 0;
    block **link = &blocks;
    while (last && *link != b)
        link = &(*link)->next;
    if (last)
        *link = b->next;
    cz__process_lock_release(&lock);
    if (last)
        free_block(b);
}

cz__shared_place cz__shared_find(const void *address, size_t bytes)
{
    cz__shared_place place = {0, 0, 0};
    cz__process_lock_take(&lock);
    if (address) {
        for (const block *b = blocks; b; b = b->next) {
            const uintptr_t offset =
                (uintptr_t)address - (uintptr_t)b->data; /* huge if it is before */
            if (offset > b->bytes || bytes > b->bytes - offset)
                continue;
            place = (cz__shared_place){b->id, offset, b->ranks};
            break;
        }
    }
    cz__process_lock_release(&lock);
    return place;
}

bool cz__shared_by(const cz_group *group, const void *address, size_t bytes)
{
    return bytes > 0 && cz__shared_find(address, bytes).ranks == group->size;
}

/* ---- making one ---- */

typedef struct making {
    cz_group *group;
    size_t bytes;
    cz__shared_file file;
    cz_shared *handle;
} making;

static block *new_block(const making *m)
{
    block *b = cz__calloc(1, sizeof *b);
    if (b)
        *b = (block){.id = m->file.id, .bytes = m->bytes, .ranks = m->group->size};
    return b;
}

/* Also where a name other than the host's says that ranks are apart. */
static cz_status check_machine(const cz_group *group)
{
    const cz_backend *backend = group->backend;
    if (!backend->machine)
        return CZ_OK;
    for (int r = 0; r < group->size; r++)
        if (backend->machine(group->endpoint, r) != backend->machine(group->endpoint, 0))
            return cz__fail(
                CZ_ERR_UNSUPPORTED,
                "shared: ranks 0 and %d are on different machines; make the block over a group of "
                "one machine's ranks (cz_group_split()), or let each rank have memory of its own",
                r);
    return CZ_OK;
}

static cz_status check_block(making *m, cz_shared *const *out)
{
    if (!out || m->bytes == 0)
        return cz__fail(CZ_ERR_ARGUMENT, "shared: %s", out ? "0 bytes" : "out is NULL");
    if (m->group->device != cz_device_cpu())
        return cz__fail(
            CZ_ERR_UNSUPPORTED,
            "shared: the group moves memory of %s; let each rank have memory of its own",
            m->group->device->name);
    CZ_TRY(check_machine(m->group));
    m->handle = cz__calloc(1, sizeof *m->handle);
    return m->handle ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "shared: no memory for a handle");
}

/* Ranks that reach each other's memory need no file. */
static cz_status have_memory(making *m, block *b)
{
    void *data = NULL;
    m->file.number = -1;
    b->mapped = !m->group->rendezvous && m->group->size > 1;
    const cz_status status = b->mapped
                                 ? cz__shared_file_create(&m->file, m->bytes, &data)
                                 : cz_device_cpu()->allocate(CZ_MEMORY_GENERAL, m->bytes, &data);
    b->data = data;
    if (status != CZ_OK || !b->mapped)
        return status;
    b->counted = true;
    cz__memory_count(CZ_MEMORY_GENERAL, b->bytes);
    return CZ_OK;
}

/* Rank 0. */
static cz_status make_block(making *m)
{
    m->file.id = cz__shared_id();
    m->file.owner = getpid();
    cz__shared_host(m->file.host);
    block *b = new_block(m);
    if (!b)
        return cz__fail(CZ_ERR_MEMORY, "shared: no memory for a block");
    const cz_status status = have_memory(m, b);
    if (status != CZ_OK) {
        cz__free(b);
        return status;
    }
    enlist(b);
    m->handle->block = b;
    return CZ_OK;
}

/* The others. */
static cz_status join(making *m)
{
    void *data = NULL;
    m->handle->block = take_block(m->file.id);
    if (m->handle->block)
        return CZ_OK;
    CZ_TRY(cz__shared_file_open(&m->file, m->bytes, &data));
    block *b = new_block(m);
    if (!b) {
        cz__shared_file_unmap(data, m->bytes);
        return cz__fail(CZ_ERR_MEMORY, "shared: no memory for a block");
    }
    b->data = data;
    b->mapped = true;
    enlist(b);
    m->handle->block = b;
    return CZ_OK;
}

/* Rank 0 keeps its block, and the file open, until all have come to the last agreement. */
static cz_status make_together(making *m)
{
    cz_group *group = m->group;
    const bool first = group->rank == 0;
    CZ_TRY(cz__agree(group, first ? make_block(m) : CZ_OK, 0, NULL, "shared: memory"));
    CZ_TRY(cz_broadcast(group, &m->file, sizeof m->file, CZ_U8, 0, CZ_LABEL("shared: place")));
    return cz__agree(group, first ? CZ_OK : join(m), 0, NULL, "shared: mapping");
}

static void describe_size(cz__description *d, const void *context)
{
    cz__describe_number(d, &(cz__subject){NULL, "the size", -1, NULL, "in bytes is"},
                        CZ__FIELD_NUMBER, (int64_t)((const making *)context)->bytes);
}

cz_status cz_shared_create(cz_shared **out, cz_group *group, size_t bytes, void **data)
{
    CZ__UNCANCELLED;
    cz__description room = {0};
    if (out)
        *out = NULL;
    if (data)
        *data = NULL;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "shared: group is NULL");
    making m = {.group = group, .bytes = bytes, .file.number = -1};
    cz_status status =
        cz__agree_on(group, "shared", describe_size, &m, check_block(&m, out), &room);
    cz__description_clear(&room);
    if (status == CZ_OK)
        status = make_together(&m);
    if (group->rank == 0)
        cz__shared_file_close(&m.file);
    if (status) {
        cz_shared_destroy(&m.handle);
        return status;
    }
    *out = m.handle;
    if (data)
        *data = m.handle->block->data;
    return CZ_OK;
}

void cz_shared_destroy(cz_shared **shared)
{
    CZ__UNCANCELLED;
    if (!shared || !*shared)
        return;
    give_back((*shared)->block);
    cz__free(*shared);
    *shared = NULL;
}
