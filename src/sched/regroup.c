/* SPDX-License-Identifier: MIT */
/* Which parameter group that was saved is which here: found by members, as the optimizer's own values are. */
#include "base/memory.h"
#include "base/status.h"
#include "optim/optim.h"
#include "sched/regroup.h"
#include "tensor/names.h"

#include <inttypes.h>

static const char *member_of(const cz_sched *s, int64_t group, int64_t place)
{
    return cz_model_name(cz__optim_model(s->optim), cz_optim_group_param(s->optim, group, place));
}

cz_status cz__regroup_write(const cz_sched *s, cz_state_dict *dict)
{
    cz_state_dict *groups;
    CZ_TRY(cz_state_dict_add_dict(dict, "param_groups", &groups));
    for (int64_t g = 0; g < s->group_count; g++) {
        char key[24];
        const int64_t count = cz_optim_group_param_count(s->optim, g);
        const char **names = cz__calloc((size_t)count, sizeof *names);
        if (!names)
            return cz__fail(CZ_ERR_MEMORY, "scheduler state: %" PRId64 " names", count);
        for (int64_t k = 0; k < count; k++)
            names[k] = member_of(s, g, k);
        snprintf(key, sizeof key, "%" PRId64, g);
        const cz_status status = cz_state_dict_set_texts(groups, key, names, count);
        cz__free(names);
        CZ_TRY(status);
    }
    return CZ_OK;
}

/* ---- reading ---- */

static cz_status list_group(cz__names *names, const cz_state_dict *groups, int64_t g)
{
    char key[24];
    snprintf(key, sizeof key, "%" PRId64, g);
    const int64_t count = cz_state_dict_text_count(groups, key);
    if (count < 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "scheduler state: 'param_groups' has no list of names '%s'", key);
    if (!cz__names_reserve(names, count))
        return cz__fail(CZ_ERR_MEMORY, "scheduler state: a table of %" PRId64 " names", count);
    for (int64_t k = 0; k < count; k++) {
        int64_t other;
        const char *name;
        CZ_TRY(cz_state_dict_get_text_at(groups, key, k, &name));
        if (cz__names_find(names, name, &other))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "scheduler state: '%.60s' is in saved parameter groups %" PRId64
                            " and %" PRId64,
                            name, other, g);
        cz__names_add(names, name, g);
    }
    return CZ_OK;
}

/* The saved group that has the members of one here; -1: none has any of them. */
static cz_status find_saved(const cz_sched *s, const cz__names *names, int64_t g, int64_t *saved)
{
    int64_t first = 0, other;
    *saved = -1;
    for (int64_t k = 0; k < cz_optim_group_param_count(s->optim, g); k++) {
        if (!cz__names_find(names, member_of(s, g, k), &other))
            continue;
        if (*saved < 0) {
            *saved = other;
            first = k;
        }
        if (*saved != other)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "scheduler state: parameter group %" PRId64
                            " has '%.60s' of saved group %" PRId64
                            " and '%.60s' of saved group %" PRId64
                            ": which rates it is to go on with is not known",
                            g, member_of(s, g, first), *saved, member_of(s, g, k), other);
    }
    return CZ_OK;
}

/* A group without members: those that were saved, in turn. */
static int64_t find_empty(const cz_state_dict *groups, int64_t saved, int64_t *next)
{
    char key[24];
    while (*next < saved) {
        snprintf(key, sizeof key, "%" PRId64, *next);
        if (cz_state_dict_text_count(groups, key) == 0)
            return (*next)++;
        ++*next;
    }
    return -1;
}

/* None that was saved is left: its rates would be lost. */
static cz_status check_all_found(const cz__regroup *r, const cz_state_dict *groups)
{
    for (int64_t n = 0; n < r->saved_count; n++) {
        char key[24];
        const char *name = NULL;
        if (r->found[n])
            continue;
        snprintf(key, sizeof key, "%" PRId64, n);
        if (cz_state_dict_text_count(groups, key) > 0)
            CZ_TRY(cz_state_dict_get_text_at(groups, key, 0, &name));
        return cz__fail(CZ_ERR_ARGUMENT,
                        "scheduler state: saved parameter group %" PRId64
                        " (%s%.60s%s) is none of the optimizer's",
                        n, name ? "with '" : "without members", name ? name : "", name ? "'" : "");
    }
    return CZ_OK;
}

static cz_status match(cz__regroup *r, const cz_sched *s, const cz_state_dict *groups,
                       const cz__names *names)
{
    const int64_t count = cz_optim_group_count(s->optim);
    int64_t next_empty = 0, unknown = -1;
    for (int64_t g = 0; g < count; g++) {
        int64_t saved;
        CZ_TRY(find_saved(s, names, g, &saved));
        if (saved < 0 && cz_optim_group_param_count(s->optim, g) == 0)
            saved = find_empty(groups, r->saved_count, &next_empty);
        if (saved < 0) {
            unknown = unknown < 0 ? g : unknown;
            continue;
        }
        if (unknown >= 0)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "scheduler state: no member of parameter group %" PRId64
                            " was saved, and those of group %" PRId64
                            " were: groups that are new come after the others",
                            unknown, g);
        r->from[r->count++] = saved;
        r->found[saved] = 1;
    }
    return check_all_found(r, groups);
}

static cz_status read_members(cz__regroup *r, const cz_sched *s, const cz_state_dict *groups)
{
    cz__names names = {0};
    cz_status status = CZ_OK;
    r->saved_count = cz_state_dict_count(groups);
    r->found = cz__calloc((size_t)r->saved_count, sizeof *r->found);
    if (!r->found)
        return cz__fail(CZ_ERR_MEMORY, "scheduler state: %" PRId64 " parameter groups",
                        r->saved_count);
    for (int64_t g = 0; status == CZ_OK && g < r->saved_count; g++)
        status = list_group(&names, groups, g);
    if (status == CZ_OK)
        status = match(r, s, groups, &names);
    cz__names_clear(&names);
    return status;
}

/* What a group had at first, or has, against what was saved for it. */
static bool has_rate(const cz_sched *s, int64_t g, const char *name, double saved)
{
    double value = 0;
    return cz_optim_get_hyper(s->optim, g, name, &value) == CZ_OK && value == saved;
}

/* An older library saved it without members. The order of groups is the one of then if their rates are; where all have
 * one rate that says nothing, and lists of options may still be exchanged. */
static cz_status trust_order(cz__regroup *r, const cz_sched *s, const cz_state_dict *dict)
{
    cz_tensor last;
    CZ_TRY(cz_state_dict_get_tensor(dict, "last_lr", &last));
    r->saved_count = last.dimensions == 1 && last.dtype == CZ_F64 ? last.shape[0] : 0;
    const int64_t here = cz_optim_group_count(s->optim);
    if (r->saved_count > here)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "scheduler state: 'last_lr' is of %" PRId64
                        " parameter groups, the optimizer has %" PRId64,
                        r->saved_count, here);
    for (int64_t g = 0; g < r->saved_count; g++) {
        const double rate = ((const double *)last.data)[g];
        if (r->saved_count > 1 && !has_rate(s, g, "lr", rate))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "scheduler state: it was saved without the members of its %" PRId64
                            " parameter groups, and its last rate of group %" PRId64
                            " is %g, which is not the optimizer's: load the optimizer's state "
                            "first, and keep the order of groups",
                            r->saved_count, g, rate);
        r->from[r->count++] = g;
    }
    return CZ_OK;
}

cz_status cz__regroup_read(cz__regroup *r, const cz_sched *s, const cz_state_dict *dict)
{
    const cz_state_dict *groups;
    const int64_t here = cz_optim_group_count(s->optim);
    *r = (cz__regroup){.from = cz__calloc((size_t)here, sizeof *r->from)};
    if (!r->from)
        return cz__fail(CZ_ERR_MEMORY, "scheduler state: %" PRId64 " parameter groups", here);
    if (cz_state_dict_kind(dict, "param_groups") == CZ_STATE_NONE)
        return trust_order(r, s, dict);
    CZ_TRY(cz_state_dict_get_dict(dict, "param_groups", &groups));
    return read_members(r, s, groups);
}

void cz__regroup_clear(cz__regroup *r)
{
    cz__free(r->from);
    cz__free(r->found);
    *r = (cz__regroup){0};
}
