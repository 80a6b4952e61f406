/* SPDX-License-Identifier: MIT */
/** @file parts.h  Parts of a global batch: a training whose every bit is the same on any number of
 *  ranks.
 *
 *  A training has a number of parts, always the same; ranks are only where parts happen to be. A
 *  rank runs forward and backward for one of its parts after the other. The gradients of all parts
 *  are added in a tree over parts (device.h: sum(first..last) = sum(left) + sum(right)) and divided
 *  once by their number, wherever they were made.
 *
 *      cz_parts_options twelve = CZ_PARTS_OPTIONS_INIT;
 *      twelve.count = 12;
 *      CZ_TRY(cz_parts_create(&parts, group, model, &twelve));
 *      cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
 *      options.parts = parts;
 *      CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_adamw(), hypers, &options));
 *      for (…) {
 *          for (int i = 0, part; (part = cz_parts_own(parts, i)) >= 0; i++) {
 *              gradients set to zero; forward and backward of the examples of that part
 *              CZ_TRY(cz_parts_add(parts));
 *          }
 *          CZ_TRY(cz_zero_step(zero, NULL, NULL));
 *      }
 *
 *  With a data-parallel model (its option parts) each part is a pass, of which the last
 *  synchronises: `cz_ddp_begin(ddp, cz_parts_is_last(parts))`. What a program has to keep for equal
 *  bits, and what parts refuse: docs/parts.md. */
#ifndef CZERO_PARTS_H
#define CZERO_PARTS_H

#include "czero/group.h"
#include "czero/tensor.h"

CZ_BEGIN_DECLS

/** The parts of one rank, and the gradients that it has added up in the present step. */
typedef struct cz_parts cz_parts;

typedef struct cz_parts_options {
    size_t size;      /**< set by CZ_PARTS_OPTIONS_INIT */
    int32_t count;    /**< of parts in all: at least as many as ranks; at most 4096 */
    int32_t reserved; /**< 0 */
} cz_parts_options;
#define CZ_PARTS_OPTIONS_INIT {sizeof(cz_parts_options), 0, 0}
CZ_INIT_FUNCTION(cz_parts_options, CZ_PARTS_OPTIONS_INIT)

/** Deal out parts: every rank has as many as any other, or one more (the first ranks). A rank with
 *  n of them keeps partial sums in at most log2(n) buffers, rounded down, of what the model's
 *  trainable gradients take; none where n is 1. The memory is had here (CZ_MEMORY_GRADIENT).
 *
 *  Collective: every rank of `group`. One call at a time per handle.
 *  @param group  borrowed; outlives the parts
 *  @param model  borrowed, as its tensors; its list of parameters is frozen from now on
 *  @return CZ_OK. CZ_ERR_ARGUMENT (a NULL, fewer parts than ranks, more than 4096), CZ_ERR_MISMATCH
 *          (ranks gave different numbers), CZ_ERR_UNSUPPORTED (a trainable parameter of a 16-bit or
 *          integer type, a tensor that the group cannot move, an option segment_bytes of the group
 *          too small for the sums of one rank), CZ_ERR_MEMORY. */
CZ_API cz_status cz_parts_create(cz_parts **out, cz_group *group, cz_model *model,
                                 const cz_parts_options *options);
/** Local; accepts NULL and *NULL. An optimizer or a data-parallel model that uses them has them
 *  until it is destroyed, too. */
CZ_API void cz_parts_destroy(cz_parts **parts);

/** This rank's parts in the order in which it runs them: the number of the i-th, 0 to count - 1. -1
 *  beyond its last, and for NULL. They follow from the numbers of parts, ranks and this rank alone.
 *  Local. */
CZ_API int cz_parts_own(const cz_parts *parts, int i);

/** Is the part that comes next this rank's last one of the step? Local. */
CZ_API bool cz_parts_is_last(const cz_parts *parts);

/** The gradients of the model are those of this rank's next part, and of nothing else: add them up.
 *  They are the part's mean over its examples, as every gradient here is the mean over what it is
 *  of. A parameter without a gradient counts as zeros, unless it has none in any part. Where parts
 *  have weights gradients are multiplied by the part's share first, in place. From one part to the
 *  next their memory is the program's; the last part's are used in place and stay as they are until
 *  the step has been made. Parameters are frozen and unfrozen between steps only. With a
 *  data-parallel model its passes do all this. Local.
 *  @return CZ_OK. CZ_ERR_ARGUMENT: NULL. CZ_ERR_STATE: all parts of this rank were added, and a
 *          step comes next; a part could not be added before; a data-parallel model adds them.
 *          CZ_ERR_UNSUPPORTED, CZ_ERR_MEMORY: a parameter was unfrozen that has another type, or no
 *          memory; cz_parts_restart() begins the step again, nothing else goes on. */
CZ_API cz_status cz_parts_add(cz_parts *parts);

/** Forget what this rank has added since the last step, which then begins again with its first
 *  part: after an addition that failed, or a step that failed and is not made again as it is. (A
 *  pass of a data-parallel model that synchronises does so itself, whatever becomes of it.) Local:
 *  others need not, who wait for this rank's parts anyway. A sampler is to be set back to the
 *  batch's position.
 *  Until then, or until the step, nothing is saved, loaded, cut anew or fingerprinted: CZ_ERR_STATE
 *  on all ranks.
 *  @return CZ_ERR_ARGUMENT: NULL. CZ_ERR_STATE: a pass of a data-parallel model is under way. */
CZ_API cz_status cz_parts_restart(cz_parts *parts);

/** What each part counts for in the mean, from the next step on: the mean is the sum of weight
 *  times gradient over the sum of weights. With the number of examples in each part it is the mean
 *  over all examples. A part of weight 0 is run like any other (it has no example: its gradients
 *  are not read). If all weights are 0 nothing is reduced, and a sharded optimizer's step is
 *  skipped (cz_step_result); an unsharded one has to be left alone (`weightless` of cz_parts_info).
 *
 *  Collective; before the first part of a step.
 *  @param weights  of this rank's parts, in its order; NULL on all ranks: they count alike
 *  @return CZ_OK. CZ_ERR_ARGUMENT (a weight below 0 or not finite, or the sum of all),
 *          CZ_ERR_MISMATCH (NULL on some ranks only), CZ_ERR_STATE (a part was added, or its pass
 *          has begun; there are other parts over the same model). */
CZ_API cz_status cz_parts_set_weights(cz_parts *parts, const double *weights);

/** The mean over all parts of losses and metrics, added in the same tree and with the same weights:
 *  the same bits on any number of ranks. NaN if all weights are 0.
 *
 *  Collective.
 *  @param values  `count` numbers of each of this rank's parts: values[i * count + k] is number k
 *                 of its i-th part
 *  @param means   receives `count` numbers, on all ranks
 *  @return CZ_OK. CZ_ERR_ARGUMENT (a NULL, count below 1 or above 65536), CZ_ERR_MISMATCH (ranks
 *          gave different counts), CZ_ERR_MEMORY. */
CZ_API cz_status cz_parts_mean(cz_parts *parts, const double *values, int64_t count, double *means);

/** A stream for cz_random_block() and its like that belongs to this part of this step, whichever
 *  rank has it: for dropout and augmentation. Pure; local; any thread. */
static inline uint64_t cz_parts_stream(int64_t step, int part)
{
    return (uint64_t)step * 4096 + (uint64_t)part; /* the most parts that there are */
}

/** Run a part; see cz_parts_check(). It has the program's floating-point environment. Its gradients
 *  are zero when it is called. */
typedef cz_status (*cz_parts_run)(int part, void *context);

/** Does one part give the same gradients twice, bit for bit? `run` is called two times for each of
 *  this rank's parts with gradients set to zero, and has to leave the part's gradients in the
 *  model's memory, nothing more: no mark, no step. What differs depends on timing, on an
 *  uninitialised value, or on what ran before (docs/parts.md). For a look before a training, in
 *  which nothing was added yet. Local; needs memory for a copy of all gradients.
 *  @return CZ_OK. CZ_ERR_MISMATCH: the sentence names part, parameter and element. CZ_ERR_ARGUMENT:
 *          a NULL. CZ_ERR_STATE: a part was added. CZ_ERR_MEMORY. What `run` returned. */
CZ_API cz_status cz_parts_check(cz_parts *parts, cz_parts_run run, void *context);

typedef struct cz_parts_info {
    size_t size; /**< set by CZ_PARTS_INFO_INIT */
    cz_group *group;
    cz_model *model;
    int32_t count;      /**< of parts in all */
    int32_t own_count;  /**< of this rank's */
    int32_t added;      /**< of these in the present step */
    int32_t weightless; /**< 1: all weights are 0 */
    size_t kept_bytes;  /**< of partial sums on this rank */
} cz_parts_info;
#define CZ_PARTS_INFO_INIT {sizeof(cz_parts_info), NULL, NULL, 0, 0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_parts_info, CZ_PARTS_INFO_INIT)

/** Local. @return CZ_ERR_ARGUMENT: a NULL, or a size that was not set. */
CZ_API cz_status cz_parts_get_info(const cz_parts *parts, cz_parts_info *info);

CZ_END_DECLS
#endif
