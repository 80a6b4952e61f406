/* SPDX-License-Identifier: MIT */
/* What is saved: the model's tensors and the optimizer's state, as an index of what is here now. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/object.h"
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

/* What the map gives to nobody, and buffers: whole tensors, the largest first to the rank that has least of
 * them, in bytes. */
static cz_status deal_rest(const cz_checkpoint *c, cz__index *index)
{
    const int64_t count = index->param_count + index->buffer_count;
    int64_t *bytes = cz__calloc((size_t)count, sizeof *bytes), rest = 0;
    int64_t *members = cz__calloc((size_t)count, sizeof *members);
    int *owners = cz__calloc((size_t)count, sizeof *owners);
    cz_status status = bytes && members && owners
                           ? CZ_OK
                           : cz__fail(CZ_ERR_MEMORY, "checkpoint: tables of the tensors");
    for (int64_t i = 0; status == CZ_OK && i < count; i++) {
        bytes[i] = index->stored[i].count * (int64_t)cz_dtype_size(index->stored[i].dtype);
        if (i >= index->param_count || cz_shard_map_home(index->map, i) < 0)
            members[rest++] = i;
    }
    if (status == CZ_OK && rest > 0)
        status = cz_partition_greedy(cz_group_size(c->group), count, bytes, 1, &rest, members,
                                     owners, NULL);
    for (int64_t k = 0; status == CZ_OK && k < rest; k++)
        index->stored[members[k]].owner = owners[members[k]];
    cz__free(bytes);
    cz__free(members);
    cz__free(owners);
    return status;
}

/* Without a sharded optimizer ranks are alike: each writes an even share. */
static cz_status cut_evenly(const cz_checkpoint *c, cz__index *index)
{
    const int64_t params = index->param_count;
    int64_t *counts = cz__calloc((size_t)params, sizeof *counts);
    if (!counts)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: a table of the parameters");
    for (int64_t p = 0; p < params; p++)
        counts[p] = index->stored[p].count;
    const size_t size = params > 0 ? cz_dtype_size(index->stored[0].dtype) : 4;
    const cz_status status = cz_shard_map_create_even(&index->own_map, cz_group_size(c->group),
                                                      params, counts, NULL, 0, NULL, size);
    index->map = index->own_map;
    cz__free(counts);
    return status;
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
        CZ_TRY(cut_evenly(c, index));
    CZ_TRY(deal_rest(c, index));
    if (c->optim)
        CZ_TRY(cz__optim_outline_create(&index->optimizer, c->optim, progress));
    return cz__index_complete(index);
}

cz_status cz__contents(const cz_checkpoint *checkpoint, cz__index *index)
{
    cz__zero_progress shared = {0};
    cz__progress progress = {0};
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
    const cz_status status = build(checkpoint, &progress, index);
    cz__zero_progress_clear(&shared);
    return cz__agree(checkpoint->group, status, 0, NULL, "checkpoint: contents");
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
