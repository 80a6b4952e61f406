/* SPDX-License-Identifier: MIT */
/* The data of an operation between machines that have several ranks each, in rounds as in window_data.c. A rank
 * opens a round: it puts what others here need of its streams into slots, and posts what it is to receive. A
 * delegate adds up what this machine has for an owner elsewhere and sends it; an owner adds that to what is here and
 * sends the result once to each machine; there all copy it from the delegate's slot. Several rounds are under way. */
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "group/internal.h"

static cz__node *node_of(const cz_work *work)
{
    return work->group->window.node;
}

static const cz__machine *here(const cz_work *work)
{
    return &node_of(work)->machines[node_of(work)->here];
}

/* ---- flags, of the ranks here ---- */

static cz__lane_flags *flags_of(const cz_work *work, int rank)
{
    return cz__window_flags(work->group, work->window.lane, rank);
}

static cz__lane_flags *mine(const cz_work *work)
{
    return flags_of(work, work->group->rank);
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

static bool of_all(const cz_work *work, bool (*may)(const cz_work *, int))
{
    const cz__machine *machine = here(work);
    for (int i = 0; i < machine->rank_count; i++)
        if (!may(work, machine->ranks[i]))
            return false;
    return true;
}

/* Rank 0 cannot see whether the lane is free on other machines: those who use it next wait for that. */
static bool lets_take(const cz_work *work, int r)
{
    return atomic_load_explicit(&flags_of(work, r)->ended, memory_order_acquire) >=
           work->window.use - 1;
}

/* The slots of the round to be opened have been read by rank r. */
static bool lets_open(const cz_work *work, int r)
{
    const uint32_t round = work->window.published;
    if (round < CZ__LANE_ROUNDS)
        return true;
    return (!work->operation.reduces ||
            reached(work, &flags_of(work, r)->reduced, round - CZ__LANE_ROUNDS + 1)) &&
           (!work->operation.exchanges ||
            reached(work, &flags_of(work, r)->copied, round - CZ__LANE_ROUNDS + 1));
}

static bool lets_combine(const cz_work *work, int r)
{
    return reached(work, &flags_of(work, r)->published, cz__node_lane_of(work)->combined + 1);
}

/* Who has what rank r gives to all, and whether it is there. */
static int holder_of(const cz_work *work, int r)
{
    const int delegate = node_of(work)->delegate[r];
    return delegate < 0 ? r : delegate;
}

static bool lets_copy(const cz_work *work, int r)
{
    cz__lane_flags *its = flags_of(work, holder_of(work, r));
    return reached(work,
                   node_of(work)->delegate[r] >= 0 ? &its->landed
                   : work->operation.reduces       ? &its->reduced
                                                   : &its->published,
                   work->window.copied + 1);
}

/* ---- messages ---- */

/* Have messages [0, count) of a kind ended? */
static cz_status landed(cz_work *work, uint32_t round, cz__node_message message, int count,
                        bool *all)
{
    for (int i = 0; i < count && *all; i++)
        CZ_TRY(cz__flight_landed(work, cz__node_flight(work, round, message, i), all));
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

static cz_status open_round(cz_work *work, bool *moved)
{
    cz__window_run *run = &work->window;
    bool any = false, sent = true;
    if (!of_all(work, lets_open))
        return CZ_OK;
    CZ_TRY(sends_landed(work, run->published, &sent)); /* of the round that had its slots */
    if (!sent)
        return CZ_OK;
    *moved = true;
    CZ_TRY(cz__node_open(work, &any));
    run->all_published = !any;
    if (any)
        set(work, &mine(work)->published, ++run->published);
    return CZ_OK;
}

/* ---- reduce ---- */

static bool next_segment(const cz_work *work, const cz__region *region, cz__cursor *cursor,
                         cz__segment *segment)
{
    return cz__segment_next(region, cursor, work->window.segment_bytes, segment);
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
        CZ_TRY(cz__flight_send(
            work, cz__node_flight(work, lane->combined, CZ__NODE_SUMS_TO_OWNER, duty), owner,
            CZ__STEP_REDUCE, (void *)sums, cz__node_sums_bytes(work, here(work), bytes)));
    }
    lane->combined++;
    return CZ_OK;
}

static cz_status reduce(cz_work *work, bool *moved)
{
    cz__window_run *run = &work->window;
    cz__segment target;
    bool all = true;
    CZ_TRY(
        landed(work, run->reduced, CZ__NODE_SUMS_FROM_MACHINE, node_of(work)->machine_count, &all));
    if (!all)
        return CZ_OK;
    *moved = true;
    if (next_segment(work, &work->operation.target, &run->result, &target))
        CZ_TRY(cz__node_do_own(work, &target));
    set(work, &mine(work)->reduced, ++run->reduced);
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
            cz__node_count_handed_over(
                work, CZ__STEP_EXCHANGE,
                cz__node_leaf(work, lane->landed, node->duties[duty])->bytes);
    set(work, &mine(work)->landed, ++lane->landed);
    return CZ_OK;
}

static void cut_copies(cz_work *work)
{
    for (int r = 0; r < work->group->size; r++)
        (void)next_segment(work, cz__region_taken(&work->operation), &work->peers[r].in,
                           &work->parcels[r].received);
    work->window.copying = true;
}

static const char *result_of(const cz_work *work, int r)
{
    const cz__node *node = node_of(work);
    return cz__window_slot(work, holder_of(work, r), work->window.copied,
                           node->delegate[r] < 0 ? node->size
                                                 : cz__node_slot_of_result(node, node->duty[r]));
}

static cz_status keep_own(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    const cz__segment *to = &work->parcels[me].received;
    const char *from = cz__node_leaf(work, work->window.copied, me)->data;
    if (to->bytes == 0 || operation->reduces || operation->update ||
        cz__region_same_memory(&operation->source, &operation->target) ||
        (from && from == to->data))
        return CZ_OK;
    return cz__node_take(work, &operation->target, to, result_of(work, me));
}

/* From whoever has got there; ranks begin with different ones. */
static cz_status copy_round(cz_work *work, bool *moved)
{
    const int size = work->group->size, me = work->group->rank;
    bool all = true;
    if (!work->window.copying)
        cut_copies(work);
    for (int i = 1; i < size; i++) {
        const int r = (me + i) % size;
        cz__segment *segment = &work->parcels[r].received;
        if (segment->bytes > 0 && lets_copy(work, r)) {
            CZ_TRY(cz__node_take(work, cz__region_taken(&work->operation), segment,
                                 result_of(work, r)));
            segment->bytes = 0;
            *moved = true;
        }
        all &= segment->bytes == 0;
    }
    if (!all)
        return CZ_OK;
    *moved = true;
    CZ_TRY(keep_own(work));
    work->window.copying = false;
    set(work, &mine(work)->copied, ++work->window.copied);
    return CZ_OK;
}

/* ---- rounds ---- */

static bool wants_to_combine(const cz_work *work)
{
    return work->operation.reduces && cz__node_lane_of(work)->combined < work->window.published;
}

static bool wants_to_reduce(const cz_work *work)
{
    return work->operation.reduces && work->window.reduced < cz__node_lane_of(work)->combined;
}

static bool wants_to_land(const cz_work *work)
{
    return work->operation.exchanges && cz__node_lane_of(work)->landed < work->window.published;
}

static bool wants_to_copy(const cz_work *work)
{
    const cz__window_run *run = &work->window;
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
            cz__cursor_begin(cz__region_taken(&work->operation), r, &work->peers[r].out);
    work->window.taken = *moved = true;
}

/* What others wait for comes first. */
static cz_status step(cz_work *work, bool *moved)
{
    *moved = false;
    if (!work->window.taken)
        take_lane(work, moved);
    if (!work->window.taken)
        return CZ_OK;
    if (wants_to_combine(work))
        CZ_TRY(combine(work, moved));
    if (wants_to_reduce(work))
        CZ_TRY(reduce(work, moved));
    if (wants_to_land(work))
        CZ_TRY(land(work, moved));
    if (wants_to_copy(work))
        CZ_TRY(copy_round(work, moved));
    return work->window.all_published ? CZ_OK : open_round(work, moved);
}

static cz_status is_over(cz_work *work, bool *over)
{
    *over = work->window.all_published && !wants_to_combine(work) && !wants_to_reduce(work) &&
            !wants_to_land(work) && !wants_to_copy(work);
    return *over ? all_sends_landed(work, over) : CZ_OK;
}

static void finish(cz_work *work)
{
    work->window.taken = false;
    atomic_store_explicit(&mine(work)->ended, work->window.use, memory_order_release);
    work->phase = CZ__PHASE_CONTINUE;
}

bool cz__node_advance(cz_work *work)
{
    return cz__window_go(work, step, is_over, finish);
}

/* ---- when it does not end well ---- */

void cz__node_each_flight(cz_work *work, void (*visit)(cz_work *, cz__flight *, void *),
                          void *context)
{
    if (!work->window.taken)
        return;
    const int count = CZ__LANE_ROUNDS * node_of(work)->flight_count;
    for (int i = 0; i < count; i++)
        visit(work, &cz__node_lane_of(work)->flights[i], context);
}

void cz__node_stop(cz_work *work)
{
    if (work->window.taken && work->stuck)
        node_of(work)->stuck = true;
}

/* Operations before it still go on, and may need the lane, also if it had not come to take it. */
void cz__node_give_up(cz_work *work)
{
    const bool next = work->window.use && work->group->window.node && !work->window.taken &&
                      atomic_load(&mine(work)->ended) == work->window.use - 1;
    if ((work->window.taken || next) && !work->stuck)
        finish(work);
}

bool cz__node_awaits(const cz_work *work, int r)
{
    const cz__node *node = node_of(work);
    if (node->machine_of[r] != node->here)
        return false;
    if (!work->window.taken)
        return !lets_take(work, r);
    bool awaits = (wants_to_combine(work) && !lets_combine(work, r)) ||
                  (!work->window.all_published && !lets_open(work, r));
    for (int of = 0; of < node->size && work->window.copying && !awaits; of++)
        awaits = work->parcels[of].received.bytes > 0 && holder_of(work, of) == r &&
                 !lets_copy(work, of);
    return awaits;
}
