/* SPDX-License-Identifier: MIT */
/* World size 1: there is nobody to send to. The shortest backend to copy from. */
#include "base/status.h"
#include "group/internal.h"

static cz_status post(void *endpoint, cz_transfer *transfer)
{
    return cz__fail(CZ_ERR_INTERNAL, "self: there is no rank %d", transfer->peer);
}

static cz_status test(void *endpoint, cz_transfer *transfer, bool *done)
{
    *done = false;
    return post(endpoint, transfer);
}

static void start(void *endpoint, void (*notify)(void *context), void *context)
{
}

static bool withdraw(void *endpoint, cz_transfer *transfer)
{
    return true;
}

static void break_group(void *endpoint, uint64_t sequence, cz_status status, const char *sentence)
{
}

static cz_status broken(void *endpoint, uint64_t *sequence, char *sentence, size_t bytes)
{
    return CZ_OK;
}

static void announce(void *endpoint, uint64_t begun)
{
}

static uint64_t announced(void *endpoint, int rank)
{
    return UINT64_MAX; /* nobody is ever late */
}

static void leave(void *endpoint, const char *why)
{
}

static cz_status split(void *endpoint, uint64_t id, const int *ranks, int count, int rank,
                       void **out)
{
    *out = endpoint; /* there is nothing to keep */
    return CZ_OK;
}

const cz_backend cz__backend_self = {
    .abi = CZ_BACKEND_ABI,
    .size = sizeof(cz_backend),
    .name = "self",
    .start = start,
    .post_send = post,
    .post_receive = post,
    .test = test,
    .withdraw = withdraw,
    .break_group = break_group,
    .broken = broken,
    .announce = announce,
    .announced = announced,
    .leave = leave,
    .split = split,
};
