/* SPDX-License-Identifier: MIT */
/* A checkpoint as an object, for the files of this folder. */
#ifndef CZ_CHECKPOINT_OBJECT_H
#define CZ_CHECKPOINT_OBJECT_H

#include "checkpoint/index.h"
#include "czero/checkpoint.h"
#include "collective/description.h"
#include "io/text.h"

typedef struct cz__package cz__package; /* package.h: what this rank writes */

struct cz_checkpoint {
    cz__object object;
    cz_group *group; /* borrowed, as the next three */
    cz_model *model;
    cz_zero *zero;
    cz_optim *optim; /* the sharded optimizer's local one, or the unsharded one; NULL: none */
    char *folder;    /* owned; from the root on */
    int keep;
    int part_count;       /* 0: none */
    cz__package *package; /* owned; an asynchronous save on its way; NULL: none */
    void *snapshot;       /* owned: memory for it */
    size_t snapshot_bytes;
    cz__text notes;
    char *last; /* owned: the path of the generation that was loaded or saved last; NULL: none */
    int last_world_size;
    char last_id[33];
};

/* contents.c: an index of what is here now: names, map, progress; id, generation and step are left
 * for the caller. The optimizer is between steps. Collective: CZ_ERR_MISMATCH, in a sentence of
 * `call`, where ranks differ in it; with `state` in all of it, or else in what a load needs alike
 * and does not bring. To be cleared in any case. */
cz_status cz__contents(const cz_checkpoint *checkpoint, const char *call, bool state,
                       cz__index *index);

/* The same before there is any progress, and of this rank alone. */
cz_status cz__contents_at_first(const cz_checkpoint *checkpoint, cz__index *index);

/* All of an index, with `state`; or parts, names, shapes, types, the map, the rule, members of
 * groups. */
void cz__describe_index(cz__description *description, const cz__index *index, bool state);

/* Where a value or a slot of this rank begins at an element (for elements that are here); slot
 * NULL: the value. */
void *cz__contents_address(const cz_checkpoint *checkpoint, int64_t stored, const char *slot,
                           int64_t begin);
cz_dtype cz__contents_slot_dtype(const cz_checkpoint *checkpoint, int64_t stored, const char *slot);
const cz_device *cz__contents_device(const cz_checkpoint *checkpoint, int64_t stored);

/* May the common dictionary be written? NULL: an empty one. CZ_ERR_ARGUMENT: a text that is not
 * UTF-8; CZ_ERR_MEMORY. And what is compared of it. */
cz_status cz__common_check(const cz_state_dict *dict);
void cz__describe_common(cz__description *description, const cz_state_dict *dict);

/* All ranks have failed alike, or none: their sentences, which may have each rank's own name of a
 * folder, become that of rank 0. Collective. */
cz_status cz__say_alike(cz_group *group, cz_status mine);

/* save.c: the end of a save on its way. Collective: CZ_OK if there is none. */
cz_status cz__checkpoint_settle(cz_checkpoint *checkpoint);

/* Remember what was saved or loaded; `path` is taken over. */
void cz__checkpoint_remember(cz_checkpoint *checkpoint, char *path, int world_size, const char *id);

#endif
