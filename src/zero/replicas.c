/* SPDX-License-Identifier: MIT */
/* Do all ranks hold the same parameters and buffers? */
#include "base/float_mode.h"
#include "base/status.h"
#include "group/replicas.h"
#include "base/thread.h"
#include "zero/zero.h"

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
