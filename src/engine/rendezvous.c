/* SPDX-License-Identifier: MIT */
/* Rendezvous: found by the operation's tag. Whoever comes adds itself under the lock of the group's
 * rendezvous, and the last one judges there, so that nobody's header can go away meanwhile. What
 * they meet for is in direct.c. */
#include "engine/rendezvous.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "engine/engine.h"

enum { LISTS = 64, STEP_RENDEZVOUS = 6 };

/* One rank in a rendezvous; a cache line each. */
typedef struct place {
    _Alignas(64) cz_work *work;
    atomic_bool busy; /* it touches what others brought */
    atomic_bool finished;
    atomic_bool watches;          /* the rendezvous itself, and need not be notified */
    _Atomic uint64_t handed_over; /* bytes of it, to others */
} place;

/* What ranks look at is in its first cache line; each line costs them a way from core to core. */
struct cz__rendezvous {
    cz__rendezvous *next;
    uint64_t tag;
    int size;
    int come; /* ranks; under the lock */
    atomic_int parted;
    atomic_int unfinished; /* ranks */
    atomic_bool judged;
    atomic_bool called_off; /* some rank took its memory back */
    bool plain, same;   /* the verdict: ranks agree, and on the counts; fingerprints are equal */
    cz__header verdict; /* unless it is plain */
    place places[];     /* size */
};

struct cz__rendezvous_set {
    pthread_mutex_t lock;   /* the lists and the stock */
    cz__rendezvous *latest; /* where most look for */
    int size;
    cz__ranks ranks;
    cz__rendezvous *lists[LISTS];
    cz__rendezvous *stock; /* one for each work there is, so that none in a rendezvous is without */
};

const cz_work *cz__rendezvous_work(const cz__rendezvous *rendezvous, int rank)
{
    return rendezvous->places[rank].work;
}

void cz__rendezvous_hand_over(cz__rendezvous *rendezvous, int rank, size_t bytes)
{
    atomic_fetch_add_explicit(&rendezvous->places[rank].handed_over, bytes, memory_order_relaxed);
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
    return CZ_OK;
}

void cz__rendezvous_set_destroy(cz__rendezvous_set **set)
{
    if (!set || !*set)
        return;
    for (int i = 0; i < LISTS; i++)
        free_all(&(*set)->lists[i]);
    free_all(&(*set)->stock);
    pthread_mutex_destroy(&(*set)->lock);
    cz__free(*set);
    *set = NULL;
}

size_t cz__rendezvous_bytes(int size)
{
    return sizeof(cz__rendezvous) + (size_t)size * sizeof(place);
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

/* A work that is in no rendezvous goes. Each of the others is in one at most, so one is left; but
 * for those that were called off, which never end. */
void cz__rendezvous_set_unstock(cz__rendezvous_set *set)
{
    pthread_mutex_lock(&set->lock);
    cz__rendezvous *rendezvous = pop(&set->stock);
    pthread_mutex_unlock(&set->lock);
    cz__free(rendezvous);
}

/* Lock held, as for all of the next. */
static cz__rendezvous **list_of(cz__rendezvous_set *set, uint64_t tag)
{
    return &set->lists[tag * UINT64_C(0x9e3779b97f4a7c15) >> 58 & (LISTS - 1)];
}

static cz__rendezvous *find(cz__rendezvous_set *set, uint64_t tag)
{
    if (set->latest && set->latest->tag == tag)
        return set->latest;
    cz__rendezvous *rendezvous = *list_of(set, tag);
    while (rendezvous && rendezvous->tag != tag)
        rendezvous = rendezvous->next;
    return rendezvous;
}

static cz__rendezvous *begin(cz__rendezvous_set *set, uint64_t tag)
{
    cz__rendezvous *rendezvous = pop(&set->stock);
    if (!rendezvous)
        return NULL;
    rendezvous->tag = tag;
    rendezvous->size = set->size;
    rendezvous->come = 0;
    atomic_store(&rendezvous->parted, 0);
    atomic_store(&rendezvous->judged, false);
    atomic_store(&rendezvous->called_off, false);
    atomic_store(&rendezvous->unfinished, set->size);
    for (int r = 0; r < set->size; r++) {
        rendezvous->places[r].work = NULL;
        atomic_store(&rendezvous->places[r].busy, false);
        atomic_store(&rendezvous->places[r].finished, false);
        atomic_store(&rendezvous->places[r].watches, false);
        atomic_store(&rendezvous->places[r].handed_over, 0);
    }
    push(list_of(set, tag), rendezvous);
    set->latest = rendezvous;
    return rendezvous;
}

static void end(cz__rendezvous_set *set, cz__rendezvous *rendezvous)
{
    cz__rendezvous **link = list_of(set, rendezvous->tag);
    while (*link != rendezvous)
        link = &(*link)->next;
    *link = rendezvous->next;
    if (set->latest == rendezvous)
        set->latest = NULL;
    push(&set->stock, rendezvous);
}

/* ---- coming and judging ---- */

/* Of what was stored in the rendezvous just before: whoever stops to watch it looks once more after
 * that. */
static void notify_others(const cz_work *work)
{
    const cz__ranks *ranks = &work->group->rendezvous->ranks;
    for (int r = 0; r < work->group->size; r++)
        if (r != work->group->rank &&
            !atomic_load(&cz__seat_of(work)->rendezvous->places[r].watches))
            ranks->notify(ranks->context, r);
}

/* One verdict for all ranks: their headers merged in rank order. Lock held. */
static void judge(cz__rendezvous *rendezvous, uint64_t sequence)
{
    cz__header *verdict = &rendezvous->verdict;
    cz__header_copy(verdict, &rendezvous->places[0].work->operation.header);
    for (int r = 1; r < rendezvous->size; r++)
        cz__header_merge(verdict, &rendezvous->places[r].work->operation.header, sequence);
    rendezvous->plain = verdict->status == CZ_OK && !verdict->balance;
    rendezvous->same = verdict->same;
}

cz_status cz__rendezvous_come(cz_work *work, bool *last)
{
    cz__rendezvous_set *set = work->group->rendezvous;
    const uint64_t tag = cz__work_tag(work, STEP_RENDEZVOUS + (work->again ? 1 : 0));
    pthread_mutex_lock(&set->lock);
    cz__rendezvous *rendezvous = find(set, tag);
    if (!rendezvous)
        rendezvous = begin(set, tag);
    *last = false;
    if (rendezvous) {
        rendezvous->places[work->group->rank].work = work;
        *last = ++rendezvous->come == rendezvous->size && !atomic_load(&rendezvous->called_off);
        if (*last)
            judge(rendezvous, work->sequence);
    }
    pthread_mutex_unlock(&set->lock);
    cz__seat_of(work)->rendezvous = rendezvous;
    cz__traffic_headers(work->group, cz__header_messages(work->group));
    return rendezvous
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "rank %d: meetings that were called off took the memory",
                          work->group->rank);
}

bool cz__rendezvous_is_plain(const cz__rendezvous *rendezvous)
{
    return rendezvous->plain;
}

void cz__rendezvous_conclude(cz_work *work, bool for_all)
{
    cz__rendezvous *rendezvous = cz__seat_of(work)->rendezvous;
    if (for_all)
        atomic_store(&rendezvous->unfinished, 0);
    atomic_store(&rendezvous->judged, true);
    notify_others(work);
}

void cz__rendezvous_part(cz_work *work)
{
    cz__rendezvous_set *set = work->group->rendezvous;
    cz__rendezvous *rendezvous = cz__seat_of(work)->rendezvous;
    cz__traffic_handed_over(work->group,
                            atomic_load(&rendezvous->places[work->group->rank].handed_over));
    cz__seat_of(work)->rendezvous = NULL;
    if (atomic_fetch_add(&rendezvous->parted, 1) + 1 < work->group->size)
        return; /* the rendezvous may be another one's by now */
    pthread_mutex_lock(&set->lock);
    end(set, rendezvous);
    pthread_mutex_unlock(&set->lock);
}

/* ---- waiting ---- */

bool cz__rendezvous_misses(const cz_work *work, int rank)
{
    const cz__rendezvous *rendezvous = cz__seat_of(work)->rendezvous;
    if (!rendezvous || rank == work->group->rank)
        return false;
    if (!atomic_load(&rendezvous->judged))
        return work->group->backend->announced(work->group->endpoint, rank) <= work->sequence;
    return !atomic_load(&rendezvous->places[rank].finished);
}

cz_status cz__rendezvous_keep_waiting(const cz_work *work, bool (*done)(const cz__rendezvous *))
{
    const cz__ranks *ranks = &work->group->rendezvous->ranks;
    CZ_TRY(cz__group_intact(work->group, work->sequence));
    for (int r = 0; r < work->group->size; r++) {
        if (r == work->group->rank)
            continue;
        const cz_status status = ranks->left(ranks->context, r);
        const cz__rendezvous *rendezvous = cz__seat_of(work)->rendezvous;
        if (status != CZ_OK && !done(rendezvous) &&
            (atomic_load(&rendezvous->called_off) || !atomic_load(&rendezvous->places[r].finished)))
            return status;
    }
    return CZ_OK;
}

bool cz__rendezvous_is_judged(const cz__rendezvous *rendezvous)
{
    return atomic_load(&rendezvous->judged);
}

bool cz__rendezvous_is_finished(const cz__rendezvous *rendezvous)
{
    return atomic_load(&rendezvous->unfinished) == 0;
}

bool cz__rendezvous_watch(cz_work *work, bool (*done)(const cz__rendezvous *), int turns,
                          const atomic_ullong *events, uint64_t seen)
{
    cz__rendezvous *rendezvous = cz__seat_of(work)->rendezvous;
    if (!rendezvous)
        return false;
    atomic_bool *watches = &rendezvous->places[work->group->rank].watches;
    atomic_store(watches, true);
    for (int turn = 0; turn < turns; turn++) {
        if (done(rendezvous) || atomic_load(events) != seen)
            break;
        cz__pause();
    }
    atomic_store(watches, false);
    return done(rendezvous) || atomic_load(events) != seen;
}

/* If no data will move, that is all there was to meet for. */
void cz__rendezvous_take_verdict(cz_work *work)
{
    const cz__rendezvous *rendezvous = cz__seat_of(work)->rendezvous;
    work->verdict.status = CZ_OK;
    work->verdict.balance = work->verdict.offers = 0;
    work->verdict.nonce = rendezvous->verdict.nonce;
    if (!rendezvous->plain)
        cz__header_copy(&work->verdict, &rendezvous->verdict);
    work->verdict.offers = 0;
    work->verdict.same = rendezvous->same;
    if (!rendezvous->plain || !cz__work_moves_data(work))
        cz__rendezvous_part(work);
}

/* ---- the data ---- */

/* The flag first, then the look: who takes its memory back sets `called_off` first and then looks
 * at the flags. */
bool cz__rendezvous_enter(cz_work *work)
{
    atomic_bool *busy = &cz__seat_of(work)->rendezvous->places[work->group->rank].busy;
    atomic_store(busy, true);
    if (!atomic_load(&cz__seat_of(work)->rendezvous->called_off))
        return true;
    atomic_store(busy, false);
    return false;
}

void cz__rendezvous_leave(cz_work *work)
{
    atomic_store_explicit(&cz__seat_of(work)->rendezvous->places[work->group->rank].busy, false,
                          memory_order_release);
}

void cz__rendezvous_finish(cz_work *work)
{
    cz__rendezvous *rendezvous = cz__seat_of(work)->rendezvous;
    atomic_store(&rendezvous->places[work->group->rank].finished, true);
    if (atomic_fetch_sub(&rendezvous->unfinished, 1) == 1)
        notify_others(work);
}

void cz__rendezvous_withdraw(cz_work *work)
{
    cz__rendezvous *rendezvous = cz__seat_of(work)->rendezvous;
    if (!rendezvous)
        return;
    pthread_mutex_lock(&work->group->rendezvous->lock);
    atomic_store(&rendezvous->called_off, true);
    pthread_mutex_unlock(&work->group->rendezvous->lock);
    for (int r = 0; r < rendezvous->size; r++)
        while (r != work->group->rank && atomic_load(&rendezvous->places[r].busy))
            sched_yield(); /* in the middle of a piece of bounded size */
    cz__rendezvous_part(work);
}
