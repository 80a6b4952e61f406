/* SPDX-License-Identifier: MIT */
/* A pass: its beginning, and its end, at which all that was not marked is decided on. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ddp/object.h"
#include "tensor/model.h"

/* ---- beginning ---- */

static void describe_trained(cz__description *d, const void *context)
{
    cz__describe_trainable(d, ((const cz_ddp *)context)->model);
}

/* After the first pass: by the order in which gradients arrived on rank 0. Those that were not marked
 * there, or take no part, come last. */
static cz_status rebuild(cz_ddp *ddp)
{
    const int64_t params = ddp->param_count;
    uint8_t *seen = cz__calloc((size_t)params, sizeof *seen);
    cz_status status =
        seen ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "ddp: a table of %" PRId64 " parameters", params);
    status = cz__agree(ddp->control, status, 0, NULL, "ddp: rebuild");
    if (status == CZ_OK) {
        int64_t count = atomic_load(&ddp->arrived);
        for (int64_t k = 0; k < count; k++)
            seen[ddp->arrivals[k]] = 1;
        for (int64_t k = 0; k < params; k++)
            if (!seen[ddp->order[k]])
                ddp->arrivals[count++] = ddp->order[k];
        status =
            cz_broadcast(ddp->control, ddp->arrivals, params, CZ_I64, 0, CZ_LABEL("ddp: rebuild"));
    }
    if (status == CZ_OK)
        status = cz__agree(ddp->control, cz__ddp_make_buckets(ddp, ddp->arrivals), 0, NULL,
                           "ddp: rebuild");
    ddp->rebuilt = ddp->rebuilt || status == CZ_OK;
    cz__free(seen);
    return status;
}

/* The same for a sharded optimizer, whose elements stay where they are: only the order in which buckets start
 * is that of the first pass on rank 0. */
static cz_status agree_on_launch(cz_ddp *ddp)
{
    int count = atomic_load(&ddp->full_count);
    for (int b = 0; b < ddp->bucket_count; b++) { /* those that were not full there come last */
        bool known = false;
        for (int k = 0; k < count && !known; k++)
            known = ddp->full[k] == b;
        if (!known)
            ddp->full[count++] = b;
    }
    CZ_TRY(cz_broadcast(ddp->control, ddp->full, ddp->bucket_count, CZ_I64, 0,
                        CZ_LABEL("ddp: order of buckets")));
    memcpy(ddp->launch, ddp->full, (size_t)ddp->bucket_count * sizeof *ddp->launch);
    ddp->launch_agreed = true;
    return CZ_OK;
}

/* Once, after the first pass. */
static cz_status learn_order(cz_ddp *ddp)
{
    if (ddp->options.keep_buckets || ddp->passes == 0)
        return CZ_OK;
    if (ddp->bound)
        return ddp->launch_agreed ? CZ_OK : agree_on_launch(ddp);
    return ddp->rebuilt ? CZ_OK : rebuild(ddp);
}

static cz_status broadcast_buffers(cz_ddp *ddp)
{
    for (int64_t b = 0; b < cz_model_buffer_count(ddp->model); b++) {
        const cz_tensor *buffer = cz_model_buffer(ddp->model, b);
        CZ_TRY(cz_broadcast(ddp->control, buffer->data, cz_tensor_count(buffer), buffer->dtype, 0,
                            CZ_LABEL(cz_model_buffer_name(ddp->model, b))));
    }
    return CZ_OK;
}

/* Everything that marks look at. */
static void arm(cz_ddp *ddp)
{
    for (int64_t p = 0; p < ddp->param_count; p++) {
        ddp->trained[p] = cz_model_requires_grad(ddp->model, p);
        ddp->gradients[p] = ddp->results[p] = cz__model_gradient_address(ddp->model, p);
        atomic_store(&ddp->params[p].left, ddp->params[p].uses);
    }
    for (int b = 0; b < ddp->bucket_count; b++) {
        cz__ddp_bucket *bucket = &ddp->buckets[b];
        long long pending = 0;
        for (int64_t k = 0; k < bucket->count; k++) {
            const int64_t p = ddp->order[bucket->first + k];
            bucket->include[p] = ddp->trained[p];
            pending += ddp->trained[p];
        }
        bucket->empty = pending == 0;
        atomic_store(&bucket->pending, pending);
    }
    atomic_store(&ddp->arrived, 0);
    atomic_store(&ddp->full_count, 0);
    ddp->next = 0;
    ddp->failed = CZ_OK;
}

cz_status cz_ddp_begin(cz_ddp *ddp, bool sync)
{
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp begin: ddp is NULL");
    if (atomic_load(&ddp->begun))
        return cz__fail(CZ_ERR_STATE, "ddp begin: a pass has begun; cz_ddp_finish() ends it");
    if (!ddp->group)
        return cz__fail(CZ_ERR_STATE,
                        "ddp begin: its sharded optimizer was destroyed in the middle of a pass");
    if (sync) {
        CZ_TRY(cz__agree_on(ddp->control, "ddp", describe_trained, ddp, CZ_OK, &ddp->room));
        CZ_TRY(learn_order(ddp));
        if (!ddp->options.keep_buffers)
            CZ_TRY(broadcast_buffers(ddp));
        if (ddp->listener.begin)
            CZ_TRY(ddp->listener.begin(ddp->listener.context));
        arm(ddp);
    }
    ddp->syncs = sync;
    ddp->reduced = false;
    atomic_store_explicit(&ddp->begun, true, memory_order_release);
    return CZ_OK;
}

/* ---- the end ---- */

/* Not marked often enough: an error that names some of them. */
static cz_status check_marks(const cz_ddp *ddp)
{
    char names[200] = "";
    size_t length = 0;
    int64_t missing = 0, bucket = -1;
    for (int64_t k = 0; k < ddp->param_count; k++) {
        const int64_t p = ddp->order[k];
        if (!ddp->trained[p] || atomic_load(&ddp->params[p].left) <= 0)
            continue;
        bucket = bucket < 0 ? ddp->params[p].bucket : bucket;
        if (missing++ < 4 && length < sizeof names)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s'%.40s'",
                                       missing > 1 ? ", " : "", cz_model_name(ddp->model, p));
    }
    if (missing == 0)
        return CZ_OK;
    return cz__fail(CZ_ERR_STATE,
                    "ddp: %" PRId64
                    " parameters were not marked ready, the first in bucket %" PRId64
                    ": %s%s (see find_unused)",
                    missing, bucket, names, missing > 4 ? ", …" : "");
}

/* What some rank marked is reduced, with zeros where it was not; what none did stays as it is. A bucket that
 * was full on some rank is full of what is used: that rank has started it with all of its parameters. */
static cz_status settle_unused(cz_ddp *ddp)
{
    uint8_t *used = ddp->trained; /* from here on: trained, and used somewhere */
    for (int64_t p = 0; p < ddp->param_count; p++)
        if (used[p] && atomic_load(&ddp->params[p].left) > 0) {
            used[p] = 0;
            ddp->gradients[p] = NULL;
        }
    const cz_status status = cz_all_reduce(ddp->control, used, ddp->param_count, CZ_U8, CZ_MAX,
                                           CZ_LABEL("ddp: used parameters"));
    if (status != CZ_OK) { /* all ranks start all buckets, with this failure */
        for (int64_t p = 0; p < ddp->param_count; p++)
            used[p] = cz_model_requires_grad(ddp->model, p);
        return status;
    }
    for (int64_t p = 0; p < ddp->param_count; p++)
        if (used[p] && !ddp->results[p])
            return cz__fail(CZ_ERR_STATE,
                            "ddp: parameter '%.60s' of bucket %d is used by other ranks and has no "
                            "gradient memory",
                            cz_model_name(ddp->model, p), ddp->params[p].bucket);
    return CZ_OK;
}

/* Start all that has not started. */
static void start_rest(cz_ddp *ddp)
{
    pthread_mutex_lock(&ddp->lock);
    for (int n = ddp->next; n < ddp->bucket_count; n++) {
        cz__ddp_bucket *bucket = &ddp->buckets[ddp->launch[n]];
        bool any = false;
        for (int64_t k = 0; k < bucket->count; k++) {
            const int64_t p = ddp->order[bucket->first + k];
            bucket->include[p] = bucket->include[p] && ddp->trained[p];
            any = any || bucket->include[p];
        }
        bucket->empty = !any;
        atomic_store(&bucket->pending, 0);
    }
    cz__ddp_start_ready(ddp);
    pthread_mutex_unlock(&ddp->lock);
}

/* The first failure of any of them. */
static cz_status wait_for_all(cz_ddp *ddp)
{
    cz_status first = CZ_OK;
    char why[sizeof ddp->why] = "";
    for (int b = 0; b < ddp->bucket_count; b++) {
        cz__ddp_bucket *bucket = &ddp->buckets[b];
        const cz_status status = bucket->work ? cz_work_wait(bucket->work) : CZ_OK;
        if (status != CZ_OK && first == CZ_OK) {
            first = status;
            snprintf(why, sizeof why, "%s", cz_last_error());
        }
        cz_work_destroy(&bucket->work);
    }
    return first == CZ_OK ? CZ_OK : cz__fail(first, "%s", why);
}

cz_status cz_ddp_finish(cz_ddp *ddp)
{
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp finish: ddp is NULL");
    if (!atomic_load(&ddp->begun))
        return cz__fail(CZ_ERR_STATE, "ddp finish: no pass has begun");
    if (!ddp->group) {
        atomic_store(&ddp->begun, false);
        return cz__fail(CZ_ERR_STATE,
                        "ddp finish: its sharded optimizer was destroyed in the middle of a pass");
    }
    if (ddp->syncs) {
        const cz_status marks = ddp->options.find_unused ? settle_unused(ddp) : check_marks(ddp);
        if (marks != CZ_OK)
            (void)cz__ddp_fail(ddp, marks);
        start_rest(ddp);
    }
    atomic_store(&ddp->begun, false);
    if (!ddp->syncs)
        return CZ_OK;
    const cz_status status = wait_for_all(ddp);
    cz_status mine =
        status == CZ_OK && ddp->failed != CZ_OK ? cz__fail(ddp->failed, "%s", ddp->why) : status;
    /* A failure after the last bucket had started is known to this rank alone. */
    CZ_TRY(cz__agree(ddp->control, mine, 0, NULL, "ddp: finish"));
    ddp->passes++;
    ddp->reduced = true;
    return CZ_OK;
}

cz_status cz_ddp_set_uses(cz_ddp *ddp, int64_t param, int uses)
{
    if (!ddp || param < 0 || param >= ddp->param_count || uses < 1)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp set_uses: parameter %" PRId64 " used %d times", param,
                        uses);
    if (atomic_load(&ddp->begun))
        return cz__fail(CZ_ERR_STATE, "ddp set_uses: a pass has begun");
    ddp->params[param].uses = uses;
    return CZ_OK;
}

void cz__ddp_bind(cz_ddp *ddp, const cz_shard_map *map, const cz__ddp_listener *listener)
{
    if (ddp->bound && atomic_load(&ddp->begun)) /* what is in flight uses the old map: no way on */
        cz_group_destroy(&ddp->group);
    if (ddp->bound) /* what is reduced is with the old owners */
        ddp->reduced = false;
    ddp->bound = map;
    ddp->listener = listener ? *listener : (cz__ddp_listener){NULL, NULL, NULL};
}

cz_status cz__ddp_check(const cz_ddp *ddp, const cz_model *model, const cz_group *group)
{
    if (ddp->model != model)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: option ddp is over another model");
    if (cz_group_size(ddp->group) != cz_group_size(group) ||
        cz_group_rank(ddp->group) != cz_group_rank(group))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: option ddp: this is rank %d of %d there, rank %d of %d here",
                        cz_group_rank(ddp->group), cz_group_size(ddp->group), cz_group_rank(group),
                        cz_group_size(group));
    if (ddp->bound)
        return cz__fail(CZ_ERR_STATE, "zero: option ddp has a sharded optimizer already");
    return cz__ddp_in_pass(ddp)
               ? cz__fail(CZ_ERR_STATE, "zero: option ddp is in the middle of a pass")
               : CZ_OK;
}

bool cz__ddp_in_pass(const cz_ddp *ddp)
{
    return atomic_load(&ddp->begun);
}

bool cz__ddp_reduced(const cz_ddp *ddp)
{
    return ddp->reduced;
}

bool cz__ddp_has(const cz_ddp *ddp, int64_t param)
{
    return ddp->trained[param];
}
