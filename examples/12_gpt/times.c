/* SPDX-License-Identifier: MIT */
/* Where the time of steps goes: a stopwatch with a hand for each phase. */
#include "times.h"

#include <stdio.h>
#include <time.h>

static const struct {
    const char *name, *what;
} phases[PHASE_COUNT] = {
    [PHASE_DATA] = {"data", "sequences are looked up, gradients set to zero"},
    [PHASE_AGREE] = {"agree", "that all ranks begin the same pass"},
    [PHASE_FORWARD] = {"forward", ""},
    [PHASE_BACKWARD] = {"backward", "complete gradients are on their way meanwhile"},
    [PHASE_WAIT] = {"wait", "for what of that the backward pass has not hidden"},
    [PHASE_STEP] = {"step", "where the pass has not made it already"},
    [PHASE_LOSS] = {"loss", "the mean over ranks, for the report"},
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void times_begin_step(step_times *t)
{
    t->since = now();
    t->steps++;
}

void times_end_phase(step_times *t, phase ended)
{
    const double moment = now();
    t->seconds[ended] += moment - t->since;
    t->since = moment;
}

double times_of_step(const step_times *t)
{
    double all = 0;
    for (int p = 0; p < PHASE_COUNT; p++)
        all += t->seconds[p];
    return t->steps > 0 ? all / t->steps : 0;
}

void times_show(const step_times *t, const cz_trace_totals *update)
{
    double all = 0;
    for (int p = 0; p < PHASE_COUNT; p++)
        all += t->seconds[p];
    if (t->steps == 0)
        return;
    printf("\nwhere a step's time went on rank 0\n");
    for (int p = 0; p < PHASE_COUNT; p++)
        printf("  %-9s %9.3f ms %6.1f%%%s%s\n", phases[p].name, 1e3 * t->seconds[p] / t->steps,
               100 * t->seconds[p] / all, *phases[p].what ? "  " : "", phases[p].what);
    if (update->count > 0)
        printf("  of backward and wait, AdamW on the rank's shard: %.3f ms\n",
               1e3 * update->seconds / t->steps);
}

json_t *times_json(const step_times *t, const cz_trace_totals *update)
{
    const double steps = t->steps > 0 ? t->steps : 1;
    json_t *all = json_object();
    for (int p = 0; p < PHASE_COUNT; p++)
        json_object_set_new(all, phases[p].name, json_real(t->seconds[p] / steps));
    json_object_set_new(all, "update", json_real(update->seconds / steps));
    return all;
}
