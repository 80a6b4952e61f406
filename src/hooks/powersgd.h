/* SPDX-License-Identifier: MIT */
/* The inside of PowerSGD, for the files of this folder. */
#ifndef CZ_HOOKS_POWERSGD_H
#define CZ_HOOKS_POWERSGD_H

#include <stdbool.h>
#include <stdint.h>

#include "czero/base.h"
#include "czero/powersgd.h"

/* ---- mersenne.c ---- */
/* The Mersenne Twister MT19937, and what PyTorch draws with it.
 * Matsumoto and Nishimura, ACM Trans. Model. Comput. Simul. 8 (1998). */

typedef struct cz__mersenne {
    uint32_t words[624];
    int next;
    bool has_spare; /* the second number of a pair */
    double spare;
} cz__mersenne;

void cz__mersenne_seed(cz__mersenne *m, uint32_t seed);

/* Uniform below 1e9. */
uint32_t cz__mersenne_below_1e9(cz__mersenne *m);

/* `count` standard normal numbers, as one request. */
void cz__mersenne_normals(cz__mersenne *m, int64_t count, float *out);

/* ---- low_rank.c ---- */
/* Matrices as products of thin ones, for f32 and f64 (`dtype`). M is row-major; a thin matrix of r
 * columns has one column after the other. */

typedef struct cz__low_rank {
    int64_t rows, cols;
    int rank;
    void *matrix; /* M */
    void *p, *q;  /* `rows` and `cols` times `rank` */
} cz__low_rank;

void cz__low_rank_project(cz_dtype dtype, const cz__low_rank *l); /* P = M Q */
void cz__low_rank_back(cz_dtype dtype, const cz__low_rank *l);    /* Q = M^T P */
/* M = P Q^T. The same bits wherever P and Q have the same ones. */
void cz__low_rank_expand(cz_dtype dtype, const cz__low_rank *l);

/* Make `count` columns of `length` elements orthonormal (with an epsilon that is added to norms:
 * nearly so). One that depends on those before it, or is zero, becomes zero; one that is not finite
 * becomes NaN. The same bits from the same bits. Returns how many became zero or NaN. */
int cz__orthogonalise(cz_dtype dtype, int64_t length, int count, void *columns, double epsilon);

/* ---- powersgd.c ---- */

typedef struct cz__powersgd_memory {
    void *data;    /* owned; NULL: nothing is remembered */
    int64_t count; /* elements */
    cz_dtype dtype;
    bool known; /* it was kept in some iteration */
} cz__powersgd_memory;

struct cz_powersgd {
    cz_powersgd_options options; /* with defaults in place */
    const cz_model *model;       /* borrowed */
    int64_t param_count;
    cz__powersgd_memory *errors; /* owned; of each parameter */
    cz__powersgd_memory *starts; /* owned; Q of each parameter or, batched, of each bucket */
    int64_t iter;
    int64_t first_pass; /* the ddp's count of passes at iteration 0; only if `placed` */
    bool placed;
    cz__mersenne seeds;
    int64_t draws; /* seeds that were drawn */
    /* Of what was loaded last, without errors: equal on all ranks; 0: nothing was. */
    uint64_t loaded;
    int64_t before, after;
};

/* ---- powersgd_run.c: one bucket in one iteration ---- */

/* Have zeroed memory of that size, or keep what is there if it is of that size. */
cz_status cz__powersgd_remember(cz__powersgd_memory *memory, cz_memory_kind kind, cz_dtype dtype,
                                int64_t count);

/* Numbers that travel, and the same in the bucket's type if that is narrower than what is computed
 * with. */
typedef struct cz__powersgd_load {
    void *data, *wire;
    int64_t count;
} cz__powersgd_load;

typedef struct cz__powersgd_place {
    int64_t param, offset, count; /* in the buffer */
    bool compressed;
    bool returns; /* what is left out of it comes back; it waits if nobody uses the gradient */
} cz__powersgd_place;

typedef struct cz__powersgd_item {
    int64_t offset;             /* of the matrix in the buffer */
    cz__powersgd_memory *start; /* its Q */
    uint64_t stream;            /* of random numbers, when a column of it is lost */
    bool keeps;                 /* Q is the start of the next iteration */
    cz__low_rank matrix;
} cz__powersgd_item;

typedef struct cz__powersgd_iteration {
    cz_powersgd *s;
    cz_bucket *bucket;
    cz_dtype dtype, wire_dtype;
    int64_t place_count, item_count;
    cz__powersgd_place *places;
    cz__powersgd_item *items; /* those of one shape side by side */
    cz__powersgd_load raw, p, q;
    int64_t before, after;
} cz__powersgd_iteration;

/* As the ddp's hook, on one bucket. */
cz_status cz__powersgd_run(void *state, cz_bucket *bucket);

#endif
