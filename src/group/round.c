/* SPDX-License-Identifier: MIT */
/* One round of an operation by messages, a segment of each stream. Reduce: every rank sends each owner its segment of
 * the owner's stream, and the owner reduces what it got, in rank order. Exchange: every rank sends each other rank a
 * segment of what is for it, or of one stream that is for all. In a step the owner updates values as it has reduced a
 * segment or as that goes to others, and the exchange is of values. When is data.c's. */
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

static char *slot(const cz_work *work, int round, int index)
{
    const int slots = 2 * work->group->size + 1;
    return work->staging->data + (size_t)(round * slots + index) * work->segment_bytes;
}

/* The segment as one piece: in place, or packed into a slot. */
static void *packed(cz_work *work, int round, const cz__region *region, const cz__segment *segment,
                    int index)
{
    if (segment->data)
        return segment->data;
    cz__segment_pack(region, segment, work->group->device, slot(work, round, index));
    return slot(work, round, index);
}

static bool next_segment(const cz_work *work, const cz__region *region, cz__cursor *cursor,
                         cz__segment *segment)
{
    return cz__segment_next(region, cursor, work->segment_bytes, segment);
}

static cz_status send(cz_work *work, int round, unsigned step, int rank, void *data, size_t bytes)
{
    cz__flight *flight = &cz__parcel_of(work, round, rank)->send;
    return rank == work->group->rank ? CZ_OK
                                     : cz__flight_send(work, flight, rank, step, data, bytes);
}

static cz_status receive(cz_work *work, int round, unsigned step, int rank, void *data,
                         size_t bytes)
{
    cz__flight *flight = &cz__parcel_of(work, round, rank)->receive;
    return rank == work->group->rank ? CZ_OK
                                     : cz__flight_receive(work, flight, rank, step, data, bytes);
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

/* ---- reduce: this rank's own parcel has where its results go as what it receives ---- */

cz_status cz__round_open_reduce(cz_work *work, int round, bool *any)
{
    const int size = work->group->size, me = work->group->rank;
    const cz__region *source = &work->operation.source;
    cz__segment *own = &work->kept[round];
    *any = false;
    for (int r = 0; r < size; r++) {
        cz__segment other = {0}, *sent = r == me ? own : &other;
        if (!next_segment(work, source, &work->peers[r].out, sent))
            continue;
        *any = true;
        if (r != me)
            CZ_TRY(send(work, round, CZ__STEP_REDUCE, r, packed(work, round, source, sent, r),
                        sent->bytes));
    }
    next_segment(work, &work->operation.target, &work->result,
                 &cz__parcel_of(work, round, me)->received);
    for (int r = 0; r < size && own->bytes > 0; r++)
        CZ_TRY(receive(work, round, CZ__STEP_REDUCE, r, slot(work, round, size + r), own->bytes));
    return CZ_OK;
}

cz_status cz__round_close_reduce(cz_work *work, int round)
{
    const int size = work->group->size, me = work->group->rank;
    const cz__operation *operation = &work->operation;
    const cz__segment *own = &work->kept[round],
                      *target = &cz__parcel_of(work, round, me)->received;
    if (own->bytes == 0)
        return CZ_OK;
    for (int r = 0; r < size; r++)
        work->sources[r] = r == me ? packed(work, round, &operation->source, own, me)
                                   : (void *)slot(work, round, size + r);
    char *result = target->data ? target->data : slot(work, round, 2 * size);
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

/* What goes to each rank; where it is the same for all, it is cut and packed once. */
static cz_status send_segments(cz_work *work, int round, bool *any)
{
    const cz__operation *operation = &work->operation;
    const cz__region *source = cz__region_given(operation);
    const int me = work->group->rank;
    cz__segment *own = &work->kept[round];
    void *data = NULL;
    if (next_segment(work, source, &work->own, own)) {
        *any = true;
        if (operation->update && !operation->reduces)
            cz__update_segment(operation, own, NULL);
        data = operation->same_to_all ? packed(work, round, source, own, me) : NULL;
    }
    for (int r = 0; r < work->group->size; r++) {
        cz__segment sent = *own;
        if (r == me)
            continue;
        if (!operation->same_to_all && next_segment(work, source, &work->peers[r].out, &sent))
            data = packed(work, round, source, &sent, r);
        *any |= sent.bytes > 0;
        if (sent.bytes > 0)
            CZ_TRY(send(work, round, CZ__STEP_EXCHANGE, r, data, sent.bytes));
    }
    return CZ_OK;
}

cz_status cz__round_open_exchange(cz_work *work, int round, bool *any)
{
    const int size = work->group->size;
    const cz__region *target = cz__region_taken(&work->operation);
    *any = false;
    for (int r = 0; r < size;
         r++) { /* receives first: then a send can go where it belongs at once */
        cz__segment *received = &cz__parcel_of(work, round, r)->received;
        if (!next_segment(work, target, &work->peers[r].in, received))
            continue;
        *any = true;
        const bool in_place = received->data && !work->operation.shared_values;
        CZ_TRY(receive(work, round, CZ__STEP_EXCHANGE, r,
                       in_place ? received->data : slot(work, round, size + r), received->bytes));
    }
    return send_segments(work, round, any);
}

/* What this rank keeps for itself. */
static void keep_own(cz_work *work, int round)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    const cz__segment *sent = &work->kept[round],
                      *received = &cz__parcel_of(work, round, me)->received;
    if (received->bytes == 0 || operation->update ||
        cz__region_same_memory(&operation->source, &operation->target) ||
        (sent->data && sent->data == received->data))
        return;
    const char *from = packed(work, round, &operation->source, sent, me);
    if (received->data)
        (void)work->group->device->copy(NULL, received->data, from, received->bytes);
    else
        cz__segment_unpack(&operation->target, received, work->group->device, from);
}

void cz__round_close_exchange(cz_work *work, int round)
{
    const int size = work->group->size;
    keep_own(work, round);
    for (int r = 0; r < size; r++) {
        const cz__segment *segment = &cz__parcel_of(work, round, r)->received;
        if (r != work->group->rank && segment->bytes > 0 && !segment->data &&
            !work->operation.shared_values)
            cz__segment_unpack(cz__region_taken(&work->operation), segment, work->group->device,
                               slot(work, round, size + r));
    }
}
