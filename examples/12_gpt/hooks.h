/* SPDX-License-Identifier: MIT */
/* Communication hooks by name, with the state that each needs. */
#ifndef HOOKS_H
#define HOOKS_H

#include "options.h"

/* Zeroed: nothing is held. */
typedef struct hook_state {
    cz_powersgd *powersgd;
    cz_post_local_sgd local;
    cz_mixed_precision mixed;
    cz_hook inner; /* of a hook around another one */
} hook_state;

/* Can the example train with it? False, with a sentence: there is no such hook, or it is not for
 * training. */
bool hook_check(const char *name, char *sentence, size_t bytes);

/* Its result: only what a rank owns, or the whole bucket? */
bool hook_gives_slices(const char *name);

/* Ranks go their own ways with it, and are averaged now and then: each needs a whole optimizer. */
bool hook_goes_alone(const char *name);

/* What it keeps from step to step is no part of a checkpoint. */
bool hook_has_state(const char *name);

cz_status hook_register(hook_state *state, cz_ddp *ddp, const options *o, const char *name);
void hook_state_clear(hook_state *state); /* after the ddp */

#endif
