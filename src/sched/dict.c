/* SPDX-License-Identifier: MIT */
/* Schedulers into state dictionaries and back. What is read is made beside what is there, and takes its
 * place when all of it is right. */
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "sched/regroup.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

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
    if (status == CZ_OK)
        status = write_numbers(*out, "last_lr", sched->last, sched->group_count);
    if (status == CZ_OK)
        status = cz__regroup_write(sched, *out);
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
        return cz__fail(CZ_ERR_MEMORY, "scheduler state: '%s'", key);
    if (count > 0)
        memcpy(items, view.data, count * sizeof *items);
    cz__free(list->items);
    *list = (cz__list){items, view.shape[0]};
    return CZ_OK;
}

/* One entry is for all groups; several go where their groups are. */
static cz_status read_per_group(cz__list *list, const cz_state_dict *dict, const char *key,
                                const cz__regroup *r)
{
    CZ_TRY(read_list(list, dict, key));
    if (list->count == 1 || list->count != r->saved_count)
        return CZ_OK;
    double *items = cz__calloc((size_t)r->count, sizeof *items);
    if (!items)
        return cz__fail(CZ_ERR_MEMORY, "scheduler state: '%s'", key);
    for (int64_t g = 0; g < r->count; g++)
        items[g] = list->items[r->from[g]];
    cz__free(list->items);
    *list = (cz__list){items, r->count};
    return CZ_OK;
}

static cz_status read_field(cz_sched *s, const cz__field *field, const cz_state_dict *dict,
                            const cz__regroup *r)
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
                            const cz__regroup *r, double *rates)
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
    return cz__sched_check_list(s, key, &list, 0);
}

static cz_status read_twin(cz_sched **out, const cz_sched *s, const cz_state_dict *dict,
                           const cz__regroup *r, bool member);

static cz_status read_members(cz_sched *twin, const cz_sched *s, const cz_state_dict *dict,
                              const cz__regroup *r)
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
        return cz__fail(CZ_ERR_MEMORY, "scheduler state: %" PRId64 " members", s->member_count);
    twin->member_count = s->member_count;
    twin->momentum_name = NULL;
    for (int64_t i = 0; i < s->member_count; i++) {
        snprintf(key, sizeof key, "%" PRId64, i);
        CZ_TRY(cz_state_dict_get_dict(members, key, &child));
        CZ_TRY(read_twin(&twin->members[i], s->members[i], child, r, true));
        if (!twin->momentum_name)
            twin->momentum_name = twin->members[i]->momentum_name;
    }
    return twin->kind->check(twin);
}

static cz_status read(cz_sched *twin, const cz_sched *s, const cz_state_dict *dict,
                      const cz__regroup *r, bool member)
{
    const char *type;
    CZ_TRY(cz_state_dict_get_text(dict, "type", &type));
    if (strcmp(type, s->kind->name) != 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "scheduler state: it is of a %s scheduler, this is a %s one", type,
                        s->kind->name);
    CZ_TRY(cz__rates_reserve(twin, cz_optim_group_count(s->optim)));
    for (int i = 0; i < s->kind->field_count; i++)
        CZ_TRY(read_field(twin, &s->kind->fields[i], dict, r));
    CZ_TRY(read_epoch(twin, dict, member));
    if (!member)
        CZ_TRY(read_rates(twin, dict, "last_lr", r, twin->last));
    if (s->member_count > 0)
        return read_members(twin, s, dict, r);
    CZ_TRY(read_rates(twin, dict, "base_lrs", r, twin->base));
    return cz__sched_settle(twin, twin->group_count);
}

/* A scheduler of the same kind with what the dictionary says. */
static cz_status read_twin(cz_sched **out, const cz_sched *s, const cz_state_dict *dict,
                           const cz__regroup *r, bool member)
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
    cz__regroup regroup;
    if (!sched || !dict)
        return cz__fail(CZ_ERR_ARGUMENT, "scheduler state: %s is NULL", sched ? "dict" : "sched");
    cz_status status = cz__regroup_read(&regroup, sched, dict);
    if (status == CZ_OK)
        status = read_twin(&twin, sched, dict, &regroup, false);
    cz__regroup_clear(&regroup);
    CZ_TRY(status);
    twin->stepped = sched->stepped || twin->epoch > 0; /* the run that was saved was warned */
    swap(sched, twin);
    cz_sched_destroy(&twin);
    return CZ_OK;
}
