/* SPDX-License-Identifier: MIT */
/* Schedulers into state dictionaries and back. What is read is made beside what is there, and takes
 * its place when all of it is right. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "optim/optim.h"
#include "sched/object.h"
#include "base/names.h"
#include "tensor/model.h"

/* ---- parameter groups ---- */

/* Which parameter group that was saved is which here: found by members, as the optimizer's own
 * values are. */
typedef struct regroup {
    int64_t saved_count; /* groups in the dictionary */
    int64_t count;       /* groups here that were among them: the first ones */
    int64_t *from;       /* owned: which of the saved ones each of these is */
    uint8_t *found;      /* owned: flags of the saved ones; NULL: there are no members */
} regroup;

static const char *member_of(const cz_sched *s, int64_t group, int64_t place)
{
    return cz__model_name(cz__optim_model(s->optim), cz__optim_group_param(s->optim, group, place));
}

/* "param_groups": "0", "1", …: the names of the members of each group that takes part.
 * CZ_ERR_MEMORY. */
static cz_status write_regroup(const cz_sched *s, cz_state_dict *dict)
{
    cz_state_dict *groups;
    CZ_TRY(cz_state_dict_add_dict(dict, "param_groups", &groups));
    for (int64_t g = 0; g < s->group_count; g++) {
        char key[24];
        const int64_t count = cz__optim_group_param_count(s->optim, g);
        const char **names = cz__calloc((size_t)count, sizeof *names);
        if (!names)
            return cz__fail(CZ_ERR_MEMORY, "scheduler state: no memory for %" PRId64 " names",
                            count);
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
    const char *const *members;
    int64_t count;
    char key[24];
    snprintf(key, sizeof key, "%" PRId64, g);
    if (cz_state_dict_get_texts(groups, key, &members, &count) != CZ_OK)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "scheduler state: 'param_groups' has no list of names '%s'", key);
    if (!cz__names_reserve(names, count))
        return cz__fail(CZ_ERR_MEMORY,
                        "scheduler state: no memory for a table of %" PRId64 " names", count);
    for (int64_t k = 0; k < count; k++) {
        int64_t other;
        const char *name = members[k];
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
    for (int64_t k = 0; k < cz__optim_group_param_count(s->optim, g); k++) {
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
    const char *const *members;
    int64_t count;
    char key[24];
    while (*next < saved) {
        snprintf(key, sizeof key, "%" PRId64, (*next)++);
        if (cz_state_dict_get_texts(groups, key, &members, &count) == CZ_OK && count == 0)
            return *next - 1;
    }
    return -1;
}

/* None that was saved is left: its rates would be lost. */
static cz_status check_all_found(const regroup *r, const cz_state_dict *groups)
{
    for (int64_t n = 0; n < r->saved_count; n++) {
        char key[24];
        const char *const *members;
        int64_t count;
        if (r->found[n])
            continue;
        snprintf(key, sizeof key, "%" PRId64, n);
        CZ_TRY(cz_state_dict_get_texts(groups, key, &members, &count));
        const char *name = count > 0 ? members[0] : NULL;
        return cz__fail(CZ_ERR_ARGUMENT,
                        "scheduler state: saved parameter group %" PRId64
                        " (%s%.60s%s) is none of the optimizer's",
                        n, name ? "with '" : "without members", name ? name : "", name ? "'" : "");
    }
    return CZ_OK;
}

static cz_status match(regroup *r, const cz_sched *s, const cz_state_dict *groups,
                       const cz__names *names)
{
    const int64_t count = cz__optim_group_count(s->optim);
    int64_t next_empty = 0, unknown = -1;
    for (int64_t g = 0; g < count; g++) {
        int64_t saved;
        CZ_TRY(find_saved(s, names, g, &saved));
        if (saved < 0 && cz__optim_group_param_count(s->optim, g) == 0)
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

static cz_status read_members(regroup *r, const cz_sched *s, const cz_state_dict *groups)
{
    cz__names names = {0};
    cz_status status = CZ_OK;
    r->saved_count = cz_state_dict_count(groups);
    r->found = cz__calloc((size_t)r->saved_count, sizeof *r->found);
    if (!r->found)
        return cz__fail(CZ_ERR_MEMORY,
                        "scheduler state: no memory for %" PRId64 " parameter groups",
                        r->saved_count);
    for (int64_t g = 0; g < r->saved_count; g++) {
        status = list_group(&names, groups, g);
        if (status)
            goto done;
    }
    status = match(r, s, groups, &names);
done:
    cz__names_clear(&names);
    return status;
}

/* What a group had at first, or has, against what was saved for it. */
static bool has_rate(const cz_sched *s, int64_t g, const char *name, double saved)
{
    double value = 0;
    return cz_optim_get_hyper(s->optim, g, name, &value) == CZ_OK && value == saved;
}

/* An older library saved it without members. The order of groups is the one of then if their rates
 * are; where all have one rate that says nothing, and lists of options may still be exchanged. */
static cz_status trust_order(regroup *r, const cz_sched *s, const cz_state_dict *dict)
{
    cz_tensor last;
    CZ_TRY(cz_state_dict_get_tensor(dict, "last_lr", &last));
    r->saved_count = last.dimensions == 1 && last.dtype == CZ_F64 ? last.shape[0] : 0;
    const int64_t here = cz__optim_group_count(s->optim);
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

/* CZ_ERR_ARGUMENT: groups do not have the members that they had, which; CZ_ERR_MEMORY. To be
 * cleared in any case. */
static cz_status read_regroup(regroup *r, const cz_sched *s, const cz_state_dict *dict)
{
    const cz_state_dict *groups;
    const int64_t here = cz__optim_group_count(s->optim);
    *r = (regroup){.from = cz__calloc((size_t)here, sizeof *r->from)};
    if (!r->from)
        return cz__fail(CZ_ERR_MEMORY,
                        "scheduler state: no memory for %" PRId64 " parameter groups", here);
    if (cz_state_dict_kind(dict, "param_groups") == CZ_STATE_NONE)
        return trust_order(r, s, dict);
    CZ_TRY(cz_state_dict_get_dict(dict, "param_groups", &groups));
    return read_members(r, s, groups);
}

static void clear_regroup(regroup *r)
{
    cz__free(r->from);
    cz__free(r->found);
    *r = (regroup){0};
}

/* ---- the dictionary ---- */

static cz_status write_numbers(cz_state_dict *dict, const char *key, const double *numbers,
                               int64_t count)
{
    void *data;
    CZ_TRY(cz_state_dict_add_tensor(dict, key, CZ_F64, 1, &count, &data));
    if (count > 0)
        memcpy(data, numbers, (size_t)count * sizeof *numbers);
    return CZ_OK;
}

static cz_status write_field(const cz_sched *s, const cz__field *field, cz_state_dict *dict)
{
    const void *place = (const char *)s + field->offset;
    const cz__list *list = place;
    switch (field->type) {
    case CZ__SCHED_INTEGER:
        return cz_state_dict_set_integer(dict, field->name, *(const int64_t *)place);
    case CZ__SCHED_REAL:
        return cz_state_dict_set_real(dict, field->name, *(const double *)place);
    default:
        return write_numbers(dict, field->name, list->items, list->count);
    }
}

static cz_status write(const cz_sched *s, cz_state_dict *dict);

static cz_status write_members(const cz_sched *s, cz_state_dict *dict)
{
    cz_state_dict *members, *child;
    char key[24];
    CZ_TRY(cz_state_dict_add_dict(dict, "members", &members));
    for (int64_t i = 0; i < s->member_count; i++) {
        snprintf(key, sizeof key, "%" PRId64, i);
        CZ_TRY(cz_state_dict_add_dict(members, key, &child));
        CZ_TRY(write(s->members[i], child));
    }
    return CZ_OK;
}

static cz_status write(const cz_sched *s, cz_state_dict *dict)
{
    CZ_TRY(cz_state_dict_set_text(dict, "type", s->kind->name));
    CZ_TRY(s->epoch == floor(s->epoch)
               ? cz_state_dict_set_integer(dict, "last_epoch", (int64_t)s->epoch)
               : cz_state_dict_set_real(dict, "last_epoch", s->epoch));
    for (int i = 0; i < s->kind->field_count; i++)
        CZ_TRY(write_field(s, &s->kind->fields[i], dict));
    return s->member_count > 0 ? write_members(s, dict)
                               : write_numbers(dict, "base_lrs", s->base, s->group_count);
}

cz_status cz_sched_state_dict(const cz_sched *sched, cz_state_dict **out)
{
    CZ__OWN_FLOATS;
    if (out)
        *out = NULL;
    if (!sched || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "scheduler state: %s is NULL", sched ? "out" : "sched");
    CZ_TRY(cz_state_dict_create(out));
    cz_status status = write(sched, *out);
    if (status)
        goto done;
    status = write_numbers(*out, "last_lr", sched->last, sched->group_count);
    if (status)
        goto done;
    status = write_regroup(sched, *out);
done:
    if (status != CZ_OK)
        cz_state_dict_destroy(out);
    return status;
}

/* A tensor of doubles in one dimension. */
static cz_status read_numbers(const cz_state_dict *dict, const char *key, cz_tensor *view)
{
    CZ_TRY(cz_state_dict_get_tensor(dict, key, view));
    if (view->dtype != CZ_F64 || view->dimensions != 1)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "scheduler state: '%s' is a tensor of %s in %d dimensions, wanted f64 in 1",
                        key, cz_dtype_name(view->dtype), view->dimensions);
    return CZ_OK;
}

static cz_status read_list(cz__list *list, const cz_state_dict *dict, const char *key)
{
    cz_tensor view;
    CZ_TRY(read_numbers(dict, key, &view));
    const size_t count = (size_t)view.shape[0];
    double *items = cz__calloc(count, sizeof *items);
    if (!items)
        return cz__fail(CZ_ERR_MEMORY, "scheduler state: no memory for '%s'", key);
    if (count > 0)
        memcpy(items, view.data, count * sizeof *items);
    cz__free(list->items);
    *list = (cz__list){items, view.shape[0]};
    return CZ_OK;
}

/* One entry is for all groups; several go where their groups are. */
static cz_status read_per_group(cz__list *list, const cz_state_dict *dict, const char *key,
                                const regroup *r)
{
    CZ_TRY(read_list(list, dict, key));
    if (list->count == 1 || list->count != r->saved_count)
        return CZ_OK;
    double *items = cz__calloc((size_t)r->count, sizeof *items);
    if (!items)
        return cz__fail(CZ_ERR_MEMORY, "scheduler state: no memory for '%s'", key);
    for (int64_t g = 0; g < r->count; g++)
        items[g] = list->items[r->from[g]];
    cz__free(list->items);
    *list = (cz__list){items, r->count};
    return CZ_OK;
}

static cz_status read_field(cz_sched *s, const cz__field *field, const cz_state_dict *dict,
                            const regroup *r)
{
    void *place = (char *)s + field->offset;
    switch (field->type) {
    case CZ__SCHED_PER_GROUP:
        return read_per_group(place, dict, field->name, r);
    case CZ__SCHED_INTEGER:
        return cz_state_dict_get_integer(dict, field->name, place);
    case CZ__SCHED_REAL:
        return cz_state_dict_get_real(dict, field->name, place);
    default:
        return read_list(place, dict, field->name);
    }
}

static cz_status read_epoch(cz_sched *s, const cz_state_dict *dict, bool member)
{
    CZ_TRY(cz_state_dict_get_real(dict, "last_epoch", &s->epoch));
    CZ_TRY(cz__sched_check(s, s->epoch >= (member ? -1 : 0) && s->epoch <= 0x1p53, "last_epoch",
                           s->epoch, member ? "-1 … 2^53" : "0 … 2^53"));
    CZ_TRY(cz__sched_check(s, s->kind->fractions || s->epoch == floor(s->epoch), "last_epoch",
                           s->epoch, "a whole number"));
    /* beyond its end: while training a state that was come to, here a number that is wrong */
    return s->kind->check_epoch && s->kind->check_epoch(s) != CZ_OK ? CZ_ERR_ARGUMENT : CZ_OK;
}

/* Rates of parameter groups, of which there are as many as take part. */
static cz_status read_rates(cz_sched *s, const cz_state_dict *dict, const char *key,
                            const regroup *r, double *rates)
{
    cz_tensor view;
    CZ_TRY(read_numbers(dict, key, &view));
    if (view.shape[0] != r->saved_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "scheduler state: '%s' is of %" PRId64
                        " parameter groups, 'param_groups' or 'last_lr' of %" PRId64,
                        key, view.shape[0], r->saved_count);
    for (int64_t g = 0; g < r->count; g++)
        rates[g] = ((const double *)view.data)[r->from[g]];
    s->group_count = r->count;
    const cz__list list = {rates, s->group_count};
    return cz__sched_check_list(s, key, &list, &(cz__range){.highest = INT64_MAX});
}

static cz_status read_twin(cz_sched **out, const cz_sched *s, const cz_state_dict *dict,
                           const regroup *r, bool member);

static cz_status read_composed(cz_sched *twin, const cz_sched *s, const cz_state_dict *dict,
                               const regroup *r)
{
    const cz_state_dict *members, *child;
    char key[24];
    CZ_TRY(cz_state_dict_get_dict(dict, "members", &members));
    if (cz_state_dict_count(members) != s->member_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "scheduler state: %" PRId64 " members, the %s scheduler has %" PRId64,
                        cz_state_dict_count(members), s->kind->name, s->member_count);
    twin->members = cz__calloc((size_t)s->member_count, sizeof(cz_sched *));
    if (!twin->members)
        return cz__fail(CZ_ERR_MEMORY, "scheduler state: no memory for %" PRId64 " members",
                        s->member_count);
    twin->member_count = s->member_count;
    twin->drives_momentum = false;
    for (int64_t i = 0; i < s->member_count; i++) {
        snprintf(key, sizeof key, "%" PRId64, i);
        CZ_TRY(cz_state_dict_get_dict(members, key, &child));
        CZ_TRY(read_twin(&twin->members[i], s->members[i], child, r, true));
        twin->drives_momentum = twin->drives_momentum || twin->members[i]->drives_momentum;
    }
    return cz__sched_check_options(twin);
}

static cz_status read(cz_sched *twin, const cz_sched *s, const cz_state_dict *dict,
                      const regroup *r, bool member)
{
    const char *type;
    CZ_TRY(cz_state_dict_get_text(dict, "type", &type));
    if (strcmp(type, s->kind->name) != 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "scheduler state: it is of a %s scheduler, this is a %s one", type,
                        s->kind->name);
    CZ_TRY(cz__rates_reserve(twin, cz__optim_group_count(s->optim)));
    for (int i = 0; i < s->kind->field_count; i++)
        CZ_TRY(read_field(twin, &s->kind->fields[i], dict, r));
    CZ_TRY(read_epoch(twin, dict, member));
    if (!member)
        CZ_TRY(read_rates(twin, dict, "last_lr", r, twin->last));
    if (s->member_count > 0)
        return read_composed(twin, s, dict, r);
    CZ_TRY(read_rates(twin, dict, "base_lrs", r, twin->base));
    return cz__sched_settle(twin, twin->group_count);
}

/* A scheduler of the same kind with what the dictionary says. */
static cz_status read_twin(cz_sched **out, const cz_sched *s, const cz_state_dict *dict,
                           const regroup *r, bool member)
{
    CZ_TRY(cz__sched_clone(out, s));
    const cz_status status = read(*out, s, dict, r, member);
    if (status != CZ_OK)
        cz_sched_destroy(out);
    return status;
}

static void swap(cz_sched *a, cz_sched *b)
{
    char *const x = (char *)a, *const y = (char *)b;
    for (size_t i = 0; i < a->kind->size; i++) {
        const char byte = x[i];
        x[i] = y[i];
        y[i] = byte;
    }
}

cz_status cz_sched_load_state_dict(cz_sched *sched, const cz_state_dict *dict)
{
    CZ__OWN_FLOATS;
    cz_sched *twin = NULL;
    regroup groups;
    if (!sched || !dict)
        return cz__fail(CZ_ERR_ARGUMENT, "scheduler state: %s is NULL", sched ? "dict" : "sched");
    cz_status status = read_regroup(&groups, sched, dict);
    if (!status)
        status = read_twin(&twin, sched, dict, &groups, false);
    clear_regroup(&groups);
    CZ_TRY(status);
    twin->stepped = sched->stepped || twin->epoch > 0; /* the run that was saved was warned */
    swap(sched, twin);
    cz_sched_destroy(&twin);
    return CZ_OK;
}
