/* SPDX-License-Identifier: MIT */
/* What a rank sends in its steps, by what it is for. */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include <jansson.h>

#include "czero/czero.h"

typedef enum cargo {
    CARGO_OTHER, /* losses for the report, validation */
    CARGO_GRADIENTS,
    CARGO_PARAMETERS, /* on their way back from a sharded optimizer, or averaged */
    CARGO_COUNT
} cargo;

typedef struct traffic {
    uint64_t seen;                                  /* sent when it was last looked at */
    int64_t sent[CARGO_COUNT], before[CARGO_COUNT]; /* in all steps, before the present one */
    int64_t last[CARGO_COUNT];                      /* in the last one */
    bool mixed; /* steps are made inside passes: what is sent is not told apart */
} traffic;

/* All that was sent since the last call is of that kind. */
cz_status traffic_count(traffic *t, const cz_group *world, cargo kind);
cz_status traffic_begin_step(traffic *t, const cz_group *world);
void traffic_end_step(traffic *t);

/* From now on the numbers are those of the rank that sent most, on every rank. Collective. */
cz_status traffic_agree(traffic *t, cz_group *world);

/* A line to the terminal, and as an object of bytes in a mean step and in the last one. */
void traffic_show(const traffic *t, int steps);
json_t *traffic_json(const traffic *t, int steps);

#endif
