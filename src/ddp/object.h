/* SPDX-License-Identifier: MIT */
/* The inside of a data-parallel model, for the files of this folder. */
#ifndef CZ_DDP_OBJECT_H
#define CZ_DDP_OBJECT_H

#include <pthread.h>
#include <stdatomic.h>

#include "ddp/ddp.h"
#include "group/collective.h"
#include "group/description.h"

typedef struct cz__ddp_param {
    int bucket;      /* where its gradient travels */
    int uses;        /* marks until it is complete */
    atomic_int left; /* of them in this pass; below 0: one too many */
} cz__ddp_param;

typedef struct cz__ddp_bucket {
    cz_ddp *ddp;          /* whose it is */
    int64_t first, count; /* its parameters: a run of cz_ddp.order */
    cz_dtype dtype;
    atomic_llong pending; /* parameters of it that are not complete in this pass */
    bool empty;           /* nobody takes part: it does not travel in this pass */
    uint8_t *include;     /* owned, a flag per parameter of the model: who takes part */
    cz_work *work;        /* owned; NULL: not on its way */
} cz__ddp_bucket;

struct cz_ddp {
    cz_group *group;   /* owned: buckets travel here, in their order */
    cz_group *control; /* owned: everything else */
    cz_model *model;   /* borrowed; frozen if `froze` */
    cz_ddp_options options;
    int64_t param_count;
    int bucket_count;
    cz__ddp_param *params;   /* owned, as all that follows; param_count */
    int64_t *order;          /* all parameters, bucket by bucket */
    cz__ddp_bucket *buckets; /* bucket_count */
    uint8_t *trained;        /* takes part in this pass */
    void **gradients;        /* addresses in this pass; NULL: counts as zeros */
    void **results;          /* where the mean goes */
    cz_shard_map *map;       /* each bucket cut evenly */
    const cz_shard_map
        *bound; /* borrowed: of a sharded optimizer, whose owners alone get the mean; NULL:
                                  all ranks get it */
    cz__ddp_listener listener; /* of the same */
    int64_t *arrivals; /* parameters in the order in which they were complete in the first pass */
    atomic_llong arrived;
    int64_t *launch; /* the order in which buckets start, equal on all ranks */
    int64_t *full;   /* buckets in the order in which they were full in the first pass */
    atomic_int full_count;
    bool launch_agreed; /* it is the order of the first pass on rank 0 */
    bool
        reduced; /* the last pass synchronised and succeeded; `trained` says which gradients it had */
    int64_t passes; /* that synchronised and succeeded: the same number on all ranks */
    bool rebuilt;
    bool froze;
    cz__description room;
    atomic_bool begun; /* a pass has, and it synchronises if `syncs` */
    bool syncs;
    pthread_mutex_t lock; /* the rest: who starts buckets */
    int next;             /* the place in `launch` that starts next */
    cz_status failed; /* of this rank, in this pass; all further buckets carry it to the others */
    char why[320];
};

/* assign.c: the bucket of each of the `count` parameters in `order`; returns how many there are. Parameters
 * of one type share buckets, which are closed once they have `bytes` of gradients, the first of each type
 * once it has `first_bytes`. Buckets are numbered as they are closed; those that stay open come last, by
 * their first parameter. */
int cz__ddp_assign(const cz_model *model, int64_t count, const int64_t *order, size_t first_bytes,
                   size_t bytes, int *bucket_of);

/* buckets.c: make the buckets of these parameters in this order. Nothing was changed on failure. */
cz_status cz__ddp_make_buckets(cz_ddp *ddp, const int64_t *order);
void cz__ddp_free_buckets(cz__ddp_bucket *buckets, int count);

/* reducer.c: start what can start, in order. With the lock. */
void cz__ddp_start_ready(cz_ddp *ddp);
/* This rank's pass has failed: the sentence is the thread's. Returns `status`. Without the lock. */
cz_status cz__ddp_fail(cz_ddp *ddp, cz_status status);

#endif
