/* SPDX-License-Identifier: MIT */
#include "yardstick.h"

#include <string.h>

const char *const bench_kind_names[BENCH_KINDS] = {"all_reduce", "reduce_scatter", "all_gather",
                                                   "broadcast"};
enum { MAIL = 12 };

/* Everything in one exchange of cache lines. */
static void run_small(bench_yardstick *y, bench_kind kind, int rank, size_t count)
{
    const float *all[BENCH_RANKS];
    const size_t n = (size_t)y->meet.ranks, each = count / n;
    const float *mine = kind == BENCH_ALL_GATHER ? y->part[rank] : y->whole[rank];
    bench_mail(&y->meet, rank, (int)(kind == BENCH_ALL_GATHER ? each : count), mine, all);
    if (kind == BENCH_BROADCAST) {
        memcpy(y->whole[rank], all[0], count * sizeof(float));
        return;
    }
    if (kind == BENCH_ALL_GATHER) {
        for (size_t r = 0; r < n; r++)
            memcpy(y->whole[rank] + r * each, all[r], each * sizeof(float));
        return;
    }
    const bool scatters = kind == BENCH_REDUCE_SCATTER;
    float *to = scatters ? y->part[rank] : y->whole[rank];
    for (size_t i = 0, from = scatters ? (size_t)rank * each : 0; i < (scatters ? each : count);
         i++) {
        float sum = all[0][from + i];
        for (size_t r = 1; r < n; r++)
            sum += all[r][from + i];
        to[i] = sum;
    }
}

/* A rank adds its cut of all wholes, and writes it to all of them. */
static void all_reduce(bench_yardstick *y, int rank, size_t count, int streams)
{
    float *at[BENCH_RANKS];
    size_t begin, end;
    bench_cut(count, y->meet.ranks, rank, &begin, &end);
    for (int r = 0; r < y->meet.ranks; r++)
        at[r] = y->whole[r] + begin;
    y->loops->sum_all[streams](end - begin, y->meet.ranks, at);
}

/* Blocks of ranks need not begin at a line where there are three ranks: sizes here are multiples of
 * it. */
static void reduce_scatter(bench_yardstick *y, int rank, size_t each, int streams)
{
    const float *at[BENCH_RANKS];
    for (int r = 0; r < y->meet.ranks; r++)
        at[r] = y->whole[r] + (size_t)rank * each;
    y->loops->sum[streams](each, y->meet.ranks, y->part[rank], at);
}

static void all_gather(bench_yardstick *y, int rank, size_t each, int streams)
{
    for (int r = 0; r < y->meet.ranks; r++)
        y->loops->copy[streams](each, y->whole[rank] + (size_t)r * each, y->part[r]);
}

/* All ranks, the root too, copy a cut to all others. */
static void broadcast(bench_yardstick *y, int rank, size_t count, int streams)
{
    size_t begin, end;
    bench_cut(count, y->meet.ranks, rank, &begin, &end);
    for (int r = 1; r < y->meet.ranks; r++)
        y->loops->copy[streams](end - begin, y->whole[r] + begin, y->whole[0] + begin);
}

void bench_yardstick_run(bench_yardstick *y, bench_kind kind, int rank, size_t count, int streams)
{
    const size_t each = count / (size_t)y->meet.ranks;
    if (count <= MAIL) {
        run_small(y, kind, rank, count);
        return;
    }
    bench_meet_all(&y->meet, rank);
    if (kind == BENCH_ALL_REDUCE)
        all_reduce(y, rank, count, streams);
    else if (kind == BENCH_REDUCE_SCATTER)
        reduce_scatter(y, rank, each, streams);
    else if (kind == BENCH_ALL_GATHER)
        all_gather(y, rank, each, streams);
    else
        broadcast(y, rank, count, streams);
    bench_meet_all(&y->meet, rank);
}
