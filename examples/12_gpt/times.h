/* SPDX-License-Identifier: MIT */
/* Where the time of steps goes. */
#ifndef TIMES_H
#define TIMES_H

#include <jansson.h>

#include "czero/czero.h"

typedef enum phase {
    PHASE_DATA,
    PHASE_AGREE, /* cz_ddp_begin() */
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_WAIT, /* cz_ddp_finish(): communication that the backward pass did not hide */
    PHASE_STEP,
    PHASE_LOSS,
    PHASE_COUNT
} phase;

typedef struct times {
    double since; /* when the present phase began */
    int steps;
    double seconds[PHASE_COUNT]; /* of all steps together */
} step_times;

/* A step begins, with the first phase; a phase of it ends, and the next one begins. */
void times_begin_step(step_times *t);
void times_end_phase(step_times *t, phase ended);

/* Seconds of a mean step. */
double times_of_step(const step_times *t);

/* The table, and as an object of phases with seconds of a mean step. `update` is what the
 * optimizer's trace has of its updates, which with overlap are made inside other phases. */
void times_show(const step_times *t, const cz_trace_totals *update);
json_t *times_json(const step_times *t, const cz_trace_totals *update);

#endif
