/* SPDX-License-Identifier: MIT */
/* What ranks have to have alike for their parts to be one checkpoint: described, to be compared. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/object.h"
#include "io/dict_json.h"
#include "shard/form.h"

static const char *noun_of(const cz__index *index, int64_t place)
{
    return place < index->param_count ? "parameter" : "buffer";
}

static void describe_stored(cz__description *d, const cz__index *index, int64_t place)
{
    const cz__stored *s = &index->stored[place];
    const char *noun = noun_of(index, place);
    const int64_t number = place < index->param_count ? place : place - index->param_count;
    cz__describe(d, &(cz__subject){NULL, noun, number, NULL, "is"}, CZ__FIELD_TEXT, s->name,
                 strlen(s->name));
    cz__describe(d, &(cz__subject){NULL, noun, number, s->name, "has shape"}, CZ__FIELD_SHAPE,
                 s->shape, (size_t)s->dimensions * sizeof *s->shape);
    cz__describe_number(d, &(cz__subject){NULL, noun, number, s->name, "has type"}, CZ__FIELD_DTYPE,
                        s->dtype);
}

static void describe_tensors(cz__description *d, const cz__index *index)
{
    cz__describe_number(d, &(cz__subject){NULL, "the number of parameters", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, index->param_count);
    cz__describe_number(d, &(cz__subject){NULL, "the number of buffers", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, index->buffer_count);
    for (int64_t i = 0; i < index->param_count + index->buffer_count && d->status == CZ_OK; i++)
        describe_stored(d, index, i);
}

static void describe_cuts(cz__description *d, const cz_shard_map *map)
{
    size_t element_size = 0;
    int64_t ranges = 0;
    if (!cz__shard_map_even(map, &element_size, &ranges, NULL, 0))
        return;
    int64_t *begins = cz__calloc((size_t)ranges, sizeof *begins);
    if (!begins && d->status == CZ_OK)
        d->status = cz__fail(CZ_ERR_MEMORY, "%s: the ranges of a map", d->part);
    if (begins)
        (void)cz__shard_map_even(map, &element_size, &ranges, begins, ranges);
    cz__describe_number(d, &(cz__subject){"the element size", "the shard map", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, (int64_t)element_size);
    cz__describe_number(d, &(cz__subject){"the number of ranges", "the shard map", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, ranges);
    for (int64_t k = 0; begins && k < ranges; k++)
        cz__describe_number(d,
                            &(cz__subject){"a range", "the shard map", -1, NULL, "begins at place"},
                            CZ__FIELD_NUMBER, begins[k]);
    cz__free(begins);
}

/* A map is its order, and cuts or owners. */
static void describe_map(cz__description *d, const cz__index *index)
{
    static const char *const kinds[] = {"a list of owners", "an even cut", NULL};
    const cz_shard_map *map = index->map;
    size_t element_size;
    int64_t ranges, param;
    cz__describe_word(d, &(cz__subject){NULL, "the shard map", -1, NULL, "is"}, kinds,
                      cz__shard_map_even(map, &element_size, &ranges, NULL, 0));
    describe_cuts(d, map);
    for (int64_t k = 0; (param = cz_shard_map_listed(map, k)) >= 0 && d->status == CZ_OK; k++) {
        cz__describe_number(
            d, &(cz__subject){NULL, "place", k, NULL, "of the shard map has parameter"},
            CZ__FIELD_NUMBER, param);
        cz__describe_number(d,
                            &(cz__subject){"the first owner", "parameter", param,
                                           index->stored[param].name, "is rank"},
                            CZ__FIELD_NUMBER, cz_shard_map_home(map, param));
    }
    for (int64_t i = 0; i < index->param_count + index->buffer_count && d->status == CZ_OK; i++)
        cz__describe_number(d,
                            &(cz__subject){NULL, noun_of(index, i), i, index->stored[i].name,
                                           "is in the part of rank"},
                            CZ__FIELD_NUMBER, index->stored[i].owner);
}

/* Rule and groups, with their values or only with their members. */
static void describe_groups(cz__description *d, const cz_state_dict *optimizer, bool values)
{
    const cz_state_dict *groups = NULL, *group;
    const char *rule = "";
    (void)cz_state_dict_get_text(optimizer, "rule", &rule);
    (void)cz_state_dict_get_dict(optimizer, "param_groups", &groups);
    cz__describe(d, &(cz__subject){"the rule", "the optimizer", -1, NULL, "is"}, CZ__FIELD_TEXT,
                 rule, strlen(rule));
    cz__describe_number(d, &(cz__subject){NULL, "the number of parameter groups", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, cz_state_dict_count(groups));
    for (int64_t g = 0; g < cz_state_dict_count(groups) && d->status == CZ_OK; g++) {
        if (cz_state_dict_get_dict(groups, cz_state_dict_key(groups, g), &group) != CZ_OK)
            continue;
        const int64_t count = cz_state_dict_text_count(group, "params");
        cz__describe_number(d, &(cz__subject){"size", "parameter group", g, NULL, "is"},
                            CZ__FIELD_NUMBER, count);
        for (int64_t k = 0; k < count && d->status == CZ_OK; k++) {
            const char *name = "";
            (void)cz_state_dict_get_text_at(group, "params", k, &name);
            cz__describe(d, &(cz__subject){"a member", "parameter group", g, NULL, "is"},
                         CZ__FIELD_TEXT, name, strlen(name));
        }
    }
    if (values)
        cz__describe_dict(d, "the optimizer", "param_groups", groups);
}

void cz__describe_index(cz__description *d, const cz__index *index, bool state)
{
    static const char *const words[] = {"none", "given", NULL};
    describe_tensors(d, index);
    cz__describe_word(d, &(cz__subject){NULL, "the optimizer", -1, NULL, "is"}, words,
                      index->optimizer != NULL);
    if (d->status == CZ_OK && index->optimizer)
        describe_groups(d, index->optimizer, state);
    if (d->status == CZ_OK)
        describe_map(d, index);
    if (d->status == CZ_OK && index->optimizer && state)
        cz__describe_dict(d, "the optimizer's state", NULL, index->entries);
}

cz_status cz__common_check(const cz_state_dict *dict)
{
    json_t *json;
    CZ_TRY(cz__dict_to_json(&json, dict, "common/", NULL, NULL));
    json_decref(json);
    return CZ_OK;
}

void cz__describe_common(cz__description *description, const cz_state_dict *dict)
{
    cz__describe_dict(description, "the common dictionary", NULL, dict);
}
