/* SPDX-License-Identifier: MIT */
/* Adam or AdamW? Versions of torch before 2.7 do not write it, but the two give the keys of their groups in different
 * orders, and a group keeps its order through state_dict() and load_state_dict():
 *
 *     AdamW from 1.12 on   … amsgrad, foreach, maximize, capturable …
 *     Adam from 1.12 on    … amsgrad, maximize, foreach, capturable, differentiable (1.13), fused (1.13) …
 *
 * Keys that are missing in an older file are added by a load, by either in the order of Adam. So that order alone says
 * nothing; but it is Adam's where `fused` is a truth value, False being Adam's default in 1.13: a load adds None, and
 * AdamW had no `fused` in 1.13. Keys that the program gave for a group come first, which tears the rows apart. An
 * optimizer that was given the state of the other kind keeps that one's order: it is taken for the other. */
#include "interop/torch_reading.h"

#include <string.h>

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

const char *cz__torch_adam_by_order(const cz__torch_reading *r)
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
