/* SPDX-License-Identifier: MIT */
/* What a run has behind it: all that its report is made of, and that a checkpoint keeps of it. */
#ifndef HISTORY_H
#define HISTORY_H

#include "times.h"
#include "traffic.h"

typedef struct point {
    int step;
    double value;
} point;

typedef struct curve {
    point *points; /* owned */
    int count;
    int room;
} curve;

/* False: no memory, there is a gap. */
bool curve_add(curve *c, int step, double value);

/* Its last `count` points up to and with `step`, or the first ones after it, on average; NAN: there
 * is none. */
double curve_mean_before(const curve *c, int step, int count);
double curve_mean_after(const curve *c, int step, int count);

/* Zeroed: nothing has happened. */
typedef struct history {
    curve train, validation;
    curve rates, speeds;    /* learning rates, tokens per second */
    curve resumed;          /* where it went on from a checkpoint, and with how many ranks */
    double seconds, paused; /* of the whole run; of these not in training */
    double smooth;          /* loss, averaged over the last steps */
    step_times times;
    cz_trace_totals update;
    traffic traffic;
} history;

void history_clear(history *h);

/* All ranks get rank 0's. Collective; a history that is overwritten is cleared first. */
cz_status history_share(history *h, cz_group *world);

/* In dictionaries: curves of training, which are the same wherever it runs, and apart from them
 * what belongs to the run: times, traffic, numbers of ranks. Both are read into a cleared
 * history. */
cz_status history_to_dicts(const history *h, cz_state_dict *training, cz_state_dict *run);
cz_status history_from_dicts(history *h, const cz_state_dict *training, const cz_state_dict *run);

#endif
