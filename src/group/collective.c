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
    if (reduction < CZ_SUM || reduction > CZ_MIN)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: unknown reduction %d", name, (int)reduction);
    if (reduction == CZ_AVERAGE && !is_floating(dtype))
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: the average of %s is not defined", name,
                        cz_dtype_name(dtype));
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

static cz__header header(cz__operation_kind kind, int64_t count, cz_dtype dtype)
{
    return (cz__header){.kind = kind, .count = count, .dtype = (int32_t)dtype};
}

cz_status cz_broadcast(cz_group *group, void *buffer, int64_t count, cz_dtype dtype, int root,
                       const cz_operation_options *options)
{
    if (!group)
        return no_group("broadcast");
    cz_status mine = check_buffer("broadcast", buffer, count, 1, dtype);
    if (mine == CZ_OK && (root < 0 || root >= group->size))
        mine =
            cz__fail(CZ_ERR_ARGUMENT, "broadcast: root is %d in a group of %d", root, group->size);
    cz__operation operation = {.header = header(CZ__BROADCAST, count, dtype), .gathers = true};
    operation.header.root = root;
    operation.target = region(group, CZ__REGION_ROOT, buffer, count, dtype);
    operation.target.root = root;
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
    cz__operation operation = {
        .header = header(CZ__ALL_REDUCE, count, dtype), .reduces = true, .gathers = true};
    operation.header.reduction = (int32_t)reduction;
    operation.source = operation.target = region(group, CZ__REGION_EVEN, buffer, count, dtype);
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
    cz__operation operation = {.header = header(CZ__REDUCE_SCATTER, count, dtype), .reduces = true};
    operation.header.reduction = (int32_t)reduction;
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
    cz__operation operation = {.header = header(CZ__ALL_GATHER, count, dtype), .gathers = true};
    operation.target = region(group, CZ__REGION_EQUAL, output, count, dtype);
    operation.target.own = (char *)input;
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz_barrier(cz_group *group, const cz_operation_options *options)
{
    if (!group)
        return no_group("barrier");
    cz__operation operation = {.header = header(CZ__BARRIER, 0, CZ_U8)};
    return cz__operation_run(group, &operation, CZ_OK, options, NULL);
}

cz_status cz__agree(cz_group *group, cz_status mine, uint64_t fingerprint, bool *same,
                    const char *label)
{
    const cz_operation_options options = {sizeof options, label, NULL};
    cz__operation operation = {.header = header(CZ__AGREE, 0, CZ_U8)};
    operation.header.fingerprint = fingerprint;
    return cz__operation_run(group, &operation, mine, &options, same);
}

/* The operations along a map describe themselves alike: by the elements that take part. */
static cz__operation along_map(const cz_group *group, const cz__mapped *memory,
                               cz__operation_kind kind)
{
    cz__operation operation = {.header = header(kind, 0, memory->dtype)};
    const int64_t params = cz_shard_map_param_count(memory->map);
    for (int64_t p = 0; p < params; p++)
        if (memory->include[p])
            operation.header.count += cz_shard_map_count(memory->map, p);
    operation.target = region(group, CZ__REGION_MAPPED, NULL, 0, memory->dtype);
    operation.target.mapped = *memory;
    return operation;
}

cz_status cz__reduce_along_map(cz_group *group, const cz__mapped *memory, cz_reduction reduction,
                               const cz_operation_options *options)
{
    const cz_status mine = check_reduction("gradient reduction", reduction, memory->dtype);
    cz__operation operation = along_map(group, memory, CZ__REDUCE_MAP);
    operation.header.reduction = (int32_t)reduction;
    operation.source = operation.target;
    if (memory->result)
        operation.target.mapped.data = memory->result;
    operation.reduces = true;
    return cz__operation_run(group, &operation, mine, options, NULL);
}

cz_status cz__gather_along_map(cz_group *group, const cz__mapped *memory,
                               const cz_operation_options *options)
{
    cz__operation operation = along_map(group, memory, CZ__GATHER_MAP);
    operation.gathers = true;
    return cz__operation_run(group, &operation, CZ_OK, options, NULL);
}
