/* SPDX-License-Identifier: MIT */
/* Operations that take long: a line in the log says whom they wait for; later the group is
 * broken. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/plain_text.h"
#include "group/internal.h"

/* Does it wait for that rank, whose messages or whose part is missing? */
static bool awaits(const cz_work *work, int rank)
{
    const cz__engine *rendezvous = work->rendezvous.engine, *data = work->data.engine;
    return (rendezvous && rendezvous->awaits(work, rank)) ||
           (data && work->phase == CZ__PHASE_DATA && data->awaits(work, rank));
}

static bool has_not_begun(const cz_work *work, int rank)
{
    const cz_group *group = work->group;
    return group->backend->announced(group->endpoint, rank) <= work->sequence;
}

/* "rank 2", "ranks 1, 3"; *count: of them. */
static void list_ranks(const cz_work *work, bool (*is_one)(const cz_work *, int), int *count,
                       char *text, size_t bytes)
{
    size_t length = 0;
    char numbers[96] = "";
    *count = 0;
    for (int r = 0; r < work->group->size && length < sizeof numbers; r++)
        if (is_one(work, r))
            length +=
                (size_t)snprintf(numbers + length, sizeof numbers - length, "%s%d",
                                 (*count)++ ? ", " : "", cz_group_global_rank(work->group, r));
    snprintf(text, bytes, "rank%s %s", *count == 1 ? "" : "s", numbers);
}

/* Who has not begun this operation; if all have: whom it waits for. A verdict that got through
 * since it was sent makes nobody late. */
static void name_late(cz_work *work, char *text, size_t bytes)
{
    int count;
    bool settled;
    const cz__engine *rendezvous = work->rendezvous.engine;
    if (rendezvous && rendezvous->settle && work->phase >= CZ__PHASE_DATA)
        (void)rendezvous->settle(work, &settled);
    list_ranks(work, has_not_begun, &count, text, bytes);
    if (count == 0)
        cz__operation_awaited(work, text, bytes);
}

void cz__operation_awaited(const cz_work *work, char *text, size_t bytes)
{
    int count;
    list_ranks(work, awaits, &count, text, bytes);
    if (count == 0)
        snprintf(text, bytes, "some rank");
}

/* Another group of this rank, and how many operations it has begun there. */
typedef struct other_group {
    const cz_group *group;
    uint64_t begun;
} other_group;

enum { MOST_GROUPS = 32 };

/* They do not leave while this thread drives. */
static int find_others(const cz_group *group, other_group *others)
{
    int count = 0;
    cz__executor_lock(group->executor);
    for (const cz_group *other = cz__executor_groups(group->executor); other && count < MOST_GROUPS;
         other = other->next_of_rank)
        if (other != group)
            others[count++] = (other_group){other, other->sequence};
    cz__executor_unlock(group->executor);
    return count;
}

static int rank_in(const cz_group *group, int global_rank)
{
    for (int r = 0; r < group->size; r++)
        if (cz_group_global_rank(group, r) == global_rank)
            return r;
    return -1;
}

/* Ask how far the others are, so that the answers are there when they are to be named. */
static void ask_all(const cz_group *group)
{
    other_group others[MOST_GROUPS];
    const int count = find_others(group, others);
    for (int r = 0; r < group->size; r++)
        (void)group->backend->announced(group->endpoint, r);
    for (int k = 0; k < count; k++)
        for (int r = 0; r < others[k].group->size; r++)
            (void)others[k].group->backend->announced(others[k].group->endpoint, r);
}

/* Where the first rank that has not come to this operation has begun one that this rank has not
 * come to: then calls on two objects were made in another order. "": nowhere. */
static void find_elsewhere(const cz_work *work, char *text, size_t bytes)
{
    const cz_group *group = work->group;
    char here[CZ__GROUP_NAME_BYTES], there[CZ__GROUP_NAME_BYTES];
    other_group others[MOST_GROUPS];
    int late = 0;
    text[0] = '\0';
    while (late < group->size && group->backend->announced(group->endpoint, late) > work->sequence)
        late++;
    const int count = late < group->size ? find_others(group, others) : 0;
    for (int k = 0; k < count; k++) {
        const cz_group *other = others[k].group;
        const int rank = rank_in(other, cz_group_global_rank(group, late));
        if (rank < 0 || other->backend->announced(other->endpoint, rank) <= others[k].begun)
            continue;
        snprintf(text, bytes, ": rank %d is in a call on %s, this rank in one on %s",
                 cz_group_global_rank(group, late), cz__group_calls(other, there),
                 cz__group_calls(group, here));
        return;
    }
}

/* …and not for its turn, or for its children. A verdict may not get through to a rank either. */
static bool waits_for_ranks(const cz_work *work)
{
    if (work->phase < CZ__PHASE_CONTINUE)
        return !(work->staging.queued && work->meeting.agreed);
    bool waits = false;
    for (int r = 0; r < work->group->size && work->phase == CZ__PHASE_CONTINUE; r++)
        waits |= work->rendezvous.engine && work->rendezvous.engine->awaits(work, r);
    return waits;
}

static void fail_late(cz_work *work)
{
    CZ__PLAIN_TEXT;
    char who[128], elsewhere[CZ__SENTENCE_BYTES], sentence[2 * CZ__SENTENCE_BYTES];
    name_late(work, who, sizeof who);
    find_elsewhere(work, elsewhere, sizeof elsewhere);
    snprintf(sentence, sizeof sentence, "%s did not come within %g s%s", who,
             work->group->timeout_seconds, elsewhere);
    cz__operation_fail(work, CZ_ERR_TIMEOUT, sentence);
}

static void warn_of_late(cz_work *work, double waiting)
{
    char who[128], elsewhere[CZ__SENTENCE_BYTES], name[CZ__LABEL_BYTES + 64];
    char place[CZ__GROUP_PLACE_BYTES];
    work->patience.warned = true;
    name_late(work, who, sizeof who);
    find_elsewhere(work, elsewhere, sizeof elsewhere);
    cz__work_name(work, name, sizeof name);
    cz__group_place(work->group, place);
    cz__log(CZ_LOG_WARN, "rank %d waits in %s%s for %s, %.1f s so far%s",
            cz_group_global_rank(work->group, work->group->rank), name, place, who, waiting,
            elsewhere);
}

static double watch_ranks(cz_work *work, double now)
{
    const double LEAD = 0.5; /* seconds for questions and answers on a busy machine */
    const cz_group *group = work->group;
    if (!waits_for_ranks(work))
        return INFINITY;
    const bool warn = !work->patience.warned && group->warn_seconds < group->timeout_seconds;
    const double patience = warn ? group->warn_seconds : group->timeout_seconds;
    const double due = work->patience.since + patience, lead = fmin(LEAD, patience / 4);
    if (now < due - lead)
        return due - lead;
    if (work->patience.asked_at < due - lead) {
        work->patience.asked_at = now;
        ask_all(group);
    }
    const double moment = fmax(due, work->patience.asked_at + lead);
    if (now < moment)
        return moment;
    if (warn)
        warn_of_late(work, now - work->patience.since);
    else
        fail_late(work);
    return now;
}

double cz__operation_watch(cz_work *work, double now)
{
    if (work->patience.since == 0)
        work->patience.since = now;
    const double next = watch_ranks(work, now);
    const cz__engine *engine = NULL;
    if (work->phase == CZ__PHASE_MEET)
        engine = work->rendezvous.engine;
    else if (work->phase == CZ__PHASE_DATA)
        engine = work->data.engine;
    return engine && engine->watch ? fmin(next, engine->watch(work, now)) : next;
}
