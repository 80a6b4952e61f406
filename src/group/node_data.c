/* SPDX-License-Identifier: MIT */
/* Data between machines that have several ranks each, in rounds as in window_data.c. A rank opens a
 * round: it puts what others here need of its streams into slots, and posts what it is to receive.
 * A leader adds up what this machine has for an owner elsewhere and sends it; an owner adds that to
 * what is here and sends the result once to each machine; there all copy it from the leader's slot.
 * Several rounds are under way. */
#include "base/status.h"
#include "group/node.h"

static cz__node *node_of(const cz_work *work)
{
    return work->group->window->node;
}

static const cz__machine *here(const cz_work *work)
{
    return &node_of(work)->machines[node_of(work)->here];
}

/* ---- flags, of the ranks here ---- */

static cz__lane_flags *mine(const cz_work *work)
{
    return cz__window_flags(work, work->group->rank);
}

static bool of_all(const cz_work *work, bool (*may)(const cz_work *, int))
{
    const cz__machine *machine = here(work);
    for (int i = 0; i < machine->rank_count; i++)
        if (!may(work, machine->ranks[i]))
            return false;
    return true;
}

/* Rank 0 cannot see whether the lane is free on other machines: those who use it next wait for
 * that. */
static bool lets_take(const cz_work *work, int r)
{
    return atomic_load_explicit(&cz__window_flags(work, r)->ended, memory_order_acquire) >=
           cz__run_of(work)->use - 1;
}

/* The slots of the round to be opened have been read by rank r. */
static bool lets_open(const cz_work *work, int r)
{
    const uint32_t round = cz__run_of(work)->published;
    if (round < CZ__LANE_ROUNDS)
        return true;
    return (!work->operation.reduces ||
            cz__window_reached(work, &cz__window_flags(work, r)->reduced,
                               round - CZ__LANE_ROUNDS + 1)) &&
           (!work->operation.exchanges ||
            cz__window_reached(work, &cz__window_flags(work, r)->copied,
                               round - CZ__LANE_ROUNDS + 1));
}

static bool lets_combine(const cz_work *work, int r)
{
    return cz__window_reached(work, &cz__window_flags(work, r)->published,
                              cz__node_lane_of(work)->combined + 1);
}

/* Who has what rank r gives to all, and whether it is there. */
static int holder_of(const cz_work *work, int r)
{
    const int leader = node_of(work)->leader[r];
    return leader < 0 ? r : leader;
}

static bool lets_copy(const cz_work *work, int r)
{
    cz__lane_flags *its = cz__window_flags(work, holder_of(work, r));
    _Atomic uint64_t *flag = work->operation.reduces ? &its->reduced : &its->published;
    if (node_of(work)->leader[r] >= 0)
        flag = &its->landed;
    return cz__window_reached(work, flag, cz__run_of(work)->copied + 1);
}

/* ---- messages ---- */

/* Have messages [0, count) of a kind ended? */
static cz_status landed(cz_work *work, uint32_t round, cz__node_message message, int count,
                        bool *all)
{
    for (int i = 0; i < count && *all; i++)
        CZ_TRY(cz__request_landed(work, cz__node_request(work, round, message, i), all));
    return CZ_OK;
}

/* Those that this rank sent in a round. */
static cz_status sends_landed(cz_work *work, uint32_t round, bool *all)
{
    CZ_TRY(landed(work, round, CZ__NODE_SUMS_TO_OWNER, node_of(work)->duty_count, all));
    return landed(work, round, CZ__NODE_RESULT_TO_MACHINE, node_of(work)->machine_count, all);
}

static cz_status all_sends_landed(cz_work *work, bool *all)
{
    *all = true;
    for (uint32_t round = 0; round < CZ__LANE_ROUNDS && *all; round++)
        CZ_TRY(sends_landed(work, round, all));
    return CZ_OK;
}

/* ---- open ---- */

/* What is for all, once to each other machine. */
static cz_status send_result(cz_work *work, uint32_t round, const char *data, size_t bytes)
{
    const cz__node *node = node_of(work);
    for (int i = 1; i < node->machine_count; i++) {
        const int m = (node->here + i) % node->machine_count;
        CZ_TRY(cz__request_send(work, cz__node_request(work, round, CZ__NODE_RESULT_TO_MACHINE, m),
                                cz__node_leader(node, m, work->group->rank), CZ__STEP_EXCHANGE,
                                (void *)data, bytes));
    }
    return CZ_OK;
}

static cz_status receive_result(cz_work *work, uint32_t round, int owner, size_t bytes)
{
    const cz__node *node = node_of(work);
    const int duty = node->duty[owner];
    return cz__request_receive(
        work, cz__node_request(work, round, CZ__NODE_RESULT_FROM_OWNER, duty), owner,
        CZ__STEP_EXCHANGE,
        cz__window_slot(work, work->group->rank, round, cz__node_slot_of_result(node, duty)),
        bytes);
}

static cz_status receive_sums(cz_work *work, uint32_t round, size_t segment_bytes)
{
    const cz__node *node = node_of(work);
    const int me = work->group->rank;
    for (int m = 0; m < node->machine_count; m++) {
        const cz__machine *machine = &node->machines[m];
        if (m != node->here)
            CZ_TRY(cz__request_receive(work,
                                       cz__node_request(work, round, CZ__NODE_SUMS_FROM_MACHINE, m),
                                       cz__node_leader(node, m, me), CZ__STEP_REDUCE,
                                       cz__window_slot(work, me, round, machine->at),
                                       cz__node_sums_bytes(work, machine, segment_bytes)));
    }
    return CZ_OK;
}

/* To the other ranks of this machine. */
static void count_handed_over(const cz_work *work, unsigned step, size_t bytes)
{
    for (int i = 1; i < here(work)->rank_count; i++)
        cz__traffic_sent(work->group, step, bytes);
}

static cz_status put(const cz_work *work, const cz__region *region, const cz__chunk *chunk,
                     char *slot)
{
    const cz_device *device = work->group->device;
    if (chunk->data)
        return device->copy(NULL, slot, chunk->data, chunk->bytes);
    cz__chunk_pack(region, chunk, device, slot);
    return CZ_OK;
}

/* This rank's part of one stream: what it uses itself can stay where it is. */
static cz_status open_leaf(cz_work *work, int r, const cz__chunk *chunk)
{
    const uint32_t round = cz__run_of(work)->published;
    const int me = work->group->rank;
    const bool to_use = r == me || node_of(work)->leader[r] == me;
    char *slot = cz__window_slot(work, me, round, r);
    cz__leaf *leaf = cz__node_leaf(work, round, r);
    *leaf = (cz__leaf){chunk->bytes, to_use && chunk->data ? chunk->data : slot};
    if (leaf->data == slot)
        CZ_TRY(put(work, &work->operation.source, chunk, slot));
    if (!to_use)
        cz__traffic_sent(work->group, CZ__STEP_REDUCE, chunk->bytes);
    if (r == me)
        return receive_sums(work, round, chunk->bytes);
    return work->operation.exchanges && node_of(work)->leader[r] == me
               ? receive_result(work, round, r, chunk->bytes)
               : CZ_OK;
}

static cz_status open_leaves(cz_work *work, bool *any)
{
    for (int r = 0; r < work->group->size; r++) {
        cz__chunk chunk;
        *cz__node_leaf(work, cz__run_of(work)->published, r) = (cz__leaf){0};
        if (!cz__window_next(work, &work->operation.source, &cz__run_of(work)->peers[r].out,
                             &chunk))
            continue;
        *any = true;
        CZ_TRY(open_leaf(work, r, &chunk));
    }
    return CZ_OK;
}

/* What this rank has for all, or makes of it now. */
static cz_status open_own(cz_work *work, const cz__chunk *chunk)
{
    const uint32_t round = cz__run_of(work)->published;
    char *slot = cz__window_slot(work, work->group->rank, round, work->group->size);
    if (work->operation.update)
        cz__update_chunk(&work->operation, chunk, NULL);
    CZ_TRY(put(work, cz__region_given(&work->operation), chunk, slot));
    count_handed_over(work, CZ__STEP_EXCHANGE, chunk->bytes);
    return send_result(work, round, slot, chunk->bytes);
}

/* A gather: all streams, so that all ranks have as many rounds. */
static cz_status open_gather(cz_work *work, bool *any)
{
    const int me = work->group->rank;
    for (int r = 0; r < work->group->size; r++) {
        cz__chunk chunk;
        const cz__region *region =
            r == me ? cz__region_given(&work->operation) : cz__region_taken(&work->operation);
        const bool some = cz__window_next(work, region, &cz__run_of(work)->peers[r].out, &chunk);
        *cz__node_leaf(work, cz__run_of(work)->published, r) = (cz__leaf){chunk.bytes, chunk.data};
        *any |= some;
        if (some && r == me)
            CZ_TRY(open_own(work, &chunk));
        else if (some && node_of(work)->leader[r] == me)
            CZ_TRY(receive_result(work, cz__run_of(work)->published, r, chunk.bytes));
    }
    return CZ_OK;
}

static cz_status open_streams(cz_work *work, bool *any)
{
    *any = false;
    return work->operation.reduces ? open_leaves(work, any) : open_gather(work, any);
}

static cz_status open_round(cz_work *work, bool *moved)
{
    cz__window_run *run = cz__run_of(work);
    bool any = false, sent = true;
    if (!of_all(work, lets_open))
        return CZ_OK;
    CZ_TRY(sends_landed(work, run->published, &sent)); /* of the round that had its slots */
    if (!sent)
        return CZ_OK;
    *moved = true;
    CZ_TRY(open_streams(work, &any));
    run->all_published = !any;
    if (any)
        cz__window_set(work, &mine(work)->published, ++run->published);
    return CZ_OK;
}

/* ---- reduce ---- */

static cz_status take(const cz_work *work, const cz__region *region, const cz__chunk *chunk,
                      const char *from)
{
    if (chunk->data)
        return work->group->device->copy(NULL, chunk->data, from, chunk->bytes);
    cz__chunk_unpack(region, chunk, work->group->device, from);
    return CZ_OK;
}

/* What is reduced is in the target, and in the slot, too, if others want it. */
static cz_status reduce_own(cz_work *work, const cz__chunk *target, char *slot)
{
    char *result = work->operation.exchanges || !target->data ? slot : target->data;
    CZ_TRY(cz__node_reduce(work, cz__run_of(work)->reduced, result));
    return result == slot ? take(work, &work->operation.target, target, slot) : CZ_OK;
}

/* The same, and what it makes of the values is in the slot. */
static cz_status step_own(cz_work *work, const cz__chunk *target, char *slot)
{
    const cz__operation *operation = &work->operation;
    char *gradient = target->data ? target->data : slot;
    cz__cursor at = target->begin;
    cz__chunk values;
    CZ_TRY(cz__node_reduce(work, cz__run_of(work)->reduced, gradient));
    if (gradient == slot)
        cz__chunk_unpack(&operation->target, target, work->group->device, slot);
    cz__update_chunk(operation, target, gradient);
    if (!operation->exchanges)
        return CZ_OK;
    (void)cz__window_next(work, &operation->values, &at, &values);
    return put(work, &operation->values, &values, slot);
}

static cz_status do_own(cz_work *work, const cz__chunk *target)
{
    const uint32_t round = cz__run_of(work)->reduced;
    char *slot = cz__window_slot(work, work->group->rank, round, work->group->size);
    CZ_TRY(work->operation.update ? step_own(work, target, slot) : reduce_own(work, target, slot));
    if (!work->operation.exchanges)
        return CZ_OK;
    count_handed_over(work, CZ__STEP_EXCHANGE, target->bytes);
    return send_result(work, round, slot, target->bytes);
}

static cz_status combine(cz_work *work, bool *moved)
{
    const cz__node *node = node_of(work);
    cz__node_lane *lane = cz__node_lane_of(work);
    if (!of_all(work, lets_combine))
        return CZ_OK;
    *moved = true;
    for (int duty = 0; duty < node->duty_count; duty++) {
        const int owner = node->duties[duty];
        const size_t bytes = cz__node_leaf(work, lane->combined, owner)->bytes;
        const char *sums;
        if (bytes == 0)
            continue;
        CZ_TRY(cz__node_add_up(work, lane->combined, duty, &sums));
        CZ_TRY(cz__request_send(
            work, cz__node_request(work, lane->combined, CZ__NODE_SUMS_TO_OWNER, duty), owner,
            CZ__STEP_REDUCE, (void *)sums, cz__node_sums_bytes(work, here(work), bytes)));
    }
    lane->combined++;
    return CZ_OK;
}

static cz_status reduce(cz_work *work, bool *moved)
{
    cz__window_run *run = cz__run_of(work);
    cz__chunk target;
    bool all = true;
    CZ_TRY(
        landed(work, run->reduced, CZ__NODE_SUMS_FROM_MACHINE, node_of(work)->machine_count, &all));
    if (!all)
        return CZ_OK;
    *moved = true;
    if (cz__window_next(work, &work->operation.target, &run->result, &target))
        CZ_TRY(do_own(work, &target));
    cz__window_set(work, &mine(work)->reduced, ++run->reduced);
    return CZ_OK;
}

/* ---- exchange ---- */

/* What other machines sent for all ranks here. */
static cz_status land(cz_work *work, bool *moved)
{
    const cz__node *node = node_of(work);
    cz__node_lane *lane = cz__node_lane_of(work);
    bool all = true;
    CZ_TRY(landed(work, lane->landed, CZ__NODE_RESULT_FROM_OWNER, node->duty_count, &all));
    if (all && work->operation.reduces) /* what is copied may go where these are sent from */
        CZ_TRY(landed(work, lane->landed, CZ__NODE_SUMS_TO_OWNER, node->duty_count, &all));
    if (!all)
        return CZ_OK;
    *moved = true;
    for (int duty = 0; duty < node->duty_count; duty++)
        if (cz__node_leaf(work, lane->landed, node->duties[duty])->bytes > 0)
            count_handed_over(work, CZ__STEP_EXCHANGE,
                              cz__node_leaf(work, lane->landed, node->duties[duty])->bytes);
    cz__window_set(work, &mine(work)->landed, ++lane->landed);
    return CZ_OK;
}

static void cut_copies(cz_work *work)
{
    for (int r = 0; r < work->group->size; r++)
        (void)cz__window_next(work, cz__region_taken(&work->operation),
                              &cz__run_of(work)->peers[r].in, &cz__run_of(work)->peers[r].received);
    cz__run_of(work)->copying = true;
}

static const char *result_of(const cz_work *work, int r)
{
    const cz__node *node = node_of(work);
    return cz__window_slot(work, holder_of(work, r), cz__run_of(work)->copied,
                           node->leader[r] < 0 ? node->size
                                               : cz__node_slot_of_result(node, node->duty[r]));
}

static cz_status keep_own(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    const cz__chunk *to = &cz__run_of(work)->peers[me].received;
    const char *from = cz__node_leaf(work, cz__run_of(work)->copied, me)->data;
    if (to->bytes == 0 || operation->reduces || operation->update ||
        cz__region_same_memory(&operation->source, &operation->target) ||
        (from && from == to->data))
        return CZ_OK;
    return take(work, &operation->target, to, result_of(work, me));
}

/* From whoever has got there; ranks begin with different ones. */
static cz_status copy_round(cz_work *work, bool *moved)
{
    const int size = work->group->size, me = work->group->rank;
    bool all = true;
    if (!cz__run_of(work)->copying)
        cut_copies(work);
    for (int i = 1; i < size; i++) {
        const int r = (me + i) % size;
        cz__chunk *chunk = &cz__run_of(work)->peers[r].received;
        if (chunk->bytes > 0 && lets_copy(work, r)) {
            CZ_TRY(take(work, cz__region_taken(&work->operation), chunk, result_of(work, r)));
            chunk->bytes = 0;
            *moved = true;
        }
        all &= chunk->bytes == 0;
    }
    if (!all)
        return CZ_OK;
    *moved = true;
    CZ_TRY(keep_own(work));
    cz__run_of(work)->copying = false;
    cz__window_set(work, &mine(work)->copied, ++cz__run_of(work)->copied);
    return CZ_OK;
}

/* ---- rounds ---- */

static bool wants_to_combine(const cz_work *work)
{
    return work->operation.reduces &&
           cz__node_lane_of(work)->combined < cz__run_of(work)->published;
}

static bool wants_to_reduce(const cz_work *work)
{
    return work->operation.reduces && cz__run_of(work)->reduced < cz__node_lane_of(work)->combined;
}

static bool wants_to_land(const cz_work *work)
{
    return work->operation.exchanges &&
           cz__node_lane_of(work)->landed < cz__run_of(work)->published;
}

static bool wants_to_copy(const cz_work *work)
{
    const cz__window_run *run = cz__run_of(work);
    return work->operation.exchanges &&
           run->copied < (work->operation.reduces ? run->reduced : run->published);
}

static void take_lane(cz_work *work, bool *moved)
{
    cz__node_lane *lane = cz__node_lane_of(work);
    if (!of_all(work, lets_take))
        return;
    lane->combined = lane->landed = 0;
    for (int r = 0; r < work->group->size && !work->operation.reduces; r++)
        if (r != work->group->rank)
            cz__cursor_begin(cz__region_taken(&work->operation), r,
                             &cz__run_of(work)->peers[r].out);
    cz__run_of(work)->taken = *moved = true;
}

/* What others wait for comes first. */
static cz_status step(cz_work *work, bool *moved)
{
    *moved = false;
    if (!cz__run_of(work)->taken)
        take_lane(work, moved);
    if (!cz__run_of(work)->taken)
        return CZ_OK;
    if (wants_to_combine(work))
        CZ_TRY(combine(work, moved));
    if (wants_to_reduce(work))
        CZ_TRY(reduce(work, moved));
    if (wants_to_land(work))
        CZ_TRY(land(work, moved));
    if (wants_to_copy(work))
        CZ_TRY(copy_round(work, moved));
    return cz__run_of(work)->all_published ? CZ_OK : open_round(work, moved);
}

static cz_status is_over(cz_work *work, bool *over)
{
    *over = cz__run_of(work)->all_published && !wants_to_combine(work) && !wants_to_reduce(work) &&
            !wants_to_land(work) && !wants_to_copy(work);
    return *over ? all_sends_landed(work, over) : CZ_OK;
}

static void finish(cz_work *work)
{
    cz__run_of(work)->taken = false;
    atomic_store_explicit(&mine(work)->ended, cz__run_of(work)->use, memory_order_release);
}

/* ---- the engine ---- */

static bool offers(cz_work *work)
{
    return cz__window_is_there(work->group) && work->group->window->node;
}

static cz_status advance(cz_work *work, cz__progress *progress)
{
    return cz__window_go(work, step, is_over, finish, progress);
}

static void withdraw(cz_work *work)
{
    if (!cz__run_of(work)->taken)
        return;
    const int count = CZ__LANE_ROUNDS * node_of(work)->request_count;
    for (int i = 0; i < count; i++)
        cz__request_withdraw(work, &cz__node_lane_of(work)->requests[i]);
    if (work->stuck)
        node_of(work)->stuck = true;
}

/* Operations before it still go on, and may need the lane, also if it had not come to take it. */
static void give_up(cz_work *work)
{
    const cz__window_run *run = cz__run_of(work);
    const bool next = !run->taken && atomic_load(&mine(work)->ended) == run->use - 1;
    if ((run->taken || next) && !work->stuck)
        finish(work);
}

static bool awaits_request(const cz_work *work, int r)
{
    const int count = CZ__LANE_ROUNDS * node_of(work)->request_count;
    for (int i = 0; i < count; i++)
        if (cz__request_awaits(&cz__node_lane_of(work)->requests[i], r))
            return true;
    return false;
}

static bool awaits(const cz_work *work, int r)
{
    const cz__node *node = node_of(work);
    const cz__window_run *run = cz__run_of(work);
    const bool here = node->machine_of[r] == node->here && r != work->group->rank;
    if (!run->taken)
        return here && !lets_take(work, r);
    if (awaits_request(work, r))
        return true;
    if (!here)
        return false;
    bool any = (wants_to_combine(work) && !lets_combine(work, r)) ||
               (!run->all_published && !lets_open(work, r));
    for (int of = 0; of < node->size && run->copying && !any; of++)
        any = run->peers[of].received.bytes > 0 && holder_of(work, of) == r && !lets_copy(work, of);
    return any;
}

const cz__engine cz__engine_node = {.bytes = cz__window_bytes,
                                    .offers = offers,
                                    .grant = cz__window_grant,
                                    .begin = cz__window_begin,
                                    .advance = advance,
                                    .withdraw = withdraw,
                                    .give_up = give_up,
                                    .awaits = awaits,
                                    .watch = cz__window_watch};
