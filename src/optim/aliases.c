/* SPDX-License-Identifier: MIT */
/* Parameters over the same memory: each would be updated through its own name, and with shards by ranks that
 * do not know of each other. */
#include "base/memory.h"
#include "base/status.h"
#include "optim/object.h"
#include "tensor/model.h"

#include <inttypes.h>
#include <stdlib.h>

/* Where a value is. */
typedef struct extent {
    const cz_device *device;
    uintptr_t begin, end;
    int64_t param;
} extent;

static int compare_extents(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    const uintptr_t devices[] = {(uintptr_t)a->device, (uintptr_t)b->device};
    if (a->device != b->device)
        return devices[0] < devices[1] ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->param > b->param) - (a->param < b->param);
}

/* Sparse ones say elsewhere that they are not taken; empty ones are nowhere. Returns how many are left. */
static int64_t list_extents(const cz_optim *optim, extent *extents)
{
    int64_t count = 0;
    for (int64_t p = 0; p < optim->param_count; p++) {
        const cz_tensor *value = cz_model_value(optim->model, p);
        const size_t bytes = (size_t)cz_tensor_count(value) * cz_dtype_size(value->dtype);
        const uintptr_t begin = (uintptr_t)value->data;
        if (value->layout == CZ_DENSE && bytes > 0)
            extents[count++] = (extent){cz__device_of(value), begin, begin + bytes, p};
    }
    return count;
}

static cz_status fail(const cz_optim *optim, int64_t one, int64_t other)
{
    const int64_t first = one < other ? one : other, second = one < other ? other : one;
    return cz__fail(CZ_ERR_ARGUMENT,
                    "optim: parameters %" PRId64 " '%.60s' and %" PRId64
                    " '%.60s' have values in the same memory",
                    first, cz_model_name(optim->model, first), second,
                    cz_model_name(optim->model, second));
}

/* In the order of their addresses: what begins before the furthest end so far overlaps it. Two that are in
 * no group may, nobody writes to them here. */
static cz_status find_overlap(const cz_optim *optim, const extent *extents, int64_t count)
{
    const extent *furthest[2] = {NULL, NULL}; /* in no group, in one */
    for (int64_t i = 0; i < count; i++) {
        const extent *e = &extents[i];
        const bool in_group = optim->group_of[e->param] >= 0;
        for (int k = in_group ? 0 : 1; k < 2; k++)
            if (furthest[k] && furthest[k]->device == e->device && furthest[k]->end > e->begin)
                return fail(optim, furthest[k]->param, e->param);
        const extent *last = furthest[in_group];
        if (!last || last->device != e->device || last->end < e->end)
            furthest[in_group] = e;
    }
    return CZ_OK;
}

cz_status cz__optim_check_aliases(const cz_optim *optim)
{
    extent *extents = cz__calloc((size_t)optim->param_count, sizeof *extents);
    if (!extents)
        return cz__fail(CZ_ERR_MEMORY, "optim: a table of %" PRId64 " addresses",
                        optim->param_count);
    const int64_t count = list_extents(optim, extents);
    qsort(extents, (size_t)count, sizeof *extents, compare_extents);
    const cz_status status = find_overlap(optim, extents, count);
    cz__free(extents);
    return status;
}
