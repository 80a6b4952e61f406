/* SPDX-License-Identifier: MIT */
/* Elements to where they belong, for restore.c, and for windows.c where some ranks do not see the files that they need. */
#ifndef CZ_CHECKPOINT_RESTORE_H
#define CZ_CHECKPOINT_RESTORE_H

#include "checkpoint/loading.h"

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

#endif
