/* SPDX-License-Identifier: MIT */
/* Readiness: marks fill buckets, full buckets start in their order. Each rank starts every bucket of a pass,
 * whatever happens; one that has failed carries its failure in the bucket's header to the others. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "ddp/object.h"

/* Continuations of the reduction. Every owner's part goes to every rank, */
static cz_status gather(cz_status status, void *context)
{
    const cz__ddp_bucket *bucket = context;
    const cz_ddp *ddp = bucket->ddp;
    const cz__mapped memory = {
        .map = ddp->map, .data = ddp->results, .include = bucket->include, .dtype = bucket->dtype};
    return status == CZ_OK ? cz__gather_along_map(ddp->group, &memory, CZ_LABEL("gradients"))
                           : status;
}

/* or stays there, and is used. */
static cz_status tell(cz_status status, void *context)
{
    const cz__ddp_bucket *bucket = context;
    const cz_ddp *ddp = bucket->ddp;
    return status == CZ_OK
               ? ddp->listener.reduced(ddp->listener.context, ddp->group,
                                       ddp->order + bucket->first, bucket->count, bucket->include)
               : status;
}

static cz_status then(cz_ddp *ddp, cz__ddp_bucket *bucket)
{
    if (!ddp->bound)
        return cz_work_then(bucket->work, gather, bucket);
    return ddp->listener.reduced ? cz_work_then(bucket->work, tell, bucket) : CZ_OK;
}

/* With the lock. What cannot be started has failed for this rank, and for the others too: they wait for it
 * and are told by the next bucket, or run into their timeout. */
static void start(cz_ddp *ddp, int k)
{
    cz__ddp_bucket *bucket = &ddp->buckets[k];
    char label[32];
    if (!ddp->group) /* taken away in the middle of the pass */
        return;
    cz__mapped memory = {.map = ddp->bound ? ddp->bound : ddp->map,
                         .data = ddp->gradients,
                         .include = bucket->include,
                         .dtype = bucket->dtype,
                         .result = ddp->results};
    snprintf(label, sizeof label, "bucket %d", k);
    if (ddp->failed != CZ_OK)
        memory.mine = cz__fail(ddp->failed, "%s", ddp->why);
    cz_status status =
        cz__reduce_along_map(ddp->group, &memory, CZ_AVERAGE, CZ_START(label, &bucket->work));
    if (status == CZ_OK)
        status = then(ddp, bucket);
    if (status != CZ_OK && ddp->failed == CZ_OK) {
        ddp->failed = status;
        snprintf(ddp->why, sizeof ddp->why, "%s", cz_last_error());
    }
}

void cz__ddp_start_ready(cz_ddp *ddp)
{
    for (; ddp->next < ddp->bucket_count; ddp->next++) {
        const int k = (int)ddp->launch[ddp->next];
        if (atomic_load(&ddp->buckets[k].pending) > 0)
            return;
        if (!ddp->buckets[k].empty)
            start(ddp, k);
    }
}

cz_status cz__ddp_fail(cz_ddp *ddp, cz_status status)
{
    pthread_mutex_lock(&ddp->lock);
    if (ddp->failed == CZ_OK) {
        ddp->failed = status;
        snprintf(ddp->why, sizeof ddp->why, "%s", cz_last_error());
    }
    pthread_mutex_unlock(&ddp->lock);
    return status;
}

static cz_status check(const cz_ddp *ddp, int64_t param)
{
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp mark_ready: ddp is NULL");
    if (param < 0 || param >= ddp->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "ddp mark_ready: parameter %" PRId64 ", there are %" PRId64, param,
                        ddp->param_count);
    if (!atomic_load_explicit(&ddp->begun, memory_order_acquire))
        return cz__fail(CZ_ERR_STATE, "ddp mark_ready: parameter '%.60s': no pass has begun",
                        cz_model_name(ddp->model, param));
    return CZ_OK;
}

cz_status cz_ddp_mark_ready(cz_ddp *ddp, int64_t param)
{
    CZ_TRY(check(ddp, param));
    if (!ddp->syncs || !ddp->trained[param])
        return CZ_OK;
    cz__ddp_param *p = &ddp->params[param];
    cz__ddp_bucket *bucket = &ddp->buckets[p->bucket];
    const int left = atomic_fetch_sub(&p->left, 1);
    if (left > 1)
        return CZ_OK;
    if (left < 1)
        return cz__ddp_fail(ddp, cz__fail(CZ_ERR_STATE,
                                          "ddp: parameter '%.60s' of bucket %d was marked ready %d "
                                          "times, it is used %d times",
                                          cz_model_name(ddp->model, param), p->bucket,
                                          p->uses + 1 - left, p->uses));
    if (!ddp->results[param])
        (void)cz__ddp_fail(ddp, cz__fail(CZ_ERR_STATE,
                                         "ddp: parameter '%.60s' of bucket %d was marked ready and "
                                         "has no gradient memory",
                                         cz_model_name(ddp->model, param), p->bucket));
    if (!ddp->rebuilt)
        ddp->arrivals[atomic_fetch_add(&ddp->arrived, 1)] = param;
    if (atomic_fetch_sub(&bucket->pending, 1) > 1)
        return CZ_OK;
    ddp->full[atomic_fetch_add(&ddp->full_count, 1)] = p->bucket;
    pthread_mutex_lock(&ddp->lock);
    cz__ddp_start_ready(ddp);
    pthread_mutex_unlock(&ddp->lock);
    return CZ_OK;
}
