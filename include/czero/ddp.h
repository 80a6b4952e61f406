/* SPDX-License-Identifier: MIT */
/** @file ddp.h  Data parallelism: gradients are reduced bucket by bucket while the backward pass goes on.
 *  @see Li et al., "PyTorch Distributed", VLDB 2020, arXiv:2006.15704. */
#ifndef CZERO_DDP_H
#define CZERO_DDP_H

#include "czero/group.h"
#include "czero/in_backward.h"
#include "czero/join.h"
#include "czero/shard.h"
#include "czero/tensor.h"

CZ_BEGIN_DECLS

/** One rank's part of a data-parallel model. A pass: cz_ddp_begin(), the backward pass with
 *  cz_ddp_mark_ready() for each gradient, cz_ddp_finish(). */
typedef struct cz_ddp cz_ddp;

typedef struct cz_ddp_options {
    size_t size;               /**< sizeof(cz_ddp_options) where the caller was compiled */
    size_t bucket_bytes;       /**< a bucket is full when its gradients have that many; 0: 25 MiB */
    size_t first_bucket_bytes; /**< smaller, so that the first reduction starts early; 0: 1 MiB */
    int32_t find_unused; /**< 1: parameters may stay unmarked in a pass; 0: that is an error */
    int32_t
        keep_buckets; /**< 1: buckets stay in the fixed layout; 0: they are made anew once, by the
                                    order in which gradients arrived on rank 0 in the first pass */
    int32_t keep_values;  /**< 1: parameters and buffers are not made those of rank 0 at creation */
    int32_t keep_buffers; /**< 1: nor are buffers in cz_ddp_begin() */
    int32_t
        all_reduce; /**< 1: every rank gets all of the mean; 0: with a sharded optimizer (cz_zero_options)
                               only what it owns. Hooks whose result is the whole bucket need 1 there. */
    int32_t
        static_graph; /**< 1: every pass marks what the first one marked, as often: the first pass learns
                               it, on each rank for itself, and starts all buckets at its end; parameters that no
                               rank marked are never reduced. Another graph later is an error. */
} cz_ddp_options;
#define CZ_DDP_OPTIONS_INIT {sizeof(cz_ddp_options), 0, 0, 0, 0, 0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_ddp_options, CZ_DDP_OPTIONS_INIT)

/** Make one: check that all ranks describe the same model and options, make the buckets, bring rank 0's
 *  parameters and buffers to every rank.
 *
 *  Collective. One call at a time per handle, but for cz_ddp_mark_ready().
 *  @param group  borrowed until the end of the call: operations go over sub-groups of its own
 *  @param model  borrowed, as its tensors; its list of parameters is frozen from now on. Parameters that
 *                are trainable need gradient memory in every pass.
 *  @return CZ_OK. Seen by all ranks, nothing was changed: CZ_ERR_ARGUMENT (a NULL, no trainable parameter,
 *          an option out of range, a value or gradient of a trainable parameter that shares memory with another one, a
 *          gradient that does so with a value or a buffer, a buffer with a value; empty ones share none), CZ_ERR_MISMATCH (the first difference between two ranks),
 *          CZ_ERR_UNSUPPORTED (a trainable parameter of an
 *          integer type, a backend without sub-groups, a sparse tensor, one that is not on a device of the type whose memory the
 *          group moves), CZ_ERR_MEMORY. Group broken: CZ_ERR_PEER, CZ_ERR_TIMEOUT. Local:
 *          CZ_ERR_ARGUMENT (`group` is NULL). */
CZ_API cz_status cz_ddp_create(cz_ddp **out, cz_group *group, cz_model *model,
                               const cz_ddp_options *options);

/** Local: waits for no other rank; accepts NULL and *NULL; also in the middle of a pass (gradients are
 *  then undefined), and after cz_model_destroy(). Marks of passes that did not synchronise, for which no pass came that did,
 *  are lost, which a warning says: where the model goes on in another one, mark them there in a pass that does not synchronise. */
CZ_API void cz_ddp_destroy(cz_ddp **ddp);

/** What this rank's gradients count for in the mean, from the next cz_ddp_begin() on: the mean is the sum of
 *  weight times gradient over the sum of weights. With the number of examples of each rank's batch as weights the
 *  mean is that over all examples, however they are dealt out. A gradient is multiplied by its rank's share
 *  (weight * ranks / sum of weights, 1 if all are equal) when its bucket starts, in place; then the mean is made
 *  as ever. A rank of weight 0 takes part, its gradients are not read; if all weights are 0
 *  nothing is reduced, and a sharded optimizer's step is skipped (cz_step_result).
 *
 *  Local; between passes; on all ranks or none.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: NULL, a weight below 0 or not finite. CZ_ERR_STATE: a pass has begun. */
CZ_API cz_status cz_ddp_set_weight(cz_ddp *ddp, double weight);

/** Begin a pass, before the forward pass that belongs to it: gradients of trainable parameters may be
 *  marked from now on.
 *
 *  @param sync  false: gradients are only added up by the backward pass, nothing is reduced (PyTorch's
 *               no_sync). What is marked in it takes part in the next pass that synchronises, even if that
 *               does not use it and marks it no more (in a static graph it has to). Alike on every rank.
 *  Collective if `sync`. @return CZ_OK. CZ_ERR_STATE: a pass has begun. Seen by all ranks:
 *          CZ_ERR_MISMATCH (ranks differ in which parameters are frozen, in their hook, in whether they have a
 *          weight; with an overlapped optimizer in what cz_zero_step() compares), CZ_ERR_ARGUMENT (the
 *          sum of weights is not finite, a gradient that has moved shares memory with something), CZ_ERR_MEMORY, the status of the rule's begin_step() (overlap). Group broken:
 *          CZ_ERR_PEER, CZ_ERR_TIMEOUT. Local: CZ_ERR_ARGUMENT (NULL). */
CZ_API cz_status cz_ddp_begin(cz_ddp *ddp, bool sync);

/** The gradient of a parameter is complete on this rank. The last mark of a bucket starts its reduction,
 *  if all buckets before it have started: buckets go in their order on every rank, whatever the order of
 *  marks. A gradient must not be touched from its mark to the end of the pass.
 *  Where gradients are is looked up in cz_ddp_begin(): a new address counts from the next pass on.
 *
 *  Local; any thread, several at once; not in a continuation of an operation. Frozen parameters may be marked, too.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: NULL, no such parameter. CZ_ERR_STATE: no pass has begun; marked more
 *          often than it is used (see cz_ddp_set_uses()); no gradient memory: the pass then fails on
 *          every rank, in cz_ddp_finish(). */
CZ_API cz_status cz_ddp_mark_ready(cz_ddp *ddp, int64_t param);

/** A parameter's gradient is complete at the n-th mark of a pass: tied weights, recomputation. Local;
 *  between passes. @return CZ_ERR_ARGUMENT: NULL, no such parameter, uses < 1; CZ_ERR_STATE. */
CZ_API cz_status cz_ddp_set_uses(cz_ddp *ddp, int64_t param, int uses);

/** End a pass: wait until all gradients are the mean over all ranks; with a sharded optimizer made on it
 *  (cz_zero_options), what this rank owns is, and the rest is left as it was.
 *
 *  Collective if the pass synchronises. With find_unused a parameter that no rank marked keeps its
 *  gradient as it is; one that some rank marked gets the mean in which the others count as zero.
 *  @return CZ_OK. Seen by all ranks, gradients undefined, the next pass may begin: CZ_ERR_STATE (a
 *          parameter was not marked, or too often, or has no gradient memory: the sentence has rank,
 *          bucket and parameter), CZ_ERR_MEMORY, the status of a hook, what cz_zero_step() returns
 *          (CZ_OVERLAP_STEP). Broken: CZ_ERR_PEER, CZ_ERR_TIMEOUT. Local:
 *          CZ_ERR_ARGUMENT (NULL), CZ_ERR_STATE (no pass has begun). */
CZ_API cz_status cz_ddp_finish(cz_ddp *ddp);

/** End a pass that this rank cannot complete (its data are bad, its memory is out), in place of cz_ddp_finish(): other ranks,
 *  which call either, need not wait for marks that never come. A pass that synchronises fails on all ranks, gradients are
 *  undefined, and the next one may begin; of one that does not, the marks stay.
 *
 *  Collective with the cz_ddp_finish() of others if the pass synchronises. @return CZ_OK: the pass has ended, and the ranks
 *          that finish it get CZ_ERR_STATE and a sentence with this rank. CZ_ERR_PEER, CZ_ERR_TIMEOUT: the group is broken.
 *          Local: CZ_ERR_ARGUMENT (NULL), CZ_ERR_STATE (no pass has begun). */
CZ_API cz_status cz_ddp_abandon(cz_ddp *ddp);

/** How many passes have synchronised and succeeded, with those that cz_ddp_set_passes() gave: to be saved. Equal on all
 *  ranks. Local, between passes; -1: NULL. */
CZ_API int64_t cz_ddp_passes(const cz_ddp *ddp);
/** Go on counting where a saved training was, so that hooks that draw random numbers by cz_bucket_pass() do not draw
 *  those of its first passes again. Local, before the first pass; alike on all ranks, which is compared in cz_ddp_begin().
 *  @return CZ_ERR_ARGUMENT: NULL, below 0; CZ_ERR_STATE: a pass was begun already. */
CZ_API cz_status cz_ddp_set_passes(cz_ddp *ddp, int64_t passes);

/** To join it with uneven inputs (join.h): passes that synchronise notify; a rank that has joined makes the same
 *  passes with gradients that count as zero, and gets the mean in its gradient memory. Option divide of the
 *  join says by what it is divided. Buffers, and the order of buckets, are those of the highest rank that has inputs; in the end
 *  buffers, and parameters unless there is a sharded optimizer, become those of cz_join_last(). Local.
 *  @param out  as for cz_optim_joinable() @return as that */
CZ_API cz_status cz_ddp_joinable(cz_ddp *ddp, cz_joinable *out);

/** Unsharded optimizers inside passes, from the next one on: as soon as a bucket is reduced every rank updates its
 *  parameters (option `released` is then called on a thread of the library, or one that waits in it; where gradients
 *  are must not change within a pass). Passes that do not synchronise make no step. If a pass fails, what came before
 *  the failure is updated, on every rank alike. Values are not made equal: they are from creation on. Sharded ones:
 *  CZ_OVERLAP_INTERLEAVED.
 *
 *  Local; between passes; on all ranks alike, which cz_ddp_begin() compares with rules, groups and values
 *  (CZ_ERR_MISMATCH); it also has the errors of cz_in_backward_begin(), seen by all ranks.
 *  @param in_backward  borrowed; outlives `ddp`, or until it is taken off with NULL. Meanwhile the program neither begins
 *                 its steps nor marks.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: `ddp` is NULL, another model. CZ_ERR_STATE: a pass has begun; there is an
 *          optimizer; another ddp has these. CZ_ERR_UNSUPPORTED: a hook that reduces slices. */
CZ_API cz_status cz_ddp_step_in_backward(cz_ddp *ddp, cz_in_backward *in_backward);

/* ---- hooks ---- */

/** One bucket of one pass, as a hook sees it: until all has ended that the hook started. */
typedef struct cz_bucket cz_bucket;

typedef enum cz_hook_result {
    CZ_HOOK_WHOLE = 0, /**< every element of the buffer is reduced in the end */
    CZ_HOOK_SLICE = 1  /**< those that this rank owns in cz_bucket_map() are */
} cz_hook_result;

/** How a bucket's gradients become what they shall be; without one: the mean over all ranks. A hook does all of
 *  it, the division by the number of ranks too. */
typedef struct cz_hook {
    size_t size;           /**< sizeof(cz_hook) where the caller was compiled */
    const char *name;      /**< alike on all ranks; copied */
    cz_hook_result result; /**< what it reduces */
    /** Called once for each bucket and pass that synchronises, for one bucket after the other in the order in which
     *  they start, alike on all ranks, on a thread of the library or one that waits in it. It reads and writes the buffer
     *  and may start operations on cz_bucket_group(): those, their continuations and what these start in turn are
     *  the bucket's work, and when all has ended the buffer is the result. In a hook and in continuations works may be asked for (CZ_START) to continue them, and are let go of there. It must not wait. CZ_OK, or a
     *  failure that all ranks then see in cz_ddp_finish(); the next pass may begin. */
    cz_status (*run)(void *state, cz_bucket *bucket);
    void *state; /**< borrowed */
    /** NULL, or called with `state` once it is registered and no longer needed: when the ddp is destroyed. */
    void (*release)(void *state);
} cz_hook;
#define CZ_HOOK_INIT {sizeof(cz_hook), NULL, CZ_HOOK_WHOLE, NULL, NULL, NULL}
CZ_INIT_FUNCTION(cz_hook, CZ_HOOK_INIT)

/** Reduce buckets by a hook from the next pass on. With a hook the memory of a gradient may be written outside of
 *  what the rank owns. A bucket's gradients are copied into a buffer and back, unless they lie side by side in
 *  the bucket's order already, as in a flat block. Local; between passes; on all ranks alike (compared in
 *  cz_ddp_begin()). `hook` is copied. @return CZ_OK. CZ_ERR_ARGUMENT: a NULL, no name, no such result.
 *  CZ_ERR_STATE: a pass has begun; there is a hook. CZ_ERR_UNSUPPORTED: CZ_HOOK_WHOLE, a sharded optimizer and not
 *  option all_reduce; CZ_HOOK_SLICE and that option. */
CZ_API cz_status cz_ddp_register_hook(cz_ddp *ddp, const cz_hook *hook);

/** The model that it was made for. Local. */
CZ_API const cz_model *cz_ddp_model(const cz_ddp *ddp);

/** The name of its hook; "": there is none. Local. */
CZ_API const char *cz_ddp_hook(const cz_ddp *ddp);

/* Of a bucket; all local, in a hook or a continuation of what it started. */

/** Its number (see cz_ddp_bucket_param()), and does it start last in this pass? */
CZ_API int cz_bucket_index(const cz_bucket *bucket);
CZ_API bool cz_bucket_is_last(const cz_bucket *bucket);
/** The parameters that take part, in the buffer's order: frozen ones are left out. */
CZ_API int64_t cz_bucket_param_count(const cz_bucket *bucket);
CZ_API int64_t cz_bucket_param(const cz_bucket *bucket, int64_t place);
/** Has some rank marked it? Otherwise its part of the result is not used. Equal on all ranks. */
CZ_API bool cz_bucket_is_used(const cz_bucket *bucket, int64_t place);
/** How many passes have synchronised and succeeded before this one: equal on all ranks, whatever failed. After a resume
 *  it begins at 0 again, unless cz_ddp_set_passes() says otherwise. */
CZ_API int64_t cz_bucket_pass(const cz_bucket *bucket);
/** The buffer: their gradients one after the other, without gaps, on the group's device; those that this rank
 *  has not marked are zeros. Number of elements, and their type. */
CZ_API void *cz_bucket_buffer(const cz_bucket *bucket);
CZ_API int64_t cz_bucket_count(const cz_bucket *bucket);
CZ_API cz_dtype cz_bucket_dtype(const cz_bucket *bucket);
CZ_API const cz_device *cz_bucket_device(const cz_bucket *bucket);
/** Where the gradient of the parameter at `place` begins in it, in elements. */
CZ_API int64_t cz_bucket_offset(const cz_bucket *bucket, int64_t place);
/** Where its operations go. */
CZ_API cz_group *cz_bucket_group(const cz_bucket *bucket);
/** Who owns which elements of the parameters (of more than those of the bucket): that of the sharded optimizer,
 *  or else each bucket cut evenly. */
CZ_API const cz_shard_map *cz_bucket_map(const cz_bucket *bucket);
/** Start the reduction of every element to its owner in that map: what is done without a hook, as far as
 *  elements have one owner. @return as cz_reduce_scatter(). */
CZ_API cz_status cz_bucket_reduce(cz_bucket *bucket, cz_reduction reduction);

/** Have memory until the bucket's work has ended, on its device or on the CPU; 64-byte aligned, the library's. The
 *  n-th call of a hook for a bucket gets the memory of the n-th call of the pass before, if that is large
 *  enough (what is in it is not defined): hooks that do the same in every pass allocate in the first one.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: a NULL. CZ_ERR_STATE: the 17th call. CZ_ERR_MEMORY. */
CZ_API cz_status cz_bucket_memory(cz_bucket *bucket, const cz_device *device, size_t bytes,
                                  void **memory);
/** Another buffer for the rest of the bucket's work, from cz_bucket_memory(), on its device: as many elements, of any
 *  floating type. What is there in the end is the result, rounded or widened to the gradients' type when it
 *  is written back. A hook that is called by another one finds what that one has put there.
 *  @return CZ_ERR_ARGUMENT: a NULL, no floating type. */
CZ_API cz_status cz_bucket_replace_buffer(cz_bucket *bucket, void *buffer, cz_dtype dtype);
/** Call `last` once all has ended that was started for the bucket, with the status of all that; it must not start
 *  anything. Several are called in the order in which they were given, and each is told of failures before.
 *  Then what is in the buffer is written back. @return CZ_ERR_ARGUMENT: a NULL. CZ_ERR_STATE: the 9th call. */
CZ_API cz_status cz_bucket_then(cz_bucket *bucket, cz_continuation last, void *context);

/** Buckets, the number of parameters in one, and one of these; -1 where there is none. Local. */
CZ_API int cz_ddp_bucket_count(const cz_ddp *ddp);
CZ_API int64_t cz_ddp_bucket_param_count(const cz_ddp *ddp, int bucket);
CZ_API int64_t cz_ddp_bucket_param(const cz_ddp *ddp, int bucket, int64_t place);

/** Were the buckets made anew by the order of arrival? Local. */
CZ_API bool cz_ddp_rebuilt(const cz_ddp *ddp);

CZ_END_DECLS
#endif
