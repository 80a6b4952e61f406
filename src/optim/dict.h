/* SPDX-License-Identifier: MIT */
/* Optimizers as state dictionaries, in steps that the sharded optimizer can put its own between. */
#ifndef CZ_OPTIM_DICT_H
#define CZ_OPTIM_DICT_H

#include "czero/state.h"
#include "optim/optim.h"

/* Everything but the elements of slots that have been used: those tensors are zeroed. */
cz_status cz__optim_dict_create(cz_state_dict **out, const cz_optim *optim,
                                const cz__progress *progress);

/* An outline: a dictionary without elements, where a slot that has been used is a text, the name of its
 * type; other slots are left out. Whoever keeps it keeps the elements elsewhere. */
cz_status cz__optim_outline_create(cz_state_dict **out, const cz_optim *optim,
                                   const cz__progress *progress);

/* The address of element 0 of a used slot in a dictionary made so. */
void *cz__optim_dict_slot(const cz_optim *optim, const cz_state_dict *dict, int64_t param,
                          int slot);

/* A dictionary that was checked against an optimizer: what loading it will change. */
typedef struct cz__load cz__load;

/* Check everything, and have the memory that it needs; the optimizer works on as before. Both are
 * borrowed until the end. `missing`: of what is sharded only CZ_MISSING_NONE. With `outline`, slots may be without
 * elements: those are undefined after the change until the caller puts them to cz__optim_slot_address().
 * CZ_ERR_ARGUMENT, CZ_ERR_MEMORY. */
cz_status cz__load_create(cz__load **out, cz_optim *optim, const cz_state_dict *dict,
                          cz_missing_state missing, bool outline);
/* Of all that is loaded: to compare between ranks. */
uint64_t cz__load_fingerprint(const cz__load *load);
/* Make the change. Cannot fail. */
void cz__load_commit(cz__load *load);
void cz__load_destroy(cz__load **load);

#endif
