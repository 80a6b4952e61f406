/* SPDX-License-Identifier: MIT */
/* What is saved: the model's tensors and the optimizer's state, as an index of what is here now. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/object.h"
#include "group/collective.h"
#include "group/replicas.h"
#include "optim/dict.h"
#include "tensor/model.h"
#include "zero/progress.h"

static const cz_tensor *tensor_at(const cz_checkpoint *c, int64_t place)
{
    const int64_t params = cz_model_param_count(c->model);
    return place < params ? cz_model_value(c->model, place)
                          : cz_model_buffer(c->model, place - params);
}

static void fill(const cz_checkpoint *c, cz__index *index)
{
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++) {
        const cz_tensor *tensor = tensor_at(c, i);
        cz__stored *stored = &index->stored[i];
        stored->name = i < index->param_count
                           ? cz_model_name(c->model, i)
                           : cz_model_buffer_name(c->model, i - index->param_count);
        stored->dtype = tensor->dtype;
        stored->dimensions = tensor->dimensions;
        memcpy(stored->shape, tensor->shape, sizeof stored->shape);
        stored->count = cz_tensor_count(tensor);
        stored->owner = -1;
    }
}

static cz_status build(const cz_checkpoint *c, const cz__progress *progress, cz__index *index)
{
    index->world_size = cz_group_size(c->group);
    index->param_count = cz_model_param_count(c->model);
    index->buffer_count = cz_model_buffer_count(c->model);
    index->stored =
        cz__calloc((size_t)(index->param_count + index->buffer_count), sizeof *index->stored);
    if (!index->stored)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: a table of the tensors");
    fill(c, index);
    if (c->zero)
        index->map = cz_zero_shard_map(c->zero);
    else
        CZ_TRY(cz__index_cut_evenly(index));
    CZ_TRY(cz__index_deal_rest(index));
    if (c->optim)
        CZ_TRY(cz__optim_outline_create(&index->optimizer, c->optim, progress));
    return cz__index_complete(index);
}

/* ---- in checked mode: elements, of which each rank would write a part ---- */

static void list_state(const cz_checkpoint *c, const cz__index *index, int64_t param,
                       cz__replica *list, int64_t *count)
{
    const char *slot;
    cz_dtype dtype;
    for (int64_t at = 0; cz__index_slot(index, param, &at, &slot, &dtype);) {
        if (!list) {
            ++*count;
            continue;
        }
        list[*count] = list[param];
        list[*count].of = slot;
        list[(*count)++].data = cz__contents_address(c, param, slot, 0);
    }
}

/* With `list` NULL they are counted. */
static void list_replicas(const cz_checkpoint *c, const cz__index *index, cz__replica *list,
                          int64_t *count)
{
    for (int64_t p = 0; list && p < index->param_count; p++)
        list[p] = (cz__replica){.noun = "parameter",
                                .index = p,
                                .name = index->stored[p].name,
                                .device = cz__contents_device(c, p),
                                .data = cz__contents_address(c, p, NULL, 0),
                                .bytes = (size_t)index->stored[p].count *
                                         cz_dtype_size(index->stored[p].dtype)};
    *count = index->param_count;
    for (int64_t p = 0; index->optimizer && p < index->param_count; p++)
        list_state(c, index, p, list, count);
}

static cz_status compare_replicas(const cz_checkpoint *c, const char *call, const cz__index *index)
{
    const cz__asker asker = {call, NULL, -1};
    int64_t count;
    list_replicas(c, index, NULL, &count);
    cz__replica *list = cz__calloc((size_t)count, sizeof *list);
    cz_status status = CZ_OK;
    if (list)
        list_replicas(c, index, list, &count);
    else
        status = cz__fail(CZ_ERR_MEMORY, "checkpoint: a list of %lld tensors", (long long)count);
    status = cz__check_replicas(c->group, &asker, list, count, status);
    cz__free(list);
    return status;
}

/* ---- all of it ---- */

typedef struct compared {
    const cz__index *index;
    bool state;
} compared;

static void describe(cz__description *description, const void *context)
{
    const compared *c = context;
    cz__describe_index(description, c->index, c->state);
}

cz_status cz__contents(const cz_checkpoint *checkpoint, const char *call, bool state,
                       cz__index *index)
{
    cz__zero_progress shared = {0};
    cz__progress progress = {0};
    cz__description room = {0};
    *index = (cz__index){0};
    if (checkpoint->zero) {
        const cz_status status = cz__zero_progress_create(checkpoint->zero, &shared);
        if (status != CZ_OK) {
            cz__zero_progress_clear(&shared);
            return status;
        }
        progress = cz__zero_progress_view(&shared);
    } else if (checkpoint->optim) {
        progress = cz__optim_progress(checkpoint->optim);
    }
    const cz_status built = build(checkpoint, &progress, index);
    cz__zero_progress_clear(&shared);
    const cz_status status =
        cz__agree_on(checkpoint->group, call, describe, &(compared){index, state}, built, &room);
    cz__description_clear(&room);
    /* a sharded optimizer's owners have what counts, whatever others hold */
    return status == CZ_OK && state && !checkpoint->zero && cz__group_is_checked(checkpoint->group)
               ? compare_replicas(checkpoint, call, index)
               : status;
}

cz_status cz__contents_at_first(const cz_checkpoint *checkpoint, cz__index *index)
{
    const size_t params = (size_t)cz_model_param_count(checkpoint->model);
    int64_t *steps = cz__calloc(params, sizeof *steps);
    unsigned *used = cz__calloc(params, sizeof *used);
    const cz__progress none = {steps, used, NULL};
    *index = (cz__index){0};
    const cz_status status =
        steps && used ? build(checkpoint, &none, index)
                      : cz__fail(CZ_ERR_MEMORY, "checkpoint: tables of %zu parameters", params);
    cz__free(steps);
    cz__free(used);
    return status;
}

static int slot_number(const cz_optim *optim, const char *name)
{
    for (int e = 0; e < cz__optim_slot_count(optim); e++)
        if (strcmp(cz__optim_element_slot(optim, e)->name, name) == 0)
            return e;
    return -1;
}

void *cz__contents_address(const cz_checkpoint *checkpoint, int64_t stored, const char *slot,
                           int64_t begin)
{
    const cz_tensor *tensor = tensor_at(checkpoint, stored);
    if (!slot)
        return (char *)tensor->data + (size_t)begin * cz_dtype_size(tensor->dtype);
    return cz__optim_slot_address(checkpoint->optim, stored, slot_number(checkpoint->optim, slot),
                                  begin);
}

const cz_device *cz__contents_device(const cz_checkpoint *checkpoint, int64_t stored)
{
    return cz__device_of(tensor_at(checkpoint, stored));
}
