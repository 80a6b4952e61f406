/* SPDX-License-Identifier: MIT */
/* The collective calls with a count for each rank. */
#include <inttypes.h>

#include "base/status.h"
#include "group/arguments.h"

/* Slices of counts[r] elements. */
static cz__region listed_region(const cz_group *group, const void *base, const int64_t *counts,
                                cz_dtype dtype)
{
    cz__region all = cz__region_of(group, CZ__REGION_LISTED, base, 0, dtype);
    all.counts = counts;
    return all;
}

static cz_status sum_counts(const char *name, const char *list, const cz_group *group,
                            const int64_t *counts, int64_t *total)
{
    *total = 0;
    if (!counts)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: %s is NULL", name, list);
    for (int r = 0; r < group->size; r++) {
        if (counts[r] < 0 || counts[r] > INT64_MAX / 64 - *total)
            return cz__fail(CZ_ERR_ARGUMENT, "%s: %s[%d] is %" PRId64, name, list, r, counts[r]);
        *total += counts[r];
    }
    return CZ_OK;
}

/* ---- the same list on every rank ---- */

/* Check what all of them have in common. `own` and `all` are the buffers for this rank's part and
 * for everyone's; NULL stands for one that is not used here. */
static cz_status describe_listed(const char *name, cz__operation_kind kind, const cz_group *group,
                                 const void *own, bool own_used, const void *all, bool all_used,
                                 const int64_t *counts, cz_dtype dtype, cz__operation *operation)
{
    int64_t total;
    cz_status mine = sum_counts(name, "counts", group, counts, &total);
    *operation = cz__operation_describe(kind, total, dtype);
    for (int r = 0; r < group->size && mine == CZ_OK; r++)
        operation->header.fingerprint = cz__mix(operation->header.fingerprint, (uint64_t)counts[r]);
    if (mine == CZ_OK && own_used)
        mine = cz__check_buffer(name, own, counts[group->rank], 1, dtype);
    if (mine == CZ_OK && all_used)
        mine = cz__check_buffer(name, all, total, 1, dtype);
    int64_t before = 0;
    for (int r = 0; r < group->rank && mine == CZ_OK; r++)
        before += counts[r];
    if (mine == CZ_OK && own_used && all_used)
        mine = cz__check_apart(name, own, counts[group->rank], all, total, before, dtype);
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

/* ---- lists of each rank's own ---- */

static cz_status check_blocks(const char *list, const cz_group *group, const void *buffer,
                              const int64_t *counts, cz_dtype dtype, int64_t *total)
{
    CZ_TRY(sum_counts("all_to_all_v", list, group, counts, total));
    return cz__check_buffer("all_to_all_v", buffer, *total, 1, dtype);
}

cz_status cz__exchange_blocks(cz_group *group, const cz__blocks *blocks, cz_dtype dtype,
                              const cz_operation_options *options)
{
    int64_t sent = 0, received = 0;
    cz_status mine = blocks->mine;
    if (mine == CZ_OK)
        mine = check_blocks("send_counts", group, blocks->input, blocks->send_counts, dtype, &sent);
    if (mine == CZ_OK)
        mine = check_blocks("receive_counts", group, blocks->output, blocks->receive_counts, dtype,
                            &received);
    if (mine == CZ_OK)
        mine = cz__check_apart("all_to_all_v", blocks->input, sent, blocks->output, received, -1,
                               dtype);
    cz__operation operation = cz__operation_describe(CZ__ALL_TO_ALL_V, sent, dtype);
    operation.longest =
        CZ__ROUNDS * group->segment_bytes; /* no rank knows them all: as large ones */
    operation.exchanges = true;
    operation.reserve = blocks->reserve;
    if (mine == CZ_OK) {
        operation.header.balance =
            cz__counts_balance(group, blocks->send_counts, blocks->receive_counts);
        operation.source = listed_region(group, blocks->input, blocks->send_counts, dtype);
        operation.target = listed_region(group, blocks->output, blocks->receive_counts, dtype);
    }
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_all_to_all_v(cz_group *group, const void *input, const int64_t *send_counts,
                          void *output, const int64_t *receive_counts, cz_dtype dtype,
                          const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("all_to_all_v");
    const cz__blocks blocks = {.input = input,
                               .send_counts = send_counts,
                               .output = output,
                               .receive_counts = receive_counts};
    return cz__exchange_blocks(group, &blocks, dtype, options);
}
