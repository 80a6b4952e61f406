/* SPDX-License-Identifier: MIT */
/* Rendezvous. Each rank has a place in it, says there what it was asked to do, and sees what the
 * others say; each judges for itself, by the same rule. Those of the program's own operations,
 * which all ranks begin in one order, lie in a ring and take no lock; the others are found by the
 * operation's tag. What they meet for is in direct.c. */
#include "engine/rendezvous.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/prefetch.h"
#include "base/status.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "engine/small_data.h"

enum {
    LISTS = 64,
    RING = CZ__RENDEZVOUS_RING,
    STEP_RENDEZVOUS = 6,
    PREFETCHED = 2048,
    AWAIT_TURNS = 50 /* a microsecond or so: sooner than to come back */
};

/* What ranks compare, as far as they are equal in an operation that goes on. */
typedef struct claim {
    uint64_t call; /* kind, type, reduction and root */
    int64_t count;
    uint64_t fingerprint, balance;
    uint64_t more; /* of the label, and which parameters take part, where these count */
    uint32_t segment_bytes;
    bool checked, sound; /* this rank's own check has not failed */
} claim;

/* One rank in a rendezvous. Each line is written by its rank only: what others look at costs them a
 * way from core to core whenever it has changed. Where a tag is not that of the operation it is of
 * one before. */
typedef struct place {
    /* What it says, complete once `come` is the operation's tag. */
    _Alignas(64) _Atomic uint64_t come;
    const cz_work *work;
    claim claim;
    /* How far it is. */
    _Alignas(64) _Atomic uint64_t finished; /* with its part; `moved` is there */
    _Atomic uint64_t parted;                /* it does not look at the places any more */
    _Atomic uint64_t watches_come;          /* for ranks to come, and need not be notified */
    _Atomic uint64_t watches_finished;
    size_t moved;                  /* bytes that it handed on */
    _Alignas(64) atomic_bool busy; /* it touches what others brought */
} place;

struct cz__rendezvous {
    cz__rendezvous *next;
    uint64_t tag;                /* of one that was found by it; 0: it is of the ring */
    atomic_int gone;             /* ranks that have parted, the same */
    _Atomic uint64_t called_off; /* the tag, where some rank took its memory back; */
    _Atomic uint64_t stands;     /* the verdict does, though: all had come before */
    _Alignas(64) place places[]; /* size */
};

struct cz__rendezvous_set {
    int size;
    cz__ranks ranks;
    uint64_t *nonces;     /* owned: of each rank that has come to anything */
    char *ring;           /* owned: RING of them, */
    char *data;           /* owned: and what ranks give there, CZ__PLACE_BYTES of each */
    atomic_int waiting;   /* ranks, for a place in the ring */
    pthread_mutex_t lock; /* the lists and the stock */
    cz__rendezvous *lists[LISTS];
    cz__rendezvous *stock; /* one for each work there is, so that none in a rendezvous is without */
};

const cz_work *cz__rendezvous_work(const cz__rendezvous *rendezvous, int rank)
{
    return rendezvous->places[rank].work;
}

size_t cz__rendezvous_moved(const cz__rendezvous *rendezvous, int rank)
{
    return rendezvous->places[rank].moved;
}

/* ---- stock ---- */

static void push(cz__rendezvous **list, cz__rendezvous *rendezvous)
{
    rendezvous->next = *list;
    *list = rendezvous;
}

static cz__rendezvous *pop(cz__rendezvous **list)
{
    cz__rendezvous *rendezvous = *list;
    if (rendezvous)
        *list = rendezvous->next;
    return rendezvous;
}

static void free_all(cz__rendezvous **list)
{
    for (cz__rendezvous *rendezvous; (rendezvous = pop(list));)
        cz__free(rendezvous);
}

cz_status cz__rendezvous_set_create(cz__rendezvous_set **out, int size, const cz__ranks *ranks)
{
    cz__rendezvous_set *set = *out = cz__calloc(1, sizeof *set);
    if (!set)
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for meetings of %d ranks", size);
    cz__lock_create(&set->lock);
    set->size = size;
    set->ranks = *ranks;
    set->nonces = cz__calloc((size_t)size, sizeof *set->nonces);
    set->ring = cz__calloc(RING, cz__rendezvous_bytes(size));
    set->data = cz__calloc(RING, (size_t)size * CZ__PLACE_BYTES);
    if (set->nonces && set->ring && set->data)
        return CZ_OK;
    cz__rendezvous_set_destroy(out);
    return cz__fail(CZ_ERR_MEMORY, "group: no memory for meetings of %d ranks", size);
}

void cz__rendezvous_set_destroy(cz__rendezvous_set **set)
{
    if (!set || !*set)
        return;
    for (int i = 0; i < LISTS; i++)
        free_all(&(*set)->lists[i]);
    free_all(&(*set)->stock);
    cz__free((*set)->ring);
    cz__free((*set)->data);
    cz__free((*set)->nonces);
    pthread_mutex_destroy(&(*set)->lock);
    cz__free(*set);
    *set = NULL;
}

size_t cz__rendezvous_bytes(int size)
{
    return sizeof(cz__rendezvous) + (size_t)size * sizeof(place);
}

size_t cz__rendezvous_ring_bytes(int size)
{
    return RING * (cz__rendezvous_bytes(size) + (size_t)size * CZ__PLACE_BYTES);
}

cz_status cz__rendezvous_set_stock(cz__rendezvous_set *set)
{
    cz__rendezvous *rendezvous = cz__calloc(1, cz__rendezvous_bytes(set->size));
    if (!rendezvous)
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for a meeting of %d ranks", set->size);
    pthread_mutex_lock(&set->lock);
    push(&set->stock, rendezvous);
    pthread_mutex_unlock(&set->lock);
    return CZ_OK;
}

/* A work that is in no rendezvous goes, and one rendezvous of the stock with it. Each other work is
 * in one at most, so there are enough; those that were called off never end and are not counted. */
void cz__rendezvous_set_unstock(cz__rendezvous_set *set)
{
    pthread_mutex_lock(&set->lock);
    cz__rendezvous *rendezvous = pop(&set->stock);
    pthread_mutex_unlock(&set->lock);
    cz__free(rendezvous);
}

/* ---- those that are found by their tag; under the lock ---- */

static cz__rendezvous **list_of(cz__rendezvous_set *set, uint64_t tag)
{
    return &set->lists[tag * UINT64_C(0x9e3779b97f4a7c15) >> 58 & (LISTS - 1)];
}

static cz__rendezvous *find_tag(cz__rendezvous_set *set, uint64_t tag)
{
    cz__rendezvous *rendezvous = *list_of(set, tag);
    while (rendezvous && rendezvous->tag != tag)
        rendezvous = rendezvous->next;
    return rendezvous;
}

/* NULL: there is no memory. */
static cz__rendezvous *begin_tag(cz__rendezvous_set *set, uint64_t tag)
{
    cz__rendezvous *rendezvous = pop(&set->stock);
    if (!rendezvous)
        return NULL;
    memset(rendezvous, 0, cz__rendezvous_bytes(set->size));
    rendezvous->tag = tag;
    push(list_of(set, tag), rendezvous);
    return rendezvous;
}

static void end_tag(cz__rendezvous_set *set, cz__rendezvous *rendezvous)
{
    cz__rendezvous **link = list_of(set, rendezvous->tag);
    while (*link != rendezvous)
        link = &(*link)->next;
    *link = rendezvous->next;
    push(&set->stock, rendezvous);
}

static cz__rendezvous *find_or_begin_tag(cz__rendezvous_set *set, uint64_t tag)
{
    pthread_mutex_lock(&set->lock);
    cz__rendezvous *rendezvous = find_tag(set, tag);
    if (!rendezvous)
        rendezvous = begin_tag(set, tag);
    pthread_mutex_unlock(&set->lock);
    return rendezvous;
}

/* ---- the ring ---- */

/* The program's operations begin, and so come, in one order on all ranks. */
static bool is_of_ring(const cz_work *work)
{
    return work->lane == 0 && !work->meeting.again;
}

/* Never 0, and another one for each operation that may be found in one place. */
static uint64_t tag_of(const cz_work *work)
{
    return is_of_ring(work) ? work->sequence + 1
                            : cz__work_tag(work, STEP_RENDEZVOUS + (work->meeting.again ? 1 : 0));
}

static cz__rendezvous *in_ring(const cz_work *work, uint64_t sequence)
{
    const cz__rendezvous_set *set = work->group->rendezvous;
    return (cz__rendezvous *)(void *)(set->ring +
                                      sequence % RING * cz__rendezvous_bytes(set->size));
}

static char *data_in_ring(const cz_work *work, uint64_t sequence, int rank)
{
    const size_t places = sequence % RING * (size_t)work->group->size + (size_t)rank;
    return work->group->rendezvous->data + places * CZ__PLACE_BYTES;
}

char *cz__rendezvous_data(const cz_work *work, int rank)
{
    return data_in_ring(work, work->sequence, rank);
}

/* What this rank writes of the next operation, if that is like this one. */
static void prefetch_next(const cz_work *work)
{
    const int me = work->group->rank;
    const uint64_t next = work->sequence + 1;
    const size_t bytes = cz__seat_of(work)->given;
    cz__prefetch_to_write(data_in_ring(work, next, me), bytes < PREFETCHED ? bytes : PREFETCHED);
}

/* Have all ranks, and this one, parted from the operation that was there before? */
static bool is_free(const cz_work *work, const cz__rendezvous *rendezvous)
{
    const place *places = rendezvous->places;
    const uint64_t before = work->sequence < RING ? 0 : tag_of(work) - RING;
    for (int r = 0; r < work->group->size; r++)
        if (atomic_load(&places[r].parted) != before)
            return false;
    return true;
}

/* ---- coming ---- */

static place *own_place(const cz_work *work)
{
    return &cz__seat_of(work)->rendezvous->places[work->group->rank];
}

/* See agree() of header.c. */
static claim claim_of(const cz__header *header)
{
    const bool agrees = header->kind == CZ__AGREE, labelled = agrees || header->checked;
    claim c = {.call = header->kind,
               .fingerprint = header->fingerprint,
               .balance = header->balance,
               .segment_bytes = header->segment_bytes,
               .checked = header->checked,
               .sound = header->status == CZ_OK};
    if (!agrees) {
        c.call |= (uint64_t)(uint8_t)header->dtype << 8 |
                  (uint64_t)(uint8_t)header->reduction << 16 |
                  (uint64_t)(uint32_t)header->root << 32;
        c.count = header->kind == CZ__ALL_TO_ALL_V ? 0 : header->count;
    }
    if (labelled)
        c.more = cz__fingerprint(header->checked && !agrees ? header->detail : 0, header->label,
                                 strlen(header->label) + 1);
    return c;
}

/* Tell the ranks that may have waited for nothing but this; those that are watching will see it,
 * for they look once more when they stop. */
static void notify_others(const cz_work *work, bool finished)
{
    const cz__ranks *ranks = &work->group->rendezvous->ranks;
    const place *places = cz__seat_of(work)->rendezvous->places;
    const uint64_t tag = cz__seat_of(work)->tag;
    for (int r = 0; r < work->group->size; r++) {
        const _Atomic uint64_t *watches =
            finished ? &places[r].watches_finished : &places[r].watches_come;
        if (r != work->group->rank && atomic_load(watches) != tag)
            ranks->notify(ranks->context, r);
    }
}

static void set_waiting(cz_work *work, bool waits)
{
    cz__seat *seat = cz__seat_of(work);
    if (seat->waits != waits)
        atomic_fetch_add(&work->group->rendezvous->waiting, waits ? 1 : -1);
    seat->waits = waits;
}

/* The rendezvous in the ring, NULL as long as an earlier operation is in it. The last rank to part
 * from that comes here itself, and then notifies. */
static cz__rendezvous *wait_in_ring(cz_work *work)
{
    cz__rendezvous *rendezvous = in_ring(work, work->sequence);
    if (is_free(work, rendezvous))
        return rendezvous;
    set_waiting(work, true);
    /* One that waited already has parted from another operation since: of two such ranks the later
     * one here sees that of the other. */
    (void)atomic_fetch_add(&work->group->rendezvous->waiting, 0);
    return is_free(work, rendezvous) ? rendezvous : NULL;
}

/* Are the data small enough to travel with the header? Only from the host's memory; a step is
 * better made in place. All ranks that agree on an operation agree on this. */
static bool is_small(const cz_work *work)
{
    return is_of_ring(work) && !work->operation.update &&
           work->operation.source.kind != CZ__REGION_MAPPED &&
           work->group->device == cz_device_cpu() && cz__small_fits(work, CZ__PLACE_BYTES);
}

static void take_place(cz_work *work, cz__rendezvous *rendezvous, uint64_t tag)
{
    const cz_group *group = work->group;
    uint64_t *nonce = &group->rendezvous->nonces[group->rank];
    set_waiting(work, false);
    *cz__seat_of(work) =
        (cz__seat){.rendezvous = rendezvous, .tag = tag, .is_small = is_small(work)};
    place *own = own_place(work);
    if (*nonce != group->nonce) /* it changes once, before this rank comes to anything */
        *nonce = group->nonce;
    /* It is awake until it says otherwise. */
    atomic_store_explicit(&own->watches_come, tag, memory_order_relaxed);
    atomic_store_explicit(&own->watches_finished, tag, memory_order_relaxed);
    own->work = work;
    own->claim = claim_of(&work->operation.header);
    if (cz__seat_of(work)->is_small && own->claim.sound)
        cz__seat_of(work)->given =
            cz__small_put(work, cz__rendezvous_data(work, group->rank), false);
    atomic_store(&own->come, tag); /* of two that come, one sees the other */
}

cz_status cz__rendezvous_come(cz_work *work)
{
    cz__rendezvous_set *set = work->group->rendezvous;
    const uint64_t tag = tag_of(work);
    cz__rendezvous *rendezvous;
    if (is_of_ring(work)) {
        rendezvous = wait_in_ring(work);
        if (!rendezvous)
            return CZ_OK;
    } else {
        rendezvous = find_or_begin_tag(set, tag);
        if (!rendezvous)
            return cz__fail(CZ_ERR_MEMORY, "rank %d: meetings that were called off took the memory",
                            work->group->rank);
    }
    take_place(work, rendezvous, tag);
    cz__traffic_headers(work->group, cz__header_messages(work->group));
    if (cz__rendezvous_have_come(work) || atomic_load(&set->waiting) > 0)
        notify_others(work, false);
    return CZ_OK;
}

void cz__rendezvous_part(cz_work *work)
{
    cz__rendezvous_set *set = work->group->rendezvous;
    cz__seat *seat = cz__seat_of(work);
    cz__rendezvous *rendezvous = seat->rendezvous;
    seat->rendezvous = NULL;
    if (rendezvous->tag == 0) {
        atomic_store_explicit(&rendezvous->places[work->group->rank].parted, seat->tag,
                              memory_order_release);
        prefetch_next(work);
        return;
    }
    if (atomic_fetch_add(&rendezvous->gone, 1) + 1 < work->group->size)
        return; /* the rendezvous may be another one's by now */
    pthread_mutex_lock(&set->lock);
    end_tag(set, rendezvous);
    pthread_mutex_unlock(&set->lock);
}

/* ---- judging ---- */

/* Do all claim the same? *same: all fingerprints are equal. */
static bool is_plain(const cz_work *work, bool *same)
{
    const place *places = cz__seat_of(work)->rendezvous->places;
    const claim *own = &places[work->group->rank].claim;
    bool plain = true;
    uint64_t balance = 0;
    *same = true;
    for (int r = 0; r < work->group->size; r++) {
        const claim *c = &places[r].claim;
        *same &= c->fingerprint == own->fingerprint;
        plain &= c->sound && c->call == own->call && c->count == own->count &&
                 c->more == own->more && c->segment_bytes == own->segment_bytes &&
                 c->checked == own->checked;
        balance += c->balance;
    }
    const bool listed = (uint8_t)own->call >= CZ__REDUCE_SCATTER_V;
    return plain && balance == 0 && (*same || !listed);
}

/* All headers merged in rank order, as on all ranks. False: some rank took its own back. */
static bool merge_headers(cz_work *work)
{
    const place *places = cz__seat_of(work)->rendezvous->places;
    cz__header *verdict = &work->verdict;
    if (!cz__rendezvous_enter(work))
        return false;
    cz__header_copy(verdict, &places[0].work->operation.header);
    for (int r = 1; r < work->group->size; r++)
        cz__header_merge(verdict, &places[r].work->operation.header, work->sequence);
    cz__rendezvous_leave(work);
    return true;
}

static bool is_void(const cz__seat *seat)
{
    return atomic_load(&seat->rendezvous->called_off) == seat->tag &&
           atomic_load(&seat->rendezvous->stands) != seat->tag;
}

bool cz__rendezvous_judge(cz_work *work)
{
    cz__seat *seat = cz__seat_of(work);
    if (seat->judged)
        return true;
    bool same;
    if (is_void(seat))
        return false;
    seat->plain = is_plain(work, &same);
    if (!seat->plain && !merge_headers(work))
        return false;
    seat->judged = true;
    work->verdict.same = seat->plain ? same : work->verdict.same;
    if (!seat->plain) /* nobody goes away while others look at its header */
        cz__rendezvous_finish(work, 0);
    return true;
}

bool cz__rendezvous_is_settled(cz_work *work)
{
    const cz__seat *seat = cz__seat_of(work);
    if (!seat->judged)
        return cz__rendezvous_have_come(work) && !is_void(seat);
    return seat->plain || cz__rendezvous_is_finished(work);
}

/* If no data will move, that is all there was to meet for. */
void cz__rendezvous_take_verdict(cz_work *work)
{
    const cz__rendezvous_set *set = work->group->rendezvous;
    const bool plain = cz__seat_of(work)->plain;
    if (plain) {
        work->verdict.status = CZ_OK;
        work->verdict.balance = 0;
    }
    work->verdict.offers = work->verdict.nonce = 0;
    for (int r = 0; r < work->group->size && work->group->origin == 0; r++)
        work->verdict.nonce += set->nonces[r];
    if (!plain || !cz__work_moves_data(work))
        cz__rendezvous_part(work);
}

/* ---- waiting ---- */

bool cz__rendezvous_misses(const cz_work *work, int rank)
{
    const cz__seat *seat = cz__seat_of(work);
    if (!seat->rendezvous || rank == work->group->rank)
        return false;
    const place *at = &seat->rendezvous->places[rank];
    if (!seat->judged)
        return work->group->backend->announced(work->group->endpoint, rank) <= work->sequence;
    return atomic_load(&at->finished) != seat->tag;
}

cz_status cz__rendezvous_keep_waiting(cz_work *work, bool (*done)(cz_work *))
{
    const cz__ranks *ranks = &work->group->rendezvous->ranks;
    const cz__seat *seat = cz__seat_of(work);
    CZ_TRY(cz__group_intact(work->group, work->sequence));
    for (int r = 0; r < work->group->size; r++) {
        if (r == work->group->rank)
            continue;
        const cz_status status = ranks->left(ranks->context, r);
        if (status == CZ_OK)
            continue;
        if (!seat->rendezvous)
            return status;
        const bool called_off = atomic_load(&seat->rendezvous->called_off) == seat->tag,
                   finished = atomic_load(&seat->rendezvous->places[r].finished) == seat->tag;
        if (!done(work) && (called_off || !finished))
            return status;
    }
    return CZ_OK;
}

bool cz__rendezvous_have_come(cz_work *work)
{
    cz__seat *seat = cz__seat_of(work);
    const place *places = seat->rendezvous->places;
    while (seat->come < work->group->size && atomic_load(&places[seat->come].come) == seat->tag)
        seat->come++;
    return seat->come == work->group->size;
}

bool cz__rendezvous_is_finished(cz_work *work)
{
    cz__seat *seat = cz__seat_of(work);
    const place *places = seat->rendezvous->places;
    while (seat->finished < work->group->size &&
           atomic_load(&places[seat->finished].finished) == seat->tag)
        seat->finished++;
    return seat->finished == work->group->size;
}

/* What is over needs no more notices. */
static bool look(cz_work *work, bool (*done)(cz_work *), int turns, const atomic_ullong *events,
                 uint64_t seen)
{
    for (int turn = 0; turn < turns; turn++) {
        if (done(work))
            return true;
        if (events && atomic_load_explicit(events, memory_order_acquire) != seen)
            return false;
        cz__pause();
    }
    return false;
}

static _Atomic uint64_t *watches(const cz_work *work)
{
    place *own = own_place(work);
    return cz__seat_of(work)->judged ? &own->watches_finished : &own->watches_come;
}

/* From now on others notify it. */
static bool look_once_more(cz_work *work, bool (*done)(cz_work *))
{
    atomic_store(watches(work), 0);
    return done(work);
}

bool cz__rendezvous_await(cz_work *work, bool (*done)(cz_work *))
{
    const bool waits = work->unseen && cz__executor_spins(work->group->executor);
    const int turns = waits ? AWAIT_TURNS : 1;
    return look(work, done, turns, NULL, 0) || look_once_more(work, done);
}

bool cz__rendezvous_watch(cz_work *work, bool (*done)(cz_work *), int turns,
                          const atomic_ullong *events, uint64_t seen)
{
    if (!cz__seat_of(work)->rendezvous)
        return false;
    atomic_store(watches(work), cz__seat_of(work)->tag);
    return look(work, done, turns, events, seen) || look_once_more(work, done) ||
           atomic_load(events) != seen;
}

/* ---- the data ---- */

/* The flag first, then the look: who takes its memory back sets `called_off` first and then looks
 * at the flags. */
bool cz__rendezvous_enter(cz_work *work)
{
    const cz__seat *seat = cz__seat_of(work);
    atomic_bool *busy = &own_place(work)->busy;
    atomic_store(busy, true);
    if (atomic_load(&seat->rendezvous->called_off) != seat->tag)
        return true;
    atomic_store(busy, false);
    return false;
}

void cz__rendezvous_leave(cz_work *work)
{
    atomic_store_explicit(&own_place(work)->busy, false, memory_order_release);
}

void cz__rendezvous_finish(cz_work *work, size_t moved)
{
    place *own = own_place(work);
    own->moved = moved;
    atomic_store(&own->finished,
                 cz__seat_of(work)->tag); /* of two that finish, one sees the other */
    if (cz__rendezvous_is_finished(work))
        notify_others(work, true);
}

void cz__rendezvous_withdraw(cz_work *work)
{
    cz__seat *seat = cz__seat_of(work);
    set_waiting(work, false);
    if (!seat->rendezvous)
        return;
    bool same;
    /* The first one decides, and calls off before it looks: who has judged by then had seen all. */
    if (atomic_exchange(&seat->rendezvous->called_off, seat->tag) != seat->tag &&
        cz__rendezvous_have_come(work) && is_plain(work, &same))
        atomic_store(&seat->rendezvous->stands, seat->tag);
    for (int r = 0; r < work->group->size; r++)
        while (r != work->group->rank && atomic_load(&seat->rendezvous->places[r].busy))
            sched_yield(); /* in the middle of a piece of bounded size */
    cz__rendezvous_part(work);
}
