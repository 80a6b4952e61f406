/* SPDX-License-Identifier: MIT */
/** @file ddp.h  Data parallelism: gradients are reduced bucket by bucket while the backward pass
 *  goes on.
 *
 *      CZ_TRY(cz_ddp_create(&ddp, group, model, NULL));
 *      CZ_TRY(cz_ddp_begin(ddp, true));
 *      for (p = last; p >= 0; p--) { compute gradient p; CZ_TRY(cz_ddp_mark_ready(ddp, p)); }
 *      CZ_TRY(cz_ddp_finish(ddp));                 // all gradients are the mean over ranks
 *
 *  @see Li et al., "PyTorch Distributed", VLDB 2020, arXiv:2006.15704. */
#ifndef CZERO_DDP_H
#define CZERO_DDP_H

#include "czero/group.h"
#include "czero/in_backward.h"
#include "czero/join.h"
#include "czero/parts.h"
#include "czero/shard.h"
#include "czero/tensor.h"

CZ_BEGIN_DECLS

/** One rank's part of a data-parallel model. A pass: cz_ddp_begin(), the backward pass with
 *  cz_ddp_mark_ready() for each gradient, cz_ddp_finish(). */
typedef struct cz_ddp cz_ddp;

typedef struct cz_ddp_options {
    size_t size;               /**< set by CZ_DDP_OPTIONS_INIT */
    size_t bucket_bytes;       /**< a bucket is full when its gradients have that many; 0: 25 MiB */
    size_t first_bucket_bytes; /**< smaller, so that the first reduction starts early; 0: 1 MiB */
    int32_t find_unused; /**< 1: parameters may stay unmarked in a pass; 0: that is an error */
    /** 1: buckets stay in the fixed layout (shard.h); 0: they are made anew once, by the order in
     *  which gradients arrived on rank 0 in the first pass */
    int32_t keep_buckets;
    int32_t keep_values;  /**< 1: parameters and buffers are not made those of rank 0 at creation */
    int32_t keep_buffers; /**< 1: nor are buffers in cz_ddp_begin() */
    /** 1: every rank gets all of the mean; 0: with a sharded optimizer (cz_zero_options) only
     *  what it owns. Hooks whose result is the whole bucket need 1 there. */
    int32_t all_reduce;
    /** 1: every pass marks what the first one marked, as often: the first pass learns it, on
     *  each rank for itself, and starts all buckets at its end; parameters that no rank marked
     *  are never reduced. Another graph later is an error. */
    int32_t static_graph;
    /** NULL, or parts over the same model and ranks, which outlive it (parts.h): each part of this
     *  rank is a pass, of which the last of a step synchronises, and the mean is over all parts.
     *  No hooks. */
    cz_parts *parts;
} cz_ddp_options;
#define CZ_DDP_OPTIONS_INIT {sizeof(cz_ddp_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL}
CZ_INIT_FUNCTION(cz_ddp_options, CZ_DDP_OPTIONS_INIT)

/** Create a data-parallel model: check that all ranks give the same model and options, make the
 *  buckets, bring rank 0's parameters and buffers to every rank.
 *
 *  Collective. One call at a time per handle, but for cz_ddp_mark_ready().
 *  @param group  borrowed until the end of the call: operations go over sub-groups of its own
 *  @param model  borrowed, as its tensors; its list of parameters is frozen from now on. Parameters
 *                that are trainable need gradient memory in every pass.
 *  @return CZ_OK. CZ_ERR_ARGUMENT (a NULL, no trainable parameter, an option out of range, a value
 *          or gradient of a trainable parameter that shares memory with another one, a gradient
 *          that does so with a value or a buffer, a buffer with a value; empty ones share none),
 *          CZ_ERR_MISMATCH (the first difference between two ranks), CZ_ERR_UNSUPPORTED (a
 *          trainable parameter of an integer type, a backend without sub-groups, a sparse tensor,
 *          one that is not on a device of the type whose memory the group moves), CZ_ERR_MEMORY. */
CZ_API cz_status cz_ddp_create(cz_ddp **out, cz_group *group, cz_model *model,
                               const cz_ddp_options *options);

/** Local: waits for no other rank; accepts NULL and *NULL; also in the middle of a pass (gradients
 *  are then undefined), and after cz_model_destroy(). Marks of passes that did not synchronise, for
 *  which no pass came that did, are lost, which a warning says: where the model goes on in another
 *  one, mark them there in a pass that does not synchronise. A sharded optimizer that was made on
 *  it has no passes any more: what needs them fails (CZ_ERR_STATE). */
CZ_API void cz_ddp_destroy(cz_ddp **ddp);

/** What this rank's gradients count for in the mean, from the next cz_ddp_begin() on: the mean is
 *  the sum of weight times gradient over the sum of weights. With the number of examples of each
 *  rank's batch as weights the mean is that over all examples, however they are dealt out. A
 *  gradient is multiplied by its rank's share (weight * ranks / sum of weights, 1 if all are equal)
 *  when its bucket starts, in place; then the mean is made as ever. A rank of weight 0 takes part,
 *  its gradients are not read; if all weights are 0 nothing is reduced, and a sharded optimizer's
 *  step is skipped (cz_step_result).
 *
 *  Local; between passes; on all ranks or none.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: NULL, a weight below 0 or not finite. CZ_ERR_STATE: a pass has
 *          begun. CZ_ERR_UNSUPPORTED: option parts, see cz_parts_set_weights(). */
CZ_API cz_status cz_ddp_set_weight(cz_ddp *ddp, double weight);

/** Begin a pass, before the forward pass that belongs to it: gradients of trainable parameters may
 *  be marked from now on.
 *
 *  @param sync  false: gradients are only added up by the backward pass, nothing is reduced
 *               (PyTorch's no_sync). What is marked in it takes part in the next pass that
 *               synchronises, even if that does not use it and marks it no more (in a static graph
 *               it has to). Alike on every rank.
 *               With option parts: true for this rank's last part of a step, and for no other. In
 *               every pass gradients are then those of one part alone, and are all marked, as in a
 *               pass that synchronises.
 *  Collective if `sync`.
 *  @return CZ_OK. CZ_ERR_STATE: a pass has begun; with option parts, `sync` is not as it has to be.
 *          Seen by all ranks: CZ_ERR_MISMATCH (ranks differ in which parameters are frozen, in
 *          their hook, in whether they have a weight; with an overlapped optimizer in what
 *          cz_zero_step() compares), CZ_ERR_ARGUMENT (the sum of weights is not finite, a gradient
 *          that has moved shares memory with something), CZ_ERR_MEMORY, the status of the rule's
 *          begin_step() (overlap).
 *          With CZ_OVERLAP_STEP a pass of few elements may begin on this rank before all have
 *          agreed: what is seen by all ranks is then seen in cz_ddp_finish(), and nothing has
 *          changed. A collective of the program's own in between ends with CZ_ERR_TIMEOUT where one
 *          rank begins such a pass and another cannot. */
CZ_API cz_status cz_ddp_begin(cz_ddp *ddp, bool sync);

/** The gradient of a parameter is complete on this rank. The last mark of a bucket starts its
 *  reduction, if all buckets before it have started: buckets go in their order on every rank,
 *  whatever the order of marks. A gradient must not be touched from its mark to the end of the
 *  pass. Where gradients are is looked up in cz_ddp_begin(): a new address counts from the next
 *  pass on.
 *
 *  Local; any thread, several at once; not in a continuation of an operation. Frozen parameters may
 *  be marked, too.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: NULL, no such parameter. CZ_ERR_STATE: no pass has begun; marked
 *          more often than it is used (see cz_ddp_set_uses()); no gradient memory: the pass then
 *          fails on every rank, in cz_ddp_finish(). */
CZ_API cz_status cz_ddp_mark_ready(cz_ddp *ddp, int64_t param);

/** A parameter's gradient is complete when it was marked so often in a pass: tied weights,
 *  recomputation. Without this call: once. Local; between passes.
 *  @return CZ_ERR_ARGUMENT: NULL, no such parameter, uses < 1; CZ_ERR_STATE: a pass has begun. */
CZ_API cz_status cz_ddp_set_uses(cz_ddp *ddp, int64_t param, int uses);

/** End a pass: wait until all gradients are the mean over all ranks; with a sharded optimizer made
 *  on it (cz_zero_options), what this rank owns is, and the rest is left as it was.
 *
 *  Collective if the pass synchronises. With find_unused a parameter that no rank marked keeps its
 *  gradient as it is; one that some rank marked gets the mean in which the others count as zero.
 *  @return CZ_OK. Seen by all ranks, gradients undefined, the next pass may begin: CZ_ERR_STATE (a
 *          parameter was not marked, or too often, or has no gradient memory: the sentence has
 *          rank, bucket and parameter), CZ_ERR_MEMORY, the status of a hook, what cz_zero_step()
 *          returns, or cz_ddp_begin() (CZ_OVERLAP_STEP). Local:
 *          CZ_ERR_ARGUMENT (NULL), CZ_ERR_STATE (no pass has begun). With option parts a pass that
 *          synchronises ends the step, which after a failure begins again with the first part on
 *          every rank; one that does not may have the errors of cz_parts_add(). */
CZ_API cz_status cz_ddp_finish(cz_ddp *ddp);

/** End a pass that this rank cannot complete (its data are bad, its memory is out), in place of
 *  cz_ddp_finish(): other ranks, which call either, need not wait for marks that never come. A pass
 *  that synchronises fails on all ranks, gradients are undefined, and the next one may begin; of
 *  one that does not, the marks stay. (With option parts they go: the part is not added, and comes
 *  again.)
 *
 *  Collective with the cz_ddp_finish() of others if the pass synchronises.
 *  @return CZ_OK: the pass has ended, and the ranks that finish it get CZ_ERR_STATE and a sentence
 *          with this rank. CZ_ERR_PEER, CZ_ERR_TIMEOUT: the group is broken. Local: CZ_ERR_ARGUMENT
 *          (NULL), CZ_ERR_STATE (no pass has begun). */
CZ_API cz_status cz_ddp_abandon(cz_ddp *ddp);

/** Go on counting where a saved training was, so that hooks that draw random numbers by the number
 *  of the pass do not draw those of its first passes again. Local, before the first pass; alike on
 *  all ranks, which is compared in cz_ddp_begin().
 *  @return CZ_ERR_ARGUMENT: NULL, below 0; CZ_ERR_STATE: a pass was begun already. */
CZ_API cz_status cz_ddp_set_passes(cz_ddp *ddp, int64_t passes);

/** To join it with uneven inputs (join.h): passes that synchronise notify; a rank that has joined
 *  makes the same passes with gradients that count as zero, and gets the mean in its gradient
 *  memory. Option divide of the join says by what it is divided. Buffers, and the order of buckets,
 *  are those of the highest rank that has inputs; in the end buffers, and parameters unless there
 *  is a sharded optimizer, become those of the join's last rank. Local.
 *  @param out  as for cz_optim_joinable()
 *  @return as that */
CZ_API cz_status cz_ddp_joinable(cz_ddp *ddp, cz_joinable *out);

/** Unsharded optimizers inside passes, from the next one on: as soon as a bucket is reduced every
 *  rank updates its parameters (option `released` of in_backward.h is then called on a thread of
 *  the library, or one that waits in it; where gradients are must not change within a pass). Passes
 *  that do not synchronise make no step. If a pass fails, what came before the failure is updated,
 *  on every rank alike. Values are not made equal: they are from creation on. Sharded ones:
 *  CZ_OVERLAP_INTERLEAVED.
 *
 *  Local; between passes; on all ranks alike, which cz_ddp_begin() compares with rules, groups and
 *  values (CZ_ERR_MISMATCH); it also has the errors of cz_in_backward_begin(), seen by all ranks.
 *  @param in_backward  borrowed; outlives `ddp`, or until it is taken off with NULL. Meanwhile the
 *                 program neither begins its steps nor marks.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: `ddp` is NULL, another model. CZ_ERR_STATE: a pass has begun;
 *          there is an optimizer; another ddp has these. CZ_ERR_UNSUPPORTED: a hook that reduces
 *          slices, optimizers whose steps have an end (cz_in_backward_end()). */
CZ_API cz_status cz_ddp_step_in_backward(cz_ddp *ddp, cz_in_backward *in_backward);

/* ---- hooks ---- */

/** One bucket of one pass, as a hook sees it: until all has ended that the hook started. */
typedef struct cz_bucket cz_bucket;

typedef enum cz_hook_result {
    CZ_HOOK_WHOLE = 0, /**< every element of the buffer is reduced in the end */
    CZ_HOOK_SLICE = 1  /**< those that this rank owns in the map of cz_bucket_info are */
} cz_hook_result;

/** How a bucket's gradients become what they shall be; without one: the mean over all ranks. A hook
 *  does all of it, the division by the number of ranks too. */
typedef struct cz_hook {
    size_t size;           /**< set by CZ_HOOK_INIT */
    const char *name;      /**< alike on all ranks; copied */
    cz_hook_result result; /**< what it reduces */
    /** Called once for each bucket and pass that synchronises, for one bucket after the other in
     *  the order in which they start, alike on all ranks, on a thread of the library or one that
     *  waits in it. It reads and writes the buffer and may start operations on the group of
     *  cz_bucket_info: those, their continuations and what these start in turn are the bucket's
     *  work, and when all has ended the buffer is the result. It must not wait: it asks for a work
     *  (CZ_START), gives it a continuation, and destroys the handle at once.
     *  CZ_OK, or a failure that all ranks then see in cz_ddp_finish(); the next pass may begin. */
    cz_status (*run)(void *state, cz_bucket *bucket);
    void *state; /**< borrowed */
    /** NULL, or called with `state` once it is registered and no longer needed: when the ddp is
     *  destroyed. */
    void (*release)(void *state);
} cz_hook;
#define CZ_HOOK_INIT {sizeof(cz_hook), NULL, CZ_HOOK_WHOLE, NULL, NULL, NULL}
CZ_INIT_FUNCTION(cz_hook, CZ_HOOK_INIT)

/** Reduce buckets by a hook from the next pass on. With a hook the memory of a gradient may be
 *  written outside of what the rank owns. A bucket's gradients are copied into a buffer and back,
 *  unless they lie side by side in the bucket's order already, as in a flat block. Local; between
 *  passes; on all ranks alike (compared in cz_ddp_begin()). `hook` is copied.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: a NULL, no name, no such result. CZ_ERR_STATE: a pass has begun;
 *          there is a hook. CZ_ERR_UNSUPPORTED: CZ_HOOK_WHOLE, a sharded optimizer and not option
 *          all_reduce; CZ_HOOK_SLICE and that option. */
CZ_API cz_status cz_ddp_register_hook(cz_ddp *ddp, const cz_hook *hook);

typedef struct cz_ddp_info {
    size_t size;           /**< set by CZ_DDP_INFO_INIT */
    const cz_model *model; /**< that it was made for */
    const char *hook;      /**< the name of its hook; "": there is none */
    /** Passes that have synchronised and succeeded, with those that cz_ddp_set_passes() gave: to be
     *  saved. Equal on all ranks, between passes. */
    int64_t passes;
    int32_t bucket_count;
    int32_t rebuilt; /**< 1: the buckets were made anew by the order of arrival */
} cz_ddp_info;
#define CZ_DDP_INFO_INIT {sizeof(cz_ddp_info), NULL, NULL, 0, 0, 0}
CZ_INIT_FUNCTION(cz_ddp_info, CZ_DDP_INFO_INIT)

/** Local. @return CZ_ERR_ARGUMENT: a NULL, or a size that was not set. */
CZ_API cz_status cz_ddp_get_info(const cz_ddp *ddp, cz_ddp_info *info);

/** The parameters of a bucket, in its order. Local. @param params  receives at most `room` of them;
 *  may be NULL if `room` is 0
 *  @return how many there are; -1: NULL, no such bucket. */
CZ_API int64_t cz_ddp_bucket_params(const cz_ddp *ddp, int bucket, int64_t *params, int64_t room);

/* ---- a bucket: all local, in a hook or a continuation of what it started ---- */

typedef struct cz_bucket_info {
    size_t size;         /**< set by CZ_BUCKET_INFO_INIT */
    int32_t index;       /**< its number, as in cz_ddp_bucket_params() */
    int32_t is_last;     /**< 1: it starts last in this pass */
    int64_t param_count; /**< that take part: frozen ones are left out */
    /** How many passes have synchronised and succeeded before this one: equal on all ranks,
     *  whatever failed. After a resume it begins at 0 again, unless cz_ddp_set_passes() says
     *  otherwise. */
    int64_t pass;
    /** Their gradients one after the other, without gaps, on the group's device; those that this
     *  rank has not marked are zeros. */
    void *buffer;
    int64_t count;  /**< of elements in it */
    cz_dtype dtype; /**< and their type */
    int32_t reserved;
    const cz_device *device;
    cz_group *group; /**< where its operations go */
    /** Who owns which elements of the parameters (of more than those of the bucket): that of the
     *  sharded optimizer, or else each bucket cut evenly. */
    const cz_shard_map *map;
} cz_bucket_info;
#define CZ_BUCKET_INFO_INIT                                                                        \
    {                                                                                              \
        sizeof(cz_bucket_info), -1, 0, 0, 0, NULL, 0, (cz_dtype)0, 0, NULL, NULL, NULL             \
    }
CZ_INIT_FUNCTION(cz_bucket_info, CZ_BUCKET_INFO_INIT)

/** What it is now: after cz_bucket_replace_buffer() buffer and type are others.
 *  @return CZ_ERR_ARGUMENT: a NULL, or a size that was not set. So it is for the next. */
CZ_API cz_status cz_bucket_get_info(const cz_bucket *bucket, cz_bucket_info *info);

/** A parameter that takes part. */
typedef struct cz_bucket_param {
    size_t size;    /**< set by CZ_BUCKET_PARAM_INIT */
    int64_t param;  /**< its index in the model */
    int64_t offset; /**< where its gradient begins in the buffer, in elements */
    /** 1: some rank has marked it; otherwise its part of the result is not used. Equal on all
     *  ranks. */
    int32_t is_used;
    int32_t reserved; /**< 0 */
} cz_bucket_param;
#define CZ_BUCKET_PARAM_INIT {sizeof(cz_bucket_param), -1, 0, 0, 0}
CZ_INIT_FUNCTION(cz_bucket_param, CZ_BUCKET_PARAM_INIT)

/** @param place  0 to param_count - 1, in the buffer's order
 *  @return CZ_ERR_ARGUMENT also: no such place. */
CZ_API cz_status cz_bucket_get_param(const cz_bucket *bucket, int64_t place,
                                     cz_bucket_param *param);

/** Start the reduction of every element to its owner in that map: what is done without a hook, as
 *  far as elements have one owner.
 *  @return as cz_reduce_scatter(). */
CZ_API cz_status cz_bucket_reduce(cz_bucket *bucket, cz_reduction reduction);

/** Have memory until the bucket's work has ended, on its device or on the CPU; 64-byte aligned, the
 *  library's. The n-th call of a hook for a bucket gets the memory of the n-th call of the pass
 *  before, if that is large enough (what is in it is not defined): hooks that do the same in every
 *  pass allocate in the first one.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: a NULL. CZ_ERR_STATE: the 17th call. CZ_ERR_MEMORY. */
CZ_API cz_status cz_bucket_memory(cz_bucket *bucket, const cz_device *device, size_t bytes,
                                  void **memory);
/** Another buffer for the rest of the bucket's work, from cz_bucket_memory(), on its device: as
 *  many elements, of any floating type. What is there in the end is the result, rounded or widened
 *  to the gradients' type when it is written back. A hook that is called by another one finds what
 *  that one has put there.
 *  @return CZ_ERR_ARGUMENT: a NULL, no floating type. */
CZ_API cz_status cz_bucket_replace_buffer(cz_bucket *bucket, void *buffer, cz_dtype dtype);
/** Call `last` once all has ended that was started for the bucket, with the status of all that; it
 *  must not start anything. Several are called in the order in which they were given, and each is
 *  told of failures before. Then what is in the buffer is written back.
 *  @return CZ_ERR_ARGUMENT: a NULL. CZ_ERR_STATE: the 9th call. */
CZ_API cz_status cz_bucket_then(cz_bucket *bucket, cz_continuation last, void *context);

CZ_END_DECLS
#endif
