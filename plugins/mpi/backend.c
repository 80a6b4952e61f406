/* SPDX-License-Identifier: MIT */
/* The backend: what the library calls. Transfers become parcels, which the carrier, or else a call
 * of poll, gives to MPI and tests; here their states are only looked at. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

static void start(void *endpoint, void (*notify)(void *context), void *context)
{
    cz__endpoint *of = endpoint;
    pthread_mutex_lock(&of->notify_lock);
    of->notify = notify;
    of->context = context;
    pthread_mutex_unlock(&of->notify_lock);
}

static void call_attention(cz__endpoint *of)
{
    atomic_store(&of->attention, true);
    cz__carrier_wake();
}

/* ---- transfers ---- */

static cz_status check_transfer(const cz_transfer *transfer)
{
    enum { HIGHEST_STEP = CZ__CONTROL_TAG - 1 };
    CZ_TRY(cz__mpi_check());
    if ((transfer->tag & 0xff) > HIGHEST_STEP)
        return cz_fail(CZ_ERR_UNSUPPORTED, "mpi: step %d of an operation, the last is %d",
                       (int)(transfer->tag & 0xff), HIGHEST_STEP);
    if (transfer->device && transfer->device != cz_device_cpu())
        return cz_fail(CZ_ERR_UNSUPPORTED, "mpi: memory of another device than the CPU");
    return CZ_OK;
}

static cz__parcel *take_parcel(cz__endpoint *of)
{
    cz__parcel *parcel = of->idle;
    if (!parcel)
        return calloc(1, sizeof *parcel);
    of->idle = parcel->next;
    free(parcel->why);
    *parcel = (cz__parcel){0};
    return parcel;
}

static void send_off(cz__parcel *parcel)
{
    cz__tag_window_begin(&parcel->of->window, parcel->transfer->tag);
    atomic_store(&parcel->state, CZ__PARCEL_POSTED);
    cz__carrier_post(parcel);
}

static void hold(cz__parcel *parcel)
{
    cz__endpoint *of = parcel->of;
    parcel->next = NULL;
    *of->held_end = parcel;
    of->held_end = &parcel->next;
}

/* A window that moved on may admit some of what was held. */
static void release_held(cz__endpoint *of)
{
    cz__parcel *parcel = of->held;
    of->held = NULL;
    of->held_end = &of->held;
    for (cz__parcel *next; parcel; parcel = next) {
        next = parcel->next;
        if (cz__tag_window_admits(&of->window, parcel->transfer->tag))
            send_off(parcel);
        else
            hold(parcel);
    }
}

static cz_status post(cz__endpoint *of, cz_transfer *transfer, bool send)
{
    CZ_TRY(check_transfer(transfer));
    cz__parcel *parcel = take_parcel(of);
    if (!parcel)
        return cz_fail(CZ_ERR_MEMORY, "mpi: no memory for a transfer");
    parcel->of = of;
    parcel->transfer = transfer;
    parcel->send = send;
    transfer->own[0] = parcel;
    if (!cz__tag_window_admits(&of->window, transfer->tag)) {
        hold(parcel);
        return CZ_OK;
    }
    send_off(parcel);
    if (!cz__carrier_exists() && cz__mpi_enter()) {
        (void)cz__carrier_start_posted();
        cz__mpi_leave();
    }
    return CZ_OK;
}

static cz_status post_send(void *endpoint, cz_transfer *transfer)
{
    return post(endpoint, transfer, true);
}

static cz_status post_receive(void *endpoint, cz_transfer *transfer)
{
    return post(endpoint, transfer, false);
}

/* The library has done with it; and so has MPI, if `whole`. Else the parcel is the carrier's, or
 * gone. */
static void finish(cz__endpoint *of, cz_transfer *transfer, bool whole)
{
    cz__parcel *parcel = transfer->own[0];
    transfer->own[0] = NULL;
    const bool wider = cz__tag_window_end(&of->window, transfer->tag);
    if (whole) {
        parcel->next = of->idle;
        of->idle = parcel;
    }
    if (wider && of->held)
        release_held(of);
}

static cz_status fail_lost(const cz__endpoint *of, int rank)
{
    const char *why = of->peers[rank].why;
    return cz_fail(CZ_ERR_PEER, "rank %d left the group%s%s%s", of->peers[rank].address,
                   why ? " (" : "", why ? why : "", why ? ")" : "");
}

static cz_status test(void *endpoint, cz_transfer *transfer, bool *done)
{
    cz__endpoint *of = endpoint;
    const cz__parcel *parcel = transfer->own[0];
    const int state = atomic_load_explicit(&parcel->state, memory_order_acquire);
    *done = state == CZ__PARCEL_DONE;
    if (*done)
        finish(of, transfer, true);
    if (*done)
        return CZ_OK;
    if (state == CZ__PARCEL_FAILED)
        return cz_fail(CZ_ERR_PEER, "%s", parcel->why);
    return state == CZ__PARCEL_LOST ? fail_lost(of, transfer->peer) : cz__mpi_check_end();
}

static cz_status present(void *endpoint, int rank)
{
    const cz__endpoint *of = endpoint;
    return atomic_load(&of->peers[rank].gone) ? fail_lost(of, rank) : cz__mpi_check_end();
}

static void unhold(cz__parcel *parcel)
{
    cz__endpoint *of = parcel->of;
    cz__parcel **link = &of->held;
    while (*link != parcel)
        link = &(*link)->next;
    *link = parcel->next;
    if (of->held_end == &parcel->next)
        of->held_end = link;
    parcel->next = of->idle;
    of->idle = parcel;
}

/* Also where the carrier never comes back from MPI: then the transfer stays with it. */
static bool withdraw(void *endpoint, cz_transfer *transfer)
{
    static atomic_bool lost;   /* the last one found it so */
    const double PATIENCE = 1; /* seconds, once */
    cz__parcel *parcel = transfer->own[0];
    if (!parcel)
        return true;
    if (atomic_load(&parcel->state) == CZ__PARCEL_HELD) {
        transfer->own[0] = NULL;
        unhold(parcel);
        return true;
    }
    bool whole = cz__carrier_unpost(parcel); /* if so, nobody will start it */
    const bool entered = cz__mpi_enter_within(atomic_load(&lost) ? 0 : PATIENCE);
    atomic_store(&lost, !entered && !cz__mpi_over());
    if (entered) {
        whole = whole || cz__parcel_stop(parcel);
        cz__mpi_leave();
    }
    whole = whole || (!entered && cz__mpi_over());
    finish(endpoint, transfer, whole);
    return whole;
}

/* ---- the group's end ---- */

static void break_group(void *endpoint, uint64_t sequence, cz_status status, const char *sentence)
{
    if (cz__endpoint_break(endpoint, sequence, status, sentence))
        call_attention(endpoint);
}

static void announce(void *endpoint, uint64_t begun)
{
    atomic_store(&((cz__endpoint *)endpoint)->begun, begun);
}

static uint64_t announced(void *endpoint, int rank)
{
    const double FRESH = 50e-3; /* seconds */
    cz__endpoint *of = endpoint;
    cz__peer *peer = &of->peers[rank];
    const double old = cz__mpi_seconds() - FRESH;
    if (rank == of->rank)
        return atomic_load(&of->begun);
    if (atomic_load(&peer->heard_at) < old && atomic_load(&peer->asked_at) < old) {
        atomic_store(&peer->asked_at, old + FRESH);
        atomic_store(&peer->ask, true);
        call_attention(of);
    }
    return atomic_load(&peer->begun);
}

/* Who has the lock makes progress, or does not come back from MPI, which is nothing to wait for. */
static void poll_once(void)
{
    if (!cz__mpi_enter_if_free())
        return;
    cz__carrier_round_of_waiter();
    cz__mpi_leave();
}

static void poll(void *endpoint)
{
    const double SPIN = 10e-6; /* seconds; a pause of the library is longer */
    if (cz__carrier_exists() || cz__carrier_is_attended()) {
        poll_once();
        return;
    }
    if (!cz__mpi_enter())
        return;
    const double until = cz__mpi_seconds() + SPIN;
    while (!cz__carrier_round() && cz__requests_busy() > 0 && cz__mpi_seconds() < until)
        sched_yield();
    (void)cz__endpoints_changed();
    cz__mpi_leave();
}

static bool attend(void *endpoint, bool begins)
{
    if (begins && cz__mpi_check() != CZ_OK)
        return false;
    cz__carrier_attend(begins);
    return true;
}

static void leave(void *endpoint, const char *why)
{
    enum { ROUNDS = 3 }; /* the others are told in the first */
    cz__endpoint *of = endpoint;
    start(of, NULL, NULL); /* when this returns, nobody is in notify, or will be */
    if (cz__mpi_over()) {
        static pthread_mutex_t late = PTHREAD_MUTEX_INITIALIZER; /* nobody can enter any more */
        pthread_mutex_lock(&late);
        cz__endpoint_free(of);
        pthread_mutex_unlock(&late);
        cz__carrier_release();
        return;
    }
    snprintf(of->why, sizeof of->why, "%s", why ? why : "");
    atomic_store(&of->leaving, true);
    atomic_store(&of->attention, true);
    atomic_store(&of->gone, true); /* from now on the carrier may free it */
    for (int i = 0; i < ROUNDS && !cz__carrier_exists(); i++)
        poll(NULL);
    cz__carrier_release();
}

static cz_status split(void *endpoint, uint64_t id, const int *ranks, int count, int rank,
                       void **out)
{
    cz__endpoint *parent = endpoint, *of;
    if (rank < 0)
        return CZ_OK;
    CZ_TRY(cz__mpi_check());
    if (!cz__mpi_enter())
        return cz_fail(CZ_ERR_STATE, "mpi: MPI_Finalize was called before the group was destroyed");
    const cz_status status = cz__endpoint_create(&of, parent->wire, rank, count, parent, ranks);
    if (status == CZ_OK) {
        of->id = id;
        cz__share_create(of);
        of->abort_on_break = parent->abort_on_break;
        atomic_store(&of->attention, true); /* its port is told before the parent can be left */
        cz__control_meet(of);
        cz__carrier_retain();
        *out = of;
    }
    cz__mpi_leave();
    cz__carrier_wake();
    return status;
}

/* ---- the tables ---- */

#define ENTRIES                                                                                    \
    .abi = CZ_BACKEND_ABI, .size = sizeof(cz_backend), .name = "mpi", .start = start,              \
    .post_send = post_send, .post_receive = post_receive, .test = test, .withdraw = withdraw,      \
    .break_group = break_group, .broken = cz__endpoint_broken, .announce = announce,               \
    .announced = announced, .leave = leave, .split = split, .window = cz__share_part,              \
    .present = present, .machine = cz__share_machine, .poll = poll, .attend = attend,              \
    .at_most = true

const cz_backend cz__backend_mpi_carrier = {ENTRIES};
const cz_backend cz__backend_mpi_inline = {ENTRIES, .poll_seconds = 50e-6, .inline_only = true};
const cz_backend cz__backend_mpi_single = {ENTRIES, .poll_seconds = 50e-6, .inline_only = true,
                                           .one_thread = true};
