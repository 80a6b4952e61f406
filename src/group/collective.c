/* SPDX-License-Identifier: MIT */
/* The collective calls with one count for all ranks: check this rank's arguments, describe the
 * operation, run it. */
#include "base/status.h"
#include "group/arguments.h"

cz_status cz_broadcast(cz_group *group, void *buffer, int64_t count, cz_dtype dtype, int root,
                       const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("broadcast");
    cz_status mine = cz__check_buffer("broadcast", buffer, count, 1, dtype);
    if (mine == CZ_OK)
        mine = cz__check_root("broadcast", group, root);
    cz__operation operation = cz__operation_describe(CZ__BROADCAST, count, dtype);
    operation.header.root = root;
    operation.exchanges = operation.same_to_all = true;
    operation.source = operation.target = cz__root_region(group, root, buffer, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_all_reduce(cz_group *group, void *buffer, int64_t count, cz_dtype dtype,
                        cz_reduction reduction, const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("all_reduce");
    cz_status mine = cz__check_buffer("all_reduce", buffer, count, 1, dtype);
    if (mine == CZ_OK)
        mine = cz__check_reduction("all_reduce", reduction, dtype);
    cz__operation operation = cz__operation_describe(CZ__ALL_REDUCE, count, dtype);
    operation.header.reduction = (int32_t)reduction;
    operation.longest = cz__all_reduce_longest(operation.longest, group->size);
    operation.reduces = operation.exchanges = operation.same_to_all = true;
    operation.source = operation.target =
        cz__region_of(group, CZ__REGION_EVEN, buffer, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_reduce(cz_group *group, const void *input, void *output, int64_t count, cz_dtype dtype,
                    cz_reduction reduction, int root, const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("reduce");
    cz_status mine = cz__check_buffer("reduce", input, count, 1, dtype);
    if (mine == CZ_OK)
        mine = cz__check_root("reduce", group, root);
    if (mine == CZ_OK && group->rank == root)
        mine = cz__check_buffer("reduce", output, count, 1, dtype);
    if (mine == CZ_OK && group->rank == root)
        mine = cz__check_apart("reduce", input, count, output, count, 0, dtype);
    if (mine == CZ_OK)
        mine = cz__check_reduction("reduce", reduction, dtype);
    cz__operation operation = cz__operation_describe(CZ__REDUCE, count, dtype);
    operation.header.reduction = (int32_t)reduction;
    operation.header.root = root;
    operation.reduces = true;
    operation.source = cz__root_region(group, root, input, count, dtype);
    operation.target = cz__root_region(group, root, output, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_reduce_scatter(cz_group *group, const void *input, void *output, int64_t count,
                            cz_dtype dtype, cz_reduction reduction,
                            const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("reduce_scatter");
    cz_status mine = cz__check_buffer("reduce_scatter", input, count, group->size, dtype);
    if (mine == CZ_OK)
        mine = cz__check_buffer("reduce_scatter", output, count, 1, dtype);
    if (mine == CZ_OK)
        mine = cz__check_apart("reduce_scatter", output, count, input, count * group->size,
                               count * group->rank, dtype);
    if (mine == CZ_OK)
        mine = cz__check_reduction("reduce_scatter", reduction, dtype);
    cz__operation operation = cz__operation_describe(CZ__REDUCE_SCATTER, count, dtype);
    operation.header.reduction = (int32_t)reduction;
    operation.reduces = true;
    operation.source = cz__region_of(group, CZ__REGION_EQUAL, input, count, dtype);
    operation.target = cz__region_of(group, CZ__REGION_EQUAL, NULL, count, dtype);
    operation.target.own = output;
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_all_gather(cz_group *group, const void *input, void *output, int64_t count,
                        cz_dtype dtype, const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("all_gather");
    cz_status mine = cz__check_buffer("all_gather", input, count, 1, dtype);
    if (mine == CZ_OK)
        mine = cz__check_buffer("all_gather", output, count, group->size, dtype);
    if (mine == CZ_OK)
        mine = cz__check_apart("all_gather", input, count, output, count * group->size,
                               count * group->rank, dtype);
    cz__operation operation = cz__operation_describe(CZ__ALL_GATHER, count, dtype);
    operation.exchanges = operation.same_to_all = true;
    operation.source = cz__root_region(group, group->rank, input, count, dtype);
    operation.target = cz__region_of(group, CZ__REGION_EQUAL, output, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

/* `one` block on each rank, `all` of them on the root. */
static cz_status check_rooted(const char *name, const cz_group *group, const void *one,
                              const void *all, int64_t count, int root, cz_dtype dtype)
{
    CZ_TRY(cz__check_buffer(name, one, count, 1, dtype));
    CZ_TRY(cz__check_root(name, group, root));
    if (group->rank != root)
        return CZ_OK;
    CZ_TRY(cz__check_buffer(name, all, count, group->size, dtype));
    return cz__check_apart(name, one, count, all, count * group->size, count * group->rank, dtype);
}

cz_status cz_gather(cz_group *group, const void *input, void *output, int64_t count, cz_dtype dtype,
                    int root, const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("gather");
    const bool here = group->rank == root;
    const cz_status mine = check_rooted("gather", group, input, output, count, root, dtype);
    cz__operation operation = cz__operation_describe(CZ__GATHER, count, dtype);
    operation.header.root = root;
    operation.exchanges = true;
    operation.source = cz__root_region(group, root, input, count, dtype);
    operation.target = cz__region_of(group, CZ__REGION_EQUAL, output, here ? count : 0, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_scatter(cz_group *group, const void *input, void *output, int64_t count,
                     cz_dtype dtype, int root, const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("scatter");
    const bool here = group->rank == root;
    const cz_status mine = check_rooted("scatter", group, output, input, count, root, dtype);
    cz__operation operation = cz__operation_describe(CZ__SCATTER, count, dtype);
    operation.header.root = root;
    operation.exchanges = true;
    operation.source = cz__region_of(group, CZ__REGION_EQUAL, input, here ? count : 0, dtype);
    operation.target = cz__root_region(group, root, output, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_all_to_all(cz_group *group, const void *input, void *output, int64_t count,
                        cz_dtype dtype, const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("all_to_all");
    cz_status mine = cz__check_buffer("all_to_all", input, count, group->size, dtype);
    if (mine == CZ_OK)
        mine = cz__check_buffer("all_to_all", output, count, group->size, dtype);
    if (mine == CZ_OK)
        mine = cz__check_apart("all_to_all", input, count * group->size, output,
                               count * group->size, -1, dtype);
    cz__operation operation = cz__operation_describe(CZ__ALL_TO_ALL, count, dtype);
    operation.exchanges = true;
    operation.source = cz__region_of(group, CZ__REGION_EQUAL, input, count, dtype);
    operation.target = cz__region_of(group, CZ__REGION_EQUAL, output, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_barrier(cz_group *group, const cz_operation_options *options)
{
    if (!group)
        return cz__no_group("barrier");
    cz__operation operation = cz__operation_describe(CZ__BARRIER, 0, CZ_U8);
    return cz__operation_run(group, &operation, CZ_OK, options, NULL);
}
