/* SPDX-License-Identifier: MIT */
/* Loading: the parameter groups of a state dictionary, their members and values. */
#include "base/memory.h"
#include "base/status.h"
#include "optim/loading.h"

#include <inttypes.h>
#include <string.h>

/* `g` is the group here, `number` the dictionary's for it. */
static cz_status load_names(cz__load *load, int64_t g, int64_t number, const cz_state_dict *entry)
{
    cz_optim *optim = load->optim;
    const int64_t wanted = optim->groups[g].param_count;
    const int64_t count = cz_state_dict_text_count(entry, "params");
    if (count < 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "load: parameter group %" PRId64 " has no list of names 'params'", number);
    if (count != wanted)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "load: parameter group %" PRId64 " has %" PRId64
                        " parameters in the dictionary, %" PRId64 " here",
                        number, count, wanted);
    for (int64_t k = 0; k < count; k++) {
        const char *name;
        CZ_TRY(cz_state_dict_get_text_at(entry, "params", k, &name));
        const int64_t param = cz_model_find(optim->model, name);
        if (param < 0)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "load: parameter '%.60s' of group %" PRId64 " is not in the model",
                            name, number);
        if (optim->group_of[param] != g)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "load: parameter '%.60s' is in group %" PRId64
                            " of the dictionary, which is group %" PRId64
                            " here, and here in group %" PRId64,
                            name, number, g, optim->group_of[param]);
        if (load->params[param].listed)
            return cz__fail(CZ_ERR_ARGUMENT, "load: parameter '%.60s' is twice in group %" PRId64,
                            name, number);
        load->params[param].listed = true;
    }
    return CZ_OK;
}

/* One value of a group: the rule's own, or an added one. */
static cz_status load_hyper(cz__load *load, cz__loaded_group *group, const char *name)
{
    double value;
    CZ_TRY(cz_state_dict_get_real(group->entry, name, &value));
    return cz__rule_has_hyper(load->optim->rule, name)
               ? cz__rule_set(load->optim->rule, group->hypers, name, value)
               : cz__extra_set(group->extras, &group->extra_count, name, value);
}

/* The group's values as they are, with room for those of the dictionary. */
static cz_status begin_group(const cz_optim *optim, int64_t g, cz__loaded_group *group)
{
    const cz__optim_group *present = &optim->groups[g];
    const size_t hypers = (size_t)optim->rule->hyper_count;
    const size_t extras = (size_t)present->extra_count;
    const size_t room = extras + (size_t)cz_state_dict_count(group->entry);
    group->hypers = cz__calloc(hypers, sizeof *group->hypers);
    group->extras = cz__calloc(room, sizeof *group->extras);
    if (!group->hypers || !group->extras)
        return cz__fail(CZ_ERR_MEMORY, "load: %zu hyper-parameters", hypers + room);
    if (hypers > 0)
        memcpy(group->hypers, present->hypers, hypers * sizeof *group->hypers);
    if (extras > 0)
        memcpy(group->extras, present->extras, extras * sizeof *group->extras);
    group->extra_count = present->extra_count;
    return CZ_OK;
}

static cz_status find_entry(const cz_state_dict *groups, int64_t number,
                            const cz_state_dict **entry)
{
    char key[24];
    snprintf(key, sizeof key, "%" PRId64, number);
    return cz_state_dict_get_dict(groups, key, entry);
}

static cz_status load_group(cz__load *load, int64_t g, int64_t number, const cz_state_dict *groups)
{
    const cz_optim *optim = load->optim;
    cz__loaded_group *group = &load->groups[g];
    CZ_TRY(find_entry(groups, number, &group->entry));
    CZ_TRY(begin_group(optim, g, group));
    for (int64_t i = 0; i < cz_state_dict_count(group->entry); i++) {
        const char *name = cz_state_dict_key(group->entry, i);
        if (strcmp(name, "params") != 0)
            CZ_TRY(load_hyper(load, group, name));
    }
    CZ_TRY(cz__rule_check(optim->rule, group->hypers));
    CZ_TRY(cz__rule_check_type(optim->rule, group->hypers, optim->dtype));
    return load_names(load, g, number, group->entry);
}

/* The group here that has the first member of one there; -1: it has none that is known. */
static int64_t group_of_first(const cz_optim *optim, const cz_state_dict *entry)
{
    const char *name;
    if (cz_state_dict_text_count(entry, "params") < 1 ||
        cz_state_dict_get_text_at(entry, "params", 0, &name) != CZ_OK)
        return -1;
    const int64_t param = cz_model_find(optim->model, name);
    return param < 0 ? -1 : optim->group_of[param];
}

/* Which of the dictionary's groups is which here: numbers[g], by members. Those that are left, empty ones among
 * them, in their order. */
static cz_status match(const cz_optim *optim, const cz_state_dict *groups, int64_t *numbers,
                       bool *taken)
{
    const int64_t count = optim->group_count;
    for (int64_t g = 0; g < count; g++)
        numbers[g] = -1;
    for (int64_t n = 0; n < count; n++) {
        const cz_state_dict *entry;
        CZ_TRY(find_entry(groups, n, &entry));
        const int64_t g = group_of_first(optim, entry);
        if (g >= 0 && numbers[g] < 0) {
            numbers[g] = n;
            taken[n] = true;
        }
    }
    for (int64_t g = 0, n = 0; g < count; g++) {
        while (n < count && taken[n])
            n++;
        if (numbers[g] < 0)
            numbers[g] = n++;
    }
    return CZ_OK;
}

static cz_status load_all(cz__load *load, const cz_state_dict *groups, int64_t *numbers,
                          bool *taken)
{
    CZ_TRY(match(load->optim, groups, numbers, taken));
    for (int64_t g = 0; g < load->optim->group_count; g++)
        CZ_TRY(load_group(load, g, numbers[g], groups));
    return CZ_OK;
}

cz_status cz__load_groups(cz__load *load, const cz_state_dict *dict)
{
    const cz_state_dict *groups;
    const int64_t count = load->optim->group_count;
    CZ_TRY(cz_state_dict_get_dict(dict, "param_groups", &groups));
    if (cz_state_dict_count(groups) != count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "load: %" PRId64 " parameter groups in the dictionary, %" PRId64 " here",
                        cz_state_dict_count(groups), count);
    int64_t *numbers = cz__calloc((size_t)count, sizeof *numbers);
    bool *taken = cz__calloc((size_t)count, sizeof *taken);
    const cz_status status =
        numbers && taken
            ? load_all(load, groups, numbers, taken)
            : cz__fail(CZ_ERR_MEMORY, "load: a table of %" PRId64 " parameter groups", count);
    cz__free(numbers);
    cz__free(taken);
    return status;
}
