/* SPDX-License-Identifier: MIT */
/* Schedulers of any kind: made, moved from epoch to epoch, destroyed. */
#include "base/float_mode.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "optim/optim.h"
#include "sched/object.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void cz_sched_destroy(cz_sched **sched)
{
    cz_sched *s = sched ? *sched : NULL;
    if (!s)
        return;
    for (int64_t i = 0; i < s->member_count; i++)
        cz_sched_destroy(&s->members[i]);
    for (int i = 0; i < s->kind->field_count; i++)
        if (s->kind->fields[i].type >= CZ__SCHED_LIST)
            cz__free(((cz__list *)(void *)((char *)s + s->kind->fields[i].offset))->items);
    cz__free(s->members);
    cz__free(s->base);
    cz__free(s->saved);
    cz__free(s);
    *sched = NULL;
}

/* Copy the lists of a struct that was copied, so that they are its own. */
static bool copy_lists(cz_sched *s, const cz_sched *draft)
{
    bool enough = true;
    for (int i = 0; i < s->kind->field_count; i++) {
        const cz__field *field = &s->kind->fields[i];
        if (field->type < CZ__SCHED_LIST)
            continue;
        cz__list *list = (void *)((char *)s + field->offset);
        const cz__list *from = (const void *)((const char *)draft + field->offset);
        list->items = cz__calloc((size_t)from->count, sizeof *list->items);
        enough = enough && list->items;
        if (list->items && from->count > 0)
            memcpy(list->items, from->items, (size_t)from->count * sizeof *list->items);
    }
    return enough;
}

cz_status cz__sched_clone(cz_sched **out, const cz_sched *draft)
{
    const size_t size = draft->kind->size;
    cz_sched *s = cz__calloc(1, size);
    if (!s)
        return cz__fail(CZ_ERR_MEMORY, "%s scheduler: no memory for %zu bytes", draft->kind->name,
                        size);
    memcpy(s, draft, size);
    s->members = NULL;
    s->member_count = 0;
    s->base = s->last = NULL;
    s->capacity = s->group_count = 0;
    s->saved = cz__calloc(1, size);
    if (!copy_lists(s, draft) || !s->saved) {
        cz_sched_destroy(&s);
        return cz__fail(CZ_ERR_MEMORY, "%s scheduler: no memory for its options",
                        draft->kind->name);
    }
    *out = s;
    return CZ_OK;
}

const cz__option_table cz__sched_options = CZ__OPTION_TABLE(
    cz_sched_options, CZ__OPTION(cz_sched_options, first_epoch, CZ__LOCAL, CZ__ANY));

cz_status cz__sched_first_epoch(cz_sched **out, const cz_sched_options *options,
                                int64_t *first_epoch)
{
    cz_sched_options ours;
    if (out)
        *out = NULL;
    CZ_TRY(cz__options_read(&ours, &cz__sched_options, options, "scheduler"));
    *first_epoch = ours.first_epoch;
    return CZ_OK;
}

/* What is to go on has been begun. */
static cz_status check_first_epoch(const cz_sched *s, int64_t first_epoch)
{
    CZ_TRY(cz__sched_check(s, first_epoch >= 0, "first_epoch", (double)first_epoch, "0 or more"));
    if (first_epoch <= 0)
        return CZ_OK;
    for (int64_t g = 0; g < cz__optim_group_count(s->optim); g++)
        if (!cz__sched_has(s->optim, g, "initial_lr"))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "%s scheduler: first_epoch is %" PRId64 ", and parameter group %" PRId64
                            " has no 'initial_lr' to go on from",
                            s->kind->name, first_epoch, g);
    return CZ_OK;
}

static cz_status begin_epochs(cz_sched *s, int64_t first_epoch)
{
    CZ_TRY(cz__sched_settle(s, cz__optim_group_count(s->optim)));
    CZ_TRY(check_first_epoch(s, first_epoch));
    s->epoch = (double)first_epoch - 1;
    const bool closed = first_epoch > 0 && s->kind->resumes_closed;
    return cz__sched_change(s, closed ? cz__sched_seek : cz__sched_next, (double)first_epoch);
}

cz_status cz__sched_create(cz_sched **out, cz_optim *optim, const cz_sched *draft,
                           int64_t first_epoch)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: out is NULL", draft->kind->name);
    *out = NULL;
    if (!optim)
        return cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: optim is NULL", draft->kind->name);
    cz_sched *s;
    CZ_TRY(cz__sched_clone(&s, draft));
    s->optim = optim;
    s->depth = 1;
    const cz_status status = begin_epochs(s, first_epoch);
    if (status != CZ_OK)
        cz_sched_destroy(&s);
    *out = s;
    return status;
}

cz_status cz__sched_create_simple(cz_sched **out, cz_optim *optim, const cz_sched *draft,
                                  const cz_sched_options *options)
{
    int64_t first_epoch;
    CZ_TRY(cz__sched_first_epoch(out, options, &first_epoch));
    return cz__sched_create(out, optim, draft, first_epoch);
}

double cz__sched_base(const cz_sched *sched, int64_t param_group)
{
    while (sched->member_count > 0)
        sched = sched->members[0];
    return sched->base[param_group];
}

static cz_status apply(cz_sched *s, cz__rates *rates,
                       double (*formula)(const cz_sched *, int64_t, double))
{
    if (s->kind->check_epoch)
        CZ_TRY(s->kind->check_epoch(s));
    if (!formula)
        return CZ_OK;
    for (int64_t g = 0; g < rates->count; g++) {
        rates->lr[g] = formula(s, g, rates->lr[g]);
        if (s->drives_momentum)
            rates->momentum[g] = s->kind->momentum(s, g);
    }
    return CZ_OK;
}

cz_status cz__sched_start(cz_sched *sched, cz__rates *rates)
{
    sched->epoch = 0;
    return sched->kind->start ? sched->kind->start(sched, rates)
                              : apply(sched, rates, sched->kind->rate);
}

cz_status cz__sched_next(cz_sched *sched, cz__rates *rates, double unused)
{
    sched->epoch += 1;
    return sched->kind->next ? sched->kind->next(sched, rates)
                             : apply(sched, rates, sched->kind->rate);
}

cz_status cz__sched_seek(cz_sched *sched, cz__rates *rates, double epoch)
{
    if (!sched->kind->fractions && epoch != floor(epoch))
        return cz__sched_check(sched, false, "epoch", epoch, "a whole number");
    if (!sched->kind->start) {
        sched->epoch = epoch;
        return apply(sched, rates, sched->kind->closed ? sched->kind->closed : sched->kind->rate);
    }
    for (int64_t g = 0; g < rates->count; g++)
        rates->lr[g] = cz__sched_base(sched, g);
    CZ_TRY(cz__sched_start(sched, rates));
    while (sched->epoch < epoch)
        CZ_TRY(cz__sched_next(sched, rates, 0));
    return CZ_OK;
}

/* A group that came later has the rate of its base at this epoch, as if it had been there before,
 * unless the scheduler's rates are not (live) in force. */
static void join(cz_sched *s, cz__rates *rates, bool live)
{
    for (int64_t i = 0; i < s->member_count; i++)
        join(s->members[i], rates, live && (!s->kind->active || s->kind->active(s, i)));
    if (s->member_count == 0) {
        for (int64_t g = s->group_count; g < rates->count; g++) {
            s->base[g] = s->kind->base ? s->kind->base(s, g) : rates->initial[g];
            if (live && s->group_count > 0 && s->epoch >= 0 && s->kind->closed && s->base[g] > 0)
                rates->lr[g] *= s->kind->closed(s, g, s->base[g]) / s->base[g];
        }
    }
    s->group_count = rates->count;
}

static void keep_state(cz_sched *s)
{
    memcpy(s->saved, s, s->kind->size);
    for (int64_t i = 0; i < s->member_count; i++)
        keep_state(s->members[i]);
}

static void restore_state(cz_sched *s)
{
    memcpy(s, s->saved, s->kind->size);
    for (int64_t i = 0; i < s->member_count; i++)
        restore_state(s->members[i]);
}

/* What groups that take part since now have to carry. */
static cz_status publish(const cz_sched *s)
{
    for (int64_t i = 0; i < s->member_count; i++)
        CZ_TRY(publish(s->members[i]));
    const cz_sched *before = s->saved;
    if (s->member_count != 0)
        return CZ_OK;
    for (int64_t g = before->group_count; g < s->group_count; g++) {
        if (s->kind->publish)
            CZ_TRY(s->kind->publish(s, g));
        else if (!cz__sched_has(s->optim, g, "initial_lr"))
            CZ_TRY(cz_optim_add_hyper(s->optim, g, "initial_lr", s->base[g]));
    }
    return CZ_OK;
}

static cz_status change(cz_sched *s, cz__rates *rates, cz__sched_move move, double argument)
{
    join(s, rates, true);
    CZ_TRY(move(s, rates, argument));
    CZ_TRY(cz__rates_write(s, rates));
    const cz_status status = publish(s);
    if (status != CZ_OK)
        cz__rates_take_back(s, rates, rates->count);
    return status;
}

cz_status cz__sched_change(cz_sched *sched, cz__sched_move move, double argument)
{
    cz__rates rates;
    const int64_t count = cz__optim_group_count(sched->optim);
    CZ_TRY(cz__sched_check_groups(sched, count, CZ_ERR_STATE));
    CZ_TRY(cz__rates_reserve(sched, count));
    CZ_TRY(cz__rates_read(sched, &rates, count));
    keep_state(sched);
    const cz_status status = change(sched, &rates, move, argument);
    if (!status)
        memcpy(sched->last, rates.lr, (size_t)count * sizeof *rates.lr);
    else
        restore_state(sched);
    return status;
}

/* The order of the two steps is the usual mistake. */
static void warn_once(cz_sched *s)
{
    if (!s->stepped && !cz__optim_stepped(s->optim))
        cz__log(CZ_LOG_WARN,
                "%s scheduler: it is stepped before the optimizer: the first rate is never used; "
                "the optimizer's step comes first",
                s->kind->name);
    s->stepped = true;
}

cz_status cz_sched_step(cz_sched *sched)
{
    CZ__OWN_FLOATS;
    if (!sched)
        return cz__fail(CZ_ERR_ARGUMENT, "scheduler step: sched is NULL");
    if (sched->kind->metric)
        return cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: it needs a metric: cz_sched_step_metric()",
                        sched->kind->name);
    warn_once(sched);
    return cz__sched_change(sched, cz__sched_next, 0);
}

cz_status cz_sched_step_to(cz_sched *sched, double epoch)
{
    CZ__OWN_FLOATS;
    if (!sched)
        return cz__fail(CZ_ERR_ARGUMENT, "scheduler step: sched is NULL");
    if (sched->kind->metric)
        return cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: it has no epochs to go to",
                        sched->kind->name);
    CZ_TRY(cz__sched_check(sched, epoch >= 0 && epoch <= 0x1p53, "epoch", epoch, "0 … 2^53"));
    warn_once(sched);
    return cz__sched_change(sched, cz__sched_seek, epoch);
}

static cz_status take_metric(cz_sched *sched, cz__rates *rates, double metric)
{
    return sched->kind->metric(sched, rates, metric);
}

cz_status cz_sched_step_metric(cz_sched *sched, double metric)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!sched)
        return cz__fail(CZ_ERR_ARGUMENT, "scheduler step: sched is NULL");
    if (!sched->kind->metric)
        return cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: it takes no metric: cz_sched_step()",
                        sched->kind->name);
    CZ_TRY(sched->kind->agree(sched, &metric));
    warn_once(sched);
    return cz__sched_change(sched, take_metric, metric);
}

double cz_sched_last_lr(const cz_sched *sched, int64_t param_group)
{
    return sched && param_group >= 0 && param_group < sched->group_count ? sched->last[param_group]
                                                                         : NAN;
}
