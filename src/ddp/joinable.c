/* SPDX-License-Identifier: MIT */
/* Passes with uneven inputs: a rank that has joined starts every bucket with gradients that count as zero, and gets
 * the mean as the others do, so that an optimizer that shares its pass is right. */
#include "base/status.h"
#include "ddp/object.h"
#include "tensor/model.h"

static cz_status enter(void *object, cz_join *join, int number)
{
    cz_ddp *ddp = object;
    if (!ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "join: ddp is NULL");
    if (join && cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "join: a pass of the ddp has begun");
    CZ_TRY(cz__join_enter(&ddp->join, join, number, ddp->group, &ddp->object, "ddp"));
    ddp->join_number = number;
    return CZ_OK;
}

/* As the program clears them before a pass: parameters that nobody uses keep what is there. */
static cz_status clear_gradients(const cz_ddp *ddp)
{
    for (int64_t p = 0; p < ddp->param_count; p++) {
        const cz_tensor *value = cz_model_value(ddp->model, p);
        const size_t bytes = (size_t)cz_tensor_count(value) * cz_dtype_size(value->dtype);
        void *gradient = cz__model_gradient_address(ddp->model, p);
        if (gradient && bytes > 0 && cz_model_requires_grad(ddp->model, p))
            CZ_TRY(ddp->device->zero(NULL, gradient, bytes));
    }
    return CZ_OK;
}

static cz_status shadow(void *object, cz_join *join)
{
    cz_ddp *ddp = object;
    CZ_TRY(clear_gradients(ddp));
    ddp->shadows = true;
    cz_status status = cz_ddp_begin(ddp, true);
    if (status == CZ_OK)
        status = cz_ddp_finish(ddp);
    ddp->shadows = false;
    return status;
}

/* Buffers are those of the last rank; and parameters, if there is no sharded optimizer that kept them equal. */
static cz_status finish(void *object, cz_join *join)
{
    cz_ddp *ddp = object;
    if (!ddp->bound)
        return cz__broadcast_model(ddp->control, ddp->model, &ddp->object, cz_join_last(join),
                                   "join: last values");
    CZ_TRY(cz__ddp_settle(ddp));
    return ddp->options.keep_buffers ? CZ_OK : cz__ddp_broadcast_buffers(ddp);
}

static void abandon(void *object, cz_status status)
{
    cz_ddp *ddp = object;
    if (!cz__ddp_in_pass(ddp))
        return;
    (void)cz__ddp_fail(ddp, status);
    (void)cz_ddp_finish(ddp);
}

cz_joinable cz_ddp_joinable(cz_ddp *ddp)
{
    return (cz_joinable){sizeof(cz_joinable), "ddp", ddp, enter, shadow, finish, abandon};
}
