/* SPDX-License-Identifier: MIT */
/* Messages of an operation: their tags, sending and receiving them, taking them back. */
#include "base/status.h"
#include "operation/operation.h"

uint64_t cz__work_tag(const cz_work *work, unsigned step)
{
    return (uint64_t)work->lane << 63 | (work->sequence & ((1ull << 39) - 1)) << 24 |
           (uint64_t)(work->family.child & 0xffffu) << 8 | step;
}

typedef enum direction { SEND, RECEIVE, RECEIVE_MOST } direction;

static cz_status post(cz_work *work, cz__request *request, int peer, unsigned step, void *data,
                      size_t bytes, direction way)
{
    cz_group *group = work->group;
    request->transfer = (cz_transfer){.size = sizeof(cz_transfer),
                                      .peer = peer,
                                      .tag = cz__work_tag(work, step),
                                      .data = data,
                                      .bytes = bytes,
                                      .device = group->device,
                                      .at_most = way == RECEIVE_MOST};
    const cz_status status =
        way == SEND ? group->backend->post_send(group->endpoint, &request->transfer)
                    : group->backend->post_receive(group->endpoint, &request->transfer);
    request->up = status == CZ_OK;
    if (request->up && way == SEND)
        cz__traffic_sent(group, step, bytes);
    return status;
}

cz_status cz__request_send(cz_work *work, cz__request *request, int peer, unsigned step, void *data,
                           size_t bytes)
{
    return post(work, request, peer, step, data, bytes, SEND);
}

cz_status cz__request_receive(cz_work *work, cz__request *request, int peer, unsigned step,
                              void *data, size_t bytes)
{
    return post(work, request, peer, step, data, bytes, RECEIVE);
}

cz_status cz__request_receive_most(cz_work *work, cz__request *request, int peer, unsigned step,
                                   void *data, size_t most)
{
    return post(work, request, peer, step, data, most, RECEIVE_MOST);
}

cz_status cz__request_landed(cz_work *work, cz__request *request, bool *landed)
{
    *landed = !request->up;
    if (*landed)
        return CZ_OK;
    const cz_group *group = work->group;
    CZ_TRY(group->backend->test(group->endpoint, &request->transfer, landed));
    request->up = !*landed;
    return *landed ? CZ_OK : cz__group_intact(group, work->sequence);
}

void cz__request_withdraw(cz_work *work, cz__request *request)
{
    if (request->up && !work->group->backend->withdraw(work->group->endpoint, &request->transfer))
        work->stuck = true;
    request->up = false;
}

bool cz__request_awaits(const cz__request *request, int rank)
{
    return request->up && request->transfer.peer == rank;
}
