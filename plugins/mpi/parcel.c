/* SPDX-License-Identifier: MIT */
/* A transfer's way through MPI: as messages of at most CZ_MPI_PART_BYTES under one tag, which MPI
 * keeps in order; then done, or lost because the peer left, or failed. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static size_t bytes_under_way;

size_t cz__parcels_bytes(void)
{
    return bytes_under_way;
}

void cz__parcel_free(cz__parcel *parcel)
{
    free(parcel->why);
    free(parcel);
}

static cz__peer *peer_of(const cz__parcel *parcel)
{
    return &parcel->of->peers[parcel->transfer->peer];
}

static void end_parcel(cz__parcel *parcel, cz__parcel_state state)
{
    cz__endpoint *of = parcel->of; /* the parcel is the library's as soon as it sees the state */
    atomic_store_explicit(&parcel->state, (int)state, memory_order_release);
    cz__endpoint_changed(of);
}

static void fail_parcel(cz__parcel *parcel, const char *what)
{
    char why[CZ_MPI_SENTENCE_BYTES];
    snprintf(why, sizeof why, "mpi: %s %d: %.200s",
             parcel->send ? "send to rank" : "receive from rank", parcel->transfer->peer, what);
    if (!parcel->why)
        parcel->why = strdup(why);
}

/* An older library does not know of that. */
static bool may_be_less(const cz_transfer *transfer)
{
    return transfer->size >= offsetof(cz_transfer, came) + sizeof transfer->came &&
           transfer->at_most;
}

/* All parts have landed, none of which was larger than its place: MPI refuses that
 * (MPI_ERR_TRUNCATE). */
static void check_all(cz__parcel *parcel)
{
    char what[CZ_MPI_SENTENCE_BYTES];
    const size_t bytes = parcel->transfer->bytes;
    if (!parcel->send && may_be_less(parcel->transfer))
        parcel->transfer->came = parcel->came;
    if (parcel->send || parcel->cancelled || parcel->came == bytes || may_be_less(parcel->transfer))
        return;
    snprintf(what, sizeof what, "%zu bytes came, %zu were expected", parcel->came, bytes);
    fail_parcel(parcel, what);
}

static void take_part(cz__parcel *parcel, const MPI_Status *status, int error)
{
    char what[CZ_MPI_SENTENCE_BYTES];
    int cancelled = 0, count = 0;
    if (error != MPI_SUCCESS) {
        cz__mpi_error(error, what, sizeof what);
        fail_parcel(parcel, what);
        return;
    }
    MPI_Test_cancelled(status, &cancelled);
    if (cancelled)
        parcel->cancelled = true;
    if (cancelled && !peer_of(parcel)->left) /* or by the library, which does not ask any more */
        fail_parcel(parcel, "MPI_Finalize was called");
    if (cancelled || parcel->send)
        return;
    peer_of(parcel)->received++;
    MPI_Get_count(status, MPI_BYTE, &count);
    parcel->came += (size_t)count;
}

static void part_landed(void *owner, const MPI_Status *status, int error)
{
    cz__parcel *parcel = owner;
    take_part(parcel, status, error);
    if (--parcel->parts > 0)
        return;
    check_all(parcel);
    bytes_under_way -= parcel->transfer->bytes;
    parcel->of->under_way--;
    if (parcel->abandoned)
        cz__parcel_free(parcel);
    else if (parcel->why)
        end_parcel(parcel, CZ__PARCEL_FAILED);
    else
        end_parcel(parcel, parcel->cancelled ? CZ__PARCEL_LOST : CZ__PARCEL_DONE);
}

/* One message; the receive matches the send, which has the tag of the receiver's port. */
static int begin_part(cz__parcel *parcel, char *data, int bytes)
{
    const cz__wire *wire = parcel->of->wire;
    cz__peer *peer = peer_of(parcel);
    const int port = parcel->send ? peer->port : parcel->of->port;
    const int tag = cz__tag(&wire->layout, port, parcel->transfer->tag);
    MPI_Request request;
    const int error =
        parcel->send ? MPI_Isend(data, bytes, MPI_BYTE, peer->address, tag, wire->comm, &request)
                     : MPI_Irecv(data, bytes, MPI_BYTE, peer->address, tag, wire->comm, &request);
    if (error != MPI_SUCCESS)
        return error;
    peer->sent += parcel->send;
    parcel->parts++;
    cz__requests_add(request, part_landed, parcel, false);
    return MPI_SUCCESS;
}

static void begin_parts(cz__parcel *parcel)
{
    char what[CZ_MPI_SENTENCE_BYTES], *data = parcel->transfer->data;
    size_t left = parcel->transfer->bytes;
    int error = MPI_SUCCESS;
    if (!cz__requests_reserve((int)((left - 1) / CZ_MPI_PART_BYTES) + 1)) {
        fail_parcel(parcel, "no memory");
        end_parcel(parcel, CZ__PARCEL_FAILED);
        return;
    }
    while (left > 0 && error == MPI_SUCCESS) {
        const size_t bytes = left < CZ_MPI_PART_BYTES ? left : CZ_MPI_PART_BYTES;
        error = begin_part(parcel, data, (int)bytes);
        data += bytes;
        left -= bytes;
    }
    if (error != MPI_SUCCESS) {
        cz__mpi_error(error, what, sizeof what);
        fail_parcel(parcel, what);
    }
    if (parcel->parts == 0) {
        end_parcel(parcel, CZ__PARCEL_FAILED);
        return;
    }
    parcel->of->under_way++;
    bytes_under_way += parcel->transfer->bytes;
}

void cz__parcel_start(cz__parcel *parcel)
{
    cz__endpoint *of = parcel->of;
    const cz__peer *peer = peer_of(parcel);
    const bool nothing_more = peer->left && (parcel->send || peer->received == peer->sent_in_all);
    if (nothing_more) {
        end_parcel(parcel, CZ__PARCEL_LOST);
    } else if (parcel->send && peer->port < 0) {
        parcel->next = NULL;
        *of->waiting_end = parcel;
        of->waiting_end = &parcel->next;
    } else {
        begin_parts(parcel);
        if (peer->receives_settled && parcel->parts > 0)
            cz__requests_cancel(parcel); /* what came is matched already and stays */
    }
}

static bool stop_waiting(cz__parcel *parcel)
{
    cz__endpoint *of = parcel->of;
    for (cz__parcel **link = &of->waiting; *link; link = &(*link)->next) {
        if (*link != parcel)
            continue;
        *link = parcel->next;
        if (of->waiting_end == &parcel->next)
            of->waiting_end = link;
        return true;
    }
    return false;
}

bool cz__parcel_stop(cz__parcel *parcel)
{
    enum { TRIES = 3 }; /* what MPI can cancel has ended then */
    if (stop_waiting(parcel) || parcel->parts == 0)
        return true;
    if (!parcel->send)
        cz__requests_cancel(parcel);
    for (int i = 0; i < TRIES && parcel->parts > 0; i++)
        (void)cz__requests_test();
    parcel->abandoned = parcel->parts > 0;
    return !parcel->abandoned;
}

/* ---- a rank has left ---- */

typedef struct settlement {
    const cz__peer *peer;
    bool receives; /* else sends */
} settlement;

static void settle_one(void *owner, void *context)
{
    cz__parcel *parcel = owner;
    const settlement *now = context;
    if (peer_of(parcel) != now->peer || parcel->send == now->receives || parcel->abandoned)
        return;
    if (now->receives)
        cz__requests_cancel(parcel);
    else /* MPI cannot cancel it: it stays */
        end_parcel(parcel, CZ__PARCEL_LOST);
}

void cz__parcels_settle(cz__endpoint *of, int rank)
{
    cz__peer *peer = &of->peers[rank];
    const bool late = cz__mpi_seconds() > peer->left_at + CZ_MPI_GRACE_SECONDS;
    if (!peer->receives_settled && (late || peer->received == peer->sent_in_all)) {
        settlement receives = {peer, true};
        peer->receives_settled = true;
        cz__requests_visit(part_landed, settle_one, &receives);
    }
    if (!peer->sends_settled && (late || peer->sent == peer->received_in_all)) {
        settlement sends = {peer, false};
        peer->sends_settled = true;
        if (peer->sent != peer->received_in_all) /* else they end by themselves */
            cz__requests_visit(part_landed, settle_one, &sends);
    }
    if (peer->receives_settled && peer->sends_settled)
        of->unsettled--;
}

/* ---- the end of MPI ---- */

static void cancel_one(void *owner, void *context)
{
    cz__parcel *parcel = owner;
    if (parcel->of == context && !parcel->send)
        cz__requests_cancel(parcel);
}

void cz__parcels_cancel(cz__endpoint *of)
{
    cz__requests_visit(part_landed, cancel_one, of);
}
