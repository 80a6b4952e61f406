/* SPDX-License-Identifier: MIT */
/** @file join.h  Uneven inputs: ranks whose inputs are used up go on taking part in the collective
 *  calls of the others until all have come to their end.
 *
 *      cz_joinable both[2] = {CZ_JOINABLE_INIT, CZ_JOINABLE_INIT};
 *      CZ_TRY(cz_ddp_joinable(ddp, &both[0]));
 *      CZ_TRY(cz_zero_joinable(zero, &both[1]));
 *      CZ_TRY(cz_join_begin(&join, group, both, 2, NULL));
 *      while (status == CZ_OK && has_input())
 *          status = train_one_batch();          // cz_ddp_begin() … cz_ddp_finish(), cz_zero_step()
 *      status = cz_join_end(&join, status);
 *
 *  Each call of a joinable first says which one it is; ranks that have joined answer with the same
 *  call of their own, with gradients that count as zero ("shadow"). So calls may come in any order
 *  and number: several passes for a step, passes that do not synchronise, the optimizer first. Only
 *  the inside of a pass that synchronises is no place for another call: CZ_ERR_STATE.
 *  @see PyTorch's `Join` (torch/distributed/algorithms). */
#ifndef CZERO_JOIN_H
#define CZERO_JOIN_H

#include "czero/group.h"
#include "czero/optim.h"

CZ_BEGIN_DECLS

typedef struct cz_join cz_join;

/** What gradients are divided by while some ranks have joined. */
typedef enum cz_join_divide {
    /** the number of ranks, as ever: those that joined count as zero. Weights of a ddp or a sharded
     *  optimizer are not looked at */
    CZ_JOIN_BY_WORLD = 0,
    CZ_JOIN_BY_ACTIVE = 1, /**< the number of ranks that still have inputs */
    CZ_JOIN_BY_WEIGHT = 2  /**< the sum of cz_ddp_set_weight() or cz_zero_set_weight() of these */
} cz_join_divide;

typedef struct cz_join_options {
    size_t size; /**< set by CZ_JOIN_OPTIONS_INIT */
    cz_join_divide divide;
    /** 1: as soon as a rank has joined, all end: the others' next call of a joinable and every
     *  cz_join_end() return CZ_ERR_STATE, which names the rank. Nothing more is done. */
    int32_t end_early;
    /** 1: inputs are even: nothing is sent, cz_join_end() returns the body's status */
    int32_t disabled;
    /** What a step of a joined rank does beside the update, as the others' do: max_norm,
     *  skip_nonfinite, norm, argument. Copied. NULL: nothing. */
    const cz_step_options *step;
} cz_join_options;
#define CZ_JOIN_OPTIONS_INIT {sizeof(cz_join_options), CZ_JOIN_BY_WORLD, 0, 0, NULL}
CZ_INIT_FUNCTION(cz_join_options, CZ_JOIN_OPTIONS_INIT)

/** Something with collective calls. Entries may be NULL: nothing to do. The program's own calls
 *  cz_join_notify() before its collective operations. */
typedef struct cz_joinable {
    size_t size;      /**< set by CZ_JOINABLE_INIT */
    const char *name; /**< for messages; outlives the join */
    void *object;
    /** The join begins: it has this number there. At its end, whatever happened: `join` is NULL.
     *  CZ_OK, or why it cannot join. Local. */
    cz_status (*enter)(void *object, cz_join *join, int number);
    /** Another rank has notified: make the collective operations that follow there, contributing
     *  nothing. It must not notify. A failure is a failure of all ranks. */
    cz_status (*shadow)(void *object, cz_join *join);
    /** All ranks have joined. Collective. cz_join_info says who was last. */
    cz_status (*finish)(void *object, cz_join *join);
    /** The body failed here: end what others wait for, so that they learn of it. */
    void (*abandon)(void *object, cz_status status);
} cz_joinable;
#define CZ_JOINABLE_INIT {sizeof(cz_joinable), NULL, NULL, NULL, NULL, NULL, NULL}
CZ_INIT_FUNCTION(cz_joinable, CZ_JOINABLE_INIT)

/** Begin to join. Collective over `group`, of which the joinables' groups have all ranks in the
 *  same order.
 *  @param joinables  an array of `count`, all of the first one's size; copied; what they point to
 *  outlives the join
 *  @return CZ_OK. CZ_ERR_ARGUMENT (no joinables, options out of range, another number of ranks),
 *          CZ_ERR_MISMATCH (options; a joinable's name, which object it is, what it has of `shadow`
 *          and `finish`; rule, groups and values of an optimizer that is not sharded), CZ_ERR_STATE
 *          (a joinable has joined already), CZ_ERR_UNSUPPORTED (a rule for the division that a
 *          joinable does not know), CZ_ERR_MEMORY. */
CZ_API cz_status cz_join_begin(cz_join **out, cz_group *group, const cz_joinable *joinables,
                               int count, const cz_join_options *options);

/** Joinable `number` is about to make its collective operations. The library's own do it
 *  themselves. Collective with those that have joined.
 *  @return CZ_OK. CZ_ERR_STATE (end_early and a rank has joined), CZ_ERR_MISMATCH (active ranks are
 *          in different calls), the status of a rank whose body or shadow failed, with its
 *          sentence; after any of these the join only waits for its end. */
CZ_API cz_status cz_join_notify(cz_join *join, int number);

/** No more inputs here. Waits until that is so on all ranks, shadowing their calls; then all
 *  joinables finish. A line is logged once if that are more than 1000 calls. `*join` is NULL
 *  afterwards, and joinables are as they were before cz_join_begin().
 *
 *  Collective.
 *  @param body  the status with which this rank's loop ended (its sentence is the calling
 *               thread's): if it is not CZ_OK all ranks learn of it and return it
 *  @return as cz_join_notify(); the status of a shadow or of a finish. A NULL for `join` or `*join`
 *          is `body`, which says why nothing was begun, or CZ_ERR_ARGUMENT if that is CZ_OK. */
CZ_API cz_status cz_join_end(cz_join **join, cz_status body);

typedef struct cz_join_info {
    size_t size;          /**< set by CZ_JOIN_INFO_INIT */
    int32_t active_count; /**< ranks that had inputs at the last notification */
    int32_t source;       /**< the highest of these */
    /** Known in `finish`: the highest rank among those that were last (-1 before), and is this rank
     *  one of those? */
    int32_t last;
    int32_t is_last;
    int64_t shadow_count;        /**< shadows that this rank has made */
    const cz_step_options *step; /**< of the options; NULL: none */
    cz_join_divide divide;
    int32_t reserved; /**< 0 */
} cz_join_info;
#define CZ_JOIN_INFO_INIT {sizeof(cz_join_info), 0, -1, -1, 0, 0, NULL, CZ_JOIN_BY_WORLD, 0}
CZ_INIT_FUNCTION(cz_join_info, CZ_JOIN_INFO_INIT)

/** Local. @return CZ_ERR_ARGUMENT: a NULL, or a size that was not set. */
CZ_API cz_status cz_join_get_info(const cz_join *join, cz_join_info *info);

/** An optimizer that is not sharded: joined ranks make the others' steps, with the gradients that a
 *  ddp has brought to all ranks, so that parameters and state stay equal. It has no collective
 *  calls of its own: call cz_join_notify() before cz_optim_step(). Local; `optim` is borrowed.
 *  @param optim  NULL: cz_join_begin() says so, on all ranks
 *  @param out  its `size` is the caller's (CZ_JOINABLE_INIT)
 *  @return CZ_ERR_ARGUMENT: `out` is NULL, or its size was not set. */
CZ_API cz_status cz_optim_joinable(cz_optim *optim, cz_joinable *out);

CZ_END_DECLS
#endif
