/* SPDX-License-Identifier: MIT */
/* Operations that take long: a line that says whom they wait for, and later the end of the group. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/plain_text.h"
#include "group/internal.h"

/* Who has not begun this operation; if all have: whose messages are missing. */
static void awaited(const cz_work *work, char *text, size_t bytes)
{
    const cz_group *group = work->group;
    size_t length = 0;
    int count = 0;
    char numbers[96] = "";
    for (int r = 0; r < group->size && length < sizeof numbers; r++)
        if (group->backend->announced(group->endpoint, r) <= work->sequence)
            length += (size_t)snprintf(numbers + length, sizeof numbers - length, "%s%d",
                                       count++ ? ", " : "", r);
    if (count)
        snprintf(text, bytes, "rank%s %s", count == 1 ? "" : "s", numbers);
    else
        cz__flights_awaited(work, text, bytes);
}

/* Ask how far the others are, so that the answers are there when they are to be named. */
static void ask_all(const cz_group *group)
{
    for (int r = 0; r < group->size; r++)
        (void)group->backend->announced(group->endpoint, r);
}

/* …and not for its turn, or for its children. A verdict may not get through to a rank either. */
static bool waits_for_ranks(const cz_work *work)
{
    const bool queued = work->operation.pool && !work->staging && work->phase >= CZ__PHASE_DATA;
    bool waits = work->phase < CZ__PHASE_CONTINUE && !queued;
    for (int i = 0; i < CZ__MAX_CHILDREN && work->phase == CZ__PHASE_CONTINUE; i++)
        waits |= work->up_from[i].up;
    return waits;
}

static void fail_late(cz_work *work)
{
    CZ__PLAIN_TEXT;
    char who[128], sentence[CZ__SENTENCE_BYTES];
    awaited(work, who, sizeof who);
    snprintf(sentence, sizeof sentence, "%s did not come within %g s", who,
             work->group->timeout_seconds);
    cz__operation_fail(work, CZ_ERR_TIMEOUT, sentence);
}

static void warn_of_late(cz_work *work, double waiting)
{
    char who[128], name[CZ__LABEL_BYTES + 64];
    work->warned = true;
    awaited(work, who, sizeof who);
    cz__work_name(work, name, sizeof name);
    cz__log(CZ_LOG_WARN, "rank %d waits in %s for %s, %.1f s so far", work->group->rank, name, who,
            waiting);
}

static double watch_ranks(cz_work *work, double now)
{
    const double LEAD = 0.5; /* seconds for questions and answers on a busy machine */
    const cz_group *group = work->group;
    if (!waits_for_ranks(work))
        return INFINITY;
    const bool warn = !work->warned && group->warn_seconds < group->timeout_seconds;
    const double patience = warn ? group->warn_seconds : group->timeout_seconds;
    const double due = work->since + patience, lead = fmin(LEAD, patience / 4);
    if (now < due - lead)
        return due - lead;
    if (work->asked_at < due - lead) {
        work->asked_at = now;
        ask_all(group);
    }
    const double moment = fmax(due, work->asked_at + lead);
    if (now < moment)
        return moment;
    if (warn)
        warn_of_late(work, now - work->since);
    else
        fail_late(work);
    return now;
}

double cz__operation_watch(cz_work *work, double now)
{
    return fmin(watch_ranks(work, now), cz__window_watch(work, now));
}
