/* SPDX-License-Identifier: MIT */
/* A job's state of which every value is known: a function of the step and the element's place. */
#ifndef KILL_STATE_H
#define KILL_STATE_H

#include <czero/czero.h>

typedef struct kill_state {
    cz_group *world; /* borrowed */
    cz_model *model;
    cz_parts *parts;
    cz_zero *zero;
    cz_checkpoint *checkpoint;
    float *params, *grads; /* owned, all parameters one after the other */
    float buffer[64];
    int64_t step; /* of the values; 0: as they began */
} kill_state;

/* Collective, as the others; kill_state_clear() also after a failure. */
cz_status kill_state_create(kill_state *s, cz_group *world, const char *folder,
                            cz_partition partition, int keep);
void kill_state_clear(kill_state *s);

/* One step of training, in parts: values and optimizer state become those of the next step. */
cz_status kill_state_advance(kill_state *s);

/* A save of all, with dictionaries that are gone when it returns. */
cz_status kill_state_save(kill_state *s, bool later);

/* The generation of a step, or CZ_NEWEST; CZ_ERR_FORMAT: a value is not the one of that step.
 * *found -1: there is none. */
cz_status kill_state_load(kill_state *s, int64_t step, int64_t *found);

#endif
