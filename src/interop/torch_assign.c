/* SPDX-License-Identifier: MIT */
/* The members of an optimizer's groups of torch, and what rule it is, which the file does not say. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "czero/rule.h"
#include "interop/torch_reading.h"

typedef cz__torch_reading reading;
typedef cz__torch_member member;

static cz_status no_memory(const reading *r)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", r->c->file->path);
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

/* Of groups that share some of their keys and values, as torch's do; not of one group many times. */
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

static bool has_slot(const cz__torch_rule *rule, const char *slot)
{
    const bool either = rule->decoupled == CZ__TORCH_ABSENT;
    const cz_rule *known = cz_rule_find(either ? "adam" : rule->rule);
    for (int i = 0; known && i < known->slot_count; i++)
        if (strcmp(known->slots[i].name, slot) == 0)
            return true;
    return strcmp(slot, "step") == 0;
}

/* Has the rule what there is of state? */
static bool fits_state(const reading *r, const cz__torch_rule *rule)
{
    const cz__pickle_value *entry = r->state->count > 0 ? cz__pickle_item(r->p, r->state, 1) : NULL;
    for (int64_t i = 0; entry && entry->kind == CZ__PICKLE_DICT && i < entry->count; i += 2) {
        const cz__pickle_value *slot = cz__pickle_item(r->p, entry, i);
        if (slot->kind == CZ__PICKLE_TEXT && !has_slot(rule, slot->text))
            return false;
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
        const int score = here && strcmp(here, rule->rule) == 0 ? 3 : fits_state(r, rule) ? 2 : 1;
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
        r->order = cz__torch_adam_by_order(r);
    if (r->order && r->rule->decoupled == CZ__TORCH_ABSENT)
        r->rule = cz__torch_rule_find(r->order);
    r->rule_name = r->rule ? r->rule->rule : NULL;
    *clear = r->rule != NULL;
    return r->rule ? CZ_OK : refuse_group(r, group);
}

int64_t cz__torch_place(const reading *r, const cz__pickle_value *number)
{
    const member key = {.number = number->integer};
    const member *found = number->kind == CZ__PICKLE_INTEGER && r->count > 0
                              ? bsearch(&key, r->members, (size_t)r->count, sizeof key, by_number)
                              : NULL;
    return found ? found->place : -1;
}

cz_status cz__torch_assign(reading *r, bool *clear)
{
    *clear = true;
    CZ_TRY(list_members(r));
    CZ_TRY(cz__torch_name_members(r, clear));
    return find_rule(r, clear);
}
