/* SPDX-License-Identifier: MIT */
/* Schedulers of schedulers: one after the other, and all at the same time. */
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "sched/object.h"

#include <inttypes.h>

typedef struct sequential_sched {
    cz_sched sched;
    cz__list milestones; /* member_count - 1 */
} sequential_sched;

static cz_status sequential_check(const cz_sched *sched)
{
    const sequential_sched *s = (const void *)sched;
    for (int64_t i = 1; i < s->milestones.count; i++)
        if (s->milestones.items[i] < s->milestones.items[i - 1])
            return cz__fail(CZ_ERR_ARGUMENT,
                            "sequential scheduler: milestone %" PRId64 " is %.0f, after %.0f", i,
                            s->milestones.items[i], s->milestones.items[i - 1]);
    if (s->milestones.count != sched->member_count - 1)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "sequential scheduler: %" PRId64 " milestones for %" PRId64 " members",
                        s->milestones.count, sched->member_count);
    return CZ_OK;
}

static int64_t active_member(const cz_sched *sched)
{
    const cz__list *milestones = &((const sequential_sched *)(const void *)sched)->milestones;
    int64_t active = 0;
    while (active < milestones->count && milestones->items[active] <= sched->epoch)
        active++;
    return active;
}

static bool sequential_active(const cz_sched *sched, int64_t member)
{
    return member == active_member(sched);
}

static cz_status sequential_start(cz_sched *sched, cz__rates *rates)
{
    for (int64_t i = 0; i < sched->member_count; i++)
        sched->members[i]->epoch = -1;
    return cz__sched_start(sched->members[0], rates);
}

static cz_status sequential_next(cz_sched *sched, cz__rates *rates)
{
    const sequential_sched *s = (const void *)sched;
    const int64_t active = active_member(sched);
    return active > 0 && s->milestones.items[active - 1] == sched->epoch
               ? cz__sched_seek(sched->members[active], rates, 0)
               : cz__sched_next(sched->members[active], rates, 0);
}

static const cz__field sequential_fields[] = {
    CZ__SCHED_FIELD(LIST, sequential_sched, milestones, CZ__FROM(1))};

static const cz__sched_kind sequential_kind = {
    .name = "sequential",
    .size = sizeof(sequential_sched),
    .field_count = 1,
    .fields = sequential_fields,
    .check = sequential_check,
    .start = sequential_start,
    .next = sequential_next,
    .active = sequential_active,
};

static cz_status chained_start(cz_sched *sched, cz__rates *rates)
{
    for (int64_t i = 0; i < sched->member_count; i++)
        CZ_TRY(cz__sched_start(sched->members[i], rates));
    return CZ_OK;
}

static cz_status chained_next(cz_sched *sched, cz__rates *rates)
{
    for (int64_t i = 0; i < sched->member_count; i++)
        CZ_TRY(cz__sched_next(sched->members[i], rates, 0));
    return CZ_OK;
}

static const cz__sched_kind chained_kind = {
    .name = "chained",
    .size = sizeof(cz_sched),
    .start = chained_start,
    .next = chained_next,
};

static cz_status check_member(const cz__sched_kind *kind, cz_sched *const *members, int64_t i)
{
    if (!members[i])
        return cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: member %" PRId64 " is NULL", kind->name, i);
    if (members[i]->optim != members[0]->optim)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s scheduler: members 0 and %" PRId64 " are of different optimizers",
                        kind->name, i);
    if (members[i]->kind->metric)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s scheduler: member %" PRId64 " is a %s scheduler, which has no epochs",
                        kind->name, i, members[i]->kind->name);
    if (members[i]->depth >= CZ__SCHED_MAX_DEPTH)
        return cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: more than %d of them in each other",
                        kind->name, CZ__SCHED_MAX_DEPTH);
    for (int64_t k = 0; k < i; k++)
        if (members[k] == members[i])
            return cz__fail(CZ_ERR_ARGUMENT,
                            "%s scheduler: members %" PRId64 " and %" PRId64 " are the same",
                            kind->name, k, i);
    return CZ_OK;
}

static cz_status check_members(const cz__sched_kind *kind, cz_sched **out, cz_sched *const *members,
                               int64_t count)
{
    if (!out || !members)
        return cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: %s is NULL", kind->name,
                        out ? "members" : "out");
    *out = NULL;
    if (count < 1)
        return cz__fail(CZ_ERR_ARGUMENT, "%s scheduler: %" PRId64 " members, wanted 1 or more",
                        kind->name, count);
    for (int64_t i = 0; i < count; i++)
        CZ_TRY(check_member(kind, members, i));
    return CZ_OK;
}

/* They are the caller's still. */
static cz_status borrow(cz_sched *s, cz_sched *const *members, int64_t count)
{
    s->members = cz__calloc((size_t)count, sizeof(cz_sched *));
    if (!s->members)
        return cz__fail(CZ_ERR_MEMORY, "%s scheduler: no memory for %" PRId64 " members",
                        s->kind->name, count);
    s->member_count = count;
    for (int64_t i = 0; i < count; i++) {
        s->members[i] = members[i];
        s->depth = s->depth > members[i]->depth ? s->depth : members[i]->depth + 1;
        s->drives_momentum = s->drives_momentum || members[i]->drives_momentum;
    }
    return CZ_OK;
}

/* Rates of the chained one stay as they are. */
static cz_status stay(cz_sched *sched, cz__rates *rates, double epoch)
{
    sched->epoch = epoch;
    return CZ_OK;
}

static cz_status compose(cz_sched **out, cz_sched **members, int64_t count, const cz_sched *draft,
                         cz__sched_move begin)
{
    cz_sched *s;
    CZ_TRY(cz__sched_clone(&s, draft));
    s->optim = members[0]->optim;
    cz_status status = borrow(s, members, count);
    if (status)
        goto fail;
    status = cz__sched_check_options(s);
    if (status)
        goto fail;
    status = cz__sched_change(s, begin, 0);
    if (status)
        goto fail;
    for (int64_t i = 0; i < count; i++)
        members[i] = NULL;
    *out = s;
    return CZ_OK;
fail:
    s->member_count = 0;
    cz_sched_destroy(&s);
    return status;
}

cz_status cz_sched_create_sequential(cz_sched **out, cz_sched **members, int64_t count,
                                     const int64_t *milestones)
{
    CZ__OWN_FLOATS;
    sequential_sched draft = {.sched.kind = &sequential_kind};
    if (out)
        *out = NULL;
    CZ_TRY(check_members(&sequential_kind, out, members, count));
    CZ_TRY(cz__list_from_integers(&draft.milestones, milestones, count - 1, &draft.sched));
    const cz_status status = compose(out, members, count, &draft.sched, cz__sched_seek);
    cz__free(draft.milestones.items);
    return status;
}

cz_status cz_sched_create_chained(cz_sched **out, cz_sched **members, int64_t count)
{
    CZ__OWN_FLOATS;
    const cz_sched draft = {.kind = &chained_kind};
    if (out)
        *out = NULL;
    CZ_TRY(check_members(&chained_kind, out, members, count));
    return compose(out, members, count, &draft, stay);
}
