/* SPDX-License-Identifier: MIT */
/* A step of a sharded AdamW by hand, in one pass over memory that all ranks can reach: each adds
 * its cut of all gradients, updates, and stores the new values to all parameters. Nothing is
 * checked, and the mean is not kept. For r ranks it reads, per element, r gradients, a parameter
 * and two moments, and writes r parameters and two moments. Where all ranks have one memory of
 * parameters the r stores of a value go to one place, which counts as one, and none of them is
 * streaming. With clipping it takes two passes, and one gradient is written and read between them,
 * and written again. */
#ifndef CZ_BENCH_FUSED_H
#define CZ_BENCH_FUSED_H

#include "ranks.h"
#include "tensors.h"

typedef struct bench_fused {
    bench_meet *meet;
    const bench_loops *loops;
    const bench_tensors *tensors;
    const bench_block *values, *gradients; /* of every rank */
    int rank;
    bool shared;            /* `values` of all ranks are one memory */
    float *moment, *second; /* of this rank's cuts, one after the other */
    float max_norm;         /* of the mean; 0: no clipping */
} bench_fused;

size_t bench_fused_count(const bench_fused *f); /* elements that this rank owns */
/* only_traffic: the same reads and writes, and every value stays as it is. streams: 1 with
 * streaming stores. */
void bench_fused_run(const bench_fused *f, bool only_traffic, int streams);
double bench_fused_traffic(const bench_fused *f); /* bytes of all ranks */

#endif
