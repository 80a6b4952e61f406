/* SPDX-License-Identifier: MIT */
/* The collective calls: check this rank's arguments, describe the operation, run it. */
#include <inttypes.h>

#include "base/status.h"
#include "group/internal.h"

static bool is_floating(cz_dtype dtype)
{
    return dtype == CZ_F32 || dtype == CZ_F64 || dtype == CZ_F16 || dtype == CZ_BF16;
}

/* `blocks` times `count` elements must be a size. */
static cz_status check_buffer(const char *name, const void *buffer, int64_t count, int blocks,
                              cz_dtype dtype)
{
    const size_t size = cz_dtype_size(dtype);
    if (size == 0)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: unknown type %d", name, (int)dtype);
    if (count < 0 || (uint64_t)count > (uint64_t)INT64_MAX / 16 / size / (unsigned)blocks)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: count is %" PRId64, name, count);
    if (count > 0 && !buffer)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: the buffer for %" PRId64 " elements is NULL", name,
                        count);
    return CZ_OK;
}

static cz_status check_reduction(const char *name, cz_reduction reduction, cz_dtype dtype)
{
    if (reduction < CZ_SUM || reduction > CZ_OR)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: unknown reduction %d", name, (int)reduction);
    if (reduction == CZ_AVERAGE && !is_floating(dtype))
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: the average of %s is not defined", name,
                        cz_dtype_name(dtype));
    if ((reduction == CZ_AND || reduction == CZ_OR) && is_floating(dtype))
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: the bitwise %s of %s is not defined", name,
                        reduction == CZ_AND ? "and" : "or", cz_dtype_name(dtype));
    return CZ_OK;
}

static cz_status no_group(const char *name)
{
    return cz__fail(CZ_ERR_ARGUMENT, "%s: group is NULL", name);
}

/* A region of one block; what would be nonsense after a failed check is never looked at. */
static cz__region region(const cz_group *group, cz__region_kind kind, const void *base,
                         int64_t count, cz_dtype dtype)
{
    const size_t size = cz_dtype_size(dtype);
    return (cz__region){.kind = kind,
                        .element_size = size ? size : 1,
                        .rank = group->rank,
                        .world_size = group->size,
                        .count = count > 0 ? count : 0,
                        .base = (char *)base};
}

/* The same, all of it the stream of `root`. */
static cz__region root_region(const cz_group *group, int root, const void *base, int64_t count,
                              cz_dtype dtype)
{
    cz__region all = region(group, CZ__REGION_ROOT, base, count, dtype);
    all.root = root;
    return all;
}

/* Slices of counts[r] elements. */
static cz__region listed_region(const cz_group *group, const void *base, const int64_t *counts,
                                cz_dtype dtype)
{
    cz__region all = region(group, CZ__REGION_LISTED, base, 0, dtype);
    all.counts = counts;
    return all;
}

static cz__operation describe(cz__operation_kind kind, int64_t count, cz_dtype dtype)
{
    const size_t size = cz_dtype_size(dtype);
    return (cz__operation){.header = {.kind = kind, .count = count, .dtype = (int32_t)dtype},
                           .longest = count > 0 ? (size_t)count * (size ? size : 1) : 0};
}

static cz_status check_root(const char *name, const cz_group *group, int root)
{
    return root >= 0 && root < group->size
               ? CZ_OK
               : cz__fail(CZ_ERR_ARGUMENT, "%s: root is %d in a group of %d", name, root,
                          group->size);
}

/* ---- equal counts ---- */

cz_status cz_broadcast(cz_group *group, void *buffer, int64_t count, cz_dtype dtype, int root,
                       const cz_operation_options *options)
{
    if (!group)
        return no_group("broadcast");
    cz_status mine = check_buffer("broadcast", buffer, count, 1, dtype);
    if (mine == CZ_OK)
        mine = check_root("broadcast", group, root);
    cz__operation operation = describe(CZ__BROADCAST, count, dtype);
    operation.header.root = root;
    operation.exchanges = operation.same_to_all = true;
    operation.source = operation.target = root_region(group, root, buffer, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_all_reduce(cz_group *group, void *buffer, int64_t count, cz_dtype dtype,
                        cz_reduction reduction, const cz_operation_options *options)
{
    if (!group)
        return no_group("all_reduce");
    cz_status mine = check_buffer("all_reduce", buffer, count, 1, dtype);
    if (mine == CZ_OK)
        mine = check_reduction("all_reduce", reduction, dtype);
    cz__operation operation = describe(CZ__ALL_REDUCE, count, dtype);
    operation.header.reduction = (int32_t)reduction;
    operation.longest = operation.longest / (size_t)group->size + 64;
    operation.reduces = operation.exchanges = operation.same_to_all = true;
    operation.source = operation.target = region(group, CZ__REGION_EVEN, buffer, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_reduce(cz_group *group, const void *input, void *output, int64_t count, cz_dtype dtype,
                    cz_reduction reduction, int root, const cz_operation_options *options)
{
    if (!group)
        return no_group("reduce");
    cz_status mine = check_buffer("reduce", input, count, 1, dtype);
    if (mine == CZ_OK)
        mine = check_root("reduce", group, root);
    if (mine == CZ_OK && group->rank == root)
        mine = check_buffer("reduce", output, count, 1, dtype);
    if (mine == CZ_OK)
        mine = check_reduction("reduce", reduction, dtype);
    cz__operation operation = describe(CZ__REDUCE, count, dtype);
    operation.header.reduction = (int32_t)reduction;
    operation.header.root = root;
    operation.reduces = true;
    operation.source = root_region(group, root, input, count, dtype);
    operation.target = root_region(group, root, output, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_reduce_scatter(cz_group *group, const void *input, void *output, int64_t count,
                            cz_dtype dtype, cz_reduction reduction,
                            const cz_operation_options *options)
{
    if (!group)
        return no_group("reduce_scatter");
    cz_status mine = check_buffer("reduce_scatter", input, count, group->size, dtype);
    if (mine == CZ_OK)
        mine = check_buffer("reduce_scatter", output, count, 1, dtype);
    if (mine == CZ_OK)
        mine = check_reduction("reduce_scatter", reduction, dtype);
    cz__operation operation = describe(CZ__REDUCE_SCATTER, count, dtype);
    operation.header.reduction = (int32_t)reduction;
    operation.reduces = true;
    operation.source = region(group, CZ__REGION_EQUAL, input, count, dtype);
    operation.target = region(group, CZ__REGION_EQUAL, NULL, count, dtype);
    operation.target.own = output;
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_all_gather(cz_group *group, const void *input, void *output, int64_t count,
                        cz_dtype dtype, const cz_operation_options *options)
{
    if (!group)
        return no_group("all_gather");
    cz_status mine = check_buffer("all_gather", input, count, 1, dtype);
    if (mine == CZ_OK)
        mine = check_buffer("all_gather", output, count, group->size, dtype);
    cz__operation operation = describe(CZ__ALL_GATHER, count, dtype);
    operation.exchanges = operation.same_to_all = true;
    operation.source = root_region(group, group->rank, input, count, dtype);
    operation.target = region(group, CZ__REGION_EQUAL, output, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_gather(cz_group *group, const void *input, void *output, int64_t count, cz_dtype dtype,
                    int root, const cz_operation_options *options)
{
    if (!group)
        return no_group("gather");
    const bool here = group->rank == root;
    cz_status mine = check_buffer("gather", input, count, 1, dtype);
    if (mine == CZ_OK)
        mine = check_root("gather", group, root);
    if (mine == CZ_OK && here)
        mine = check_buffer("gather", output, count, group->size, dtype);
    cz__operation operation = describe(CZ__GATHER, count, dtype);
    operation.header.root = root;
    operation.exchanges = true;
    operation.source = root_region(group, root, input, count, dtype);
    operation.target = region(group, CZ__REGION_EQUAL, output, here ? count : 0, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_scatter(cz_group *group, const void *input, void *output, int64_t count,
                     cz_dtype dtype, int root, const cz_operation_options *options)
{
    if (!group)
        return no_group("scatter");
    const bool here = group->rank == root;
    cz_status mine = check_buffer("scatter", output, count, 1, dtype);
    if (mine == CZ_OK)
        mine = check_root("scatter", group, root);
    if (mine == CZ_OK && here)
        mine = check_buffer("scatter", input, count, group->size, dtype);
    cz__operation operation = describe(CZ__SCATTER, count, dtype);
    operation.header.root = root;
    operation.exchanges = true;
    operation.source = region(group, CZ__REGION_EQUAL, input, here ? count : 0, dtype);
    operation.target = root_region(group, root, output, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_all_to_all(cz_group *group, const void *input, void *output, int64_t count,
                        cz_dtype dtype, const cz_operation_options *options)
{
    if (!group)
        return no_group("all_to_all");
    cz_status mine = check_buffer("all_to_all", input, count, group->size, dtype);
    if (mine == CZ_OK)
        mine = check_buffer("all_to_all", output, count, group->size, dtype);
    cz__operation operation = describe(CZ__ALL_TO_ALL, count, dtype);
    operation.exchanges = true;
    operation.source = region(group, CZ__REGION_EQUAL, input, count, dtype);
    operation.target = region(group, CZ__REGION_EQUAL, output, count, dtype);
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_barrier(cz_group *group, const cz_operation_options *options)
{
    if (!group)
        return no_group("barrier");
    cz__operation operation = describe(CZ__BARRIER, 0, CZ_U8);
    return cz__operation_run(group, &operation, CZ_OK, options, NULL);
}

/* A number that stands for a list of numbers. */
static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* ---- a count for each rank, the same list on every rank ---- */

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
        *fingerprint = mix(*fingerprint, (uint64_t)counts[r]);
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
    *operation = describe(kind, total, dtype);
    operation->header.fingerprint = fingerprint;
    if (mine == CZ_OK && own_used)
        mine = check_buffer(name, own, counts[group->rank], 1, dtype);
    if (mine == CZ_OK && all_used)
        mine = check_buffer(name, all, total, 1, dtype);
    return mine;
}

cz_status cz_all_gather_v(cz_group *group, const void *input, void *output, const int64_t *counts,
                          cz_dtype dtype, const cz_operation_options *options)
{
    if (!group)
        return no_group("all_gather_v");
    cz__operation operation;
    const cz_status mine = describe_listed("all_gather_v", CZ__ALL_GATHER_V, group, input, true,
                                           output, true, counts, dtype, &operation);
    operation.exchanges = operation.same_to_all = true;
    if (mine == CZ_OK) {
        operation.source = root_region(group, group->rank, input, counts[group->rank], dtype);
        operation.target = listed_region(group, output, counts, dtype);
    }
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_reduce_scatter_v(cz_group *group, const void *input, void *output,
                              const int64_t *counts, cz_dtype dtype, cz_reduction reduction,
                              const cz_operation_options *options)
{
    if (!group)
        return no_group("reduce_scatter_v");
    cz__operation operation;
    cz_status mine = describe_listed("reduce_scatter_v", CZ__REDUCE_SCATTER_V, group, output, true,
                                     input, true, counts, dtype, &operation);
    if (mine == CZ_OK)
        mine = check_reduction("reduce_scatter_v", reduction, dtype);
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
        return no_group("gather_v");
    const bool here = group->rank == root;
    cz__operation operation;
    cz_status mine = describe_listed("gather_v", CZ__GATHER_V, group, input, true, output, here,
                                     counts, dtype, &operation);
    if (mine == CZ_OK)
        mine = check_root("gather_v", group, root);
    operation.header.root = root;
    operation.exchanges = true;
    if (mine == CZ_OK) {
        operation.source = root_region(group, root, input, counts[group->rank], dtype);
        operation.target = here ? listed_region(group, output, counts, dtype)
                                : region(group, CZ__REGION_EQUAL, NULL, 0, dtype);
    }
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_scatter_v(cz_group *group, const void *input, void *output, const int64_t *counts,
                       cz_dtype dtype, int root, const cz_operation_options *options)
{
    if (!group)
        return no_group("scatter_v");
    const bool here = group->rank == root;
    cz__operation operation;
    cz_status mine = describe_listed("scatter_v", CZ__SCATTER_V, group, output, true, input, here,
                                     counts, dtype, &operation);
    if (mine == CZ_OK)
        mine = check_root("scatter_v", group, root);
    operation.header.root = root;
    operation.exchanges = true;
    if (mine == CZ_OK) {
        operation.source = here ? listed_region(group, input, counts, dtype)
                                : region(group, CZ__REGION_EQUAL, NULL, 0, dtype);
        operation.target = root_region(group, root, output, counts[group->rank], dtype);
    }
    return cz__operation_run(group, &operation, mine, options, NULL);
}

/* ---- for the parts above ---- */

cz_status cz__agree(cz_group *group, cz_status mine, uint64_t fingerprint, bool *same,
                    const char *label)
{
    const cz_operation_options options = {sizeof options, label, NULL};
    bool equal;
    cz__operation operation = describe(CZ__AGREE, 0, CZ_U8);
    operation.header.fingerprint = fingerprint;
    return cz__operation_run(group, &operation, mine, &options, same ? same : &equal);
}

/* The operations along a map describe themselves alike: by the elements that take part. */
static cz__operation along_map(const cz_group *group, const cz__mapped *memory,
                               cz__operation_kind kind)
{
    cz__operation operation = describe(kind, 0, memory->dtype);
    const int64_t params = cz_shard_map_param_count(memory->map);
    for (int64_t p = 0; p < params; p++) {
        if (!memory->include[p])
            continue;
        operation.header.count += cz_shard_map_count(memory->map, p);
        operation.header.detail = mix(mix(operation.header.detail, (uint64_t)p),
                                      (uint64_t)cz_shard_map_count(memory->map, p));
    }
    operation.target = region(group, CZ__REGION_MAPPED, NULL, 0, memory->dtype);
    operation.target.mapped = *memory;
    operation.source = operation.target;
    operation.longest = (size_t)operation.header.count * operation.target.element_size;
    operation.reserve = memory->reserve;
    return operation;
}

cz_status cz__reduce_along_map(cz_group *group, const cz__mapped *memory, cz_reduction reduction,
                               const cz_operation_options *options)
{
    const cz_status mine = check_reduction("gradient reduction", reduction, memory->dtype);
    cz__operation operation = along_map(group, memory, CZ__REDUCE_MAP);
    operation.header.reduction = (int32_t)reduction;
    if (memory->result)
        operation.target.mapped.data = memory->result;
    operation.reduces = true;
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz__gather_along_map(cz_group *group, const cz__mapped *memory,
                               const cz_operation_options *options)
{
    cz__operation operation = along_map(group, memory, CZ__GATHER_MAP);
    operation.exchanges = operation.same_to_all = true;
    return cz__operation_run(group, &operation, CZ_OK, options, NULL);
}
