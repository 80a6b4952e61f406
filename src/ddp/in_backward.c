/* SPDX-License-Identifier: MIT */
/* Unsharded optimizers inside passes: every rank has the mean of a bucket, and updates its parameters while the program
 * fills the next one. */
#include "base/float_mode.h"
#include "base/status.h"
#include "base/thread.h"
#include "ddp/object.h"
#include "optim/in_backward.h"

/* Ranks stay equal only if they do the same. */
static cz_status begin(void *context)
{
    cz_ddp *ddp = context;
    const char *const part = "ddp: optimizers";
    bool same;
    const cz_status mine = cz__in_backward_begin(ddp->in_backward, NULL);
    CZ_TRY(
        cz__agree(ddp->control, mine, cz__in_backward_fingerprint(ddp->in_backward), &same, part));
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

static cz_status check(const cz_ddp *ddp, const cz_in_backward *in_backward)
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
    CZ_TRY(check(ddp, in_backward));
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
