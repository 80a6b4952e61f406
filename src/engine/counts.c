/* SPDX-License-Identifier: MIT */
/* Counts that only the two ranks of a pair know, of all_to_all_v: what one sends must be what the
 * other expects. Each rank adds up a number for every count that it sends and subtracts one for
 * every count that it expects; over all ranks the sum is 0 if they fit, and it travels in the
 * header, so that it costs no message. If they do not, and only then, all ranks tell each other
 * what they send, and who finds another count than it expects says so in a second header. */
#include <inttypes.h>

#include "base/status.h"
#include "engine/engine.h"

enum { STEP_COUNTS = 5 };

static uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* 0 for a count of 0, and another number for every other count of the same pair. */
static uint64_t number(int from, int to, int64_t count)
{
    if (count == 0)
        return 0;
    const uint64_t pair = scramble((uint64_t)from * CZ__MAX_WORLD + (uint64_t)to + 1);
    return scramble(pair + (uint64_t)count) - scramble(pair);
}

uint64_t cz__counts_balance(const cz_group *group, const int64_t *send_counts,
                            const int64_t *receive_counts)
{
    uint64_t balance = 0;
    for (int r = 0; r < group->size; r++)
        balance +=
            number(group->rank, r, send_counts[r]) - number(r, group->rank, receive_counts[r]);
    return balance;
}

/* With one rank: what it says that it sends, and that on its way. */
typedef struct pair {
    int64_t count;
    cz__request send, receive;
} pair;

typedef struct exchange {
    bool told;
    pair pairs[]; /* group->size */
} exchange;

static exchange *exchange_of(const cz_work *work)
{
    return work->data.state;
}

static size_t bytes(int size, bool in_process)
{
    return sizeof(exchange) + (size_t)size * sizeof(pair);
}

static bool takes(const cz_work *work)
{
    return work->verdict.balance;
}

static void begin(cz_work *work)
{
    exchange *all = exchange_of(work);
    all->told = false;
    for (int r = 0; r < work->group->size; r++)
        all->pairs[r].send.up = all->pairs[r].receive.up = false;
}

static cz_status tell_counts(cz_work *work)
{
    cz_group *group = work->group;
    for (int r = 0; r < group->size; r++) {
        pair *with = &exchange_of(work)->pairs[r];
        int64_t *count = (int64_t *)&work->operation.source.counts[r];
        with->count = *count;
        if (r == group->rank)
            continue;
        CZ_TRY(cz__request_receive(work, &with->receive, r, STEP_COUNTS, &with->count,
                                   sizeof with->count));
        CZ_TRY(cz__request_send(work, &with->send, r, STEP_COUNTS, count, sizeof *count));
    }
    return CZ_OK;
}

/* This rank's second verdict. */
static void judge(cz_work *work)
{
    cz__header *header = &work->operation.header;
    const int64_t *expected = work->operation.target.counts;
    const pair *pairs = exchange_of(work)->pairs;
    const int me = work->group->rank;
    char name[CZ__LABEL_BYTES + 32];
    header->balance = 0;
    if (header->status != CZ_OK)
        return;
    for (int r = 0; r < work->group->size; r++) {
        if (pairs[r].count == expected[r])
            continue;
        cz__header_name(header, name, sizeof name);
        header->status = CZ_ERR_MISMATCH;
        snprintf(header->sentence, sizeof header->sentence,
                 "%s: rank %d sends %" PRId64 " elements to rank %d, which expects %" PRId64, name,
                 cz_group_global_rank(work->group, r), pairs[r].count,
                 cz_group_global_rank(work->group, me), expected[r]);
        return;
    }
}

static cz_status advance(cz_work *work, cz__engine_progress *progress)
{
    exchange *all = exchange_of(work);
    if (!all->told) {
        all->told = true;
        *progress = CZ__MOVED;
        return tell_counts(work);
    }
    for (int r = 0; r < work->group->size; r++) {
        bool landed;
        CZ_TRY(cz__request_landed(work, &all->pairs[r].send, &landed));
        if (landed)
            CZ_TRY(cz__request_landed(work, &all->pairs[r].receive, &landed));
        if (!landed)
            return CZ_OK;
    }
    judge(work);
    *progress = CZ__TO_MEET;
    return CZ_OK;
}

static void withdraw(cz_work *work)
{
    for (int r = 0; r < work->group->size; r++) {
        cz__request_withdraw(work, &exchange_of(work)->pairs[r].send);
        cz__request_withdraw(work, &exchange_of(work)->pairs[r].receive);
    }
}

static bool awaits(const cz_work *work, int rank)
{
    const exchange *all = exchange_of(work);
    return cz__request_awaits(&all->pairs[rank].send, rank) ||
           cz__request_awaits(&all->pairs[rank].receive, rank);
}

const cz__engine cz__engine_counts = {.takes = takes,
                                      .bytes = bytes,
                                      .begin = begin,
                                      .advance = advance,
                                      .withdraw = withdraw,
                                      .awaits = awaits};
