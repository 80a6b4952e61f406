/* SPDX-License-Identifier: MIT */
/* An operation goes through a window until it ends, or has to wait for other ranks' flags: closely for a moment, then
 * not at all, and with an eye on the group. */
#include <sched.h>

#include "base/clock.h"
#include "base/pause.h"
#include "group/internal.h"

static void pause_a_little(void)
{
    enum { TIMES = 16 };
    for (int i = 0; i < TIMES; i++)
        cz__pause();
}

/* The group is intact, and no rank has left that has not done its part. */
static cz_status check(cz_work *work)
{
    cz_group *group = work->group;
    CZ_TRY(cz__group_intact(group, work->sequence));
    for (int r = 0; r < group->size; r++) {
        if (r == group->rank || !group->window.parts[r]) /* messages find out */
            continue;
        const cz_status status = group->backend->present(group->endpoint, r);
        if (status != CZ_OK &&
            atomic_load(&cz__window_flags(group, work->window.lane, r)->ended) < work->window.use)
            return status;
    }
    return CZ_OK;
}

/* Nothing can be done. True: look again at once; else another time, the group was looked after. */
static bool wait_a_moment(cz_work *work)
{
    const double YIELD = 100e-6; /* seconds */
    cz__window_run *run = &work->window;
    const double now = cz__seconds();
    if (run->stalled_at == 0)
        run->stalled_at = now;
    run->patient |= now - run->stalled_at > YIELD;
    if (run->patient)
        return false;
    if (now - run->stalled_at < work->group->window.spin_seconds)
        pause_a_little();
    else
        sched_yield();
    return true;
}

static cz_status go(cz_work *work, cz_status (*step)(cz_work *, bool *),
                    cz_status (*is_over)(cz_work *, bool *), bool *any, bool *over)
{
    for (bool moved;;) {
        CZ_TRY(is_over(work, over));
        if (*over)
            return CZ_OK;
        CZ_TRY(step(work, &moved));
        if (moved) {
            *any = true;
            work->window.stalled_at = 0;
            work->window.patient = false;
        } else if (!wait_a_moment(work)) {
            return check(work);
        }
    }
}

bool cz__window_go(cz_work *work, cz_status (*step)(cz_work *, bool *moved),
                   cz_status (*is_over)(cz_work *, bool *over), void (*finish)(cz_work *))
{
    bool any = false, over = false;
    const cz_status status = go(work, step, is_over, &any, &over);
    if (over)
        finish(work);
    if (any || over)
        work->since = cz__seconds(); /* a long transfer is no late one */
    if (status == CZ_OK)
        return any || over;
    cz__operation_fail(work, status, cz_last_error());
    return true;
}
