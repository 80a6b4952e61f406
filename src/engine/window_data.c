/* SPDX-License-Identifier: MIT */
/* Data through a window, in rounds of one chunk per stream as by messages and with the same sums.
 *
 * A rank opens a round: it puts what others here need of its streams into slots of its part, and
 * posts what it is to receive from other machines. A leader adds up what this machine has for an
 * owner elsewhere and sends it. An owner reduces its own stream from its memory, the others' slots
 * and these sums (and updates what becomes of it, in a step), puts the result into a slot and sends
 * it once to each other machine; there all copy it from their leader's slot. Several rounds are
 * under way; a chunk stays in the processor's caches on its way. */
#include "base/status.h"
#include "engine/window.h"

static const uint32_t END = UINT32_MAX; /* as a number of rounds: all */

static const cz__topology *topology_of(const cz_work *work)
{
    return work->group->window->topology;
}

static const cz__machine *here(const cz_work *work)
{
    return &topology_of(work)->machines[topology_of(work)->here];
}

static bool has_other_machines(const cz_work *work)
{
    return topology_of(work)->machine_count > 1;
}

/* Has one rank something for all, which nobody reduces? */
static bool gathers(const cz_work *work)
{
    return !work->operation.reduces && work->operation.same_to_all;
}

/* ---- flags: how far ranks here are, and what that lets this rank do ---- */

static cz__lane_flags *mine(const cz_work *work)
{
    return cz__window_flags(work, work->group->rank);
}

static void raise_flag(const cz_work *work, _Atomic uint64_t *flag, uint32_t rounds)
{
    atomic_store_explicit(flag, cz__run_of(work)->use << 32 | rounds, memory_order_release);
}

/* A flag is of this use of the lane or of one shortly before. The difference says which is ahead,
 * also where the lower 32 bits of the number of uses wrap around. */
static bool has_reached(const cz_work *work, _Atomic uint64_t *flag, uint32_t rounds)
{
    const uint64_t wanted = cz__run_of(work)->use << 32 | rounds;
    return (int64_t)(atomic_load_explicit(flag, memory_order_acquire) - wanted) >= 0;
}

static bool all_here(const cz_work *work, bool (*let)(const cz_work *, int))
{
    const cz__machine *machine = here(work);
    for (int i = 0; i < machine->rank_count; i++)
        if (!let(work, machine->ranks[i]))
            return false;
    return true;
}

/* Rank 0 cannot see whether the lane is free on other machines, so those who use it next wait until
 * it is. */
static bool lets_take(const cz_work *work, int r)
{
    return atomic_load_explicit(&cz__window_flags(work, r)->ended, memory_order_acquire) >=
           cz__run_of(work)->use - 1;
}

/* Has a slot of this round been read by a rank in the round that had it before? */
static bool is_reusable(const cz_work *work, _Atomic uint64_t *flag, uint32_t round)
{
    return round < CZ__LANE_ROUNDS || has_reached(work, flag, round - CZ__LANE_ROUNDS + 1);
}

/* A round may be opened when its slots are free; what other machines send comes into them, too. */
static bool lets_open(const cz_work *work, int r)
{
    cz__lane_flags *its = cz__window_flags(work, r);
    const uint32_t round = cz__run_of(work)->published;
    if (work->operation.reduces && !is_reusable(work, &its->reduced, round))
        return false;
    return !work->operation.exchanges || (work->operation.reduces && !has_other_machines(work)) ||
           is_reusable(work, &its->copied, round);
}

static bool lets_combine(const cz_work *work, int r)
{
    return has_reached(work, &cz__window_flags(work, r)->published, cz__run_of(work)->combined + 1);
}

static bool lets_reduce(const cz_work *work, int r)
{
    return !work->operation.exchanges ||
           is_reusable(work, &cz__window_flags(work, r)->copied, cz__run_of(work)->reduced);
}

/* The rank of this machine that has what rank r gives: itself, or its leader here. */
static int holder_of(const cz_work *work, int r)
{
    const int leader = topology_of(work)->leader[r];
    return leader < 0 ? r : leader;
}

static bool lets_copy(const cz_work *work, int r)
{
    cz__lane_flags *its = cz__window_flags(work, holder_of(work, r));
    _Atomic uint64_t *flag = work->operation.reduces ? &its->reduced : &its->published;
    if (topology_of(work)->leader[r] >= 0)
        flag = &its->landed;
    return has_reached(work, flag, cz__run_of(work)->copied + 1);
}

/* ---- chunks and slots ---- */

static bool next_chunk(const cz_work *work, const cz__region *region, cz__cursor *cursor,
                       cz__chunk *chunk)
{
    return cz__chunk_next(region, cursor, cz__run_of(work)->chunk_bytes, chunk);
}

static cz_status put(const cz_work *work, const cz__region *region, const cz__chunk *chunk,
                     char *slot)
{
    const cz_device *device = work->group->device;
    const size_t bytes = cz__bytes_here(region, chunk->bytes);
    if (chunk->data && cz__run_of(work)->stream)
        return cz__copy_once(device, slot, chunk->data, bytes);
    if (chunk->data)
        return device->copy(NULL, slot, chunk->data, bytes);
    cz__chunk_pack(region, chunk, device, slot);
    return CZ_OK;
}

/* All of this rank's terms. */
static cz_status put_terms(const cz_work *work, const cz__chunk *chunk, char *slot)
{
    const cz__region *source = &work->operation.source;
    const int terms = cz__region_terms(source, work->group->rank);
    for (int t = 0; t < terms; t++) {
        const cz__region term = cz__region_of_term(source, t);
        const cz__chunk its = cz__chunk_of_term(&term, chunk);
        CZ_TRY(put(work, &term, &its, slot + (size_t)t * cz__line_aligned(chunk->bytes)));
    }
    return CZ_OK;
}

/* Copy a chunk from a slot to where it belongs. `fresh`: this rank has not just read that
 * memory. */
static cz_status take(const cz_work *work, const cz__region *region, const cz__chunk *chunk,
                      const char *from, bool fresh)
{
    const cz_device *device = work->group->device;
    const size_t bytes = cz__bytes_here(region, chunk->bytes);
    if (chunk->data && fresh && cz__run_of(work)->past_caches)
        return cz__copy_once(device, chunk->data, from, bytes);
    if (chunk->data)
        return device->copy(NULL, chunk->data, from, bytes);
    cz__chunk_unpack(region, chunk, device, from);
    return CZ_OK;
}

static char *result_slot(const cz_work *work, uint32_t round)
{
    return cz__window_slot(work, work->group->rank, round, work->group->size);
}

/* ---- messages between machines ---- */

/* Count what the other ranks of this machine copy of a result that is for all. */
static void count_handed_over(const cz_work *work, size_t chunk_bytes)
{
    const size_t bytes = cz__bytes_here(cz__region_taken(&work->operation), chunk_bytes);
    for (int i = 1; i < here(work)->rank_count; i++)
        cz__traffic_sent(work->group, CZ__STEP_EXCHANGE, bytes);
}

/* Hand over a result that is for all: to the ranks of this machine, and once to each other
 * machine. */
static cz_status send_result(cz_work *work, uint32_t round, const char *data, size_t chunk_bytes)
{
    const cz__topology *topology = topology_of(work);
    const size_t bytes = cz__bytes_here(cz__region_taken(&work->operation), chunk_bytes);
    count_handed_over(work, chunk_bytes);
    for (int i = 1; i < topology->machine_count; i++) {
        const int m = (topology->here + i) % topology->machine_count;
        CZ_TRY(cz__request_send(work, cz__window_request(work, round, CZ__RESULT_TO_MACHINE, m),
                                cz__topology_leader(topology, m, work->group->rank),
                                CZ__STEP_EXCHANGE, (void *)data, bytes));
    }
    return CZ_OK;
}

static cz_status receive_result(cz_work *work, uint32_t round, int owner, size_t chunk_bytes)
{
    const cz__topology *topology = topology_of(work);
    const size_t bytes = cz__bytes_here(cz__region_taken(&work->operation), chunk_bytes);
    const int duty = topology->duty[owner];
    char *slot = cz__window_slot(work, work->group->rank, round,
                                 cz__topology_slot_of_result(topology, duty));
    return cz__request_receive(work, cz__window_request(work, round, CZ__RESULT_FROM_OWNER, duty),
                               owner, CZ__STEP_EXCHANGE, slot, bytes);
}

static cz_status receive_sums(cz_work *work, uint32_t round, size_t chunk_bytes)
{
    const cz__topology *topology = topology_of(work);
    const int me = work->group->rank;
    for (int m = 0; m < topology->machine_count; m++) {
        const cz__machine *machine = &topology->machines[m];
        if (m == topology->here)
            continue;
        CZ_TRY(cz__request_receive(work, cz__window_request(work, round, CZ__SUMS_FROM_MACHINE, m),
                                   cz__topology_leader(topology, m, me), CZ__STEP_REDUCE,
                                   cz__window_slot(work, me, round, machine->at),
                                   cz__sums_bytes(work, machine, chunk_bytes)));
    }
    return CZ_OK;
}

/* Have messages [0, count) of a kind ended? */
static cz_status landed(cz_work *work, uint32_t round, cz__window_message message, int count,
                        bool *all)
{
    for (int i = 0; i < count && *all; i++)
        CZ_TRY(cz__request_landed(work, cz__window_request(work, round, message, i), all));
    return CZ_OK;
}

/* Those that this rank sent in a round. */
static cz_status sends_landed(cz_work *work, uint32_t round, bool *all)
{
    CZ_TRY(landed(work, round, CZ__SUMS_TO_OWNER, topology_of(work)->duty_count, all));
    return landed(work, round, CZ__RESULT_TO_MACHINE, topology_of(work)->machine_count, all);
}

static cz_status all_sends_landed(cz_work *work, bool *all)
{
    *all = true;
    for (uint32_t round = 0; round < CZ__LANE_ROUNDS && has_other_machines(work); round++)
        CZ_TRY(sends_landed(work, round, all));
    return CZ_OK;
}

/* ---- open a round ---- */

/* Give this rank's part of the stream that goes to rank r. What this rank reads itself, for the sum
 * of rank r too, can stay where it is; the rest goes into a slot. */
static cz_status open_leaf(cz_work *work, int r, const cz__chunk *chunk)
{
    const bool reduces = work->operation.reduces;
    const uint32_t round = cz__run_of(work)->published;
    const int me = work->group->rank;
    const bool is_used_here = r == me || topology_of(work)->leader[r] == me;
    const int terms = cz__region_terms(&work->operation.source, me);
    char *slot = cz__window_slot(work, me, round, r);
    cz__leaf *leaf = cz__window_leaf(work, round, r);
    *leaf = (cz__leaf){chunk->bytes, slot};
    if (terms > 1) {
        CZ_TRY(put_terms(work, chunk, slot));
    } else {
        const cz__region source = cz__region_of_term(&work->operation.source, 0);
        const cz__chunk its = cz__chunk_of_term(&source, chunk);
        if (is_used_here && its.data)
            leaf->data = its.data;
        else
            CZ_TRY(put(work, &source, &its, slot));
    }
    if (!is_used_here)
        cz__traffic_sent(work->group, reduces ? CZ__STEP_REDUCE : CZ__STEP_EXCHANGE,
                         cz__terms_bytes(terms, chunk->bytes));
    if (r == me && reduces)
        return receive_sums(work, round, chunk->bytes);
    if (work->operation.exchanges && topology_of(work)->leader[r] == me)
        return receive_result(work, round, r, chunk->bytes);
    return CZ_OK;
}

/* Give what is for all: this rank's own data, or in a step the values that it updates now. */
static cz_status open_own(cz_work *work, const cz__chunk *chunk)
{
    const uint32_t round = cz__run_of(work)->published;
    char *slot = result_slot(work, round);
    cz__leaf *leaf = cz__window_leaf(work, round, work->group->rank);
    *leaf = (cz__leaf){chunk->bytes, chunk->data ? chunk->data : slot};
    if (work->operation.update)
        cz__update_chunk(&work->operation, chunk, NULL);
    if (work->operation.shared_values)
        return CZ_OK;
    CZ_TRY(put(work, cz__region_given(&work->operation), chunk, slot));
    return send_result(work, round, slot, chunk->bytes);
}

static cz_status open_gathered(cz_work *work, int r, const cz__chunk *chunk)
{
    const uint32_t round = cz__run_of(work)->published;
    if (r == work->group->rank)
        return open_own(work, chunk);
    if (topology_of(work)->leader[r] != work->group->rank)
        return CZ_OK;
    cz__window_leaf(work, round, r)->bytes = chunk->bytes;
    return receive_result(work, round, r, chunk->bytes);
}

static cz_status open_streams(cz_work *work, bool *any)
{
    *any = false;
    for (int r = 0; r < work->group->size; r++) {
        cz__chunk chunk;
        *cz__window_leaf(work, cz__run_of(work)->published, r) = (cz__leaf){0};
        if (!next_chunk(work, cz__window_opened(work, r), &cz__run_of(work)->peers[r].out, &chunk))
            continue;
        *any = true;
        CZ_TRY(gathers(work) ? open_gathered(work, r, &chunk) : open_leaf(work, r, &chunk));
    }
    return CZ_OK;
}

static cz_status open_round(cz_work *work, bool *moved)
{
    cz__window_run *run = cz__run_of(work);
    bool any = false, sent = true;
    if (!all_here(work, lets_open))
        return CZ_OK;
    CZ_TRY(sends_landed(work, run->published, &sent)); /* of the round that had its slots */
    if (!sent)
        return CZ_OK;
    *moved = true;
    CZ_TRY(open_streams(work, &any));
    run->all_published = !any;
    if (any)
        raise_flag(work, &mine(work)->published, ++run->published);
    return CZ_OK;
}

/* ---- reduce ---- */

/* What is for owners elsewhere. */
static cz_status combine(cz_work *work, bool *moved)
{
    const cz__topology *topology = topology_of(work);
    cz__window_run *run = cz__run_of(work);
    if (!all_here(work, lets_combine))
        return CZ_OK;
    *moved = true;
    for (int duty = 0; duty < topology->duty_count; duty++) {
        const int owner = topology->duties[duty];
        const size_t bytes = cz__window_leaf(work, run->combined, owner)->bytes;
        const char *sums;
        if (bytes == 0)
            continue;
        CZ_TRY(cz__sums_for_owner(work, run->combined, duty, &sums));
        CZ_TRY(cz__request_send(
            work, cz__window_request(work, run->combined, CZ__SUMS_TO_OWNER, duty), owner,
            CZ__STEP_REDUCE, (void *)sums, cz__sums_bytes(work, here(work), bytes)));
    }
    run->combined++;
    return CZ_OK;
}

/* Reduce into the target, and into the slot, too, if others want the result. Where stores go past
 * the caches the target comes first; otherwise the slot does, unless nobody else wants the result
 * and it can be written in place. */
static cz_status reduce_chunk(cz_work *work, const cz__chunk *target, char *slot)
{
    const cz__operation *operation = &work->operation;
    const cz__window_run *run = cz__run_of(work);
    const cz__leaf *own = cz__window_leaf(work, run->reduced, work->group->rank);
    const bool fresh = target->data != own->data;
    if (operation->exchanges && run->stream && target->data) {
        CZ_TRY(cz__sums_reduce(work, run->reduced, target->data));
        return cz__copy_once(work->group->device, slot, target->data,
                             cz__bytes_here(&operation->target, own->bytes));
    }
    if (!operation->exchanges && target->data && !(fresh && run->past_caches))
        return cz__sums_reduce(work, run->reduced, target->data);
    CZ_TRY(cz__sums_reduce(work, run->reduced, slot));
    return take(work, &operation->target, target, slot, fresh);
}

/* In a step: reduce a chunk, update it piece by piece, and give the new values to the others, if
 * they want them. */
static cz_status step_chunk(cz_work *work, const cz__chunk *target, char *slot)
{
    const cz__operation *operation = &work->operation;
    char *gradient = target->data ? target->data : slot;
    cz__cursor at = target->begin;
    cz__chunk values;
    CZ_TRY(cz__sums_reduce(work, cz__run_of(work)->reduced, gradient));
    if (gradient == slot)
        cz__chunk_unpack(&operation->target, target, work->group->device, slot);
    cz__update_chunk(operation, target, gradient);
    if (!operation->exchanges || operation->shared_values)
        return CZ_OK;
    (void)next_chunk(work, &operation->values, &at, &values);
    return put(work, &operation->values, &values, slot);
}

static cz_status reduce_own(cz_work *work, const cz__chunk *target)
{
    const uint32_t round = cz__run_of(work)->reduced;
    char *slot = result_slot(work, round);
    CZ_TRY(work->operation.update ? step_chunk(work, target, slot)
                                  : reduce_chunk(work, target, slot));
    if (!work->operation.exchanges || work->operation.shared_values)
        return CZ_OK;
    return send_result(work, round, slot, target->bytes);
}

static cz_status reduce(cz_work *work, bool *moved)
{
    cz__window_run *run = cz__run_of(work);
    cz__chunk target;
    bool all = true;
    if (!all_here(work, lets_reduce))
        return CZ_OK;
    CZ_TRY(
        landed(work, run->reduced, CZ__SUMS_FROM_MACHINE, topology_of(work)->machine_count, &all));
    if (!all)
        return CZ_OK;
    *moved = true;
    if (next_chunk(work, &work->operation.target, &run->result, &target))
        CZ_TRY(reduce_own(work, &target));
    raise_flag(work, &mine(work)->reduced, ++run->reduced);
    return CZ_OK;
}

/* ---- exchange ---- */

/* What other machines sent for all ranks here. */
static cz_status land(cz_work *work, bool *moved)
{
    const cz__topology *topology = topology_of(work);
    cz__window_run *run = cz__run_of(work);
    bool all = true;
    CZ_TRY(landed(work, run->landed, CZ__RESULT_FROM_OWNER, topology->duty_count, &all));
    if (all && work->operation.reduces) /* what is copied may go where these are sent from */
        CZ_TRY(landed(work, run->landed, CZ__SUMS_TO_OWNER, topology->duty_count, &all));
    if (!all)
        return CZ_OK;
    *moved = true;
    for (int duty = 0; duty < topology->duty_count; duty++) {
        const size_t bytes = cz__window_leaf(work, run->landed, topology->duties[duty])->bytes;
        if (bytes > 0)
            count_handed_over(work, bytes);
    }
    raise_flag(work, &mine(work)->landed, ++run->landed);
    return CZ_OK;
}

static void cut_copies(cz_work *work)
{
    cz__window_run *run = cz__run_of(work);
    run->copying = false;
    for (int r = 0; r < work->group->size; r++)
        run->copying |= next_chunk(work, cz__region_taken(&work->operation), &run->peers[r].in,
                                   &run->peers[r].received);
    run->all_copied = !run->copying;
    if (run->all_copied)
        raise_flag(work, &mine(work)->copied, END);
}

static const char *given_by(const cz_work *work, int r)
{
    const cz__topology *topology = topology_of(work);
    int index = topology->size;
    if (topology->leader[r] >= 0)
        index = cz__topology_slot_of_result(topology, topology->duty[r]);
    else if (!work->operation.reduces && !work->operation.same_to_all)
        index = work->group->rank;
    return cz__window_slot(work, holder_of(work, r), cz__run_of(work)->copied, index);
}

static cz_status copy_from(cz_work *work, int r)
{
    const cz__operation *operation = &work->operation;
    cz__chunk *chunk = &cz__run_of(work)->peers[r].received;
    if (!operation->shared_values)
        CZ_TRY(take(work, cz__region_taken(operation), chunk, given_by(work, r),
                    !operation->reduces || operation->update));
    chunk->bytes = 0;
    return CZ_OK;
}

/* Copy what this rank gives to itself, of a round that it has opened or in which it gives
 * nothing. */
static cz_status keep_own(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const cz__window_run *run = cz__run_of(work);
    const cz__chunk *to = &run->peers[work->group->rank].received;
    const cz__leaf *from = cz__window_leaf(work, run->copied, work->group->rank);
    if (to->bytes == 0 || operation->reduces || operation->update ||
        cz__region_same_memory(&operation->source, &operation->target) || from->data == to->data)
        return CZ_OK;
    return take(work, &operation->target, to, from->data, true);
}

/* Copy from every rank that has come to this round; ranks begin with different ones. */
static cz_status copy_round(cz_work *work, bool *moved)
{
    cz__window_run *run = cz__run_of(work);
    const int size = work->group->size, me = work->group->rank;
    bool all = true;
    if (!run->copying) {
        cut_copies(work);
        *moved = true;
    }
    if (run->all_copied)
        return CZ_OK;
    for (int i = 1; i < size; i++) {
        const int r = (me + i) % size;
        if (run->peers[r].received.bytes > 0 && lets_copy(work, r)) {
            CZ_TRY(copy_from(work, r));
            *moved = true;
        }
        all &= run->peers[r].received.bytes == 0;
    }
    if (!all)
        return CZ_OK;
    *moved = true;
    CZ_TRY(keep_own(work));
    run->copying = false;
    raise_flag(work, &mine(work)->copied, ++run->copied);
    return CZ_OK;
}

/* ---- which comes next ---- */

static bool wants_to_combine(const cz_work *work)
{
    return work->operation.reduces && cz__run_of(work)->combined < cz__run_of(work)->published;
}

static bool wants_to_reduce(const cz_work *work)
{
    return work->operation.reduces && cz__run_of(work)->reduced < cz__run_of(work)->combined;
}

static bool wants_to_land(const cz_work *work)
{
    return has_other_machines(work) && work->operation.exchanges &&
           cz__run_of(work)->landed < cz__run_of(work)->published;
}

static bool has_reduced_all(const cz_work *work)
{
    const cz__window_run *run = cz__run_of(work);
    return run->all_published && (!work->operation.reduces || run->reduced == run->published);
}

/* Not before this rank has opened the round: it may be in the same memory. */
static bool wants_to_copy(const cz_work *work)
{
    const cz__window_run *run = cz__run_of(work);
    if (!work->operation.exchanges || run->all_copied)
        return false;
    return run->copied < (work->operation.reduces ? run->reduced : run->published) ||
           has_reduced_all(work);
}

static void take_lane(cz_work *work, bool *moved)
{
    if (all_here(work, lets_take))
        cz__run_of(work)->taken = *moved = true;
}

/* What others wait for comes first; last what is only ahead of them. */
static cz_status step(cz_work *work, bool *moved)
{
    cz__window_run *run = cz__run_of(work);
    *moved = false;
    if (!run->taken)
        take_lane(work, moved);
    if (!run->taken)
        return CZ_OK;
    if (wants_to_combine(work))
        CZ_TRY(combine(work, moved));
    if (wants_to_reduce(work))
        CZ_TRY(reduce(work, moved));
    if (wants_to_land(work))
        CZ_TRY(land(work, moved));
    if (wants_to_copy(work))
        CZ_TRY(copy_round(work, moved));
    return run->all_published ? CZ_OK : open_round(work, moved);
}

static cz_status is_over(cz_work *work, bool *over)
{
    *over = has_reduced_all(work) && !wants_to_land(work) &&
            (!work->operation.exchanges || cz__run_of(work)->all_copied);
    return *over ? all_sends_landed(work, over) : CZ_OK;
}

static void leave_lane(cz_work *work)
{
    cz__run_of(work)->taken = false;
    atomic_store_explicit(&mine(work)->ended, cz__run_of(work)->use, memory_order_release);
}

static void finish(cz_work *work)
{
    cz__lane_flags *flags = mine(work);
    raise_flag(work, &flags->published, END);
    raise_flag(work, &flags->reduced, END);
    raise_flag(work, &flags->copied, END);
    raise_flag(work, &flags->landed, END);
    leave_lane(work);
    cz__window_note(work);
}

/* The group is intact, and no rank has left that has not done its part. */
static cz_status check_ranks(const cz_work *work)
{
    const cz_group *group = work->group;
    CZ_TRY(cz__group_intact(group, work->sequence));
    for (int r = 0; r < group->size; r++) {
        if (r == group->rank || !group->window->parts[r]) /* messages find out */
            continue;
        const cz_status status = group->backend->present(group->endpoint, r);
        if (status != CZ_OK &&
            atomic_load(&cz__window_flags(work, r)->ended) < cz__run_of(work)->use)
            return status;
    }
    return CZ_OK;
}

/* ---- the engine ---- */

static size_t bytes(int size, bool in_process)
{
    const size_t each = sizeof(cz__window_peer) + sizeof(void *);
    return in_process ? 0 : sizeof(cz__window_run) + (size_t)size * each;
}

/* Terms of ranks on other machines go by messages. */
static bool offers(cz_work *work)
{
    const int terms = cz__region_most_terms(&work->operation.source);
    const bool has_terms = cz__region_has_terms(&work->operation.source);
    return cz__window_is_there(work->group) &&
           (!has_terms ||
            (!has_other_machines(work) && work->group->window->slot_bytes >= 64 * (size_t)terms));
}

static cz_status advance(cz_work *work, cz__engine_progress *progress)
{
    cz__window_run *run = cz__run_of(work);
    for (bool moved, over;;) {
        CZ_TRY(is_over(work, &over));
        if (over) {
            finish(work);
            *progress = CZ__DONE;
            return CZ_OK;
        }
        CZ_TRY(step(work, &moved));
        if (moved) {
            *progress = CZ__MOVED;
            run->look = (cz__close_look){0};
        } else if (!cz__window_look(work->group, &run->look)) {
            return check_ranks(work);
        }
    }
}

static void withdraw(cz_work *work)
{
    cz__window *window = work->group->window;
    const cz__lane *lane = &window->lanes[cz__run_of(work)->lane];
    if (!cz__run_of(work)->taken)
        return;
    for (int i = 0; i < CZ__LANE_ROUNDS * window->request_count; i++)
        cz__request_withdraw(work, &lane->requests[i]);
    window->stuck |= work->stuck;
}

/* Operations before it still go on, and may need the lane, also if it had not come to take it. */
static void give_up(cz_work *work)
{
    const cz__window_run *run = cz__run_of(work);
    const bool is_next = !run->taken && atomic_load(&mine(work)->ended) == run->use - 1;
    if ((run->taken || is_next) && !work->stuck)
        leave_lane(work);
}

static bool awaits_message(const cz_work *work, int r)
{
    const cz__window *window = work->group->window;
    const cz__lane *lane = &window->lanes[cz__run_of(work)->lane];
    for (int i = 0; i < CZ__LANE_ROUNDS * window->request_count; i++)
        if (cz__request_awaits(&lane->requests[i], r))
            return true;
    return false;
}

static bool awaits(const cz_work *work, int r)
{
    const cz__topology *topology = topology_of(work);
    const cz__window_run *run = cz__run_of(work);
    const bool is_here = topology->machine_of[r] == topology->here && r != work->group->rank;
    if (!run->taken)
        return is_here && !lets_take(work, r);
    if (awaits_message(work, r))
        return true;
    if (!is_here)
        return false;
    if ((wants_to_combine(work) && !lets_combine(work, r)) ||
        (wants_to_reduce(work) && !lets_reduce(work, r)) ||
        (!run->all_published && !lets_open(work, r)))
        return true;
    for (int of = 0; of < topology->size && run->copying; of++)
        if (run->peers[of].received.bytes > 0 && holder_of(work, of) == r && !lets_copy(work, of))
            return true;
    return false;
}

const cz__engine cz__engine_window = {.bytes = bytes,
                                      .offers = offers,
                                      .grant = cz__window_grant,
                                      .begin = cz__window_begin,
                                      .advance = advance,
                                      .withdraw = withdraw,
                                      .give_up = give_up,
                                      .awaits = awaits,
                                      .watch = cz__window_watch,
                                      .forget = cz__window_forget};
