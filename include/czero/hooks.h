/* SPDX-License-Identifier: MIT */
/** @file hooks.h  Built-in communication hooks, by name. The contract, for hooks of one's own, is in ddp.h. */
#ifndef CZERO_HOOKS_H
#define CZERO_HOOKS_H

#include "czero/ddp.h"

CZ_BEGIN_DECLS

/** Register a built-in hook.
 *
 *  | name                  | state   | what it does                                                    |
 *  |-----------------------|---------|-----------------------------------------------------------------|
 *  | all_reduce            | NULL    | the mean, on every rank: the bits of no hook                    |
 *  | reduce_scatter        | NULL    | the mean, on its owner (then brought to all ranks if there is no sharded optimizer) |
 *  | no_op                 | NULL    | nothing: every rank keeps its own gradient                      |
 *  | zero_step             | cz_zero | steps of that optimizer, made on `ddp`, at the end of each pass: CZ_OVERLAP_STEP |
 *  | zero_step_interleaved | cz_zero | and bucket by bucket: CZ_OVERLAP_INTERLEAVED                    |
 *
 *  The last two leave the reduction to another hook, or none. Local; between passes; on all ranks alike.
 *  @return as cz_ddp_register_hook(), cz_zero_set_overlap(). CZ_ERR_ARGUMENT: no such name (the sentence lists
 *          them), a state where none is wanted, another optimizer's ddp. */
CZ_API cz_status cz_ddp_register_hook_by_name(cz_ddp *ddp, const char *name, void *state);

/** How many there are, and the name of one; NULL: no such index. Local; any thread. */
CZ_API int cz_hook_count(void);
CZ_API const char *cz_hook_name(int index);

CZ_END_DECLS
#endif
