/* SPDX-License-Identifier: MIT */
/* Generations in a folder: what they are called, which are complete, and taking old ones away. */
#ifndef CZ_CHECKPOINT_GENERATION_H
#define CZ_CHECKPOINT_GENERATION_H

#include <sys/stat.h>

#include "checkpoint/input.h"
#include "czero/group.h"
#include "io/text.h"

enum { CZ__GENERATIONS = 64 };                          /* that are looked at together */
enum { CZ__FEW_NOTES = 16 };                            /* on generations that are passed over */
#define CZ__LAST_GENERATION INT64_C(999999999999999999) /* higher numbers are not ours */

typedef struct cz__generation {
    int64_t number, step;
    int world_size; /* of the job that saved it, from its files' names; 0: there is no part */
    bool indexed;   /* some rank sees an index */
    int parts;      /* that some rank sees */
    int missing;    /* the first part that none sees */
} cz__generation;

static inline bool cz__generation_complete(const cz__generation *g)
{
    return g->indexed && g->world_size > 0 && g->parts == g->world_size;
}

/* "FOLDER/00000007-step-120", and a file in it: "index.json"; of a part:
 * "rank-00001-of-00004.safetensors". `suffix` without the point. CZ_ERR_MEMORY: a path that is cut
 * off would be that of a file that is not there. */
cz_status cz__generation_path(cz__text *path, const char *folder, int64_t number, int64_t step);
cz_status cz__index_path(cz__text *path, const char *generation);
cz_status cz__common_path(cz__text *path, const char *generation);
cz_status cz__part_path(cz__text *path, const char *generation, int rank, int world_size,
                        const char *suffix);

/* The same names without the folder; and back: "rank-00001-of-00004.json", *suffix behind the
 * point. */
void cz__generation_name(char name[64], int64_t number, int64_t step);
bool cz__part_parse(const char *name, int *rank, int *world_size, const char **suffix);

/* The generations that ranks see, newest first, alike on all ranks. A folder that does not exist
 * has none. Group and path are borrowed until the end. Collective, but the end. CZ_ERR_IO: a folder
 * that cannot be read; CZ_ERR_MEMORY. */
typedef struct cz__survey cz__survey;
cz_status cz__survey_begin(cz__survey **out, cz_group *group, const char *folder);
/* The highest number; 0: there is none. */
cz_status cz__survey_newest(const cz__survey *survey, int64_t *number);
/* The next CZ__GENERATIONS of them, or fewer: then these are the last. *list is the survey's, until
 * the next call. */
cz_status cz__survey_next(cz__survey *survey, const cz__generation **list, int *count);
void cz__survey_end(cz__survey **survey); /* accepts NULL and *NULL */

/* What the beginning of a file says; false with errno: it is no regular file, or cannot be read;
 * links are not followed. */
typedef struct cz__head {
    bool index;     /* it is an index of ours */
    bool blank;     /* there is nothing */
    char id[33];    /* of the save that it is of; "": it does not say */
    int world_size; /* 0: it does not say */
} cz__head;
bool cz__head_read(cz__head *head, int folder, const char *name);

/* Remove a generation's files here, the index first, and its folder. Links are neither followed nor
 * removed, and what is not the generation's own stays, and so the folder. CZ_ERR_IO: something
 * stays. */
cz_status cz__generation_remove(const char *folder, int64_t number, int64_t step);
cz_status cz__generation_remove_in(int folder, const char *path, int64_t number, int64_t step);

/* ---- survey.c ---- */
/* The generations of a folder as one process without ranks sees them, and the one of them that it
 * wants. */

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

/* The newest complete generation in a folder, of that step if it is not below 0. Those that were
 * passed over are added to `notes`, a line each; lines that are in it already are the reason where
 * there is no generation at all. CZ_ERR_ARGUMENT: there is none; CZ_ERR_STATE: none that is
 * complete; CZ_ERR_IO, CZ_ERR_FORMAT, CZ_ERR_UNSUPPORTED, CZ_ERR_MEMORY. The input is to be closed
 * in any case. */
cz_status cz__input_open_newest(cz__input *input, const char *folder, int64_t step,
                                cz__text *notes);

#endif
