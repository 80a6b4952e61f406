/* SPDX-License-Identifier: MIT */
/* What one process without ranks sees at a path: consolidated files, or generations, of which it wants one. */
#ifndef CZ_CHECKPOINT_FOLDER_H
#define CZ_CHECKPOINT_FOLDER_H

#include "checkpoint/generation.h"

bool cz__is_folder(const char *path);

/* The same where it matters: what is not there is none; CZ_ERR_IO: nobody can tell. */
cz_status cz__folder_look(const char *path, bool *is_folder);
cz_status cz__folder_look_for(const char *folder, const char *name, bool *is_there);

bool cz__folder_has(const char *folder, const char *name);
/* Is it a folder of consolidated files: with an index of several, or with the one? */
bool cz__folder_is_consolidated(const char *folder);

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

#endif
