/* SPDX-License-Identifier: MIT */
/* Checkpoints of a run: saving it, stopping it, going on with it. */
#ifndef RESUME_H
#define RESUME_H

#include "trainer.h"

/* With --save: a checkpoint in the trainer, and SIGTERM, SIGINT and SIGUSR1 ask for a stop rather
 * than end the process; a second one ends it. One rank that is asked is enough. With --resume: the
 * newest checkpoint, and the trainer's step; what it said of the past is for the report.
 * Collective. */
cz_status resume_begin(trainer *t, history *past);

/* Has this process been asked to stop? */
bool resume_stop_asked(void);

/* Save what follows `step` steps; later: training goes on meanwhile. Collective. */
cz_status resume_save(trainer *t, int step, bool later);

/* It is on the medium on all ranks. Collective. */
cz_status resume_wait(trainer *t);

/* The time of updates: of this process, and of those before it. */
cz_status resume_update_time(const trainer *t, cz_trace_totals *update);

#endif
