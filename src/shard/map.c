/* SPDX-License-Identifier: MIT */
/* Shard maps of any form: what is checked and asked before the form itself is. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "shard/map.h"
#include "shard/shard.h"

/* Room so that block arithmetic on a total never overflows. */
static const int64_t largest_total = INT64_MAX - 64;

static cz_status check_counts(int world_size, int64_t param_count, const int64_t *counts)
{
    int64_t total = 0;
    if (world_size < 1)
        return cz__fail(CZ_ERR_ARGUMENT, "shard map: %d ranks, at least 1 is needed", world_size);
    if (param_count < 0 || param_count > CZ__LONGEST_LIST || (param_count > 0 && !counts))
        return cz__fail(CZ_ERR_ARGUMENT, "shard map: %" PRId64 " parameters, counts %s",
                        param_count, counts ? "given" : "NULL");
    for (int64_t p = 0; p < param_count; p++) {
        if (counts[p] < 0 || counts[p] > largest_total - total)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "shard map: parameter %" PRId64 " has %" PRId64
                            " elements after %" PRId64 " in those before it",
                            p, counts[p], total);
        total += counts[p];
    }
    return CZ_OK;
}

cz_status cz__map_create(cz_shard_map **out, size_t bytes, const cz__map_kind *kind, int world_size,
                         int64_t param_count, const int64_t *counts)
{
    CZ_TRY(check_counts(world_size, param_count, counts));
    cz_shard_map *map = cz__calloc(1, bytes);
    if (!map || !(map->counts = cz__calloc((size_t)param_count, sizeof *map->counts))) {
        cz__free(map);
        return cz__fail(CZ_ERR_MEMORY, "shard map: no memory for %" PRId64 " parameters",
                        param_count);
    }
    map->kind = kind;
    map->world_size = world_size;
    map->param_count = param_count;
    if (param_count > 0)
        memcpy(map->counts, counts, (size_t)param_count * sizeof *counts);
    *out = map;
    return CZ_OK;
}

void cz__shard_map_destroy(cz_shard_map **map)
{
    if (!map || !*map)
        return;
    (*map)->kind->release(*map);
    cz__free((*map)->counts);
    cz__free(*map);
    *map = NULL;
}

static cz_status check_permutation(int64_t count, const int64_t *order)
{
    uint8_t *seen = cz__calloc((size_t)count, 1);
    if (!seen)
        return cz__fail(CZ_ERR_MEMORY, "shard map: no memory for order of %" PRId64 " parameters",
                        count);
    int64_t k = 0;
    while (k < count && order[k] >= 0 && order[k] < count && !seen[order[k]])
        seen[order[k++]] = 1;
    cz__free(seen);
    if (k < count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "shard map: order[%" PRId64 "] is %" PRId64 ", wanted: each of %" PRId64
                        " parameters once",
                        k, order[k], count);
    return CZ_OK;
}

cz_status cz__permutation_copy(int64_t **out, int64_t count, const int64_t *order)
{
    if (order)
        CZ_TRY(check_permutation(count, order));
    int64_t *copy = cz__calloc((size_t)count, sizeof *copy);
    if (!copy)
        return cz__fail(CZ_ERR_MEMORY, "shard map: no memory for order of %" PRId64 " parameters",
                        count);
    for (int64_t k = 0; k < count; k++)
        copy[k] = order ? order[k] : k;
    *out = copy;
    return CZ_OK;
}

int cz__shard_map_world_size(const cz_shard_map *map)
{
    return map ? map->world_size : 0;
}

int64_t cz__shard_map_param_count(const cz_shard_map *map)
{
    return map ? map->param_count : -1;
}

static bool has_param(const cz_shard_map *map, int64_t param)
{
    return map && param >= 0 && param < map->param_count;
}

static bool has_rank(const cz_shard_map *map, int rank)
{
    return map && rank >= 0 && rank < map->world_size;
}

int64_t cz__shard_map_count(const cz_shard_map *map, int64_t param)
{
    return has_param(map, param) ? map->counts[param] : -1;
}

int64_t cz__shard_map_ranges(const cz_shard_map *map, size_t *element_size, int64_t *begins,
                             int64_t *units, int64_t room)
{
    return map && map->kind->ranges ? map->kind->ranges(map, element_size, begins, units, room)
                                    : -1;
}

int cz__shard_map_remainder_owner(const cz_shard_map *map, int64_t param)
{
    return has_param(map, param) && map->kind->remainder_owner
               ? map->kind->remainder_owner(map, param)
               : -1;
}

size_t cz__shard_map_bytes(const cz_shard_map *map)
{
    return map ? map->kind->bytes(map) : 0;
}

bool cz__shard_map_cuts(const cz_shard_map *map)
{
    return map && map->kind->cuts;
}

int cz__shard_map_home(const cz_shard_map *map, int64_t param)
{
    return has_param(map, param) ? map->kind->home(map, param) : -1;
}

int64_t cz__shard_map_listed(const cz_shard_map *map, int64_t place)
{
    return map && place >= 0 ? map->kind->listed(map, place) : -1;
}

bool cz__shard_map_locate(const cz_shard_map *map, int64_t param, int64_t element, cz_span *span)
{
    if (!span || !has_param(map, param) || element < 0 || element >= map->counts[param])
        return false;
    return map->kind->locate(map, param, element, span);
}

bool cz_span_next(cz_span_iterator *iterator, cz_span *span)
{
    if (!iterator || !span || !has_rank(iterator->map, iterator->rank))
        return false;
    if (iterator->begin < 0) { /* it stands before the first one */
        iterator->begin = 0;
        iterator->map->kind->iterate(iterator);
    }
    return iterator->map->kind->next(iterator, span);
}

void cz__shard_map_tally(const cz_shard_map *map, const uint8_t *include, int64_t *elements,
                         int64_t *spans)
{
    for (int r = 0; r <= map->world_size; r++)
        elements[r] = spans[r] = 0;
    map->kind->tally(map, include, elements, spans);
    for (int r = 1; r < map->world_size; r++) {
        elements[r] += elements[r - 1];
        spans[r] += spans[r - 1];
    }
}
