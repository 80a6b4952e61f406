/* SPDX-License-Identifier: MIT */
/* What a report says beside curves and times. */
#include <jansson.h>
#include <stdio.h>

#include "report.h"

static void show_bytes(const char *what, int64_t here, int64_t unsharded)
{
    printf("  %-18s %14lld %14lld %8.1f%%\n", what, (long long)here, (long long)unsharded,
           unsharded ? 100.0 * (double)here / (double)unsharded : 100.0);
}

/* Every rank has all parameters and gradients; the state is what is sharded. */
void show_memory(const memory_use *memory)
{
    enum { SHOWN = 16 };
    printf("\nbytes on a rank          this run      unsharded    share\n");
    show_bytes("parameters", memory->parameter_bytes, memory->parameter_bytes);
    show_bytes("gradients", memory->gradient_bytes, memory->gradient_bytes);
    if (memory->parts_bytes > 0)
        printf("  %-18s %14lld %14d %9s\n", "sums of parts", (long long)memory->parts_bytes, 0,
               "-");
    for (int rank = 0; rank < memory->ranks && rank < SHOWN; rank++) {
        char what[40];
        snprintf(what, sizeof what, "state, rank %d", rank);
        show_bytes(what, memory->state_bytes[rank], memory->state_bytes_unsharded);
    }
    if (memory->ranks > SHOWN)
        printf("  and %d more ranks: state_bytes_per_rank in summary.json\n",
               memory->ranks - SHOWN);
}

/* Did the curve go on where it was? */
void show_resumed(const history *h)
{
    enum { SPAN = 100 };
    for (int i = 0; i < h->resumed.count; i++) {
        const point *p = &h->resumed.points[i];
        const int most = p->step < SPAN ? p->step : SPAN, left = h->train.count - p->step;
        const int span = left < most ? left : most;
        if (span > 0)
            printf("\nresumed after step %d on %.0f rank%s: mean loss %.4f in the %d steps before, "
                   "%.4f "
                   "in the %d after\n",
                   p->step, p->value, p->value > 1 ? "s" : "",
                   curve_mean_before(&h->train, p->step, span), span,
                   curve_mean_after(&h->train, p->step, span), span);
    }
}

json_t *resumed_json(const curve *resumed)
{
    json_t *list = json_array();
    for (int i = 0; i < resumed->count; i++)
        json_array_append_new(list, json_pack("{s:i, s:i}", "step", resumed->points[i].step,
                                              "world_size", (int)resumed->points[i].value));
    return list;
}
