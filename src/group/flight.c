/* SPDX-License-Identifier: MIT */
/* Messages of an operation: their tags, sending and receiving them, taking them back. */
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

void cz__flight_withdraw(cz_work *work, cz__flight *flight)
{
    if (flight->up && !work->group->backend->withdraw(work->group->endpoint, &flight->transfer))
        work->stuck = true;
    flight->up = false;
}

bool cz__flight_awaits(const cz__flight *flight, int rank)
{
    return flight->up && flight->transfer.peer == rank;
}
