/* SPDX-License-Identifier: MIT */
/* Ranks of one machine meet through their window, with no message: each posts its header in a box of
 * its part; rank 0 takes them all in, and posts what it makes of them in its own. A box is an
 * operation's, found by its sequence, and the next operation's there once every rank that reads it
 * has done so. */
#include <sched.h>

#include "base/clock.h"
#include "base/status.h"
#include "group/window.h"

typedef enum place { AT_BEGIN, COMING, TO_POST, AWAITING } place;

typedef struct meeting {
    place at;
    int come; /* rank 0: of ranks 0 to `come` - 1 the headers are taken in */
} meeting;

static meeting *meeting_of(const cz_work *work)
{
    return work->rendezvous.state;
}

static cz__box *box_of(const cz_work *work, int rank)
{
    return cz__window_box(work->group, rank, (int)(work->sequence % CZ__BOXES));
}

/* What a box's flag says of this operation; of the one that had the box before. */
static uint64_t now(const cz_work *work)
{
    return work->sequence + 1;
}

static bool has_read_before(const cz_work *work, int rank)
{
    if (work->sequence < work->group->meetings.offered_from + CZ__BOXES)
        return true;
    return atomic_load_explicit(&box_of(work, rank)->read, memory_order_acquire) + CZ__BOXES >=
           now(work);
}

static bool has_posted(const cz_work *work, int rank)
{
    return atomic_load_explicit(&box_of(work, rank)->posted, memory_order_acquire) == now(work);
}

/* May this rank's box be written? Of rank 0 all read it, of the others rank 0, before this rank has
 * its verdict. */
static bool may_post(const cz_work *work)
{
    const int first = work->group->rank, end = first == 0 ? work->group->size : first + 1;
    for (int r = first; r < end; r++)
        if (!has_read_before(work, r))
            return false;
    return true;
}

static void post(cz_work *work, const cz__header *header)
{
    cz__box *box = box_of(work, work->group->rank);
    cz__header_copy(&box->header, header);
    atomic_store_explicit(&box->posted, now(work), memory_order_release);
}

static void take_verdict(cz_work *work)
{
    if (work->group->rank != 0)
        cz__header_copy(&work->verdict, &box_of(work, 0)->header);
    work->same = work->verdict.same;
    atomic_store_explicit(&box_of(work, work->group->rank)->read, now(work), memory_order_release);
}

/* Rank 0: take in whoever has come, in their order. */
static bool take_in(cz_work *work)
{
    meeting *m = meeting_of(work);
    while (m->come < work->group->size && has_posted(work, m->come))
        cz__header_merge(&work->operation.header, &box_of(work, m->come++)->header, work->sequence);
    return m->come == work->group->size;
}

/* What this rank waits for: is it there? */
static bool is_ready(const cz_work *work)
{
    const meeting *m = meeting_of(work);
    if (m->at == COMING)
        return has_posted(work, m->come);
    return m->at == TO_POST ? may_post(work) : has_posted(work, 0);
}

static bool awaits(const cz_work *work, int rank)
{
    const meeting *m = meeting_of(work);
    if (rank == work->group->rank || work->agreed || work->phase != CZ__PHASE_MEET)
        return false;
    if (m->at == COMING)
        return rank >= m->come && !has_posted(work, rank);
    return rank == 0 ||
           (m->at == TO_POST && work->group->rank == 0 && !has_read_before(work, rank));
}

/* The group is intact, and whoever is awaited has not left. */
static cz_status look_after(cz_work *work)
{
    const cz_group *group = work->group;
    CZ_TRY(cz__group_intact(group, work->sequence));
    for (int r = 0; r < group->size; r++) {
        if (!awaits(work, r))
            continue;
        const cz_status status = group->backend->present(group->endpoint, r);
        if (status != CZ_OK && awaits(work, r)) /* what it wrote before is there */
            return status;
    }
    return CZ_OK;
}

/* ---- the engine ---- */

static bool takes(const cz_work *work)
{
    return work->lane == 0 && !work->again;
}

static size_t bytes(int size, bool in_process)
{
    return in_process ? 0 : sizeof(meeting);
}

static bool offers(cz_work *work)
{
    return cz__window_is_there(work->group) && work->group->window->topology->machine_count == 1;
}

static void begin(cz_work *work)
{
    *meeting_of(work) = (meeting){.come = 1};
}

/* Rank 0 says so when it has taken in all headers, the others before they post theirs. */
static cz_status advance(cz_work *work, cz__progress *progress)
{
    meeting *m = meeting_of(work);
    const bool is_first = work->group->rank == 0;
    switch (m->at) {
    case AT_BEGIN:
        cz__traffic_headers(work->group, cz__header_messages(work->group));
        m->at = is_first ? COMING : TO_POST;
        *progress = is_first ? CZ__MOVED : CZ__HEARD;
        return CZ_OK;
    case COMING:
        if (!take_in(work))
            break;
        m->at = TO_POST;
        *progress = CZ__HEARD;
        return CZ_OK;
    case TO_POST:
        if (!may_post(work))
            break;
        post(work, is_first ? &work->verdict : &work->operation.header);
        m->at = AWAITING;
        *progress = CZ__MOVED;
        return CZ_OK;
    default:
        if (!has_posted(work, 0))
            break;
        take_verdict(work);
        *progress = CZ__DONE;
        return CZ_OK;
    }
    return look_after(work);
}

/* Closely at first, then giving the core away. */
static bool spin(cz_work *work, int turns, const atomic_ullong *events, uint64_t seen)
{
    const double LONGEST = 100e-6; /* seconds */
    const double began = cz__seconds(), close = work->group->window->spin_seconds;
    double spent = 0;
    while (!is_ready(work) && atomic_load(events) == seen) {
        if (spent >= LONGEST)
            return false;
        for (int turn = 0; turn < 16 && spent < close; turn++)
            cz__pause();
        if (spent >= close)
            sched_yield();
        spent = cz__seconds() - began;
    }
    return true;
}

const cz__engine cz__engine_window_meet = {.meets = true,
                                           .takes = takes,
                                           .bytes = bytes,
                                           .offers = offers,
                                           .begin = begin,
                                           .advance = advance,
                                           .awaits = awaits,
                                           .watch = cz__window_watch,
                                           .spin = spin};
