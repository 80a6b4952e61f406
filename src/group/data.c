/* SPDX-License-Identifier: MIT */
/* The data of an operation by messages, in rounds (round.c). Some of them are under way at once. */
#include "base/clock.h"
#include "base/status.h"
#include "group/internal.h"

static void begin(cz_work *work)
{
    const cz__operation *operation = &work->operation;
    const cz__region *given = cz__region_given(operation);
    const int me = work->group->rank;
    for (int r = 0; r < work->group->size; r++) {
        cz__cursor_begin(operation->reduces ? &operation->source : given, r, &work->peers[r].out);
        cz__cursor_begin(cz__region_taken(operation), r, &work->peers[r].in);
    }
    cz__cursor_begin(given, me, &work->own);
    cz__cursor_begin(&operation->target, me, &work->result);
    work->all_opened = !operation->reduces && !operation->exchanges;
}

/* The streams of a reduction and of the exchange after it have the same rounds. */
static cz_status open_round(cz_work *work, bool *moved)
{
    const int round = work->next_round;
    const bool reduces = work->operation.reduces;
    bool any;
    if (work->all_opened || work->rounds[round] != CZ__ROUND_FREE)
        return CZ_OK;
    CZ_TRY(reduces ? cz__round_open_reduce(work, round, &any)
                   : cz__round_open_exchange(work, round, &any));
    *moved = true;
    work->all_opened = !any;
    if (!any)
        return CZ_OK;
    work->rounds[round] = reduces ? CZ__ROUND_REDUCES : CZ__ROUND_EXCHANGES;
    work->next_round = (round + 1) % work->rounds_most;
    return CZ_OK;
}

/* All of it has landed. */
static cz_status close_round(cz_work *work, int round)
{
    bool any;
    if (work->rounds[round] == CZ__ROUND_EXCHANGES) {
        cz__round_close_exchange(work, round);
        work->rounds[round] = CZ__ROUND_FREE;
        return CZ_OK;
    }
    CZ_TRY(cz__round_close_reduce(work, round));
    work->rounds[round] = CZ__ROUND_FREE;
    if (!work->operation.exchanges)
        return CZ_OK;
    work->rounds[round] = CZ__ROUND_EXCHANGES;
    return cz__round_open_exchange(work, round, &any);
}

/* The oldest first, and what is done with a round not before it was done with those. */
static cz_status move_rounds(cz_work *work, bool *moved)
{
    cz__round before = CZ__ROUND_FREE;
    for (int i = 0; i < work->rounds_most; i++) {
        const int round = (work->next_round + i) % work->rounds_most;
        bool landed = false;
        if (work->rounds[round] == CZ__ROUND_FREE || work->rounds[round] == before)
            continue;
        CZ_TRY(cz__flights_landed(work, round, &landed));
        if (landed) {
            CZ_TRY(close_round(work, round));
            work->since = cz__seconds(); /* a long transfer is no late one */
            *moved = true;
        }
        before = work->rounds[round];
    }
    return CZ_OK;
}

static bool is_over(const cz_work *work)
{
    bool over = work->all_opened;
    for (int i = 0; i < work->rounds_most; i++)
        over = over && work->rounds[i] == CZ__ROUND_FREE;
    return over;
}

static cz_status go(cz_work *work, bool *any)
{
    for (bool moved = true; moved && !is_over(work); *any |= moved) {
        moved = false;
        CZ_TRY(move_rounds(work, &moved));
        CZ_TRY(open_round(work, &moved));
    }
    return CZ_OK;
}

bool cz__data_advance(cz_work *work)
{
    bool any = !work->data_begun;
    if (!work->data_begun) {
        work->data_begun = true;
        begin(work);
    }
    const cz_status status = go(work, &any);
    if (status != CZ_OK) {
        cz__operation_fail(work, status, cz_last_error());
        return true;
    }
    if (is_over(work))
        work->phase = CZ__PHASE_CONTINUE;
    return any || work->phase == CZ__PHASE_CONTINUE;
}
