/* SPDX-License-Identifier: MIT */
/* A data-parallel model and its sharded optimizer. */
#include "base/memory.h"
#include "base/status.h"
#include "ddp/object.h"

bool cz__ddp_values_take_turns(const cz_ddp *ddp)
{
    return !ddp->options.all_reduce && !ddp->hook.run;
}

/* With staging memory of its own where it cannot be the others', too. */
static cz_status reserve(cz_ddp *ddp, cz_bucket *bucket, bool take_turns)
{
    const size_t bytes = (size_t)cz__ddp_elements(bucket) * cz_dtype_size(bucket->dtype);
    if (!take_turns && cz__reserve_is_bare(bucket->transfers))
        cz__reserve_destroy(&bucket->transfers);
    if (bucket->transfers)
        return CZ_OK;
    return take_turns ? cz__reserve_create_bare(&bucket->transfers, ddp->group)
                      : cz__reserve_create(&bucket->transfers, ddp->group, bytes);
}

cz_status cz__ddp_reserve(cz_ddp *ddp)
{
    const bool take_turns = cz__ddp_values_take_turns(ddp);
    for (int b = 0; b < ddp->bucket_count; b++)
        CZ_TRY(reserve(ddp, &ddp->buckets[b], take_turns));
    return take_turns ? cz__ddp_make_pool(ddp, &ddp->values) : CZ_OK;
}

void cz__ddp_release(cz_ddp *ddp)
{
    cz__pool_destroy(&ddp->values);
    for (int b = 0; b < ddp->bucket_count; b++)
        cz__reserve_destroy(&ddp->buckets[b].transfers);
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

const cz__object *cz__ddp_object(const cz_ddp *ddp)
{
    return &ddp->object;
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
