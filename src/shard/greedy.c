/* SPDX-License-Identifier: MIT */
/* PyTorch's greedy partition: the largest parameter first, to the rank with the smallest load. */
#include <inttypes.h>

#include "base/memory.h"
#include "base/status.h"
#include "shard/loads.h"
#include "shard/map.h"
#include "shard/shard.h"

typedef struct listed_param {
    int64_t count;
    int64_t place; /* keeps the sort stable */
    int64_t param;
} listed_param;

static int larger_first(const void *left, const void *right)
{
    const listed_param *a = left, *b = right;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

static void deal(cz__loads *loads, listed_param *entries, int64_t count, int *owners,
                 int64_t *order)
{
    qsort(entries, (size_t)count, sizeof *entries, larger_first);
    for (int64_t k = 0; k < count; k++) {
        const int lightest = cz__loads_lightest(loads);
        owners[entries[k].param] = lightest;
        if (order)
            order[k] = entries[k].param;
        cz__loads_add(loads, lightest, entries[k].count);
    }
}

/* `seen` marks the parameters that some group lists. */
static cz_status check_groups(int64_t param_count, const int64_t *counts, int64_t listed,
                              const int64_t *group_params, uint8_t *seen)
{
    int64_t total = 0;
    for (int64_t p = 0; p < param_count; p++) {
        if (counts[p] < 0 || counts[p] > INT64_MAX - total)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "greedy partition: parameter %" PRId64 " has %" PRId64
                            " elements after %" PRId64 " in those before it",
                            p, counts[p], total);
        total += counts[p];
    }
    for (int64_t k = 0; k < listed; k++) {
        const int64_t param = group_params ? group_params[k] : k;
        if (param < 0 || param >= param_count || seen[param])
            return cz__fail(CZ_ERR_ARGUMENT,
                            "greedy partition: group_params[%" PRId64 "] is %" PRId64
                            ", wanted: each of %" PRId64 " parameters once at most",
                            k, param, param_count);
        seen[param] = 1;
    }
    return CZ_OK;
}

static cz_status check_sizes(int world_size, int64_t param_count, const int64_t *counts,
                             int64_t group_count, const int64_t *group_sizes, int64_t *listed)
{
    if (world_size < 1)
        return cz__fail(CZ_ERR_ARGUMENT, "greedy partition: %d ranks, at least 1 is needed",
                        world_size);
    if (param_count < 0 || param_count > CZ__LONGEST_LIST || (param_count > 0 && !counts))
        return cz__fail(CZ_ERR_ARGUMENT, "greedy partition: %" PRId64 " parameters, counts %s",
                        param_count, counts ? "given" : "NULL");
    if (group_count < 0 || group_count > CZ__LONGEST_LIST || (group_count > 0 && !group_sizes))
        return cz__fail(CZ_ERR_ARGUMENT, "greedy partition: %" PRId64 " groups, group_sizes %s",
                        group_count, group_sizes ? "given" : "NULL");
    *listed = group_count > 0 ? 0 : param_count;
    for (int64_t g = 0; g < group_count; g++) {
        if (group_sizes[g] < 0 || group_sizes[g] > param_count - *listed)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "greedy partition: group %" PRId64 " lists %" PRId64
                            " parameters, %" PRId64 " are left",
                            g, group_sizes[g], param_count - *listed);
        *listed += group_sizes[g];
    }
    return CZ_OK;
}

cz_status cz__partition_greedy_onto(int world_size, int64_t *loads, int64_t param_count,
                                    const int64_t *counts, int64_t group_count,
                                    const int64_t *group_sizes, const int64_t *group_params,
                                    int *owners, int64_t *order)
{
    int64_t listed = 0;
    cz__loads heap = {0};
    CZ_TRY(check_sizes(world_size, param_count, counts, group_count, group_sizes, &listed));
    if (param_count > 0 && (!owners || (listed > 0 && group_count > 0 && !group_params)))
        return cz__fail(CZ_ERR_ARGUMENT, "greedy partition: %s is NULL",
                        owners ? "group_params" : "owners");
    uint8_t *seen = cz__calloc((size_t)param_count, 1);
    listed_param *entries = cz__calloc((size_t)listed, sizeof *entries);
    cz_status status = CZ_OK;
    if (!seen || !entries)
        status = cz__fail(CZ_ERR_MEMORY, "greedy partition: no memory for %" PRId64 " parameters",
                          param_count);
    const int64_t *params = group_count > 0 ? group_params : NULL;
    if (status)
        goto done;
    status = check_groups(param_count, counts, listed, params, seen);
    if (status)
        goto done;
    if (listed > 0)
        status = cz__loads_create(&heap, world_size, loads);
    if (status)
        goto done;
    for (int64_t k = 0; k < listed; k++) {
        const int64_t param = params ? params[k] : k;
        entries[k] = (listed_param){counts[param], k, param};
    }
    int64_t begin = 0;
    for (int64_t g = 0; g < (group_count > 0 ? group_count : 1); g++) {
        const int64_t size = group_count > 0 ? group_sizes[g] : listed;
        deal(&heap, entries + begin, size, owners, order ? order + begin : NULL);
        begin += size;
    }
done:
    cz__free(seen);
    cz__free(entries);
    cz__loads_clear(&heap);
    return status;
}

/* Parameters in no group come last, ascending. */
static void list_the_rest(int64_t param_count, const int *owners, int64_t *order)
{
    int64_t next = 0;
    for (int64_t p = 0; p < param_count; p++)
        next += owners[p] >= 0;
    for (int64_t p = 0; p < param_count; p++)
        if (owners[p] < 0)
            order[next++] = p;
}

cz_status cz__partition_greedy(int world_size, int64_t param_count, const int64_t *counts,
                               int64_t group_count, const int64_t *group_sizes,
                               const int64_t *group_params, int *owners, int64_t *order)
{
    int64_t listed;
    CZ_TRY(check_sizes(world_size, param_count, counts, group_count, group_sizes, &listed));
    /* No rank beyond the number of parameters can get one: each but the lowest idle one has a
     * load. */
    const int useful = param_count > 0 && param_count < world_size ? (int)param_count : world_size;
    int64_t *loads = cz__calloc(param_count > 0 ? (size_t)useful : 0, sizeof *loads);
    if (!loads)
        return cz__fail(CZ_ERR_MEMORY, "greedy partition: no memory for %d ranks", world_size);
    if (owners)
        for (int64_t p = 0; p < param_count; p++)
            owners[p] = -1;
    const cz_status status = cz__partition_greedy_onto(
        useful, loads, param_count, counts, group_count, group_sizes, group_params, owners, order);
    if (!status && order)
        list_the_rest(param_count, owners, order);
    cz__free(loads);
    return status;
}
