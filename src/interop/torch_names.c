/* SPDX-License-Identifier: MIT */
/* Which parameter is which of an optimizer of torch, which counts them. By names where the file has
 * them: those that czero or a program wrote, or those of the model beside it, in whose order an
 * optimizer of all of it counts. Where only the optimizer here can tell which parameters they are,
 * a note says so, unless shapes allow no other assignment. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "interop/torch.h"
#include "tensor/model.h"

typedef cz__torch_reading reading;
typedef cz__torch_member member;

static cz_status no_memory(const reading *r)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", r->c->file->path);
}

/* ---- members ---- */

static cz_status add_member(reading *r, const cz__pickle_value *number)
{
    const bool named = number->kind == CZ__PICKLE_TEXT && number->text[0];
    if (number->kind != CZ__PICKLE_INTEGER && !named)
        return cz__torch_refuse(r->c, "a parameter group has %s among its params",
                                cz__pickle_kind_name(number->kind));
    member *members = cz__grow(r->members, r->count, &r->capacity, sizeof *members);
    if (!members)
        return no_memory(r);
    r->members = members;
    r->members[r->count] =
        (member){named ? r->count : number->integer, r->count, named ? number->text : NULL};
    r->count++;
    return cz__torch_contents_spend(r->c);
}

static int by_number(const void *left, const void *right)
{
    const int64_t a = ((const member *)left)->number, b = ((const member *)right)->number;
    return (a > b) - (a < b);
}

/* Of groups that share some of their keys and values, as torch's do; not of one group many
 * times. */
enum { KEYS_PER_VALUE = 8 };

static cz_status list_members(reading *r)
{
    int64_t keys = 0;
    for (int64_t g = 0; g < r->groups->count; g++) {
        const cz__pickle_value *group = cz__pickle_item(r->p, r->groups, g);
        const cz__pickle_value *params = cz__pickle_get(r->p, group, "params");
        keys += params ? cz__pickle_dict_count(group) : 0;
        if (keys / KEYS_PER_VALUE > r->p->count)
            return cz__torch_refuse(r->c, "the same parameter groups again and again");
        if (!params || params->kind != CZ__PICKLE_LIST)
            return cz__torch_refuse(r->c, "parameter group %" PRId64 " has no list of params", g);
        for (int64_t i = 0; i < params->count; i++)
            CZ_TRY(add_member(r, cz__pickle_item(r->p, params, i)));
    }
    if (r->count > 0)
        qsort(r->members, (size_t)r->count, sizeof *r->members, by_number);
    for (int64_t i = 1; i < r->count; i++)
        if (r->members[i - 1].number == r->members[i].number)
            return cz__torch_refuse(r->c, "parameter %" PRId64 " is in its groups twice",
                                    r->members[i].number);
    return CZ_OK;
}

int64_t cz__torch_place(const reading *r, const cz__pickle_value *number)
{
    int64_t place;
    if (number->kind == CZ__PICKLE_TEXT)
        return cz__names_find(&r->named, number->text, &place) ? place : -1;
    const member key = {.number = number->integer};
    const member *found = number->kind == CZ__PICKLE_INTEGER && r->count > 0
                              ? bsearch(&key, r->members, (size_t)r->count, sizeof key, by_number)
                              : NULL;
    return found ? found->place : -1;
}

/* ---- the file's model ---- */

static cz_status list_model(reading *r)
{
    int64_t other;
    if (!cz__names_reserve(&r->model, r->c->count))
        return no_memory(r);
    for (int64_t i = 0; i < r->c->count; i++)
        if (!cz__names_find(&r->model, r->c->tensors[i].form.name, &other))
            cz__names_add(&r->model, r->c->tensors[i].form.name, i);
    return CZ_OK;
}

static int64_t place_in_model(const reading *r, const char *name)
{
    int64_t place;
    return cz__names_find(&r->model, name, &place) ? place : -1;
}

/* ---- names in the file ---- */

/* Names in the place of numbers, as get_optimizer_state_dict() of torch.distributed has them. */
static cz_status take_names_for_numbers(reading *r, bool *taken)
{
    int64_t other;
    *taken = r->count > 0 && r->members[0].name;
    for (int64_t i = 0; i < r->count; i++)
        if ((r->members[i].name != NULL) != *taken)
            return cz__torch_refuse(r->c, "its optimizer has names for some parameters and numbers "
                                          "for others");
    if (!*taken)
        return CZ_OK;
    if (!cz__names_reserve(&r->named, r->count))
        return no_memory(r);
    for (int64_t i = 0; i < r->count; i++) {
        const member *m = &r->members[i];
        if (cz__names_find(&r->named, m->name, &other))
            return cz__torch_refuse(r->c, "parameter '%s' is in its groups twice",
                                    cz__show(m->name).text);
        cz__names_add(&r->named, m->name, m->place);
        r->names[m->place] = m->name;
    }
    return CZ_OK;
}

static bool take_own_names(reading *r)
{
    const cz__pickle_value *names = cz__pickle_get(r->p, r->c->own, "params");
    if (!names || names->kind != CZ__PICKLE_LIST || names->count != r->count)
        return false;
    for (int64_t i = 0; i < names->count; i++) {
        const cz__pickle_value *name = cz__pickle_item(r->p, names, i);
        if (name->kind != CZ__PICKLE_TEXT)
            return false;
        r->names[i] = name->text;
    }
    return true;
}

/* Of an optimizer that was given named parameters, as later versions of torch write it. */
static bool take_param_names(reading *r)
{
    int64_t place = 0;
    for (int64_t g = 0; g < r->groups->count; g++) {
        const cz__pickle_value *group = cz__pickle_item(r->p, r->groups, g);
        const cz__pickle_value *names = cz__pickle_get(r->p, group, "param_names");
        if (!names || names->kind != CZ__PICKLE_LIST ||
            names->count != cz__pickle_get(r->p, group, "params")->count)
            return false;
        for (int64_t i = 0; i < names->count; i++, place++) {
            const cz__pickle_value *name = cz__pickle_item(r->p, names, i);
            if (name->kind != CZ__PICKLE_TEXT || !name->text[0] ||
                (r->c->has_model && place_in_model(r, name->text) < 0))
                return false;
            r->names[place] = name->text;
        }
    }
    return r->groups->count > 0;
}

/* ---- names of the model, in its order ---- */

static bool has_optimizer_here(const reading *r)
{
    return r->c->here && r->c->here->optimizer &&
           cz_state_dict_kind(r->c->here->optimizer, "param_groups") == CZ_STATE_DICT;
}

/* All that could be parameters, if there are as many: *count. Groups may have them in any order. */
static bool take_names_of_model(reading *r, int64_t *count)
{
    const cz__index *here = r->c->here;
    *count = 0;
    for (int64_t i = 0; i < r->c->count; i++) {
        const cz__safetensors_entry *form = &r->c->tensors[i].form;
        if (!cz__converts(form->dtype) ||
            (here && cz__index_find(here, form->name) >= here->param_count))
            continue;
        if (*count < r->count)
            r->names[*count] = form->name;
        ++*count;
    }
    return *count == r->count && (r->groups->count <= 1 || !has_optimizer_here(r));
}

/* ---- names of the optimizer here ---- */

typedef struct ours {
    const char **names; /* owned, as the next two; group by group */
    int64_t *sizes;     /* of the groups */
    int64_t *begins;
    int64_t group_count, count;
} ours;

static void ours_clear(ours *o)
{
    cz__free(o->names);
    cz__free(o->sizes);
    cz__free(o->begins);
}

static cz_status list_ours(const reading *r, ours *o)
{
    const char *const *names;
    const cz_state_dict *groups = NULL, *group;
    if (!has_optimizer_here(r))
        return CZ_OK;
    CZ_TRY(cz_state_dict_get_dict(r->c->here->optimizer, "param_groups", &groups));
    o->group_count = cz_state_dict_count(groups);
    o->sizes = cz__calloc((size_t)o->group_count, sizeof *o->sizes);
    o->begins = cz__calloc((size_t)o->group_count, sizeof *o->begins);
    if (!o->sizes || !o->begins)
        return no_memory(r);
    for (int64_t g = 0; g < o->group_count; g++) {
        CZ_TRY(cz_state_dict_get_dict(groups, cz_state_dict_key(groups, g), &group));
        CZ_TRY(cz_state_dict_get_texts(group, "params", &names, &o->sizes[g]));
        o->begins[g] = o->count;
        o->count += o->sizes[g];
    }
    o->names = cz__calloc((size_t)o->count, sizeof *o->names);
    if (!o->names)
        return no_memory(r);
    for (int64_t g = 0; g < o->group_count; g++) {
        CZ_TRY(cz_state_dict_get_dict(groups, cz_state_dict_key(groups, g), &group));
        CZ_TRY(cz_state_dict_get_texts(group, "params", &names, &o->sizes[g]));
        for (int64_t i = 0; i < o->sizes[g]; i++)
            o->names[o->begins[g] + i] = names[i];
    }
    return CZ_OK;
}

static int64_t size_of(const reading *r, int64_t group)
{
    return cz__pickle_get(r->p, cz__pickle_item(r->p, r->groups, group), "params")->count;
}

/* The group here for one of the file: of that number if sizes are as there, or else the only one of
 * its size. */
static int64_t group_for(const reading *r, const ours *o, int64_t group, bool by_number)
{
    int64_t found = -1;
    if (!by_number) {
        for (int64_t g = 0; g < o->group_count; g++) {
            if (o->sizes[g] != size_of(r, group))
                continue;
            if (found >= 0)
                return -1;
            found = g;
        }
    }
    return by_number ? group : found;
}

static bool sizes_are_equal(const reading *r, const ours *o)
{
    for (int64_t g = 0; g < o->group_count; g++)
        if (o->sizes[g] != size_of(r, g))
            return false;
    return true;
}

typedef struct ranked {
    int64_t place;
    const char *name;
} ranked;

static int by_place(const void *left, const void *right)
{
    const int64_t a = ((const ranked *)left)->place, b = ((const ranked *)right)->place;
    return (a > b) - (a < b);
}

/* Names in the order of the file's model; false: it has not all of them. */
static bool rank_names(const reading *r, const char *const *names, int64_t count, ranked *room,
                       const char **out)
{
    for (int64_t i = 0; i < count; i++) {
        room[i] = (ranked){place_in_model(r, names[i]), names[i]};
        if (room[i].place < 0)
            return false;
    }
    if (count > 0)
        qsort(room, (size_t)count, sizeof *room, by_place);
    for (int64_t i = 0; i < count; i++)
        out[i] = room[i].name;
    return true;
}

/* Members of the groups here, each group in the order of the file's model. */
static bool take_ours_in_order_of_model(reading *r, const ours *o, ranked *room)
{
    if (o->count != r->count)
        return false;
    if (r->groups->count == 1)
        return rank_names(r, o->names, o->count, room, r->names);
    if (r->groups->count != o->group_count)
        return false;
    const bool by_number = sizes_are_equal(r, o);
    for (int64_t g = 0, place = 0; g < r->groups->count; place += size_of(r, g++)) {
        const int64_t from = group_for(r, o, g, by_number);
        if (from < 0 ||
            !rank_names(r, o->names + o->begins[from], o->sizes[from], room, r->names + place))
            return false;
    }
    return true;
}

static bool take_ours_as_they_are(reading *r, const ours *o)
{
    if (o->count == r->count)
        for (int64_t i = 0; i < r->count; i++)
            r->names[i] = o->names[i];
    return o->count == r->count;
}

/* ---- is it so? ---- */

/* A parameter's, of the file if it has it. */
static bool shape_of(const reading *r, const char *name, cz__safetensors_entry *out)
{
    const int64_t place = place_in_model(r, name);
    const int64_t here = r->c->here ? cz__index_find(r->c->here, name) : -1;
    *out = (cz__safetensors_entry){.dtype = (cz_dtype)0};
    if (place >= 0) {
        *out = r->c->tensors[place].form;
    } else if (here >= 0) {
        out->dimensions = r->c->here->stored[here].dimensions;
        memcpy(out->shape, r->c->here->stored[here].shape, sizeof out->shape);
    }
    return place >= 0 || here >= 0;
}

static cz_status compare_slot(const reading *r, const char *name, const char *slot,
                              const cz__pickle_value *tensor, bool *compared)
{
    cz__torch_tensor found;
    cz__safetensors_entry wanted;
    if (tensor->kind != CZ__PICKLE_CALL || strcmp(slot, "step") == 0 || !shape_of(r, name, &wanted))
        return CZ_OK;
    CZ_TRY(cz__torch_tensor_of(r->c->file, tensor, slot, &found));
    if (found.form.dimensions == 0) /* a number that the rule keeps beside */
        return CZ_OK;
    *compared = true;
    if ((found.form.dtype == wanted.dtype || wanted.dtype == (cz_dtype)0 ||
         (cz__converts(found.form.dtype) && cz__converts(wanted.dtype))) &&
        found.form.dimensions == wanted.dimensions &&
        memcmp(found.form.shape, wanted.shape, (size_t)wanted.dimensions * sizeof *wanted.shape) ==
            0)
        return CZ_OK;
    return cz__torch_refuse(r->c,
                            "the state '%s' of its optimizer is not of the type and shape of '%s': "
                            "which parameter is which is not clear",
                            cz__show(slot).text, cz__show(name).text);
}

/* State under another parameter's name is seldom of its shape. *proved: all parameters have state
 * that was compared. */
static cz_status compare_shapes(const reading *r, bool *proved)
{
    int64_t known = 0;
    for (int64_t i = 0; i < r->state->count; i += 2) {
        bool compared = false;
        const int64_t place = cz__torch_place(r, cz__pickle_item(r->p, r->state, i));
        const cz__pickle_value *entry = cz__pickle_item(r->p, r->state, i + 1);
        if (place < 0 || entry->kind != CZ__PICKLE_DICT)
            continue;
        for (int64_t k = 0; k < entry->count; k += 2) {
            const cz__pickle_value *slot = cz__pickle_item(r->p, entry, k);
            CZ_TRY(cz__torch_contents_spend(r->c));
            if (slot->kind == CZ__PICKLE_TEXT)
                CZ_TRY(compare_slot(r, r->names[place], slot->text,
                                    cz__pickle_item(r->p, entry, k + 1), &compared));
        }
        known += compared;
    }
    *proved = known == r->count;
    return CZ_OK;
}

static int by_value(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Have no two parameters one shape? Then state of these shapes can be assigned in one way only. */
static cz_status are_distinct(const reading *r, bool *distinct)
{
    uint64_t *prints = cz__calloc((size_t)r->count, sizeof *prints);
    if (!prints)
        return no_memory(r);
    for (int64_t i = 0; i < r->count; i++) {
        cz__safetensors_entry form;
        (void)shape_of(r, r->names[i], &form);
        prints[i] = cz__fingerprint(0, form.shape, (size_t)form.dimensions * sizeof *form.shape);
    }
    if (r->count > 0)
        qsort(prints, (size_t)r->count, sizeof *prints, by_value);
    *distinct = true;
    for (int64_t i = 1; i < r->count; i++)
        *distinct = *distinct && prints[i - 1] != prints[i];
    cz__free(prints);
    return CZ_OK;
}

/* ---- all of it ---- */

static cz_status refuse_names(const reading *r, int64_t here, int64_t model)
{
    if (cz__torch_knows_model(r->c->here))
        return cz__torch_refuse(r->c,
                                "its optimizer has %" PRId64 " parameters, the one here %" PRId64
                                " and the file's model %" PRId64 ": which is which is not clear",
                                r->count, here, model);
    return cz__torch_refuse(r->c,
                            "its optimizer has %" PRId64 " parameters and the model %" PRId64
                            " tensors that could be: which is which is not clear",
                            r->count, model);
}

/* Members of several groups are seldom in the model's order. */
static cz_status refuse_groups(const reading *r)
{
    return cz__torch_refuse(
        r->c,
        "its optimizer has %" PRId64
        " parameter groups, and the file does not say which of the model's parameters are in which",
        r->groups->count);
}

static cz_status note_order(const reading *r, const char *how)
{
    return cz__torch_note(r->c,
                          "%s: its optimizer numbers its parameters and does not name them: taken "
                          "for those of the optimizer here, %s",
                          cz__text_get(&r->c->file->where), how);
}

/* The optimizer here says which parameters there are. */
static cz_status take_ours(reading *r, const ours *o, ranked *room, int64_t model)
{
    static const char in_order_of_model[] = "group by group in the order of the file's model";
    bool proved = false, distinct = false;
    const char *how = in_order_of_model;
    cz_status status = CZ_ERR_FORMAT;
    const bool ordered = take_ours_in_order_of_model(r, o, room);
    if (ordered)
        status = compare_shapes(r, &proved);
    if (status == CZ_ERR_FORMAT) {
        how = "in its order";
        if (!take_ours_as_they_are(r, o))
            return ordered ? status : refuse_names(r, o->count, model);
        status = compare_shapes(r, &proved);
    }
    if (!status && proved)
        status = are_distinct(r, &distinct);
    return status == CZ_OK && !distinct ? note_order(r, how) : status;
}

static cz_status take_names_from_here(reading *r, int64_t model)
{
    ours o = {0};
    ranked *room = cz__calloc((size_t)r->count, sizeof *room);
    cz_status status = room ? list_ours(r, &o) : no_memory(r);
    if (!status)
        status = take_ours(r, &o, room, model);
    cz__free(room);
    ours_clear(&o);
    return status;
}

cz_status cz__torch_name_members(reading *r, bool *clear)
{
    int64_t model = 0;
    bool proved;
    cz_status status = CZ_ERR_FORMAT;
    const bool knows = cz__torch_knows_model(r->c->here);
    *clear = true;
    CZ_TRY(list_members(r));
    r->names = cz__calloc((size_t)r->count, sizeof *r->names);
    if (!r->names)
        return no_memory(r);
    CZ_TRY(list_model(r));
    bool taken;
    CZ_TRY(take_names_for_numbers(r, &taken));
    if (taken || take_own_names(r) || take_param_names(r))
        return CZ_OK;
    if (!knows && r->groups->count > 1) {
        *clear = false;
        return refuse_groups(r);
    }
    taken = take_names_of_model(r, &model);
    if (taken)
        status = compare_shapes(r, &proved);
    *clear = knows || status == CZ_OK;
    if (status != CZ_ERR_FORMAT || !has_optimizer_here(r))
        return status == CZ_ERR_FORMAT && !taken ? refuse_names(r, 0, model) : status;
    return take_names_from_here(r, model);
}
