/* SPDX-License-Identifier: MIT */
/* Buckets of values: one block of memory on each device, in the order of the shard map, so that
 * what a rank owns is one piece of it. The map's order is rank by rank where parameters are whole,
 * the fixed layout where they are cut. */
#include "zero/zero.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tensor/model.h"
#include "shard/shard.h"

/* The memory of one device. */
typedef struct bucket_block {
    struct bucket_block *next;
    const cz_device *device;
    char *memory; /* owned */
    size_t used;
} bucket_block;

struct cz__bucket_view {
    bucket_block *blocks; /* owned */
    void **places;        /* owned, one per parameter: where its value is to be; NULL: it stays */
    void **callers;       /* owned: where the caller has it */
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

static const cz_device *device_of(const cz_zero *zero, int64_t param)
{
    return cz__device_of(cz__model_value(zero->model, param));
}

static size_t value_bytes(const cz_zero *zero, int64_t param)
{
    return (size_t)cz_tensor_count(cz__model_value(zero->model, param)) *
           cz_dtype_size(cz__model_value(zero->model, param)->dtype);
}

static bucket_block *find_block(const cz__bucket_view *view, const cz_device *device)
{
    bucket_block *block = view->blocks;
    while (block && block->device != device)
        block = block->next;
    return block;
}

/* Of a model that mixes types. */
static size_t aligned_for(const cz_zero *zero, int64_t param, size_t bytes)
{
    const size_t size = cz_dtype_size(cz__model_value(zero->model, param)->dtype);
    return (bytes + size - 1) / size * size;
}

static cz_status add_block(cz__bucket_view *view, const cz_zero *zero, const cz_device *device)
{
    size_t bytes = 0;
    void *memory = NULL;
    for (int64_t p = 0; p < zero->param_count; p++)
        if (in_group(zero, p) && device_of(zero, p) == device)
            bytes += value_bytes(zero, p);
    if (zero->kind_count > 1) /* what lies between values, in whatever order they are */
        bytes += (size_t)zero->param_count * sizeof(double);
    bucket_block *block = cz__calloc(1, sizeof *block);
    if (!block)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for buckets of parameters");
    block->next = view->blocks;
    block->device = device;
    view->blocks = block;
    const cz_status status = device->allocate(CZ_MEMORY_GENERAL, bytes, &memory);
    block->memory = memory;
    return status == CZ_OK ? CZ_OK : cz__fail_in(status, "zero: buckets of parameters");
}

/* One optimizer at a time knows where the program has a value. */
static cz_status check_unviewed(const cz_zero *zero)
{
    const cz__bucket_view *present = zero->bucket_view;
    for (int64_t p = 0; p < zero->param_count; p++)
        if (in_group(zero, p) && cz__model_is_viewed(zero->model, p) &&
            !(present && present->places[p]))
            return cz__fail(CZ_ERR_STATE,
                            "zero: parameters_as_bucket_view: parameter %" PRId64
                            " '%.60s' is in the buckets of another optimizer",
                            p, cz__model_name(zero->model, p));
    return CZ_OK;
}

static cz_status add_blocks(cz__bucket_view *view, const cz_zero *zero)
{
    const size_t params = (size_t)zero->param_count;
    view->places = cz__calloc(params, sizeof *view->places);
    view->callers = cz__calloc(params, sizeof *view->callers);
    if (!view->places || !view->callers)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for tables of %zu parameters", params);
    for (int64_t p = 0; p < zero->param_count; p++)
        if (in_group(zero, p) && !find_block(view, device_of(zero, p)))
            CZ_TRY(add_block(view, zero, device_of(zero, p)));
    return CZ_OK;
}

static void lay_out(cz__bucket_view *view, const cz_zero *zero, const cz_shard_map *map)
{
    const cz__bucket_view *present = zero->bucket_view;
    int64_t param;
    for (int64_t k = 0; (param = cz__shard_map_listed(map, k)) >= 0; k++) {
        if (!in_group(zero, param))
            continue;
        bucket_block *block = find_block(view, device_of(zero, param));
        block->used = aligned_for(zero, param, block->used);
        view->places[param] = block->memory + block->used;
        view->callers[param] = present && present->places[param] ? present->callers[param]
                                                                 : zero->tables.values[param];
        block->used += value_bytes(zero, param);
    }
}

cz_status cz__bucket_view_create(cz__bucket_view **out, const cz_zero *zero,
                                 const cz_shard_map *map)
{
    *out = NULL;
    if (!zero->views_buckets)
        return CZ_OK;
    CZ_TRY(check_unviewed(zero));
    if (in_one_block(zero))
        return CZ_OK;
    if (zero->shared_values)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "zero: parameters_as_bucket_view would move values out of the memory that "
                        "ranks share; there they can be one flat block (cz_model_add_flat())");
    if (!zero->moved)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: parameters_as_bucket_view moves values, and option moved is NULL");
    cz__bucket_view *view = cz__calloc(1, sizeof *view);
    if (!view)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for buckets of parameters");
    const cz_status status = add_blocks(view, zero);
    if (!status)
        lay_out(view, zero, map);
    else
        cz__bucket_view_destroy(&view);
    *out = view;
    return status;
}

/* One value to another address: its bytes, the model, the program. */
static void move(cz_zero *zero, int64_t param, void *to, bool is_viewed)
{
    const size_t bytes = value_bytes(zero, param);
    if (bytes > 0)
        (void)zero->device->copy(NULL, to, zero->tables.values[param], bytes);
    cz__model_set_address(zero->model, param, to, is_viewed);
    zero->moved(param, to, zero->moved_context);
}

void cz__bucket_view_enter(cz_zero *zero, cz__bucket_view *view)
{
    if (view) {
        for (int64_t p = 0; p < zero->param_count; p++)
            if (view->places[p])
                move(zero, p, view->places[p], true);
    }
    cz__bucket_view_destroy(&zero->bucket_view);
    zero->bucket_view = view;
}

void cz__bucket_view_leave(cz_zero *zero)
{
    const cz__bucket_view *view = zero->bucket_view;
    if (view) {
        for (int64_t p = 0; p < zero->param_count; p++)
            if (view->places[p])
                move(zero, p, view->callers[p], false);
    }
    cz__bucket_view_destroy(&zero->bucket_view);
}

void cz__bucket_view_destroy(cz__bucket_view **view)
{
    if (!view || !*view)
        return;
    while ((*view)->blocks) {
        bucket_block *block = (*view)->blocks;
        (*view)->blocks = block->next;
        block->device->release(block->memory);
        cz__free(block);
    }
    cz__free((*view)->places);
    cz__free((*view)->callers);
    cz__free(*view);
    *view = NULL;
}
