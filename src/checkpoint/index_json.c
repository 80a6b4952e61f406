/* SPDX-License-Identifier: MIT */
/* The index as JSON and back. docs/checkpoint-format.md has the members. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/index.h"
#include "czero/version.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/stream.h"
#include "shard/shard.h"
#include "tensor/model.h"

static const char format_name[] = "czero checkpoint";

/* ---- writing ---- */

static cz_status no_memory(void)
{
    return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for an index in JSON");
}

static cz_status print_stored(json_t *array, const cz__stored *stored)
{
    json_t *object = json_object();
    if (!object || json_array_append_new(array, object) != 0)
        return no_memory();
    CZ_TRY(cz__json_set(object, "name", json_string(stored->name)));
    CZ_TRY(cz__json_set(object, "dtype", json_string(cz__type_name(stored->dtype))));
    CZ_TRY(
        cz__json_set(object, "shape", cz__json_from_integers(stored->shape, stored->dimensions)));
    return stored->owner < 0 ? CZ_OK : cz__json_set(object, "owner", json_integer(stored->owner));
}

static cz_status print_all_stored(json_t *root, const char *key, const cz__stored *stored,
                                  int64_t count)
{
    json_t *array = json_array();
    CZ_TRY(cz__json_set(root, key, array));
    for (int64_t i = 0; i < count; i++)
        CZ_TRY(print_stored(array, &stored[i]));
    return CZ_OK;
}

static cz_status print_owners(json_t *object, const cz_shard_map *map)
{
    CZ_TRY(cz__json_set(object, "kind", json_string("owners")));
    json_t *owners = json_array();
    CZ_TRY(cz__json_set(object, "owners", owners));
    for (int64_t p = 0; p < cz__shard_map_param_count(map); p++)
        if (json_array_append_new(owners, json_integer(cz__shard_map_home(map, p))) != 0)
            return no_memory();
    return CZ_OK;
}

/* Who has what granules leave of each parameter. */
static cz_status print_remainders(json_t *object, const cz_shard_map *map, const int64_t *units,
                                  int64_t ranges)
{
    json_t *owners = json_array();
    CZ_TRY(cz__json_set(object, "units", cz__json_from_integers(units, ranges)));
    CZ_TRY(cz__json_set(object, "owners", owners));
    for (int64_t p = 0; p < cz__shard_map_param_count(map); p++)
        if (json_array_append_new(owners, json_integer(cz__shard_map_remainder_owner(map, p))) != 0)
            return no_memory();
    return CZ_OK;
}

/* Without granules as it was before there were any. */
static cz_status print_cuts(json_t *object, const cz_shard_map *map, int64_t ranges)
{
    size_t element_size = 0;
    int64_t *begins = cz__calloc((size_t)ranges, sizeof *begins);
    int64_t *units = cz__calloc((size_t)ranges, sizeof *units);
    cz_status status = begins && units ? CZ_OK : no_memory();
    if (status)
        goto done;
    (void)cz__shard_map_ranges(map, &element_size, begins, units, ranges);
    bool single = true;
    for (int64_t k = 0; k < ranges; k++)
        single = single && units[k] == 1;
    status = cz__json_set(object, "kind", json_string(single ? "even" : "granules"));
    if (status)
        goto done;
    status = cz__json_set(object, "element_size", json_integer((json_int_t)element_size));
    if (status)
        goto done;
    status = cz__json_set(object, "ranges", cz__json_from_integers(begins, ranges));
    if (!status && !single)
        status = print_remainders(object, map, units, ranges);
done:
    cz__free(begins);
    cz__free(units);
    return status;
}

static cz_status print_map(json_t *root, const cz_shard_map *map)
{
    size_t element_size;
    int64_t param;
    json_t *object = json_object(), *order;
    CZ_TRY(cz__json_set(root, "map", object));
    const int64_t ranges = cz__shard_map_ranges(map, &element_size, NULL, NULL, 0);
    CZ_TRY(ranges >= 0 ? print_cuts(object, map, ranges) : print_owners(object, map));
    order = json_array();
    CZ_TRY(cz__json_set(object, "order", order));
    for (int64_t k = 0; (param = cz__shard_map_listed(map, k)) >= 0; k++)
        if (json_array_append_new(order, json_integer(param)) != 0)
            return no_memory();
    return CZ_OK;
}

static cz_status print_optimizer(json_t *root, const cz__index *index)
{
    json_t *optimizer;
    if (!index->optimizer)
        return cz__json_set(root, "optimizer", json_null());
    CZ_TRY(cz__dict_to_json(&optimizer, index->optimizer, "", NULL, NULL));
    return cz__json_set(root, "optimizer", optimizer);
}

static cz_status print(json_t *root, const cz__index *index, json_t *common)
{
    CZ_TRY(cz__json_set(root, "format", json_string(format_name)));
    CZ_TRY(cz__json_set(root, "version", json_integer(cz__outline_version(index->optimizer))));
    CZ_TRY(cz__json_set(root, "library", json_string(cz_version())));
    CZ_TRY(cz__json_set(root, "id", json_string(index->id)));
    CZ_TRY(cz__json_set(root, "generation", json_integer(index->generation)));
    CZ_TRY(cz__json_set(root, "step", json_integer(index->step)));
    CZ_TRY(cz__json_set(root, "world_size", json_integer(index->world_size)));
    if (index->part_count > 0)
        CZ_TRY(cz__json_set(root, "parts", json_integer(index->part_count)));
    CZ_TRY(print_all_stored(root, "parameters", index->stored, index->param_count));
    CZ_TRY(
        print_all_stored(root, "buffers", index->stored + index->param_count, index->buffer_count));
    CZ_TRY(print_map(root, index->map));
    CZ_TRY(print_optimizer(root, index));
    if (json_object_size(index->metadata) > 0)
        CZ_TRY(cz__json_set(root, "metadata", json_incref(index->metadata)));
    return cz__json_set(root, "common", json_incref(common));
}

cz_status cz__index_print(const cz__index *index, json_t *common, cz__text *text)
{
    json_t *root = json_object();
    cz_status status = root ? print(root, index, common) : no_memory();
    if (!status)
        status = cz__seal(root, text);
    json_decref(root);
    return status;
}

/* ---- reading ---- */

static cz_status parse_stored(cz__stored *stored, const json_t *object, const char *path,
                              int world_size)
{
    const char *dtype;
    int64_t *shape, dimensions, owner = -1;
    CZ_TRY(cz__json_text(object, path, "name", &stored->name));
    CZ_TRY(cz__json_text(object, path, "dtype", &dtype));
    CZ_TRY(cz__json_integers(object, path, "shape", 0, INT64_MAX, &shape, &dimensions));
    if (dimensions <= CZ_MAX_DIMENSIONS && dimensions > 0)
        memcpy(stored->shape, shape, (size_t)dimensions * sizeof *shape);
    cz__free(shape);
    if (dimensions > CZ_MAX_DIMENSIONS)
        return cz__fail(CZ_ERR_FORMAT, "%s: '%s' has %" PRId64 " dimensions, at most %d", path,
                        cz__show(stored->name).text, dimensions, CZ_MAX_DIMENSIONS);
    if (json_object_get(object, "owner"))
        CZ_TRY(cz__json_integer(object, path, "owner", 0, world_size - 1, &owner));
    stored->owner = (int)owner;
    stored->dtype = cz__type_find(dtype);
    if (!stored->dtype)
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: '%s' is of type '%s'", path,
                        cz__show(stored->name).text, cz__show(dtype).text);
    stored->dimensions = (int)dimensions;
    if (cz__type_is_foreign(stored->dtype) && stored->owner < 0)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: '%s' is of type '%s', which is not cut, and has no owner", path,
                        cz__show(stored->name).text, cz__type_name(stored->dtype));
    stored->count = cz__type_units(stored->dtype, stored->dimensions, stored->shape);
    if (stored->count < 0 || stored->count > INT64_MAX / 16)
        return cz__fail(CZ_ERR_FORMAT, "%s: the shape of '%s' is too large", path,
                        cz__show(stored->name).text);
    return stored->name[0] ? CZ_OK : cz__fail(CZ_ERR_FORMAT, "%s: a tensor without a name", path);
}

static cz_status parse_all_stored(cz__index *index, const char *path)
{
    json_t *params, *buffers;
    CZ_TRY(cz__json_array(index->json, path, "parameters", &params));
    CZ_TRY(cz__json_array(index->json, path, "buffers", &buffers));
    index->param_count = (int64_t)json_array_size(params);
    index->buffer_count = (int64_t)json_array_size(buffers);
    const int64_t count = index->param_count + index->buffer_count;
    index->stored = cz__calloc((size_t)count, sizeof *index->stored);
    if (!index->stored)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a table of %" PRId64 " tensors", path,
                        count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t buffer = i - index->param_count;
        CZ_TRY(parse_stored(&index->stored[i],
                            buffer < 0 ? json_array_get(params, (size_t)i)
                                       : json_array_get(buffers, (size_t)buffer),
                            path, index->world_size));
        if (buffer >= 0 && index->stored[i].owner < 0)
            return cz__fail(CZ_ERR_FORMAT, "%s: buffer '%s' has no owner", path,
                            cz__show(index->stored[i].name).text);
    }
    return CZ_OK;
}

/* What is made of the map's members; all arrays are owned. */
typedef struct map_members {
    int64_t *counts, *order, *begins, *units, *numbers; /* numbers: owners */
    int64_t order_count, range_count, unit_count, number_count;
    int *owners;
} map_members;

/* One for each parameter. */
static cz_status read_owners(map_members *m, const cz__index *index, const char *path,
                             const json_t *map)
{
    const int64_t params = index->param_count;
    CZ_TRY(cz__json_integers(map, path, "owners", -1, index->world_size - 1, &m->numbers,
                             &m->number_count));
    if (m->number_count != params)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: 'owners' has %" PRId64 " entries, 'order' %" PRId64 " for %" PRId64
                        " parameters",
                        path, m->number_count, m->order_count, params);
    m->owners = cz__calloc((size_t)params, sizeof *m->owners);
    if (!m->owners)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a table of %" PRId64 " owners", path,
                        params);
    for (int64_t p = 0; p < params; p++)
        m->owners[p] = (int)m->numbers[p];
    return CZ_OK;
}

/* The order of a table of owners leaves out what nobody owns; it is appended. */
static cz_status complete_order(map_members *m, int64_t params, const char *path)
{
    int64_t *order = cz__calloc((size_t)params, sizeof *order), count = 0;
    if (!order)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for tables of %" PRId64 " parameters", path,
                        params);
    for (; count < m->order_count && count < params; count++)
        order[count] = m->order[count];
    for (int64_t p = 0; p < params; p++)
        if (m->owners[p] < 0 && count < params)
            order[count++] = p;
    cz__free(m->order);
    m->order = order;
    m->order_count = m->order_count > params ? m->order_count : count;
    return CZ_OK;
}

static cz_status read_granules(map_members *m, const cz__index *index, const char *path,
                               const json_t *map)
{
    CZ_TRY(cz__json_integers(map, path, "units", 0, INT64_MAX, &m->units, &m->unit_count));
    if (m->unit_count != m->range_count || m->range_count == 0)
        return cz__fail(CZ_ERR_FORMAT, "%s: 'units' has %" PRId64 " entries, 'ranges' %" PRId64,
                        path, m->unit_count, m->range_count);
    return read_owners(m, index, path, map);
}

static cz_status make_map(cz__index *index, map_members *m, const char *path, const json_t *map)
{
    const char *kind;
    int64_t element_size;
    const int64_t params = index->param_count;
    CZ_TRY(cz__json_text(map, path, "kind", &kind));
    CZ_TRY(cz__json_integers(map, path, "order", 0, params - 1, &m->order, &m->order_count));
    const bool whole = strcmp(kind, "owners") == 0, granules = strcmp(kind, "granules") == 0;
    if (!whole && !granules && strcmp(kind, "even") != 0)
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: a map of kind '%s'", path, cz__show(kind).text);
    if (!whole)
        CZ_TRY(cz__json_integers(map, path, "ranges", 0, params, &m->begins, &m->range_count));
    if (granules)
        CZ_TRY(read_granules(m, index, path, map));
    if (whole)
        CZ_TRY(read_owners(m, index, path, map));
    if (whole)
        CZ_TRY(complete_order(m, params, path));
    if (m->order_count != params)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: the map's order has %" PRId64 " of %" PRId64 " parameters", path,
                        m->order_count, params);
    if (whole)
        return cz__shard_map_create_owners(&index->own_map, index->world_size, params, m->counts,
                                           m->owners, m->order);
    CZ_TRY(cz__json_integer(map, path, "element_size", 1, 8, &element_size));
    const cz__cuts cuts = {m->order, m->range_count,       m->begins,
                           m->units, (size_t)element_size, m->owners};
    return cz__shard_map_create_cuts(&index->own_map, index->world_size, params, m->counts, &cuts);
}

static cz_status parse_map(cz__index *index, const char *path)
{
    map_members members = {0};
    const json_t *map = json_object_get(index->json, "map");
    members.counts = cz__calloc((size_t)index->param_count, sizeof *members.counts);
    if (!members.counts)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a table of %" PRId64 " counts", path,
                        index->param_count);
    for (int64_t p = 0; p < index->param_count; p++)
        members.counts[p] = index->stored[p].count;
    cz_status status = make_map(index, &members, path, map);
    if (status == CZ_ERR_ARGUMENT) /* the file's, not the program's */
        status = cz__fail_in(CZ_ERR_FORMAT, path);
    index->map = index->own_map;
    cz__free(members.counts);
    cz__free(members.order);
    cz__free(members.begins);
    cz__free(members.units);
    cz__free(members.numbers);
    cz__free(members.owners);
    return status;
}

/* One has each parameter: the map, or one rank whole. */
static cz_status check_owners(const cz__index *index, const char *path)
{
    for (int64_t p = 0; p < index->param_count; p++) {
        const bool mapped = cz__shard_map_home(index->map, p) >= 0;
        if (mapped == (index->stored[p].owner >= 0))
            return cz__fail(CZ_ERR_FORMAT, "%s: %s parameter '%s'", path,
                            mapped ? "both the map and an owner have" : "nobody has",
                            cz__show(index->stored[p].name).text);
    }
    return CZ_OK;
}

/* State is where the value is by the map, in its type or in another one of floating point. */
static cz_status check_entry(const cz__index *index, const char *name, const char *path)
{
    const cz_state_dict *entry;
    const int64_t place = cz__index_find(index, name);
    if (place < 0 || place >= index->param_count || index->stored[place].owner >= 0)
        return cz__fail(CZ_ERR_FORMAT, "%s: state of '%s', which is no parameter of the map", path,
                        cz__show(name).text);
    CZ_TRY(cz_state_dict_get_dict(index->entries, name, &entry));
    for (int64_t i = 0; i < cz_state_dict_count(entry); i++) {
        const char *slot = cz_state_dict_key(entry, i), *type;
        if (cz_state_dict_kind(entry, slot) != CZ_STATE_TEXT)
            continue;
        CZ_TRY(cz_state_dict_get_text(entry, slot, &type));
        const cz_dtype dtype = cz__index_dtype(index, place, slot);
        if (dtype != index->stored[place].dtype && !cz__converts(dtype))
            return cz__fail(CZ_ERR_FORMAT, "%s: '%s' of '%s' is of type '%s', wanted %s%s", path,
                            cz__show(slot).text, cz__show(name).text, cz__show(type).text,
                            cz_dtype_name(index->stored[place].dtype), " or a floating type");
    }
    return CZ_OK;
}

static cz_status check_state(const cz__index *index, const char *path)
{
    for (int64_t i = 0; i < cz_state_dict_count(index->entries); i++)
        CZ_TRY(check_entry(index, cz_state_dict_key(index->entries, i), path));
    return cz__index_check_groups(index, path);
}

cz_status cz__index_parse_parts(cz__index *index, const char *path, const json_t *json)
{
    int64_t parts = 0;
    if (json_object_get(json, "parts"))
        CZ_TRY(cz__json_integer(json, path, "parts", 1, INT32_MAX, &parts));
    index->part_count = (int)parts;
    return CZ_OK;
}

static cz_status parse_head(cz__index *index, const char *path)
{
    const char *format, *id;
    int64_t version, world_size;
    CZ_TRY(cz__json_text(index->json, path, "format", &format));
    if (strcmp(format, format_name) != 0)
        return cz__fail(CZ_ERR_FORMAT, "%s: its format is '%s', wanted '%s'", path,
                        cz__show(format).text, format_name);
    CZ_TRY(cz__json_integer(index->json, path, "version", 1, INT64_MAX, &version));
    if (version > CZ__NEWEST_VERSION)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "%s: version %" PRId64 " of the format; this library knows up to %d", path,
                        version, CZ__NEWEST_VERSION);
    CZ_TRY(cz__json_text(index->json, path, "id", &id));
    if (strlen(id) != sizeof index->id - 1)
        return cz__fail(CZ_ERR_FORMAT, "%s: its id has %zu characters, wanted %zu", path,
                        strlen(id), sizeof index->id - 1);
    memcpy(index->id, id, sizeof index->id);
    CZ_TRY(cz__json_integer(index->json, path, "generation", 0, INT64_MAX, &index->generation));
    CZ_TRY(cz__json_integer(index->json, path, "step", 0, INT64_MAX, &index->step));
    CZ_TRY(cz__json_integer(index->json, path, "world_size", 1, CZ__MOST_RANKS, &world_size));
    index->world_size = (int)world_size;
    return cz__index_parse_parts(index, path, index->json);
}

/* What reading it takes for each rank that saved: the part, and what ranks find out together about
 * it. */
static cz_status pay_for_ranks(const cz__index *index, const char *path, size_t count)
{
    cz__budget budget = cz__budget_of(path, count);
    return cz__budget_spend(&budget, (uint64_t)index->world_size * CZ__INDEX_RANK_COST,
                            "its number of ranks");
}

/* An outline has no tensors. */
static cz_status no_tensor(const char *name, cz_state_dict *dict, const char *key, void *context)
{
    return cz__fail(CZ_ERR_FORMAT, "%s: 'optimizer' has a tensor '%s'", (const char *)context,
                    cz__show(name).text);
}

/* What a conversion has kept of other programs. */
static cz_status parse_metadata(cz__index *index, const char *path)
{
    const char *key;
    json_t *value, *const metadata = json_object_get(index->json, "metadata");
    if (metadata && !json_is_object(metadata))
        return cz__fail(CZ_ERR_FORMAT, "%s: 'metadata' is no object", path);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
            return cz__fail(CZ_ERR_FORMAT, "%s: '%s' of 'metadata' is no text", path,
                            cz__show(key).text);
    }
    return metadata ? cz__index_add_metadata(index, metadata) : CZ_OK;
}

static cz_status parse(cz__index *index, const char *path, size_t bytes)
{
    CZ_TRY(parse_head(index, path));
    CZ_TRY(pay_for_ranks(index, path, bytes));
    CZ_TRY(parse_all_stored(index, path));
    CZ_TRY(parse_map(index, path));
    CZ_TRY(check_owners(index, path));
    const json_t *optimizer = json_object_get(index->json, "optimizer");
    if (optimizer && !json_is_null(optimizer))
        CZ_TRY(cz__dict_from_json(&index->optimizer, optimizer, path, no_tensor, (void *)path));
    CZ_TRY(parse_metadata(index, path));
    cz_status status = cz__index_complete(index);
    if (!status)
        status = check_state(index, path);
    return status == CZ_ERR_ARGUMENT ? cz__fail_in(CZ_ERR_FORMAT, path) : status;
}

cz_status cz__index_parse(cz__index *index, const char *path, const char *bytes, size_t count)
{
    *index = (cz__index){0};
    CZ_TRY(cz__unseal(&index->json, path, bytes, count));
    return parse(index, path, count);
}
