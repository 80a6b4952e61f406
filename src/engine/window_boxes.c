/* SPDX-License-Identifier: MIT */
/* Ranks of one machine meet through their window, with no message: each posts its header in a box
 * of its part, takes in those of all, in rank order, and so has the verdict. Only which lane of the
 * window data have, if they need one, is rank 0's to say. A box is an operation's, found by its
 * sequence, and the next operation's there once all ranks have read what they want of it.
 *
 * Small data are in the box with the header, so that all are there with the verdict: every rank
 * adds up what it wants itself, and copies what others have for all. In a step each owner updates
 * its elements and puts the new values into its box, where the others find them with one more look.
 *
 * A cache line takes its time from core to core, so what ranks look at is in few lines. */
#include <stddef.h>

#include "base/prefetch.h"
#include "base/status.h"
#include "engine/small_data.h"
#include "engine/window.h"

/* ---- boxes ---- */

static cz__box *box_of(const cz_work *work, int rank)
{
    return cz__window_box(work->group, rank, (int)(work->sequence % CZ__BOXES));
}

/* What a box's flag says of this operation. */
static uint64_t now(const cz_work *work)
{
    return work->sequence + 1;
}

static bool says_now(const cz_work *work, _Atomic uint64_t *flag)
{
    return atomic_load_explicit(flag, memory_order_acquire) == now(work);
}

static void say_now(const cz_work *work, _Atomic uint64_t *flag)
{
    atomic_store_explicit(flag, now(work), memory_order_release);
}

static bool has_posted(const cz_work *work, int rank)
{
    return says_now(work, &box_of(work, rank)->posted);
}

/* The operation before that had the box. */
static bool has_read_before(const cz_work *work, int rank)
{
    return work->sequence < work->group->meetings.offered_from + CZ__BOXES ||
           work->sequence < work->group->window->read_by_all + CZ__BOXES ||
           atomic_load_explicit(&box_of(work, rank)->read, memory_order_acquire) + CZ__BOXES >=
               now(work);
}

static bool may_post(const cz_work *work)
{
    for (int r = 0; r < work->group->size; r++)
        if (!has_read_before(work, r))
            return false;
    return true;
}

/* This rank has, all that it wants of this operation's boxes. They may end in any order. */
static void say_read(const cz_work *work)
{
    cz__window *window = work->group->window;
    const uint64_t first = work->group->meetings.offered_from;
    if (window->read_before < first)
        window->read_before = first;
    const uint64_t later = work->sequence - window->read_before;
    if (later < 64) /* else it is left at that, and all look at flags */
        window->read_after |= UINT64_C(1) << later;
    while (window->read_after & 1) {
        window->read_after >>= 1;
        window->read_before++;
    }
    say_now(work, &box_of(work, work->group->rank)->read);
}

/* The group is intact, and whoever is awaited has not left. */
static cz_status look_after(cz_work *work, bool (*awaits)(const cz_work *, int))
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

/* As engines' `spin`. */
static bool look_until(cz_work *work, bool (*is_ready)(const cz_work *), cz__close_look *look,
                       const atomic_ullong *events, uint64_t seen)
{
    while (!is_ready(work) && atomic_load(events) == seen)
        if (!cz__window_look(work->group, look))
            return false;
    return true;
}

/* ---- small data: where they are ---- */

static char *given(const cz_work *work, int rank)
{
    return cz__window_box_data(work->group, rank, (int)(work->sequence % CZ__BOXES));
}

/* Values after an update; before that, room for a sum. */
static char *result(const cz_work *work, int rank)
{
    return given(work, rank) + work->group->window->box_bytes;
}

/* The same on all ranks that agree. */
static bool fits(const cz_work *work)
{
    return cz__small_fits(work, work->group->window->box_bytes);
}

/* ---- lines that the others have read ---- */

enum { PREFETCHED = 4096 }; /* bytes, at most */

static size_t prefetched(size_t bytes)
{
    return bytes < PREFETCHED ? bytes : PREFETCHED;
}

/* Where this rank's values go, while it waits for headers. */
static void prefetch_result(const cz_work *work)
{
    const int me = work->group->rank;
    cz__prefetch_to_write(&box_of(work, me)->updated, 1);
    cz__prefetch_to_write(result(work, me),
                          prefetched(work->operation.longest / (size_t)work->group->size));
}

/* What the next operation writes, if it is like this one. */
static void prefetch_next(const cz_work *work, size_t bytes)
{
    const int me = work->group->rank, next = (int)((work->sequence + 1) % CZ__BOXES);
    cz__prefetch_to_write(&cz__window_box(work->group, me, next)->posted,
                          offsetof(cz__box, header.sentence) - offsetof(cz__box, posted));
    cz__prefetch_to_write(cz__window_box_data(work->group, me, next), prefetched(bytes));
}

/* ---- meeting ---- */

typedef enum place { AT_BEGIN, TO_POST, COMING, AT_VERDICT, AWAITING } place;

typedef struct meeting {
    place at;
    int come;      /* of ranks 0 to `come` - 1 the headers are taken in */
    size_t given;  /* bytes of data with this one's */
    uint64_t read; /* they have read all of what came before this operation */
    bool is_small; /* data go with the header */
    cz__close_look look;
} meeting;

static meeting *meeting_of(const cz_work *work)
{
    return work->rendezvous.state;
}

static void post(cz_work *work)
{
    cz__box *box = box_of(work, work->group->rank);
    const cz__header *header = &work->operation.header;
    cz__header_copy(&box->header, header);
    box->read_before = work->group->window->read_before;
    if (meeting_of(work)->is_small && header->status == CZ_OK)
        meeting_of(work)->given = cz__small_put(work, given(work, work->group->rank), true);
    say_now(work, &box->posted);
    if (meeting_of(work)->is_small && work->operation.update)
        prefetch_result(work);
}

/* Has somebody given the operation up and taken its box back? Then the group breaks: wait for
 * that. */
static bool is_taken_back(const cz_work *work)
{
    meeting *m = meeting_of(work);
    for (int r = 0; r < work->group->size; r++) {
        if (has_posted(work, r))
            continue;
        m->come = 0;
        m->read = UINT64_MAX;
        return true;
    }
    return false;
}

/* Take in whoever has come, in their order: the same verdict everywhere. */
static bool take_in(cz_work *work)
{
    meeting *m = meeting_of(work);
    for (; m->come < work->group->size && has_posted(work, m->come); m->come++) {
        const cz__box *box = box_of(work, m->come);
        if (m->come == 0)
            cz__header_copy(&work->verdict, &box->header);
        else
            cz__header_merge(&work->verdict, &box->header, work->sequence);
        m->read = box->read_before < m->read ? box->read_before : m->read;
    }
    return m->come == work->group->size && !is_taken_back(work);
}

/* Where data are in the boxes they are read first. */
static void end_meeting(cz_work *work)
{
    cz__window *window = work->group->window;
    const meeting *m = meeting_of(work);
    if (m->read > window->read_by_all)
        window->read_by_all = m->read;
    if (work->verdict.status != CZ_OK || !m->is_small || !cz__work_moves_data(work)) {
        say_read(work);
        prefetch_next(work, 0);
    }
}

static void tell_answer(cz_work *work)
{
    cz__box *box = box_of(work, 0);
    box->offers = work->verdict.offers;
    box->grant = work->verdict.grant;
    say_now(work, &box->answered);
}

static bool has_answered(const cz_work *work)
{
    return says_now(work, &box_of(work, 0)->answered);
}

static void take_answer(cz_work *work)
{
    const cz__box *box = box_of(work, 0);
    work->verdict.offers = box->offers;
    work->verdict.grant = box->grant;
}

/* What this rank waits for: is it there? */
static bool may_go_on(const cz_work *work)
{
    const meeting *m = meeting_of(work);
    if (m->at == COMING)
        return has_posted(work, m->come);
    return m->at == TO_POST ? may_post(work) : has_answered(work);
}

static bool meeting_awaits(const cz_work *work, int rank)
{
    const meeting *m = meeting_of(work);
    if (rank == work->group->rank || work->phase != CZ__PHASE_MEET)
        return false;
    if (m->at == COMING)
        return rank >= m->come && !has_posted(work, rank);
    return m->at == TO_POST ? !has_read_before(work, rank) : rank == 0 && !has_answered(work);
}

static bool takes_meeting(const cz_work *work)
{
    return work->lane == 0 && !work->meeting.again;
}

static size_t meeting_bytes(int size, bool in_process)
{
    return in_process ? 0 : sizeof(meeting);
}

static bool offers_meetings(cz_work *work)
{
    return cz__window_is_there(work->group) && work->group->window->topology->machine_count == 1;
}

static void begin_meeting(cz_work *work)
{
    *meeting_of(work) = (meeting){.read = UINT64_MAX, .is_small = fits(work)};
}

static cz_status advance_meeting(cz_work *work, cz__engine_progress *progress)
{
    meeting *m = meeting_of(work);
    switch (m->at) {
    case AT_BEGIN:
        cz__traffic_headers(work->group, cz__header_messages(work->group));
        m->at = TO_POST;
        *progress = CZ__TO_TELL;
        return CZ_OK;
    case TO_POST:
        if (!may_post(work))
            break;
        post(work);
        m->at = COMING;
        *progress = CZ__MOVED;
        return CZ_OK;
    case COMING:
        if (!take_in(work))
            break;
        m->at = AT_VERDICT;
        *progress = CZ__HEARD;
        return CZ_OK;
    case AT_VERDICT:
        m->at = AWAITING;
        if (work->meeting.asks && work->group->rank == 0)
            tell_answer(work);
        *progress = CZ__MOVED;
        return CZ_OK;
    default:
        if (work->meeting.asks && !has_answered(work))
            break;
        if (work->meeting.asks)
            take_answer(work);
        end_meeting(work);
        *progress = CZ__DONE;
        return CZ_OK;
    }
    return look_after(work, meeting_awaits);
}

/* Before this rank has the verdict, so that who comes late does not take in one that has given up.
 * (One that leaves the group in peace does not take its word back.) */
static void withdraw_meeting(cz_work *work)
{
    if (work->phase == CZ__PHASE_MEET && meeting_of(work)->at == COMING && !work->group->left)
        atomic_store_explicit(&box_of(work, work->group->rank)->posted, 0, memory_order_release);
}

static bool spin_meeting(cz_work *work, int turns, const atomic_ullong *events, uint64_t seen)
{
    return look_until(work, may_go_on, &meeting_of(work)->look, events, seen);
}

const cz__engine cz__engine_boxes_meet = {.meets = true,
                                          .takes = takes_meeting,
                                          .bytes = meeting_bytes,
                                          .offers = offers_meetings,
                                          .begin = begin_meeting,
                                          .advance = advance_meeting,
                                          .withdraw = withdraw_meeting,
                                          .awaits = meeting_awaits,
                                          .watch = cz__window_watch,
                                          .spin = spin_meeting};

/* ---- small data, with the verdict ---- */

typedef struct small {
    cz__close_look look;
    bool begun;            /* the first part is done; values may be awaited */
    int copied;            /* of ranks 0 to `copied` - 1 the values are here */
    const void *sources[]; /* group->size addresses, and as many of what is given */
} small;

static small *small_of(const cz_work *work)
{
    return work->data.state;
}

static bool has_values(const cz_work *work, int rank)
{
    return says_now(work, &box_of(work, rank)->updated);
}

/* An owner's values to all. */
static void give_values(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    if (!operation->shared_values) {
        const size_t bytes = cz__small_put_stream(work, &operation->values, me, result(work, me));
        for (int r = 1; r < work->group->size && bytes > 0; r++)
            cz__traffic_sent(work->group, CZ__STEP_EXCHANGE, bytes);
    }
    say_now(work, &box_of(work, me)->updated);
}

/* From those that have them; false: not from all. */
static bool take_values(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    small *s = small_of(work);
    for (; s->copied < work->group->size && has_values(work, s->copied); s->copied++)
        if (s->copied != work->group->rank && !operation->shared_values)
            cz__small_take_stream(work, &operation->values, s->copied, result(work, s->copied));
    return s->copied == work->group->size;
}

static size_t bytes(int size, bool in_process)
{
    return in_process ? 0 : sizeof(small) + 2 * (size_t)size * sizeof(void *);
}

static bool takes(const cz_work *work)
{
    return work->rendezvous.engine == &cz__engine_boxes_meet && meeting_of(work)->is_small;
}

static void begin(cz_work *work)
{
    small *s = small_of(work);
    s->look = (cz__close_look){0};
    s->begun = false;
    s->copied = 0;
    cz__pool_pass(work);
}

static cz_status do_first_part(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const int size = work->group->size;
    small *s = small_of(work);
    const char **all = (const char **)(void *)&s->sources[size];
    for (int r = 0; r < size; r++)
        all[r] = given(work, r);
    const cz__small_data data = {result(work, work->group->rank), all, s->sources};
    CZ_TRY(cz__small_move(work, &data));
    if (operation->update && operation->exchanges)
        give_values(work);
    return CZ_OK;
}

static bool awaits(const cz_work *work, int rank)
{
    return small_of(work)->begun && rank >= small_of(work)->copied && !has_values(work, rank);
}

static cz_status advance(cz_work *work, cz__engine_progress *progress)
{
    small *s = small_of(work);
    if (!s->begun) {
        CZ_TRY(do_first_part(work));
        s->begun = true;
        *progress = CZ__MOVED;
    }
    if (work->operation.update && work->operation.exchanges && !take_values(work))
        return look_after(work, awaits);
    say_read(work);
    prefetch_next(work, meeting_of(work)->given);
    *progress = CZ__DONE;
    return CZ_OK;
}

static bool has_next_values(const cz_work *work)
{
    return has_values(work, small_of(work)->copied);
}

static bool spin(cz_work *work, int turns, const atomic_ullong *events, uint64_t seen)
{
    return look_until(work, has_next_values, &small_of(work)->look, events, seen);
}

const cz__engine cz__engine_boxes = {.takes = takes,
                                     .bytes = bytes,
                                     .begin = begin,
                                     .advance = advance,
                                     .awaits = awaits,
                                     .watch = cz__window_watch,
                                     .spin = spin};
