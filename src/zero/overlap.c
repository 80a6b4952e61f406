/* SPDX-License-Identifier: MIT */
/* The step inside the backward pass: as soon as a bucket is reduced its owners update their spans of it and
 * the new values go to every rank, while the program fills the next bucket. A parameter may change then: its
 * gradient is complete, so this pass needs its value no more. Or else at the end of the pass. */
#include "zero/overlap.h"

#include <inttypes.h>
#include <math.h>

#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"

static const cz_step_options *step_options(const cz_zero *zero)
{
    return zero->step_options.size ? &zero->step_options : NULL;
}

/* What a step does before its update: all ranks have the same settings, there is memory for state. */
static cz_status begin(void *context)
{
    cz_zero *zero = context;
    zero->stepped = false;
    cz_status mine = cz__step_begin(zero->optim, step_options(zero), NULL,
                                    cz__step_run_closure(step_options(zero), &zero->outcome));
    if (mine == CZ_OK)
        mine = cz__optim_check_gradients(zero->optim, false);
    CZ_TRY(
        cz__agree_on(zero->group, "zero step", cz__describe_settings, zero, mine, &zero->settings));
    zero->step_count++;
    return CZ_OK;
}

static cz_status update_bucket(void *context, const cz__ddp_ready *bucket)
{
    cz_zero *zero = context;
    const cz__mapped memory = {.map = zero->map,
                               .data = zero->tables.values,
                               .include = bucket->include,
                               .dtype = cz_model_value(zero->model, bucket->params[0])->dtype,
                               .reserve = bucket->transfers,
                               .pool = bucket->pool,
                               .detached = true,
                               .shared = zero->shared_values};
    const double start = cz__seconds();
    uint64_t bytes = 0;
    for (int64_t k = 0; k < bucket->count; k++) {
        const int64_t p = bucket->params[k];
        if (bucket->include[p] && cz__optim_group_of(zero->optim, p) >= 0)
            bytes += cz__optim_update_param(zero->optim, p, bucket->gradients[p]);
    }
    cz__trace_add(&zero->trace, CZ_TRACE_UPDATE, start, bytes);
    return cz__gather_along_map(bucket->group, &memory, CZ_START(bucket->label, bucket->values));
}

static cz_status end_of_reductions(void *context)
{
    cz_zero *zero = context;
    zero->outcome.skipped = cz__ddp_weightless(zero->ddp);
    zero->stepped = zero->has_stepped = true;
    cz__zero_forget_asked(zero);
    return CZ_OK;
}

static cz_status step_at_end(void *context)
{
    cz_zero *zero = context;
    zero->stepped = false;
    CZ_TRY(cz__zero_step(zero, step_options(zero), NULL,
                         cz__step_run_closure(step_options(zero), &zero->outcome), &zero->outcome));
    zero->stepped = zero->has_stepped = true;
    return CZ_OK;
}

cz_status cz__overlap_check(const cz_zero *zero, cz_overlap overlap)
{
    if (overlap < CZ_OVERLAP_NONE || overlap > CZ_OVERLAP_STEP)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: option overlap is %d, wanted 0, 1 or 2",
                        (int)overlap);
    if (overlap && !zero->ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: option overlap needs option ddp");
    if (zero->late && overlap != CZ_OVERLAP_INTERLEAVED)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: option overlap_gather needs overlap CZ_OVERLAP_INTERLEAVED");
    if (overlap == CZ_OVERLAP_INTERLEAVED && cz__optim_sum_count(zero->optim) > 0)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "zero: option overlap: rule %s has partial sums, which need all of a "
                        "parameter's gradient before its update; CZ_OVERLAP_STEP can do that",
                        zero->rule->name);
    return CZ_OK;
}

cz_status cz__overlap_reserve(const cz_zero *zero, cz_overlap overlap)
{
    return overlap == CZ_OVERLAP_INTERLEAVED ? cz__ddp_reserve(zero->ddp) : CZ_OK;
}

void cz__overlap_bind(cz_zero *zero)
{
    const cz__ddp_listener listeners[] = {
        [CZ_OVERLAP_NONE] = {0},
        [CZ_OVERLAP_INTERLEAVED] = {begin, update_bucket, end_of_reductions, zero->late, zero,
                                    zero->asked ? cz__zero_marks : NULL},
        [CZ_OVERLAP_STEP] = {.finish = step_at_end, .context = zero},
    };
    cz__ddp_bind(zero->ddp, zero->map, &listeners[zero->overlap]);
}

static cz_status check_change(const cz_zero *zero, const char *call)
{
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero %s: zero is NULL", call);
    if (zero->ddp && cz__ddp_in_pass(zero->ddp))
        return cz__fail(CZ_ERR_STATE, "zero %s: a pass of its ddp is under way", call);
    return CZ_OK;
}

cz_status cz_zero_set_step_options(cz_zero *zero, const cz_step_options *options)
{
    CZ__OWN_FLOATS;
    cz_step_options ours = {0};
    CZ_TRY(check_change(zero, "set_step_options"));
    if (!zero->overlap)
        return cz__fail(CZ_ERR_STATE,
                        "zero set_step_options: without option overlap a step is given "
                        "its options");
    if (options)
        CZ_TRY(cz__options_read(&ours, sizeof ours, options, "cz_step_options"));
    if (ours.closure || ours.gradients || ours.gradient_count)
        return cz__fail(CZ_ERR_ARGUMENT, "zero set_step_options: a step inside a pass has no %s",
                        ours.closure ? "closure" : "other gradients");
    CZ_TRY(cz__step_check_norm(&ours));
    if (zero->overlap == CZ_OVERLAP_INTERLEAVED &&
        (ours.max_norm > 0 || ours.skip_nonfinite || ours.norm))
        return cz__fail(
            CZ_ERR_UNSUPPORTED,
            "zero set_step_options: max_norm, skip_nonfinite and norm need all gradients "
            "before the first update; CZ_OVERLAP_STEP can do that");
    zero->step_options = ours;
    zero->step_options.size = options ? sizeof ours : 0;
    return CZ_OK;
}

cz_status cz_zero_set_overlap(cz_zero *zero, cz_overlap overlap)
{
    CZ__OWN_FLOATS;
    CZ_TRY(check_change(zero, "set_overlap"));
    CZ_TRY(cz__overlap_check(zero, overlap));
    if (zero->ddp)
        CZ_TRY(cz__overlap_reserve(zero, overlap));
    zero->overlap = overlap;
    zero->step_options = (cz_step_options){0};
    if (zero->ddp)
        cz__overlap_bind(zero);
    return CZ_OK;
}

cz_overlap cz_zero_overlap(const cz_zero *zero)
{
    return zero ? zero->overlap : CZ_OVERLAP_NONE;
}

cz_ddp *cz_zero_ddp(const cz_zero *zero)
{
    return zero ? zero->ddp : NULL;
}

cz_overlap_status cz_zero_overlap_status(const cz_zero *zero)
{
    if (!zero || !zero->overlap)
        return CZ_OVERLAP_UNINITIALIZED;
    if (zero->has_stepped)
        return CZ_OVERLAP_INITIALIZED;
    return cz_ddp_rebuilt(zero->ddp) ? CZ_OVERLAP_DDP_HAS_REBUILT_BUCKETS
                                     : CZ_OVERLAP_UNINITIALIZED;
}

cz_status cz_zero_wait_param(cz_zero *zero, int64_t param)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero wait_param: zero is NULL");
    if (param < 0 || param >= zero->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero wait_param: parameter %" PRId64 ", there are %" PRId64, param,
                        zero->param_count);
    CZ_TRY(cz__zero_check_reader(zero, param));
    return zero->late ? cz__ddp_wait_param(zero->ddp, param) : CZ_OK;
}
