/* SPDX-License-Identifier: MIT */
/* Bringing values to every rank: the updated spans after a step, everything from one rank on request. */
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/collective.h"
#include "zero/zero.h"

uint64_t cz__zero_traffic(const cz_zero *zero)
{
    int64_t all = 0, own = 0;
    cz_span_iterator iterator;
    cz_span span;
    for (int64_t p = 0; p < zero->param_count; p++)
        if (zero->present[p])
            all += cz_shard_map_count(zero->map, p);
    cz_span_iterate(zero->map, cz_group_rank(zero->group), &iterator);
    while (cz_span_next(&iterator, &span))
        if (zero->present[span.param])
            own += span.end - span.begin;
    const int64_t others = cz_group_size(zero->group) - 1;
    return (uint64_t)(all - own + others * own) * cz_dtype_size(zero->dtype);
}

cz_status cz__zero_sync(cz_zero *zero)
{
    const cz__mapped memory = {.map = zero->map,
                               .data = zero->tables.values,
                               .include = zero->present,
                               .dtype = zero->dtype,
                               .reserve = zero->transfers,
                               .shared = zero->shared_values};
    const double begin = cz__seconds();
    CZ_TRY(cz__gather_along_map(zero->group, &memory, CZ_LABEL("parameters")));
    cz__trace_add(&zero->trace, CZ_TRACE_SYNC, begin,
                  zero->shared_values ? 0 : cz__zero_traffic(zero));
    return CZ_OK;
}

cz_status cz_zero_broadcast_parameters(cz_zero *zero, int root)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: broadcast_parameters: zero is NULL");
    if (zero->ddp)
        CZ_TRY(cz__ddp_settle(zero->ddp));
    return cz__broadcast_model(zero->group, zero->model, &zero->object, root,
                               "zero: broadcast_parameters");
}
