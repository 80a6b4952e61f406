/* SPDX-License-Identifier: MIT */
/* A load under way, for the files that do its steps: choose a generation (load.c) and verify it (verify.c), or
 * open consolidated files (import.c); compare it with what is here (loading.c), bring its elements here (restore.c). */
#ifndef CZ_CHECKPOINT_LOADING_H
#define CZ_CHECKPOINT_LOADING_H

#include "checkpoint/compare.h"
#include "checkpoint/generation.h"
#include "checkpoint/input.h"
#include "checkpoint/object.h"
#include "checkpoint/placement.h"
#include "optim/optim.h"

typedef struct cz__loading {
    cz_checkpoint *checkpoint;
    const char *call; /* "checkpoint load" */
    cz_load_options options;
    cz__index here;
    int64_t incomplete; /* generations that were passed over */
    cz__input input;
    cz__placement placement; /* of a generation's files */
    cz__comparison comparison;
    cz_state_dict *adapted;      /* owned; NULL: the file's outline is taken as it is */
    cz__load *state;             /* owned; NULL: the optimizer's state stays */
    cz_state_dict *common, *own; /* owned until they are handed over */
} cz__loading;

/* The beginning of a call: take the options, agree on them, empty the result. `call` begins its sentences. All ranks
 * return the failure of one, `mine` included. */
cz_status cz__loading_begin(cz__loading *loading, const char *call, cz_status mine,
                            const cz_load_options *options, cz_load_result *result);

/* Have the index of a generation, whose folder this rank calls `path`, on all ranks. Collective. `mine`: what failed
 * before, on this rank. */
cz_status cz__loading_find(cz__loading *loading, const char *path, cz_status mine);
/* A generation that some ranks see is opened, all of it verified, and the dictionaries are had. All ranks get the
 * same. */
cz_status cz__loading_open(cz__loading *loading, const cz__generation *generation);
/* One that was written a moment ago is found whole: index and parts are of one save and have what the index says, no
 * more and no less. Elements are not read again. All ranks get the same. */
cz_status cz__loading_confirm(cz__loading *loading, const cz__generation *generation);

/* Once `here` and `input` are there: are they of the same kind? All ranks get the same. */
cz_status cz__loading_compare(cz__loading *loading);
/* Then: change what is here, and hand over the result, which may be NULL. Collective. */
cz_status cz__loading_finish(cz__loading *loading, cz_load_result *result);
void cz__loading_clear(cz__loading *loading);

/* Have all that it takes, and change nothing: local. */
cz_status cz__restore_prepare(cz__loading *loading);
/* Make the change. Collective. CZ_ERR_IO: a file could be verified and now cannot be read; CZ_ERR_FORMAT: it has
 * changed since. */
cz_status cz__restore(cz__loading *loading);

/* ---- fetch.c ---- */

/* The slots of a parameter here, in the outline that is loaded; NULL: none. */
const cz_state_dict *cz__restore_entry(const cz__loading *loading, int64_t place);

/* Elements [begin, end) of a tensor here (slot NULL), or of a slot of its state: from the files; and from memory, where
 * they have the type of the file. */
cz_status cz__restore_fetch(cz__loading *loading, int64_t place, const char *slot, int64_t begin,
                            int64_t end);
cz_status cz__restore_put(cz__loading *loading, int64_t place, const char *slot, int64_t begin,
                          int64_t end, const char *elements);

/* ---- windows.c ---- */

/* Memory to move elements between ranks: 8 MiB, and what one operation takes. CZ_ERR_MEMORY. */
typedef struct cz__windows cz__windows;
cz_status cz__windows_create(cz__windows **out, cz_group *group);
void cz__windows_destroy(cz__windows **windows); /* accepts NULL and *NULL */

/* See that all is there that this rank reads, for itself and for others; nothing is changed. Local. */
cz_status cz__windows_reach(cz__loading *loading);
/* Each element to the rank that owns it here, from the one that reads it. Collective; all ranks get the same. */
cz_status cz__windows_move(cz__windows *windows, cz__loading *loading);

/* ---- passing.c: dictionaries whose files some ranks cannot see, by those that can send them ---- */

/* The common one, and each rank's own. Collective; all ranks get the same. 2 MiB at most beside the dictionaries, and
 * what names and shapes take. */
cz_status cz__pass_dictionaries(cz__loading *loading);
/* Own dictionaries only: to each rank r that of saved rank wants[r], -1: none, if it does not see it itself. */
cz_status cz__pass_own(cz__loading *loading, const int32_t *wants);

#endif
