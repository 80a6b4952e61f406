/* SPDX-License-Identifier: MIT */
/* The index in memory, and what follows from it: the pieces of each rank's part. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/index.h"
#include "io/json.h"
#include "io/text.h"
#include "shard/shard.h"

void cz__index_clear(cz__index *index)
{
    cz__free(index->stored);
    cz__shard_map_destroy(&index->own_map);
    cz_state_dict_destroy(&index->optimizer);
    cz__names_clear(&index->names);
    json_decref(index->json);
    json_decref(index->metadata);
    *index = (cz__index){0};
}

cz_status cz__index_complete(cz__index *index)
{
    const int64_t count = index->param_count + index->buffer_count;
    int64_t other;
    if (index->optimizer)
        CZ_TRY(cz_state_dict_get_dict(index->optimizer, "state", &index->entries));
    if (!cz__names_reserve(&index->names, count))
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a table of %" PRId64 " names",
                        count);
    for (int64_t i = 0; i < count; i++) {
        if (cz__names_find(&index->names, index->stored[i].name, &other))
            return cz__fail(CZ_ERR_ARGUMENT, "two tensors are called '%s'",
                            cz__show(index->stored[i].name).text);
        cz__names_add(&index->names, index->stored[i].name, i);
    }
    return CZ_OK;
}

int64_t cz__index_find(const cz__index *index, const char *name)
{
    int64_t place = -1;
    return cz__names_find(&index->names, name, &place) ? place : -1;
}

/* As libraries write it that leave out the second name of a shared tensor: {"lm_head.weight":
 * "embed.weight"}. */
int64_t cz__index_find_tied(const cz__index *index, const char *name)
{
    const int64_t place = cz__index_find(index, name);
    const char *other =
        place < 0 ? json_string_value(json_object_get(index->metadata, name)) : NULL;
    return other ? cz__index_find(index, other) : place;
}

cz_status cz__index_add_metadata(cz__index *index, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!index->metadata && !(index->metadata = json_object()))
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for what is beside the tensors");
    json_object_foreach(metadata, key, value)
    {
        if (strcmp(key, CZ__METADATA_KEY) == 0 || json_object_get(index->metadata, key))
            continue;
        CZ_TRY(cz__json_set(index->metadata, key, json_incref(value)));
    }
    return CZ_OK;
}

bool cz__index_slot(const cz__index *index, int64_t param, int64_t *at, const char **slot,
                    cz_dtype *dtype)
{
    const cz_state_dict *entry;
    const char *type;
    const char *name = index->stored[param].name;
    if (cz_state_dict_kind(index->entries, name) != CZ_STATE_DICT ||
        cz_state_dict_get_dict(index->entries, name, &entry) != CZ_OK)
        return false;
    while (*at < cz_state_dict_count(entry)) {
        *slot = cz_state_dict_key(entry, (*at)++);
        if (cz_state_dict_kind(entry, *slot) != CZ_STATE_TEXT ||
            cz_state_dict_get_text(entry, *slot, &type) != CZ_OK)
            continue;
        *dtype = (cz_dtype)0;
        for (cz_dtype d = CZ_F32; d <= CZ_U8; d++)
            if (strcmp(cz_dtype_name(d), type) == 0)
                *dtype = d;
        return true;
    }
    return false;
}

cz_dtype cz__index_dtype(const cz__index *index, int64_t stored, const char *slot)
{
    const char *name;
    cz_dtype dtype;
    int64_t at = 0;
    while (slot && cz__index_slot(index, stored, &at, &name, &dtype))
        if (strcmp(name, slot) == 0)
            return dtype;
    return index->stored[stored].dtype;
}

/* ---- parameter groups ---- */

static bool says_rule(const cz_state_dict *group)
{
    return cz_state_dict_kind(group, "rule") == CZ_STATE_TEXT;
}

const char *cz__outline_rule_of(const cz_state_dict *optimizer, const cz_state_dict *group)
{
    const char *rule = "";
    if (group && says_rule(group))
        (void)cz_state_dict_get_text(group, "rule", &rule);
    else if (optimizer && says_rule(optimizer))
        (void)cz_state_dict_get_text(optimizer, "rule", &rule);
    return rule;
}

/* A group of an outline by its place; NULL: there are no more. What is no dictionary has no
 * rule. */
static bool visit_group(const cz_state_dict *optimizer, int64_t place, const cz_state_dict **group)
{
    const cz_state_dict *groups;
    *group = NULL;
    if (cz_state_dict_kind(optimizer, "param_groups") != CZ_STATE_DICT ||
        cz_state_dict_get_dict(optimizer, "param_groups", &groups) != CZ_OK ||
        place >= cz_state_dict_count(groups))
        return false;
    const char *key = cz_state_dict_key(groups, place);
    if (cz_state_dict_kind(groups, key) == CZ_STATE_DICT)
        (void)cz_state_dict_get_dict(groups, key, group);
    return true;
}

const char *cz__outline_only_rule(const cz_state_dict *optimizer)
{
    const cz_state_dict *group;
    const char *only = NULL;
    for (int64_t g = 0; visit_group(optimizer, g, &group); g++) {
        const char *rule = cz__outline_rule_of(optimizer, group);
        if (only && strcmp(rule, only) != 0)
            return NULL;
        only = rule;
    }
    return only ? only : cz__outline_rule_of(optimizer, NULL);
}

int cz__outline_version(const cz_state_dict *optimizer)
{
    const cz_state_dict *group;
    for (int64_t g = 0; visit_group(optimizer, g, &group); g++)
        if (group && says_rule(group))
            return CZ__VERSION_OF_GROUP_RULES;
    return CZ__FIRST_VERSION;
}

static cz_status check_members(const cz__index *index, const char *path, const char *number,
                               const cz_state_dict *group, bool *listed)
{
    const char *const *names;
    int64_t count;
    if (cz_state_dict_get_texts(group, "params", &names, &count) != CZ_OK)
        return cz__fail(CZ_ERR_FORMAT, "%s: parameter group %s has no list of names 'params'", path,
                        cz__show(number).text);
    for (int64_t k = 0; k < count; k++) {
        const int64_t place = cz__index_find(index, names[k]);
        const bool is_param = place >= 0 && place < index->param_count;
        if (!is_param || listed[place])
            return cz__fail(CZ_ERR_FORMAT, "%s: '%s' of parameter group %s is %s", path,
                            cz__show(names[k]).text, cz__show(number).text,
                            is_param ? "in the groups twice" : "no parameter");
        listed[place] = true;
    }
    return CZ_OK;
}

cz_status cz__index_check_groups(const cz__index *index, const char *path)
{
    const cz_state_dict *groups, *group;
    if (!index->optimizer)
        return CZ_OK;
    if (cz_state_dict_kind(index->optimizer, "param_groups") != CZ_STATE_DICT)
        return cz__fail(CZ_ERR_FORMAT, "%s: its optimizer has no dictionary 'param_groups'", path);
    bool *listed = cz__calloc((size_t)index->param_count, sizeof *listed);
    cz_status status =
        listed ? cz_state_dict_get_dict(index->optimizer, "param_groups", &groups)
               : cz__fail(CZ_ERR_MEMORY, "%s: no memory for a table of %" PRId64 " parameters",
                          path, index->param_count);
    for (int64_t g = 0; !status && g < cz_state_dict_count(groups); g++) {
        const char *number = cz_state_dict_key(groups, g);
        status = cz_state_dict_get_dict(groups, number, &group);
        if (!status)
            status = check_members(index, path, number, group, listed);
    }
    cz__free(listed);
    return status;
}

/* ---- who writes what, where no sharded optimizer says so ---- */

/* Each parameter's bytes, and those that nobody has; *rest of them. */
static void list_rest(const cz__index *index, int64_t *bytes, int64_t *members, int64_t *rest)
{
    *rest = 0;
    for (int64_t p = 0; p < index->param_count; p++) {
        bytes[p] = index->stored[p].count * (int64_t)cz_dtype_size(index->stored[p].dtype);
        if (cz__shard_map_home(index->map, p) < 0)
            members[(*rest)++] = p;
    }
}

cz_status cz__index_deal_rest(cz__index *index)
{
    const int64_t count = index->param_count;
    int64_t *bytes = cz__calloc((size_t)count, sizeof *bytes), rest = 0;
    int64_t *members = cz__calloc((size_t)count, sizeof *members);
    int *owners = cz__calloc((size_t)count, sizeof *owners);
    cz_status status =
        bytes && members && owners
            ? CZ_OK
            : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for tables of the parameters");
    if (status)
        goto done;
    list_rest(index, bytes, members, &rest);
    if (rest > 0)
        status =
            cz__partition_greedy(index->world_size, count, bytes, 1, &rest, members, owners, NULL);
    if (status)
        goto done;
    for (int64_t k = 0; k < rest; k++)
        index->stored[members[k]].owner = owners[members[k]];
done:
    /* ranks may hold different ones, which depend on each other: a mean and its variance */
    for (int64_t b = 0; b < index->buffer_count; b++)
        index->stored[index->param_count + b].owner = 0;
    cz__free(bytes);
    cz__free(members);
    cz__free(owners);
    return status;
}

cz_status cz__index_cut_evenly(cz__index *index)
{
    const int64_t params = index->param_count;
    int64_t *counts = cz__calloc((size_t)params, sizeof *counts);
    if (!counts)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a table of the parameters");
    for (int64_t p = 0; p < params; p++)
        counts[p] = index->stored[p].count;
    const size_t size = params > 0 ? cz_dtype_size(index->stored[0].dtype) : 4;
    const cz_status status = cz__shard_map_create_even(&index->own_map, index->world_size, params,
                                                       counts, NULL, 0, NULL, size);
    index->map = index->own_map;
    cz__free(counts);
    return status;
}

/* ---- the pieces of a part ---- */

typedef struct visit_state {
    const cz__index *index;
    cz__piece_visitor visit;
    void *context;
    cz__text name;
} visit_state;

cz_status cz__piece_name(cz__text *name, const cz__index *index, int64_t stored, const char *slot,
                         int64_t begin, int64_t end)
{
    const char *values = stored < index->param_count ? "parameters" : "buffers";
    cz__text_cut(name, 0);
    cz__text_print(name, "%s%s/%s[%" PRId64 ":%" PRId64 "]", slot ? "optimizer/" : "",
                   slot ? slot : values, index->stored[stored].name, begin, end);
    return name->failed ? cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a name of %zu bytes",
                                   name->count)
                        : CZ_OK;
}

static cz_status visit_piece(visit_state *v, int64_t place, const char *slot, cz_dtype dtype,
                             int64_t begin, int64_t end)
{
    const cz__stored *stored = &v->index->stored[place];
    const bool whole = end - begin == stored->count;
    cz__piece piece = {.stored = place,
                       .slot = slot,
                       .dtype = dtype,
                       .begin = begin,
                       .end = end,
                       .dimensions = whole ? stored->dimensions : 1,
                       .shape = {end - begin}};
    if (whole)
        memcpy(piece.shape, stored->shape, sizeof piece.shape);
    CZ_TRY(cz__piece_name(&v->name, v->index, place, slot, begin, end));
    piece.name = cz__text_get(&v->name);
    return v->visit(&piece, v->context);
}

/* The value of a span, then its slots in the order of the state. */
static cz_status visit_span(visit_state *v, int64_t param, int64_t begin, int64_t end)
{
    const char *slot;
    cz_dtype dtype;
    if (v->index->stored[param].owner < 0)
        CZ_TRY(visit_piece(v, param, NULL, v->index->stored[param].dtype, begin, end));
    for (int64_t at = 0; cz__index_slot(v->index, param, &at, &slot, &dtype);)
        CZ_TRY(visit_piece(v, param, slot, dtype, begin, end));
    return CZ_OK;
}

static cz_status visit_all(visit_state *v, int rank)
{
    const cz__index *index = v->index;
    const int64_t count = index->param_count + index->buffer_count;
    cz_span_iterator iterator;
    cz_span span;
    if (index->param_count > 0) {
        cz_span_iterate(index->map, rank, &iterator);
        while (cz_span_next(&iterator, &span))
            CZ_TRY(visit_span(v, span.param, span.begin, span.end));
    }
    for (int64_t i = 0; i < count; i++)
        if (index->stored[i].owner == rank && index->stored[i].count > 0)
            CZ_TRY(visit_piece(v, i, NULL, index->stored[i].dtype, 0, index->stored[i].count));
    return CZ_OK;
}

cz_status cz__index_visit(const cz__index *index, int rank, cz__piece_visitor visit, void *context)
{
    visit_state v = {index, visit, context, {0}};
    const cz_status status = visit_all(&v, rank);
    cz__text_clear(&v.name);
    return status;
}
