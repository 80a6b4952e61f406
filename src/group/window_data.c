/* SPDX-License-Identifier: MIT */
/* The data of an operation through the window, in rounds of one segment per stream as by messages (data.c), and
 * with the same sums: who may do what of a round (window_round.c) when. A round may be published while the one
 * before is reduced and copied; a segment stays in the processor's caches on its way. */
#include <math.h>

#include "base/clock.h"
#include "base/status.h"
#include "group/internal.h"

static const uint32_t END = UINT32_MAX; /* as a number of rounds: all */

/* ---- flags ---- */

static cz__lane_flags *flags_of(const cz_work *work, int rank)
{
    return cz__window_flags(work->group, work->window.lane, rank);
}

static void set(const cz_work *work, _Atomic uint64_t *flag, uint32_t rounds)
{
    atomic_store_explicit(flag, work->window.use << 32 | rounds, memory_order_release);
}

static bool reached(const cz_work *work, _Atomic uint64_t *flag, uint32_t rounds)
{
    return atomic_load_explicit(flag, memory_order_acquire) >=
           (work->window.use << 32 | (uint64_t)rounds);
}

/* Has a slot of this round been read by everybody in the round that had it before? */
static bool reusable(const cz_work *work, _Atomic uint64_t *flag, uint32_t round)
{
    return round < CZ__LANE_ROUNDS || reached(work, flag, round - CZ__LANE_ROUNDS + 1);
}

/* What round of a rank's work waits for rank r. */

static bool may_publish(const cz_work *work, int r)
{
    cz__lane_flags *its = flags_of(work, r);
    return reusable(work, work->operation.reduces ? &its->reduced : &its->copied,
                    work->window.published);
}

static bool may_reduce(const cz_work *work, int r)
{
    cz__lane_flags *its = flags_of(work, r);
    const uint32_t round = work->window.reduced;
    return reached(work, &its->published, round + 1) &&
           (!work->operation.exchanges || reusable(work, &its->copied, round));
}

static bool may_copy(const cz_work *work, int r)
{
    cz__lane_flags *its = flags_of(work, r);
    return reached(work, work->operation.reduces ? &its->reduced : &its->published,
                   work->window.copied + 1);
}

static bool of_all(const cz_work *work, bool (*may)(const cz_work *, int))
{
    for (int r = 0; r < work->group->size; r++)
        if (r != work->group->rank && !may(work, r))
            return false;
    return true;
}

/* ---- one round of each, and its flag ---- */

static cz_status publish(cz_work *work)
{
    cz__window_run *run = &work->window;
    bool any;
    CZ_TRY(cz__window_publish(work, &any));
    run->all_published = !any;
    if (any)
        set(work, &flags_of(work, work->group->rank)->published, ++run->published);
    return CZ_OK;
}

static cz_status reduce(cz_work *work)
{
    CZ_TRY(cz__window_reduce(work));
    set(work, &flags_of(work, work->group->rank)->reduced, ++work->window.reduced);
    return CZ_OK;
}

static void open_copies(cz_work *work)
{
    cz__window_run *run = &work->window;
    run->copying = cz__window_open_copies(work);
    run->all_copied = !run->copying;
    if (run->all_copied)
        set(work, &flags_of(work, work->group->rank)->copied, END);
}

/* From every rank that has got there; ranks begin with different ones. */
static cz_status copy(cz_work *work, bool *moved)
{
    const int size = work->group->size, me = work->group->rank;
    bool all = true;
    for (int i = 1; i < size; i++) {
        const int r = (me + i) % size;
        if (work->parcels[r].received.bytes == 0)
            continue;
        if (!may_copy(work, r)) {
            all = false;
            continue;
        }
        CZ_TRY(cz__window_copy_from(work, r));
        *moved = true;
    }
    if (!all)
        return CZ_OK;
    CZ_TRY(cz__window_keep_own(work));
    work->window.copying = false;
    set(work, &flags_of(work, me)->copied, ++work->window.copied);
    *moved = true;
    return CZ_OK;
}

/* ---- rounds ---- */

static bool wants_to_reduce(const cz_work *work)
{
    return work->operation.reduces && work->window.reduced < work->window.published;
}

/* Not before this rank has published the round: it may be in the same memory. */
static bool wants_to_copy(const cz_work *work)
{
    const cz__window_run *run = &work->window;
    if (!work->operation.exchanges || run->all_copied)
        return false;
    return run->copied < (work->operation.reduces ? run->reduced : run->published) ||
           (run->all_published && run->reduced == (work->operation.reduces ? run->published : 0));
}

static cz_status copy_round(cz_work *work, bool *moved)
{
    if (!work->window.copying) {
        *moved = true;
        open_copies(work);
    }
    return work->window.copying ? copy(work, moved) : CZ_OK;
}

/* What others wait for comes first; last what is only ahead of them. */
static cz_status step(cz_work *work, bool *moved)
{
    const cz__window_run *run = &work->window;
    *moved = true;
    if (wants_to_reduce(work) && of_all(work, may_reduce))
        return reduce(work);
    *moved = false;
    if (wants_to_copy(work))
        CZ_TRY(copy_round(work, moved));
    if (*moved || run->all_published || !of_all(work, may_publish))
        return CZ_OK;
    *moved = true;
    return publish(work);
}

static cz_status is_over(cz_work *work, bool *over)
{
    const cz__window_run *run = &work->window;
    *over = run->all_published && (!work->operation.reduces || run->reduced == run->published) &&
            (!work->operation.exchanges || run->all_copied);
    return CZ_OK;
}

static void finish(cz_work *work)
{
    cz__lane_flags *mine = flags_of(work, work->group->rank);
    set(work, &mine->published, END);
    set(work, &mine->reduced, END);
    set(work, &mine->copied, END);
    atomic_store_explicit(&mine->ended, work->window.use, memory_order_release);
    cz__window_note(work);
    work->phase = CZ__PHASE_CONTINUE;
}

bool cz__window_advance(cz_work *work)
{
    return cz__window_go(work, step, is_over, finish);
}

static bool in_window(const cz_work *work)
{
    return work->window.use && work->phase == CZ__PHASE_DATA;
}

double cz__window_watch(const cz_work *work, double now)
{
    const double SHORTEST = 50e-6, LONGEST = 1e-3; /* seconds */
    return in_window(work) ? now + fmin(fmax((now - work->since) / 8, SHORTEST), LONGEST)
                           : INFINITY;
}

bool cz__window_awaits(const cz_work *work, int r)
{
    const cz__window_run *run = &work->window;
    if (!in_window(work) || r == work->group->rank)
        return false;
    if (work->group->window.node)
        return cz__node_awaits(work, r);
    return (wants_to_reduce(work) && !may_reduce(work, r)) ||
           (!run->all_published && !may_publish(work, r)) ||
           (wants_to_copy(work) && run->copying && work->parcels[r].received.bytes > 0 &&
            !may_copy(work, r));
}
