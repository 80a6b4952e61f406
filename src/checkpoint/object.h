/* SPDX-License-Identifier: MIT */
/* A checkpoint as an object, for the files of this folder. */
#ifndef CZ_CHECKPOINT_OBJECT_H
#define CZ_CHECKPOINT_OBJECT_H

#include "checkpoint/index.h"
#include "checkpoint/text.h"
#include "czero/checkpoint.h"

typedef struct cz__package cz__package; /* package.h: what this rank writes */

struct cz_checkpoint {
    cz_group *group; /* borrowed, as the next three */
    cz_model *model;
    cz_zero *zero;
    cz_optim *optim; /* the sharded optimizer's local one, or the unsharded one; NULL: none */
    char *folder;    /* owned */
    int keep;
    cz__package *package; /* owned; an asynchronous save on its way; NULL: none */
    void *snapshot;       /* owned: memory for it */
    size_t snapshot_bytes;
    cz__text notes;
    char *last; /* owned: the path of the generation that was loaded or saved last; NULL: none */
    int last_world_size;
    char last_id[33];
};

/* contents.c: an index of what is here now: names, map, progress; id, generation and step are left for the caller.
 * The optimizer is between steps. Collective. To be cleared in any case. */
cz_status cz__contents(const cz_checkpoint *checkpoint, cz__index *index);

/* Where a value or a slot of this rank begins at an element (for elements that are here); slot NULL: the value. */
void *cz__contents_address(const cz_checkpoint *checkpoint, int64_t stored, const char *slot,
                           int64_t begin);
const cz_device *cz__contents_device(const cz_checkpoint *checkpoint, int64_t stored);

/* save.c: of the common dictionary, to compare between ranks. NULL: an empty one. CZ_ERR_ARGUMENT: a text that is not
 * UTF-8; CZ_ERR_MEMORY. */
cz_status cz__common_fingerprint(const cz_state_dict *dict, uint64_t *print);

/* save.c: the end of a save on its way. Collective: CZ_OK if there is none. */
cz_status cz__checkpoint_settle(cz_checkpoint *checkpoint);

/* Remember what was saved or loaded. CZ_ERR_MEMORY. */
cz_status cz__checkpoint_remember(cz_checkpoint *checkpoint, const char *path, int world_size,
                                  const char *id);

#endif
