/* SPDX-License-Identifier: MIT */
/* What the first pass teaches: in which order gradients arrive. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ddp/object.h"

int cz__ddp_source(const cz_ddp *ddp)
{
    if (!ddp->join)
        return 0;
    return cz_join_last(ddp->join) >= 0 ? cz_join_last(ddp->join) : cz_join_source(ddp->join);
}

static cz_status make_buckets(cz_ddp *ddp)
{
    CZ_TRY(cz__ddp_make_buckets(ddp, ddp->arrivals));
    return cz__ddp_have_pools(ddp);
}

/* After the first pass: by the order in which gradients arrived on rank 0. Those that were not marked
 * there, or take no part, come last. */
static cz_status rebuild(cz_ddp *ddp)
{
    const int64_t params = ddp->param_count;
    uint8_t *seen = cz__calloc((size_t)params, sizeof *seen);
    cz_status status =
        seen ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "ddp: a table of %" PRId64 " parameters", params);
    status = cz__agree(ddp->control, status, 0, NULL, "ddp: rebuild");
    if (status == CZ_OK) {
        int64_t count = atomic_load(&ddp->arrived);
        for (int64_t k = 0; k < count; k++)
            seen[ddp->arrivals[k]] = 1;
        for (int64_t k = 0; k < params; k++)
            if (!seen[ddp->order[k]])
                ddp->arrivals[count++] = ddp->order[k];
        status = cz_broadcast(ddp->control, ddp->arrivals, params, CZ_I64, cz__ddp_source(ddp),
                              CZ_LABEL("ddp: rebuild"));
    }
    if (status == CZ_OK)
        status = cz__agree(ddp->control, make_buckets(ddp), 0, NULL, "ddp: rebuild");
    ddp->rebuilt = ddp->rebuilt || status == CZ_OK;
    cz__free(seen);
    return status;
}

/* Buckets by the arrival of their last gradient; returns how many had one. */
static int order_by_arrival(cz_ddp *ddp)
{
    const int64_t arrived = atomic_load(&ddp->arrived);
    int count = 0;
    for (int64_t k = arrived - 1; k >= 0; k--) { /* the last bucket first, */
        const int bucket = ddp->params[ddp->arrivals[k]].bucket;
        bool known = false;
        for (int n = 0; n < count && !known; n++)
            known = ddp->full[n] == bucket;
        if (!known)
            ddp->full[count++] = bucket;
    }
    for (int n = 0; n < count / 2; n++) { /* then the other way round */
        const int64_t bucket = ddp->full[n];
        ddp->full[n] = ddp->full[count - 1 - n];
        ddp->full[count - 1 - n] = bucket;
    }
    return count;
}

/* The same for a sharded optimizer, whose elements stay where they are: only the order in which buckets start
 * is that of the first pass on rank 0. */
static cz_status agree_on_launch(cz_ddp *ddp)
{
    int count = atomic_load(&ddp->full_count);
    if (count == 0) /* a static graph, in whose first pass nothing was full before the end */
        count = order_by_arrival(ddp);
    for (int b = 0; b < ddp->bucket_count; b++) { /* those that were not full there come last */
        bool known = false;
        for (int k = 0; k < count && !known; k++)
            known = ddp->full[k] == b;
        if (!known)
            ddp->full[count++] = b;
    }
    CZ_TRY(cz_broadcast(ddp->control, ddp->full, ddp->bucket_count, CZ_I64, cz__ddp_source(ddp),
                        CZ_LABEL("ddp: order of buckets")));
    memcpy(ddp->launch, ddp->full, (size_t)ddp->bucket_count * sizeof *ddp->launch);
    ddp->launch_agreed = true;
    return CZ_OK;
}

cz_status cz__ddp_learn_order(cz_ddp *ddp)
{
    if (ddp->options.keep_buckets || ddp->passes == 0)
        return CZ_OK;
    if (ddp->bound)
        return ddp->launch_agreed ? CZ_OK : agree_on_launch(ddp);
    return ddp->rebuilt ? CZ_OK : rebuild(ddp);
}
