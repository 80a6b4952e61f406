/* SPDX-License-Identifier: MIT */
/* A pass: its beginning, its end, at which all that was not marked is decided on, and passes with
 * uneven inputs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "ddp/object.h"
#include "tensor/model.h"
#include "collective/model.h"
#include "collective/weights.h"

/* ---- beginning ---- */

static const char why_no_group[] =
    "its sharded optimizer was destroyed in the middle of a pass, or its group broke";

/* Do ranks have shares of the mean in this pass? */
static bool has_shares(const cz_ddp *ddp)
{
    return ddp->join ? cz__join_division(ddp->join) != CZ_JOIN_BY_WORLD : ddp->weight >= 0;
}

/* A step at the end of a pass over one small bucket reduces it itself, in the one operation that
 * small steps are: nobody sees gradients in between. Not where ranks' gradients have weights, or
 * some may have none; checked mode looks at the two one by one. Equal on all ranks. */
static bool may_step_reduce(const cz_ddp *ddp)
{
    return ddp->listener.finish_unreduced && cz__ddp_reduces_to_owners(ddp) &&
           !ddp->options.find_unused && !ddp->options.static_graph && !ddp->join && !ddp->parts &&
           !has_shares(ddp) && !cz__group_is_checked(ddp->control);
}

static bool step_reduces(const cz_ddp *ddp)
{
    return may_step_reduce(ddp) && cz__ddp_waits_whole(ddp);
}

static bool any_is_trainable(const cz_ddp *ddp)
{
    for (int64_t p = 0; p < ddp->param_count; p++)
        if (cz__model_requires_grad(ddp->model, p))
            return true;
    return false;
}

/* Such a pass says nothing before its end: what ranks have to agree on when it begins goes with
 * that operation, too. Part of that is whether it does, so a rank that begins in another way, or
 * cannot begin, meets the end of the others' passes. Not the first one, whose description there is
 * room for from then on. */
static bool opens_with_step(const cz_ddp *ddp)
{
    const bool has_buffers = cz__model_buffer_count(ddp->model) > 0 && !ddp->options.keep_buffers;
    return ddp->passes > 0 && may_step_reduce(ddp) && cz__ddp_may_wait_whole(ddp) && !has_buffers &&
           cz__ddp_has_learned_order(ddp) && any_is_trainable(ddp);
}

/* Of what such passes can differ in; which parameters are trainable the step compares. */
static uint64_t fingerprint_of(const cz_ddp *ddp)
{
    const int64_t pass = cz__ddp_passes(ddp) + 1;
    return cz__fingerprint_elements(0, &pass, sizeof pass);
}

static void describe_pass(cz__description *d, const void *context)
{
    static const char *const weights[] = {"without weights", "with weights", NULL};
    static const char *const results[] = {"the whole bucket", "a slice", NULL};
    static const char *const overlaps[] = {"none", "interleaved", "step", NULL};
    static const char *const openings[] = {"at its beginning", "with its step", NULL};
    const cz_ddp *ddp = context;
    int overlap = 0;
    if (ddp->listener.reduced)
        overlap = 1;
    else if (ddp->listener.finish)
        overlap = 2;
    cz__describe(d, &(cz__subject){NULL, "its hook", -1, NULL, "is"}, CZ__FIELD_TEXT,
                 ddp->hook_name, strlen(ddp->hook_name));
    cz__describe_word(d, &(cz__subject){"what is reduced", "its hook", -1, ddp->hook_name, "is"},
                      results, ddp->hook.result);
    if (ddp->hook.run)
        cz__hook_describe(d, &ddp->hook, ddp->passes);
    cz__describe_word(d, &(cz__subject){NULL, "the mean", -1, NULL, "is"}, weights,
                      has_shares(ddp));
    cz__describe_word(d, &(cz__subject){NULL, "its optimizer's overlap", -1, NULL, "is"}, overlaps,
                      overlap);
    cz__describe_number(d, &(cz__subject){NULL, "the number of the pass", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, cz__ddp_passes(ddp));
    cz__describe_trainable(d, ddp->model);
    cz__describe_word(d, &(cz__subject){NULL, "the pass", -1, NULL, "is compared"}, openings,
                      opens_with_step(ddp));
}

static cz_status broadcast_buffers(cz_ddp *ddp)
{
    for (int64_t b = 0; b < cz__model_buffer_count(ddp->model); b++) {
        const cz_tensor *buffer = cz__model_buffer(ddp->model, b);
        CZ_TRY(cz_broadcast(ddp->control, buffer->data, cz_tensor_count(buffer), buffer->dtype,
                            cz__ddp_source(ddp), CZ_LABEL(cz__model_buffer_name(ddp->model, b))));
    }
    return CZ_OK;
}

static bool is_trainable(const void *context, int64_t param)
{
    const cz_ddp *ddp = context;
    return cz__model_requires_grad(ddp->model, param);
}

static cz__overlaps overlaps_of(const cz_ddp *ddp)
{
    return (cz__overlaps){
        .part = "ddp", .model = ddp->model, .is_own = is_trainable, .context = ddp};
}

/* Where optimizers step inside the pass, a gradient may be where another one was. */
static cz_status check_overlaps(cz_ddp *ddp)
{
    cz__overlaps overlaps = overlaps_of(ddp);
    overlaps.reuses_gradients = ddp->in_backward != NULL;
    return cz__check_overlaps_again(&ddp->overlaps, &overlaps);
}

cz_status cz__ddp_check_overlaps_at_first(cz_ddp *ddp)
{
    cz__overlaps overlaps = overlaps_of(ddp);
    overlaps.before_use = true;
    return cz__check_overlaps_at_first(&ddp->overlaps, &overlaps);
}

/* What this rank's gradients count for in the mean. A rank that has joined has none; by active
 * ranks, all others have the same. */
static double weight_of(const cz_ddp *ddp)
{
    if (ddp->shadows)
        return 0;
    if (ddp->join && cz__join_division(ddp->join) == CZ_JOIN_BY_ACTIVE)
        return 1;
    return ddp->weight < 0 ? NAN : ddp->weight;
}

static cz_status take_share(cz_ddp *ddp)
{
    if (ddp->parts) { /* which weigh the gradients themselves */
        ddp->weightless = cz__parts_weightless(ddp->parts);
        ddp->share = ddp->shadows || cz__parts_share(ddp->parts) == 0 ? 0 : 1;
        return CZ_OK;
    }
    ddp->share = ddp->shadows ? 0 : 1;
    ddp->weightless = false;
    if (!has_shares(ddp))
        return CZ_OK;
    return cz__share_of_weight(ddp->control, weight_of(ddp), "ddp begin", "cz_ddp_set_weight()",
                               &ddp->share, &ddp->weightless);
}

static const char part[] = "ddp"; /* of passes, in what is said of them */

cz_status cz__ddp_compare_openings(cz_ddp *ddp)
{
    ddp->room.count = 0;
    describe_pass(&ddp->room, ddp); /* there is room */
    return cz__compare_descriptions(ddp->control, part, describe_pass, ddp, &ddp->room);
}

static cz_status begin(cz_ddp *ddp)
{
    cz_status mine = check_overlaps(ddp);
    if (mine == CZ_OK)
        mine = cz__ddp_have_pools(ddp);
    ddp->opens_with_step = mine == CZ_OK && opens_with_step(ddp);
    if (!ddp->opens_with_step)
        CZ_TRY(cz__agree_on(ddp->control, part, describe_pass, ddp, mine, &ddp->room));
    CZ_TRY(cz__ddp_learn_order(ddp));
    CZ_TRY(take_share(ddp));
    if (ddp->hook.run)
        CZ_TRY(cz__agree(ddp->control, cz__ddp_reserve_buffers(ddp), 0, NULL, "ddp: buffers"));
    if (!ddp->options.keep_buffers)
        CZ_TRY(broadcast_buffers(ddp));
    if (ddp->listener.begin)
        CZ_TRY(ddp->listener.begin(ddp->listener.context));
    ddp->failed = CZ_OK;
    cz__ddp_take_gradients(ddp);
    return CZ_OK;
}

/* The last part of this rank synchronises. */
static cz_status check_part(const cz_ddp *ddp, bool sync)
{
    CZ_TRY(cz__parts_are_whole(ddp->parts, "ddp begin"));
    const bool is_last = cz_parts_is_last(ddp->parts);
    if (sync == is_last || ddp->shadows)
        return CZ_OK;
    return cz__fail(CZ_ERR_STATE, "ddp begin: sync is %s, and the part that comes next is %s last",
                    sync ? "true" : "false", is_last ? "this rank's" : "not this rank's");
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
    if (ddp->parts)
        CZ_TRY(check_part(ddp, sync));
    if (sync && ddp->join && !ddp->shadows)
        CZ_TRY(cz_join_notify(ddp->join, ddp->join_number));
    if (sync)
        CZ_TRY(begin(ddp));
    if (sync && ddp->join)
        cz__join_hold(ddp->join, 1);
    ddp->syncs = sync;
    ddp->reduced = false;
    if (ddp->parts)
        cz__parts_hold(ddp->parts, true);
    if (ddp->parts && !sync)
        cz__ddp_open_part(ddp);
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

/* A hook that failed has cost the group of the buckets; all ranks make another one, if it did so on
 * any. */
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
    if (status)
        goto done;
    cz__group_serve(ddp->group, &ddp->object);
    if (had_room)
        status = cz__agree(ddp->control, cz__ddp_reserve(ddp), 0, NULL, "ddp: mend");
done:
    if (status != CZ_OK)
        cz_group_destroy(&ddp->group);
}

/* A rank that has not come to a bucket does not come to what follows either: nobody waits for it
 * once more. Not so where a hook has broken the group of the buckets, which is mended. */
static bool has_lost_a_rank(const cz_ddp *ddp, cz_status status)
{
    return status == CZ_ERR_TIMEOUT && cz__group_is_broken(ddp->group) && !cz__ddp_blames_hook();
}

/* What this rank's pass has failed with, unless an operation of it has: then that. */
static cz_status outcome_of(const cz_ddp *ddp, cz_status operations)
{
    return operations == CZ_OK && ddp->failed != CZ_OK ? cz__fail(ddp->failed, "%s", ddp->why)
                                                       : operations;
}

/* A failure after the last bucket had started is known to this rank alone. Where a rank is gone the
 * bucket that it lacks says more than this agreement, which lacks it, too. */
static cz_status agree_on_end(cz_ddp *ddp, cz_status mine)
{
    char why[sizeof ddp->why] = "";
    mine = outcome_of(ddp, mine);
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

/* Where a rank is lost in the last bucket the others may not come to an agreement. */
static cz_status end_together(cz_ddp *ddp)
{
    const bool all_know = ddp->bucket_count > 0 && cz__ddp_reduce_last(ddp);
    cz_status mine = cz__ddp_wait_for_all(ddp, !ddp->listener.late);
    if (!all_know)
        return agree_on_end(ddp, mine);
    mine = outcome_of(ddp, mine);
    if (mine != CZ_OK && cz__group_is_broken(ddp->group))
        cz__group_give_up(ddp->control, mine);
    return mine;
}

static void count_pass(cz_ddp *ddp)
{
    ddp->passes += !ddp->weightless; /* which teaches nothing */
    ddp->reduced = true;
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
    if (ddp->opens_with_step || step_reduces(ddp)) {
        const cz__ddp_opening opening = {ddp->control, part, fingerprint_of(ddp)};
        CZ_TRY(ddp->listener.finish_unreduced(ddp->listener.context, outcome_of(ddp, CZ_OK),
                                              ddp->opens_with_step ? &opening : NULL));
        count_pass(ddp);
        return CZ_OK;
    }
    const cz_status ended = end_together(ddp);
    if (ddp->parts) {
        cz__parts_end_step(ddp->parts);
        cz__parts_hold(ddp->parts, false);
    }
    CZ_TRY(ended);
    count_pass(ddp);
    return ddp->listener.finish ? ddp->listener.finish(ddp->listener.context) : CZ_OK;
}

/* What was marked in a pass that does not synchronise are a part's gradients. */
static cz_status add_part(cz_ddp *ddp)
{
    CZ_TRY(cz__ddp_check_part(ddp));
    for (int64_t p = 0; p < ddp->param_count; p++)
        if (cz__model_requires_grad(ddp->model, p))
            CZ_TRY(cz__parts_add_param(
                ddp->parts, p,
                cz__ddp_was_used(ddp, p) ? cz__model_gradient_address(ddp->model, p) : NULL));
    cz__parts_next(ddp->parts);
    return CZ_OK;
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
    if (ddp->parts)
        cz__parts_hold(ddp->parts, false);
    if (!ddp->group)
        return cz__fail(CZ_ERR_STATE, "ddp finish: %s", why_no_group);
    return ddp->parts ? add_part(ddp) : CZ_OK;
}

/* The part is not added: it may be run again. */
static cz_status drop_part(cz_ddp *ddp)
{
    atomic_store(&ddp->state, CZ__PASS_NONE);
    cz__parts_hold(ddp->parts, false);
    return CZ_OK;
}

cz_status cz_ddp_abandon(cz_ddp *ddp)
{
    CZ__OWN_FLOATS;
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp abandon: ddp is NULL");
    if (!cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "ddp abandon: no pass has begun");
    if (ddp->group && ddp->parts && !ddp->syncs)
        return drop_part(ddp);
    if (!ddp->group || !ddp->syncs)
        return cz_ddp_finish(ddp);
    (void)cz__ddp_fail(ddp, cz__fail(CZ_ERR_STATE, "ddp: the pass was abandoned"));
    const cz_status status = finish(ddp);
    return status == CZ_ERR_STATE && !cz__group_is_broken(ddp->control) ? CZ_OK : status;
}

/* ---- uneven inputs ---- */
/* Passes with uneven inputs: a rank that has joined starts every bucket with gradients that count
 * as zero, and gets the mean as the others do, so that an optimizer that shares its pass is
 * right. */

static cz_status enter(void *object, cz_join *join, int number)
{
    cz_ddp *ddp = object;
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "join: ddp is NULL");
    if (join && cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "join: a pass of the ddp has begun");
    if (join && ddp->parts)
        CZ_TRY(cz__parts_check_join(join, "ddp"));
    CZ_TRY(cz__join_enter(&ddp->join, join, number, ddp->group, &ddp->object, "ddp"));
    ddp->join_number = number;
    return CZ_OK;
}

/* As the program clears them before a pass: parameters that nobody uses keep what is there. */
static cz_status clear_gradients(const cz_ddp *ddp)
{
    for (int64_t p = 0; p < ddp->param_count; p++) {
        const cz_tensor *value = cz__model_value(ddp->model, p);
        const size_t bytes = (size_t)cz_tensor_count(value) * cz_dtype_size(value->dtype);
        void *gradient = cz__model_gradient_address(ddp->model, p);
        if (gradient && bytes > 0 && cz__model_requires_grad(ddp->model, p))
            CZ_TRY(ddp->device->zero(NULL, gradient, bytes));
    }
    return CZ_OK;
}

static cz_status shadow(void *object, cz_join *join)
{
    cz_ddp *ddp = object;
    CZ_TRY(clear_gradients(ddp));
    if (ddp->parts)
        cz__parts_skip(ddp->parts);
    ddp->shadows = true;
    cz_status status = cz_ddp_begin(ddp, true);
    if (!status)
        status = cz_ddp_finish(ddp);
    ddp->shadows = false;
    if (ddp->parts)
        cz__parts_end_step(ddp->parts);
    return status;
}

/* Buffers are those of the last rank; and parameters, if there is no sharded optimizer that kept
 * them equal. */
static cz_status finish_join(void *object, cz_join *join)
{
    cz_ddp *ddp = object;
    if (!ddp->bound)
        return cz__broadcast_model(ddp->control, ddp->model, &ddp->object, cz__join_last(join),
                                   "join: last values");
    CZ_TRY(cz__ddp_settle(ddp));
    return ddp->options.keep_buffers ? CZ_OK : broadcast_buffers(ddp);
}

static void abandon_join(void *object, cz_status status)
{
    cz_ddp *ddp = object;
    if (!cz__ddp_in_pass(ddp))
        return;
    (void)cz__ddp_fail(ddp, status);
    (void)cz_ddp_finish(ddp);
}

cz_status cz_ddp_joinable(cz_ddp *ddp, cz_joinable *out)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp joinable: out is NULL");
    const cz_joinable ours = {sizeof(cz_joinable), "ddp",       ddp, enter, shadow,
                              finish_join,         abandon_join};
    return cz__options_write(out, &ours, sizeof ours, "cz_joinable");
}
