/* SPDX-License-Identifier: MIT */
/* Bytes sent: the group's own count, taken where one kind of cargo ends and the next begins. */
#include "traffic.h"

#include <stdio.h>
#include <string.h>

cz_status traffic_count(traffic *t, const cz_group *world, cargo kind)
{
    cz_group_info now = CZ_GROUP_INFO_INIT;
    CZ_TRY(cz_group_get_info(world, &now));
    t->sent[kind] += (int64_t)(now.sent_bytes - t->seen);
    t->seen = now.sent_bytes;
    return CZ_OK;
}

cz_status traffic_begin_step(traffic *t, const cz_group *world)
{
    CZ_TRY(traffic_count(t, world, CARGO_OTHER));
    memcpy(t->before, t->sent, sizeof t->sent);
    return CZ_OK;
}

void traffic_end_step(traffic *t)
{
    for (int k = 0; k < CARGO_COUNT; k++)
        t->last[k] = t->sent[k] - t->before[k];
}

cz_status traffic_agree(traffic *t, cz_group *world)
{
    CZ_TRY(cz_all_reduce(world, t->sent, CARGO_COUNT, CZ_I64, CZ_MAX, CZ_LABEL("bytes sent")));
    return cz_all_reduce(world, t->last, CARGO_COUNT, CZ_I64, CZ_MAX, CZ_LABEL("bytes sent"));
}

static double mean(const traffic *t, cargo kind, int steps)
{
    return steps > 0 ? (double)t->sent[kind] / steps : 0;
}

void traffic_show(const traffic *t, int steps)
{
    const double gradients = mean(t, CARGO_GRADIENTS, steps);
    const double parameters = mean(t, CARGO_PARAMETERS, steps);
    if (steps == 0)
        return;
    printf("\na rank sends in a step, on average: ");
    if (t->mixed)
        printf("%.0f bytes\n", gradients + parameters);
    else
        printf("%.0f bytes of gradients, %.0f of parameters\n", gradients, parameters);
}

json_t *traffic_json(const traffic *t, int steps)
{
    const double gradients = mean(t, CARGO_GRADIENTS, steps);
    const double parameters = mean(t, CARGO_PARAMETERS, steps);
    if (t->mixed)
        return json_pack("{s:f, s:I}", "all", gradients + parameters, "all_last",
                         (json_int_t)(t->last[CARGO_GRADIENTS] + t->last[CARGO_PARAMETERS]));
    return json_pack("{s:f, s:f, s:f, s:I, s:I}", "all", gradients + parameters, "gradients",
                     gradients, "parameters", parameters, "gradients_last",
                     (json_int_t)t->last[CARGO_GRADIENTS], "parameters_last",
                     (json_int_t)t->last[CARGO_PARAMETERS]);
}
