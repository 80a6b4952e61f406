/* SPDX-License-Identifier: MIT */
/* A data-parallel model as an object: what it is asked, and told between passes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "ddp/object.h"

bool cz__ddp_in_pass(const cz_ddp *ddp)
{
    return atomic_load(&ddp->state) != CZ__PASS_NONE;
}

bool cz__ddp_is_complete(const cz_ddp *ddp, int64_t param)
{
    return atomic_load_explicit(&ddp->state, memory_order_acquire) == CZ__PASS_OPEN && ddp->syncs &&
           ddp->trained[param] && atomic_load(&ddp->params[param].left) < 1;
}

bool cz__ddp_weightless(const cz_ddp *ddp)
{
    return ddp->weightless;
}

bool cz__ddp_reduced(const cz_ddp *ddp)
{
    return ddp->reduced;
}

bool cz__ddp_has(const cz_ddp *ddp, int64_t param)
{
    return ddp->trained[param];
}

cz_parts *cz__ddp_parts(const cz_ddp *ddp)
{
    return ddp->parts;
}

const cz__object *cz__ddp_object(const cz_ddp *ddp)
{
    return &ddp->object;
}

bool cz__ddp_reduces_to_owners(const cz_ddp *ddp)
{
    return ddp->bound && !ddp->options.all_reduce;
}

bool cz__ddp_gives_means(const cz_ddp *ddp)
{
    return ddp->gives_means;
}

bool cz__ddp_widens(const cz_bucket *bucket)
{
    return bucket->ddp->gives_means && cz__has_16_bits(bucket->dtype);
}

bool cz__ddp_values_take_turns(const cz_ddp *ddp)
{
    return !ddp->options.all_reduce && !ddp->hook.run;
}

int cz__ddp_source(const cz_ddp *ddp)
{
    if (!ddp->join)
        return 0;
    return cz__join_last(ddp->join) >= 0 ? cz__join_last(ddp->join) : cz__join_source(ddp->join);
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

/* ---- for the program ---- */

const cz_model *cz__ddp_model(const cz_ddp *ddp)
{
    return ddp ? ddp->model : NULL;
}

const char *cz__ddp_hook(const cz_ddp *ddp)
{
    return ddp ? ddp->hook_name : "";
}

int cz__ddp_bucket_count(const cz_ddp *ddp)
{
    return ddp ? ddp->bucket_count : -1;
}

int64_t cz__ddp_bucket_param_count(const cz_ddp *ddp, int bucket)
{
    return bucket >= 0 && bucket < cz__ddp_bucket_count(ddp) ? ddp->buckets[bucket].count : -1;
}

int64_t cz__ddp_bucket_param(const cz_ddp *ddp, int bucket, int64_t place)
{
    if (place < 0 || place >= cz__ddp_bucket_param_count(ddp, bucket))
        return -1;
    return ddp->order[ddp->buckets[bucket].first + place];
}

int64_t cz_ddp_bucket_params(const cz_ddp *ddp, int bucket, int64_t *params, int64_t room)
{
    const int64_t count = cz__ddp_bucket_param_count(ddp, bucket);
    if (params)
        for (int64_t k = 0; k < count && k < room; k++)
            params[k] = cz__ddp_bucket_param(ddp, bucket, k);
    return count;
}

bool cz__ddp_rebuilt(const cz_ddp *ddp)
{
    return ddp && ddp->rebuilt;
}

int64_t cz__ddp_passes(const cz_ddp *ddp)
{
    return ddp ? ddp->passes_before + ddp->passes : -1;
}

cz_status cz_ddp_get_info(const cz_ddp *ddp, cz_ddp_info *info)
{
    if (!ddp || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp get_info: %s is NULL", ddp ? "info" : "ddp");
    const cz_ddp_info ours = {.model = ddp->model,
                              .hook = cz__ddp_hook(ddp),
                              .passes = cz__ddp_passes(ddp),
                              .bucket_count = cz__ddp_bucket_count(ddp),
                              .rebuilt = ddp->rebuilt};
    return cz__options_write(info, &ours, sizeof ours, "cz_ddp_info");
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

cz_status cz_ddp_set_weight(cz_ddp *ddp, double weight)
{
    CZ__OWN_FLOATS;
    if (!ddp || !isfinite(weight) || weight < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp set_weight: %s is %g, wanted 0 or more",
                        ddp ? "weight" : "ddp is NULL; weight", weight);
    if (ddp->parts)
        return cz__fail(
            CZ_ERR_UNSUPPORTED,
            "ddp set_weight: with option parts each part has a weight; see cz_parts_set_weights()");
    if (cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "ddp set_weight: a pass has begun");
    ddp->weight = weight;
    return CZ_OK;
}
