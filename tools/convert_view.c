/* SPDX-License-Identifier: MIT */
/* An input seen with other names and shapes, or with averages in the place of values: elements are
 * read where they are, what is said of them is made anew. */
#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "convert.h"
#include "io/json.h"

/* Where a tensor's elements are: in one of the original, from a unit on. */
typedef struct place {
    int64_t stored, begin;
    char *name;    /* owned: the new one */
    bool averaged; /* the average is its value */
} place;

/* A tensor that is made: at most, and what each costs, its name included, until it is written. */
enum { MOST_TENSORS = 1 << 24, TENSOR_COST = 512 };

typedef struct view {
    cz__input *original;
    place *places; /* owned */
    int64_t count, capacity;
    int64_t stored_capacity;
} view;

/* ---- read ---- */

#define AVERAGE "average"

/* Rounded to the type of the value, as it is evaluated. */
static cz_status read_average(cz__input *input, int64_t stored, int64_t begin, int64_t end,
                              char *to)
{
    enum { BLOCK = 4096 };
    double block[BLOCK]; /* of any type */
    const cz_dtype dtype = cz__type_in_memory(cz__index_dtype(&input->index, stored, NULL));
    const cz_dtype wide = cz__type_in_memory(cz__index_dtype(&input->index, stored, AVERAGE));
    for (int64_t at = begin; at < end; at += BLOCK) {
        const int64_t count = end - at < BLOCK ? end - at : BLOCK;
        CZ_TRY(cz__input_read(input, stored, AVERAGE, at, at + count, block));
        CZ_TRY(cz_device_cpu()->convert(NULL, dtype, to, wide, block, count));
        to += (size_t)count * cz_dtype_size(dtype);
    }
    return CZ_OK;
}

static cz_status read_view(cz__input *input, int64_t stored, const char *slot, int64_t begin,
                           int64_t end, void *to)
{
    const view *v = input->files;
    const place *at = &v->places[stored];
    if (at->averaged && !slot && to)
        return read_average(v->original, at->stored, at->begin + begin, at->begin + end, to);
    if (at->averaged && !slot)
        slot = AVERAGE;
    return to ? cz__input_read(v->original, at->stored, slot, at->begin + begin, at->begin + end,
                               to)
              : cz__input_reach(v->original, at->stored, slot, at->begin + begin, at->begin + end);
}

static cz_status read_common(cz__input *input, cz_state_dict **out)
{
    const view *v = input->files;
    return cz__input_common(v->original, out);
}

static void close_view(cz__input *input)
{
    view *v = input->files;
    for (int64_t i = 0; i < v->count; i++)
        cz__free(v->places[i].name);
    cz__free(v->places);
    cz__free(v);
}

static const cz__input_form form = {read_view, read_common, close_view};

/* ---- made: tensors ---- */

typedef struct making {
    view *v;
    cz__input *input;
    convert_rules *rules;
    cz__text name, renamed;
    bool averages;
    bool splits; /* a tensor is split */
    cz__budget pieces;
} making;

static cz_status no_memory(void)
{
    return cz_fail(CZ_ERR_MEMORY, "convert: no memory for names and shapes");
}

/* In a type that the library computes with. */
static bool has_average(const cz__index *index, int64_t stored)
{
    const cz_state_dict *entry;
    return stored < index->param_count && index->entries &&
           cz_state_dict_kind(index->entries, index->stored[stored].name) == CZ_STATE_DICT &&
           cz_state_dict_get_dict(index->entries, index->stored[stored].name, &entry) == CZ_OK &&
           cz_state_dict_kind(entry, AVERAGE) == CZ_STATE_TEXT &&
           cz__is_floating(cz__type_in_memory(cz__index_dtype(index, stored, NULL)));
}

static cz_status check_averages(const making *m)
{
    for (int64_t i = 0; i < m->v->count; i++)
        if (m->v->places[i].averaged)
            return CZ_OK;
    return m->averages ? cz_fail(CZ_ERR_ARGUMENT, "%s: --average, but it has no averages of values",
                                 cz__show(m->v->original->path).text)
                       : CZ_OK;
}

static cz_status append(making *m, int64_t stored, int64_t begin, const cz__stored *made)
{
    view *v = m->v;
    place *places = cz__grow(v->places, v->count, &v->capacity, sizeof *places);
    if (!places)
        return no_memory();
    v->places = places;
    cz__stored *all = cz__grow(m->input->index.stored, v->count, &v->stored_capacity, sizeof *all);
    if (!all)
        return no_memory();
    m->input->index.stored = all;
    char *name = cz__strdup(made->name);
    if (!name)
        return no_memory();
    v->places[v->count] =
        (place){stored, begin, name, m->averages && has_average(&v->original->index, stored)};
    all[v->count] = *made;
    all[v->count++].name = name;
    return CZ_OK;
}

static int64_t product(int dimensions, const int64_t *shape)
{
    cz_tensor tensor = {.dimensions = dimensions};
    memcpy(tensor.shape, shape, (size_t)dimensions * sizeof *shape);
    return cz_tensor_count(&tensor);
}

static cz_status wrong_count(const making *m, const cz__stored *old, const char *what)
{
    return cz_fail(CZ_ERR_ARGUMENT, "%s: '%s' has %" PRId64 " elements: %s", m->rules->path,
                   cz__show(old->name).text, product(old->dimensions, old->shape), what);
}

/* What -1 stands for is what is left. */
static cz_status fill_in(const making *m, const cz__stored *old, int64_t *shape, int dimensions)
{
    const int64_t count = product(old->dimensions, old->shape);
    int unknown = -1;
    for (int d = 0; d < dimensions; d++)
        unknown = shape[d] < 0 ? d : unknown;
    if (unknown < 0)
        return CZ_OK;
    shape[unknown] = 1;
    const int64_t rest = product(dimensions, shape);
    if (rest <= 0 || count % rest != 0)
        return wrong_count(m, old, "there is no whole number for -1 in its shape");
    shape[unknown] = count / rest;
    return CZ_OK;
}

static cz_status reshape(making *m, int64_t stored, const piece_rule *piece, cz__stored *made)
{
    const cz__stored *old = &m->v->original->index.stored[stored];
    made->dimensions = piece->dimensions;
    memcpy(made->shape, piece->shape, sizeof made->shape);
    CZ_TRY(fill_in(m, old, made->shape, made->dimensions));
    if (product(made->dimensions, made->shape) != product(old->dimensions, old->shape))
        return wrong_count(m, old, "its shape in the rules has another number");
    return append(m, stored, 0, made);
}

/* A piece, or with a star of its own one for each index of the first dimension. */
static cz_status append_pieces(making *m, int64_t stored, const shape_rule *rule,
                               const piece_rule *piece, const pattern_match *match, int64_t *begin)
{
    const cz__stored *old = &m->v->original->index.stored[stored];
    const bool numbered = piece->name.stars > rule->from.stars;
    const int64_t times = numbered ? piece->shape[0] : 1;
    cz__stored made = *old;
    made.dimensions = piece->dimensions - numbered;
    memset(made.shape, 0, sizeof made.shape);
    memcpy(made.shape, piece->shape + numbered, (size_t)made.dimensions * sizeof *made.shape);
    made.count = cz__type_units(old->dtype, made.dimensions, made.shape);
    if (times < 1 || times > MOST_TENSORS - m->v->count)
        return wrong_count(m, old, "none, or too many tensors would be made of it");
    if (made.count < 0)
        return wrong_count(m, old,
                           "a piece in the rules has too many, or no whole number of bytes");
    for (int64_t i = 0; i < times; i++) {
        CZ_TRY(cz__budget_spend(&m->pieces, TENSOR_COST, "the tensors that pieces become"));
        if (made.count > old->count - *begin)
            return wrong_count(m, old, "its pieces in the rules have more");
        cz__text_cut(&m->name, 0);
        if (!pattern_make(&piece->name, match, rule->from.stars, i, &m->name))
            return no_memory();
        made.name = cz__text_get(&m->name);
        CZ_TRY(append(m, stored, *begin, &made));
        *begin += made.count;
    }
    return CZ_OK;
}

static cz_status split(making *m, int64_t stored, const shape_rule *rule,
                       const pattern_match *match)
{
    const cz__stored *old = &m->v->original->index.stored[stored];
    int64_t begin = 0;
    m->splits = true;
    for (int64_t k = 0; k < rule->piece_count; k++)
        CZ_TRY(append_pieces(m, stored, rule, &rule->pieces[k], match, &begin));
    return begin == old->count ? CZ_OK : wrong_count(m, old, "its pieces in the rules have fewer");
}

static cz_status add_tensor(making *m, int64_t stored)
{
    pattern_match match;
    cz__stored made = m->v->original->index.stored[stored];
    CZ_TRY(convert_rules_rename(m->rules, made.name, &m->renamed));
    made.name = cz__text_get(&m->renamed);
    const shape_rule *rule = convert_rules_find(m->rules, made.name, &match);
    if (!rule)
        return append(m, stored, 0, &made);
    return rule->pieces[0].name.memory ? split(m, stored, rule, &match)
                                       : reshape(m, stored, rule->pieces, &made);
}

/* Whose the names are, if two are the same. */
static cz_status check_names(const making *m)
{
    const cz__input *original = m->v->original;
    cz__names names = {0};
    cz_status status = CZ_OK;
    int64_t other;
    if (!cz__names_reserve(&names, m->v->count))
        return no_memory();
    for (int64_t i = 0; i < m->v->count && !status; i++) {
        const char *name = m->v->places[i].name;
        if (!cz__names_find(&names, name, &other))
            cz__names_add(&names, name, i);
        else
            status =
                cz_fail(CZ_ERR_ARGUMENT, "two tensors would be called '%s': of '%s' and of '%s'",
                        cz__show(name).text,
                        cz__show(original->index.stored[m->v->places[other].stored].name).text,
                        cz__show(original->index.stored[m->v->places[i].stored].name).text);
    }
    cz__names_clear(&names);
    return status;
}

static cz_status add_tensors(making *m)
{
    const cz__index *from = &m->v->original->index;
    cz__index *index = &m->input->index;
    for (int64_t i = 0; i < from->param_count + from->buffer_count; i++) {
        CZ_TRY(add_tensor(m, i));
        if (i < from->param_count)
            index->param_count = m->v->count;
    }
    index->buffer_count = m->v->count - index->param_count;
    CZ_TRY(convert_rules_check_used(m->rules, m->v->count > 0 ? m->v->places[0].name : NULL));
    return check_names(m);
}

/* ---- made: what an optimizer has of them ---- */

/* The first of what a tensor became: they are in the order of the original. */
static int64_t find_first(const view *v, int64_t stored)
{
    int64_t low = 0, high = v->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (v->places[middle].stored < stored)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Each tensor that is made of one has the same entry, in the order in which they were: step counts
 * and scalars are of parameters, slots have their shapes. */
static cz_status add_state(const making *m, cz_state_dict *state)
{
    const view *v = m->v;
    const cz__index *from = &v->original->index;
    const cz_state_dict *entry;
    for (int64_t e = 0; e < cz_state_dict_count(from->entries); e++) {
        const char *old = cz_state_dict_key(from->entries, e);
        const int64_t stored = cz__index_find(from, old);
        if (cz_state_dict_kind(from->entries, old) != CZ_STATE_DICT)
            continue;
        CZ_TRY(cz_state_dict_get_dict(from->entries, old, &entry));
        for (int64_t i = find_first(v, stored); i < v->count && v->places[i].stored == stored; i++)
            CZ_TRY(cz_state_dict_set_dict(state, v->places[i].name, entry));
    }
    return CZ_OK;
}

/* There is room: whoever reads an index sees to it that a parameter is in no group twice. */
static cz_status list_members(const making *m, const cz_state_dict *group, const char **list,
                              int64_t *count)
{
    const view *v = m->v;
    const char *const *names;
    int64_t members;
    CZ_TRY(cz_state_dict_get_texts(group, "params", &names, &members));
    for (int64_t k = 0; k < members; k++) {
        const int64_t old = cz__index_find(&v->original->index, names[k]);
        for (int64_t i = find_first(v, old); i < v->count && v->places[i].stored == old; i++)
            list[(*count)++] = v->places[i].name;
    }
    return CZ_OK;
}

static cz_status rename_group(const making *m, cz_state_dict *groups, const char *key,
                              const char **list)
{
    const cz_state_dict *group;
    cz_state_dict *renamed = NULL;
    int64_t count = 0;
    CZ_TRY(cz_state_dict_get_dict(groups, key, &group));
    cz_status status = list_members(m, group, list, &count);
    if (!status)
        status = cz_state_dict_copy(&renamed, group);
    if (!status)
        status = cz_state_dict_set_texts(renamed, "params", list, count);
    if (!status)
        status = cz_state_dict_set_dict(groups, key, renamed);
    cz_state_dict_destroy(&renamed);
    return status;
}

static cz_status rename_groups(const making *m, cz_state_dict *optimizer)
{
    const cz_state_dict *original;
    cz_state_dict *groups = NULL;
    const char **list;
    if (cz_state_dict_kind(optimizer, "param_groups") != CZ_STATE_DICT)
        return CZ_OK;
    CZ_TRY(cz_state_dict_get_dict(optimizer, "param_groups", &original));
    list = cz__calloc((size_t)m->input->index.param_count + 1, sizeof *list);
    cz_status status = list ? cz_state_dict_copy(&groups, original) : no_memory();
    for (int64_t g = 0; !status && g < cz_state_dict_count(original); g++) {
        const char *key = cz_state_dict_key(original, g);
        if (cz_state_dict_kind(original, key) == CZ_STATE_DICT)
            status = rename_group(m, groups, key, list);
    }
    if (!status)
        status = cz_state_dict_set_dict(optimizer, "param_groups", groups);
    cz_state_dict_destroy(&groups);
    cz__free(list);
    return status;
}

static cz_status make_optimizer(making *m)
{
    const cz__index *from = &m->v->original->index;
    cz_state_dict **optimizer = &m->input->index.optimizer, *state = NULL;
    if (!from->optimizer)
        return CZ_OK;
    CZ_TRY(cz_state_dict_copy(optimizer, from->optimizer));
    cz_status status = cz_state_dict_create(&state);
    if (!status)
        status = add_state(m, state);
    if (!status)
        status = cz_state_dict_set_dict(*optimizer, "state", state);
    cz_state_dict_destroy(&state);
    CZ_TRY(status);
    return rename_groups(m, *optimizer);
}

/* ---- made: what other programs wrote beside ---- */

static bool is_split(const view *v, int64_t stored)
{
    const int64_t first = find_first(v, stored);
    return first + 1 < v->count && v->places[first + 1].stored == stored;
}

/* The second name of a tensor, and the one that it stands for, are renamed as tensors are. */
static cz_status add_metadata(making *m, json_t *to, const char *key, json_t *value)
{
    const cz__index *from = &m->v->original->index;
    const char *text = json_string_value(value);
    if (!text || cz__index_find(from, key) >= 0 || cz__index_find(from, text) < 0)
        return cz__json_set(to, key, json_incref(value));
    if (is_split(m->v, cz__index_find(from, text)))
        return cz_fail(CZ_ERR_ARGUMENT,
                       "'%s' would be split, and '%s' is another name of all of it",
                       cz__show(text).text, cz__show(key).text);
    CZ_TRY(convert_rules_rename(m->rules, text, &m->name));
    CZ_TRY(convert_rules_rename(m->rules, key, &m->renamed));
    if (strcmp(cz__text_get(&m->name), cz__text_get(&m->renamed)) == 0)
        return CZ_OK; /* both names have become one */
    if (cz__index_find(&m->input->index, cz__text_get(&m->renamed)) >= 0)
        return cz_fail(
            CZ_ERR_ARGUMENT, "a tensor would be called '%s', and '%s', another name of '%s', too",
            cz__show(cz__text_get(&m->renamed)).text, cz__show(key).text, cz__show(text).text);
    if (json_object_get(to, cz__text_get(&m->renamed)))
        return cz_fail(CZ_ERR_ARGUMENT, "two tied names would be called '%s'",
                       cz__show(cz__text_get(&m->renamed)).text);
    return cz__json_set(to, cz__text_get(&m->renamed), json_string(cz__text_get(&m->name)));
}

static cz_status make_metadata(making *m)
{
    const char *key;
    json_t *value, *from = m->v->original->index.metadata;
    if (!from)
        return CZ_OK;
    json_t *to = m->input->index.metadata = json_object();
    if (!to)
        return no_memory();
    json_object_foreach(from, key, value) CZ_TRY(add_metadata(m, to, key, value));
    return CZ_OK;
}

/* ---- made ---- */

static cz_status make(making *m)
{
    const cz__index *from = &m->v->original->index;
    cz__index *index = &m->input->index;
    memcpy(index->id, from->id, sizeof index->id);
    index->generation = from->generation;
    index->step = from->step;
    index->world_size = from->world_size;
    index->part_count = from->part_count;
    index->says_nothing_of_state = from->says_nothing_of_state;
    CZ_TRY(add_tensors(m));
    CZ_TRY(check_averages(m));
    if (!m->splits)
        index->map = from->map; /* of the same parameters */
    CZ_TRY(make_optimizer(m));
    CZ_TRY(cz__index_complete(index));
    return make_metadata(m);
}

static uint64_t bytes_of_values(const cz__index *index)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++)
        bytes += (uint64_t)index->stored[i].count * cz__type_unit(index->stored[i].dtype);
    return bytes;
}

cz_status convert_view(cz__input *input, cz__input *original, convert_rules *rules, bool averages)
{
    CZ_TRY(cz__input_name(input, original->path));
    making m = {
        .v = cz__calloc(1, sizeof *m.v), .input = input, .rules = rules, .averages = averages};
    if (!m.v)
        return no_memory();
    m.v->original = original;
    m.pieces = cz__budget_of(rules->path ? rules->path : "", bytes_of_values(&original->index));
    input->files = m.v;
    input->form = &form;
    const cz_status status = make(&m);
    cz__text_clear(&m.name);
    cz__text_clear(&m.renamed);
    return status;
}
