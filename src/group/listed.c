/* SPDX-License-Identifier: MIT */
/* The collective calls with a count for each rank. */
#include <inttypes.h>

#include "base/status.h"
#include "group/describe.h"

/* Slices of counts[r] elements. */
static cz__region listed_region(const cz_group *group, const void *base, const int64_t *counts,
                                cz_dtype dtype)
{
    cz__region all = cz__region_of(group, CZ__REGION_LISTED, base, 0, dtype);
    all.counts = counts;
    return all;
}

/* The sum of the counts, and a number that stands for the list in the header. */
static cz_status read_counts(const char *name, const cz_group *group, const int64_t *counts,
                             int64_t *total, uint64_t *fingerprint)
{
    *total = 0;
    *fingerprint = 0;
    if (!counts)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: counts is NULL", name);
    for (int r = 0; r < group->size; r++) {
        if (counts[r] < 0 || counts[r] > INT64_MAX / 64 - *total)
            return cz__fail(CZ_ERR_ARGUMENT, "%s: the count of rank %d is %" PRId64, name, r,
                            counts[r]);
        *total += counts[r];
        *fingerprint = cz__mix(*fingerprint, (uint64_t)counts[r]);
    }
    return CZ_OK;
}

/* Check what all of them have in common. `own` and `all` are the buffers for this rank's part and for
 * everyone's; NULL stands for one that is not used here. */
static cz_status describe_listed(const char *name, cz__operation_kind kind, const cz_group *group,
                                 const void *own, bool own_used, const void *all, bool all_used,
                                 const int64_t *counts, cz_dtype dtype, cz__operation *operation)
{
    int64_t total;
    uint64_t fingerprint;
    cz_status mine = read_counts(name, group, counts, &total, &fingerprint);
    *operation = cz__operation_describe(kind, total, dtype);
    operation->header.fingerprint = fingerprint;
    if (mine == CZ_OK && own_used)
        mine = cz__check_buffer(name, own, counts[group->rank], 1, dtype);
    if (mine == CZ_OK && all_used)
        mine = cz__check_buffer(name, all, total, 1, dtype);
    return mine;
}

cz_status cz_all_gather_v(cz_group *group, const void *input, void *output, const int64_t *counts,
                          cz_dtype dtype, const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("all_gather_v");
    cz__operation operation;
    const cz_status mine = describe_listed("all_gather_v", CZ__ALL_GATHER_V, group, input, true,
                                           output, true, counts, dtype, &operation);
    operation.exchanges = operation.same_to_all = true;
    if (mine == CZ_OK) {
        operation.source = cz__root_region(group, group->rank, input, counts[group->rank], dtype);
        operation.target = listed_region(group, output, counts, dtype);
    }
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_reduce_scatter_v(cz_group *group, const void *input, void *output,
                              const int64_t *counts, cz_dtype dtype, cz_reduction reduction,
                              const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("reduce_scatter_v");
    cz__operation operation;
    cz_status mine = describe_listed("reduce_scatter_v", CZ__REDUCE_SCATTER_V, group, output, true,
                                     input, true, counts, dtype, &operation);
    if (mine == CZ_OK)
        mine = cz__check_reduction("reduce_scatter_v", reduction, dtype);
    operation.header.reduction = (int32_t)reduction;
    operation.reduces = true;
    if (mine == CZ_OK) {
        operation.source = listed_region(group, input, counts, dtype);
        operation.target = listed_region(group, NULL, counts, dtype);
        operation.target.own = output;
    }
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_gather_v(cz_group *group, const void *input, void *output, const int64_t *counts,
                      cz_dtype dtype, int root, const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("gather_v");
    const bool here = group->rank == root;
    cz__operation operation;
    cz_status mine = describe_listed("gather_v", CZ__GATHER_V, group, input, true, output, here,
                                     counts, dtype, &operation);
    if (mine == CZ_OK)
        mine = cz__check_root("gather_v", group, root);
    operation.header.root = root;
    operation.exchanges = true;
    if (mine == CZ_OK) {
        operation.source = cz__root_region(group, root, input, counts[group->rank], dtype);
        operation.target = here ? listed_region(group, output, counts, dtype)
                                : cz__region_of(group, CZ__REGION_EQUAL, NULL, 0, dtype);
    }
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_scatter_v(cz_group *group, const void *input, void *output, const int64_t *counts,
                       cz_dtype dtype, int root, const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("scatter_v");
    const bool here = group->rank == root;
    cz__operation operation;
    cz_status mine = describe_listed("scatter_v", CZ__SCATTER_V, group, output, true, input, here,
                                     counts, dtype, &operation);
    if (mine == CZ_OK)
        mine = cz__check_root("scatter_v", group, root);
    operation.header.root = root;
    operation.exchanges = true;
    if (mine == CZ_OK) {
        operation.source = here ? listed_region(group, input, counts, dtype)
                                : cz__region_of(group, CZ__REGION_EQUAL, NULL, 0, dtype);
        operation.target = cz__root_region(group, root, output, counts[group->rank], dtype);
    }
    return cz__operation_run(group, &operation, mine, options, NULL);
}
