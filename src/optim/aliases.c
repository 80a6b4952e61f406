/* SPDX-License-Identifier: MIT */
/* Parameters that share memory: each would be updated as if the other were not there. */
#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"
#include "optim/object.h"
#include "tensor/model.h"

#include <inttypes.h>

typedef struct value_range {
    const cz_device *device;
    uintptr_t begin, end;
    int64_t param;
} value_range;

static int compare(const void *left, const void *right)
{
    const value_range *a = left, *b = right;
    if (a->device != b->device)
        return (uintptr_t)a->device < (uintptr_t)b->device ? -1 : 1;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* The ranges of all that is in groups and not empty; returns how many. */
static int64_t collect(const cz_optim *optim, value_range *ranges)
{
    int64_t count = 0;
    for (int64_t p = 0; p < optim->param_count; p++) {
        const cz_tensor *value = cz_model_value(optim->model, p);
        const uintptr_t begin = (uintptr_t)value->data;
        const size_t bytes = (size_t)cz_tensor_count(value) * cz_dtype_size(value->dtype);
        if (optim->group_of[p] >= 0 && bytes > 0)
            ranges[count++] = (value_range){cz__device_of(value), begin, begin + bytes, p};
    }
    return count;
}

cz_status cz__optim_check_aliases(const cz_optim *optim)
{
    cz_status status = CZ_OK;
    value_range *ranges = cz__calloc((size_t)optim->param_count, sizeof *ranges);
    if (!ranges)
        return cz__fail(CZ_ERR_MEMORY, "optim: a table of %" PRId64 " parameters",
                        optim->param_count);
    const int64_t count = collect(optim, ranges);
    qsort(ranges, (size_t)count, sizeof *ranges, compare);
    for (int64_t k = 1; status == CZ_OK && k < count; k++) {
        const value_range *a = &ranges[k - 1], *b = &ranges[k];
        if (a->device == b->device && b->begin < a->end)
            status = cz__fail(CZ_ERR_ARGUMENT,
                              "optim: parameters '%.60s' and '%.60s' share memory: their values "
                              "overlap by %zu bytes",
                              cz_model_name(optim->model, a->param),
                              cz_model_name(optim->model, b->param),
                              (size_t)((a->end < b->end ? a->end : b->end) - b->begin));
    }
    cz__free(ranges);
    return status;
}
