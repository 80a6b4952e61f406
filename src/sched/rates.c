/* SPDX-License-Identifier: MIT */
/* The rates of all parameter groups on their way from the optimizer through the schedulers and
 * back. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "sched/object.h"
#include "optim/optim.h"

/* base, last, and the five arrays of cz__rates */
#define ARRAYS 7

cz_status cz__rates_reserve(cz_sched *sched, int64_t count)
{
    for (int64_t i = 0; i < sched->member_count; i++)
        CZ_TRY(cz__rates_reserve(sched->members[i], count));
    if (sched->base && count <= sched->capacity)
        return CZ_OK;
    double *arrays = cz__calloc((size_t)count, ARRAYS * sizeof *arrays);
    if (!arrays)
        return cz__fail(CZ_ERR_MEMORY, "%s scheduler: no memory for %" PRId64 " parameter groups",
                        sched->kind->name, count);
    if (sched->base && sched->group_count > 0) {
        memcpy(arrays, sched->base, (size_t)sched->group_count * sizeof *arrays);
        memcpy(arrays + count, sched->last, (size_t)sched->group_count * sizeof *arrays);
    }
    cz__free(sched->base);
    sched->base = arrays;
    sched->last = arrays + count;
    sched->capacity = count;
    return CZ_OK;
}

bool cz__sched_has(const cz_optim *optim, int64_t param_group, const char *name)
{
    const int count = cz__optim_hyper_count(optim, param_group);
    for (int i = 0; i < count; i++)
        if (strcmp(cz_optim_hyper_name(optim, param_group, i), name) == 0)
            return true;
    return false;
}

/* By which name its rule has momentum; NULL: it has none. */
static const char *momentum_of(const cz_sched *sched, int64_t param_group)
{
    if (cz__sched_has(sched->optim, param_group, "momentum"))
        return "momentum";
    return cz__sched_has(sched->optim, param_group, "beta1") ? "beta1" : NULL;
}

static cz_status read_group(const cz_sched *sched, const cz__rates *rates, int64_t g)
{
    CZ_TRY(cz_optim_get_hyper(sched->optim, g, "lr", &rates->old_lr[g]));
    rates->lr[g] = rates->initial[g] = rates->old_lr[g];
    if (cz__sched_has(sched->optim, g, "initial_lr"))
        CZ_TRY(cz_optim_get_hyper(sched->optim, g, "initial_lr", &rates->initial[g]));
    if (sched->drives_momentum)
        CZ_TRY(cz_optim_get_hyper(sched->optim, g, momentum_of(sched, g), &rates->old_momentum[g]));
    rates->momentum[g] = rates->old_momentum[g];
    return CZ_OK;
}

cz_status cz__rates_read(const cz_sched *sched, cz__rates *rates, int64_t count)
{
    double *const first = sched->base + 2 * sched->capacity;
    *rates = (cz__rates){.count = count,
                         .lr = first,
                         .momentum = first + sched->capacity,
                         .initial = first + 2 * sched->capacity,
                         .old_lr = first + 3 * sched->capacity,
                         .old_momentum = first + 4 * sched->capacity};
    for (int64_t g = 0; g < count; g++)
        CZ_TRY(read_group(sched, rates, g));
    return CZ_OK;
}

static cz_status write_group(const cz_sched *sched, const cz__rates *rates, int64_t g)
{
    if (rates->lr[g] != rates->old_lr[g])
        CZ_TRY(cz_optim_set_hyper(sched->optim, g, "lr", rates->lr[g]));
    if (rates->momentum[g] != rates->old_momentum[g])
        CZ_TRY(cz_optim_set_hyper(sched->optim, g, momentum_of(sched, g), rates->momentum[g]));
    return CZ_OK;
}

/* Values that were there before are allowed and have their memory. */
void cz__rates_take_back(const cz_sched *sched, const cz__rates *rates, int64_t count)
{
    for (int64_t g = 0; g < count; g++) {
        (void)cz_optim_set_hyper(sched->optim, g, "lr", rates->old_lr[g]);
        if (sched->drives_momentum)
            (void)cz_optim_set_hyper(sched->optim, g, momentum_of(sched, g),
                                     rates->old_momentum[g]);
    }
}

cz_status cz__rates_write(const cz_sched *sched, const cz__rates *rates)
{
    for (int64_t g = 0; g < rates->count; g++) {
        const cz_status status = write_group(sched, rates, g);
        if (!status)
            continue;
        cz__rates_take_back(sched, rates, g + 1);
        char what[96];
        snprintf(what, sizeof what, "%s scheduler: parameter group %" PRId64, sched->kind->name, g);
        return cz__fail_in(status, what);
    }
    return CZ_OK;
}

/* ---- options ---- */
/* Options of schedulers: each within its range, lists as long as they have to be. */

cz_status cz__sched_check(const cz_sched *sched, bool right, const char *name, double value,
                          const char *wanted)
{
    return right ? CZ_OK
                 : cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: %s is %g, wanted %s", sched->kind->name,
                            name, value, wanted);
}

cz_status cz__sched_check_list(const cz_sched *sched, const char *name, const cz__list *list,
                               const cz__range *range)
{
    char wanted[CZ__RANGE_TEXT_BYTES];
    cz__range_text(wanted, range, false);
    for (int64_t i = 0; i < list->count; i++)
        if (!cz__range_has_real(range, list->items[i]))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "%s scheduler: number %" PRId64 " of %s is %g, wanted %s",
                            sched->kind->name, i, name, list->items[i], wanted);
    return CZ_OK;
}

static cz_status check_field(const cz_sched *sched, const cz__field *field)
{
    const void *place = (const char *)sched + field->offset;
    char wanted[CZ__RANGE_TEXT_BYTES];
    if (field->range.lowest == INT64_MIN)
        return CZ_OK;
    if (field->type >= CZ__SCHED_LIST)
        return cz__sched_check_list(sched, field->name, place, &field->range);
    cz__range_text(wanted, &field->range, field->type == CZ__SCHED_INTEGER);
    if (field->type == CZ__SCHED_REAL)
        return cz__sched_check(sched, cz__range_has_real(&field->range, *(const double *)place),
                               field->name, *(const double *)place, wanted);
    const int64_t number = *(const int64_t *)place;
    return cz__sched_check(sched, cz__range_has_whole(&field->range, number), field->name,
                           (double)number, wanted);
}

cz_status cz__sched_check_options(const cz_sched *sched)
{
    for (int i = 0; i < sched->kind->field_count; i++)
        CZ_TRY(check_field(sched, &sched->kind->fields[i]));
    return sched->kind->check ? sched->kind->check(sched) : CZ_OK;
}

cz_status cz__list_from_integers(cz__list *list, const int64_t *integers, int64_t count,
                                 const cz_sched *draft)
{
    const char *name = draft->kind->name;
    if (count < 0 || (count > 0 && !integers))
        return cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: %" PRId64 " milestones%s", name, count,
                        integers ? "" : " at NULL");
    double *items = cz__calloc((size_t)count, sizeof *items);
    if (!items)
        return cz__fail(CZ_ERR_MEMORY, "%s scheduler: no memory for %" PRId64 " milestones", name,
                        count);
    for (int64_t i = 0; i < count; i++)
        items[i] = (double)integers[i];
    *list = (cz__list){items, count};
    return CZ_OK;
}

cz__list cz__list_per_group(const double *one, const double *many, const cz_optim *optim)
{
    return many ? (cz__list){(double *)(uintptr_t)many, cz__optim_group_count(optim)}
                : (cz__list){(double *)(uintptr_t)one, 1};
}

cz_status cz__sched_check_groups(const cz_sched *sched, int64_t count, cz_status otherwise)
{
    for (int64_t i = 0; i < sched->member_count; i++)
        CZ_TRY(cz__sched_check_groups(sched->members[i], count, otherwise));
    for (int i = 0; i < sched->kind->field_count; i++) {
        const cz__field *field = &sched->kind->fields[i];
        const cz__list *list = (const void *)((const char *)sched + field->offset);
        if (field->type == CZ__SCHED_PER_GROUP && list->count != 1 && list->count != count)
            return cz__fail(otherwise,
                            "%s scheduler: %s has %" PRId64 " entries, there are %" PRId64
                            " parameter groups",
                            sched->kind->name, field->name, list->count, count);
    }
    return CZ_OK;
}

cz_status cz__sched_settle(cz_sched *sched, int64_t group_count)
{
    CZ_TRY(cz__sched_check_groups(sched, group_count, CZ_ERR_ARGUMENT));
    CZ_TRY(cz__sched_check_options(sched));
    sched->drives_momentum = sched->kind->momentum && sched->kind->drives_momentum(sched);
    for (int64_t g = 0; sched->drives_momentum && g < group_count; g++)
        if (!momentum_of(sched, g))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "%s scheduler: it is to change momentum, and the rule has neither "
                            "'momentum' nor 'beta1' (parameter group %" PRId64 ": %s)",
                            sched->kind->name, g, cz__optim_group_rule(sched->optim, g)->name);
    return CZ_OK;
}
