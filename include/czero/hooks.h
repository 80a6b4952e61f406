/* SPDX-License-Identifier: MIT */
/** @file hooks.h  Built-in communication hooks, by name. The contract, for hooks of one's own, is in ddp.h. */
#ifndef CZERO_HOOKS_H
#define CZERO_HOOKS_H

#include "czero/powersgd.h"

CZ_BEGIN_DECLS

/** Register a built-in hook, by its name or by PyTorch's (DDPCommHookType).
 *
 *  | name, PyTorch's               | state   | what it does                                            |
 *  |-------------------------------|---------|---------------------------------------------------------|
 *  | all_reduce, ALLREDUCE         | NULL    | the mean, on every rank: the bits of no hook            |
 *  | reduce_scatter                | NULL    | the mean, on its owner (then brought to all ranks if there is no sharded optimizer) |
 *  | no_op, NOOP                   | NULL    | nothing: every rank keeps its own gradient              |
 *  | fp16_compress, FP16_COMPRESS  | NULL or cz_hook | the mean, or what that hook does, of gradients as binary16: half the bytes of f32 |
 *  | bf16_compress, BF16_COMPRESS  | NULL or cz_hook | the same as bfloat16                            |
 *  | quantize_per_tensor, QUANTIZE_PER_TENSOR | NULL | the mean of gradients as bytes, with one scale per bucket |
 *  | quantize_per_channel, QUANTIZE_PER_CHANNEL | NULL or int64_t | and with one per so many elements; NULL: 512 |
 *  | powersgd, POWER_SGD           | NULL or cz_powersgd | low-rank approximations (powersgd.h); NULL: a state of its own with all defaults |
 *  | powersgd_rank2, POWER_SGD_RANK2 | NULL  | the same with rank 2                                    |
 *  | batched_powersgd, BATCHED_POWER_SGD | NULL | one matrix per bucket                                |
 *  | batched_powersgd_rank2, BATCHED_POWER_SGD_RANK2 | NULL | the same with rank 2                     |
 *  | zero_step                     | cz_zero | steps of that optimizer, made on `ddp`, at the end of each pass: CZ_OVERLAP_STEP |
 *  | zero_step_interleaved         | cz_zero | and bucket by bucket: CZ_OVERLAP_INTERLEAVED            |
 *
 *  The last two leave the reduction to another hook, or none. In 16 bits the mean is a sum in f32, one division and
 *  one rounding: it overflows only where the mean itself, or one rank's gradient, is too large for the type. A
 *  cz_hook that is a state (see cz_hook_find()) is borrowed, and released with the hook around it.
 *  Local; between passes; on all ranks alike.
 *  @return as cz_ddp_register_hook(), cz_zero_set_overlap(). CZ_ERR_ARGUMENT: no such name (the sentence lists
 *          them), a state where none is wanted or not what is wanted, another optimizer's ddp. */
CZ_API cz_status cz_ddp_register_hook_by_name(cz_ddp *ddp, const char *name, void *state);

/** The hook of that name, to be the state of one that wraps others.
 *
 *  @param model  NULL, or of the ddp: for hooks that make a state of their own (`state` NULL; call out->release()
 *                with that state if the hook is not registered after all)
 *  @return errors as above. CZ_ERR_UNSUPPORTED: zero_step and its sister. */
CZ_API cz_status cz_hook_find(cz_hook *out, const char *name, const cz_model *model, void *state);

/** How many there are, and the name of one; NULL: no such index. Local; any thread. */
CZ_API int cz_hook_count(void);
CZ_API const char *cz_hook_name(int index);

CZ_END_DECLS
#endif
