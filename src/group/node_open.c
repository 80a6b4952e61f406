/* SPDX-License-Identifier: MIT */
/* What begins a round between machines: segments are cut and put where others here find them, and what other
 * machines will send is awaited. */
#include "group/internal.h"

static const cz__machine *here(const cz_work *work)
{
    return &work->group->window.node->machines[work->group->window.node->here];
}

cz__node_lane *cz__node_lane_of(const cz_work *work)
{
    return &work->group->window.node->lanes[work->window.lane];
}

cz__leaf *cz__node_leaf(const cz_work *work, uint32_t round, int rank)
{
    const int size = work->group->size;
    return &cz__node_lane_of(work)->leaves[(int)(round % CZ__LANE_ROUNDS) * size + rank];
}

cz__flight *cz__node_flight(const cz_work *work, uint32_t round, cz__node_message message,
                            int number)
{
    const cz__node *node = work->group->window.node;
    const int begin[] = {0, node->duty_count, 2 * node->duty_count,
                         2 * node->duty_count + node->machine_count};
    return &cz__node_lane_of(work)->flights[(int)(round % CZ__LANE_ROUNDS) * node->flight_count +
                                            begin[message] + number];
}

/* What is for all, once to each other machine. */
cz_status cz__node_send_result(cz_work *work, uint32_t round, const char *data, size_t bytes)
{
    const cz__node *node = work->group->window.node;
    for (int i = 1; i < node->machine_count; i++) {
        const int m = (node->here + i) % node->machine_count;
        CZ_TRY(cz__flight_send(work, cz__node_flight(work, round, CZ__NODE_RESULT_TO_MACHINE, m),
                               cz__node_delegate(node, m, work->group->rank), CZ__STEP_EXCHANGE,
                               (void *)data, bytes));
    }
    return CZ_OK;
}

static cz_status receive_result(cz_work *work, uint32_t round, int owner, size_t bytes)
{
    const cz__node *node = work->group->window.node;
    const int duty = node->duty[owner];
    return cz__flight_receive(
        work, cz__node_flight(work, round, CZ__NODE_RESULT_FROM_OWNER, duty), owner,
        CZ__STEP_EXCHANGE,
        cz__window_slot(work, work->group->rank, round, cz__node_slot_of_result(node, duty)),
        bytes);
}

static cz_status receive_sums(cz_work *work, uint32_t round, size_t segment_bytes)
{
    const cz__node *node = work->group->window.node;
    const int me = work->group->rank;
    for (int m = 0; m < node->machine_count; m++) {
        const cz__machine *machine = &node->machines[m];
        if (m != node->here)
            CZ_TRY(cz__flight_receive(work,
                                      cz__node_flight(work, round, CZ__NODE_SUMS_FROM_MACHINE, m),
                                      cz__node_delegate(node, m, me), CZ__STEP_REDUCE,
                                      cz__window_slot(work, me, round, machine->at),
                                      cz__node_sums_bytes(work, machine, segment_bytes)));
    }
    return CZ_OK;
}

/* To the other ranks of this machine. */
void cz__node_count_handed_over(const cz_work *work, unsigned step, size_t bytes)
{
    for (int i = 1; i < here(work)->rank_count; i++)
        cz__traffic_sent(work->group, step, bytes);
}

/* ---- open ---- */

static bool next_segment(const cz_work *work, const cz__region *region, cz__cursor *cursor,
                         cz__segment *segment)
{
    return cz__segment_next(region, cursor, work->window.segment_bytes, segment);
}

cz_status cz__node_put(const cz_work *work, const cz__region *region, const cz__segment *segment,
                       char *slot)
{
    const cz_device *device = work->group->device;
    if (segment->data)
        return device->copy(NULL, slot, segment->data, segment->bytes);
    cz__segment_pack(region, segment, device, slot);
    return CZ_OK;
}

/* This rank's part of one stream: what it uses itself can stay where it is. */
static cz_status open_leaf(cz_work *work, int r, const cz__segment *segment)
{
    const uint32_t round = work->window.published;
    const int me = work->group->rank;
    const bool to_use = r == me || work->group->window.node->delegate[r] == me;
    char *slot = cz__window_slot(work, me, round, r);
    cz__leaf *leaf = cz__node_leaf(work, round, r);
    *leaf = (cz__leaf){segment->bytes, to_use && segment->data ? segment->data : slot};
    if (leaf->data == slot)
        CZ_TRY(cz__node_put(work, &work->operation.source, segment, slot));
    if (!to_use)
        cz__traffic_sent(work->group, CZ__STEP_REDUCE, segment->bytes);
    if (r == me)
        return receive_sums(work, round, segment->bytes);
    return work->operation.exchanges && work->group->window.node->delegate[r] == me
               ? receive_result(work, round, r, segment->bytes)
               : CZ_OK;
}

static cz_status open_leaves(cz_work *work, bool *any)
{
    for (int r = 0; r < work->group->size; r++) {
        cz__segment segment;
        *cz__node_leaf(work, work->window.published, r) = (cz__leaf){0};
        if (!next_segment(work, &work->operation.source, &work->peers[r].out, &segment))
            continue;
        *any = true;
        CZ_TRY(open_leaf(work, r, &segment));
    }
    return CZ_OK;
}

/* What this rank has for all, or makes of it now. */
static cz_status open_own(cz_work *work, const cz__segment *segment)
{
    const uint32_t round = work->window.published;
    char *slot = cz__window_slot(work, work->group->rank, round, work->group->size);
    if (work->operation.update)
        cz__update_segment(&work->operation, segment, NULL);
    CZ_TRY(cz__node_put(work, cz__region_given(&work->operation), segment, slot));
    cz__node_count_handed_over(work, CZ__STEP_EXCHANGE, segment->bytes);
    return cz__node_send_result(work, round, slot, segment->bytes);
}

/* A gather: all streams, so that all ranks have as many rounds. */
static cz_status open_gather(cz_work *work, bool *any)
{
    const int me = work->group->rank;
    for (int r = 0; r < work->group->size; r++) {
        cz__segment segment;
        const cz__region *region =
            r == me ? cz__region_given(&work->operation) : cz__region_taken(&work->operation);
        const bool some = next_segment(work, region, &work->peers[r].out, &segment);
        *cz__node_leaf(work, work->window.published, r) = (cz__leaf){segment.bytes, segment.data};
        *any |= some;
        if (some && r == me)
            CZ_TRY(open_own(work, &segment));
        else if (some && work->group->window.node->delegate[r] == me)
            CZ_TRY(receive_result(work, work->window.published, r, segment.bytes));
    }
    return CZ_OK;
}

cz_status cz__node_open(cz_work *work, bool *any)
{
    *any = false;
    return work->operation.reduces ? open_leaves(work, any) : open_gather(work, any);
}
