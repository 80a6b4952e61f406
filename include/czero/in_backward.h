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
 *  In a data-parallel model: cz_ddp_step_in_backward(). */
#ifndef CZERO_IN_BACKWARD_H
#define CZERO_IN_BACKWARD_H

#include "czero/optim.h"

CZ_BEGIN_DECLS

/** Optimizers over one model that step parameter by parameter. Each keeps its parameter groups,
 *  state and step counts (cz_optim_state_dict(), cz_optim_scalar(), schedulers: between
 *  passes). */
typedef struct cz_in_backward cz_in_backward;

typedef struct cz_in_backward_options {
    size_t size; /**< set by CZ_IN_BACKWARD_OPTIONS_INIT */
    /** Told, on the thread that updates, when a parameter's gradient is not needed any more: its
     *  memory may hold another one from here on. Several at once if several threads mark. NULL:
     *  nobody. */
    void (*released)(int64_t param, void *gradient, void *context);
    void *context;
} cz_in_backward_options;
#define CZ_IN_BACKWARD_OPTIONS_INIT {sizeof(cz_in_backward_options), NULL, NULL}
CZ_INIT_FUNCTION(cz_in_backward_options, CZ_IN_BACKWARD_OPTIONS_INIT)

/** Local. @param optims  `count`, 1 or more, unsharded, over one model; borrowed, the list is
 *  copied. A parameter that several have is updated by each, in the order of the list.
 *  @return CZ_ERR_ARGUMENT: a NULL, no optimizer, one twice, two models; CZ_ERR_STATE: one is part
 *          of a sharded optimizer; CZ_ERR_MEMORY. */
CZ_API cz_status cz_in_backward_create(cz_in_backward **out, cz_optim *const *optims, int64_t count,
                                       const cz_in_backward_options *options);
/** Local; accepts NULL and *NULL; before or after its optimizers, but between passes. */
CZ_API void cz_in_backward_destroy(cz_in_backward **in_backward);

/** Begin a step, before the backward pass: what cz_optim_step() does before its first update.
 *  Gradients must be whole when they are marked; max_norm and the like, which need all of them
 *  first, cannot be had.
 *
 *  Local. @param argument  for the rules (cz_step_options)
 *  @return CZ_ERR_ARGUMENT: NULL, a gradient of the model that shares memory with a value or a
 *          buffer (with each other they may). CZ_ERR_MEMORY: state for an unfrozen parameter;
 *          the status of a rule's begin_step(). No parameter was changed, no step has begun. */
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

CZ_END_DECLS
#endif
