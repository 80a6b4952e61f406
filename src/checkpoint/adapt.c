/* SPDX-License-Identifier: MIT */
/* An outline of other parameters than those here: what of it fits. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/compare.h"
#include "optim/optim.h"

typedef struct adaptation {
    const cz_optim *optim;
    const cz__index *here, *file;
    const cz__comparison *comparison;
    cz__names groups; /* of the file: the number of the group that a parameter is in */
    cz__text *notes;
} adaptation;

static bool is_loaded(const adaptation *a, const char *name)
{
    const int64_t place = cz__index_find(a->here, name);
    return place >= 0 && place < a->here->param_count && a->comparison->from[place] >= 0 &&
           cz__optim_group_of(a->optim, place) >= 0;
}

static cz_status adapt_state(const adaptation *a, cz_state_dict *state)
{
    const cz_state_dict *entries = a->file->entries, *entry;
    for (int64_t i = 0; i < cz_state_dict_count(entries); i++) {
        const char *name = cz_state_dict_key(entries, i);
        if (!is_loaded(a, name))
            continue;
        CZ_TRY(cz_state_dict_get_dict(entries, name, &entry));
        CZ_TRY(cz_state_dict_set_dict(state, name, entry));
    }
    return CZ_OK;
}

static cz_status get_group(const cz_state_dict *groups, int64_t number, const cz_state_dict **entry)
{
    char key[24];
    snprintf(key, sizeof key, "%" PRId64, number);
    return cz_state_dict_get_dict(groups, key, entry);
}

/* Which group of the file is each parameter in? */
static cz_status list_members(adaptation *a, const cz_state_dict *groups)
{
    int64_t other;
    for (int64_t g = 0; g < cz_state_dict_count(groups); g++) {
        const cz_state_dict *entry;
        CZ_TRY(get_group(groups, g, &entry));
        const int64_t count = cz_state_dict_text_count(entry, "params");
        if (count > 0 && !cz__names_reserve(&a->groups, count))
            return cz__fail(CZ_ERR_MEMORY, "checkpoint: a table of names");
        for (int64_t k = 0; k < count; k++) {
            const char *name;
            CZ_TRY(cz_state_dict_get_text_at(entry, "params", k, &name));
            if (!cz__names_find(&a->groups, name, &other))
                cz__names_add(&a->groups, name, g);
        }
    }
    return CZ_OK;
}

static const char *member_of(const adaptation *a, int64_t group, int64_t place)
{
    return a->here->stored[cz_optim_group_param(a->optim, group, place)].name;
}

/* The group that the first member known there was in, -1: none is known. That others were in another one is said. */
static int64_t find_group(const adaptation *a, int64_t number)
{
    int64_t first = 0, found = -1, other;
    for (int64_t k = 0; k < cz_optim_group_param_count(a->optim, number); k++) {
        if (!cz__names_find(&a->groups, member_of(a, number, k), &other))
            continue;
        if (found < 0) {
            found = other;
            first = k;
        }
        if (other == found)
            continue;
        cz__text_print(a->notes,
                       "parameter group %" PRId64 " goes on with the values of saved group %" PRId64
                       ", in which '%.60s' was; '%.60s' was in group %" PRId64 "\n",
                       number, found, member_of(a, number, first), member_of(a, number, k), other);
        break;
    }
    return found;
}

/* Where no group is known they stay as they are. */
static cz_status adapt_values(const adaptation *a, const cz_state_dict *groups, int64_t number,
                              cz_state_dict *out)
{
    const cz_state_dict *entry = NULL;
    const int64_t from = find_group(a, number);
    if (from >= 0)
        CZ_TRY(get_group(groups, from, &entry));
    for (int64_t i = 0; entry && i < cz_state_dict_count(entry); i++) {
        const char *key = cz_state_dict_key(entry, i);
        double value;
        if (strcmp(key, "params") == 0)
            continue;
        CZ_TRY(cz_state_dict_get_real(entry, key, &value));
        CZ_TRY(cz_state_dict_set_real(out, key, value));
    }
    return CZ_OK;
}

static cz_status adapt_members(const adaptation *a, int64_t number, cz_state_dict *out)
{
    const int64_t count = cz_optim_group_param_count(a->optim, number);
    const char **names = cz__calloc((size_t)count, sizeof *names);
    if (!names)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: a list of names");
    for (int64_t k = 0; k < count; k++)
        names[k] = member_of(a, number, k);
    const cz_status status = cz_state_dict_set_texts(out, "params", names, count);
    cz__free(names);
    return status;
}

static cz_status adapt_groups(adaptation *a, cz_state_dict *out)
{
    const cz_state_dict *groups;
    CZ_TRY(cz_state_dict_get_dict(a->file->optimizer, "param_groups", &groups));
    CZ_TRY(list_members(a, groups));
    for (int64_t g = 0; g < cz_optim_group_count(a->optim); g++) {
        char key[24];
        cz_state_dict *entry;
        snprintf(key, sizeof key, "%" PRId64, g);
        CZ_TRY(cz_state_dict_add_dict(out, key, &entry));
        CZ_TRY(adapt_values(a, groups, g, entry));
        CZ_TRY(adapt_members(a, g, entry));
    }
    return CZ_OK;
}

static cz_status adapt(adaptation *a, cz_state_dict *out)
{
    const char *rule;
    cz_state_dict *state, *groups;
    CZ_TRY(cz_state_dict_get_text(a->file->optimizer, "rule", &rule));
    CZ_TRY(cz_state_dict_set_text(out, "rule", rule));
    CZ_TRY(cz_state_dict_add_dict(out, "state", &state));
    CZ_TRY(adapt_state(a, state));
    CZ_TRY(cz_state_dict_add_dict(out, "param_groups", &groups));
    return adapt_groups(a, groups);
}

cz_status cz__adapt_outline(cz_state_dict **out, const cz_optim *optim, const cz__index *here,
                            const cz__index *file, const cz__comparison *comparison,
                            cz__text *notes)
{
    adaptation a = {optim, here, file, comparison, {0}, notes};
    CZ_TRY(cz_state_dict_create(out));
    const cz_status status = adapt(&a, *out);
    cz__names_clear(&a.groups);
    if (status != CZ_OK)
        cz_state_dict_destroy(out);
    return status;
}
