/* SPDX-License-Identifier: MIT */
#include "fused.h"

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
           (f->meet->ranks + (f->shared ? 1 : f->meet->ranks) + 5);
}

static void run_piece(const bench_fused *f, int piece, size_t done, bool only_traffic, int streams)
{
    const bench_adamw a = {1 - 1e-6f, 0.1f, 0.999f, 0.001f,
                           1e-4f,     1,    1e-8f,  1 / (float)f->meet->ranks};
    float *p[BENCH_RANKS], *moment = f->moment + done, *second = f->second + done;
    const float *g[BENCH_RANKS];
    size_t begin, end, count;
    cut(f, piece, &begin, &end);
    for (int k = 0; k < f->meet->ranks; k++) {
        float *gradient;
        bench_block_piece(&f->values[k], f->tensors, piece, &p[k], &count);
        bench_block_piece(&f->gradients[k], f->tensors, piece, &gradient, &count);
        p[k] += begin;
        g[k] = gradient + begin;
    }
    if (only_traffic)
        f->loops->zero_mix[streams](end - begin, f->meet->ranks, f->rank, p, g, moment, second);
    else
        f->loops->zero_step[streams](end - begin, f->meet->ranks, f->rank, p, g, moment, second,
                                     &a);
}

void bench_fused_run(const bench_fused *f, bool only_traffic, int streams)
{
    size_t done = 0, begin, end;
    bench_meet_all(f->meet, f->rank);
    for (int i = 0; i < pieces(f); i++) {
        run_piece(f, i, done, only_traffic, streams);
        cut(f, i, &begin, &end);
        done += end - begin;
    }
    bench_meet_all(f->meet, f->rank);
}
