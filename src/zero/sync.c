/* SPDX-License-Identifier: MIT */
/* Bringing values to every rank: the updated spans after a step, everything from one rank on request. */
#include "base/memory.h"
#include "base/status.h"
#include "group/collective.h"
#include "zero/zero.h"

uint64_t cz__zero_traffic(const cz_zero *zero)
{
    int64_t all = 0, own = 0;
    cz_span_iterator iterator;
    cz_span span;
    for (int64_t p = 0; p < zero->param_count; p++)
        if (zero->present[p])
            all += cz_shard_map_count(zero->map, p);
    cz_span_iterate(zero->map, cz_group_rank(zero->group), &iterator);
    while (cz_span_next(&iterator, &span))
        if (zero->present[span.param])
            own += span.end - span.begin;
    const int64_t others = cz_group_size(zero->group) - 1;
    return (uint64_t)(all - own + others * own) * cz_dtype_size(zero->dtype);
}

cz_status cz__zero_sync(cz_zero *zero)
{
    const cz__mapped memory = {.map = zero->map,
                               .data = zero->values,
                               .include = zero->present,
                               .dtype = zero->dtype,
                               .reserve = zero->transfers};
    const double begin = cz__seconds();
    CZ_TRY(cz__gather_along_map(zero->group, &memory, CZ_LABEL("parameters")));
    cz__trace_add(&zero->trace, CZ_TRACE_SYNC, begin, cz__zero_traffic(zero));
    return CZ_OK;
}

/* ---- everything from one rank ---- */

/* All tensors of the model, parameters first, then buffers. */
typedef struct tensor_table {
    int64_t count;
    int64_t *counts; /* owned, as the others: elements of each */
    int *owners;
    void **data;
    uint8_t *include;
    cz_shard_map *map;      /* the root owns everything */
    cz__reserve *transfers; /* nothing is moved unless everything can be */
} tensor_table;

static void table_clear(tensor_table *table)
{
    cz__free(table->counts);
    cz__free(table->owners);
    cz__free(table->data);
    cz__free(table->include);
    cz_shard_map_destroy(&table->map);
    cz__reserve_destroy(&table->transfers);
}

static const cz_tensor *tensor_at(const cz_zero *zero, int64_t place)
{
    return place < zero->param_count ? cz_model_value(zero->model, place)
                                     : cz_model_buffer(zero->model, place - zero->param_count);
}

static cz_status table_create(tensor_table *table, const cz_zero *zero, int root)
{
    const int ranks = cz_group_size(zero->group);
    table->count = zero->param_count + cz_model_buffer_count(zero->model);
    const size_t count = (size_t)table->count;
    if (root < 0 || root >= ranks)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: broadcast_parameters: root is %d in a group of %d",
                        root, ranks);
    table->counts = cz__calloc(count, sizeof *table->counts);
    table->owners = cz__calloc(count, sizeof *table->owners);
    table->data = cz__calloc(count, sizeof *table->data);
    table->include = cz__calloc(count, sizeof *table->include);
    if (!table->counts || !table->owners || !table->data || !table->include)
        return cz__fail(CZ_ERR_MEMORY, "zero: broadcast_parameters: a table of %zu tensors", count);
    size_t bytes = 0;
    for (int64_t k = 0; k < table->count; k++) {
        const cz_tensor *tensor = tensor_at(zero, k);
        table->counts[k] = cz_tensor_count(tensor);
        table->owners[k] = root;
        table->data[k] = tensor->data;
        bytes += (size_t)table->counts[k] * cz_dtype_size(tensor->dtype);
    }
    CZ_TRY(cz_shard_map_create_owners(&table->map, ranks, table->count, table->counts,
                                      table->owners, NULL));
    return cz__reserve_create(&table->transfers, zero->group, bytes);
}

static cz_status gather_type(const cz_zero *zero, const tensor_table *table, cz_dtype dtype)
{
    bool any = false;
    for (int64_t k = 0; k < table->count; k++) {
        table->include[k] = tensor_at(zero, k)->dtype == dtype;
        any = any || table->include[k];
    }
    const cz__mapped memory = {.map = table->map,
                               .data = table->data,
                               .include = table->include,
                               .dtype = dtype,
                               .reserve = table->transfers};
    return any ? cz__gather_along_map(zero->group, &memory, CZ_LABEL("broadcast_parameters"))
               : CZ_OK;
}

static cz_status broadcast(const cz_zero *zero, tensor_table *table, int root)
{
    bool same;
    CZ_TRY(cz__agree(zero->group, table_create(table, zero, root), (uint64_t)root, &same,
                     "zero: broadcast_parameters"));
    if (!same)
        return cz__fail(CZ_ERR_MISMATCH,
                        "zero: broadcast_parameters: ranks gave different roots, rank %d gave %d",
                        cz_group_rank(zero->group), root);
    for (cz_dtype dtype = CZ_F32; cz_dtype_size(dtype) > 0; dtype++)
        CZ_TRY(gather_type(zero, table, dtype));
    return CZ_OK;
}

cz_status cz_zero_broadcast_parameters(cz_zero *zero, int root)
{
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: broadcast_parameters: zero is NULL");
    tensor_table table = {0};
    const cz_status status = broadcast(zero, &table, root);
    table_clear(&table);
    return status;
}
