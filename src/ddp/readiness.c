/* SPDX-License-Identifier: MIT */
/* Readiness: marks fill buckets, and full buckets start in their order. Each rank starts every
 * bucket of a pass, whatever happens; one that has failed carries its failure in the bucket's
 * header to the others. At the end it is settled what was not marked. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "base/float_mode.h"
#include "base/status.h"
#include "base/thread.h"
#include "ddp/object.h"
#include "group/work.h"
#include "tensor/model.h"

/* ---- full buckets start ---- */

/* Weigh a bucket's gradients before they are reduced: add those of the rank's last part to its
 * parts, or multiply them by this rank's share of the mean, in place. */
static cz_status weigh(const cz_bucket *bucket)
{
    const cz_ddp *ddp = bucket->ddp;
    if (ddp->parts && !ddp->shadows) {
        for (int64_t k = 0; k < bucket->taking; k++) {
            const int64_t p = ddp->taking[bucket->first + k];
            CZ_TRY(cz__parts_add_param(ddp->parts, p, ddp->gradients[p]));
        }
    }
    if (ddp->share == 1)
        return CZ_OK;
    for (int64_t k = 0; k < bucket->taking; k++) {
        const int64_t p = ddp->taking[bucket->first + k];
        if (ddp->gradients[p])
            CZ_TRY(ddp->device->scale(NULL, bucket->dtype, ddp->share,
                                      cz_tensor_count(cz__model_value(ddp->model, p)),
                                      ddp->gradients[p]));
    }
    return CZ_OK;
}

/* Start the reduction of a bucket; with `waits` it is over when this returns. */
static cz_status reduce(cz_bucket *bucket, cz_status mine, const char *label, bool waits)
{
    const cz_ddp *ddp = bucket->ddp;
    const bool to_owners = cz__ddp_reduces_to_owners(ddp), widens = cz__ddp_widens(bucket);
    const cz_continuation last = ddp->listener.reduced ? cz__ddp_tell : NULL;
    const cz__mapped memory = {.map = to_owners ? ddp->bound : ddp->map,
                               .data = ddp->gradients,
                               .include = bucket->include,
                               .dtype = bucket->dtype,
                               .result = widens ? ddp->listener.means : ddp->results,
                               .result_dtype = widens ? CZ_F32 : (cz_dtype)0,
                               .terms = cz__parts_terms(ddp->parts),
                               .pool = ddp->reductions,
                               .mine = mine};
    const cz_operation_options *options = waits ? CZ_LABEL(label) : CZ_START(label, &bucket->work);
    CZ_TRY(to_owners ? cz__reduce_along_map(ddp->group, &memory, CZ_AVERAGE, options)
                     : cz__all_reduce_along_map(ddp->group, &memory, CZ_AVERAGE, options));
    return last ? cz__work_then(bucket->work, last, NULL, bucket) : CZ_OK;
}

/* What cannot be started has failed for this rank, and for the others too: they wait for it and are
 * told by the next bucket, or run into their timeout. */
static void start(cz_ddp *ddp, cz_bucket *bucket, bool waits)
{
    if (!ddp->group) /* taken away in the middle of the pass */
        return;
    cz_status mine = ddp->failed == CZ_OK ? weigh(bucket) : cz__fail(ddp->failed, "%s", ddp->why);
    const char *label = cz__ddp_bucket_label(bucket);
    const cz_status status =
        ddp->hook.run ? cz__ddp_run_hook(bucket, mine, label) : reduce(bucket, mine, label, waits);
    if (status != CZ_OK && ddp->failed == CZ_OK) {
        ddp->failed = status;
        snprintf(ddp->why, sizeof ddp->why, "%s", cz_last_error());
    }
}

/* The last bucket, if it is small, waits for the end of the pass, which no rank reaches without all
 * others: nothing could be hidden, and its header tells all ranks what has failed on any. So there
 * is no agreement after it. */
enum { SMALL_BUCKET_BYTES = 64 << 10 };

static bool ends_pass(const cz_ddp *ddp, const cz_bucket *bucket)
{
    return bucket->index == ddp->launch[ddp->bucket_count - 1] && !ddp->hook.run &&
           !ddp->listener.reduced && bucket->bytes <= SMALL_BUCKET_BYTES;
}

void cz__ddp_start_ready(cz_ddp *ddp)
{
    for (; ddp->next < ddp->bucket_count; ddp->next++) {
        cz_bucket *bucket = &ddp->buckets[ddp->launch[ddp->next]];
        if (atomic_load(&bucket->pending) > 0 || ends_pass(ddp, bucket))
            return;
        if (!bucket->empty)
            start(ddp, bucket, false);
    }
}

bool cz__ddp_may_wait_whole(const cz_ddp *ddp)
{
    return ddp->bucket_count == 1 && ends_pass(ddp, &ddp->buckets[0]);
}

bool cz__ddp_waits_whole(const cz_ddp *ddp)
{
    return cz__ddp_may_wait_whole(ddp) && !ddp->buckets[0].empty;
}

bool cz__ddp_reduce_last(cz_ddp *ddp)
{
    cz_bucket *bucket = &ddp->buckets[ddp->launch[ddp->bucket_count - 1]];
    if (ddp->next == ddp->bucket_count || bucket->empty)
        return false;
    start(ddp, bucket, true);
    return true;
}

/* ---- what was not marked when a pass ends ---- */

static bool learns_graph(const cz_ddp *ddp)
{
    return ddp->options.static_graph && ddp->passes == 0;
}

static bool looks_at_graph(const cz_ddp *ddp)
{
    return ddp->options.static_graph ? ddp->passes == 0 : ddp->options.find_unused;
}

/* What earlier micro-batches, or parts, have added to is complete, though this one does not use
 * it. In parts it then counts as zeros. */
static void complete_what_was_added_to(cz_ddp *ddp)
{
    for (int64_t p = 0; p < ddp->param_count; p++) {
        cz__ddp_param *param = &ddp->params[p];
        const bool added_to = ddp->parts ? ddp->options.find_unused && cz__parts_has(ddp->parts, p)
                                         : atomic_exchange(&param->added_to, false);
        if (!added_to || !ddp->trained[p] || !ddp->results[p] || ddp->shadows)
            continue;
        if (atomic_load(&param->left) == param->uses) {
            atomic_store(&param->left, 0);
            if (ddp->parts)
                ddp->gradients[p] = NULL;
        }
    }
}

/* "'w'", or "'w' with 1 of 2 marks". */
static size_t name_missing(const cz_ddp *ddp, int64_t param, char *to, size_t room, bool comma)
{
    char marks[48] = "";
    const cz__ddp_param *p = &ddp->params[param];
    if (p->uses > 1)
        snprintf(marks, sizeof marks, " with %d of %d marks", p->uses - atomic_load(&p->left),
                 p->uses);
    const int length = snprintf(to, room, "%s'%.40s'%s", comma ? ", " : "",
                                cz__model_name(ddp->model, param), marks);
    return length > 0 ? (size_t)length : 0;
}

/* Not marked often enough: an error that names some of them. */
static cz_status check_marks(const cz_ddp *ddp)
{
    char names[200] = "";
    size_t length = 0;
    int64_t missing = 0, bucket = -1;
    bool partly = false;
    for (int64_t k = 0; k < ddp->param_count; k++) {
        const int64_t p = ddp->order[k];
        if (!ddp->trained[p] || atomic_load(&ddp->params[p].left) <= 0)
            continue;
        bucket = bucket < 0 ? ddp->params[p].bucket : bucket;
        if (missing++ < 4 && length < sizeof names)
            length += name_missing(ddp, p, names + length, sizeof names - length, missing > 1);
        partly = partly || ddp->params[p].uses > 1;
    }
    if (missing == 0)
        return CZ_OK;
    const char *advice = partly ? "see cz_ddp_set_uses() and find_unused" : "see find_unused";
    if (ddp->options.static_graph)
        advice = "the first pass of the static graph marked them";
    return cz__fail(CZ_ERR_STATE,
                    "ddp: %" PRId64
                    " parameters were not marked ready, the first in bucket %" PRId64 ": %s%s (%s)",
                    missing, bucket, names, missing > 4 ? ", …" : "", advice);
}

/* Was a parameter that takes part used here? */
bool cz__ddp_was_used(const cz_ddp *ddp, int64_t param)
{
    const int left = atomic_load(&ddp->params[param].left);
    if (ddp->shadows)
        return false;
    return learns_graph(ddp) ? left < INT_MAX : left <= 0 && ddp->params[param].uses > 0;
}

/* What some rank marked is reduced, with zeros where it was not; what none did stays as it is. A
 * bucket that was full on some rank is full of what is used: that rank has started it with all of
 * its parameters. */
static cz_status find_unused(cz_ddp *ddp)
{
    uint8_t *used = ddp->trained; /* from here on: trained, and used somewhere */
    for (int64_t p = 0; p < ddp->param_count; p++)
        if (used[p] && !cz__ddp_was_used(ddp, p)) {
            used[p] = 0;
            if (ddp->gradients[p]) /* else its bucket may be on its way */
                ddp->gradients[p] = NULL;
        }
    const cz_status status = cz_all_reduce(ddp->control, used, ddp->param_count, CZ_U8, CZ_MAX,
                                           CZ_LABEL("ddp: used parameters"));
    if (status != CZ_OK) { /* all ranks start all buckets, with this failure */
        for (int64_t p = 0; p < ddp->param_count; p++)
            used[p] = cz__model_requires_grad(ddp->model, p);
        return status;
    }
    for (int64_t p = 0; p < ddp->param_count; p++)
        if (used[p] && !ddp->results[p])
            return cz__fail(CZ_ERR_STATE,
                            "ddp: parameter '%.60s' of bucket %d is used by other ranks and has no "
                            "gradient memory",
                            cz__model_name(ddp->model, p), ddp->params[p].bucket);
    return CZ_OK;
}

/* From now on: as often as in this pass; 0: by other ranks only; below 0: by none. A rank without
 * inputs learns from the others that a parameter is used, and believes in once. */
static void keep_graph(cz_ddp *ddp)
{
    for (int64_t p = 0; p < ddp->param_count; p++) {
        const int marks = ddp->shadows ? 1 : INT_MAX - atomic_load(&ddp->params[p].left);
        if (cz__model_requires_grad(ddp->model, p))
            ddp->params[p].uses = ddp->trained[p] ? marks : -1;
    }
}

/* All parts of a step have the graph: what an earlier one marked here the last one did, too. */
static cz_status check_parts(const cz_ddp *ddp)
{
    for (int64_t p = 0; p < ddp->param_count; p++)
        if (cz__parts_has(ddp->parts, p) && !cz__ddp_was_used(ddp, p))
            return cz__fail(CZ_ERR_STATE,
                            "ddp: parameter '%.60s' was marked ready in an earlier part of the "
                            "step, and not in the last; the graph is static",
                            cz__model_name(ddp->model, p));
    return CZ_OK;
}

/* Ranks speak before anything may fail on one of them alone. */
cz_status cz__ddp_settle_unmarked(cz_ddp *ddp)
{
    if (!ddp->options.static_graph)
        complete_what_was_added_to(ddp);
    if (looks_at_graph(ddp))
        CZ_TRY(find_unused(ddp));
    if (ddp->options.static_graph && ddp->parts && !ddp->shadows)
        CZ_TRY(check_parts(ddp));
    if (learns_graph(ddp))
        keep_graph(ddp);
    return looks_at_graph(ddp) ? CZ_OK : check_marks(ddp);
}

/* ---- marks ---- */

/* One without elements needs no memory. */
static void *gradient_of(const cz_ddp *ddp, int64_t param)
{
    static char empty;
    void *gradient = cz__model_gradient_address(ddp->model, param);
    return gradient || cz_tensor_count(cz__model_value(ddp->model, param)) > 0 ? gradient : &empty;
}

/* A model without any gradient memory: nothing can be marked, and where unused parameters are
 * allowed no other check would find that. */
static void check_any_gradient(cz_ddp *ddp)
{
    int64_t trained = 0;
    for (int64_t p = 0; p < ddp->param_count; p++) {
        if (!ddp->trained[p])
            continue;
        if (ddp->results[p])
            return;
        trained++;
    }
    if (trained > 0)
        (void)cz__ddp_fail(ddp, cz__fail(CZ_ERR_STATE,
                                         "ddp: none of %" PRId64
                                         " trainable parameters has gradient memory; say where "
                                         "gradients are (cz_model_set_gradient())",
                                         trained));
}

/* How many marks a parameter needs in this pass. One that this rank does not use needs one more
 * look, which keeps its bucket open until ranks have told each other what is used. */
static int marks_of(const cz_ddp *ddp, int64_t param)
{
    const int uses = ddp->params[param].uses;
    if (learns_graph(ddp))
        return INT_MAX;
    return uses > 0 && !ddp->shadows ? uses : looks_at_graph(ddp);
}

void cz__ddp_open_part(cz_ddp *ddp)
{
    ddp->failed = CZ_OK;
    for (int64_t p = 0; p < ddp->param_count; p++) {
        ddp->trained[p] = cz__model_requires_grad(ddp->model, p) && ddp->params[p].uses >= 0;
        atomic_store(&ddp->params[p].left, marks_of(ddp, p));
    }
}

cz_status cz__ddp_check_part(cz_ddp *ddp)
{
    if (ddp->failed != CZ_OK)
        return cz__fail(ddp->failed, "%s", ddp->why);
    return looks_at_graph(ddp) ? CZ_OK : check_marks(ddp);
}

void cz__ddp_take_gradients(cz_ddp *ddp)
{
    const bool learns = learns_graph(ddp);
    ddp->gives_means = ddp->listener.means && cz__ddp_reduces_to_owners(ddp) && !ddp->hook.run;
    for (int64_t p = 0; p < ddp->param_count; p++) {
        cz__ddp_param *param = &ddp->params[p];
        const bool used = (learns || param->uses > 0) && !ddp->shadows;
        void *gradient = gradient_of(ddp, p);
        ddp->trained[p] = cz__model_requires_grad(ddp->model, p) && (learns || param->uses >= 0) &&
                          !ddp->weightless;
        ddp->results[p] = gradient;
        ddp->gradients[p] = used && ddp->share != 0 ? gradient : NULL;
        if (ddp->trained[p] && !gradient && !looks_at_graph(ddp))
            (void)cz__ddp_fail(
                ddp,
                cz__fail(CZ_ERR_STATE, "ddp: parameter '%.60s' of bucket %d has no gradient memory",
                         cz__model_name(ddp->model, p), param->bucket));
        atomic_store(&param->left, marks_of(ddp, p));
    }
    if (looks_at_graph(ddp))
        check_any_gradient(ddp);
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
        bucket->elements += cz_tensor_count(cz__model_value(ddp->model, p));
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

static cz_status check_mark(const cz_ddp *ddp, int64_t param)
{
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp mark_ready: ddp is NULL");
    if (param < 0 || param >= ddp->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "ddp mark_ready: parameter %" PRId64 ", there are %" PRId64, param,
                        ddp->param_count);
    if (atomic_load_explicit(&ddp->state, memory_order_acquire) == CZ__PASS_NONE)
        return cz__fail(CZ_ERR_STATE, "ddp mark_ready: parameter '%.60s': no pass has begun",
                        cz__model_name(ddp->model, param));
    if (cz__work_current())
        return cz__fail(CZ_ERR_STATE, "ddp mark_ready: parameter '%.60s': in a continuation",
                        cz__model_name(ddp->model, param));
    return CZ_OK;
}

static cz_status too_many(cz_ddp *ddp, int64_t param, int left)
{
    const cz__ddp_param *p = &ddp->params[param];
    const int uses = p->uses > 0 ? p->uses : 0;
    return cz__ddp_fail(
        ddp,
        cz__fail(
            CZ_ERR_STATE,
            "ddp: parameter '%.60s' of bucket %d was marked ready %d times, it is used %d times%s",
            cz__model_name(ddp->model, param), p->bucket, uses + 1 - left, uses,
            ddp->options.static_graph ? " in a static graph" : ""));
}

static cz_status no_memory(const cz_ddp *ddp, int64_t param)
{
    return cz__fail(
        CZ_ERR_STATE,
        "ddp: parameter '%.60s' of bucket %d was marked ready and has no gradient memory",
        cz__model_name(ddp->model, param), ddp->params[param].bucket);
}

static void start_ready(cz_ddp *ddp)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    pthread_mutex_lock(&ddp->lock);
    cz__ddp_start_ready(ddp);
    pthread_mutex_unlock(&ddp->lock);
}

/* The gradient is complete, and so may be the bucket. */
static void complete(cz_ddp *ddp, int64_t param)
{
    cz_bucket *bucket = &ddp->buckets[ddp->params[param].bucket];
    if (atomic_fetch_sub(&bucket->pending, 1) > 1)
        return;
    ddp->full[atomic_fetch_add(&ddp->full_count, 1)] = bucket->index;
    start_ready(ddp);
}

/* The first mark of a pass. */
static void open_at_first(cz_ddp *ddp)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    pthread_mutex_lock(&ddp->lock);
    if (atomic_load(&ddp->state) == CZ__PASS_BEGUN)
        cz__ddp_open(ddp);
    pthread_mutex_unlock(&ddp->lock);
}

static cz_status tell_mark(cz_ddp *ddp, int64_t param)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    const cz_status status = ddp->listener.marks(ddp->listener.context, param);
    return status == CZ_OK ? CZ_OK : cz__ddp_fail(ddp, status);
}

/* In a part that does not synchronise. */
static cz_status count_mark(cz_ddp *ddp, int64_t param)
{
    if (!cz__model_requires_grad(ddp->model, param))
        return CZ_OK;
    const int left = atomic_fetch_sub(&ddp->params[param].left, 1);
    return left < 1 ? too_many(ddp, param, left) : CZ_OK;
}

/* Most marks only count: what computes, or may wait, is apart. */
cz_status cz_ddp_mark_ready(cz_ddp *ddp, int64_t param)
{
    CZ_TRY(check_mark(ddp, param));
    cz__ddp_param *p = &ddp->params[param];
    if (!ddp->syncs && cz__model_requires_grad(ddp->model, param) && !gradient_of(ddp, param))
        return no_memory(ddp, param);
    if (!ddp->syncs && ddp->parts)
        return count_mark(ddp, param);
    if (!ddp->syncs)
        atomic_store_explicit(&p->added_to, true, memory_order_relaxed);
    if (!ddp->syncs || (!ddp->trained[param] && p->uses > 0))
        return CZ_OK;
    if (ddp->listener.marks)
        CZ_TRY(tell_mark(ddp, param));
    if (atomic_load_explicit(&ddp->state, memory_order_acquire) == CZ__PASS_BEGUN)
        open_at_first(ddp);
    const int left = atomic_fetch_sub(&p->left, 1);
    if (left < 1)
        return too_many(ddp, param, left);
    if (!ddp->rebuilt && (left == 1 || left == INT_MAX))
        ddp->arrivals[atomic_fetch_add(&ddp->arrived, 1)] = param;
    /* The pass has failed; it goes on, so that all ranks come to hear of it. */
    const cz_status status = ddp->results[param] ? CZ_OK : cz__ddp_fail(ddp, no_memory(ddp, param));
    if (left == 1)
        complete(ddp, param);
    return status;
}
