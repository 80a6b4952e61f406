/* SPDX-License-Identifier: MIT */
/* Models and groups: can the group move this one, and every rank's parameters and buffers become
 * those of one rank. */
#include <inttypes.h>

#include "collective/model.h"
#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "collective/description.h"
#include "collective/shared.h"
#include "shard/shard.h"
#include "tensor/model.h"

static cz_status check_tensor(const cz_device *ours, const char *part, const char *noun,
                              int64_t index, const char *name, const cz_tensor *tensor)
{
    const cz_device *device = cz__device_of(tensor);
    if (tensor->layout != CZ_DENSE)
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: %s %" PRId64 " '%.60s' is sparse", part, noun,
                        index, name);
    if (!cz__device_same_type(device, ours))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "%s: %s %" PRId64 " '%.60s' is on device %s, the group moves memory of %s",
                        part, noun, index, name, device->name, ours->name);
    return CZ_OK;
}

cz_status cz__group_check_model(const cz_group *group, const cz_model *model, const char *part)
{
    const cz_device *ours = cz__group_device(group);
    for (int64_t p = 0; p < cz__model_param_count(model); p++)
        CZ_TRY(check_tensor(ours, part, "parameter", p, cz__model_name(model, p),
                            cz__model_value(model, p)));
    for (int64_t b = 0; b < cz__model_buffer_count(model); b++)
        CZ_TRY(check_tensor(ours, part, "buffer", b, cz__model_buffer_name(model, b),
                            cz__model_buffer(model, b)));
    return CZ_OK;
}

/* All tensors of the model, parameters first, then buffers. */
typedef struct tensor_table {
    int64_t count;
    int64_t *counts; /* owned, as the others: elements of each */
    void **data;
    uint8_t *include;
    bool *shared;           /* all ranks see the root's */
    uint64_t places;        /* where these are, as a number */
    cz_shard_map *map;      /* the root owns everything */
    cz__reserve *transfers; /* nothing is moved unless everything can be */
} tensor_table;

static void table_clear(tensor_table *table)
{
    cz__free(table->counts);
    cz__free(table->data);
    cz__free(table->include);
    cz__free(table->shared);
    cz__shard_map_destroy(&table->map);
    cz__reserve_destroy(&table->transfers);
}

static const cz_tensor *tensor_at(const cz_model *model, int64_t place)
{
    const int64_t params = cz__model_param_count(model);
    return place < params ? cz__model_value(model, place) : cz__model_buffer(model, place - params);
}

/* Such a tensor has the root's values on every rank already. */
static void look_for_sharing(tensor_table *table, const cz_group *group, int64_t place,
                             size_t bytes)
{
    const cz__shared_place found = cz__shared_find(table->data[place], bytes);
    table->shared[place] = cz__shared_by(group, table->data[place], bytes);
    if (!table->shared[place])
        return;
    const uint64_t numbers[] = {(uint64_t)place, found.block, found.offset};
    table->places = cz__fingerprint(table->places, numbers, sizeof numbers);
}

static cz_status table_create(tensor_table *table, cz_group *group, const cz_model *model, int root,
                              const char *label)
{
    const int ranks = cz_group_size(group);
    table->count = cz__model_param_count(model) + cz__model_buffer_count(model);
    const size_t count = (size_t)table->count;
    if (root < 0 || root >= ranks)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: root is %d in a group of %d", label, root, ranks);
    table->counts = cz__calloc(count, sizeof *table->counts);
    table->data = cz__calloc(count, sizeof *table->data);
    table->include = cz__calloc(count, sizeof *table->include);
    table->shared = cz__calloc(count, sizeof *table->shared);
    if (!table->counts || !table->data || !table->include || !table->shared)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a table of %zu tensors", label, count);
    size_t bytes = 0;
    for (int64_t k = 0; k < table->count; k++) {
        const cz_tensor *tensor = tensor_at(model, k);
        table->counts[k] = cz_tensor_count(tensor);
        table->data[k] = tensor->data;
        const size_t its = (size_t)table->counts[k] * cz_dtype_size(tensor->dtype);
        look_for_sharing(table, group, k, its);
        bytes += its;
    }
    CZ_TRY(cz__shard_map_create_single(&table->map, ranks, table->count, table->counts, root));
    return cz__reserve_create(&table->transfers, group, bytes);
}

static cz_status gather_type(cz_group *group, const cz_model *model, const tensor_table *table,
                             cz_dtype dtype, const char *label)
{
    bool any = false;
    for (int64_t k = 0; k < table->count; k++) {
        table->include[k] = tensor_at(model, k)->dtype == dtype && !table->shared[k];
        any = any || table->include[k];
    }
    const cz__mapped memory = {.map = table->map,
                               .data = table->data,
                               .include = table->include,
                               .dtype = dtype,
                               .reserve = table->transfers};
    return any ? cz__gather_along_map(group, &memory, CZ_LABEL(label)) : CZ_OK;
}

static cz_status broadcast(tensor_table *table, cz_group *group, const cz_model *model,
                           const cz__object *object, int root, const char *label)
{
    bool same;
    const cz_status mine = table_create(table, group, model, root, label);
    CZ_TRY(
        cz__agree_for(group, object, mine, cz__mix(table->places, (uint64_t)root), &same, label));
    if (!same)
        return cz__fail(
            CZ_ERR_MISMATCH,
            "%s: ranks gave different roots, or have other tensors in memory that they share",
            label);
    for (cz_dtype dtype = CZ_F32; cz_dtype_size(dtype) > 0; dtype++)
        CZ_TRY(gather_type(group, model, table, dtype, label));
    return CZ_OK;
}

cz_status cz__broadcast_model(cz_group *group, const cz_model *model, const cz__object *object,
                              int root, const char *label)
{
    tensor_table table = {0};
    const cz_status status = broadcast(&table, group, model, object, root, label);
    table_clear(&table);
    return status;
}
