/* SPDX-License-Identifier: MIT */
/* Generations in a folder: what they are called, which are complete, and taking old ones away. */
#ifndef CZ_CHECKPOINT_GENERATION_H
#define CZ_CHECKPOINT_GENERATION_H

#include "checkpoint/text.h"
#include "czero/group.h"

enum { CZ__GENERATIONS = 64 };                          /* that are looked at together */
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

/* "FOLDER/00000007-step-120", and a file in it: "index.json"; of a part: "rank-00001-of-00004.safetensors". `suffix`
 * without the point. CZ_ERR_MEMORY: a path that is cut off would be that of a file that is not there. */
cz_status cz__generation_path(cz__text *path, const char *folder, int64_t number, int64_t step);
cz_status cz__index_path(cz__text *path, const char *generation);
cz_status cz__common_path(cz__text *path, const char *generation);
cz_status cz__part_path(cz__text *path, const char *generation, int rank, int world_size,
                        const char *suffix);

/* The generations that ranks see, newest first, alike on all ranks: *list is for cz__free(). At most
 * CZ__GENERATIONS, of those that are older than `before`, which may be NULL. A folder that does not exist has none.
 * Collective. CZ_ERR_IO: a folder that cannot be read; CZ_ERR_MEMORY. */
cz_status cz__survey(cz_group *group, const char *folder, const cz__generation *before,
                     cz__generation **list, int *count);

/* For the time of a save: a second one at the same time is CZ_ERR_IO. The lock ends with the process in any case; -1
 * where the file system has none. */
cz_status cz__folder_lock(int *lock, const char *folder);
void cz__folder_unlock(int lock);

/* Remove a generation's files here, the index first, and its folder. What is not a checkpoint's stays. CZ_ERR_IO. */
cz_status cz__generation_remove(const char *path);

#endif
