/* SPDX-License-Identifier: MIT */
/* Meetings: found by the operation's tag. Whoever comes adds itself under the lock of the group's meetings, and the
 * last one judges there, so that nobody's header can go away meanwhile. What they meet for is in direct.c. */
#include "group/meeting.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/lock.h"
#include "base/memory.h"
#include "base/pause.h"
#include "base/status.h"
#include "group/internal.h"

enum { LISTS = 64, STEP_MEETING = 6 };

/* One rank in a meeting; a cache line each. */
typedef struct place {
    _Alignas(64) cz_work *work;
    atomic_bool busy; /* it touches what others brought */
    atomic_bool finished;
    atomic_bool watches;          /* the meeting itself, and need not be notified */
    _Atomic uint64_t handed_over; /* bytes of it, to others */
} place;

/* What ranks look at is in its first cache line; each line costs them a way from core to core. */
struct cz__meeting {
    cz__meeting *next;
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

struct cz__meetings {
    pthread_mutex_t lock; /* the lists and the stock */
    cz__meeting *latest;  /* where most look for */
    int size;
    cz__ranks ranks;
    cz__meeting *lists[LISTS];
    cz__meeting *stock; /* one for each work there is, so that none in a meeting is without */
};

const cz_work *cz__meeting_work(const cz__meeting *meeting, int rank)
{
    return meeting->places[rank].work;
}

void cz__meeting_hand_over(cz__meeting *meeting, int rank, size_t bytes)
{
    atomic_fetch_add_explicit(&meeting->places[rank].handed_over, bytes, memory_order_relaxed);
}

/* ---- stock ---- */

static void push(cz__meeting **list, cz__meeting *meeting)
{
    meeting->next = *list;
    *list = meeting;
}

static cz__meeting *pop(cz__meeting **list)
{
    cz__meeting *meeting = *list;
    if (meeting)
        *list = meeting->next;
    return meeting;
}

static void free_all(cz__meeting **list)
{
    for (cz__meeting *meeting; (meeting = pop(list));)
        cz__free(meeting);
}

cz_status cz__meetings_create(cz__meetings **out, int size, const cz__ranks *ranks)
{
    cz__meetings *meetings = *out = cz__calloc(1, sizeof *meetings);
    if (!meetings)
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for meetings of %d ranks", size);
    cz__lock_create(&meetings->lock);
    meetings->size = size;
    meetings->ranks = *ranks;
    return CZ_OK;
}

void cz__meetings_destroy(cz__meetings **meetings)
{
    if (!meetings || !*meetings)
        return;
    for (int i = 0; i < LISTS; i++)
        free_all(&(*meetings)->lists[i]);
    free_all(&(*meetings)->stock);
    pthread_mutex_destroy(&(*meetings)->lock);
    cz__free(*meetings);
    *meetings = NULL;
}

size_t cz__meeting_bytes(int size)
{
    return sizeof(cz__meeting) + (size_t)size * sizeof(place);
}

cz_status cz__meetings_stock(cz__meetings *meetings)
{
    cz__meeting *meeting = cz__calloc(1, cz__meeting_bytes(meetings->size));
    if (!meeting)
        return cz__fail(CZ_ERR_MEMORY, "group: no memory for a meeting of %d ranks",
                        meetings->size);
    pthread_mutex_lock(&meetings->lock);
    push(&meetings->stock, meeting);
    pthread_mutex_unlock(&meetings->lock);
    return CZ_OK;
}

/* A work that is in no meeting goes. Each of the others is in one at most, so one is left; but for those that were
 * called off, which never end. */
void cz__meetings_unstock(cz__meetings *meetings)
{
    pthread_mutex_lock(&meetings->lock);
    cz__meeting *meeting = pop(&meetings->stock);
    pthread_mutex_unlock(&meetings->lock);
    cz__free(meeting);
}

/* Lock held, as for all of the next. */
static cz__meeting **list_of(cz__meetings *meetings, uint64_t tag)
{
    return &meetings->lists[tag * UINT64_C(0x9e3779b97f4a7c15) >> 58 & (LISTS - 1)];
}

static cz__meeting *find(cz__meetings *meetings, uint64_t tag)
{
    if (meetings->latest && meetings->latest->tag == tag)
        return meetings->latest;
    cz__meeting *meeting = *list_of(meetings, tag);
    while (meeting && meeting->tag != tag)
        meeting = meeting->next;
    return meeting;
}

static cz__meeting *begin(cz__meetings *meetings, uint64_t tag)
{
    cz__meeting *meeting = pop(&meetings->stock);
    if (!meeting)
        return NULL;
    meeting->tag = tag;
    meeting->size = meetings->size;
    meeting->come = 0;
    atomic_store(&meeting->parted, 0);
    atomic_store(&meeting->judged, false);
    atomic_store(&meeting->called_off, false);
    atomic_store(&meeting->unfinished, meetings->size);
    for (int r = 0; r < meetings->size; r++) {
        meeting->places[r].work = NULL;
        atomic_store(&meeting->places[r].busy, false);
        atomic_store(&meeting->places[r].finished, false);
        atomic_store(&meeting->places[r].watches, false);
        atomic_store(&meeting->places[r].handed_over, 0);
    }
    push(list_of(meetings, tag), meeting);
    meetings->latest = meeting;
    return meeting;
}

static void end(cz__meetings *meetings, cz__meeting *meeting)
{
    cz__meeting **link = list_of(meetings, meeting->tag);
    while (*link != meeting)
        link = &(*link)->next;
    *link = meeting->next;
    if (meetings->latest == meeting)
        meetings->latest = NULL;
    push(&meetings->stock, meeting);
}

/* ---- coming and judging ---- */

/* Of what was stored in the meeting just before: whoever stops to watch it looks once more after that. */
static void notify_others(const cz_work *work)
{
    const cz__ranks *ranks = &work->group->meetings->ranks;
    for (int r = 0; r < work->group->size; r++)
        if (r != work->group->rank && !atomic_load(&cz__seat_of(work)->meeting->places[r].watches))
            ranks->notify(ranks->context, r);
}

/* One verdict for all ranks: their headers merged in rank order. Lock held. */
static void judge(cz__meeting *meeting, uint64_t sequence)
{
    cz__header *verdict = &meeting->verdict;
    cz__header_copy(verdict, &meeting->places[0].work->operation.header);
    for (int r = 1; r < meeting->size; r++)
        cz__header_merge(verdict, &meeting->places[r].work->operation.header, sequence);
    meeting->plain = verdict->status == CZ_OK && !verdict->balance;
    meeting->same = verdict->same;
}

cz_status cz__meeting_come(cz_work *work, bool *last)
{
    cz__meetings *meetings = work->group->meetings;
    const uint64_t tag = cz__work_tag(work, STEP_MEETING + (work->again ? 1 : 0));
    pthread_mutex_lock(&meetings->lock);
    cz__meeting *meeting = find(meetings, tag);
    if (!meeting)
        meeting = begin(meetings, tag);
    *last = false;
    if (meeting) {
        meeting->places[work->group->rank].work = work;
        *last = ++meeting->come == meeting->size && !atomic_load(&meeting->called_off);
        if (*last)
            judge(meeting, work->sequence);
    }
    pthread_mutex_unlock(&meetings->lock);
    cz__seat_of(work)->meeting = meeting;
    cz__traffic_headers(work->group, cz__header_messages(work->group));
    return meeting
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "rank %d: meetings that were called off took the memory",
                          work->group->rank);
}

bool cz__meeting_is_plain(const cz__meeting *meeting)
{
    return meeting->plain;
}

void cz__meeting_conclude(cz_work *work, bool for_all)
{
    cz__meeting *meeting = cz__seat_of(work)->meeting;
    if (for_all)
        atomic_store(&meeting->unfinished, 0);
    atomic_store(&meeting->judged, true);
    notify_others(work);
}

void cz__meeting_part(cz_work *work)
{
    cz__meetings *meetings = work->group->meetings;
    cz__meeting *meeting = cz__seat_of(work)->meeting;
    cz__traffic_handed_over(work->group,
                            atomic_load(&meeting->places[work->group->rank].handed_over));
    cz__seat_of(work)->meeting = NULL;
    if (atomic_fetch_add(&meeting->parted, 1) + 1 < work->group->size)
        return; /* the meeting may be another one's by now */
    pthread_mutex_lock(&meetings->lock);
    end(meetings, meeting);
    pthread_mutex_unlock(&meetings->lock);
}

/* ---- waiting ---- */

bool cz__meeting_misses(const cz_work *work, int rank)
{
    const cz__meeting *meeting = cz__seat_of(work)->meeting;
    if (!meeting || rank == work->group->rank)
        return false;
    if (!atomic_load(&meeting->judged))
        return work->group->backend->announced(work->group->endpoint, rank) <= work->sequence;
    return !atomic_load(&meeting->places[rank].finished);
}

cz_status cz__meeting_keep_waiting(const cz_work *work, bool (*done)(const cz__meeting *))
{
    const cz__ranks *ranks = &work->group->meetings->ranks;
    CZ_TRY(cz__group_intact(work->group, work->sequence));
    for (int r = 0; r < work->group->size; r++) {
        if (r == work->group->rank)
            continue;
        const cz_status status = ranks->left(ranks->context, r);
        const cz__meeting *meeting = cz__seat_of(work)->meeting;
        if (status != CZ_OK && !done(meeting) &&
            (atomic_load(&meeting->called_off) || !atomic_load(&meeting->places[r].finished)))
            return status;
    }
    return CZ_OK;
}

bool cz__meeting_is_judged(const cz__meeting *meeting)
{
    return atomic_load(&meeting->judged);
}

bool cz__meeting_is_finished(const cz__meeting *meeting)
{
    return atomic_load(&meeting->unfinished) == 0;
}

bool cz__meeting_watch(cz_work *work, bool (*done)(const cz__meeting *), int turns,
                       const atomic_ullong *events, uint64_t seen)
{
    cz__meeting *meeting = cz__seat_of(work)->meeting;
    if (!meeting)
        return false;
    atomic_bool *watches = &meeting->places[work->group->rank].watches;
    atomic_store(watches, true);
    for (int turn = 0; turn < turns; turn++) {
        if (done(meeting) || atomic_load(events) != seen)
            break;
        cz__pause();
    }
    atomic_store(watches, false);
    return done(meeting) || atomic_load(events) != seen;
}

/* If no data will move, that is all there was to meet for. */
void cz__meeting_take_verdict(cz_work *work)
{
    const cz__meeting *meeting = cz__seat_of(work)->meeting;
    work->verdict.status = CZ_OK;
    work->verdict.balance = work->verdict.offers = 0;
    work->verdict.nonce = meeting->verdict.nonce;
    if (!meeting->plain)
        cz__header_copy(&work->verdict, &meeting->verdict);
    work->verdict.offers = 0;
    work->same = meeting->same;
    if (!meeting->plain || (!work->operation.reduces && !work->operation.exchanges))
        cz__meeting_part(work);
}

/* ---- the data ---- */

/* The flag first, then the look: who takes its memory back sets `called_off` first and then looks at the flags. */
bool cz__meeting_enter(cz_work *work)
{
    atomic_bool *busy = &cz__seat_of(work)->meeting->places[work->group->rank].busy;
    atomic_store(busy, true);
    if (!atomic_load(&cz__seat_of(work)->meeting->called_off))
        return true;
    atomic_store(busy, false);
    return false;
}

void cz__meeting_leave(cz_work *work)
{
    atomic_store_explicit(&cz__seat_of(work)->meeting->places[work->group->rank].busy, false,
                          memory_order_release);
}

void cz__meeting_finish(cz_work *work)
{
    cz__meeting *meeting = cz__seat_of(work)->meeting;
    atomic_store(&meeting->places[work->group->rank].finished, true);
    if (atomic_fetch_sub(&meeting->unfinished, 1) == 1)
        notify_others(work);
}

void cz__meeting_withdraw(cz_work *work)
{
    cz__meeting *meeting = cz__seat_of(work)->meeting;
    if (!meeting)
        return;
    pthread_mutex_lock(&work->group->meetings->lock);
    atomic_store(&meeting->called_off, true);
    pthread_mutex_unlock(&work->group->meetings->lock);
    for (int r = 0; r < meeting->size; r++)
        while (r != work->group->rank && atomic_load(&meeting->places[r].busy))
            sched_yield(); /* in the middle of a piece of bounded size */
    cz__meeting_part(work);
}
