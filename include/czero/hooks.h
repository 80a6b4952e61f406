/* SPDX-License-Identifier: MIT */
/** @file hooks.h  Built-in communication hooks: what becomes of a bucket of gradients in place of
 *  their mean over all ranks, for example the mean in half the bytes. What a hook is, and how to
 *  write one, is in ddp.h.
 *
 *      CZ_TRY(cz_ddp_register_hook_by_name(ddp, "bf16_compress", NULL)); */
#ifndef CZERO_HOOKS_H
#define CZERO_HOOKS_H

#include "czero/powersgd.h"

CZ_BEGIN_DECLS

/** Register a built-in hook, by its name or by PyTorch's (DDPCommHookType).
 *
 *  By name, PyTorch's name, and what its state is:
 *  - all_reduce, ALLREDUCE; NULL: the mean, on every rank: the bits of no hook
 *  - reduce_scatter; NULL: the mean, on its owner (then brought to all ranks if there is no sharded
 *    optimizer)
 *  - no_op, NOOP; NULL: nothing: every rank keeps its own gradient
 *  - fp16_compress, FP16_COMPRESS; NULL or cz_hook: the mean, or what that hook does, of gradients
 *    as binary16: half the bytes of f32
 *  - bf16_compress, BF16_COMPRESS; NULL or cz_hook: the same as bfloat16
 *  - quantize_per_tensor, QUANTIZE_PER_TENSOR; NULL: the mean of gradients as bytes, with one scale
 *    per bucket
 *  - quantize_per_channel, QUANTIZE_PER_CHANNEL; NULL or int64_t: and with one per so many
 *    elements; NULL: 512
 *  - powersgd, POWER_SGD; NULL or cz_powersgd: low-rank approximations (powersgd.h); NULL: a state
 *    of its own with all defaults
 *  - powersgd_rank2, POWER_SGD_RANK2; NULL: the same with rank 2
 *  - batched_powersgd, BATCHED_POWER_SGD; NULL: one matrix per bucket
 *  - batched_powersgd_rank2, BATCHED_POWER_SGD_RANK2; NULL: the same with rank 2
 *  - post_local_sgd; cz_post_local_sgd: the mean over a block of ranks, from some iteration on
 *  - mixed_precision; cz_mixed_precision: the mean in another type, handed over in full precision
 *  - record; cz_hook_recorder: what the hook in it does; notes how much passes, how long, how large
 *  - zero_step; cz_zero: steps of that optimizer, made on `ddp`, at the end of each pass:
 *    CZ_OVERLAP_STEP
 *  - zero_step_interleaved; cz_zero: and bucket by bucket: CZ_OVERLAP_INTERLEAVED
 *
 *  The last two leave the reduction to another hook, or none. In 16 bits the mean is a sum in f32,
 *  one division and one rounding: it overflows only where the mean itself, or one rank's gradient,
 *  is too large for the type. A cz_hook that is a state (see cz_hook_find()) is borrowed, and
 *  released with the hook around it. Local; between passes; on all ranks alike.
 *  @return as cz_ddp_register_hook(), cz_zero_set_overlap(). CZ_ERR_ARGUMENT: no such name (the
 *          sentence lists them), a state where none is wanted or not what is wanted, another
 *          optimizer's ddp. */
CZ_API cz_status cz_ddp_register_hook_by_name(cz_ddp *ddp, const char *name, void *state);

/** The hook of that name, to be the state of one that wraps others.
 *
 *  @param out    its `size` is the caller's (CZ_HOOK_INIT); a failure leaves it as it is
 *  @param model  NULL, or of the ddp: for hooks that make a state of their own (`state` NULL; call
 *                out->release() with that state if the hook is not registered after all)
 *  @return errors as above. CZ_ERR_UNSUPPORTED: zero_step and its sister. */
CZ_API cz_status cz_hook_find(cz_hook *out, const char *name, const cz_model *model, void *state);

/** The state of "post_local_sgd", borrowed, alike on all ranks: gradients are averaged over all
 *  ranks at first, then over a block of them, or not at all; parameters are averaged now and then
 *  by somebody else. @see Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020,
 *  arXiv:1808.07217. */
typedef struct cz_post_local_sgd {
    size_t size;             /**< set by CZ_POST_LOCAL_SGD_INIT */
    int32_t local_gradients; /**< 1: passes from start_iter on leave each rank its own gradient */
    /** This rank's block: a split of the ddp's group, which outlives the passes; NULL: the ranks of
     *  this machine (cz_group_info). Blocks must not overlap: passes would end with
     *  CZ_ERR_MISMATCH; and a rank is in its own, or they end with CZ_ERR_ARGUMENT. */
    cz_group *subgroup;
    /** Passes before that one average over all ranks: of the ddp, as cz_ddp_info counts them. */
    int64_t start_iter;
} cz_post_local_sgd;
#define CZ_POST_LOCAL_SGD_INIT {sizeof(cz_post_local_sgd), 0, NULL, 0}
CZ_INIT_FUNCTION(cz_post_local_sgd, CZ_POST_LOCAL_SGD_INIT)

/** The state of "mixed_precision", borrowed: parameters, and so gradients, are low-precision
 *  copies, and an optimizer steps on full-precision ones. */
typedef struct cz_mixed_precision {
    size_t size; /**< sizeof(cz_mixed_precision) */
    /** What gradients travel as, and their mean is rounded to; alike on all ranks. 0: as they are,
     *  or with `full` as f64 where that has f64, else as f32 if they are of 16 bits: no mean is
     *  rounded to the parameter's type. */
    cz_dtype reduce_dtype;
    /** NULL, or for each parameter of the model where its mean goes in full precision, not rounded
     *  to the parameter's type (see reduce_dtype); no data: nowhere. NULL on all ranks or none,
     *  with the same types. */
    const cz_tensor *full;
    /** NULL, or called on a thread that works on the pass when a parameter's gradient is final: its
     *  full-precision value may take its place, the copy may go. A failure ends the pass on all
     *  ranks. */
    cz_status (*ready)(void *context, int64_t param);
    void *context;
} cz_mixed_precision;
#define CZ_MIXED_PRECISION_INIT {sizeof(cz_mixed_precision), (cz_dtype)0, NULL, NULL, NULL}
CZ_INIT_FUNCTION(cz_mixed_precision, CZ_MIXED_PRECISION_INIT)

/** What was noted of a bucket. */
typedef struct cz_hook_record {
    size_t size; /**< set by CZ_HOOK_RECORD_INIT */
    int64_t calls, failures;
    int64_t elements;               /**< in the last call, as the other values */
    cz_dtype dtype;                 /**< of the buffer when the hook began */
    double seconds;                 /**< of all calls that succeeded, from begin to end */
    double norm_before, norm_after; /**< of this rank's gradients, and of the result */
} cz_hook_record;
#define CZ_HOOK_RECORD_INIT {sizeof(cz_hook_record), 0, 0, 0, (cz_dtype)0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_hook_record, CZ_HOOK_RECORD_INIT)

/** The state of "record", borrowed. The program's own: it reads the records between passes. */
typedef struct cz_hook_recorder {
    size_t size; /**< set by CZ_HOOK_RECORDER_INIT */
    /** What does the work, see cz_hook_find(); released with the hook around it. */
    const cz_hook *inner;
    /** `count` of them, each from CZ_HOOK_RECORD_INIT, by the number of the bucket: as many as the
     *  model has parameters are always enough, and what has none is not noted. */
    cz_hook_record *records;
    int64_t count;
} cz_hook_recorder;
#define CZ_HOOK_RECORDER_INIT {sizeof(cz_hook_recorder), NULL, NULL, 0}
CZ_INIT_FUNCTION(cz_hook_recorder, CZ_HOOK_RECORDER_INIT)

/** The names of all hooks, by their number from 0 on; NULL: there are no more. Local; any thread.
 *  */
CZ_API const char *cz_hook_name(int index);

CZ_END_DECLS
#endif
