/* SPDX-License-Identifier: MIT */
/* Shard maps of whole parameters, each with one owner: a table, and each rank's parameters in a
 * row. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "shard/map.h"
#include "shard/shard.h"

typedef struct owner_table {
    cz_shard_map head;
    int *owners; /* owned, -1: nobody */
    /* A row for each rank; where there are far more ranks than parameters, for each that owns one:
     * memory follows the parameters, whatever the number of ranks. */
    int64_t row_count;
    int *ranks; /* owned: of the rows, ascending; NULL: row r is rank r */
    /* Owned, row_count + 1: row r has params[begin[r]] … params[begin[r + 1] - 1]. */
    int64_t *begin;
    int64_t *params;
} owner_table;

enum { FEW_RANKS = 1024 }; /* that have a row each however few parameters there are */

static const owner_table *table_of(const cz_shard_map *map)
{
    return (const owner_table *)map;
}

static int compare_ranks(const void *left, const void *right)
{
    const int a = *(const int *)left, b = *(const int *)right;
    return (a > b) - (a < b);
}

/* The row of a rank; -1: it owns nothing. */
static int64_t row_of(const owner_table *table, int rank)
{
    if (!table->ranks)
        return rank;
    const int *found = table->row_count == 0
                           ? NULL
                           : bsearch(&rank, table->ranks, (size_t)table->row_count,
                                     sizeof *table->ranks, compare_ranks);
    return found ? found - table->ranks : -1;
}

static bool next(cz_span_iterator *iterator, cz_span *span)
{
    const owner_table *table = table_of(iterator->map);
    while (iterator->position < iterator->end) {
        const int64_t param = table->params[iterator->position++];
        if (table->head.counts[param] > 0) {
            *span = (cz_span){param, 0, table->head.counts[param], iterator->rank};
            return true;
        }
    }
    return false;
}

static void iterate(cz_span_iterator *iterator)
{
    const owner_table *table = table_of(iterator->map);
    const int64_t row = row_of(table, iterator->rank);
    if (row < 0)
        return;
    iterator->position = table->begin[row];
    iterator->end = table->begin[row + 1];
}

static int home(const cz_shard_map *map, int64_t param)
{
    return table_of(map)->owners[param];
}

static bool locate(const cz_shard_map *map, int64_t param, int64_t element, cz_span *span)
{
    const int owner = table_of(map)->owners[param];
    *span = (cz_span){param, 0, map->counts[param], owner};
    return owner >= 0;
}

static void release(cz_shard_map *map)
{
    owner_table *table = (owner_table *)map;
    cz__free(table->owners);
    cz__free(table->ranks);
    cz__free(table->begin);
    cz__free(table->params);
}

static int64_t listed(const cz_shard_map *map, int64_t place)
{
    const owner_table *table = table_of(map);
    return place < table->begin[table->row_count] ? table->params[place] : -1;
}

static void tally(const cz_shard_map *map, const uint8_t *include, int64_t *elements,
                  int64_t *spans)
{
    for (int64_t p = 0; p < map->param_count; p++) {
        const int owner = table_of(map)->owners[p];
        if (owner < 0 || map->counts[p] == 0 || (include && !include[p]))
            continue;
        elements[owner] += map->counts[p];
        elements[owner + 1] -= map->counts[p];
        spans[owner]++;
        spans[owner + 1]--;
    }
}

static size_t bytes(const cz_shard_map *map)
{
    return cz__owner_table_bytes(map->world_size, map->param_count);
}

size_t cz__owner_table_bytes(int world_size, int64_t param_count)
{
    const owner_table *table = NULL;
    const bool dense = world_size <= 2 * param_count + FEW_RANKS;
    const size_t rows = dense ? (size_t)world_size : (size_t)param_count;
    return sizeof *table + (rows + 2) * sizeof *table->begin +
           (dense ? 0 : rows * sizeof *table->ranks) +
           (size_t)param_count *
               (sizeof *table->head.counts + sizeof *table->owners + sizeof *table->params);
}

static const cz__map_kind owner_kind = {
    .cuts = false,
    .home = home,
    .locate = locate,
    .iterate = iterate,
    .next = next,
    .listed = listed,
    .tally = tally,
    .bytes = bytes,
    .release = release,
};

static cz_status check_owners(const owner_table *table, const int *owners)
{
    if (table->head.param_count > 0 && !owners)
        return cz__fail(CZ_ERR_ARGUMENT, "shard map: owners is NULL");
    for (int64_t p = 0; p < table->head.param_count; p++)
        if (owners[p] < -1 || owners[p] >= table->head.world_size)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "shard map: owner of parameter %" PRId64 " is rank %d of %d", p,
                            owners[p], table->head.world_size);
    return CZ_OK;
}

/* Which ranks have rows. */
static bool choose_rows(owner_table *table, const int *owners)
{
    const int64_t param_count = table->head.param_count;
    int64_t listed = 0, rows = 0;
    table->row_count = table->head.world_size;
    if (table->row_count <= 2 * param_count + FEW_RANKS)
        return true;
    table->ranks = cz__calloc((size_t)param_count, sizeof *table->ranks);
    if (!table->ranks)
        return false;
    for (int64_t p = 0; p < param_count; p++)
        if (owners[p] >= 0)
            table->ranks[listed++] = owners[p];
    qsort(table->ranks, (size_t)listed, sizeof *table->ranks, compare_ranks);
    for (int64_t k = 0; k < listed; k++)
        if (rows == 0 || table->ranks[rows - 1] != table->ranks[k])
            table->ranks[rows++] = table->ranks[k];
    table->row_count = rows;
    return true;
}

/* Counting sort by owner; `order` becomes the rows, so that a rank's parameters keep its order. */
static cz_status build_table(owner_table *table, const int *owners, int64_t *order)
{
    const int64_t param_count = table->head.param_count;
    if (choose_rows(table, owners)) {
        table->owners = cz__calloc((size_t)param_count, sizeof *table->owners);
        table->begin = cz__calloc((size_t)table->row_count + 2, sizeof *table->begin);
        table->params = cz__calloc((size_t)param_count, sizeof *table->params);
    }
    if (!table->owners || !table->begin || !table->params)
        return cz__fail(CZ_ERR_MEMORY,
                        "shard map: no memory for %" PRId64 " parameters on %d ranks", param_count,
                        table->head.world_size);
    if (param_count > 0)
        memcpy(table->owners, owners, (size_t)param_count * sizeof *owners);
    int64_t *place = table->begin + 1; /* begin[r + 1] runs from the begin of r to its end */
    for (int64_t p = 0; p < param_count; p++)
        if (owners[p] >= 0)
            place[row_of(table, owners[p]) + 1]++;
    for (int64_t r = 0; r < table->row_count; r++)
        place[r + 1] += place[r];
    for (int64_t k = 0; k < param_count; k++)
        if (owners[order[k]] >= 0)
            table->params[place[row_of(table, owners[order[k]])]++] = order[k];
    return CZ_OK;
}

cz_status cz__shard_map_create_owners(cz_shard_map **out, int world_size, int64_t param_count,
                                      const int64_t *counts, const int *owners,
                                      const int64_t *order)
{
    cz_shard_map *map = NULL;
    int64_t *copy = NULL;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "shard map: out is NULL");
    *out = NULL;
    CZ_TRY(cz__map_create(&map, sizeof(owner_table), &owner_kind, world_size, param_count, counts));
    cz_status status = check_owners((owner_table *)map, owners);
    if (status)
        goto done;
    status = cz__permutation_copy(&copy, param_count, order);
    if (status)
        goto done;
    status = build_table((owner_table *)map, owners, copy);
done:
    cz__free(copy);
    if (status != CZ_OK)
        cz__shard_map_destroy(&map);
    *out = map;
    return status;
}

cz_status cz__shard_map_create_single(cz_shard_map **out, int world_size, int64_t param_count,
                                      const int64_t *counts, int owner)
{
    int *owners = cz__calloc((size_t)param_count, sizeof *owners);
    if (!owners)
        return cz__fail(CZ_ERR_MEMORY, "shard map: no memory for %" PRId64 " owners", param_count);
    for (int64_t p = 0; p < param_count; p++)
        owners[p] = owner;
    const cz_status status =
        cz__shard_map_create_owners(out, world_size, param_count, counts, owners, NULL);
    cz__free(owners);
    return status;
}
