/* SPDX-License-Identifier: MIT */
/** @file in_backward.h  Optimizers inside the backward pass: a parameter is updated as soon as its
 *  gradient is ready, and the gradient's memory is free again.
 *
 *      CZ_TRY(cz_in_backward_create(&in_backward, &optim, 1, NULL));
 *      for (…) {
 *          CZ_TRY(cz_in_backward_begin(in_backward, NULL));
 *          for (p = last; p >= 0; p--) {
 *              compute gradient p; CZ_TRY(cz_in_backward_mark_ready(in_backward, p, NULL));
 *          }
 *      }
 *
 *  In a data-parallel model: cz_ddp_step_in_backward().
 *
 *  With the options `background` and `undo` updates are made by threads of the library's while the
 *  program computes other gradients, and a step ends with cz_in_backward_end(), which may clip by
 *  the norm of all gradients although updates were made before that was known: the bits of
 *  cz_optim_step(). Most steps are not clipped, and then nothing is left to do but the last
 *  updates:
 *
 *      cz_in_backward_options options = {.size = sizeof options, .background = 1, .undo = 1};
 *      …
 *      CZ_TRY(cz_in_backward_begin(in_backward, NULL));
 *      for (…) { compute gradient p; CZ_TRY(cz_in_backward_mark_ready(in_backward, p, NULL)); }
 *      const cz_step_options clipped = {.size = sizeof clipped, .max_norm = 1};
 *      CZ_TRY(cz_in_backward_end(in_backward, &clipped, NULL)); */
#ifndef CZERO_IN_BACKWARD_H
#define CZERO_IN_BACKWARD_H

#include "czero/group.h"
#include "czero/optim.h"

CZ_BEGIN_DECLS

/** Optimizers over one model that step parameter by parameter. Each keeps its parameter groups,
 *  state and step counts (cz_optim_state_dict(), cz_optim_scalar(), schedulers: between
 *  passes). */
typedef struct cz_in_backward cz_in_backward;

typedef struct cz_in_backward_options {
    size_t size; /**< set by CZ_IN_BACKWARD_OPTIONS_INIT */
    /** Told, on the thread that updates, when a parameter's gradient is not needed any more: its
     *  memory may hold another one from here on. Several at once if several threads mark or
     *  update. NULL: nobody. */
    void (*released)(int64_t param, void *gradient, void *context);
    void *context;
    /** 1: a thread of the library's and the threads of the optimizer make the updates, and marks
     *  return at once; 0: marks return when they are made. */
    int32_t background;
    /** 1: what updates overwrite is kept until the step ends, and so are gradients: a step can be
     *  clipped, skipped, or taken back, which is what becomes of one that does not end. For rules
     *  with kernels as many bytes as the values and the state that a step changes, at most
     *  `undo_bytes`: parameters for which there is no room are updated when the step ends, without
     *  a log. So are those of a step after one that was clipped. */
    int32_t undo;
    uint64_t undo_bytes; /**< 0: as many as it takes; else a multiple of 64 */
    /** NULL, or a group over whose ranks the norm of a step is: each has other parameters, or parts
     *  of them. Borrowed. */
    cz_group *group;
} cz_in_backward_options;
#define CZ_IN_BACKWARD_OPTIONS_INIT {sizeof(cz_in_backward_options), NULL, NULL, 0, 0, 0, NULL}
CZ_INIT_FUNCTION(cz_in_backward_options, CZ_IN_BACKWARD_OPTIONS_INIT)

/** Local. @param optims  `count`, 1 or more, unsharded, over one model; borrowed, the list is
 *  copied. A parameter that several have is updated by each, in the order of the list. With
 *  `background`, `undo` or a group there is one optimizer.
 *  @return CZ_ERR_ARGUMENT: a NULL, no optimizer, one twice, two models, an option out of range;
 *          CZ_ERR_STATE: one is part of a sharded optimizer; CZ_ERR_UNSUPPORTED: several with those
 *          options, with `undo` a parameter that is not in the host's memory; CZ_ERR_MEMORY. */
CZ_API cz_status cz_in_backward_create(cz_in_backward **out, cz_optim *const *optims, int64_t count,
                                       const cz_in_backward_options *options);
/** Local; accepts NULL and *NULL; before or after its optimizers, but between passes. */
CZ_API void cz_in_backward_destroy(cz_in_backward **in_backward);

/** Begin a step, before the backward pass: what cz_optim_step() does before its first update.
 *  Gradients must be whole when they are marked; max_norm and the like, which need all of them,
 *  can be had with option undo. A step that did not end is taken back if there is that, and else
 *  stays, whether this call fails or not.
 *
 *  Local. @param argument  for the rules (cz_step_options)
 *  @return CZ_ERR_ARGUMENT: NULL, a gradient of the model that shares memory with a value or a
 *          buffer (with each other they may). CZ_ERR_MEMORY: state for an unfrozen parameter;
 *          the status of a rule's begin_step(). CZ_ERR_STATE: with `background` in a child of
 *          fork(). No parameter was changed, no step has begun. */
CZ_API cz_status cz_in_backward_begin(cz_in_backward *in_backward, const void *argument);

/** The gradient of a parameter is complete: update it, unless it is frozen or in no group.
 *  Parameters that are not marked are left alone, their step counts too: the bits of
 *  cz_optim_step() where those have no gradient.
 *
 *  Local; any thread, several at once, which take turns; a parameter once in a step.
 *  @param gradient  where it is, of the parameter's shape and type, on its device; NULL: the
 *                 model's
 *  @return CZ_ERR_ARGUMENT: NULL, no such parameter. CZ_ERR_STATE: no step has begun, it was marked
 *          before in this step, there is no gradient. Nothing was changed, the gradient was not
 *          released. */
CZ_API cz_status cz_in_backward_mark_ready(cz_in_backward *in_backward, int64_t param,
                                           void *gradient);

/** End a step: wait until all that was marked is updated; with option undo clip or skip first, the
 *  bits of cz_optim_step() with these options. No thread marks meanwhile, and gradients have stayed
 *  as they were. Without `background` and `undo` there is nothing to do, and steps need no end.
 *
 *  Local; collective if there is a group.
 *  @param options  NULL, or max_norm, skip_nonfinite and norm: of what was marked, on all ranks
 *  @param result   NULL, or receives norm and skipped
 *  @return CZ_ERR_ARGUMENT: a NULL, an option out of range, a closure, gradients or an argument,
 *          which come too late; CZ_ERR_UNSUPPORTED: a loss scale; CZ_ERR_STATE: no step has begun,
 *          an option that wants `undo`, a child of fork(). CZ_ERR_MISMATCH: options of ranks
 *          differ. With `undo` the step is then taken back, on all ranks: values, state and step
 *          counts are what they were when it began. Without, it has not ended. */
CZ_API cz_status cz_in_backward_end(cz_in_backward *in_backward, const cz_step_options *options,
                                    cz_step_result *result);

CZ_END_DECLS
#endif
