/* SPDX-License-Identifier: MIT */
/* Tables of rules, which may come from anywhere: what is wrong with one is found before it is used. */
#include "base/status.h"
#include "rule/rule.h"

#include <string.h>

enum { MOST_HYPERS = 1024 }; /* a larger number is no count of a table */

/* Only `abi` and `size` are read before they are known to be right. */
static cz_status check_size(const cz_rule *rule)
{
    if (!rule)
        return cz__fail(CZ_ERR_ARGUMENT, "rule is NULL");
    if (rule->abi != CZ_RULE_ABI || rule->size < sizeof(cz_rule))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "rule: ABI %u of %zu bytes, this library takes %u of at least %zu",
                        (unsigned)rule->abi, rule->size, CZ_RULE_ABI, sizeof(cz_rule));
    return CZ_OK;
}

static cz_status check_entries(const cz_rule *rule)
{
    const char *missing = !rule->name         ? "name"
                          : !rule->slots_used ? "slots_used"
                          : !rule->prepare    ? "prepare"
                                              : NULL;
    if (missing)
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: %s is NULL", rule->name ? rule->name : "?",
                        missing);
    if (!*rule->name)
        return cz__fail(CZ_ERR_ARGUMENT, "rule: its name is empty");
    return CZ_OK;
}

static cz_status check_hypers(const cz_rule *rule)
{
    if (rule->hyper_count < 0 || rule->hyper_count > MOST_HYPERS ||
        (rule->hyper_count > 0 && !rule->hypers))
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: no table of its %d hyper-parameters", rule->name,
                        rule->hyper_count);
    for (int i = 0; i < rule->hyper_count; i++) {
        const char *name = rule->hypers[i].name;
        if (!name || !*name)
            return cz__fail(CZ_ERR_ARGUMENT, "rule %s: hyper-parameter %d has no name", rule->name,
                            i);
        for (int k = 0; k < i; k++)
            if (strcmp(rule->hypers[k].name, name) == 0)
                return cz__fail(CZ_ERR_ARGUMENT, "rule %s: it has two hyper-parameters '%s'",
                                rule->name, name);
    }
    return CZ_OK;
}

static cz_status check_slot(const cz_rule *rule, int i)
{
    const cz_slot_spec *slot = &rule->slots[i];
    if (!slot->name || !*slot->name)
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: slot %d has no name", rule->name, i);
    if (slot->kind != CZ_SLOT_ELEMENT && slot->kind != CZ_SLOT_SCALAR)
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "rule %s: slot '%s' is of kind %d, allowed are element (%d) and scalar (%d)",
            rule->name, slot->name, (int)slot->kind, CZ_SLOT_ELEMENT, CZ_SLOT_SCALAR);
    if (slot->kind != CZ_SLOT_SCALAR && strcmp(slot->name, "step") == 0)
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: slot 'step' is the step count, a scalar",
                        rule->name);
    if (slot->initial_hyper && !cz__rule_has_hyper(rule, slot->initial_hyper))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "rule %s: slot '%s' starts with hyper-parameter '%s', it has none of that "
                        "name",
                        rule->name, slot->name, slot->initial_hyper);
    for (int k = 0; k < i; k++)
        if (strcmp(rule->slots[k].name, slot->name) == 0)
            return cz__fail(CZ_ERR_ARGUMENT, "rule %s: it has two slots '%s'", rule->name,
                            slot->name);
    return CZ_OK;
}

static cz_status check_slots(const cz_rule *rule)
{
    if (rule->slot_count < 0 || rule->slot_count > CZ__RULE_SLOTS ||
        (rule->slot_count > 0 && !rule->slots))
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: %d slots, allowed are 0 to %d in a table",
                        rule->name, rule->slot_count, CZ__RULE_SLOTS);
    for (int i = 0; i < rule->slot_count; i++)
        CZ_TRY(check_slot(rule, i));
    return CZ_OK;
}

/* Partial sums and whole tensors: all that belongs to one of them, and not both. */
static cz_status check_passes(const cz_rule *rule)
{
    if (rule->sum_count < 0 || rule->sum_count > CZ_RULE_SUMS)
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: %d partial sums, allowed are 0 to %d",
                        rule->name, rule->sum_count, CZ_RULE_SUMS);
    if (rule->sum_count > 0 && (!rule->find_sums || !rule->combine))
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: it has %d partial sums and %s is NULL",
                        rule->name, rule->sum_count, rule->find_sums ? "combine" : "find_sums");
    if (rule->sum_count > 0 && rule->update_tensor)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "rule %s: it has both partial sums and update_tensor, which sees whole "
                        "tensors",
                        rule->name);
    return CZ_OK;
}

cz_status cz__rule_check_table(const cz_rule *rule)
{
    CZ_TRY(check_size(rule));
    CZ_TRY(check_entries(rule));
    CZ_TRY(check_hypers(rule));
    CZ_TRY(check_slots(rule));
    return check_passes(rule);
}
