/* SPDX-License-Identifier: MIT */
/* Updates ahead of the end of a step: parameter by parameter as gradients come, by threads of the
 * library's or while a mark waits, and with an undo log before it is known whether the step is to
 * be made as it is. */
#ifndef CZ_OPTIM_AHEAD_H
#define CZ_OPTIM_AHEAD_H

#include "optim/optim.h"

typedef struct cz__ahead cz__ahead;

/* For one unsharded optimizer, borrowed, with options that want it. CZ_ERR_UNSUPPORTED: with undo,
 * a parameter that is not in the host's memory. CZ_ERR_MEMORY. */
cz_status cz__ahead_create(cz__ahead **out, cz_optim *optim, const cz_in_backward_options *options);
/* Waits for its threads. */
void cz__ahead_destroy(cz__ahead **ahead);

/* Before the optimizer's step begins: the one that did not end is taken back, or without undo
 * finished. CZ_ERR_STATE: the threads are in the parent of this process. */
cz_status cz__ahead_settle(cz__ahead *ahead);
/* It has begun. CZ_ERR_MEMORY. */
cz_status cz__ahead_begin(cz__ahead *ahead);
/* The gradient of a parameter is there; once in a step. */
void cz__ahead_add(cz__ahead *ahead, int64_t param, void *gradient);
/* cz_in_backward_end(), with options that were read, if this rank was well until now. */
cz_status cz__ahead_end(cz__ahead *ahead, const cz_step_options *options, cz_status mine,
                        cz__step_outcome *outcome);

#endif
