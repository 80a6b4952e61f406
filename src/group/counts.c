/* SPDX-License-Identifier: MIT */
/* Counts that only the two ranks of a pair know, of all_to_all_v: what one sends must be what the other
 * expects. Each rank adds up a number for every count that it sends and subtracts one for every count that
 * it expects; over all ranks the sum is 0 if they fit, and it travels in the header, so that it costs no
 * message. If they do not, and only then, all ranks tell each other what they send, and who finds another
 * count than it expects says so in a second header. */
#include <inttypes.h>

#include "base/status.h"
#include "group/internal.h"

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

static cz_status tell(cz_work *work)
{
    cz_group *group = work->group;
    for (int r = 0; r < group->size; r++) {
        cz__peer *peer = &work->peers[r];
        int64_t *count = (int64_t *)&work->operation.source.counts[r];
        peer->count = *count;
        if (r == group->rank)
            continue;
        cz__parcel *parcel = &work->parcels[r];
        CZ_TRY(cz__flight_receive(work, &parcel->receive, r, STEP_COUNTS, &peer->count,
                                  sizeof peer->count));
        CZ_TRY(cz__flight_send(work, &parcel->send, r, STEP_COUNTS, count, sizeof *count));
    }
    return CZ_OK;
}

/* This rank's second verdict. */
static void judge(cz_work *work)
{
    cz__header *header = &work->operation.header;
    const int64_t *expected = work->operation.target.counts;
    const int me = work->group->rank;
    char name[CZ__LABEL_BYTES + 32];
    header->balance = 0;
    for (int r = 0; r < work->group->size && header->status == CZ_OK; r++) {
        if (work->peers[r].count == expected[r])
            continue;
        cz__header_name(header, name, sizeof name);
        header->status = CZ_ERR_MISMATCH;
        snprintf(header->sentence, sizeof header->sentence,
                 "%s: rank %d sends %" PRId64 " elements to rank %d, which expects %" PRId64, name,
                 cz_group_global_rank(work->group, r), work->peers[r].count,
                 cz_group_global_rank(work->group, me), expected[r]);
    }
}

static cz_status move(cz_work *work, bool *moved)
{
    bool all, passed = false;
    *moved = !work->round_open;
    if (!work->round_open) {
        work->round_open = true;
        return tell(work);
    }
    CZ_TRY(cz__flights_landed(work, 0, &all));
    if (all) /* the second header uses the flights of the first */
        CZ_TRY(cz__header_passed_on(work, &passed));
    if (!passed)
        return CZ_OK;
    *moved = true;
    judge(work);
    work->round_open = false;
    work->phase = CZ__PHASE_HEADER_UP;
    return CZ_OK;
}

bool cz__counts_advance(cz_work *work)
{
    bool moved = false;
    const cz_status status = move(work, &moved);
    if (status != CZ_OK) {
        cz__operation_fail(work, status, cz_last_error());
        return true;
    }
    return moved;
}
