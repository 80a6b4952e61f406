/* SPDX-License-Identifier: MIT */
/* The messages of an operation: their tags, sending and receiving them, taking them back. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "group/internal.h"

/* Lane, sequence, descendant and step: equal on all ranks for the same message, whatever the order in
 * which they get there. */
static uint64_t tag(const cz_work *work, unsigned step)
{
    return (uint64_t)work->lane << 63 | (work->sequence & ((1ull << 39) - 1)) << 24 |
           (uint64_t)(work->child & 0xffffu) << 8 | step;
}

static cz_status post(cz_work *work, cz__flight *flight, int peer, unsigned step, void *data,
                      size_t bytes, bool send)
{
    cz_group *group = work->group;
    flight->transfer = (cz_transfer){.peer = peer,
                                     .tag = tag(work, step),
                                     .data = data,
                                     .bytes = bytes,
                                     .device = group->device};
    const cz_status status = send
                                 ? group->backend->post_send(group->endpoint, &flight->transfer)
                                 : group->backend->post_receive(group->endpoint, &flight->transfer);
    flight->up = status == CZ_OK;
    return status;
}

cz_status cz__flight_send(cz_work *work, cz__flight *flight, int peer, unsigned step, void *data,
                          size_t bytes)
{
    return post(work, flight, peer, step, data, bytes, true);
}

cz_status cz__flight_receive(cz_work *work, cz__flight *flight, int peer, unsigned step, void *data,
                             size_t bytes)
{
    return post(work, flight, peer, step, data, bytes, false);
}

cz_status cz__flight_landed(cz_work *work, cz__flight *flight, bool *landed)
{
    *landed = !flight->up;
    if (*landed)
        return CZ_OK;
    const cz_group *group = work->group;
    uint64_t sequence;
    CZ_TRY(group->backend->test(group->endpoint, &flight->transfer, landed));
    flight->up = !*landed;
    if (*landed)
        return CZ_OK;
    /* Whoever broke the group had done its part of all operations before, so those still end. */
    const cz_status broken = group->backend->broken(group->endpoint, &sequence, NULL, 0);
    return broken && work->sequence >= sequence ? cz__fail(broken, "the group is broken") : CZ_OK;
}

/* Visit every flight of an operation. */
static void each_flight(cz_work *work, void (*visit)(cz_work *, cz__flight *, void *),
                        void *context)
{
    for (int i = 0; i < CZ__MAX_CHILDREN; i++)
        visit(work, &work->up_from[i], context);
    visit(work, &work->up_to, context);
    visit(work, &work->down_from, context);
    for (int r = 0; r < work->group->size; r++) {
        visit(work, &work->peers[r].send, context);
        visit(work, &work->peers[r].receive, context);
    }
}

static void withdraw(cz_work *work, cz__flight *flight, void *context)
{
    if (flight->up && !work->group->backend->withdraw(work->group->endpoint, &flight->transfer))
        work->stuck = true;
    flight->up = false;
}

void cz__flights_withdraw(cz_work *work)
{
    each_flight(work, withdraw, NULL);
}

typedef struct search {
    int peer;
    bool found;
} search;

static void look(cz_work *work, cz__flight *flight, void *context)
{
    search *of = context;
    of->found |= flight->up && flight->transfer.peer == of->peer;
}

void cz__flights_awaited(const cz_work *work, char *text, size_t bytes)
{
    char numbers[96] = "";
    size_t length = 0;
    int count = 0;
    for (int r = 0; r < work->group->size && length < sizeof numbers; r++) {
        search of = {r, false};
        each_flight((cz_work *)work, look, &of);
        if (of.found)
            length += (size_t)snprintf(numbers + length, sizeof numbers - length, "%s%d",
                                       count++ ? ", " : "", r);
    }
    snprintf(text, bytes, "rank%s %s", count == 1 ? "" : "s", numbers);
}
