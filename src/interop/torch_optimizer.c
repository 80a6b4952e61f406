/* SPDX-License-Identifier: MIT */
/* An optimizer's state dictionary of torch, where parameters are numbers and the rule has no name,
 * as the outline that a checkpoint has, where both have names. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "czero/rule.h"
#include "interop/torch.h"
#include "optim/optim.h"

typedef cz__torch_reading reading;

/* What a dictionary refuses is the file's fault. */
static cz_status files_fault(const reading *r, cz_status status)
{
    return status == CZ_ERR_STATE || status == CZ_ERR_ARGUMENT
               ? cz__fail_in(CZ_ERR_FORMAT, cz__text_get(&r->c->file->where))
               : status;
}

/* ---- the rule: Adam or AdamW ---- */

/* Adam or AdamW? Versions of torch before 2.7 do not write it, but the two give the keys of their
 * groups in different orders, and a group keeps its order through state_dict() and
 * load_state_dict():
 *
 *     AdamW from 1.12 on   … amsgrad, foreach, maximize, capturable …
 *     Adam from 1.12 on    … amsgrad, maximize, foreach, capturable …
 *     Adam in 1.13         … and then: differentiable, fused …
 *
 * Keys that are missing in an older file are added by a load, by either in the order of Adam. So
 * that order alone says nothing; but it is Adam's where `fused` is a truth value, False being
 * Adam's default in 1.13: a load adds None, and AdamW had no `fused` in 1.13. Keys that the program
 * gave for a group come first, which tears the rows apart. An optimizer that was given the state of
 * the other kind keeps that one's order: it is taken for the other. */
static const char *const row_of_adamw[] = {"amsgrad", "foreach", "maximize", "capturable", NULL};
static const char *const row_of_adam[] = {"amsgrad",        "maximize", "foreach", "capturable",
                                          "differentiable", "fused",    NULL};

/* Has the group these keys, one after the other? */
static bool has_row(const cz__pickle *p, const cz__pickle_value *group, const char *const *row)
{
    int found = 0;
    for (int64_t i = 0; row[found] && i < group->count; i += 2) {
        const cz__pickle_value *key = cz__pickle_item(p, group, i);
        if (!cz__pickle_is_text(key, row[found]))
            found = 0;
        found += cz__pickle_is_text(key, row[found]);
    }
    return !row[found];
}

static bool is_switch(const cz__pickle_value *value)
{
    return value && value->kind == CZ__PICKLE_BOOL;
}

static const char *rule_of_group(const cz__pickle *p, const cz__pickle_value *group)
{
    if (has_row(p, group, row_of_adamw))
        return "adamw";
    return has_row(p, group, row_of_adam) && is_switch(cz__pickle_get(p, group, "fused")) ? "adam"
                                                                                          : NULL;
}

/* "adam" or "adamw", for groups that are one's of them and do not say it; NULL: no saying. */
static const char *adam_by_order(const reading *r)
{
    const char *rule = NULL;
    for (int64_t g = 0; g < r->groups->count; g++) {
        const cz__pickle_value *group = cz__pickle_item(r->p, r->groups, g);
        const char *this = rule_of_group(r->p, group);
        if (cz__pickle_get(r->p, group, "decoupled_weight_decay") ||
            (this && rule && strcmp(this, rule) != 0))
            return NULL;
        rule = this ? this : rule;
    }
    return rule;
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
        decoupled->integer != rule->decoupled) /* nor is either CZ__TORCH_ABSENT */
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

/* The f32 copy of a value in the state, in the words of TransformerEngine, which czero writes, of
 * Megatron-LM, and of others. */
static bool is_master(const char *slot)
{
    static const char *const names[] = {CZ__MASTER, "fp32_param", "master_weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], slot) == 0)
            return true;
    return false;
}

static bool has_slot(const cz__torch_rule *rule, const char *slot)
{
    const bool either = rule->decoupled == CZ__TORCH_ABSENT;
    const cz_rule *known = cz_rule_find(either ? "adam" : rule->rule);
    if (known) {
        for (int i = 0; i < known->slot_count; i++)
            if (strcmp(known->slots[i].name, slot) == 0)
                return true;
    }
    return strcmp(slot, "step") == 0 || is_master(slot) || strcmp(slot, CZ__AVERAGE) == 0 ||
           strcmp(slot, CZ__AVERAGED) == 0;
}

/* Has the rule what there is of state? */
static bool fits_state(const reading *r, const cz__torch_rule *rule)
{
    const cz__pickle_value *entry = r->state->count > 0 ? cz__pickle_item(r->p, r->state, 1) : NULL;
    if (entry && entry->kind == CZ__PICKLE_DICT) {
        for (int64_t i = 0; i < entry->count; i += 2) {
            const cz__pickle_value *slot = cz__pickle_item(r->p, entry, i);
            if (slot->kind == CZ__PICKLE_TEXT && !has_slot(rule, slot->text))
                return false;
        }
    }
    return true;
}

/* Of those whose groups fit: the one here; one that has the state too; the first. */
static void choose_rule(reading *r, const char *here, const cz__pickle_value *group)
{
    int best = 0;
    for (int i = 0; cz__torch_rule_at(i); i++) {
        const cz__torch_rule *rule = cz__torch_rule_at(i);
        if (!fits(r, rule, group))
            continue;
        int score = fits_state(r, rule) ? 2 : 1;
        if (here && strcmp(here, rule->rule) == 0)
            score = 3;
        r->ambiguous = score == best || (r->ambiguous && score < best);
        r->rule = score > best ? rule : r->rule;
        best = score > best ? score : best;
    }
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

static bool is_adam(const cz__torch_rule *rule)
{
    return rule->decoupled == CZ__TORCH_ABSENT || strcmp(rule->rule, "adam") == 0 ||
           strcmp(rule->rule, "adamw") == 0;
}

/* torch does not write its name. */
static cz_status find_rule(reading *r, bool *clear)
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
    choose_rule(r, here, group);
    if (r->rule && is_adam(r->rule))
        r->order = adam_by_order(r);
    if (r->order && r->rule->decoupled == CZ__TORCH_ABSENT)
        r->rule = cz__torch_rule_find(r->order);
    r->rule_name = r->rule ? r->rule->rule : NULL;
    *clear = r->rule != NULL;
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

/* Older versions have not got all switches: as if they were off. */
static cz_status put_defaults(const reading *r, cz_state_dict *to)
{
    if (!r->rule)
        return CZ_OK;
    for (int i = 0; i < CZ__TORCH_HYPERS && r->rule->hypers[i].key; i++) {
        const cz__torch_hyper *hyper = &r->rule->hypers[i];
        if (hyper->optional && cz_state_dict_kind(to, hyper->ours[0]) == CZ_STATE_NONE)
            CZ_TRY(cz_state_dict_set_real(to, hyper->ours[0], 0));
    }
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
    return put_defaults(r, to);
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
    if (is_master(slot))
        slot = CZ__MASTER;
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
        const int64_t place = cz__torch_place(r, number);
        if (place < 0 || entry->kind != CZ__PICKLE_DICT)
            return cz__torch_refuse(r->c, "its optimizer has state of something that is no "
                                          "parameter of its groups, or is no dictionary");
        CZ_TRY(put_entry(r, state, place, entry));
    }
    return CZ_OK;
}

static cz_status put_all(reading *r)
{
    cz_state_dict *outline;
    CZ_TRY(cz_state_dict_create(&r->c->outline));
    outline = r->c->outline;
    CZ_TRY(cz_state_dict_set_text(outline, "rule", r->rule_name));
    CZ_TRY(put_state(r, outline));
    return put_groups(r, outline);
}

#define ASK "; czero convert --rule NAME says which it is"

static cz_status note_rule(reading *r)
{
    const char *where = cz__text_get(&r->c->file->where);
    if (r->order && strcmp(r->order, r->rule_name) != 0)
        return cz__torch_note(r->c,
                              "%s: its optimizer is taken for %s, as wanted, but torch's %s gives "
                              "its keys in that order",
                              where, r->rule_name, r->order);
    if (!r->ambiguous)
        return CZ_OK;
    if (r->order)
        return cz__torch_note(
            r->c, "%s: its optimizer is taken for %s, as torch's gives its keys in that order" ASK,
            where, r->rule_name);
    if (r->rule->decoupled == CZ__TORCH_ABSENT)
        return cz__torch_note(r->c,
                              "%s: its optimizer is Adam or AdamW, the file does not say which: a "
                              "load by either takes it" ASK,
                              where);
    return cz__torch_note(r->c, "%s: its optimizer is taken for %s, others would look the same" ASK,
                          where, r->rule_name);
}

/* What nobody can assign who has not the model does not stand in the way of the rest of the
 * file. */
static cz_status read_all(reading *r)
{
    bool clear;
    cz_status status = cz__torch_name_members(r, &clear);
    if (!status)
        status = find_rule(r, &clear);
    r->c->state_left = status == CZ_ERR_FORMAT && !clear && !cz__torch_knows_model(r->c->here);
    if (r->c->state_left)
        return cz__torch_note(r->c,
                              "%s; its state is left: an import that knows the model reads it",
                              cz_last_error());
    CZ_TRY(status);
    CZ_TRY(note_rule(r));
    return put_all(r);
}

cz_status cz__torch_read_optimizer(cz__torch_contents *c, const cz__pickle_value *optimizer)
{
    static const cz__pickle_value none = {.kind = CZ__PICKLE_DICT};
    reading r = {.c = c, .p = c->file->pickle};
    r.state = cz__pickle_get(r.p, optimizer, "state");
    r.state = r.state ? r.state : &none;
    r.groups = cz__pickle_get(r.p, optimizer, "param_groups");
    const cz_status status = read_all(&r);
    cz__free(r.members);
    cz__free(r.names);
    cz__names_clear(&r.model);
    cz__names_clear(&r.named);
    return status;
}
