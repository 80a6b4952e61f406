/* SPDX-License-Identifier: MIT */
/* What ranks tell each other beside transfers: ports, breaks, leaving, how far they are. Small
 * messages under one tag per wire, which names the port of the endpoint that they are for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef enum kind {
    HELLO = 1, /* to the parent's port: rank `from` of sub-group `a` has port `b` */
    QUERY,     /* how many operations have begun there? */
    ANSWER,    /* `a` */
    BREAK,     /* from operation `a` on, with `status` and `text` */
    /* The lowest rank of a machine has memory for all there: process `a` on machine `text`, file
     * `b`, token `c`; and back to it: that was read. */
    SHARE,
    /* The last message; `a` sent to the receiver, `b` received from it, why: `text`; or, with
     * `status`, the group was broken from operation `c` on, which the receiver may not have heard
     * yet from who broke it. */
    LEAVE
} kind;

typedef struct cz__message {
    uint32_t kind;
    int32_t port;
    int32_t from; /* the sender's rank in the group */
    int32_t status;
    uint64_t a, b, c;
    char text[CZ_MPI_SENTENCE_BYTES];
} cz__message;

typedef struct outgoing {
    cz__wire *wire;
    cz__message message;
} outgoing;

static void sent(void *owner, const MPI_Status *status, int error)
{
    cz__wire *wire = ((outgoing *)owner)->wire;
    free(owner);
    wire->messages--;
    cz__wire_free_unused(wire);
}

/* To a rank of a group whose port is known. False: there was no memory; try again later. */
static bool tell_peer(const cz__endpoint *of, int rank, cz__message message)
{
    outgoing *out = malloc(sizeof *out);
    const cz__peer *peer = &of->peers[rank];
    MPI_Request request;
    if (!out || !cz__requests_reserve(1)) {
        free(out);
        return false;
    }
    message.port = peer->port;
    *out = (outgoing){of->wire, message};
    const int error = MPI_Isend(&out->message, sizeof message, MPI_BYTE, peer->address,
                                CZ__CONTROL_TAG, of->wire->comm, &request);
    if (error != MPI_SUCCESS) { /* the peer's own timeout will have to do */
        free(out);
        return true;
    }
    of->wire->messages++;
    cz__requests_add(request, sent, out, false);
    return true;
}

static void copy_text(cz__message *message, const char *text)
{
    snprintf(message->text, sizeof message->text, "%s", text);
}

/* ---- what this rank has to tell ---- */

static bool tell_hello(cz__endpoint *of, cz__peer *peer)
{
    const cz__message message = {
        .kind = HELLO, .from = of->rank, .a = of->id, .b = (uint64_t)of->port};
    return of->parent->peers[peer->parent_rank].port >= 0 &&
           tell_peer(of->parent, peer->parent_rank, message);
}

static bool tell_share(cz__endpoint *of, int rank)
{
    cz__message message = {.kind = SHARE, .from = of->rank};
    uint64_t place[3];
    if (!cz__share_describe(of, place, message.text, sizeof message.text))
        return true;
    message.a = place[0];
    message.b = place[1];
    message.c = place[2];
    return tell_peer(of, rank, message);
}

static bool tell_break(cz__endpoint *of, int rank)
{
    cz__message message = {.kind = BREAK, .from = of->rank};
    message.status =
        (int32_t)cz__endpoint_broken(of, &message.a, message.text, sizeof message.text);
    if (!tell_peer(of, rank, message))
        return false;
    of->peers[rank].told_from = message.a;
    return true;
}

static bool tell_leave(cz__endpoint *of, int rank)
{
    const cz__peer *peer = &of->peers[rank];
    cz__message message = {.kind = LEAVE, .from = of->rank, .a = peer->sent, .b = peer->received};
    copy_text(&message, of->why);
    if (!of->why[0])
        message.status =
            (int32_t)cz__endpoint_broken(of, &message.c, message.text, sizeof message.text);
    return tell_peer(of, rank, message);
}

/* False: something is left to be told when there is memory. */
static bool attend_peer(cz__endpoint *of, int rank)
{
    cz__peer *peer = &of->peers[rank];
    const cz__message query = {.kind = QUERY, .from = of->rank};
    bool told = true;
    if (peer->hello_due)
        peer->hello_due = !tell_hello(of, peer);
    if (peer->hello_due || peer->port < 0)
        return true; /* until a HELLO comes */
    if (!peer->left && peer->share_due)
        told &= !(peer->share_due = !tell_share(of, rank));
    if (!peer->left && atomic_exchange(&peer->ask, false))
        told &= tell_peer(of, rank, query);
    if (!peer->left && atomic_load(&of->broken_from) < peer->told_from)
        told &= tell_break(of, rank);
    if (!peer->leave_told && atomic_load(&of->leaving)) {
        told &= peer->leave_told = tell_leave(of, rank);
        of->untold -= peer->leave_told;
    }
    return told;
}

static void attend_break(cz__endpoint *of)
{
    enum { EXIT_CODE = 1 };
    const double now = cz__mpi_seconds();
    if (!of->abort_on_break || atomic_load(&of->broken_from) == UINT64_MAX)
        return;
    if (of->abort_at == 0)
        of->abort_at = now + 0.2; /* so that the program can say why */
    else if (now >= of->abort_at)
        MPI_Abort(MPI_COMM_WORLD, EXIT_CODE); /* for another, MPICH waits for the others' help */
}

static void attend_endpoint(cz__endpoint *of)
{
    bool told = true;
    if (atomic_exchange(&of->attention, false)) {
        for (int r = 0; r < of->size; r++)
            if (r != of->rank)
                told &= attend_peer(of, r);
        if (atomic_load(&of->broken_from) != UINT64_MAX)
            cz__endpoint_changed(of);
        if (!told)
            atomic_store(&of->attention, true);
    }
    for (int r = 0; r < of->size && of->unsettled > 0; r++)
        if (of->peers[r].left && !(of->peers[r].receives_settled && of->peers[r].sends_settled))
            cz__parcels_settle(of, r);
    attend_break(of);
}

void cz__control_attend(void)
{
    for (cz__endpoint *of = cz__endpoints_first(); of; of = of->next)
        attend_endpoint(of);
}

/* ---- what other ranks tell ---- */

/* Now sends to that rank can go, and the rest that waited for it. */
static void learn_port(cz__endpoint *of, int rank, int port)
{
    cz__parcel *waiting = of->waiting;
    of->peers[rank].port = port;
    of->waiting = NULL;
    of->waiting_end = &of->waiting;
    for (cz__parcel *next; waiting; waiting = next) {
        next = waiting->next;
        cz__parcel_start(waiting);
    }
    atomic_store(&of->attention, true);
    cz__endpoints_attend_children(of);
}

static void hear_hello(cz__endpoint *parent, const cz__message *message)
{
    cz__endpoint *of = cz__endpoints_find(parent, message->a);
    cz__hello *hello = of ? NULL : malloc(sizeof *hello);
    if (of && message->from >= 0 && message->from < of->size)
        learn_port(of, message->from, (int)message->b);
    if (!hello) /* without memory: the sub-group will run into its timeout */
        return;
    *hello = (cz__hello){parent->hellos, message->a, message->from, (int)message->b};
    parent->hellos = hello;
}

void cz__control_meet(cz__endpoint *of)
{
    for (cz__hello **link = &of->parent->hellos; *link;) {
        cz__hello *hello = *link;
        if (hello->id != of->id) {
            link = &hello->next;
            continue;
        }
        *link = hello->next;
        if (hello->rank >= 0 && hello->rank < of->size)
            learn_port(of, hello->rank, hello->port);
        free(hello);
    }
}

static void hear_answer(cz__endpoint *of, cz__peer *peer, const cz__message *message)
{
    atomic_store(&peer->begun, message->a);
    atomic_store(&peer->heard_at, cz__mpi_seconds());
}

/* Whoever broke it tells all others, so this rank does not, before it leaves. */
static void hear_break(cz__endpoint *of, const cz__message *message, uint64_t sequence)
{
    if (!cz__endpoint_break(of, sequence, (cz_status)message->status, message->text))
        return;
    for (int r = 0; r < of->size; r++)
        if (of->peers[r].told_from > sequence)
            of->peers[r].told_from = sequence;
    cz__endpoint_changed(of);
}

static void hear_leave(cz__endpoint *of, cz__peer *peer, const cz__message *message)
{
    if (peer->left)
        return;
    peer->left = true;
    peer->left_at = cz__mpi_seconds();
    peer->sent_in_all = message->a;
    peer->received_in_all = message->b;
    of->present--;
    of->unsettled++;
    if (message->status != CZ_OK)
        hear_break(of, message, message->c);
    else if (message->text[0])
        peer->why = strdup(message->text);
    atomic_store(&peer->gone, true);
    cz__endpoint_changed(of);
}

static void hear_share(cz__endpoint *of, const cz__message *message)
{
    const cz__message answer = {.kind = SHARE, .from = of->rank};
    const uint64_t place[3] = {message->a, message->b, message->c};
    cz__share_locate(of);
    if (cz__share_machine(of, of->rank) == of->rank) {
        cz__share_opened(of);
        return;
    }
    cz__share_open(of, place, message->text);
    if (!atomic_load(&of->leaving)) /* nothing comes after LEAVE */
        (void)tell_peer(of, message->from, answer);
}

static void hear(cz__wire *wire, const cz__message *message)
{
    if (message->port < 0 || message->port >= 1 << wire->layout.port_bits)
        return;
    cz__endpoint *of = wire->ports[message->port];
    if (of && message->kind == HELLO) {
        hear_hello(of, message);
        return;
    }
    if (!of || message->from < 0 || message->from >= of->size)
        return;
    cz__peer *peer = &of->peers[message->from];
    const cz__message answer = {.kind = ANSWER, .from = of->rank, .a = atomic_load(&of->begun)};
    switch ((kind)message->kind) {
    case QUERY:
        if (!atomic_load(&of->leaving)) /* nothing comes after LEAVE */
            (void)tell_peer(of, message->from, answer);
        break;
    case ANSWER:
        hear_answer(of, peer, message);
        break;
    case SHARE:
        hear_share(of, message);
        break;
    case BREAK:
        hear_break(of, message, message->a);
        break;
    case LEAVE:
        hear_leave(of, peer, message);
        break;
    case HELLO:
        break;
    }
}

static void heard(void *owner, const MPI_Status *status, int error);

static bool receive(cz__wire *wire)
{
    MPI_Request request;
    if (!cz__requests_reserve(1) ||
        MPI_Irecv(wire->incoming, sizeof(cz__message), MPI_BYTE, MPI_ANY_SOURCE, CZ__CONTROL_TAG,
                  wire->comm, &request) != MPI_SUCCESS)
        return false;
    cz__requests_add(request, heard, wire, true);
    return true;
}

static void heard(void *owner, const MPI_Status *status, int error)
{
    cz__wire *wire = owner;
    int cancelled = 0;
    if (error == MPI_SUCCESS)
        MPI_Test_cancelled(status, &cancelled);
    if (error == MPI_SUCCESS && !cancelled) {
        wire->incoming->text[sizeof wire->incoming->text - 1] = '\0';
        hear(wire, wire->incoming);
    }
    wire->listening = wire->endpoints > 0 && !cancelled && error == MPI_SUCCESS && receive(wire);
    if (!wire->listening)
        cz__wire_free_unused(wire);
}

bool cz__control_listen(cz__wire *wire)
{
    wire->incoming = malloc(sizeof *wire->incoming);
    wire->listening = wire->incoming && receive(wire);
    return wire->listening;
}
