/* SPDX-License-Identifier: MIT */
/* Hyper-parameters while training: checked for all groups before any of them changes. */
#include "base/status.h"
#include "optim/object.h"

#include <inttypes.h>
#include <string.h>

unsigned cz__optim_slots_used(const cz_optim *optim, const double *hypers)
{
    const cz_rule *rule = optim->rule;
    const unsigned used = rule->slots_used(hypers);
    unsigned elements = 0;
    int e = 0;
    for (int i = 0; i < rule->slot_count; i++)
        if (rule->slots[i].kind == CZ_SLOT_ELEMENT)
            elements |= (used >> i & 1u) << e++;
    return elements;
}

static cz_status check_call(const cz_optim *optim, int64_t param_group, const char *name)
{
    if (!optim || !name)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: %s is NULL", optim ? "name" : "optim");
    if (param_group < 0 || param_group >= optim->group_count)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: parameter group %" PRId64 ", there are %" PRId64,
                        param_group, optim->group_count);
    return CZ_OK;
}

/* Would the group's values be right with this one, and which slots would they want? */
static cz_status try_value(cz_optim *optim, cz__optim_group *group, const char *name, double value)
{
    const size_t bytes = (size_t)optim->rule->hyper_count * sizeof *group->hypers;
    if (bytes > 0)
        memcpy(optim->values, group->hypers, bytes);
    CZ_TRY(cz__rule_set(optim->rule, optim->values, name, value));
    CZ_TRY(cz__rule_check(optim->rule, optim->values));
    group->slots_wanted = cz__optim_slots_used(optim, optim->values);
    return CZ_OK;
}

static cz_status try_range(cz_optim *optim, int64_t first, int64_t last, const char *name,
                           double value)
{
    for (int64_t k = first; k <= last; k++)
        CZ_TRY(try_value(optim, &optim->groups[k], name, value));
    return cz__optim_reserve(optim);
}

cz_status cz_optim_set_hyper(cz_optim *optim, int64_t param_group, const char *name, double value)
{
    const bool all = param_group == CZ_ALL_GROUPS;
    const int64_t first = all ? 0 : param_group;
    CZ_TRY(check_call(optim, first, name));
    const int64_t last = all ? optim->group_count - 1 : param_group;
    const cz_status status = try_range(optim, first, last, name, value);
    for (int64_t k = first; k <= last; k++) {
        cz__optim_group *group = &optim->groups[k];
        if (status == CZ_OK) {
            (void)cz__rule_set(optim->rule, group->hypers, name, value);
            group->slots_used = group->slots_wanted;
            memset(group->prepared, 0, CZ__PREPARED * sizeof *group->prepared);
        }
        group->slots_wanted = group->slots_used;
    }
    return status;
}

cz_status cz_optim_get_hyper(const cz_optim *optim, int64_t param_group, const char *name,
                             double *value)
{
    int place;
    CZ_TRY(check_call(optim, param_group, name));
    if (!value)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: value is NULL");
    CZ_TRY(cz__rule_find_hyper(optim->rule, name, &place));
    *value = optim->groups[param_group].hypers[place];
    return CZ_OK;
}
