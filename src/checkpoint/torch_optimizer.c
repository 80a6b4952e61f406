/* SPDX-License-Identifier: MIT */
/* An optimizer's state dictionary of torch, where parameters are numbers, as the outline that a checkpoint has, where
 * they are names. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/torch_contents.h"
#include "tensor/convert.h"

/* A parameter as the optimizer counts it. */
typedef struct member {
    int64_t number; /* in the file */
    int64_t place;  /* among the members of all groups, one after the other */
} member;

typedef struct reading {
    cz__torch_contents *c;
    const cz__pickle *p;
    const cz__pickle_value *state, *groups;
    const char *rule_name;
    const cz__torch_rule *rule; /* NULL: one that torch does not have */
    member *members;            /* owned, as the next; in the order of their numbers */
    const char **names;         /* by place */
    int64_t count, capacity;
} reading;

static cz_status no_memory(const reading *r)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", r->c->file->path);
}

/* What a dictionary refuses is the file's fault. */
static cz_status files_fault(const reading *r, cz_status status)
{
    return status == CZ_ERR_STATE || status == CZ_ERR_ARGUMENT
               ? cz__fail_in(CZ_ERR_FORMAT, cz__text_get(&r->c->file->where))
               : status;
}

/* ---- members ---- */

static cz_status add_member(reading *r, const cz__pickle_value *number)
{
    if (number->kind != CZ__PICKLE_INTEGER)
        return cz__torch_refuse(r->c, "a parameter group has %s among its params",
                                cz__pickle_kind_name(number->kind));
    member *members = cz__grow(r->members, r->count, &r->capacity, sizeof *members);
    if (!members)
        return no_memory(r);
    r->members = members;
    r->members[r->count] = (member){number->integer, r->count};
    r->count++;
    return cz__torch_contents_spend(r->c);
}

static int by_number(const void *left, const void *right)
{
    const int64_t a = ((const member *)left)->number, b = ((const member *)right)->number;
    return (a > b) - (a < b);
}

static cz_status list_members(reading *r)
{
    for (int64_t g = 0; g < r->groups->count; g++) {
        const cz__pickle_value *params =
            cz__pickle_get(r->p, cz__pickle_item(r->p, r->groups, g), "params");
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

/* ---- their names ---- */

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

/* As the optimizer here counts them; *count: how many it has. */
static bool take_names_from_here(reading *r, int64_t *count)
{
    const cz_state_dict *groups, *group;
    *count = 0;
    if (!r->c->here || !r->c->here->optimizer ||
        cz_state_dict_get_dict(r->c->here->optimizer, "param_groups", &groups) != CZ_OK)
        return false;
    for (int64_t g = 0; g < cz_state_dict_count(groups); g++) {
        if (cz_state_dict_get_dict(groups, cz_state_dict_key(groups, g), &group) != CZ_OK)
            return false;
        for (int64_t i = 0; i < cz_state_dict_text_count(group, "params"); i++, (*count)++)
            if (*count < r->count)
                (void)cz_state_dict_get_text_at(group, "params", i, &r->names[*count]);
    }
    return *count == r->count;
}

/* As the model has them, where all could be parameters: *count: how many. */
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
    return *count == r->count;
}

static cz_status name_members(reading *r)
{
    int64_t here = 0, model = 0;
    r->names = cz__calloc((size_t)r->count, sizeof *r->names);
    if (!r->names)
        return no_memory(r);
    if (take_own_names(r) || take_names_from_here(r, &here) || take_names_of_model(r, &model))
        return CZ_OK;
    return cz__torch_refuse(r->c,
                            "its optimizer has %" PRId64 " parameters, the one here %" PRId64
                            " and the file's model %" PRId64 ": which is which is not clear",
                            r->count, here, model);
}

/* ---- the rule ---- */

/* Has a group what the rule wants, and nothing of another rule's? */
static bool fits(const reading *r, const cz__torch_rule *rule, const cz__pickle_value *group)
{
    for (int i = 0; i < CZ__TORCH_HYPERS && rule->hypers[i].key; i++)
        if (!rule->hypers[i].optional && !cz__pickle_get(r->p, group, rule->hypers[i].key))
            return false;
    const cz__pickle_value *decoupled = cz__pickle_get(r->p, group, "decoupled_weight_decay");
    if (decoupled && decoupled->kind == CZ__PICKLE_BOOL && rule->decoupled >= 0 &&
        decoupled->integer != rule->decoupled)
        return false;
    for (int64_t i = 0; i < group->count; i += 2) {
        const cz__pickle_value *key = cz__pickle_item(r->p, group, i);
        if (key->kind == CZ__PICKLE_TEXT && cz__torch_hyper_is_known(key->text) &&
            !cz__torch_hyper_find(rule, key->text) &&
            strcmp(key->text, "decoupled_weight_decay") != 0)
            return false;
    }
    return true;
}

static cz_status refuse_group(const reading *r, const cz__pickle_value *group)
{
    cz__text keys = {0};
    for (int64_t i = 0; i < group->count && i < 30; i += 2)
        if (cz__pickle_item(r->p, group, i)->kind == CZ__PICKLE_TEXT)
            cz__text_print(&keys, "%s%.40s", i ? ", " : "",
                           cz__show(cz__pickle_item(r->p, group, i)->text).text);
    const cz_status status =
        cz__torch_refuse(r->c, "its optimizer is none that the library has: its groups have %s",
                         cz__text_get(&keys));
    cz__text_clear(&keys);
    return status;
}

/* torch does not write its name. */
static cz_status find_rule(reading *r)
{
    const char *here = NULL;
    const cz__pickle_value *own = cz__pickle_get(r->p, r->c->own, "rule");
    if (own && own->kind == CZ__PICKLE_TEXT) {
        r->rule_name = own->text;
        r->rule = cz__torch_rule_find(own->text);
        return CZ_OK;
    }
    if (r->c->here && r->c->here->optimizer)
        (void)cz_state_dict_get_text(r->c->here->optimizer, "rule", &here);
    if (r->groups->count == 0)
        return cz__torch_refuse(r->c, "its optimizer has no parameter groups");
    const cz__pickle_value *group = cz__pickle_item(r->p, r->groups, 0);
    for (int i = 0; cz__torch_rule_at(i); i++) {
        const cz__torch_rule *rule = cz__torch_rule_at(i);
        if ((!r->rule || (here && strcmp(here, rule->rule) == 0)) && fits(r, rule, group))
            r->rule = rule;
    }
    r->rule_name = r->rule ? r->rule->rule : NULL;
    return r->rule ? CZ_OK : refuse_group(r, group);
}

/* ---- groups ---- */

static cz_status put_number(reading *r, cz_state_dict *to, const char *key, const char *ours,
                            const cz__pickle_value *value)
{
    bool is_number;
    double number;
    int64_t integer;
    CZ_TRY(cz__torch_number(r->c->file, value, key, &is_number, &number, &integer));
    if (!is_number)
        return cz__torch_refuse(r->c, "'%s' of a parameter group is %s, wanted a number",
                                cz__show(key).text, cz__pickle_kind_name(value->kind));
    return files_fault(r, cz_state_dict_set_real(to, ours, number));
}

static cz_status put_hyper(reading *r, cz_state_dict *to, const cz__torch_hyper *hyper,
                           const cz__pickle_value *value)
{
    if (!hyper->ours[1])
        return put_number(r, to, hyper->key, hyper->ours[0], value);
    if ((value->kind != CZ__PICKLE_TUPLE && value->kind != CZ__PICKLE_LIST) || value->count != 2)
        return cz__torch_refuse(r->c, "'%s' of a parameter group is not a tuple of two",
                                hyper->key);
    for (int i = 0; i < 2; i++)
        CZ_TRY(put_number(r, to, hyper->key, hyper->ours[i], cz__pickle_item(r->p, value, i)));
    return CZ_OK;
}

/* Numbers that the rule does not know are a scheduler's, and kept; others are nobody's. */
static cz_status put_other(reading *r, cz_state_dict *to, const char *key,
                           const cz__pickle_value *value)
{
    if (cz__torch_hyper_is_ignored(key) ||
        (r->rule && r->rule->decoupled >= 0 && strcmp(key, "decoupled_weight_decay") == 0))
        return CZ_OK;
    if (value->kind == CZ__PICKLE_INTEGER || value->kind == CZ__PICKLE_REAL ||
        value->kind == CZ__PICKLE_BOOL)
        return put_number(r, to, key, key, value);
    return CZ_OK;
}

static cz_status put_hypers(reading *r, const cz__pickle_value *group, cz_state_dict *to)
{
    for (int64_t i = 0; i < group->count; i += 2) {
        const cz__pickle_value *key = cz__pickle_item(r->p, group, i);
        const cz__pickle_value *value = cz__pickle_item(r->p, group, i + 1);
        if (key->kind != CZ__PICKLE_TEXT || !key->text[0])
            return cz__torch_refuse(r->c, "a parameter group has a key that is no text");
        CZ_TRY(cz__torch_contents_spend(r->c));
        const cz__torch_hyper *hyper = r->rule ? cz__torch_hyper_find(r->rule, key->text) : NULL;
        CZ_TRY(hyper ? put_hyper(r, to, hyper, value) : put_other(r, to, key->text, value));
    }
    return CZ_OK;
}

static cz_status put_groups(reading *r, cz_state_dict *outline)
{
    char key[24];
    cz_state_dict *groups, *to;
    int64_t place = 0;
    CZ_TRY(cz_state_dict_add_dict(outline, "param_groups", &groups));
    for (int64_t g = 0; g < r->groups->count; g++) {
        const cz__pickle_value *group = cz__pickle_item(r->p, r->groups, g);
        const int64_t count = cz__pickle_get(r->p, group, "params")->count;
        snprintf(key, sizeof key, "%" PRId64, g);
        CZ_TRY(cz_state_dict_add_dict(groups, key, &to));
        CZ_TRY(put_hypers(r, group, to));
        CZ_TRY(files_fault(r, cz_state_dict_set_texts(to, "params", r->names + place, count)));
        place += count;
    }
    return CZ_OK;
}

/* ---- state ---- */

static cz_status put_step(reading *r, cz_state_dict *to, const char *name,
                          const cz__pickle_value *value)
{
    bool is_number;
    double number;
    int64_t step = 0;
    CZ_TRY(cz__torch_number(r->c->file, value, name, &is_number, &number, &step));
    if (!is_number || step < 0)
        return cz__torch_refuse(r->c, "the step of '%s' is no whole number from 0 on",
                                cz__show(name).text);
    return cz_state_dict_set_integer(to, "step", step);
}

static bool is_scalar(const reading *r, const char *slot)
{
    return r->rule && r->rule->scalar && strcmp(r->rule->scalar, slot) == 0;
}

static cz_status put_scalar(reading *r, cz_state_dict *to, const char *slot, const char *name,
                            const cz__pickle_value *value)
{
    bool is_number;
    double number;
    int64_t integer;
    CZ_TRY(cz__torch_number(r->c->file, value, slot, &is_number, &number, &integer));
    if (!is_number)
        return cz__torch_refuse(r->c, "'%s' of '%s' is %s", cz__show(slot).text,
                                cz__show(name).text, cz__pickle_kind_name(value->kind));
    return cz_state_dict_set_real(to, slot, number);
}

static cz_status put_slot(reading *r, cz_state_dict *to, const char *slot, const char *name,
                          const cz__pickle_value *value)
{
    cz_dtype dtype;
    CZ_TRY(cz__torch_contents_spend(r->c));
    if (value->kind == CZ__PICKLE_NONE) /* not yet used */
        return CZ_OK;
    if (strcmp(slot, "step") == 0)
        return put_step(r, to, name, value);
    if (value->kind != CZ__PICKLE_CALL || is_scalar(r, slot))
        return put_scalar(r, to, slot, name, value);
    CZ_TRY(cz__torch_contents_add(r->c, value, slot, name, &dtype));
    return cz_state_dict_set_text(to, slot, cz_dtype_name(dtype));
}

/* Where the state has none, as SGD's, there may be one that czero has written. */
static cz_status put_own_step(reading *r, cz_state_dict *to, int64_t place)
{
    const cz__pickle_value *steps = cz__pickle_get(r->p, r->c->own, "steps");
    if (!steps || steps->kind != CZ__PICKLE_LIST || steps->count != r->count)
        return CZ_OK;
    const cz__pickle_value *step = cz__pickle_item(r->p, steps, place);
    return step->kind == CZ__PICKLE_INTEGER && step->integer >= 0
               ? cz_state_dict_set_integer(to, "step", step->integer)
               : CZ_OK;
}

static cz_status put_entry(reading *r, cz_state_dict *state, int64_t place,
                           const cz__pickle_value *entry)
{
    cz_state_dict *to;
    const char *name = r->names[place];
    CZ_TRY(files_fault(r, cz_state_dict_add_dict(state, name, &to)));
    for (int64_t i = 0; i < entry->count; i += 2) {
        const cz__pickle_value *slot = cz__pickle_item(r->p, entry, i);
        if (slot->kind != CZ__PICKLE_TEXT || !slot->text[0])
            return cz__torch_refuse(r->c, "the state of '%s' has a key that is no text",
                                    cz__show(name).text);
        CZ_TRY(put_slot(r, to, slot->text, name, cz__pickle_item(r->p, entry, i + 1)));
    }
    return cz_state_dict_kind(to, "step") == CZ_STATE_NONE ? put_own_step(r, to, place) : CZ_OK;
}

static cz_status put_state(reading *r, cz_state_dict *outline)
{
    cz_state_dict *state;
    CZ_TRY(cz_state_dict_add_dict(outline, "state", &state));
    for (int64_t i = 0; i < r->state->count; i += 2) {
        const cz__pickle_value *number = cz__pickle_item(r->p, r->state, i);
        const cz__pickle_value *entry = cz__pickle_item(r->p, r->state, i + 1);
        const member key = {.number = number->kind == CZ__PICKLE_INTEGER ? number->integer : -1};
        const member *found =
            number->kind == CZ__PICKLE_INTEGER && r->count > 0
                ? bsearch(&key, r->members, (size_t)r->count, sizeof key, by_number)
                : NULL;
        if (!found || entry->kind != CZ__PICKLE_DICT)
            return cz__torch_refuse(r->c,
                                    "its optimizer has state of something that is no parameter of "
                                    "its groups, or is no dictionary");
        CZ_TRY(put_entry(r, state, found->place, entry));
    }
    return CZ_OK;
}

static cz_status read_all(reading *r)
{
    cz_state_dict *outline;
    CZ_TRY(list_members(r));
    CZ_TRY(name_members(r));
    CZ_TRY(find_rule(r));
    CZ_TRY(cz_state_dict_create(&r->c->outline));
    outline = r->c->outline;
    CZ_TRY(cz_state_dict_set_text(outline, "rule", r->rule_name));
    CZ_TRY(put_state(r, outline));
    return put_groups(r, outline);
}

cz_status cz__torch_read_optimizer(cz__torch_contents *c, const cz__pickle_value *optimizer)
{
    reading r = {.c = c, .p = c->file->pickle};
    r.state = cz__pickle_get(r.p, optimizer, "state");
    r.groups = cz__pickle_get(r.p, optimizer, "param_groups");
    const cz_status status = read_all(&r);
    cz__free(r.members);
    cz__free(r.names);
    return status;
}
