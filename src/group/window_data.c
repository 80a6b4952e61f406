/* SPDX-License-Identifier: MIT */
/* The data of an operation through the window, in rounds of one segment per stream as by messages (data.c), and
 * with the same sums. A rank publishes what others need of its streams, reduces its own stream from its memory
 * and the others' slots, and copies out what others published or reduced. A round may be published while the
 * one before is reduced and copied; a segment stays in the processor's caches on its way. */
#include <math.h>
#include <string.h>

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

/* ---- segments ---- */

static bool next_segment(const cz_work *work, const cz__region *region, cz__cursor *cursor,
                         cz__segment *segment)
{
    return cz__segment_next(region, cursor, work->window.segment_bytes, segment);
}

static cz_status put(const cz_work *work, const cz__segment *segment, char *slot)
{
    const cz_device *device = work->group->device;
    if (segment->data && work->window.stream)
        return cz__copy_once(device, slot, segment->data, segment->bytes);
    else if (segment->data)
        return device->copy(NULL, slot, segment->data, segment->bytes);
    else
        cz__segment_pack(&work->operation.source, segment, device, slot);
    return CZ_OK;
}

/* `fresh`: this rank has not read the memory that it writes. */
static cz_status take(const cz_work *work, const cz__segment *segment, const char *from, bool fresh)
{
    const cz_device *device = work->group->device;
    if (!segment->data)
        cz__segment_unpack(&work->operation.target, segment, device, from);
    else if (fresh && work->window.past_caches)
        return cz__copy_once(device, segment->data, from, segment->bytes);
    else
        return device->copy(NULL, segment->data, from, segment->bytes);
    return CZ_OK;
}

/* ---- publish: slot r of this rank's part has what is for rank r; slot 0 what is for all ---- */

static cz_status publish_to_each(cz_work *work, unsigned step, bool *any)
{
    const int me = work->group->rank;
    for (int r = 0; r < work->group->size; r++) {
        cz__segment segment;
        if (!next_segment(work, &work->operation.source, &work->peers[r].out, &segment))
            continue;
        *any = true;
        if (r == me)
            continue;
        CZ_TRY(put(work, &segment, cz__window_slot(work, me, work->window.published, r)));
        cz__traffic_sent(work->group, step, segment.bytes);
    }
    return CZ_OK;
}

static void count_to_all(const cz_work *work, size_t bytes)
{
    for (int r = 1; r < work->group->size; r++)
        cz__traffic_sent(work->group, CZ__STEP_EXCHANGE, bytes);
}

static cz_status publish_to_all(cz_work *work, bool *any)
{
    const int me = work->group->rank;
    cz__segment segment;
    *any = next_segment(work, &work->operation.source, &work->peers[me].out, &segment);
    if (!*any)
        return CZ_OK;
    count_to_all(work, segment.bytes);
    return put(work, &segment, cz__window_slot(work, me, work->window.published, 0));
}

static cz_status publish(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    cz__window_run *run = &work->window;
    bool any = false;
    if (operation->same_to_all && !operation->reduces)
        CZ_TRY(publish_to_all(work, &any));
    else
        CZ_TRY(
            publish_to_each(work, operation->reduces ? CZ__STEP_REDUCE : CZ__STEP_EXCHANGE, &any));
    run->all_published = !any;
    if (any)
        set(work, &flags_of(work, work->group->rank)->published, ++run->published);
    return CZ_OK;
}

/* ---- reduce: the last slot has the result, if others want it or it goes elsewhere from there ---- */

static void collect(cz_work *work, const cz__segment *own)
{
    const int me = work->group->rank;
    const uint32_t round = work->window.reduced;
    for (int r = 0; r < work->group->size; r++)
        work->sources[r] = cz__window_slot(work, r, round, me);
    if (own->data)
        work->sources[me] = own->data;
    else
        cz__segment_pack(&work->operation.source, own, work->group->device,
                         cz__window_slot(work, me, round, me));
}

static cz_status reduce_segment(cz_work *work, const cz__segment *own, const cz__segment *target)
{
    const cz__operation *operation = &work->operation;
    const int size = work->group->size;
    char *shared = cz__window_slot(work, work->group->rank, work->window.reduced, size);
    const bool fresh = target->data != own->data;
    const bool stream = operation->exchanges && work->window.stream && target->data;
    const bool through =
        !stream && (operation->exchanges || !target->data || (fresh && work->window.past_caches));
    collect(work, own);
    CZ_TRY(work->group->device->reduce(
        NULL, (cz_dtype)operation->header.dtype, (cz_reduction)operation->header.reduction, size,
        work->sources, (int64_t)(own->bytes / operation->source.element_size),
        through ? shared : target->data));
    if (stream)
        CZ_TRY(cz__copy_once(work->group->device, shared, target->data, own->bytes));
    if (operation->exchanges)
        count_to_all(work, own->bytes);
    return through ? take(work, target, shared, fresh) : CZ_OK;
}

static cz_status reduce(cz_work *work)
{
    cz__window_run *run = &work->window;
    cz__segment own, target;
    if (next_segment(work, &work->operation.source, &run->own, &own)) {
        (void)next_segment(work, &work->operation.target, &run->result, &target);
        CZ_TRY(reduce_segment(work, &own, &target));
    }
    set(work, &flags_of(work, work->group->rank)->reduced, ++run->reduced);
    return CZ_OK;
}

/* ---- copy out ---- */

/* Cut the segments of the round; in `sent` of its own entry what this rank keeps for itself. */
static void open_copies(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    bool any = false;
    for (int r = 0; r < work->group->size; r++)
        any |= next_segment(work, &operation->target, &work->peers[r].in, &work->peers[r].received);
    if (!operation->reduces)
        next_segment(work, &operation->source, &work->window.own, &work->peers[me].sent);
    work->window.copying = any;
    work->window.all_copied = !any;
    if (!any)
        set(work, &flags_of(work, me)->copied, END);
}

static cz_status keep_own(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    const cz__segment *from = &work->peers[me].sent, *to = &work->peers[me].received;
    if (to->bytes == 0 || operation->reduces ||
        cz__region_same_memory(&operation->source, &operation->target) ||
        (from->data && from->data == to->data))
        return CZ_OK;
    if (from->data)
        return take(work, to, from->data, true);
    char *slot = cz__window_slot(work, me, work->window.copied, work->group->size);
    CZ_TRY(put(work, from, slot));
    return take(work, to, slot, true);
}

/* From every rank that has got there; ranks begin with different ones. */
static cz_status copy(cz_work *work, bool *moved)
{
    const cz__operation *operation = &work->operation;
    const int size = work->group->size, me = work->group->rank;
    const int index = operation->reduces ? size : operation->same_to_all ? 0 : me;
    bool all = true;
    for (int i = 1; i < size; i++) {
        const int r = (me + i) % size;
        cz__segment *segment = &work->peers[r].received;
        if (segment->bytes == 0)
            continue;
        if (!may_copy(work, r)) {
            all = false;
            continue;
        }
        CZ_TRY(take(work, segment, cz__window_slot(work, r, work->window.copied, index),
                    !operation->reduces));
        segment->bytes = 0;
        *moved = true;
    }
    if (!all)
        return CZ_OK;
    CZ_TRY(keep_own(work));
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

static bool is_over(const cz_work *work)
{
    const cz__window_run *run = &work->window;
    return run->all_published && (!work->operation.reduces || run->reduced == run->published) &&
           (!work->operation.exchanges || run->all_copied);
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

/* ---- until it ends, or has to wait ---- */

static cz_status advance(cz_work *work, bool *any)
{
    for (bool moved; !is_over(work);) {
        CZ_TRY(step(work, &moved));
        if (moved) {
            *any = true;
            work->window.stalled_at = 0;
            work->window.patient = false;
        } else if (!cz__window_wait(work)) {
            return cz__window_check(work);
        }
    }
    finish(work);
    *any = true;
    return CZ_OK;
}

bool cz__window_advance(cz_work *work)
{
    bool any = false;
    const cz_status status = advance(work, &any);
    if (any)
        work->since = cz__seconds(); /* a long transfer is no late one */
    if (status == CZ_OK)
        return any;
    cz__operation_fail(work, status, cz_last_error());
    return true;
}

static bool in_window(const cz_work *work)
{
    return work->window.use &&
           (work->phase == CZ__PHASE_REDUCE || work->phase == CZ__PHASE_EXCHANGE);
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
           (wants_to_copy(work) && run->copying && work->peers[r].received.bytes > 0 &&
            !may_copy(work, r));
}
