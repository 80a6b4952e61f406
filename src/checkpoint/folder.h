/* SPDX-License-Identifier: MIT */
/* What one process without ranks sees at a path: consolidated files, or generations, of which it wants one. */
#ifndef CZ_CHECKPOINT_FOLDER_H
#define CZ_CHECKPOINT_FOLDER_H

#include "checkpoint/generation.h"

/* What is at a path. It is decided here and nowhere else, on what is open: two looks may see two things. */
typedef struct cz__look {
    bool there;           /* false: nothing has that name, and all that follows is 0 */
    bool folder, file;    /* neither: a device, a pipe */
    bool generation;      /* a folder with an index.json */
    bool several, single; /* one of consolidated files, with their index, or with the one */
    uint64_t device, number;
} cz__look;

/* CZ_ERR_IO: it cannot be seen what it is. */
cz_status cz__look_at(cz__look *look, const char *path);
static inline bool cz__look_consolidated(const cz__look *look)
{
    return look->several || look->single;
}

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
