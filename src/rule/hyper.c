/* SPDX-License-Identifier: MIT */
/* Hyper-parameters: found by name, held to their ranges. */
#include "base/plain_text.h"
#include "base/status.h"
#include "rule/rule.h"

#include <math.h>
#include <string.h>

/* "lr, beta1, beta2", as much of it as there is room for. */
static void list_names(const cz_rule *rule, char *text, size_t room)
{
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < rule->hyper_count && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s", i > 0 ? ", " : "",
                                 rule->hypers[i].name);
}

cz_status cz__rule_find_hyper(const cz_rule *rule, const char *name, int *place)
{
    char names[256];
    for (int i = 0; i < rule->hyper_count; i++) {
        if (strcmp(rule->hypers[i].name, name) == 0) {
            *place = i;
            return CZ_OK;
        }
    }
    list_names(rule, names, sizeof names);
    return cz__fail(CZ_ERR_ARGUMENT, "%s: no hyper-parameter '%s' (it has %s)", rule->name, name,
                    names);
}

bool cz__rule_has_hyper(const cz_rule *rule, const char *name)
{
    for (int i = 0; i < rule->hyper_count; i++)
        if (strcmp(rule->hypers[i].name, name) == 0)
            return true;
    return false;
}

static bool in_range(const cz_hyper_spec *spec, double value)
{
    if (!isfinite(value))
        return false;
    if (spec->flag)
        return value == 0 || value == 1;
    return value >= spec->minimum &&
           (spec->below_maximum ? value < spec->maximum : value <= spec->maximum);
}

static cz_status refuse(const cz_rule *rule, const cz_hyper_spec *spec, double value)
{
    CZ__PLAIN_TEXT;
    char range[128] = "a finite number";
    const char *above = spec->below_maximum ? "<" : "<=";
    if (spec->flag)
        snprintf(range, sizeof range, "0 or 1");
    else if (isfinite(spec->minimum) && isfinite(spec->maximum))
        snprintf(range, sizeof range, "%g <= %s %s %g", spec->minimum, spec->name, above,
                 spec->maximum);
    else if (isfinite(spec->minimum))
        snprintf(range, sizeof range, "%g <= %s, finite", spec->minimum, spec->name);
    else if (isfinite(spec->maximum))
        snprintf(range, sizeof range, "%s %s %g, finite", spec->name, above, spec->maximum);
    return cz__fail(CZ_ERR_ARGUMENT, "%s: %s is %g, allowed is %s", rule->name, spec->name, value,
                    range);
}

cz_status cz__rule_set(const cz_rule *rule, double *values, const char *name, double value)
{
    int place;
    CZ_TRY(cz__rule_find_hyper(rule, name, &place));
    if (!in_range(&rule->hypers[place], value))
        return refuse(rule, &rule->hypers[place], value);
    values[place] = value;
    return CZ_OK;
}

void cz__rule_defaults(const cz_rule *rule, double *values)
{
    for (int i = 0; i < rule->hyper_count; i++)
        values[i] = rule->hypers[i].initial;
}

cz_status cz__rule_set_list(const cz_rule *rule, double *values, const cz_hyper *list)
{
    for (; list && list->name; list++)
        CZ_TRY(cz__rule_set(rule, values, list->name, list->value));
    return CZ_OK;
}

cz_status cz__rule_check(const cz_rule *rule, const double *values)
{
    for (int i = 0; i < rule->hyper_count; i++)
        if (isnan(values[i]))
            return cz__fail(CZ_ERR_ARGUMENT, "%s: %s has no default and was not given", rule->name,
                            rule->hypers[i].name);
    return rule->check ? rule->check(values) : CZ_OK;
}

unsigned cz__rule_element_slots(const cz_rule *rule, const double *values)
{
    const unsigned used = rule->slots_used(values);
    unsigned elements = 0;
    int e = 0;
    for (int i = 0; i < rule->slot_count; i++)
        if (rule->slots[i].kind == CZ_SLOT_ELEMENT)
            elements |= (used >> i & 1u) << e++;
    return elements;
}
