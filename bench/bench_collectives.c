/* SPDX-License-Identifier: MIT */
/* Collectives between ranks that are threads, beside the same by hand (shared/yardstick.h) on the
 * same threads and the same memory. In each round every variant runs once, and before each a cache
 * line is bounced between the first two cores: rounds in which they moved in between do not
 * count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"
#include "shared/result.h"
#include "shared/yardstick.h"

enum { SIZES = 6, VARIANTS = 3 }; /* ours, by hand with plain stores, with streaming ones */

static const size_t all_sizes[SIZES] = {4, 4 << 10, 64 << 10, 1 << 20, 16 << 20, (size_t)64 << 20};

typedef struct bench {
    bench_yardstick y;
    bool quick, small_pages;
    int rounds, repeats[VARIANTS];
    size_t most; /* bytes of the largest whole */
    bench_samples plain, streaming;
} bench;

typedef struct rank {
    bench *b;
    cz_group *group;
    int rank;
    bench_kind kind;
    size_t count;
} rank;

static cz_status ours(const rank *r)
{
    bench_yardstick *y = &r->b->y;
    const int64_t count = (int64_t)r->count, each = count / y->meet.ranks;
    float *whole = y->whole[r->rank], *part = y->part[r->rank];
    switch (r->kind) {
    case BENCH_ALL_REDUCE:
        return cz_all_reduce(r->group, whole, count, CZ_F32, CZ_SUM, NULL);
    case BENCH_REDUCE_SCATTER:
        return cz_reduce_scatter(r->group, whole, part, each, CZ_F32, CZ_SUM, NULL);
    case BENCH_ALL_GATHER:
        return cz_all_gather(r->group, part, whole, each, CZ_F32, NULL);
    default:
        return cz_broadcast(r->group, whole, count, CZ_F32, 0, NULL);
    }
}

/* Seconds of one of `repeats` runs, from when all have come until all have gone. */
static cz_status run(const rank *r, int variant, int repeats, double *seconds, double *bounce)
{
    bench_meet *meet = &r->b->y.meet;
    bench_meet_all(meet, r->rank);
    *bounce = bench_bounce(meet, r->rank);
    bench_meet_all(meet, r->rank);
    const double begin = bench_seconds();
    for (int i = 0; i < repeats; i++)
        if (variant == 0)
            CZ_TRY(ours(r));
        else
            bench_yardstick_run(&r->b->y, r->kind, r->rank, r->count, variant - 1);
    bench_meet_all(meet, r->rank);
    *seconds = (bench_seconds() - begin) / repeats;
    return CZ_OK;
}

/* So many that a sample takes a millisecond or two, and no more than one where it takes longer by
 * itself. */
static cz_status calibrate(const rank *r, int variant)
{
    double seconds, bounce;
    bench *b = r->b;
    CZ_TRY(run(r, variant, 1, &seconds, &bounce));
    for (int i = 0; i < 2; i++) {
        CZ_TRY(run(r, variant, i ? b->repeats[variant] : 1, &seconds, &bounce));
        if (r->rank == 0) {
            const double fit = (b->quick ? 2e-4 : 2e-3) / seconds;
            b->repeats[variant] = fit < 1 ? 1 : fit > 5000 ? 5000 : (int)fit;
        }
        bench_meet_all(&b->y.meet, r->rank);
    }
    return CZ_OK;
}

static cz_status one_round(const rank *r, int round)
{
    double seconds[VARIANTS], bounce[VARIANTS];
    bench *b = r->b;
    for (int i = 0; i < VARIANTS; i++) { /* one way, then the other */
        const int variant = round % 2 ? VARIANTS - 1 - i : i;
        CZ_TRY(run(r, variant, b->repeats[variant], &seconds[variant], &bounce[variant]));
    }
    if (r->rank > 0)
        return CZ_OK;
    b->plain.ours[round] = b->streaming.ours[round] = seconds[0];
    b->plain.ours_bounce[round] = b->streaming.ours_bounce[round] = bounce[0];
    b->plain.limit[round] = seconds[1];
    b->plain.limit_bounce[round] = bounce[1];
    b->streaming.limit[round] = seconds[2];
    b->streaming.limit_bounce[round] = bounce[2];
    return CZ_OK;
}

/* Of two threads: see docs/performance.md. */
static double wanted(const bench *b, bench_kind kind, size_t bytes)
{
    if (b->y.meet.ranks != 2)
        return 0;
    if (bytes >= 4 << 10 && bytes <= 1 << 20)
        return 0.5;
    return kind == BENCH_ALL_GATHER && bytes >= (size_t)64 << 20 ? 0.9 : 0;
}

static cz_status measure(rank *r, bench_kind kind, size_t bytes)
{
    bench *b = r->b;
    const size_t ranks = (size_t)b->y.meet.ranks;
    const size_t unit = kind == BENCH_REDUCE_SCATTER || kind == BENCH_ALL_GATHER ? ranks : 1,
                 line = bytes > 4 << 10 ? BENCH_LINE : 1;
    r->kind = kind;
    r->count = (bytes / sizeof(float) + unit * line - 1) / (unit * line) * (unit * line);
    for (int variant = 0; variant < VARIANTS; variant++)
        CZ_TRY(calibrate(r, variant));
    for (int round = 0; round < b->rounds; round++)
        CZ_TRY(one_round(r, round));
    if (r->rank > 0)
        return CZ_OK;
    const bool better =
        bench_summarise(&b->streaming).limit < bench_summarise(&b->plain).limit && bytes > 64;
    bench_say(&(bench_row){.name = bench_kind_names[kind],
                           .bytes = r->count * sizeof(float),
                           .ranks = b->y.meet.ranks,
                           .against = better ? "by hand, streaming stores" : "by hand",
                           .wanted = wanted(b, kind, bytes)},
              better ? &b->streaming : &b->plain);
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *context)
{
    rank r = {.b = context, .group = group, .rank = cz_group_rank(group)};
    bench *b = r.b;
    const size_t room = b->most + 4096;
    cz_status status = CZ_OK;
    bench_pin(r.rank);
    b->y.whole[r.rank] = bench_pages(room, !b->small_pages);
    b->y.part[r.rank] = bench_pages(room, !b->small_pages);
    bench_meet_all(&b->y.meet, r.rank);
    for (int kind = 0; kind < BENCH_KINDS && status == CZ_OK; kind++)
        for (int i = 0; i < SIZES && status == CZ_OK; i++)
            if (all_sizes[i] <= b->most)
                status = measure(&r, (bench_kind)kind, all_sizes[i]);
    if (status != CZ_OK)
        return status; /* peers may still use the memory */
    bench_meet_all(&b->y.meet, r.rank);
    bench_pages_free(b->y.whole[r.rank], room);
    bench_pages_free(b->y.part[r.rank], room);
    return CZ_OK;
}

static int bench_ranks(const bench *settings, int ranks)
{
    bench *b = aligned_alloc(64, (sizeof(bench) + 63) / 64 * 64);
    char heading[96];
    if (!b)
        return 1;
    *b = *settings;
    b->y.meet.ranks = ranks;
    b->y.loops = bench_loops_get();
    snprintf(heading, sizeof heading, "collectives of %d threads, %s pages, GB/s of the whole",
             ranks, b->small_pages ? "small" : "huge");
    bench_heading(heading);
    const cz_status status = cz_launch(
        each_rank, b, &(cz_launch_options){.size = sizeof(cz_launch_options), .ranks = ranks});
    if (status != CZ_OK)
        fprintf(stderr, "%s\n", cz_last_error());
    free(b);
    return status != CZ_OK;
}

int main(int argc, char **argv)
{
    static bench b;
    int ranks = 0, rounds = 0;
    bench_arguments(argc, argv, "Collectives between threads, and the same by hand.",
                    (const bench_option[]){
                        {"--quick", "small sizes, few rounds", .flag = &b.quick},
                        {"--small-pages", "4 KiB pages for both sides", .flag = &b.small_pages},
                        {"--ranks", "1 to 4; otherwise 2 and then 4", .number = &ranks},
                        {"--rounds", "of each (15)", .number = &rounds},
                        {0}});
    if (ranks > BENCH_RANKS || rounds > BENCH_ROUNDS) {
        fprintf(stderr, "at most %d ranks and %d rounds\n", BENCH_RANKS, BENCH_ROUNDS);
        return 2;
    }
    b.rounds = rounds ? rounds : b.quick ? 3 : 15;
    b.plain.rounds = b.streaming.rounds = b.rounds;
    b.most = b.quick ? (size_t)1 << 20 : (size_t)64 << 20;
    if (ranks)
        return bench_ranks(&b, ranks);
    return bench_ranks(&b, 2) || bench_ranks(&b, 4);
}
