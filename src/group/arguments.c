/* SPDX-License-Identifier: MIT */
/* What the collective calls have in common: checking this rank's arguments, describing memory. */
#include "group/arguments.h"

#include <inttypes.h>

#include "base/dtype.h"
#include "base/status.h"

cz_status cz__check_buffer(const char *name, const void *buffer, int64_t count, int blocks,
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

cz_status cz__check_apart(const char *name, const void *part, int64_t part_count, const void *whole,
                          int64_t whole_count, int64_t place, cz_dtype dtype)
{
    const size_t size = cz_dtype_size(dtype);
    const uintptr_t p = (uintptr_t)part, w = (uintptr_t)whole;
    if (part_count == 0 || whole_count == 0 || p >= w + (uintptr_t)whole_count * size ||
        w >= p + (uintptr_t)part_count * size)
        return CZ_OK;
    if (place >= 0 && p == w + (uintptr_t)place * size)
        return CZ_OK;
    return cz__fail(CZ_ERR_ARGUMENT, "%s: input and output share memory%s; each needs its own",
                    name, place >= 0 ? ", and the one is not this rank's block of the other" : "");
}

cz_status cz__check_reduction(const char *name, cz_reduction reduction, cz_dtype dtype)
{
    if (reduction < CZ_SUM || reduction > CZ_OR)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: unknown reduction %d", name, (int)reduction);
    if (reduction == CZ_AVERAGE && !cz__is_floating(dtype))
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: the average of %s is not defined", name,
                        cz_dtype_name(dtype));
    if ((reduction == CZ_AND || reduction == CZ_OR) && cz__is_floating(dtype))
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: the bitwise %s of %s is not defined", name,
                        reduction == CZ_AND ? "and" : "or", cz_dtype_name(dtype));
    return CZ_OK;
}

cz_status cz__no_group(const char *name)
{
    return cz__fail(CZ_ERR_ARGUMENT, "%s: group is NULL", name);
}

cz__region cz__region_of(const cz_group *group, cz__region_kind kind, const void *base,
                         int64_t count, cz_dtype dtype)
{
    const size_t size = cz_dtype_size(dtype);
    return (cz__region){.kind = kind,
                        .element_size = size ? size : 1,
                        .width = size ? size : 1,
                        .rank = group->rank,
                        .world_size = group->size,
                        .count = count > 0 ? count : 0,
                        .base = (char *)base};
}

cz__region cz__root_region(const cz_group *group, int root, const void *base, int64_t count,
                           cz_dtype dtype)
{
    cz__region all = cz__region_of(group, CZ__REGION_ROOT, base, count, dtype);
    all.root = root;
    return all;
}

cz__operation cz__operation_describe(cz__operation_kind kind, int64_t count, cz_dtype dtype)
{
    const size_t size = cz_dtype_size(dtype);
    return (cz__operation){.header = {.kind = kind, .count = count, .dtype = (int32_t)dtype},
                           .result = dtype,
                           .longest = count > 0 ? (size_t)count * (size ? size : 1) : 0};
}

cz_status cz__check_root(const char *name, const cz_group *group, int root)
{
    return root >= 0 && root < group->size
               ? CZ_OK
               : cz__fail(CZ_ERR_ARGUMENT, "%s: root is %d in a group of %d", name, root,
                          group->size);
}
