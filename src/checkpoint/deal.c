/* SPDX-License-Identifier: MIT */
/* Who writes what of a generation, where no sharded optimizer says so. */
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/index.h"

/* Each parameter's bytes, and those that nobody has; *rest of them. */
static void list_rest(const cz__index *index, int64_t *bytes, int64_t *members, int64_t *rest)
{
    *rest = 0;
    for (int64_t p = 0; p < index->param_count; p++) {
        bytes[p] = index->stored[p].count * (int64_t)cz_dtype_size(index->stored[p].dtype);
        if (cz_shard_map_home(index->map, p) < 0)
            members[(*rest)++] = p;
    }
}

cz_status cz__index_deal_rest(cz__index *index)
{
    const int64_t count = index->param_count;
    int64_t *bytes = cz__calloc((size_t)count, sizeof *bytes), rest = 0;
    int64_t *members = cz__calloc((size_t)count, sizeof *members);
    int *owners = cz__calloc((size_t)count, sizeof *owners);
    cz_status status = bytes && members && owners
                           ? CZ_OK
                           : cz__fail(CZ_ERR_MEMORY, "checkpoint: tables of the parameters");
    if (status == CZ_OK)
        list_rest(index, bytes, members, &rest);
    if (status == CZ_OK && rest > 0)
        status =
            cz_partition_greedy(index->world_size, count, bytes, 1, &rest, members, owners, NULL);
    for (int64_t k = 0; status == CZ_OK && k < rest; k++)
        index->stored[members[k]].owner = owners[members[k]];
    /* ranks may hold different ones, which depend on each other: a mean and its variance */
    for (int64_t b = 0; b < index->buffer_count; b++)
        index->stored[index->param_count + b].owner = 0;
    cz__free(bytes);
    cz__free(members);
    cz__free(owners);
    return status;
}

cz_status cz__index_cut_evenly(cz__index *index)
{
    const int64_t params = index->param_count;
    int64_t *counts = cz__calloc((size_t)params, sizeof *counts);
    if (!counts)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: a table of the parameters");
    for (int64_t p = 0; p < params; p++)
        counts[p] = index->stored[p].count;
    const size_t size = params > 0 ? cz_dtype_size(index->stored[0].dtype) : 4;
    const cz_status status = cz_shard_map_create_even(&index->own_map, index->world_size, params,
                                                      counts, NULL, 0, NULL, size);
    index->map = index->own_map;
    cz__free(counts);
    return status;
}
