/* SPDX-License-Identifier: MIT */
/* The messages of an operation: their tags, sending and receiving them, taking them back. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "group/internal.h"

uint64_t cz__work_tag(const cz_work *work, unsigned step)
{
    return (uint64_t)work->lane << 63 | (work->sequence & ((1ull << 39) - 1)) << 24 |
           (uint64_t)(work->child & 0xffffu) << 8 | step;
}

static cz_status post(cz_work *work, cz__flight *flight, int peer, unsigned step, void *data,
                      size_t bytes, bool send)
{
    cz_group *group = work->group;
    work->has_messages = true;
    flight->transfer = (cz_transfer){.peer = peer,
                                     .tag = cz__work_tag(work, step),
                                     .data = data,
                                     .bytes = bytes,
                                     .device = group->device};
    const cz_status status = send
                                 ? group->backend->post_send(group->endpoint, &flight->transfer)
                                 : group->backend->post_receive(group->endpoint, &flight->transfer);
    flight->up = status == CZ_OK;
    if (flight->up && send)
        cz__traffic_sent(group, step, bytes);
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
    CZ_TRY(group->backend->test(group->endpoint, &flight->transfer, landed));
    flight->up = !*landed;
    return *landed ? CZ_OK : cz__group_intact(group, work->sequence);
}

cz__parcel *cz__parcel_of(const cz_work *work, int round, int rank)
{
    return &work->parcels[round * work->group->size + rank];
}

cz_status cz__flights_landed(cz_work *work, int round, bool *all)
{
    *all = true;
    for (int r = 0; r < work->group->size && *all; r++) {
        cz__parcel *parcel = cz__parcel_of(work, round, r);
        CZ_TRY(cz__flight_landed(work, &parcel->send, all));
        if (*all)
            CZ_TRY(cz__flight_landed(work, &parcel->receive, all));
    }
    return CZ_OK;
}

/* Visit every flight of an operation. */
static void each_flight(cz_work *work, void (*visit)(cz_work *, cz__flight *, void *),
                        void *context)
{
    for (int i = 0; i < CZ__MAX_CHILDREN; i++)
        visit(work, &work->up_from[i], context);
    visit(work, &work->up_to, context);
    visit(work, &work->down_from, context);
    for (int i = 0; i < cz__parcel_rounds(work->group->meetings) * work->group->size; i++) {
        visit(work, &work->parcels[i].send, context);
        visit(work, &work->parcels[i].receive, context);
    }
    cz__node_each_flight(work, visit, context);
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
    cz__node_stop(work);
    cz__meeting_withdraw(work);
    cz__native_withdraw(work);
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
        search of = {r, cz__meeting_misses(work, r)};
        each_flight((cz_work *)work, look, &of);
        if (of.found || cz__window_awaits(work, r))
            length += (size_t)snprintf(numbers + length, sizeof numbers - length, "%s%d",
                                       count++ ? ", " : "", cz_group_global_rank(work->group, r));
    }
    if (count == 0)
        snprintf(text, bytes, "some rank");
    else
        snprintf(text, bytes, "rank%s %s", count == 1 ? "" : "s", numbers);
}
