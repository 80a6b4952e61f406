/* SPDX-License-Identifier: MIT */
/* Hyper-parameters while training: checked for all groups before any of them changes. */
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "optim/object.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

unsigned cz__optim_slots_used(const cz_optim *optim, const double *hypers)
{
    return cz__rule_element_slots(optim->rule, hypers);
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
    CZ_TRY(cz__rule_check_type(optim->rule, optim->values, optim->dtype));
    group->slots_wanted = cz__optim_slots_used(optim, optim->values);
    return CZ_OK;
}

static cz_status try_range(cz_optim *optim, int64_t first, int64_t last, const char *name,
                           double value)
{
    unsigned more = 0;
    for (int64_t k = first; k <= last; k++) {
        CZ_TRY(try_value(optim, &optim->groups[k], name, value));
        more |= optim->groups[k].slots_wanted & ~optim->groups[k].slots_used;
    }
    /* That goes through all parameters; a rate that changes in each step and group wants no memory. */
    return more ? cz__optim_reserve(optim, &optim->shard) : CZ_OK;
}

/* The group's added value of that name, NULL if there is none. */
static cz__extra *find_extra(const cz__optim_group *group, const char *name)
{
    for (int i = 0; i < group->extra_count; i++)
        if (strcmp(group->extras[i].name, name) == 0)
            return &group->extras[i];
    return NULL;
}

static cz_status set_of_rule(cz_optim *optim, int64_t first, int64_t last, const char *name,
                             double value)
{
    const cz_status status = try_range(optim, first, last, name, value);
    for (int64_t k = first; k <= last; k++) {
        cz__optim_group *group = &optim->groups[k];
        if (status == CZ_OK) {
            cz__optim_groups_changed(optim);
            (void)cz__rule_set(optim->rule, group->hypers, name, value);
            group->slots_used = group->slots_wanted;
            memset(group->prepared, 0, CZ__PREPARED * sizeof *group->prepared);
        }
        group->slots_wanted = group->slots_used;
    }
    return status;
}

static cz_status check_finite(const char *name, double value)
{
    return isfinite(value) ? CZ_OK
                           : cz__fail(CZ_ERR_ARGUMENT,
                                      "optim: %s is %g, allowed is a finite number", name, value);
}

/* Every group has it: set all. */
static cz_status set_extra(cz_optim *optim, int64_t first, int64_t last, const char *name,
                           double value)
{
    CZ_TRY(check_finite(name, value));
    cz__optim_groups_changed(optim);
    for (int64_t k = first; k <= last; k++)
        find_extra(&optim->groups[k], name)->value = value;
    return CZ_OK;
}

cz_status cz_optim_set_hyper(cz_optim *optim, int64_t param_group, const char *name, double value)
{
    CZ__OWN_FLOATS;
    const bool all = param_group == CZ_ALL_GROUPS;
    const int64_t first = all ? 0 : param_group;
    CZ_TRY(check_call(optim, first, name));
    const int64_t last = all ? optim->group_count - 1 : param_group;
    bool added = true;
    for (int64_t k = first; k <= last; k++)
        added = added && find_extra(&optim->groups[k], name);
    return added ? set_extra(optim, first, last, name, value)
                 : set_of_rule(optim, first, last, name, value);
}

cz_status cz_optim_get_hyper(const cz_optim *optim, int64_t param_group, const char *name,
                             double *value)
{
    CZ__OWN_FLOATS;
    int place;
    CZ_TRY(check_call(optim, param_group, name));
    if (!value)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: value is NULL");
    const cz__extra *extra = find_extra(&optim->groups[param_group], name);
    if (extra) {
        *value = extra->value;
        return CZ_OK;
    }
    CZ_TRY(cz__rule_find_hyper(optim->rule, name, &place));
    *value = optim->groups[param_group].hypers[place];
    return CZ_OK;
}

cz_status cz__extra_set(cz__extra *extras, int *count, const char *name, double value)
{
    const size_t length = strlen(name);
    if (length == 0 || length >= sizeof extras->name)
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "optim: hyper-parameter name '%.70s' of %zu characters, allowed are 1 to %zu", name,
            length, sizeof extras->name - 1);
    if (strcmp(name, "params") == 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim: 'params' is no name for a hyper-parameter: it is that of a group's "
                        "members in a state dictionary");
    CZ_TRY(check_finite(name, value));
    int place = 0;
    while (place < *count && strcmp(extras[place].name, name) != 0)
        place++;
    if (place == *count)
        snprintf(extras[(*count)++].name, sizeof extras->name, "%s", name);
    extras[place].value = value;
    return CZ_OK;
}

cz_status cz_optim_add_hyper(cz_optim *optim, int64_t param_group, const char *name, double value)
{
    CZ__OWN_FLOATS;
    CZ_TRY(check_call(optim, param_group, name));
    cz__optim_group *group = &optim->groups[param_group];
    const size_t count = (size_t)group->extra_count;
    if (cz__rule_has_hyper(optim->rule, name))
        return cz__fail(CZ_ERR_ARGUMENT, "optim: '%s' is a hyper-parameter of %s already", name,
                        optim->rule->name);
    cz__extra *extras = cz__calloc(count + 1, sizeof *extras);
    if (!extras)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for hyper-parameter '%s'", name);
    if (count > 0)
        memcpy(extras, group->extras, count * sizeof *extras);
    const cz_status status = cz__extra_set(extras, &group->extra_count, name, value);
    cz__free(status == CZ_OK ? group->extras : extras);
    if (status == CZ_OK)
        group->extras = extras;
    cz__optim_groups_changed(optim);
    return status;
}

int cz_optim_hyper_count(const cz_optim *optim, int64_t param_group)
{
    if (!optim || param_group < 0 || param_group >= optim->group_count)
        return 0;
    return optim->rule->hyper_count + optim->groups[param_group].extra_count;
}

const char *cz_optim_hyper_name(const cz_optim *optim, int64_t param_group, int index)
{
    if (index < 0 || index >= cz_optim_hyper_count(optim, param_group))
        return NULL;
    const int own = optim->rule->hyper_count;
    return index < own ? optim->rule->hypers[index].name
                       : optim->groups[param_group].extras[index - own].name;
}
