/* SPDX-License-Identifier: MIT */
/* Weights: what each rank's gradients count for in the mean. */
#include <math.h>

#include "base/float_mode.h"
#include "base/status.h"
#include "ddp/object.h"

cz_status cz_ddp_set_weight(cz_ddp *ddp, double weight)
{
    CZ__OWN_FLOATS;
    if (!ddp || !isfinite(weight) || weight < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp set_weight: %s is %g, wanted 0 or more",
                        ddp ? "weight" : "ddp is NULL; weight", weight);
    if (cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "ddp set_weight: a pass has begun");
    ddp->weight = weight;
    return CZ_OK;
}

bool cz__ddp_has_shares(const cz_ddp *ddp)
{
    return ddp->join ? cz_join_division(ddp->join) != CZ_JOIN_BY_WORLD : ddp->weight >= 0;
}

/* A rank that has joined has none; by active ranks, all others have the same. */
static double weight_of(const cz_ddp *ddp)
{
    if (ddp->shadows)
        return 0;
    if (ddp->join && cz_join_division(ddp->join) == CZ_JOIN_BY_ACTIVE)
        return 1;
    return ddp->weight < 0 ? NAN : ddp->weight;
}

cz_status cz__ddp_share(cz_ddp *ddp)
{
    ddp->share = ddp->shadows ? 0 : 1;
    ddp->weightless = false;
    if (!cz__ddp_has_shares(ddp))
        return CZ_OK;
    double sum = weight_of(ddp), extremes[] = {sum, -sum};
    CZ_TRY(cz_all_reduce(ddp->control, &sum, 1, CZ_F64, CZ_SUM, CZ_LABEL("ddp: weights")));
    CZ_TRY(cz_all_reduce(ddp->control, extremes, 2, CZ_F64, CZ_MAX, CZ_LABEL("ddp: weights")));
    if (!isfinite(sum))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "ddp begin: the weights of all ranks sum up to %g; see cz_ddp_set_weight()",
                        sum);
    ddp->weightless = sum == 0;
    if (sum == 0)
        ddp->share = 0;
    else if (extremes[0] != -extremes[1]) /* else 1, to the last bit */
        ddp->share = weight_of(ddp) * cz_group_size(ddp->group) / sum;
    return CZ_OK;
}
