/* SPDX-License-Identifier: MIT */
/* The inside of a PowerSGD state, for the files of this folder. */
#ifndef CZ_HOOKS_POWERSGD_H
#define CZ_HOOKS_POWERSGD_H

#include "czero/powersgd.h"
#include "hooks/low_rank.h"
#include "hooks/mersenne.h"

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
    uint64_t
        loaded; /* of what was loaded last, without errors: equal on all ranks; 0: nothing was */
    int64_t before, after;
};

/* powersgd.c: start seeds anew, as if `draws` had been drawn. */
void cz__powersgd_seed(cz_powersgd *s, int64_t draws);
/* Have zeroed memory of that size, or keep what is there if it is of that size. */
cz_status cz__powersgd_remember(cz__powersgd_memory *memory, cz_memory_kind kind, cz_dtype dtype,
                                int64_t count);
void cz__powersgd_forget(cz__powersgd_memory *memories, int64_t count); /* the array itself, too */

/* ---- one bucket in one iteration ---- */

/* Numbers that travel, and the same in the bucket's type if that is narrower than what is computed with. */
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

/* powersgd_plan.c: all memory that the iteration needs, and what becomes of each gradient. */
cz_status cz__powersgd_plan(cz__powersgd_iteration **out, cz_powersgd *s, cz_bucket *bucket);

/* powersgd_start.c: Q, orthonormal. */
cz_status cz__powersgd_fill_q(const cz__powersgd_iteration *it);
double cz__powersgd_epsilon(const cz__powersgd_iteration *it, int rank);

/* powersgd_run.c */
cz_status cz__powersgd_run(void *state, cz_bucket *bucket);

#endif
