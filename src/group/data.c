/* SPDX-License-Identifier: MIT */
/* The data of an operation, in rounds of one segment per stream. Reduce: every rank sends each owner its
 * segment of the owner's stream, and the owner reduces what it got, in rank order. Gather: every rank
 * sends the others the segment of its own stream. */
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "group/internal.h"

enum { STEP_REDUCE = 3, STEP_GATHER = 4 };

/* Staging slots, one segment each: [0, size) for packing what is sent to a rank (to all: that of this
 * rank), [size, 2 size) for what comes from a rank, and one for a packed result. */
size_t cz__data_staging_bytes(const cz_work *work)
{
    return (2 * (size_t)work->group->size + 1) * work->segment_bytes;
}

static char *slot(const cz_work *work, int index)
{
    return work->staging->data + (size_t)index * work->segment_bytes;
}

/* The segment as one piece: in place, or packed into a slot. */
static void *packed(cz_work *work, const cz__region *region, const cz__segment *segment, int index)
{
    if (segment->data)
        return segment->data;
    cz__segment_pack(region, segment, work->group->device, slot(work, index));
    return slot(work, index);
}

static void begin_cursors(cz_work *work, const cz__region *region)
{
    for (int r = 0; r < work->group->size; r++)
        cz__cursor_begin(region, r, &work->peers[r].cursor);
    cz__cursor_begin(&work->operation.target, work->group->rank, &work->target_cursor);
}

static cz_status landed(cz_work *work, bool *all)
{
    *all = true;
    for (int r = 0; r < work->group->size && *all; r++) {
        CZ_TRY(cz__flight_landed(work, &work->peers[r].send, all));
        if (*all)
            CZ_TRY(cz__flight_landed(work, &work->peers[r].receive, all));
    }
    return CZ_OK;
}

static cz_status open_reduce(cz_work *work, bool *any)
{
    const int size = work->group->size, me = work->group->rank;
    const cz__region *source = &work->operation.source;
    *any = false;
    for (int r = 0; r < size; r++) {
        cz__peer *peer = &work->peers[r];
        if (!cz__segment_next(source, &peer->cursor, work->segment_bytes, &peer->segment))
            continue;
        *any = true;
        if (r != me)
            CZ_TRY(cz__flight_send(work, &peer->send, r, STEP_REDUCE,
                                   packed(work, source, &peer->segment, r), peer->segment.bytes));
    }
    const size_t bytes = work->peers[me].segment.bytes;
    cz__segment_next(&work->operation.target, &work->target_cursor, work->segment_bytes,
                     &work->target_segment);
    for (int r = 0; r < size && bytes > 0; r++)
        if (r != me)
            CZ_TRY(cz__flight_receive(work, &work->peers[r].receive, r, STEP_REDUCE,
                                      slot(work, size + r), bytes));
    return CZ_OK;
}

static cz_status close_reduce(cz_work *work)
{
    const int size = work->group->size, me = work->group->rank;
    const cz__operation *operation = &work->operation;
    const cz__segment *own = &work->peers[me].segment;
    if (own->bytes == 0)
        return CZ_OK;
    for (int r = 0; r < size; r++)
        work->sources[r] =
            r == me ? packed(work, &operation->source, own, me) : (void *)slot(work, size + r);
    char *result = work->target_segment.data ? work->target_segment.data : slot(work, 2 * size);
    CZ_TRY(work->group->device->reduce(
        NULL, (cz_dtype)operation->header.dtype, (cz_reduction)operation->header.reduction, size,
        work->sources, (int64_t)(own->bytes / operation->source.element_size), result));
    if (!work->target_segment.data)
        cz__segment_unpack(&operation->target, &work->target_segment, work->group->device, result);
    return CZ_OK;
}

/* Put this rank's stream where the gathered result belongs, if it is elsewhere. */
static void place_own(cz_work *work)
{
    cz__region *target = &work->operation.target;
    cz__cursor cursor;
    cz__segment segment;
    if (!target->own)
        return;
    cz__cursor_begin(target, work->group->rank, &cursor);
    char *own = target->own;
    target->own = NULL;
    if (cz__segment_next(target, &cursor, SIZE_MAX, &segment) && segment.data != own)
        (void)work->group->device->copy(NULL, segment.data, own, segment.bytes);
}

static cz_status open_gather(cz_work *work, bool *any)
{
    const int size = work->group->size, me = work->group->rank;
    const cz__region *target = &work->operation.target;
    *any = false;
    for (int r = 0; r < size; r++) {
        cz__peer *peer = &work->peers[r];
        if (!cz__segment_next(target, &peer->cursor, work->segment_bytes, &peer->segment))
            continue;
        *any = true;
        if (r != me)
            CZ_TRY(
                cz__flight_receive(work, &peer->receive, r, STEP_GATHER,
                                   peer->segment.data ? peer->segment.data : slot(work, size + r),
                                   peer->segment.bytes));
    }
    const cz__segment *own = &work->peers[me].segment;
    void *data = own->bytes > 0 ? packed(work, target, own, me) : NULL;
    for (int r = 0; r < size && data; r++)
        if (r != me)
            CZ_TRY(cz__flight_send(work, &work->peers[r].send, r, STEP_GATHER, data, own->bytes));
    return CZ_OK;
}

static cz_status close_gather(cz_work *work)
{
    const int size = work->group->size;
    for (int r = 0; r < size; r++) {
        const cz__segment *segment = &work->peers[r].segment;
        if (r != work->group->rank && segment->bytes > 0 && !segment->data)
            cz__segment_unpack(&work->operation.target, segment, work->group->device,
                               slot(work, size + r));
    }
    return CZ_OK;
}

/* Rounds until the streams end; *moved says whether anything happened, *over whether they did. */
static cz_status rounds(cz_work *work, cz_status (*open)(cz_work *, bool *),
                        cz_status (*close)(cz_work *), bool *moved, bool *over)
{
    *moved = *over = false;
    for (;;) {
        bool all;
        if (!work->round_open) {
            CZ_TRY(open(work, &all));
            *moved = true;
            *over = !all;
            if (*over)
                return CZ_OK;
            work->round_open = true;
        }
        CZ_TRY(landed(work, &all));
        if (!all)
            return CZ_OK;
        CZ_TRY(close(work));
        work->round_open = false;
        work->since = cz__seconds(); /* a long transfer is no late one */
    }
}

static bool advance(cz_work *work, cz_status (*open)(cz_work *, bool *),
                    cz_status (*close)(cz_work *), cz__phase next)
{
    bool moved, over;
    const cz_status status = rounds(work, open, close, &moved, &over);
    if (status != CZ_OK) {
        cz__operation_fail(work, status, cz_last_error());
        return true;
    }
    if (over) {
        work->phase = next;
        work->phase_entered = false;
    }
    return moved;
}

bool cz__reduce_advance(cz_work *work)
{
    if (!work->phase_entered) {
        work->phase_entered = true;
        begin_cursors(work, &work->operation.source);
    }
    return advance(work, open_reduce, close_reduce, CZ__PHASE_GATHER);
}

bool cz__gather_advance(cz_work *work)
{
    if (!work->phase_entered) {
        work->phase_entered = true;
        place_own(work);
        begin_cursors(work, &work->operation.target);
    }
    return advance(work, open_gather, close_gather, CZ__PHASE_CONTINUE);
}
