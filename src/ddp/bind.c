/* SPDX-License-Identifier: MIT */
/* A data-parallel model and its optimizers: what they are told, and what they wait for. */
#include <stdio.h>

#include "base/float_mode.h"
#include "base/status.h"
#include "base/thread.h"
#include "ddp/object.h"
#include "optim/optim.h"

const char *cz__ddp_bucket_label(cz_bucket *bucket)
{
    const cz_ddp *ddp = bucket->ddp;
    const int64_t first = ddp->taking[bucket->first];
    if (bucket->named_after != first + 1)
        snprintf(bucket->label, sizeof bucket->label, "bucket %d, '%.28s'", bucket->index,
                 cz__model_name(ddp->model, first));
    bucket->named_after = first + 1;
    return bucket->label;
}

cz_status cz__ddp_tell(cz_status status, void *context)
{
    cz_bucket *bucket = context;
    const cz_ddp *ddp = bucket->ddp;
    const cz__ddp_ready reduced = {.group = ddp->group,
                                   .label = cz__ddp_bucket_label(bucket),
                                   .params = ddp->order + bucket->first,
                                   .count = bucket->count,
                                   .include = bucket->include,
                                   .gradients =
                                       cz__ddp_widens(bucket) ? ddp->listener.means : ddp->results,
                                   .transfers = bucket->transfers,
                                   .pool = cz__ddp_values_take_turns(ddp) ? ddp->values : NULL,
                                   .values = &bucket->values};
    return status == CZ_OK ? ddp->listener.reduced(ddp->listener.context, &reduced) : status;
}

/* ---- a sharded optimizer ---- */

/* Waits, and keeps the first failure. */
static void wait_for(cz_work **work, cz_status *first, char *why, size_t bytes)
{
    if (!*work)
        return;
    const cz_status status = cz_work_wait(*work);
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
    if (values)
        for (int b = 0; b < ddp->bucket_count; b++)
            wait_for(&ddp->buckets[b].values, &first, why, sizeof why);
    return first == CZ_OK ? CZ_OK : cz__fail(first, "%s", why);
}

void cz__ddp_bind(cz_ddp *ddp, const cz_shard_map *map, const cz__ddp_listener *listener)
{
    if (ddp->bound && cz__ddp_in_pass(ddp)) /* what is in flight uses the old map: no way on */
        cz_group_destroy(&ddp->group);
    (void)cz__ddp_settle(ddp); /* values on their way: all ranks have started these */
    if (!map)
        cz__ddp_release(ddp);
    if (ddp->bound) /* what is reduced is with the old owners */
        ddp->reduced = false;
    ddp->bound = map;
    ddp->listener = listener ? *listener : (cz__ddp_listener){0};
}

cz_status cz__ddp_check_hook(const cz_ddp *ddp, const cz_hook *hook, bool bound)
{
    if (hook->result == CZ_HOOK_WHOLE && bound && !ddp->options.all_reduce)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "ddp: hook '%.40s' reduces whole buckets, and a sharded optimizer takes "
                        "slices; see option all_reduce",
                        hook->name);
    if (hook->result == CZ_HOOK_SLICE && ddp->options.all_reduce)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "ddp: hook '%.40s' reduces slices, option all_reduce wants whole buckets",
                        hook->name);
    return CZ_OK;
}

cz_status cz__ddp_check(const cz_ddp *ddp, const cz_model *model, const cz_group *group)
{
    if (ddp->model != model)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: option ddp is over another model");
    if (!ddp->group)
        return cz__fail(CZ_ERR_STATE, "zero: option ddp has no group any more");
    if (cz_group_size(ddp->group) != cz_group_size(group) ||
        cz_group_rank(ddp->group) != cz_group_rank(group))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: option ddp: this is rank %d of %d there, rank %d of %d here",
                        cz_group_rank(ddp->group), cz_group_size(ddp->group), cz_group_rank(group),
                        cz_group_size(group));
    if (ddp->bound)
        return cz__fail(CZ_ERR_STATE, "zero: option ddp has a sharded optimizer already");
    if (ddp->in_backward)
        return cz__fail(CZ_ERR_STATE, "zero: option ddp has unsharded optimizers already");
    if (cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "zero: option ddp is in the middle of a pass");
    return ddp->hook.run ? cz__ddp_check_hook(ddp, &ddp->hook, true) : CZ_OK;
}

cz_status cz__ddp_settle(cz_ddp *ddp)
{
    return cz__ddp_wait_for_all(ddp, true);
}

cz_status cz__ddp_wait_param(cz_ddp *ddp, int64_t param)
{
    cz_bucket *bucket = &ddp->buckets[ddp->params[param].bucket];
    if (bucket->work)
        CZ_TRY(cz_work_wait(bucket->work));
    return bucket->values ? cz_work_wait(bucket->values) : CZ_OK;
}

/* ---- unsharded optimizers ---- */
/* Unsharded optimizers inside passes: every rank has the mean of a bucket, and updates its
 * parameters while the program fills the next one. */

/* Ranks stay equal only if they do the same. */
static cz_status begin(void *context)
{
    cz_ddp *ddp = context;
    const char *const part = "ddp: optimizers";
    bool same;
    const cz_status mine = cz__in_backward_begin(ddp->in_backward, NULL);
    const uint64_t print = mine == CZ_OK ? cz__in_backward_fingerprint(ddp->in_backward) : 0;
    CZ_TRY(cz__agree(ddp->control, mine, print, &same, part));
    return same ? CZ_OK
                : cz__agree_on(ddp->control, part, cz__in_backward_describe, ddp->in_backward,
                               CZ_OK, &ddp->room);
}

static cz_status update_bucket(void *context, const cz__ddp_ready *bucket)
{
    const cz_ddp *ddp = context;
    for (int64_t k = 0; k < bucket->count; k++) {
        const int64_t p = bucket->params[k];
        if (bucket->include[p])
            cz__in_backward_update(ddp->in_backward, p, bucket->gradients[p]);
    }
    return CZ_OK;
}

cz_status cz__ddp_check_slices(const cz_hook *hook)
{
    if (hook->result == CZ_HOOK_SLICE)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "ddp: hook '%.40s' reduces slices, optimizers inside passes that are not "
                        "sharded want whole buckets",
                        hook->name);
    return CZ_OK;
}

static cz_status check_in_backward(const cz_ddp *ddp, const cz_in_backward *in_backward)
{
    if (cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "ddp step_in_backward: a pass has begun");
    if (!in_backward)
        return CZ_OK;
    if (ddp->bound || ddp->in_backward)
        return cz__fail(CZ_ERR_STATE, "ddp step_in_backward: it has %s already",
                        ddp->bound ? "a sharded optimizer" : "optimizers");
    if (cz__in_backward_is_driven(in_backward))
        return cz__fail(CZ_ERR_STATE, "ddp step_in_backward: another ddp steps them");
    if (cz__in_backward_has_end(in_backward))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "ddp step_in_backward: the optimizers were made with background, undo or a "
                        "group, which want an end that passes do not have");
    if (cz__in_backward_model(in_backward) != ddp->model)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "ddp step_in_backward: the optimizers are over another model");
    return ddp->hook.run ? cz__ddp_check_slices(&ddp->hook) : CZ_OK;
}

cz_status cz_ddp_step_in_backward(cz_ddp *ddp, cz_in_backward *in_backward)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp step_in_backward: ddp is NULL");
    CZ_TRY(check_in_backward(ddp, in_backward));
    cz__ddp_leave_in_backward(ddp);
    if (!in_backward)
        return CZ_OK;
    cz__in_backward_drive(in_backward, true);
    ddp->in_backward = in_backward;
    ddp->listener = (cz__ddp_listener){.begin = begin, .reduced = update_bucket, .context = ddp};
    return CZ_OK;
}

void cz__ddp_leave_in_backward(cz_ddp *ddp)
{
    if (!ddp->in_backward)
        return;
    cz__in_backward_drive(ddp->in_backward, false);
    ddp->in_backward = NULL;
    ddp->listener = (cz__ddp_listener){0};
}
