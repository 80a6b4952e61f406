/* SPDX-License-Identifier: MIT */
#include "fused.h"

#include <math.h>

/* Equal on all ranks, and never more than whole lines. */
static void cut(const bench_fused *f, int piece, size_t *begin, size_t *end)
{
    size_t count;
    float *at;
    bench_block_piece(&f->values[f->rank], f->tensors, piece, &at, &count);
    bench_cut(count, f->meet->ranks, f->rank, begin, end);
}

static int pieces(const bench_fused *f)
{
    return bench_block_pieces(&f->values[f->rank], f->tensors);
}

size_t bench_fused_count(const bench_fused *f)
{
    size_t all = 0, begin, end;
    for (int i = 0; i < pieces(f); i++) {
        cut(f, i, &begin, &end);
        all += end - begin;
    }
    return all;
}

double bench_fused_traffic(const bench_fused *f)
{
    return (double)f->tensors->total * sizeof(float) *
           (f->meet->ranks + (f->shared ? 1 : f->meet->ranks) + 5 + (f->max_norm > 0 ? 3 : 0));
}

/* This rank's cut of a piece, in the memory of every rank. */
typedef struct work {
    float *p[BENCH_RANKS], *g[BENCH_RANKS], *moment, *second;
    size_t count;
} work;

static void work_on(const bench_fused *f, int piece, size_t done, work *w)
{
    size_t begin, end, count;
    cut(f, piece, &begin, &end);
    for (int k = 0; k < f->meet->ranks; k++) {
        bench_block_piece(&f->values[k], f->tensors, piece, &w->p[k], &count);
        bench_block_piece(&f->gradients[k], f->tensors, piece, &w->g[k], &count);
        w->p[k] += begin;
        w->g[k] += begin;
    }
    w->moment = f->moment + done;
    w->second = f->second + done;
    w->count = end - begin;
}

static void run_piece(const bench_fused *f, const work *w, bool only_traffic, int streams,
                      float factor)
{
    const int ranks = f->meet->ranks;
    const bench_adamw a = {1 - 1e-6f, 0.1f, 0.999f, 0.001f, 1e-4f, 1, 1e-8f, 1 / (float)ranks};
    const float *g[BENCH_RANKS];
    for (int k = 0; k < ranks; k++)
        g[k] = w->g[k];
    if (f->max_norm > 0)
        f->loops->clip_step[streams](w->count, ranks, f->rank, w->p, w->g[f->rank], factor,
                                     w->moment, w->second, only_traffic ? NULL : &a);
    else if (only_traffic)
        f->loops->zero_mix[streams](w->count, ranks, f->rank, w->p, g, w->moment, w->second);
    else
        f->loops->zero_step[streams](w->count, ranks, f->rank, w->p, g, w->moment, w->second, &a);
}

/* The first pass, and what to clip with. */
static float factor_of(const bench_fused *f)
{
    const int ranks = f->meet->ranks;
    double squares = 0;
    for (int i = 0; i < pieces(f); i++) {
        const float *g[BENCH_RANKS];
        work w;
        work_on(f, i, 0, &w);
        for (int k = 0; k < ranks; k++)
            g[k] = w.g[k];
        squares += f->loops->mean(w.count, ranks, g, 1 / (float)ranks, w.g[f->rank]);
    }
    const float mine = (float)squares, *all[BENCH_RANKS];
    bench_mail(f->meet, f->rank, 1, &mine, all);
    squares = 0;
    for (int k = 0; k < ranks; k++)
        squares += (double)*all[k];
    const double factor = f->max_norm / (sqrt(squares) + 1e-6);
    return factor < 1 ? (float)factor : 1;
}

void bench_fused_run(const bench_fused *f, bool only_traffic, int streams)
{
    size_t done = 0;
    bench_meet_all(f->meet, f->rank);
    const float factor = f->max_norm > 0 ? factor_of(f) : 1;
    for (int i = 0; i < pieces(f); i++) {
        work w;
        work_on(f, i, done, &w);
        run_piece(f, &w, only_traffic, streams, factor);
        done += w.count;
    }
    bench_meet_all(f->meet, f->rank);
}
