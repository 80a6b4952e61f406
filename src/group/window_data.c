/* SPDX-License-Identifier: MIT */
/* Data between processes of one machine, through a window, in rounds of one chunk per stream as by
 * messages and with the same sums. A rank publishes what others need of its streams, reduces its
 * own stream from its memory and the others' slots (and updates what becomes of it, in a step), and
 * copies what others published or reduced. A round may be published while the one before is reduced
 * and copied; a chunk stays in the processor's caches on its way. */
#include "base/clock.h"
#include "base/status.h"
#include "group/window.h"

static const uint32_t END = UINT32_MAX; /* as a number of rounds: all */

static cz_status put(const cz_work *work, const cz__region *region, const cz__chunk *chunk,
                     char *slot)
{
    const cz_device *device = work->group->device;
    if (chunk->data && cz__run_of(work)->stream)
        return cz__copy_once(device, slot, chunk->data, chunk->bytes);
    else if (chunk->data)
        return device->copy(NULL, slot, chunk->data, chunk->bytes);
    else
        cz__chunk_pack(region, chunk, device, slot);
    return CZ_OK;
}

/* `fresh`: this rank has not read the memory that it writes. */
static cz_status take(const cz_work *work, const cz__region *region, const cz__chunk *chunk,
                      const char *from, bool fresh)
{
    const cz_device *device = work->group->device;
    if (!chunk->data)
        cz__chunk_unpack(region, chunk, device, from);
    else if (fresh && cz__run_of(work)->past_caches)
        return cz__copy_once(device, chunk->data, from, chunk->bytes);
    else
        return device->copy(NULL, chunk->data, from, chunk->bytes);
    return CZ_OK;
}

/* ---- publish: slot r of this rank's part has what is for rank r; slot 0 what is for all ---- */

static cz_status publish_to_each(cz_work *work, unsigned step, bool *any)
{
    const int me = work->group->rank;
    const cz__region *source = &work->operation.source;
    for (int r = 0; r < work->group->size; r++) {
        cz__chunk chunk;
        if (!cz__window_next(work, source, &cz__run_of(work)->peers[r].out, &chunk))
            continue;
        *any = true;
        if (r == me)
            continue;
        CZ_TRY(
            put(work, source, &chunk, cz__window_slot(work, me, cz__run_of(work)->published, r)));
        cz__traffic_sent(work->group, step, chunk.bytes);
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
    const cz__operation *operation = &work->operation;
    const cz__region *source = cz__region_given(operation);
    cz__chunk chunk;
    *any = cz__window_next(work, source, &cz__run_of(work)->peers[me].out, &chunk);
    if (!*any)
        return CZ_OK;
    if (operation->update)
        cz__update_chunk(operation, &chunk, NULL);
    if (operation->shared_values)
        return CZ_OK;
    count_to_all(work, chunk.bytes);
    return put(work, source, &chunk, cz__window_slot(work, me, cz__run_of(work)->published, 0));
}

static cz_status publish_chunks(cz_work *work, bool *any)
{
    const cz__operation *operation = &work->operation;
    *any = false;
    if (operation->same_to_all && !operation->reduces)
        return publish_to_all(work, any);
    return publish_to_each(work, operation->reduces ? CZ__STEP_REDUCE : CZ__STEP_EXCHANGE, any);
}

/* ---- reduce: the last slot has the result, if others want it or it goes on from there ---- */

static void collect(cz_work *work, const cz__chunk *own)
{
    const int me = work->group->rank;
    const uint32_t round = cz__run_of(work)->reduced;
    for (int r = 0; r < work->group->size; r++)
        cz__run_of(work)->sources[r] = cz__window_slot(work, r, round, me);
    if (own->data)
        cz__run_of(work)->sources[me] = own->data;
    else
        cz__chunk_pack(&work->operation.source, own, work->group->device,
                       cz__window_slot(work, me, round, me));
}

static cz_status reduce_into(cz_work *work, size_t bytes, void *out)
{
    const cz__operation *operation = &work->operation;
    return work->group->device->reduce(NULL, (cz_dtype)operation->header.dtype,
                                       (cz_reduction)operation->header.reduction, work->group->size,
                                       cz__run_of(work)->sources,
                                       (int64_t)(bytes / operation->source.element_size), out);
}

static cz_status reduce_chunk(cz_work *work, const cz__chunk *own, const cz__chunk *target,
                              char *shared)
{
    const cz__operation *operation = &work->operation;
    const bool fresh = target->data != own->data;
    const bool stream = operation->exchanges && cz__run_of(work)->stream && target->data;
    const bool through = !stream && (operation->exchanges || !target->data ||
                                     (fresh && cz__run_of(work)->past_caches));
    CZ_TRY(reduce_into(work, own->bytes, through ? shared : target->data));
    if (stream)
        CZ_TRY(cz__copy_once(work->group->device, shared, target->data, own->bytes));
    return through ? take(work, &operation->target, target, shared, fresh) : CZ_OK;
}

/* Reduced, updated piece by piece, and what became of it to the others, if they want it. */
static cz_status step_chunk(cz_work *work, const cz__chunk *own, const cz__chunk *target,
                            char *shared)
{
    const cz__operation *operation = &work->operation;
    char *gradient = target->data ? target->data : shared;
    CZ_TRY(reduce_into(work, own->bytes, gradient));
    if (gradient == shared)
        cz__chunk_unpack(&operation->target, target, work->group->device, shared);
    cz__update_chunk(operation, target, gradient);
    if (!operation->exchanges || operation->shared_values)
        return CZ_OK;
    cz__cursor at = target->begin;
    cz__chunk values;
    (void)cz__window_next(work, &operation->values, &at, &values);
    return put(work, &operation->values, &values, shared);
}

static cz_status reduce_own(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    cz__window_run *run = cz__run_of(work);
    char *shared = cz__window_slot(work, work->group->rank, run->reduced, work->group->size);
    cz__chunk own, target;
    if (!cz__window_next(work, &operation->source, &run->own, &own))
        return CZ_OK;
    (void)cz__window_next(work, &operation->target, &run->result, &target);
    collect(work, &own);
    CZ_TRY(operation->update ? step_chunk(work, &own, &target, shared)
                             : reduce_chunk(work, &own, &target, shared));
    if (operation->exchanges && !operation->shared_values)
        count_to_all(work, own.bytes);
    return CZ_OK;
}

/* ---- copy out ---- */

static bool cut_copies(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    bool any = false;
    for (int r = 0; r < work->group->size; r++)
        any |=
            cz__window_next(work, cz__region_taken(&work->operation),
                            &cz__run_of(work)->peers[r].in, &cz__run_of(work)->peers[r].received);
    if (!operation->reduces)
        cz__window_next(work, &operation->source, &cz__run_of(work)->own, &cz__run_of(work)->kept);
    return any;
}

static cz_status keep_own(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    const cz__chunk *from = &cz__run_of(work)->kept, *to = &cz__run_of(work)->peers[me].received;
    if (to->bytes == 0 || operation->reduces || operation->update ||
        cz__region_same_memory(&operation->source, &operation->target) ||
        (from->data && from->data == to->data))
        return CZ_OK;
    if (from->data)
        return take(work, &operation->target, to, from->data, true);
    char *slot = cz__window_slot(work, me, cz__run_of(work)->copied, work->group->size);
    CZ_TRY(put(work, &operation->source, from, slot));
    return take(work, &operation->target, to, slot, true);
}

static cz_status copy_from(cz_work *work, int rank)
{
    const cz__operation *operation = &work->operation;
    int index = operation->same_to_all ? 0 : work->group->rank;
    if (operation->reduces)
        index = work->group->size;
    cz__chunk *chunk = &cz__run_of(work)->peers[rank].received;
    if (!operation->shared_values)
        CZ_TRY(take(work, cz__region_taken(&work->operation), chunk,
                    cz__window_slot(work, rank, cz__run_of(work)->copied, index),
                    !operation->reduces || operation->update));
    chunk->bytes = 0;
    return CZ_OK;
}

/* ---- when: what round of its own a rank may do ---- */

/* Has a slot of this round been read by everybody in the round that had it before? */
static bool reusable(const cz_work *work, _Atomic uint64_t *flag, uint32_t round)
{
    return round < CZ__LANE_ROUNDS || cz__window_reached(work, flag, round - CZ__LANE_ROUNDS + 1);
}

/* What round of a rank's work waits for rank r. */

static bool may_publish(const cz_work *work, int r)
{
    cz__lane_flags *its = cz__window_flags(work, r);
    return reusable(work, work->operation.reduces ? &its->reduced : &its->copied,
                    cz__run_of(work)->published);
}

static bool may_reduce(const cz_work *work, int r)
{
    cz__lane_flags *its = cz__window_flags(work, r);
    const uint32_t round = cz__run_of(work)->reduced;
    return cz__window_reached(work, &its->published, round + 1) &&
           (!work->operation.exchanges || reusable(work, &its->copied, round));
}

static bool may_copy(const cz_work *work, int r)
{
    cz__lane_flags *its = cz__window_flags(work, r);
    return cz__window_reached(work, work->operation.reduces ? &its->reduced : &its->published,
                              cz__run_of(work)->copied + 1);
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
    cz__window_run *run = cz__run_of(work);
    bool any;
    CZ_TRY(publish_chunks(work, &any));
    run->all_published = !any;
    if (any)
        cz__window_set(work, &cz__window_flags(work, work->group->rank)->published,
                       ++run->published);
    return CZ_OK;
}

static cz_status reduce(cz_work *work)
{
    CZ_TRY(reduce_own(work));
    cz__window_set(work, &cz__window_flags(work, work->group->rank)->reduced,
                   ++cz__run_of(work)->reduced);
    return CZ_OK;
}

static void open_copies(cz_work *work)
{
    cz__window_run *run = cz__run_of(work);
    run->copying = cut_copies(work);
    run->all_copied = !run->copying;
    if (run->all_copied)
        cz__window_set(work, &cz__window_flags(work, work->group->rank)->copied, END);
}

/* From every rank that has got there; ranks begin with different ones. */
static cz_status copy(cz_work *work, bool *moved)
{
    const int size = work->group->size, me = work->group->rank;
    bool all = true;
    for (int i = 1; i < size; i++) {
        const int r = (me + i) % size;
        if (cz__run_of(work)->peers[r].received.bytes == 0)
            continue;
        if (!may_copy(work, r)) {
            all = false;
            continue;
        }
        CZ_TRY(copy_from(work, r));
        *moved = true;
    }
    if (!all)
        return CZ_OK;
    CZ_TRY(keep_own(work));
    cz__run_of(work)->copying = false;
    cz__window_set(work, &cz__window_flags(work, me)->copied, ++cz__run_of(work)->copied);
    *moved = true;
    return CZ_OK;
}

/* ---- rounds ---- */

static bool wants_to_reduce(const cz_work *work)
{
    return work->operation.reduces && cz__run_of(work)->reduced < cz__run_of(work)->published;
}

/* Not before this rank has published the round: it may be in the same memory. */
static bool wants_to_copy(const cz_work *work)
{
    const cz__window_run *run = cz__run_of(work);
    if (!work->operation.exchanges || run->all_copied)
        return false;
    return run->copied < (work->operation.reduces ? run->reduced : run->published) ||
           (run->all_published && run->reduced == (work->operation.reduces ? run->published : 0));
}

static cz_status copy_round(cz_work *work, bool *moved)
{
    if (!cz__run_of(work)->copying) {
        *moved = true;
        open_copies(work);
    }
    return cz__run_of(work)->copying ? copy(work, moved) : CZ_OK;
}

/* What others wait for comes first; last what is only ahead of them. */
static cz_status step(cz_work *work, bool *moved)
{
    const cz__window_run *run = cz__run_of(work);
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
    const cz__window_run *run = cz__run_of(work);
    *over = run->all_published && (!work->operation.reduces || run->reduced == run->published) &&
            (!work->operation.exchanges || run->all_copied);
    return CZ_OK;
}

static void finish(cz_work *work)
{
    cz__lane_flags *mine = cz__window_flags(work, work->group->rank);
    cz__window_set(work, &mine->published, END);
    cz__window_set(work, &mine->reduced, END);
    cz__window_set(work, &mine->copied, END);
    atomic_store_explicit(&mine->ended, cz__run_of(work)->use, memory_order_release);
    cz__window_note(work);
}

/* ---- the engine ---- */

static bool offers(cz_work *work)
{
    return cz__window_is_there(work->group) && !work->group->window->node;
}

static cz_status advance(cz_work *work, cz__progress *progress)
{
    return cz__window_go(work, step, is_over, finish, progress);
}

static bool awaits(const cz_work *work, int r)
{
    const cz__window_run *run = cz__run_of(work);
    if (r == work->group->rank)
        return false;
    return (wants_to_reduce(work) && !may_reduce(work, r)) ||
           (!run->all_published && !may_publish(work, r)) ||
           (wants_to_copy(work) && run->copying && run->peers[r].received.bytes > 0 &&
            !may_copy(work, r));
}

const cz__engine cz__engine_window = {.bytes = cz__window_bytes,
                                      .offers = offers,
                                      .grant = cz__window_grant,
                                      .begin = cz__window_begin,
                                      .advance = advance,
                                      .awaits = awaits,
                                      .watch = cz__window_watch,
                                      .forget = cz__window_forget};
