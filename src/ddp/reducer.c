/* SPDX-License-Identifier: MIT */
/* Full buckets start in their order. Each rank starts every bucket of a pass, whatever happens; one that has
 * failed carries its failure in the bucket's header to the others. */
#include <stdio.h>

#include "base/status.h"
#include "ddp/object.h"
#include "group/work.h"

bool cz__ddp_reduces_to_owners(const cz_ddp *ddp)
{
    return ddp->bound && !ddp->options.all_reduce;
}

/* What messages call it: its number and its first parameter. */
static void name_bucket(const cz_bucket *bucket, char *label, size_t bytes)
{
    const cz_ddp *ddp = bucket->ddp;
    snprintf(label, bytes, "bucket %d, '%.28s'", bucket->index,
             cz_model_name(ddp->model, ddp->taking[bucket->first]));
}

/* Continuations of the reduction. Every owner's part goes to every rank, */
static cz_status gather(cz_status status, void *context)
{
    const cz_bucket *bucket = context;
    const cz_ddp *ddp = bucket->ddp;
    const cz__mapped memory = {.map = ddp->map,
                               .data = ddp->results,
                               .include = bucket->include,
                               .dtype = bucket->dtype,
                               .pool = ddp->gathers};
    char label[48];
    name_bucket(bucket, label, sizeof label);
    return status == CZ_OK ? cz__gather_along_map(ddp->group, &memory, CZ_LABEL(label)) : status;
}

/* or stays there; and it is used. */
cz_status cz__ddp_tell(cz_status status, void *context)
{
    cz_bucket *bucket = context;
    const cz_ddp *ddp = bucket->ddp;
    char label[48];
    name_bucket(bucket, label, sizeof label);
    const cz__ddp_ready reduced = {.group = ddp->group,
                                   .label = label,
                                   .params = ddp->order + bucket->first,
                                   .count = bucket->count,
                                   .include = bucket->include,
                                   .gradients = ddp->results,
                                   .transfers = bucket->transfers,
                                   .pool = cz__ddp_values_take_turns(ddp) ? ddp->values : NULL,
                                   .values = &bucket->values};
    return status == CZ_OK ? ddp->listener.reduced(ddp->listener.context, &reduced) : status;
}

/* This rank's share of the mean. */
static cz_status weigh(const cz_bucket *bucket)
{
    const cz_ddp *ddp = bucket->ddp;
    for (int64_t k = 0; ddp->share != 1 && k < bucket->taking; k++) {
        const int64_t p = ddp->taking[bucket->first + k];
        if (ddp->gradients[p])
            CZ_TRY(ddp->device->scale(NULL, bucket->dtype, ddp->share,
                                      cz_tensor_count(cz_model_value(ddp->model, p)),
                                      ddp->gradients[p]));
    }
    return CZ_OK;
}

static cz_status reduce(cz_bucket *bucket, cz_status mine, const char *label)
{
    const cz_ddp *ddp = bucket->ddp;
    const bool to_owners = cz__ddp_reduces_to_owners(ddp);
    const cz_continuation last = ddp->listener.reduced ? cz__ddp_tell : NULL;
    const cz__mapped memory = {.map = to_owners ? ddp->bound : ddp->map,
                               .data = ddp->gradients,
                               .include = bucket->include,
                               .dtype = bucket->dtype,
                               .result = ddp->results,
                               .pool = ddp->reductions,
                               .mine = mine};
    CZ_TRY(cz__reduce_along_map(ddp->group, &memory, CZ_AVERAGE, CZ_START(label, &bucket->work)));
    if (!to_owners)
        return cz__work_then(bucket->work, gather, last, bucket);
    return last ? cz__work_then(bucket->work, last, NULL, bucket) : CZ_OK;
}

/* With the lock. What cannot be started has failed for this rank, and for the others too: they wait for it
 * and are told by the next bucket, or run into their timeout. */
static void start(cz_ddp *ddp, cz_bucket *bucket)
{
    char label[48];
    if (!ddp->group) /* taken away in the middle of the pass */
        return;
    cz_status mine = ddp->failed == CZ_OK ? weigh(bucket) : cz__fail(ddp->failed, "%s", ddp->why);
    name_bucket(bucket, label, sizeof label);
    const cz_status status =
        ddp->hook.run ? cz__ddp_run_hook(bucket, mine, label) : reduce(bucket, mine, label);
    if (status != CZ_OK && ddp->failed == CZ_OK) {
        ddp->failed = status;
        snprintf(ddp->why, sizeof ddp->why, "%s", cz_last_error());
    }
}

void cz__ddp_start_ready(cz_ddp *ddp)
{
    for (; ddp->next < ddp->bucket_count; ddp->next++) {
        cz_bucket *bucket = &ddp->buckets[ddp->launch[ddp->next]];
        if (atomic_load(&bucket->pending) > 0)
            return;
        if (!bucket->empty)
            start(ddp, bucket);
    }
}

/* Waits, and keeps the first failure. */
static void wait_for(cz_work **work, cz_status *first, char *why, size_t bytes)
{
    const cz_status status = *work ? cz_work_wait(*work) : CZ_OK;
    if (status != CZ_OK && *first == CZ_OK) {
        *first = status;
        snprintf(why, bytes, "%s", cz_last_error());
    }
    cz_work_destroy(work);
}

cz_status cz__ddp_wait_for_all(cz_ddp *ddp, bool values)
{
    cz_status first = CZ_OK;
    char why[sizeof ddp->why] = "";
    for (int b = 0; b < ddp->bucket_count; b++)
        wait_for(&ddp->buckets[b].work, &first, why, sizeof why);
    for (int b = 0; values && b < ddp->bucket_count; b++)
        wait_for(&ddp->buckets[b].values, &first, why, sizeof why);
    return first == CZ_OK ? CZ_OK : cz__fail(first, "%s", why);
}
