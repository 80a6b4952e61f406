/* SPDX-License-Identifier: MIT */
/** @file ddp.h  Data parallelism: gradients are reduced bucket by bucket while the backward pass goes on.
 *  @see Li et al., "PyTorch Distributed", VLDB 2020, arXiv:2006.15704. */
#ifndef CZERO_DDP_H
#define CZERO_DDP_H

#include "czero/group.h"
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
} cz_ddp_options;
#define CZ_DDP_OPTIONS_INIT {sizeof(cz_ddp_options), 0, 0, 0, 0, 0, 0}

/** Make one: check that all ranks describe the same model and options, make the buckets, bring rank 0's
 *  parameters and buffers to every rank.
 *
 *  Collective. One call at a time per handle, but for cz_ddp_mark_ready().
 *  @param group  borrowed until the end of the call: operations go over sub-groups of its own
 *  @param model  borrowed, as its tensors; its list of parameters is frozen from now on. Parameters that
 *                are trainable need gradient memory in every pass.
 *  @return CZ_OK. Seen by all ranks, nothing was changed: CZ_ERR_ARGUMENT (a NULL, no trainable parameter,
 *          an option out of range), CZ_ERR_MISMATCH (the first difference between two ranks),
 *          CZ_ERR_UNSUPPORTED (a trainable parameter of an
 *          integer type, a backend without sub-groups, a sparse tensor, one that is not on a device of the type whose memory the
 *          group moves), CZ_ERR_MEMORY. Group broken: CZ_ERR_PEER, CZ_ERR_TIMEOUT. Local:
 *          CZ_ERR_ARGUMENT (`group` is NULL). */
CZ_API cz_status cz_ddp_create(cz_ddp **out, cz_group *group, cz_model *model,
                               const cz_ddp_options *options);

/** Local: waits for no other rank; accepts NULL and *NULL; also in the middle of a pass (gradients are
 *  then undefined), and after cz_model_destroy(). */
CZ_API void cz_ddp_destroy(cz_ddp **ddp);

/** Begin a pass, before the forward pass that belongs to it: gradients of trainable parameters may be
 *  marked from now on.
 *
 *  @param sync  false: gradients are only added up by the backward pass, marks are ignored and nothing is
 *               reduced (PyTorch's no_sync). Alike on every rank.
 *  Collective if `sync`. @return CZ_OK. CZ_ERR_STATE: a pass has begun. Seen by all ranks:
 *          CZ_ERR_MISMATCH (ranks differ in which parameters are frozen), CZ_ERR_MEMORY. Group broken:
 *          CZ_ERR_PEER, CZ_ERR_TIMEOUT. Local: CZ_ERR_ARGUMENT (NULL). */
CZ_API cz_status cz_ddp_begin(cz_ddp *ddp, bool sync);

/** The gradient of a parameter is complete on this rank. The last mark of a bucket starts its reduction,
 *  if all buckets before it have started: buckets go in their order on every rank, whatever the order of
 *  marks. A gradient must not be touched from its mark to the end of the pass.
 *
 *  Local; any thread, several at once. Frozen parameters may be marked, too.
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
 *          bucket and parameter), CZ_ERR_MEMORY. Broken: CZ_ERR_PEER, CZ_ERR_TIMEOUT. Local:
 *          CZ_ERR_ARGUMENT (NULL), CZ_ERR_STATE (no pass has begun). */
CZ_API cz_status cz_ddp_finish(cz_ddp *ddp);

/** Buckets, the number of parameters in one, and one of these; -1 where there is none. Local. */
CZ_API int cz_ddp_bucket_count(const cz_ddp *ddp);
CZ_API int64_t cz_ddp_bucket_param_count(const cz_ddp *ddp, int bucket);
CZ_API int64_t cz_ddp_bucket_param(const cz_ddp *ddp, int bucket, int64_t place);

/** Were the buckets made anew by the order of arrival? Local. */
CZ_API bool cz_ddp_rebuilt(const cz_ddp *ddp);

CZ_END_DECLS
#endif
