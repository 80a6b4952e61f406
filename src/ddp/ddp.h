/* SPDX-License-Identifier: MIT */
/* A data-parallel model as a sharded optimizer and a plan see it. */
#ifndef CZ_DDP_DDP_H
#define CZ_DDP_DDP_H

#include "czero/base.h"
#include "czero/ddp.h"
#include "czero/shard.h"
#include "group/collective.h"
#include "collective/description.h"

/* A bucket that was reduced: `count` parameters, of which those with a flag in `include` (one for
 * each parameter of the model) take part. */
typedef struct cz__ddp_ready {
    cz_group *group;
    const char *label; /* of the operation that brings values to all ranks */
    const int64_t *params;
    int64_t count;
    const uint8_t *include;
    void *const *gradients; /* of each parameter of the model: where this pass has reduced it to */
    cz__reserve *transfers; /* its memory */
    cz__pool *pool;         /* and where its staging memory comes from; NULL: from there, too */
    cz_work **values;       /* and where its work goes */
} cz__ddp_ready;

/* That a pass has begun on all ranks in the same way: which they have not agreed on yet, so they do
 * with the first word of its step, cz__agree() or cz__agree_on_step() with this group and label and
 * a fingerprint that depends on this one. Where those differ it may be for the pass. */
typedef struct cz__ddp_opening {
    cz_group *group;
    const char *label;
    uint64_t fingerprint;
} cz__ddp_opening;

/* Collective: CZ_OK if the passes do not differ, else CZ_ERR_MISMATCH on all ranks. */
cz_status cz__ddp_compare_openings(cz_ddp *ddp);

/* What an optimizer does during passes, sharded or not; NULL entries: nothing. */
typedef struct cz__ddp_listener {
    /* A pass that synchronises begins: collective, on the thread that begins it. */
    cz_status (*begin)(void *context);
    /* In a continuation: may start operations on the group, not wait. */
    cz_status (*reduced)(void *context, const cz__ddp_ready *bucket);
    /* All are, on all ranks: collective, on the thread that ends the pass. */
    cz_status (*finish)(void *context);
    /* In its place where there is one small bucket, which nobody has reduced yet: the gradients are
     * each rank's own, and `mine` is what became of the pass here. With `opening`, see there. */
    cz_status (*finish_unreduced)(void *context, cz_status mine, const cz__ddp_opening *opening);
    bool late; /* the end of a pass does not wait for values */
    /* NULL, or of each parameter with a gradient of 16 bits where its owner gets the mean as f32,
     * not rounded: the address of element 0. A hook, and all ranks, have it rounded. */
    void *const *means;
    void *context;
    /* In checked mode: a parameter is about to be marked in a pass that synchronises. Any thread;
     * what it returns fails the pass. */
    cz_status (*marks)(void *context, int64_t param);
} cz__ddp_listener;

/* From now on buckets are reduced along this map (borrowed), to the owners in it only, and stay as
 * they are; NULL: to all ranks, as before. Between passes. `listener` is copied; NULL: nobody. */
void cz__ddp_bind(cz_ddp *ddp, const cz_shard_map *map, const cz__ddp_listener *listener);
/* The optimizer that it is bound to ends: cz__ddp_bind() with NULL. If the program has destroyed it
 * already, it is gone then. */
void cz__ddp_let_go(cz_ddp *ddp);

/* Room for the operations that bring a bucket's values to all ranks. CZ_ERR_MEMORY. Before it is
 * bound to a listener that is told of reduced buckets; with cz__ddp_bind(NULL) it goes. */
cz_status cz__ddp_reserve(cz_ddp *ddp);
void cz__ddp_release(cz_ddp *ddp); /* gives it back; nothing is on its way */

/* Wait for what the last pass left on its way, all of it or this parameter's. The status of the
 * first that failed. */
cz_status cz__ddp_settle(cz_ddp *ddp);
cz_status cz__ddp_wait_param(cz_ddp *ddp, int64_t param);

/* Option parts; NULL: none. */
cz_parts *cz__ddp_parts(const cz_ddp *ddp);

/* Made over the group that it was given: its own groups have the same ranks. */
const cz__object *cz__ddp_object(const cz_ddp *ddp);

/* Can an optimizer over this model and group be made on it? CZ_ERR_ARGUMENT, CZ_ERR_STATE. */
cz_status cz__ddp_check(const cz_ddp *ddp, const cz_model *model, const cz_group *group);

/* Between its beginning and its end? */
bool cz__ddp_in_pass(const cz_ddp *ddp);

/* Has this rank marked the parameter as often as it uses it, in the pass that is under way and
 * synchronises? */
bool cz__ddp_is_complete(const cz_ddp *ddp, int64_t param);

/* Were all weights of the last pass 0? Equal on all ranks. */
bool cz__ddp_weightless(const cz_ddp *ddp);

/* Are owners given `means` by the present, or the last, pass? Equal on all ranks. */
bool cz__ddp_gives_means(const cz_ddp *ddp);

/* Has the last pass reduced gradients? And that of this parameter? Equal on all ranks. */
bool cz__ddp_reduced(const cz_ddp *ddp);
bool cz__ddp_has(const cz_ddp *ddp, int64_t param);

/* What all ranks have alike of the state of a hook, before a pass with that number
 * (cz__bucket_pass()): hooks with this `run` know it, and ranks compare it when a pass begins. Of
 * other hooks it is the program's own business. Any thread; calling it again does nothing. */
typedef cz_status (*cz__hook_run)(void *state, cz_bucket *bucket);
typedef void (*cz__hook_settings)(cz__description *description, const cz_hook *hook, int64_t pass);
void cz__hook_describe_with(cz__hook_run run, cz__hook_settings settings);
void cz__hook_describe(cz__description *description, const cz_hook *hook, int64_t pass);

enum {
    CZ__BUCKET_BYTES = 25 << 20,
    CZ__FIRST_BUCKET_BYTES = 1 << 20
}; /* where options say nothing */

/* Type and number of elements of a parameter. */
typedef void (*cz__param_size)(const void *context, int64_t param, cz_dtype *dtype, int64_t *count);

/* The bucket of each of the `count` parameters in `order`; returns how many there are. Parameters
 * of one type share buckets, which are closed once they have `bytes` of gradients, the first of
 * each type once it has `first_bytes`. Buckets are numbered as they are closed; those that stay
 * open come last, by their first parameter. */
int cz__ddp_assign(cz__param_size size_of, const void *context, int64_t count, const int64_t *order,
                   size_t first_bytes, size_t bytes, int *bucket_of);

/* For cz__ddp_assign() over a model: `context` is one. */
void cz__model_param_size(const void *model, int64_t param, cz_dtype *dtype, int64_t *count);

/* What a data-parallel model of that many parameters and buckets allocates, beside staging memory,
 * the buffers of hooks and its groups. */
size_t cz__ddp_bytes(int64_t params, int buckets);

/* As their names say; what is not there is NULL, 0 or -1. */
const cz_model *cz__ddp_model(const cz_ddp *ddp);
const char *cz__ddp_hook(const cz_ddp *ddp);
int64_t cz__ddp_passes(const cz_ddp *ddp);
int cz__ddp_bucket_count(const cz_ddp *ddp);
bool cz__ddp_rebuilt(const cz_ddp *ddp);
int64_t cz__ddp_bucket_param(const cz_ddp *ddp, int bucket, int64_t place);
int64_t cz__ddp_bucket_param_count(const cz_ddp *ddp, int bucket);
void *cz__bucket_buffer(const cz_bucket *bucket);
int64_t cz__bucket_count(const cz_bucket *bucket);
const cz_device *cz__bucket_device(const cz_bucket *bucket);
cz_dtype cz__bucket_dtype(const cz_bucket *bucket);
cz_group *cz__bucket_group(const cz_bucket *bucket);
int cz__bucket_index(const cz_bucket *bucket);
bool cz__bucket_is_last(const cz_bucket *bucket);
bool cz__bucket_is_used(const cz_bucket *bucket, int64_t place);
const cz_shard_map *cz__bucket_map(const cz_bucket *bucket);
int64_t cz__bucket_offset(const cz_bucket *bucket, int64_t place);
int64_t cz__bucket_param(const cz_bucket *bucket, int64_t place);
int64_t cz__bucket_param_count(const cz_bucket *bucket);
int64_t cz__bucket_pass(const cz_bucket *bucket);

#endif
