/* SPDX-License-Identifier: MIT */
/* Ranks that are threads of one process. A message is one copy from the sender's memory to the
 * receiver's, made by whichever side comes second, outside all locks. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/kernel_threads.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/internal.h"
#include "engine/rendezvous.h"

typedef struct block block;

enum { BUCKETS = 1024 };

/* One rank's side. Posts that found no partner wait in the lists of the *receiving* side: a list
 * for each hash of sender and tag, so that many can wait. Those of equal sender and tag are all of
 * one kind and in the order in which they were posted. */
typedef struct endpoint {
    block *block;
    int rank;
    int global_rank;
    pthread_mutex_t lock;          /* the lists, and that `context` may be used */
    cz_transfer *waiting[BUCKETS]; /* sends to this rank and receives of it */
    void (*notify)(void *context); /* NULL before the start and once the rank has left */
    void *context;
    atomic_bool left;
    char why[200]; /* it left; written before `left` is set */
    _Atomic uint64_t begun;
} endpoint;

struct block {
    int size;
    atomic_int references;        /* endpoints that were made and have not left */
    bool is_counted;              /* its ranks are: they share the cores of the process */
    uint64_t id;                  /* of a sub-group; this and the rest under `splitting` */
    int leader;                   /* its first member's rank in the parent */
    int to_come;                  /* members that have not made their endpoint */
    block *parent;                /* in whose list it is until all have come */
    block *next;                  /* in that list */
    block *children;              /* its own list */
    _Atomic uint64_t broken_from; /* the operation; UINT64_MAX: it is not broken */
    pthread_mutex_t breaking;     /* the next two */
    cz_status status;
    char sentence[CZ__SENTENCE_BYTES];
    cz__rendezvous_set *rendezvous; /* owned */
    endpoint endpoints[];
};

/* own[0]: the next in its list; own[1]: the state; own[2]: the posting rank; own[3]: not NULL: it
 * sends. */
typedef enum state { WAITING = 0, COPYING, DONE, FAILED } state;

static cz_transfer **next_of(cz_transfer *transfer)
{
    return (cz_transfer **)(void *)&transfer->own[0];
}

static _Atomic uintptr_t *state_of(cz_transfer *transfer)
{
    return (_Atomic uintptr_t *)(void *)&transfer->own[1];
}

static int poster_of(const cz_transfer *transfer)
{
    return (int)(intptr_t)transfer->own[2];
}

static void notify(endpoint *of)
{
    pthread_mutex_lock(&of->lock);
    if (of->notify)
        of->notify(of->context);
    pthread_mutex_unlock(&of->lock);
}

static bool sends(const cz_transfer *transfer)
{
    return transfer->own[3] != NULL;
}

/* Where the receiver keeps what waits for the same partner as `transfer`. */
static cz_transfer **list_of(const cz_transfer *transfer, endpoint *receiver)
{
    const int sender = sends(transfer) ? poster_of(transfer) : transfer->peer;
    const uint64_t hash = (transfer->tag ^ (uint64_t)sender << 40) * UINT64_C(0x9e3779b97f4a7c15);
    return &receiver->waiting[hash >> 32 & (BUCKETS - 1)];
}

/* Take the first partner of `transfer` off the list, or put it at the end; NULL: there was none. */
static cz_transfer *take_or_append(cz_transfer **list, cz_transfer *transfer)
{
    for (; *list; list = next_of(*list)) {
        cz_transfer *found = *list;
        if (poster_of(found) == transfer->peer && found->peer == poster_of(transfer) &&
            found->tag == transfer->tag && sends(found) != sends(transfer)) {
            *list = *next_of(found);
            return found;
        }
    }
    *list = transfer;
    *next_of(transfer) = NULL;
    return NULL;
}

static cz_status broken(void *context, uint64_t *sequence, char *sentence, size_t bytes)
{
    block *all = ((endpoint *)context)->block;
    if (atomic_load(&all->broken_from) == UINT64_MAX)
        return CZ_OK;
    pthread_mutex_lock(&all->breaking);
    const cz_status status = all->status;
    *sequence = atomic_load(&all->broken_from);
    if (sentence)
        snprintf(sentence, bytes, "%s", all->sentence);
    pthread_mutex_unlock(&all->breaking);
    return status;
}

/* Meet a partner, or wait for one in the receiver's list. */
static cz_status post(endpoint *of, cz_transfer *transfer, bool send)
{
    endpoint *peer = &of->block->endpoints[transfer->peer];
    endpoint *receiver = send ? peer : of;
    transfer->own[2] = (void *)(intptr_t)of->rank;
    transfer->own[3] = send ? transfer : NULL;
    pthread_mutex_lock(&receiver->lock);
    cz_transfer *partner = take_or_append(list_of(transfer, receiver), transfer);
    if (partner)
        atomic_store(state_of(partner), COPYING);
    pthread_mutex_unlock(&receiver->lock);
    if (!partner)
        return CZ_OK;
    cz_transfer *from = send ? transfer : partner, *to = send ? partner : transfer;
    cz_status status = CZ_OK;
    to->came = from->bytes;
    if (from->bytes > to->bytes || (from->bytes < to->bytes && !to->at_most))
        status = cz__fail(CZ_ERR_INTERNAL, "threads: rank %d sent %zu bytes, rank %d expected %zu",
                          poster_of(from), from->bytes, poster_of(to), to->bytes);
    else
        status = to->device->copy(to->queue, to->data, from->data, from->bytes);
    atomic_store(state_of(transfer), DONE);
    atomic_store_explicit(state_of(partner), status == CZ_OK ? DONE : FAILED,
                          memory_order_release); /* now it may be gone */
    notify(peer);
    return status;
}

static cz_status post_send(void *context, cz_transfer *transfer)
{
    return post(context, transfer, true);
}

static cz_status post_receive(void *context, cz_transfer *transfer)
{
    return post(context, transfer, false);
}

static cz_status has_left(const endpoint *peer)
{
    if (!atomic_load(&peer->left))
        return CZ_OK;
    return cz__fail(CZ_ERR_PEER, "rank %d left the group%s%s%s", peer->global_rank,
                    peer->why[0] ? " (" : "", peer->why, peer->why[0] ? ")" : "");
}

static cz_status test(void *context, cz_transfer *transfer, bool *done)
{
    endpoint *of = context, *peer = &of->block->endpoints[transfer->peer];
    const bool left = atomic_load(&peer->left); /* before the state: what was done before counts */
    const uintptr_t now = atomic_load_explicit(state_of(transfer), memory_order_acquire);
    *done = now == DONE;
    if (now == FAILED)
        return cz__fail(CZ_ERR_INTERNAL, "threads: rank %d posted other than %zu bytes", peer->rank,
                        transfer->bytes);
    if (!left || now != WAITING)
        return CZ_OK;
    return has_left(peer);
}

static bool withdraw(void *context, cz_transfer *transfer)
{
    endpoint *of = context;
    endpoint *receiver = sends(transfer) ? &of->block->endpoints[transfer->peer] : of;
    cz_transfer **link = list_of(transfer, receiver);
    pthread_mutex_lock(&receiver->lock);
    while (*link && *link != transfer)
        link = next_of(*link);
    if (*link)
        *link = *next_of(transfer);
    pthread_mutex_unlock(&receiver->lock);
    while (atomic_load_explicit(state_of(transfer), memory_order_acquire) == COPYING)
        sched_yield(); /* the partner is in the middle of one copy */
    return true;
}

static void notify_all(block *all)
{
    for (int r = 0; r < all->size; r++)
        notify(&all->endpoints[r]);
}

static void break_group(void *context, uint64_t sequence, cz_status status, const char *sentence)
{
    block *all = ((endpoint *)context)->block;
    pthread_mutex_lock(&all->breaking);
    const bool counts = sequence < atomic_load(&all->broken_from);
    if (counts) {
        all->status = status;
        snprintf(all->sentence, sizeof all->sentence, "%s", sentence);
        atomic_store(&all->broken_from, sequence);
    }
    pthread_mutex_unlock(&all->breaking);
    if (counts)
        notify_all(all);
}

static void announce(void *context, uint64_t begun)
{
    atomic_store(&((endpoint *)context)->begun, begun);
}

static uint64_t announced(void *context, int rank)
{
    return atomic_load(&((endpoint *)context)->block->endpoints[rank].begun);
}

/* ---- blocks ---- */

static void notify_rank(void *context, int rank)
{
    notify(&((block *)context)->endpoints[rank]);
}

static cz_status left_rank(void *context, int rank)
{
    return has_left(&((block *)context)->endpoints[rank]);
}

cz__rendezvous_set *cz__threads_rendezvous(void *context)
{
    return ((endpoint *)context)->block->rendezvous;
}

size_t cz__threads_endpoint_bytes(void)
{
    return sizeof(endpoint);
}

CZ__PROCESS_LOCK(splitting)

static block *create_block(int size)
{
    block *all = cz__calloc(1, sizeof *all + (size_t)size * sizeof(endpoint));
    const cz__ranks ranks = {all, notify_rank, left_rank};
    if (!all || cz__rendezvous_set_create(&all->rendezvous, size, &ranks) != CZ_OK) {
        cz__free(all);
        return NULL;
    }
    all->size = size;
    atomic_store(&all->broken_from, UINT64_MAX);
    pthread_mutex_init(&all->breaking, NULL);
    for (int r = 0; r < size; r++) {
        all->endpoints[r].block = all;
        all->endpoints[r].rank = all->endpoints[r].global_rank = r;
        cz__lock_create(&all->endpoints[r].lock);
    }
    return all;
}

static void unlist(block *child)
{
    block **link = &child->parent->children;
    while (*link != child)
        link = &(*link)->next;
    *link = child->next;
    child->parent = NULL;
}

static void destroy(block *all)
{
    for (int r = 0; r < all->size; r++)
        pthread_mutex_destroy(&all->endpoints[r].lock);
    pthread_mutex_destroy(&all->breaking);
    cz__rendezvous_set_destroy(&all->rendezvous);
    cz__free(all);
}

static void start(void *context, void (*wake)(void *context), void *wake_context)
{
    endpoint *of = context;
    pthread_mutex_lock(&of->lock);
    of->notify = wake;
    of->context = wake_context;
    pthread_mutex_unlock(&of->lock);
}

static void leave(void *context, const char *why)
{
    endpoint *of = context;
    block *all = of->block;
    pthread_mutex_lock(&of->lock);
    of->notify = NULL;
    snprintf(of->why, sizeof of->why, "%s", why ? why : "");
    pthread_mutex_unlock(&of->lock);
    atomic_store(&of->left, true);
    notify_all(all);
    cz__process_lock_take(&splitting); /* so that nobody meets a block that is going away */
    const bool last = atomic_fetch_sub(&all->references, 1) == 1;
    if (last && all->parent) /* some member had no memory, so not all have come */
        unlist(all);
    cz__process_lock_release(&splitting);
    if (last && all->is_counted)
        cz__cores_add_ranks(-all->size);
    if (last)
        destroy(all);
}

cz_status cz__threads_create(void **endpoints, int world_size)
{
    block *all = create_block(world_size);
    if (!all)
        return cz__fail(CZ_ERR_MEMORY, "threads: no memory for %d ranks", world_size);
    atomic_store(&all->references, world_size);
    all->is_counted = true;
    cz__cores_add_ranks(world_size);
    for (int r = 0; r < world_size; r++)
        endpoints[r] = &all->endpoints[r];
    return CZ_OK;
}

/* The block of a sub-group: the first member makes it, the last one takes it off the list. */
static block *meet(block *parent, uint64_t id, int leader, int count)
{
    block *child = parent->children;
    while (child && !(child->id == id && child->leader == leader))
        child = child->next;
    if (!child && (child = create_block(count))) {
        child->id = id;
        child->leader = leader;
        child->to_come = count;
        child->parent = parent;
        child->next = parent->children;
        parent->children = child;
    }
    if (child) {
        atomic_fetch_add(&child->references, 1);
        if (--child->to_come == 0)
            unlist(child);
    }
    return child;
}

static cz_status split(void *context, uint64_t id, const int *ranks, int count, int rank,
                       void **out)
{
    endpoint *of = context;
    if (rank < 0)
        return CZ_OK;
    cz__process_lock_take(&splitting);
    block *child = meet(of->block, id, ranks[0], count);
    cz__process_lock_release(&splitting);
    if (!child)
        return cz__fail(CZ_ERR_MEMORY, "threads: no memory for a sub-group of %d ranks", count);
    child->endpoints[rank].global_rank = of->global_rank;
    *out = &child->endpoints[rank];
    return CZ_OK;
}

const cz_backend cz__backend_threads = {
    .abi = CZ_BACKEND_ABI,
    .size = sizeof(cz_backend),
    .name = "threads",
    .start = start,
    .post_send = post_send,
    .post_receive = post_receive,
    .test = test,
    .withdraw = withdraw,
    .break_group = break_group,
    .broken = broken,
    .announce = announce,
    .announced = announced,
    .leave = leave,
    .split = split,
    .at_most = true,
};
