/* SPDX-License-Identifier: MIT */
/* The data of an operation, in rounds of one segment per stream. Reduce: every rank sends each owner its
 * segment of the owner's stream, and the owner reduces what it got, in rank order. Exchange: every rank
 * sends each other rank a segment of what is for it, or of one stream that is for all. In a step the owner updates
 * values segment by segment, as it has reduced them or as they go to others, and the exchange is of values. */
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "group/internal.h"

size_t cz__segment_bytes(const cz_group *group, size_t longest)
{
    return cz__segment_of(group->segment_bytes, longest);
}

size_t cz__staging_bytes(const cz_group *group, size_t longest)
{
    return group->meetings ? 0 : cz__staging_of(group->size, group->segment_bytes, longest);
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

static bool next_segment(const cz_work *work, const cz__region *region, cz__cursor *cursor,
                         cz__segment *segment)
{
    return cz__segment_next(region, cursor, work->segment_bytes, segment);
}

static cz_status send(cz_work *work, unsigned step, int rank, void *data, size_t bytes)
{
    return rank == work->group->rank
               ? CZ_OK
               : cz__flight_send(work, &work->peers[rank].send, rank, step, data, bytes);
}

static cz_status receive(cz_work *work, unsigned step, int rank, void *data, size_t bytes)
{
    return rank == work->group->rank
               ? CZ_OK
               : cz__flight_receive(work, &work->peers[rank].receive, rank, step, data, bytes);
}

const cz__region *cz__region_given(const cz__operation *operation)
{
    return operation->update ? &operation->values : &operation->source;
}

const cz__region *cz__region_taken(const cz__operation *operation)
{
    return operation->update ? &operation->values : &operation->target;
}

void cz__update_segment(const cz__operation *operation, const cz__segment *segment,
                        const char *gradient)
{
    const int64_t element = (int64_t)operation->target.element_size;
    cz__cursor cursor = segment->begin;
    cz__run run;
    for (size_t done = 0; done < segment->bytes; done += run.bytes) {
        (void)cz__run_next(&operation->target, &cursor, segment->bytes - done, &run);
        operation->update(operation->update_context, run.param, (int64_t)run.offset / element,
                          (int64_t)run.bytes / element,
                          gradient ? gradient + done
                                   : cz__run_address(&operation->target, cursor.rank, &run));
    }
}

/* ---- reduce: `in` of this rank's own entry is where its results go ---- */

static void begin_reduce(cz_work *work)
{
    const int me = work->group->rank;
    for (int r = 0; r < work->group->size; r++)
        cz__cursor_begin(&work->operation.source, r, &work->peers[r].out);
    cz__cursor_begin(&work->operation.target, me, &work->peers[me].in);
}

static cz_status open_reduce(cz_work *work, bool *any)
{
    const int size = work->group->size;
    const cz__region *source = &work->operation.source;
    cz__peer *own = &work->peers[work->group->rank];
    *any = false;
    for (int r = 0; r < size; r++) {
        cz__peer *peer = &work->peers[r];
        if (!next_segment(work, source, &peer->out, &peer->sent))
            continue;
        *any = true;
        if (peer != own)
            CZ_TRY(send(work, CZ__STEP_REDUCE, r, packed(work, source, &peer->sent, r),
                        peer->sent.bytes));
    }
    next_segment(work, &work->operation.target, &own->in, &own->received);
    for (int r = 0; r < size && own->sent.bytes > 0; r++)
        CZ_TRY(receive(work, CZ__STEP_REDUCE, r, slot(work, size + r), own->sent.bytes));
    return CZ_OK;
}

static cz_status close_reduce(cz_work *work)
{
    const int size = work->group->size, me = work->group->rank;
    const cz__operation *operation = &work->operation;
    const cz__segment *own = &work->peers[me].sent, *target = &work->peers[me].received;
    if (own->bytes == 0)
        return CZ_OK;
    for (int r = 0; r < size; r++)
        work->sources[r] =
            r == me ? packed(work, &operation->source, own, me) : (void *)slot(work, size + r);
    char *result = target->data ? target->data : slot(work, 2 * size);
    CZ_TRY(work->group->device->reduce(
        NULL, (cz_dtype)operation->header.dtype, (cz_reduction)operation->header.reduction, size,
        work->sources, (int64_t)(own->bytes / operation->source.element_size), result));
    if (!target->data)
        cz__segment_unpack(&operation->target, target, work->group->device, result);
    if (operation->update)
        cz__update_segment(operation, target, result);
    return CZ_OK;
}

/* ---- exchange ---- */

static void begin_exchange(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    for (int r = 0; r < work->group->size; r++) {
        cz__cursor_begin(cz__region_given(operation), operation->same_to_all ? me : r,
                         &work->peers[r].out);
        cz__cursor_begin(cz__region_taken(operation), r, &work->peers[r].in);
    }
}

/* What goes to each rank; where it is the same for all, it is cut and packed once. */
static cz_status send_segments(cz_work *work, bool *any)
{
    const cz__operation *operation = &work->operation;
    const cz__region *source = cz__region_given(operation);
    const int me = work->group->rank;
    cz__peer *own = &work->peers[me];
    void *data = NULL;
    if (next_segment(work, source, &own->out, &own->sent)) {
        *any = true;
        if (operation->update && !operation->reduces)
            cz__update_segment(operation, &own->sent, NULL);
        data = operation->same_to_all ? packed(work, source, &own->sent, me) : NULL;
    }
    for (int r = 0; r < work->group->size; r++) {
        cz__peer *peer = &work->peers[r];
        if (peer == own)
            continue;
        if (operation->same_to_all)
            peer->sent = own->sent;
        else if (next_segment(work, source, &peer->out, &peer->sent))
            data = packed(work, source, &peer->sent, r);
        *any |= peer->sent.bytes > 0;
        if (peer->sent.bytes > 0)
            CZ_TRY(send(work, CZ__STEP_EXCHANGE, r, data, peer->sent.bytes));
    }
    return CZ_OK;
}

static cz_status open_exchange(cz_work *work, bool *any)
{
    const int size = work->group->size;
    *any = false;
    for (int r = 0; r < size;
         r++) { /* receives first: then a send can go where it belongs at once */
        cz__peer *peer = &work->peers[r];
        if (!next_segment(work, cz__region_taken(&work->operation), &peer->in, &peer->received))
            continue;
        *any = true;
        const bool in_place = peer->received.data && !work->operation.shared_values;
        CZ_TRY(receive(work, CZ__STEP_EXCHANGE, r,
                       in_place ? peer->received.data : slot(work, size + r),
                       peer->received.bytes));
    }
    return send_segments(work, any);
}

/* What this rank keeps for itself. */
static void keep_own(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    const cz__segment *sent = &work->peers[me].sent, *received = &work->peers[me].received;
    if (received->bytes == 0 || operation->update ||
        cz__region_same_memory(&operation->source, &operation->target) ||
        (sent->data && sent->data == received->data))
        return;
    const char *from = packed(work, &operation->source, sent, me);
    if (received->data)
        (void)work->group->device->copy(NULL, received->data, from, received->bytes);
    else
        cz__segment_unpack(&operation->target, received, work->group->device, from);
}

static cz_status close_exchange(cz_work *work)
{
    const int size = work->group->size;
    keep_own(work);
    for (int r = 0; r < size; r++) {
        const cz__segment *segment = &work->peers[r].received;
        if (r != work->group->rank && segment->bytes > 0 && !segment->data &&
            !work->operation.shared_values)
            cz__segment_unpack(cz__region_taken(&work->operation), segment, work->group->device,
                               slot(work, size + r));
    }
    return CZ_OK;
}

/* ---- rounds ---- */

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
        CZ_TRY(cz__flights_landed(work, &all));
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
        begin_reduce(work);
    }
    return advance(work, open_reduce, close_reduce, CZ__PHASE_EXCHANGE);
}

bool cz__exchange_advance(cz_work *work)
{
    if (!work->phase_entered) {
        work->phase_entered = true;
        begin_exchange(work);
    }
    return advance(work, open_exchange, close_exchange, CZ__PHASE_CONTINUE);
}
