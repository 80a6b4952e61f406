/* SPDX-License-Identifier: MIT */
/* The inside of a data-parallel model, for the files of this folder. */
#ifndef CZ_DDP_OBJECT_H
#define CZ_DDP_OBJECT_H

#include <pthread.h>
#include <stdatomic.h>

#include "ddp/ddp.h"
#include "group/collective.h"
#include "collective/description.h"
#include "join/join.h"
#include "parts/parts.h"
#include "tensor/model.h"

/* What a pass is doing. */
enum {
    CZ__PASS_NONE,
    /* Values of the last one may still be on their way: the first mark waits for them. */
    CZ__PASS_BEGUN,
    CZ__PASS_OPEN
};

typedef struct cz__ddp_param {
    int bucket;      /* where its gradient travels */
    int uses;        /* marks until it is complete; 0: a static graph that does not use it here */
    atomic_int left; /* of them in this pass; below 0: one too many */
    /* Marked in a pass that did not synchronise, since the last one that did. */
    atomic_bool added_to;
} cz__ddp_param;

/* What a hook may ask for while it works on one bucket. */
enum { CZ__BUCKET_MEMORIES = 16, CZ__BUCKET_LASTS = 8 };

typedef struct cz__bucket_memory {
    const cz_device *device; /* NULL: nothing was had yet */
    void *data;              /* owned */
    size_t bytes;
} cz__bucket_memory;

typedef struct cz__bucket_last {
    cz_continuation run;
    void *context;
} cz__bucket_last;

struct cz_bucket {
    cz_ddp *ddp;          /* whose it is */
    int index;            /* its number */
    int64_t first, count; /* its parameters: a run of cz_ddp.order */
    cz_dtype dtype;
    size_t bytes;           /* with frozen parameters */
    char label[48];         /* what messages call it: its number and its first parameter, */
    int64_t named_after;    /* which is this one less 1; 0: it has no name yet */
    atomic_llong pending;   /* parameters of it that are not complete in this pass */
    bool empty;             /* nobody takes part: it does not travel in this pass */
    uint8_t *include;       /* owned, a flag per parameter of the model: who takes part */
    cz_work *work;          /* owned; NULL: not on its way */
    cz_work *values;        /* owned; NULL: its parameters' values are not on their way */
    cz__reserve *transfers; /* owned; NULL: there is no need; memory for these */
    int64_t taking;         /* parameters in this pass: a run of cz_ddp.taking, from `first` on */
    int64_t elements;       /* of all of these */
    char *data; /* where a hook finds them: in `buffer`, in place, or where it wants them */
    cz_dtype data_dtype;                             /* and their type there */
    void *buffer;                                    /* owned; NULL: not needed yet */
    cz__bucket_memory memories[CZ__BUCKET_MEMORIES]; /* of the hook */
    cz__bucket_last lasts[CZ__BUCKET_LASTS];         /* called when its works have ended */
    int memory_count, last_count;                    /* in this pass */
    bool hooked;                                     /* the hook was called in it */
};

struct cz_ddp {
    cz_group *group;         /* owned: buckets travel here, in their order */
    cz_group *control;       /* owned: everything else */
    cz__object object;       /* made over the group that it was given */
    cz_model *model;         /* borrowed; frozen if `froze` */
    const cz_device *device; /* whose memory the groups move */
    cz_ddp_options options;
    int64_t param_count;
    int bucket_count;
    cz__ddp_param *params; /* owned, as all that follows; param_count */
    int64_t *order;        /* all parameters, bucket by bucket */
    int64_t *taking; /* those that take part in this pass, from the first place of each bucket on */
    int64_t *offsets;   /* of each of these in its bucket's buffer, in elements */
    void **buffered;    /* of each parameter there, the address of element 0 */
    cz_bucket *buckets; /* bucket_count */
    uint8_t *trained;   /* takes part in this pass */
    void **gradients;   /* addresses in this pass; NULL: counts as zeros */
    void **results;     /* where the mean goes */
    cz_shard_map *map;  /* each bucket cut evenly */
    /* Staging memory of buckets without a hook, NULL: not needed yet; and of what brings an
     * optimizer's values to all ranks. */
    cz__pool *reductions, *values;
    /* Borrowed: of a sharded optimizer, whose owners alone get the mean, but for option all_reduce;
     * NULL: all ranks get it. */
    const cz_shard_map *bound;
    cz_in_backward *in_backward; /* borrowed: unsharded optimizers in place of that one */
    cz__ddp_listener listener;   /* of either */
    cz_hook hook;                /* `run` is NULL: there is none */
    char hook_name[48];
    cz_parts *parts; /* borrowed; NULL: each rank's gradients are one part */
    double weight;   /* of this rank; below 0: none was set */
    double share;    /* what this pass's gradients are multiplied by */
    bool weightless; /* all weights of this pass are 0: nothing travels */
    cz_join *join;   /* borrowed; NULL: inputs are even */
    int join_number;
    bool shadows;      /* this pass has no gradients here */
    bool gives_means;  /* cz__ddp_gives_means() */
    int64_t *arrivals; /* parameters in the order in which they were complete in the first pass */
    atomic_llong arrived;
    int64_t *launch; /* the order in which buckets start, equal on all ranks */
    int64_t *full;   /* buckets in the order in which they were full in the first pass */
    atomic_int full_count;
    bool launch_agreed; /* it is the order of the first pass on rank 0 */
    /* The last pass synchronised and succeeded; `trained` says which gradients it had. */
    bool reduced;
    int64_t passes;        /* that synchronised and succeeded: the same number on all ranks */
    int64_t passes_before; /* of the training that this one goes on with */
    bool rebuilt;
    bool froze;
    bool ended;           /* by the program: nothing but the optimizer that is made on it has it */
    bool opens_with_step; /* ranks agree on this pass when its step begins */
    cz__description room; /* of a pass, as they compare it */
    cz__overlap_memory overlaps;
    atomic_int state; /* CZ__PASS_…; it synchronises if `syncs` */
    bool syncs;
    pthread_mutex_t lock; /* the rest: who starts buckets */
    int next;             /* the place in `launch` that starts next */
    cz_status failed; /* of this rank, in this pass; all further buckets carry it to the others */
    char why[320];
};

/* ---- object.c ---- */

/* Do owners alone get the mean? */
bool cz__ddp_reduces_to_owners(const cz_ddp *ddp);
/* Is a bucket's mean f32, for its owners, while its gradients are not? */
bool cz__ddp_widens(const cz_bucket *bucket);
/* Do values start on their way in one order on all ranks? Not after operations that may end in any
 * order. */
bool cz__ddp_values_take_turns(const cz_ddp *ddp);
/* The rank whose order and buffers count: the first, or while inputs are uneven the last one that
 * has some. */
int cz__ddp_source(const cz_ddp *ddp);
/* This rank's pass has failed: the sentence is the thread's. Returns `status`. Without the lock. */
cz_status cz__ddp_fail(cz_ddp *ddp, cz_status status);

/* ---- buckets.c ---- */

/* Make the buckets of these parameters in this order. Nothing was changed on failure. */
cz_status cz__ddp_make_buckets(cz_ddp *ddp, const int64_t *order);
void cz__ddp_free_buckets(cz_bucket *buckets, int count);
/* Staging memory for this pass, of which every operation on buckets gets some in its turn.
 * CZ_ERR_MEMORY. */
cz_status cz__ddp_have_pools(cz_ddp *ddp);
/* Once, after the first pass: buckets, or for a sharded optimizer the order in which they start,
 * follow the arrival of gradients. Collective. */
cz_status cz__ddp_learn_order(cz_ddp *ddp);
bool cz__ddp_has_learned_order(const cz_ddp *ddp);

/* ---- bind.c ---- */

/* Its label, in this pass. */
const char *cz__ddp_bucket_label(cz_bucket *bucket);
/* A continuation of a reduced bucket: the optimizer takes it. Context: the bucket. */
cz_status cz__ddp_tell(cz_status status, void *bucket);
/* With the lock, if marks may come: wait for all works of the last pass, or for the reductions
 * only. The first failure of any. */
cz_status cz__ddp_wait_for_all(cz_ddp *ddp, bool values);
/* May a hook with this result be used with a sharded optimizer, or without; with unsharded ones? */
cz_status cz__ddp_check_hook(const cz_ddp *ddp, const cz_hook *hook, bool bound);
cz_status cz__ddp_check_slices(const cz_hook *hook);
/* Its unsharded optimizers, if any, are the program's again. */
void cz__ddp_leave_in_backward(cz_ddp *ddp);

/* ---- hook.c ---- */

/* Have memory for what hooks see; start a bucket by the hook. */
cz_status cz__ddp_reserve_buffers(cz_ddp *ddp);
cz_status cz__ddp_run_hook(cz_bucket *bucket, cz_status mine, const char *label);
void cz__ddp_release_hook(cz_ddp *ddp);
/* Does the thread's sentence say that a hook failed, on whatever rank? */
bool cz__ddp_blames_hook(void);

/* ---- readiness.c ---- */

/* All that marks look at: which gradients take part and where they are; then the buckets, once
 * nothing of the last pass is on its way. */
void cz__ddp_take_gradients(cz_ddp *ddp);
/* The same of a part that does not synchronise. Then, at its end: was each parameter marked as
 * often as it has to be? CZ_ERR_STATE. And was it? */
void cz__ddp_open_part(cz_ddp *ddp);
cz_status cz__ddp_check_part(cz_ddp *ddp);
bool cz__ddp_was_used(const cz_ddp *ddp, int64_t param);
/* With the lock, in CZ__PASS_BEGUN. */
void cz__ddp_open(cz_ddp *ddp);
/* Start what can start, in order. With the lock. */
void cz__ddp_start_ready(cz_ddp *ddp);
/* After all others were started, without the lock: reduce the bucket, if there is one, that waits
 * for the end of the pass; what has failed here goes with it. True: all ranks know by it. */
bool cz__ddp_reduce_last(cz_ddp *ddp);
/* Is that so of the only one there is, and does it travel in this pass? Equal on all ranks. */
bool cz__ddp_may_wait_whole(const cz_ddp *ddp);
bool cz__ddp_waits_whole(const cz_ddp *ddp);
/* What was not marked by the end of a pass is unused, or an error. Collective if the graph is
 * looked at (find_unused, the first pass of a static one). */
cz_status cz__ddp_settle_unmarked(cz_ddp *ddp);

/* ---- pass.c ---- */

/* Are values, gradients and buffers in memories of their own? Before the first pass.
 * CZ_ERR_ARGUMENT, CZ_ERR_MEMORY. */
cz_status cz__ddp_check_overlaps_at_first(cz_ddp *ddp);

#endif
