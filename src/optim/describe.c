/* SPDX-License-Identifier: MIT */
/* What optimizers of several ranks have in common: rules, parameter groups, hyper-parameters. */
#include "optim/describe.h"

#include <string.h>

#include "optim/object.h"

void cz__describe_rule(cz__description *d, const cz_rule *rule)
{
    cz__describe(d, &(cz__subject){NULL, "the rule", -1, NULL, "is"}, CZ__FIELD_TEXT, rule->name,
                 strlen(rule->name));
    const struct {
        const char *what;
        int64_t value;
    } numbers[] = {{"the number of hyper-parameters", rule->hyper_count},
                   {"the number of partial sums", rule->sum_count},
                   {"state_at_create", rule->state_at_create},
                   {"the number of slots", rule->slot_count}};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        cz__describe_number(d, &(cz__subject){numbers[k].what, "rule", -1, rule->name, "is"},
                            CZ__FIELD_NUMBER, numbers[k].value);
    cz__describe_word(d, &(cz__subject){"update_tensor", "rule", -1, rule->name, "is"},
                      (const char *const[]){"absent", "given", NULL}, rule->update_tensor != NULL);
    for (int s = 0; s < rule->slot_count && d->status == CZ_OK; s++) {
        const cz_slot_spec *slot = &rule->slots[s];
        cz__describe(d, &(cz__subject){"the name", "slot", s, NULL, "is"}, CZ__FIELD_TEXT,
                     slot->name, strlen(slot->name));
        cz__describe_number(d, &(cz__subject){"the kind", "slot", s, slot->name, "is"},
                            CZ__FIELD_NUMBER, slot->kind);
    }
}

void cz__describe_members(cz__description *d, const cz_optim *optim)
{
    const int64_t groups = cz_optim_group_count(optim);
    cz__describe_number(d, &(cz__subject){NULL, "the number of parameter groups", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, groups);
    for (int64_t g = 0; g < groups && d->status == CZ_OK; g++) {
        int64_t count = 0;
        const int64_t *params = cz__optim_group_params(optim, g, &count);
        cz__describe_number(d, &(cz__subject){"size", "parameter group", g, NULL, "is"},
                            CZ__FIELD_NUMBER, count);
        for (int64_t k = 0; k < count && d->status == CZ_OK; k++)
            cz__describe_number(
                d, &(cz__subject){"a member", "parameter group", g, NULL, "is parameter"},
                CZ__FIELD_NUMBER, params[k]);
    }
}

/* With the names of those that were added. */
static void describe_hypers(cz__description *d, const cz_optim *optim, int64_t g)
{
    const int count = cz_optim_hyper_count(optim, g);
    cz__describe_number(
        d, &(cz__subject){"the number of hyper-parameters", "parameter group", g, NULL, "is"},
        CZ__FIELD_NUMBER, count);
    for (int h = 0; h < count; h++) {
        const char *name = cz_optim_hyper_name(optim, g, h);
        double value = 0;
        (void)cz_optim_get_hyper(optim, g, name, &value);
        if (h >= optim->rule->hyper_count)
            cz__describe(
                d, &(cz__subject){"an added hyper-parameter", "parameter group", g, NULL, "is"},
                CZ__FIELD_TEXT, name, strlen(name));
        cz__describe(d, &(cz__subject){name, "parameter group", g, NULL, "is"}, CZ__FIELD_REAL,
                     &value, sizeof value);
    }
}

void cz__describe_hypers(cz__description *d, const cz_optim *optim)
{
    for (int64_t g = 0; g < cz_optim_group_count(optim) && d->status == CZ_OK; g++)
        describe_hypers(d, optim, g);
}
