/* SPDX-License-Identifier: MIT */
/* czero diff, in parts. */
#ifndef CZ_TOOL_DIFF_H
#define CZ_TOOL_DIFF_H

#include <jansson.h>

#include "progress.h"
#include "run_log.h"
#include "show.h"
#include "source.h"
#include "ulps.h"

typedef struct comparison {
    source *a, *b;
    bool tolerant; /* up to `allowed` steps are no difference */
    uint64_t allowed;
    bool all, parameters_only, quiet;
    struct diff_fold *fold; /* owned: tensors that differ; with `all`, every one */
    distance values, state; /* of all tensors together */
    cz__text notes;         /* a line for each other difference */
    cz__text hint; /* why names may be different; empty: they are not, or nothing is known */
    json_t *tensors, *others;    /* owned; NULL: no JSON is wanted */
    int64_t compared, differing; /* tensors */
    int64_t other_count;
    progress bar;
} comparison;

/* A difference that is none of elements. CZ_ERR_MEMORY. */
cz_status diff_note(comparison *c, const char *format, ...) CZ_PRINTF(2, 3);

/* Rows of a table: tensors whose names differ in numbers between points only are one, unless `all`
 * are wanted. CZ_ERR_MEMORY. */
typedef struct diff_fold diff_fold;
cz_status diff_fold_add(comparison *c, const char *name, const char *slot, const distance *d);
void diff_fold_print(const comparison *c);
void diff_fold_destroy(diff_fold **fold);

/* The notes, of which those that say the same of many things are one line. */
void diff_notes_print(const comparison *c);

/* Names of one that are those of the other with something before them: a hint. CZ_ERR_MEMORY. */
cz_status diff_find_renamed(comparison *c);

/* Tensors: values, and state unless parameters_only. */
cz_status diff_tensors(comparison *c);

/* Step, rule, parameter groups, steps of parameters, the common dictionary. */
cz_status diff_settings(comparison *c);

/* ---- diff_runs.c: of two runs, by their logs ---- */

typedef struct diff_wish {
    bool quiet, json;
} diff_wish;

/* Which step is the first that differs? It is said unless `quiet`. CZ_ERR_ARGUMENT: there is
 * nothing to compare. */
cz_status diff_runs(const char *a, const char *b, diff_wish wish, bool *differ);

#endif
