/* SPDX-License-Identifier: MIT */
/* What is saved: the model's tensors and the optimizer's state, as an index of what is here now. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/object.h"
#include "group/collective.h"
#include "collective/replicas.h"
#include "io/json.h"
#include "optim/optim.h"
#include "shard/shard.h"
#include "tensor/model.h"
#include "zero/zero.h"

static const cz_tensor *tensor_at(const cz_checkpoint *c, int64_t place)
{
    const int64_t params = cz__model_param_count(c->model);
    return place < params ? cz__model_value(c->model, place)
                          : cz__model_buffer(c->model, place - params);
}

static void fill_index(const cz_checkpoint *c, cz__index *index)
{
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++) {
        const cz_tensor *tensor = tensor_at(c, i);
        cz__stored *stored = &index->stored[i];
        stored->name = i < index->param_count
                           ? cz__model_name(c->model, i)
                           : cz__model_buffer_name(c->model, i - index->param_count);
        stored->dtype = tensor->dtype;
        stored->dimensions = tensor->dimensions;
        memcpy(stored->shape, tensor->shape, sizeof stored->shape);
        stored->count = cz_tensor_count(tensor);
        stored->owner = -1;
    }
}

static cz_status build_index(const cz_checkpoint *c, const cz__progress *progress, cz__index *index)
{
    index->world_size = cz_group_size(c->group);
    index->part_count = c->part_count;
    index->param_count = cz__model_param_count(c->model);
    index->buffer_count = cz__model_buffer_count(c->model);
    index->stored =
        cz__calloc((size_t)(index->param_count + index->buffer_count), sizeof *index->stored);
    if (!index->stored)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a table of the tensors");
    fill_index(c, index);
    if (c->zero)
        index->map = cz__zero_shard_map(c->zero);
    else
        CZ_TRY(cz__index_cut_evenly(index));
    CZ_TRY(cz__index_deal_rest(index));
    if (c->optim)
        CZ_TRY(cz__optim_outline_create(&index->optimizer, c->optim, progress));
    return cz__index_complete(index);
}

/* ---- describing what ranks must have alike for their parts to be one checkpoint ---- */

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
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++)
        describe_stored(d, index, i);
}

/* With their granules, where these are not single elements. */
static void describe_ranges(cz__description *d, const int64_t *begins, const int64_t *units,
                            int64_t ranges)
{
    for (int64_t k = 0; k < ranges; k++) {
        cz__describe_number(d,
                            &(cz__subject){"a range", "the shard map", -1, NULL, "begins at place"},
                            CZ__FIELD_NUMBER, begins[k]);
        cz__describe_number(d,
                            &(cz__subject){"a range", "the shard map", -1, NULL, "has granules of"},
                            CZ__FIELD_NUMBER, units[k]);
    }
}

static void describe_cuts(cz__description *d, const cz_shard_map *map)
{
    size_t element_size = 0;
    const int64_t ranges = cz__shard_map_ranges(map, &element_size, NULL, NULL, 0);
    if (ranges < 0)
        return;
    int64_t *begins = cz__calloc((size_t)ranges, sizeof *begins);
    int64_t *units = cz__calloc((size_t)ranges, sizeof *units);
    const bool complete = begins && units;
    if (!complete && d->status == CZ_OK)
        d->status = cz__fail(CZ_ERR_MEMORY, "%s: no memory for the ranges of a map", d->part);
    cz__describe_number(d, &(cz__subject){"the element size", "the shard map", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, (int64_t)element_size);
    cz__describe_number(d, &(cz__subject){"the number of ranges", "the shard map", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, ranges);
    if (complete) {
        (void)cz__shard_map_ranges(map, &element_size, begins, units, ranges);
        describe_ranges(d, begins, units, ranges);
    }
    cz__free(begins);
    cz__free(units);
}

/* A map is its order, and cuts or owners. */
static void describe_map(cz__description *d, const cz__index *index)
{
    static const char *const kinds[] = {"a list of owners", "an even cut", NULL};
    const cz_shard_map *map = index->map;
    size_t element_size;
    int64_t param;
    cz__describe_word(d, &(cz__subject){NULL, "the shard map", -1, NULL, "is"}, kinds,
                      cz__shard_map_ranges(map, &element_size, NULL, NULL, 0) >= 0);
    describe_cuts(d, map);
    for (int64_t k = 0; (param = cz__shard_map_listed(map, k)) >= 0; k++) {
        cz__describe_number(
            d, &(cz__subject){NULL, "place", k, NULL, "of the shard map has parameter"},
            CZ__FIELD_NUMBER, param);
        cz__describe_number(d,
                            &(cz__subject){"the first owner", "parameter", param,
                                           index->stored[param].name, "is rank"},
                            CZ__FIELD_NUMBER, cz__shard_map_home(map, param));
        const int last = cz__shard_map_remainder_owner(map, param);
        if (last >= 0)
            cz__describe_number(d,
                                &(cz__subject){"the last owner", "parameter", param,
                                               index->stored[param].name, "is rank"},
                                CZ__FIELD_NUMBER, last);
    }
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++)
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
    for (int64_t g = 0; g < cz_state_dict_count(groups); g++) {
        if (cz_state_dict_get_dict(groups, cz_state_dict_key(groups, g), &group) != CZ_OK)
            continue;
        const char *const *names = NULL, *its = rule;
        int64_t count = 0;
        if (cz_state_dict_kind(group, "rule") == CZ_STATE_TEXT)
            (void)cz_state_dict_get_text(group, "rule", &its);
        cz__describe(d, &(cz__subject){"the rule", "parameter group", g, NULL, "is"},
                     CZ__FIELD_TEXT, its, strlen(its));
        (void)cz_state_dict_get_texts(group, "params", &names, &count);
        cz__describe_number(d, &(cz__subject){"size", "parameter group", g, NULL, "is"},
                            CZ__FIELD_NUMBER, count);
        for (int64_t k = 0; k < count; k++)
            cz__describe(d, &(cz__subject){"a member", "parameter group", g, NULL, "is"},
                         CZ__FIELD_TEXT, names[k], strlen(names[k]));
    }
    if (values)
        cz__describe_dict(d, "the optimizer", "param_groups", groups);
}

void cz__describe_index(cz__description *d, const cz__index *index, bool state)
{
    static const char *const words[] = {"none", "given", NULL};
    cz__describe_number(d, &(cz__subject){NULL, "the number of parts", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, index->part_count);
    describe_tensors(d, index);
    cz__describe_word(d, &(cz__subject){NULL, "the optimizer", -1, NULL, "is"}, words,
                      index->optimizer != NULL);
    if (index->optimizer)
        describe_groups(d, index->optimizer, state);
    describe_map(d, index);
    if (index->optimizer && state)
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
        list[*count].bytes = (size_t)index->stored[param].count * cz_dtype_size(dtype);
        list[(*count)++].data = cz__contents_address(c, param, slot, 0);
    }
}

/* With `list` NULL they are counted. */
static void list_replicas(const cz_checkpoint *c, const cz__index *index, cz__replica *list,
                          int64_t *count)
{
    if (list) {
        for (int64_t p = 0; p < index->param_count; p++)
            list[p] = (cz__replica){.noun = "parameter",
                                    .index = p,
                                    .name = index->stored[p].name,
                                    .device = cz__contents_device(c, p),
                                    .data = cz__contents_address(c, p, NULL, 0),
                                    .bytes = (size_t)index->stored[p].count *
                                             cz_dtype_size(index->stored[p].dtype)};
    }
    *count = index->param_count;
    if (index->optimizer)
        for (int64_t p = 0; p < index->param_count; p++)
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
        status = cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a list of %lld tensors",
                          (long long)count);
    status = cz__check_replicas(c->group, &asker, list, count, status);
    cz__free(list);
    return status;
}

/* ---- all of it ---- */

typedef struct compared {
    const cz__index *index;
    bool state;
} compared;

static void describe_contents(cz__description *description, const void *context)
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
    cz_status built = build_index(checkpoint, &progress, index);
    if (built == CZ_OK && state && checkpoint->optim)
        built = cz__optim_unpack(checkpoint->optim);
    cz__zero_progress_clear(&shared);
    const cz_status status = cz__agree_on(checkpoint->group, call, describe_contents,
                                          &(compared){index, state}, built, &room);
    cz__description_clear(&room);
    /* a sharded optimizer's owners have what counts, whatever others hold */
    return status == CZ_OK && state && !checkpoint->zero && cz__group_is_checked(checkpoint->group)
               ? compare_replicas(checkpoint, call, index)
               : status;
}

cz_status cz__contents_at_first(const cz_checkpoint *checkpoint, cz__index *index)
{
    const size_t params = (size_t)cz__model_param_count(checkpoint->model);
    int64_t *steps = cz__calloc(params, sizeof *steps);
    unsigned *used = cz__calloc(params, sizeof *used);
    const cz__progress none = {steps, used, NULL};
    *index = (cz__index){0};
    const cz_status status =
        steps && used
            ? build_index(checkpoint, &none, index)
            : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for tables of %zu parameters", params);
    cz__free(steps);
    cz__free(used);
    return status;
}

void *cz__contents_address(const cz_checkpoint *checkpoint, int64_t stored, const char *slot,
                           int64_t begin)
{
    const cz_tensor *tensor = tensor_at(checkpoint, stored);
    if (!slot)
        return (char *)tensor->data + (size_t)begin * cz_dtype_size(tensor->dtype);
    return cz__optim_slot_address(checkpoint->optim, stored,
                                  cz__optim_find_slot(checkpoint->optim, stored, slot), begin);
}

cz_dtype cz__contents_slot_dtype(const cz_checkpoint *checkpoint, int64_t stored, const char *slot)
{
    return cz__optim_slot_dtype(checkpoint->optim, stored,
                                cz__optim_find_slot(checkpoint->optim, stored, slot));
}

const cz_device *cz__contents_device(const cz_checkpoint *checkpoint, int64_t stored)
{
    return cz__device_of(tensor_at(checkpoint, stored));
}
