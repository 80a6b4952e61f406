/* SPDX-License-Identifier: MIT */
/* czero diff, in parts. */
#ifndef CZ_TOOL_DIFF_H
#define CZ_TOOL_DIFF_H

#include <jansson.h>

#include "progress.h"
#include "show.h"
#include "source.h"
#include "ulps.h"

typedef struct comparison {
    source *a, *b;
    bool tolerant; /* up to `allowed` steps are no difference */
    uint64_t allowed;
    bool all, parameters_only, quiet;
    table rows;                  /* a tensor that differs each; with `all`, every one */
    cz__text notes;              /* a line for each other difference */
    json_t *tensors, *others;    /* owned; NULL: no JSON is wanted */
    int64_t compared, differing; /* tensors */
    int64_t other_count;
    progress bar;
} comparison;

/* A difference that is none of elements. CZ_ERR_MEMORY. */
cz_status diff_note(comparison *c, const char *format, ...) CZ_PRINTF(2, 3);

/* Tensors: values, and state unless parameters_only. */
cz_status diff_tensors(comparison *c);

/* Step, rule, parameter groups, steps of parameters, the common dictionary. */
cz_status diff_settings(comparison *c);

#endif
