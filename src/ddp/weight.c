/* SPDX-License-Identifier: MIT */
/* Weights: what each rank's gradients count for in the mean. */
#include <math.h>

#include "base/status.h"
#include "ddp/object.h"

cz_status cz_ddp_set_weight(cz_ddp *ddp, double weight)
{
    if (!ddp || !isfinite(weight) || weight < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp set_weight: %s is %g, wanted 0 or more",
                        ddp ? "weight" : "ddp is NULL; weight", weight);
    if (cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "ddp set_weight: a pass has begun");
    ddp->weight = weight;
    return CZ_OK;
}

cz_status cz__ddp_share(cz_ddp *ddp)
{
    double sum = ddp->weight;
    ddp->share = 1;
    if (ddp->weight < 0)
        return CZ_OK;
    CZ_TRY(cz_all_reduce(ddp->control, &sum, 1, CZ_F64, CZ_SUM, CZ_LABEL("ddp: weights")));
    if (sum == 0 || !isfinite(sum))
        return cz__fail(CZ_ERR_ARGUMENT, "ddp begin: the weights of all ranks sum up to %g", sum);
    ddp->share = ddp->weight * cz_group_size(ddp->group) / sum;
    return CZ_OK;
}
