/* SPDX-License-Identifier: MIT */
/* The generations of a folder as one process without ranks sees them, and the one of them that it wants. */
#ifndef CZ_CHECKPOINT_FOLDER_H
#define CZ_CHECKPOINT_FOLDER_H

#include "checkpoint/generation.h"
#include "checkpoint/input.h"

/* Called for each generation of a folder, the newest first. What it returns but CZ_OK ends it. */
typedef cz_status (*cz__generation_visitor)(const char *path, const cz__generation *g,
                                            void *context);
cz_status cz__generations_visit(const char *folder, cz__generation_visitor visit, void *context);

/* What a search came upon. To be cleared in any case. */
typedef struct cz__found {
    cz__text path;   /* empty: none is complete */
    cz__text passed; /* a line for each newer one that is not complete, of many one for the rest */
    int64_t seen;    /* generations of any kind, to where one was found */
    int64_t step;    /* that was looked for; below 0: any */
    int64_t incomplete; /* that were passed over */
    bool complete;      /* there is one */
} cz__found;

/* The newest complete generation, of that step if it is not below 0. CZ_ERR_IO, CZ_ERR_MEMORY. */
cz_status cz__generation_find(cz__found *found, const char *folder, int64_t step);
void cz__found_clear(cz__found *found);

/* Why a generation does not count: "it was never completed: …". */
void cz__generation_why_not(const cz__generation *g, char *why, size_t bytes);

/* The newest complete generation in a folder, of that step if it is not below 0. Those that were passed over are added to
 * `notes`, a line each; lines that are in it already are the reason where there is no generation at all. CZ_ERR_ARGUMENT: there is none;
 * CZ_ERR_STATE: none that is complete; CZ_ERR_IO, CZ_ERR_FORMAT, CZ_ERR_UNSUPPORTED, CZ_ERR_MEMORY. The input is to be
 * closed in any case. */
cz_status cz__input_open_newest(cz__input *input, const char *folder, int64_t step,
                                cz__text *notes);

#endif
