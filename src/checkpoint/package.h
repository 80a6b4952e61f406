/* SPDX-License-Identifier: MIT */
/* What one rank writes of a generation: its part, and the index and what all have in common if it
 * is the rank that made the folder. Prepared while ranks can talk, written without, by this thread
 * or another one. */
#ifndef CZ_CHECKPOINT_PACKAGE_H
#define CZ_CHECKPOINT_PACKAGE_H

#include "checkpoint/generation.h"
#include "checkpoint/input.h"
#include "checkpoint/object.h"

/* Where the elements of pieces are: one of the two. */
typedef struct cz__source {
    const cz_checkpoint *checkpoint; /* training state here */
    /* Files; in their index tensors have the same places, and the same slots. */
    cz__input *input;
    /* NULL, or called for what was written. CZ_OK, or why no more. */
    cz_status (*wrote)(size_t bytes, void *context);
    void *context;
} cz__source;

/* What is to be written, and by whom. */
typedef struct cz__package_order {
    const char *folder;     /* the checkpoint's */
    int rank;               /* of the index's world size */
    const cz__index *index; /* borrowed during the call */
    cz__source source;      /* borrowed until it is written, or in the snapshot; as the next */
    const cz_state_dict *common, *own; /* may be NULL */
} cz__package_order;

/* Prepare: texts, headers, addresses; make the folders. To be destroyed in any case. CZ_ERR_IO,
 * CZ_ERR_ARGUMENT (texts that are not UTF-8), CZ_ERR_MEMORY. */
cz_status cz__package_create(cz__package **out, const cz__package_order *order);

/* Waits for the thread. What has been written stays. */
void cz__package_destroy(cz__package **package);

/* Did this rank make the generation's folder, so that its index is this rank's to write? */
bool cz__package_leads(const cz__package *package);
const char *cz__package_path(const cz__package *package);
cz__generation cz__package_generation(const cz__package *package); /* what it is to be */
const char *cz__package_id(const cz__package *package);
size_t cz__package_bytes(const cz__package *package); /* of elements */

/* From now on elements come from `memory`, where cz__package_bytes() of them are copied to. */
cz_status cz__package_copy(cz__package *package, void *memory);

/* Write. CZ_ERR_IO, CZ_ERR_MEMORY. And the same in a thread of its own, which waits to be told to
 * go (it writes nothing if it ends before), and whose end gives the result. */
cz_status cz__package_write(cz__package *package);
cz_status cz__package_start(cz__package *package);
void cz__package_go(cz__package *package);
cz_status cz__package_end(cz__package *package);

/* Remove what this rank has written; and, of the leader, once all are done, all of it with its
 * folder. CZ_ERR_IO. */
void cz__package_discard(cz__package *package);
cz_status cz__package_remove(const cz__package *package);

#endif
