/* SPDX-License-Identifier: MIT */
/* What a step changes, kept until it is known that the step is to be made. */
#ifndef CZ_OPTIM_UNDO_H
#define CZ_OPTIM_UNDO_H

#include "optim/object.h"

typedef struct cz__undo cz__undo;

/* For an unsharded optimizer (borrowed) in the host's memory, with at most so many bytes for
 * elements. CZ_ERR_MEMORY. */
cz_status cz__undo_create(cz__undo **out, cz_optim *optim, uint64_t most);
void cz__undo_destroy(cz__undo **undo);

/* A step begins: nothing is kept, and there is room for all that it may change, or for as much as
 * is allowed. CZ_ERR_MEMORY: nothing was changed. */
cz_status cz__undo_begin(cz__undo *undo);

/* A parameter's numbers, and room for its elements, before its update begins. False: there is no
 * room, nothing was kept. */
bool cz__undo_keep_param(cz__undo *undo, int64_t param);
/* And elements [first, first + count) of its value and of its slots: several threads at once, for
 * different ones. */
void cz__undo_keep(cz__undo *undo, int64_t param, int64_t first, int64_t count);

/* The way back, the same way. */
void cz__undo_restore_param(cz__undo *undo, int64_t param);
void cz__undo_restore(const cz__undo *undo, int64_t param, int64_t first, int64_t count);

/* All parameters are as they were: so is what the optimizer knows of itself. */
void cz__undo_restore_optim(const cz__undo *undo);

#endif
