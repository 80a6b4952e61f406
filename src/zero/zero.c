/* SPDX-License-Identifier: MIT */
/* The sharded optimizer as an object: destroyed, asked, told new hyper-parameters, joined; its
 * ranks' values compared and made equal. */
#include <math.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "collective/replicas.h"
#include "join/join.h"
#include "tensor/model.h"
#include "zero/zero.h"
#include "collective/model.h"
#include "shard/shard.h"

void cz_zero_destroy(cz_zero **zero)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!zero || !*zero)
        return;
    if ((*zero)->ddp && (*zero)->is_bound) /* which ends what is on its way */
        cz__ddp_let_go((*zero)->ddp);
    else if ((*zero)->ddp)
        cz__ddp_release((*zero)->ddp);
    if ((*zero)->bucket_view && !cz__model_is_abandoned((*zero)->model)) /* else no tensors */
        cz__bucket_view_leave(*zero);
    cz__bucket_view_destroy(&(*zero)->bucket_view);
    cz__zero_forget_dict(*zero);
    if ((*zero)->reduces)
        (void)cz__model_count_reducing_optimizer((*zero)->model, -1);
    if ((*zero)->has_parts)
        cz__parts_leave((*zero)->parts);
    cz_optim_destroy(&(*zero)->optim); /* before the map, which it borrows */
    cz__shard_map_destroy(&(*zero)->map);
    for (int64_t p = 0; (*zero)->kept && p < (*zero)->param_count; p++)
        (*zero)->device->release((*zero)->kept[p]);
    cz__free((*zero)->kept);
    cz__free((*zero)->nowhere);
    cz__zero_means_clear(&(*zero)->means, *zero);
    cz__free((*zero)->kind_of);
    cz__free((*zero)->included);
    cz__free((*zero)->asked);
    cz__free((*zero)->prints);
    cz__free((*zero)->present);
    cz__free((*zero)->ownership);
    cz__free((*zero)->sources);
    cz__free((*zero)->results);
    cz__description_clear(&(*zero)->settings);
    cz__zero_sums_destroy(&(*zero)->sums);
    cz__reserve_destroy(&(*zero)->transfers);
    cz__shard_map_destroy(&(*zero)->norm);
    cz__free(*zero);
    *zero = NULL;
}

int64_t cz__zero_group_count(const cz_zero *zero)
{
    return zero ? cz__optim_group_count(zero->optim) : 0;
}

/* Shards that wait change nothing that the program could have seen, so whoever only looks makes
 * them, too. */
static cz_status settle(const cz_zero *zero)
{
    return cz__zero_settle_shards((cz_zero *)zero);
}

const cz_shard_map *cz__zero_shard_map(const cz_zero *zero)
{
    return zero && settle(zero) == CZ_OK ? zero->map : NULL;
}

cz_optim *cz_zero_local_optim(const cz_zero *zero)
{
    return zero && settle(zero) == CZ_OK ? zero->optim : NULL;
}

cz_group *cz__zero_group(const cz_zero *zero)
{
    return zero ? zero->group : NULL;
}

cz_model *cz__zero_model(const cz_zero *zero)
{
    return zero ? zero->model : NULL;
}

static cz_overlap_status overlap_status(const cz_zero *zero)
{
    if (!zero->overlap)
        return CZ_OVERLAP_UNINITIALIZED;
    if (zero->has_stepped)
        return CZ_OVERLAP_INITIALIZED;
    return cz__ddp_rebuilt(zero->ddp) ? CZ_OVERLAP_DDP_HAS_REBUILT_BUCKETS
                                      : CZ_OVERLAP_UNINITIALIZED;
}

cz_status cz_zero_get_info(const cz_zero *zero, cz_zero_info *info)
{
    if (!zero || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "zero get_info: %s is NULL", zero ? "info" : "zero");
    CZ_TRY(settle(zero));
    const bool is_whole =
        zero->partition == CZ_PARTITION_ELEMENTS && !cz__shard_map_cuts(zero->map);
    const cz_zero_info ours = {.group = zero->group,
                               .model = zero->model,
                               .ddp = zero->ddp,
                               .device = zero->device,
                               .partition = is_whole ? CZ_PARTITION_GREEDY : zero->partition,
                               .gradients = zero->gradients,
                               .overlap = zero->overlap,
                               .overlap_status = overlap_status(zero),
                               .group_count = cz__optim_group_count(zero->optim),
                               .skip_count = cz__optim_skip_count(zero->optim),
                               .state_bytes = cz__optim_state_bytes(zero->optim),
                               .shard_map = zero->map};
    return cz__options_write(info, &ours, sizeof ours, "cz_zero_info");
}

cz_status cz_zero_trace(const cz_zero *zero, cz_trace_point point, cz_trace_totals *totals)
{
    if (!zero || !totals)
        return cz__fail(CZ_ERR_ARGUMENT, "zero trace: %s is NULL", zero ? "totals" : "zero");
    if ((unsigned)point >= CZ__TRACE_POINTS)
        return cz__fail(CZ_ERR_ARGUMENT, "zero trace: point %d of %d", (int)point,
                        CZ__TRACE_POINTS);
    return cz__options_write(totals, &zero->trace.totals[point], sizeof *totals, "cz_trace_totals");
}

cz_status cz_zero_set_weight(cz_zero *zero, double weight)
{
    if (!zero || !isfinite(weight) || weight < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "zero set_weight: %s is %g, wanted 0 or more",
                        zero ? "weight" : "zero is NULL; weight", weight);
    if (zero->ddp)
        return cz__fail(CZ_ERR_UNSUPPORTED, "zero set_weight: its ddp makes the mean; see "
                                            "cz_ddp_set_weight()");
    if (zero->parts)
        return cz__fail(CZ_ERR_UNSUPPORTED, "zero set_weight: with option parts each part has a "
                                            "weight; see cz_parts_set_weights()");
    if (zero->gradients != CZ_GRADIENTS_LOCAL)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "zero set_weight: option gradients is %s, and weights are for a mean that "
                        "the step makes",
                        zero->gradients == CZ_GRADIENTS_SUM ? "sum" : "reduced");
    zero->weight = weight;
    return CZ_OK;
}

/* ---- replicas ---- */

cz_status cz_zero_broadcast_parameters(cz_zero *zero, int root)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: broadcast_parameters: zero is NULL");
    if (zero->ddp)
        CZ_TRY(cz__ddp_settle(zero->ddp));
    zero->printed = false;
    return cz__broadcast_model(zero->group, zero->model, &zero->object, root,
                               "zero: broadcast_parameters");
}

cz_status cz_zero_check_replicas(cz_zero *zero)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero check_replicas: zero is NULL");
    const cz__asker asker = {"zero check_replicas", &zero->object, zero->step_count};
    const cz_status settled = zero->ddp ? cz__ddp_settle(zero->ddp) : CZ_OK;
    return cz__model_check_replicas(zero->group, &asker, zero->model, true, settled);
}

/* ---- uneven inputs ---- */
/* Steps with uneven inputs: a rank that has joined makes the others' steps, so that its shard goes
 * on. */

static cz_status enter(void *object, cz_join *join, int number)
{
    cz_zero *zero = object;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "join: zero is NULL");
    if (join && zero->gradients == CZ_GRADIENTS_SUM && cz__join_division(join) != CZ_JOIN_BY_WORLD)
        return cz__fail(CZ_ERR_UNSUPPORTED, "join: the gradients of the sharded optimizer are a "
                                            "sum, which nothing divides: CZ_JOIN_BY_WORLD");
    if (join && zero->parts)
        CZ_TRY(cz__parts_check_join(join, "sharded optimizer"));
    CZ_TRY(
        cz__join_enter(&zero->join, join, number, zero->group, &zero->object, "sharded optimizer"));
    zero->join_number = number;
    return CZ_OK;
}

static cz_status shadow(void *object, cz_join *join)
{
    cz_zero *zero = object;
    zero->shadows = true;
    const cz_status status = cz_zero_step(zero, cz__join_step(join), NULL);
    zero->shadows = false;
    return status;
}

cz_status cz_zero_joinable(cz_zero *zero, cz_joinable *out)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "zero joinable: out is NULL");
    const cz_joinable ours = {sizeof(cz_joinable), "zero", zero, enter, shadow, NULL, NULL};
    return cz__options_write(out, &ours, sizeof ours, "cz_joinable");
}
