/* SPDX-License-Identifier: MIT */
/* The state that is here: looked at, and handed to other parts by address. */
#include "base/status.h"
#include "optim/object.h"

#include <inttypes.h>
#include <string.h>

cz_model *cz__optim_model(const cz_optim *optim)
{
    return optim->model;
}

bool cz__optim_is_part(const cz_optim *optim)
{
    return !optim->own_map;
}

int cz__optim_slot_count(const cz_optim *optim)
{
    return optim->slot_count;
}

int cz__optim_scalar_count(const cz_optim *optim)
{
    return optim->scalar_count;
}

bool cz__optim_holds(const cz_optim *optim, int64_t param)
{
    return optim->shard.first_span[param] >= 0;
}

void *cz__optim_slot_address(const cz_optim *optim, int64_t param, int slot, int64_t element)
{
    return cz__shard_slot_address(optim, &optim->shard, param, slot, element);
}

/* The place of a slot among the element slots, -1 if there is none of that name. */
static int find_slot(const cz_optim *optim, const char *name)
{
    for (int e = 0; e < optim->slot_count; e++)
        if (strcmp(cz__optim_element_slot(optim, e)->name, name) == 0)
            return e;
    return -1;
}

cz_status cz_optim_state(const cz_optim *optim, int64_t param, const char *slot, int64_t begin,
                         const void **data, int64_t *count)
{
    if (!optim || !slot || !data || !count)
        return cz__fail(CZ_ERR_ARGUMENT, "optim state: an argument is NULL");
    const cz_tensor *value = cz_model_value(optim->model, param);
    const int64_t end = value ? cz_tensor_count(value) : 0;
    const int e = find_slot(optim, slot);
    if (begin < 0 || begin >= end)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim state: no element %" PRId64 " of parameter %" PRId64, begin, param);
    if (e < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "optim state: %s has no element slot '%s'",
                        optim->rule->name, slot);
    *data = NULL;
    *count = end - begin; /* up to the next span that is here, or the end */
    for (int64_t s = optim->shard.first_span[param]; s >= 0; s = optim->shard.spans[s].next) {
        const cz__local_span *span = &optim->shard.spans[s];
        if (span->begin > begin && span->begin - begin < *count)
            *count = span->begin - begin;
        if (span->begin > begin || span->end <= begin)
            continue;
        if (optim->used[param] & span->slots & 1u << e)
            *data = (const char *)optim->shard.slots[s * optim->slot_count + e] +
                    (size_t)(begin - span->begin) * optim->element_size;
        *count = span->end - begin;
        break;
    }
    return CZ_OK;
}

size_t cz_optim_state_bytes(const cz_optim *optim)
{
    return optim ? optim->shard.state_bytes : 0;
}
