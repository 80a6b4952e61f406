/* SPDX-License-Identifier: MIT */
/* A pass: its beginning, and its end, at which all that was not marked is decided on. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/status.h"
#include "base/thread.h"
#include "ddp/object.h"
#include "tensor/model.h"

/* ---- beginning ---- */

static const char why_no_group[] =
    "its sharded optimizer was destroyed in the middle of a pass, or its group broke";

static void describe_pass(cz__description *d, const void *context)
{
    static const char *const weights[] = {"without weights", "with weights", NULL};
    static const char *const results[] = {"the whole bucket", "a slice", NULL};
    static const char *const overlaps[] = {"none", "interleaved", "step", NULL};
    const cz_ddp *ddp = context;
    cz__describe(d, &(cz__subject){NULL, "its hook", -1, NULL, "is"}, CZ__FIELD_TEXT,
                 ddp->hook_name, strlen(ddp->hook_name));
    cz__describe_word(d, &(cz__subject){"what is reduced", "its hook", -1, ddp->hook_name, "is"},
                      results, ddp->hook.result);
    if (ddp->hook.run)
        cz__hook_describe(d, &ddp->hook, ddp->passes);
    cz__describe_word(d, &(cz__subject){NULL, "the mean", -1, NULL, "is"}, weights,
                      cz__ddp_has_shares(ddp));
    cz__describe_word(d, &(cz__subject){NULL, "its optimizer's overlap", -1, NULL, "is"}, overlaps,
                      ddp->listener.reduced  ? 1
                      : ddp->listener.finish ? 2
                                             : 0);
    cz__describe_number(d, &(cz__subject){NULL, "the number of the pass", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, cz_ddp_passes(ddp));
    cz__describe_trainable(d, ddp->model);
}

cz_status cz__ddp_broadcast_buffers(cz_ddp *ddp)
{
    for (int64_t b = 0; b < cz_model_buffer_count(ddp->model); b++) {
        const cz_tensor *buffer = cz_model_buffer(ddp->model, b);
        CZ_TRY(cz_broadcast(ddp->control, buffer->data, cz_tensor_count(buffer), buffer->dtype,
                            cz__ddp_source(ddp), CZ_LABEL(cz_model_buffer_name(ddp->model, b))));
    }
    return CZ_OK;
}

static cz_status begin(cz_ddp *ddp)
{
    cz_status mine = cz__ddp_check_overlaps(ddp);
    if (mine == CZ_OK)
        mine = cz__ddp_have_pools(ddp);
    CZ_TRY(cz__agree_on(ddp->control, "ddp", describe_pass, ddp, mine, &ddp->room));
    CZ_TRY(cz__ddp_learn_order(ddp));
    CZ_TRY(cz__ddp_share(ddp));
    if (ddp->hook.run)
        CZ_TRY(cz__agree(ddp->control, cz__ddp_reserve_buffers(ddp), 0, NULL, "ddp: buffers"));
    if (!ddp->options.keep_buffers)
        CZ_TRY(cz__ddp_broadcast_buffers(ddp));
    if (ddp->listener.begin)
        CZ_TRY(ddp->listener.begin(ddp->listener.context));
    ddp->failed = CZ_OK;
    cz__ddp_take_gradients(ddp);
    return CZ_OK;
}

cz_status cz_ddp_begin(cz_ddp *ddp, bool sync)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp begin: ddp is NULL");
    if (cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "ddp begin: a pass has begun; cz_ddp_finish() ends it");
    if (!ddp->group)
        return cz__fail(CZ_ERR_STATE, "ddp begin: %s", why_no_group);
    if (sync && ddp->join && !ddp->shadows)
        CZ_TRY(cz_join_notify(ddp->join, ddp->join_number));
    if (sync)
        CZ_TRY(begin(ddp));
    if (sync && ddp->join)
        cz__join_hold(ddp->join, 1);
    ddp->syncs = sync;
    ddp->reduced = false;
    atomic_store_explicit(&ddp->state, CZ__PASS_BEGUN, memory_order_release);
    return CZ_OK;
}

/* ---- the end ---- */

/* Start all that has not started. */
static void start_rest(cz_ddp *ddp)
{
    pthread_mutex_lock(&ddp->lock);
    for (int n = ddp->next; n < ddp->bucket_count; n++) {
        cz_bucket *bucket = &ddp->buckets[ddp->launch[n]];
        bool any = false;
        for (int64_t k = 0; k < bucket->taking; k++) {
            const int64_t p = ddp->taking[bucket->first + k];
            bucket->include[p] = ddp->trained[p];
            any = any || ddp->trained[p];
        }
        bucket->empty = ddp->hook.run ? bucket->taking == 0 : !any;
        atomic_store(&bucket->pending, 0);
    }
    cz__ddp_start_ready(ddp);
    pthread_mutex_unlock(&ddp->lock);
}

/* A hook that failed has cost the group of the buckets; all ranks make another one, if it did so on any. */
static void mend_group(cz_ddp *ddp)
{
    uint8_t broken = cz__group_is_broken(ddp->group);
    if (cz_all_reduce(ddp->control, &broken, 1, CZ_U8, CZ_MAX, CZ_LABEL("ddp: mend")) != CZ_OK ||
        !broken)
        return;
    const bool had_room = ddp->bound && ddp->listener.reduced;
    (void)cz__ddp_wait_for_all(ddp, true);
    cz_group_destroy(&ddp->group);
    cz__ddp_release(ddp);
    cz_status status = cz_group_split(ddp->control, 0, 0, &ddp->group);
    if (status == CZ_OK)
        cz__group_serve(ddp->group, &ddp->object);
    if (status == CZ_OK && had_room)
        status = cz__agree(ddp->control, cz__ddp_reserve(ddp), 0, NULL, "ddp: mend");
    if (status != CZ_OK)
        cz_group_destroy(&ddp->group);
}

/* A rank that has not come to a bucket does not come to what follows either: nobody waits for it once more. Not so where a
 * hook has broken the group of the buckets, which is mended. */
static bool has_lost_a_rank(const cz_ddp *ddp, cz_status status)
{
    return status == CZ_ERR_TIMEOUT && cz__group_is_broken(ddp->group) && !cz__ddp_blames_hook();
}

/* A failure after the last bucket had started is known to this rank alone. Where a rank is gone the bucket that
 * it lacks says more than this agreement, which lacks it, too. */
static cz_status agree_on_end(cz_ddp *ddp, cz_status mine)
{
    char why[sizeof ddp->why] = "";
    if (mine == CZ_OK && ddp->failed != CZ_OK)
        mine = cz__fail(ddp->failed, "%s", ddp->why);
    if (mine != CZ_OK)
        snprintf(why, sizeof why, "%s", cz_last_error());
    if (has_lost_a_rank(ddp, mine))
        cz__group_give_up(ddp->control, mine);
    const cz_status status = cz__agree(ddp->control, mine, 0, NULL, "ddp: finish");
    if (mine != CZ_OK && cz__group_is_broken(ddp->control))
        return cz__fail(mine, "%s", why);
    if (status == CZ_OK || !ddp->hook.run)
        return status;
    snprintf(why, sizeof why, "%s", cz_last_error());
    mend_group(ddp);
    return cz__fail(status, "%s", why);
}

static cz_status finish(cz_ddp *ddp)
{
    pthread_mutex_lock(&ddp->lock);
    if (atomic_load(&ddp->state) == CZ__PASS_BEGUN)
        cz__ddp_open(ddp);
    pthread_mutex_unlock(&ddp->lock);
    const cz_status marks = cz__ddp_settle_unmarked(ddp);
    if (marks != CZ_OK)
        (void)cz__ddp_fail(ddp, marks);
    if (marks == CZ_ERR_TIMEOUT && cz__group_is_broken(ddp->control))
        cz__group_give_up(ddp->group, marks);
    start_rest(ddp);
    atomic_store(&ddp->state, CZ__PASS_NONE);
    if (ddp->join)
        cz__join_hold(ddp->join, -1);
    CZ_TRY(agree_on_end(ddp, cz__ddp_wait_for_all(ddp, !ddp->listener.late)));
    ddp->passes += !ddp->weightless; /* which teaches nothing */
    ddp->reduced = true;
    return ddp->listener.finish ? ddp->listener.finish(ddp->listener.context) : CZ_OK;
}

cz_status cz_ddp_finish(cz_ddp *ddp)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp finish: ddp is NULL");
    if (!cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "ddp finish: no pass has begun");
    if (ddp->group && ddp->syncs)
        return finish(ddp);
    atomic_store(&ddp->state, CZ__PASS_NONE);
    return ddp->group ? CZ_OK : cz__fail(CZ_ERR_STATE, "ddp finish: %s", why_no_group);
}

cz_status cz_ddp_abandon(cz_ddp *ddp)
{
    CZ__OWN_FLOATS;
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp abandon: ddp is NULL");
    if (!cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "ddp abandon: no pass has begun");
    if (!ddp->group || !ddp->syncs)
        return cz_ddp_finish(ddp);
    (void)cz__ddp_fail(ddp, cz__fail(CZ_ERR_STATE, "ddp: the pass was abandoned"));
    const cz_status status = finish(ddp);
    return status == CZ_ERR_STATE && !cz__group_is_broken(ddp->control) ? CZ_OK : status;
}

int64_t cz_ddp_passes(const cz_ddp *ddp)
{
    return ddp ? ddp->passes_before + ddp->passes : -1;
}

cz_status cz_ddp_set_passes(cz_ddp *ddp, int64_t passes)
{
    if (!ddp || passes < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp set_passes: %" PRId64 " passes%s", passes,
                        ddp ? ", wanted 0 or more" : " of NULL");
    if (cz__ddp_in_pass(ddp) || ddp->passes > 0)
        return cz__fail(CZ_ERR_STATE, "ddp set_passes: the first pass has begun");
    ddp->passes_before = passes;
    return CZ_OK;
}

cz_status cz_ddp_set_uses(cz_ddp *ddp, int64_t param, int uses)
{
    if (!ddp || param < 0 || param >= ddp->param_count || uses < 1)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp set_uses: parameter %" PRId64 " used %d times", param,
                        uses);
    if (cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "ddp set_uses: a pass has begun");
    ddp->params[param].uses = uses;
    return CZ_OK;
}
