/* SPDX-License-Identifier: MIT */
/* What a rank sends in a step. */
#include "plan/object.h"

bool cz__plan_to_owners(const cz_plan *plan)
{
    return !plan->options.unsharded && !plan->options.all_reduce;
}

/* Its part of what others own goes to these, */
static uint64_t reduce(const cz_plan *plan, uint64_t own, size_t size)
{
    return ((uint64_t)plan->shapes[CZ_SHAPE_PARAM].elements - own) * size;
}

/* and what it owns goes to everybody. */
static uint64_t gather(const cz_plan *plan, uint64_t own, size_t size)
{
    return cz__plan_times((uint64_t)(plan->options.world_size - 1), own * size);
}

uint64_t cz__plan_sent(const cz_plan *plan, int rank)
{
    const cz_plan_options *o = &plan->options;
    const uint64_t owned = (uint64_t)plan->ranks.slotted[rank];
    const uint64_t reduced = (uint64_t)plan->ranks.reduced[rank];
    const size_t wire = o->wire ? cz_dtype_size(o->wire) : plan->element_size;
    uint64_t sent = 0;
    if (o->ddp && rank == 0) /* its buffers are everybody's in each pass */
        sent = cz__plan_times((uint64_t)(o->world_size - 1), plan->shapes[CZ_SHAPE_BUFFER].bytes);
    if (cz__plan_to_owners(plan))
        sent = cz__plan_plus(sent, reduce(plan, owned, plan->element_size));
    else
        sent = cz__plan_plus(
            sent, cz__plan_plus(reduce(plan, reduced, wire), gather(plan, reduced, wire)));
    return o->unsharded ? sent : cz__plan_plus(sent, gather(plan, owned, plan->element_size));
}
