/* SPDX-License-Identifier: MIT */
/* Hand-written loops over memory, which are limits to compare with. One source, compiled once for
 * each instruction set; counts are of floats, addresses and counts multiples of a cache line (64
 * bytes). */
#ifndef CZ_BENCH_LOOPS_H
#define CZ_BENCH_LOOPS_H

#include <stddef.h>

enum { BENCH_LINE = 16, BENCH_RANKS = 4 }; /* floats in a line; ranks that the loops below know */

/* AdamW for one step, prepared: p *= decay, m, v, p -= size m / (sqrt(v) / root + eps). */
typedef struct bench_adamw {
    float decay, one_minus_beta1, beta2, one_minus_beta2, size, root, eps, inverse_ranks;
} bench_adamw;

typedef struct bench_loops {
    const char *name; /* of the instruction set */
    /* Read every array, write all but the gradient: the traffic of SGD, with momentum, of Adam. */
    void (*mix2)(size_t count, float *p, const float *g);
    void (*mix3)(size_t count, float *p, const float *g, float *m);
    void (*mix4)(size_t count, float *p, const float *g, float *m, float *v);
    /* [0]: plain stores, [1]: streaming stores (past the caches), where the processor has them. */
    void (*copy[2])(size_t count, float *to, const float *from);
    /* to = the sum of from[0 … ranks - 1] */
    void (*sum[2])(size_t count, int ranks, float *to, const float *const *from);
    /* all of them = their sum */
    void (*sum_all[2])(size_t count, int ranks, float *const *all);
    /* AdamW with the mean of ranks' gradients, the new parameters to all ranks: to `mine` with
     * plain stores, to the others as [0] or [1] says. */
    void (*zero_step[2])(size_t count, int ranks, int mine, float *const *p, const float *const *g,
                         float *m, float *v, const bench_adamw *a);
    /* For clipping, in two passes: own = the mean of ranks' gradients (`own` is one of them),
     * returning the sum of its squares; then own *= factor, and AdamW with it as above. With `a`
     * NULL only its reads and writes. */
    double (*mean)(size_t count, int ranks, const float *const *g, float inverse_ranks, float *own);
    void (*clip_step[2])(size_t count, int ranks, int mine, float *const *p, float *own,
                         float factor, float *m, float *v, const bench_adamw *a);
    /* The same reads and writes, hardly any arithmetic; every value stays as it is. */
    void (*zero_mix[2])(size_t count, int ranks, int mine, float *const *p, const float *const *g,
                        float *m, float *v);
    /* In place of a backward pass: each gradient made from `x` by so many multiplications and
     * additions, written or [1] added to what is there. `count` is a multiple of 16. */
    void (*backward[2])(size_t count, float *g, const float *x, int rounds);
} bench_loops;

const bench_loops *bench_loops_get(void); /* the best that this processor can run */

#endif
