/* SPDX-License-Identifier: MIT */
/* Readiness: marks fill buckets. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "base/float_mode.h"
#include "base/status.h"
#include "base/thread.h"
#include "ddp/object.h"
#include "group/work.h"
#include "tensor/model.h"

void cz__ddp_take_gradients(cz_ddp *ddp)
{
    const bool learns = cz__ddp_learns_graph(ddp);
    for (int64_t p = 0; p < ddp->param_count; p++) {
        cz__ddp_param *param = &ddp->params[p];
        const bool used = (learns || param->uses > 0) && !ddp->shadows;
        void *gradient = cz__model_gradient_address(ddp->model, p);
        ddp->trained[p] = cz_model_requires_grad(ddp->model, p) && (learns || param->uses >= 0) &&
                          !ddp->weightless;
        ddp->results[p] = gradient;
        ddp->gradients[p] = used && ddp->share != 0 ? gradient : NULL;
        if (ddp->trained[p] && !gradient && !cz__ddp_looks_at_graph(ddp))
            (void)cz__ddp_fail(ddp, cz__fail(CZ_ERR_STATE,
                                             "ddp: parameter '%.60s' of bucket %d has no gradient "
                                             "memory",
                                             cz_model_name(ddp->model, p), param->bucket));
        atomic_store(&param->left, learns ? INT_MAX
                                   : used ? param->uses
                                   : cz__ddp_looks_at_graph(ddp)
                                       ? 1 /* only the others' marks tell */
                                       : 0);
    }
}

/* Who takes part, where each has its place in the buffer, how many have to be marked. */
static void open_bucket(cz_ddp *ddp, cz_bucket *bucket)
{
    long long pending = 0;
    bucket->taking = bucket->elements = 0;
    for (int64_t k = 0; k < bucket->count; k++) {
        const int64_t p = ddp->order[bucket->first + k];
        bucket->include[p] = ddp->trained[p];
        if (!ddp->trained[p])
            continue;
        ddp->taking[bucket->first + bucket->taking] = p;
        ddp->offsets[bucket->first + bucket->taking++] = bucket->elements;
        bucket->elements += cz_tensor_count(cz_model_value(ddp->model, p));
        pending += atomic_load(&ddp->params[p].left) > 0;
    }
    bucket->empty = bucket->taking == 0;
    atomic_store(&bucket->pending, pending);
}

void cz__ddp_open(cz_ddp *ddp)
{
    const cz_status before = cz__ddp_wait_for_all(ddp, true);
    if (before != CZ_OK && ddp->failed == CZ_OK) {
        ddp->failed = before;
        snprintf(ddp->why, sizeof ddp->why, "%s", cz_last_error());
    }
    for (int b = 0; b < ddp->bucket_count; b++)
        open_bucket(ddp, &ddp->buckets[b]);
    atomic_store(&ddp->arrived, 0);
    atomic_store(&ddp->full_count, 0);
    ddp->next = 0;
    atomic_store_explicit(&ddp->state, CZ__PASS_OPEN, memory_order_release);
    cz__ddp_start_ready(ddp); /* those of which nothing is used here */
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
    if (atomic_load_explicit(&ddp->state, memory_order_acquire) == CZ__PASS_NONE)
        return cz__fail(CZ_ERR_STATE, "ddp mark_ready: parameter '%.60s': no pass has begun",
                        cz_model_name(ddp->model, param));
    if (cz__work_current())
        return cz__fail(CZ_ERR_STATE, "ddp mark_ready: parameter '%.60s': in a continuation",
                        cz_model_name(ddp->model, param));
    return CZ_OK;
}

static cz_status too_many(cz_ddp *ddp, int64_t param, int left)
{
    const cz__ddp_param *p = &ddp->params[param];
    const int uses = p->uses > 0 ? p->uses : 0;
    return cz__ddp_fail(ddp, cz__fail(CZ_ERR_STATE,
                                      "ddp: parameter '%.60s' of bucket %d was marked ready %d "
                                      "times, it is used %d times%s",
                                      cz_model_name(ddp->model, param), p->bucket, uses + 1 - left,
                                      uses, ddp->options.static_graph ? " in a static graph" : ""));
}

/* The gradient is complete, and so may be the bucket. */
static void complete(cz_ddp *ddp, int64_t param)
{
    cz_bucket *bucket = &ddp->buckets[ddp->params[param].bucket];
    if (!ddp->results[param])
        (void)cz__ddp_fail(ddp, cz__fail(CZ_ERR_STATE,
                                         "ddp: parameter '%.60s' of bucket %d was marked ready and "
                                         "has no gradient memory",
                                         cz_model_name(ddp->model, param), bucket->index));
    if (atomic_fetch_sub(&bucket->pending, 1) > 1)
        return;
    ddp->full[atomic_fetch_add(&ddp->full_count, 1)] = bucket->index;
    pthread_mutex_lock(&ddp->lock);
    cz__ddp_start_ready(ddp);
    pthread_mutex_unlock(&ddp->lock);
}

cz_status cz_ddp_mark_ready(cz_ddp *ddp, int64_t param)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    CZ_TRY(check(ddp, param));
    cz__ddp_param *p = &ddp->params[param];
    if (!ddp->syncs)
        atomic_store_explicit(&p->added_to, true, memory_order_relaxed);
    if (!ddp->syncs || (!ddp->trained[param] && p->uses > 0))
        return CZ_OK;
    if (ddp->listener.marks) {
        const cz_status status = ddp->listener.marks(ddp->listener.context, param);
        if (status != CZ_OK)
            return cz__ddp_fail(ddp, status);
    }
    if (atomic_load_explicit(&ddp->state, memory_order_acquire) == CZ__PASS_BEGUN) {
        pthread_mutex_lock(&ddp->lock);
        if (atomic_load(&ddp->state) == CZ__PASS_BEGUN)
            cz__ddp_open(ddp);
        pthread_mutex_unlock(&ddp->lock);
    }
    const int left = atomic_fetch_sub(&p->left, 1);
    if (left < 1)
        return too_many(ddp, param, left);
    if (!ddp->rebuilt && (left == 1 || left == INT_MAX))
        ddp->arrivals[atomic_fetch_add(&ddp->arrived, 1)] = param;
    if (left == 1)
        complete(ddp, param);
    return CZ_OK;
}
