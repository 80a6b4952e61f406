/* SPDX-License-Identifier: MIT */
/* Buckets of values: one block of memory in the order of the shard map, so that what a rank owns is one
 * piece of it. The map's order is rank by rank where parameters are whole, the fixed layout where they
 * are cut. */
#include "zero/bucket_view.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tensor/model.h"

struct cz__bucket_view {
    const cz_device *device;
    char *memory;   /* owned */
    void **places;  /* owned, one per parameter: where its value is to be; NULL: it stays */
    void **callers; /* owned: where the caller has it */
};

static bool in_group(const cz_zero *zero, int64_t param)
{
    return cz__optim_group_of(zero->optim, param) >= 0;
}

/* Flat memory of the program is used as it is. */
static bool in_one_block(const cz_zero *zero)
{
    int64_t block = -1;
    bool any = false;
    for (int64_t p = 0; p < zero->param_count; p++) {
        if (!in_group(zero, p))
            continue;
        if (any && cz__model_block(zero->model, p) != block)
            return false;
        block = cz__model_block(zero->model, p);
        any = true;
    }
    return block >= 0;
}

static cz_status lay_out(cz__bucket_view *view, const cz_zero *zero, const cz_shard_map *map)
{
    const size_t params = (size_t)zero->param_count, size = cz_dtype_size(zero->dtype);
    size_t bytes = 0;
    void *memory = NULL;
    view->places = cz__calloc(params, sizeof *view->places);
    view->callers = cz__calloc(params, sizeof *view->callers);
    if (!view->places || !view->callers)
        return cz__fail(CZ_ERR_MEMORY, "zero: tables of %zu parameters", params);
    for (int64_t p = 0; p < zero->param_count; p++)
        bytes += in_group(zero, p) ? (size_t)cz_shard_map_count(map, p) * size : 0;
    const cz_status status = view->device->allocate(CZ_MEMORY_GENERAL, bytes, &memory);
    if (status != CZ_OK)
        return cz__fail_in(status, "zero: buckets of parameters");
    view->memory = memory;
    bytes = 0;
    int64_t param;
    for (int64_t k = 0; (param = cz_shard_map_listed(map, k)) >= 0; k++) {
        if (!in_group(zero, param))
            continue;
        view->places[param] = view->memory + bytes;
        view->callers[param] = zero->bucket_view && zero->bucket_view->places[param]
                                   ? zero->bucket_view->callers[param]
                                   : zero->values[param];
        bytes += (size_t)cz_shard_map_count(map, param) * size;
    }
    return CZ_OK;
}

cz_status cz__bucket_view_create(cz__bucket_view **out, const cz_zero *zero,
                                 const cz_shard_map *map)
{
    *out = NULL;
    if (!zero->views_buckets || in_one_block(zero))
        return CZ_OK;
    if (!zero->moved)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: parameters_as_bucket_view moves values, and option moved is NULL");
    cz__bucket_view *view = cz__calloc(1, sizeof *view);
    if (!view)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for buckets of parameters");
    view->device = zero->device;
    const cz_status status = lay_out(view, zero, map);
    if (status != CZ_OK)
        cz__bucket_view_destroy(&view);
    *out = view;
    return status;
}

/* One value to another address: its bytes, everybody who knows where it is, the program. */
static void move(cz_zero *zero, int64_t param, void *to)
{
    const size_t bytes = (size_t)cz_shard_map_count(zero->map, param) * cz_dtype_size(zero->dtype);
    if (bytes > 0)
        (void)zero->device->copy(NULL, to, zero->values[param], bytes);
    zero->values[param] = to;
    cz__model_set_address(zero->model, param, to);
    cz__optim_set_address(zero->optim, param, to);
    zero->moved(param, to, zero->moved_context);
}

void cz__bucket_view_enter(cz_zero *zero, cz__bucket_view *view)
{
    for (int64_t p = 0; view && p < zero->param_count; p++)
        if (view->places[p])
            move(zero, p, view->places[p]);
    cz__bucket_view_destroy(&zero->bucket_view);
    zero->bucket_view = view;
}

void cz__bucket_view_leave(cz_zero *zero)
{
    const cz__bucket_view *view = zero->bucket_view;
    for (int64_t p = 0; view && p < zero->param_count; p++)
        if (view->places[p])
            move(zero, p, view->callers[p]);
    cz__bucket_view_destroy(&zero->bucket_view);
}

void cz__bucket_view_destroy(cz__bucket_view **view)
{
    if (!view || !*view)
        return;
    (*view)->device->release((*view)->memory);
    cz__free((*view)->places);
    cz__free((*view)->callers);
    cz__free(*view);
    *view = NULL;
}

cz_status cz_zero_bucket(const cz_zero *zero, int rank, void **data, int64_t *count)
{
    if (!zero || !data || !count)
        return cz__fail(CZ_ERR_ARGUMENT, "zero bucket: %s is NULL",
                        !zero  ? "zero"
                        : data ? "count"
                               : "data");
    if (rank < 0 || rank >= cz_group_size(zero->group))
        return cz__fail(CZ_ERR_ARGUMENT, "zero bucket: rank %d, the group has %d", rank,
                        cz_group_size(zero->group));
    const size_t size = cz_dtype_size(zero->dtype);
    cz_span_iterator iterator;
    cz_span span;
    *data = NULL;
    *count = 0;
    cz_span_iterate(zero->map, rank, &iterator);
    while (cz_span_next(&iterator, &span)) {
        char *begin = (char *)zero->values[span.param] + (size_t)span.begin * size;
        if (!in_group(zero, span.param) ||
            (*data && begin != (char *)*data + (size_t)*count * size))
            break;
        *data = *data ? *data : begin;
        *count += span.end - span.begin;
    }
    return CZ_OK;
}
