/* SPDX-License-Identifier: MIT */
/* Averaging: when it is time, the ranks agree on what takes part; then each adds up its part of all
 * elements, and brings the mean to the others. */
#include <inttypes.h>

#include "averaging/averager.h"
#include "base/float_mode.h"
#include "base/status.h"
#include "base/thread.h"
#include "collective/shared.h"
#include "tensor/model.h"

cz_status cz__averager_check_param(const cz_averager *averager, int64_t param)
{
    const cz_tensor *value = cz__model_value(averager->model, param);
    if (!cz__converts(value->dtype) && cz__model_requires_grad(averager->model, param))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "averager: trainable parameter %" PRId64
                        " '%.60s' is %s, which has no mean",
                        param, cz__model_name(averager->model, param), cz_dtype_name(value->dtype));
    const size_t bytes = (size_t)cz_tensor_count(value) * cz_dtype_size(value->dtype);
    if (bytes > 0 && cz__shared_find(value->data, bytes).ranks > 1)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "averager: parameter %" PRId64
                        " '%.60s' is in memory that ranks share: it has one value, no mean",
                        param, cz__model_name(averager->model, param));
    return CZ_OK;
}

/* The level whose turn it is after the step that is being counted; NULL: none. */
static cz__level *find_due_level(const cz_averager *averager)
{
    const int64_t since = averager->step - averager->options.warmup_steps;
    cz__level *due = NULL;
    if (since >= 0) {
        for (int64_t k = 0; k < averager->level_count; k++)
            if (since % averager->levels[k].period == 0)
                due = &averager->levels[k];
    }
    return due && due->group ? due : NULL; /* alone, a rank is its own mean */
}

/* Values are looked up each time: they may have moved. */
static cz_status look_up(cz_averager *averager)
{
    const cz_model *model = averager->model;
    for (int64_t p = 0; p < averager->param_count; p++) {
        CZ_TRY(cz__averager_check_param(averager, p));
        averager->values[p] = cz__model_value(model, p)->data;
        averager->present[p] =
            cz__model_requires_grad(model, p) && cz__model_gradient(model, p) != NULL;
    }
    return CZ_OK;
}

static void describe_average(cz__description *d, const void *context)
{
    const cz_averager *averager = context;
    cz__describe_call(d, &averager->object);
    cz__describe_number(d, &(cz__subject){NULL, "the number of steps", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, averager->step);
    cz__describe_trainable(d, averager->model);
}

static cz_status average_type(cz_averager *averager, cz__level *level, cz_dtype dtype)
{
    const cz__mapped memory = {.map = level->map,
                               .data = averager->values,
                               .include = averager->include,
                               .dtype = dtype,
                               .reserve = level->transfers};
    bool any = false;
    for (int64_t p = 0; p < averager->param_count; p++) {
        averager->include[p] =
            averager->present[p] && cz__model_value(averager->model, p)->dtype == dtype;
        any = any || averager->include[p];
    }
    if (!any)
        return CZ_OK;
    return cz__all_reduce_along_map(level->group, &memory, CZ_AVERAGE, CZ_LABEL("averager"));
}

/* After the ranks have told each other which there are. */
static cz_status check_any_gradient(const cz_averager *averager)
{
    int64_t trainable = 0;
    for (int64_t p = 0; p < averager->param_count; p++) {
        if (averager->present[p])
            return CZ_OK;
        trainable += cz__model_requires_grad(averager->model, p);
    }
    if (trainable == 0 || averager->options.allow_no_gradients)
        return CZ_OK;
    return cz__fail(
        CZ_ERR_STATE,
        "averager: none of %" PRId64
        " trainable parameters has a gradient on any rank, so nothing would be averaged; say where "
        "gradients are (cz_model_set_gradient()), or set option allow_no_gradients",
        trainable);
}

static cz_status average(cz_averager *averager, cz__level *level, cz_status mine)
{
    if (mine == CZ_OK)
        mine = look_up(averager);
    CZ_TRY(
        cz__agree_on(level->group, "averaging", describe_average, averager, mine, &averager->room));
    CZ_TRY(cz_all_reduce(level->group, averager->present, averager->param_count, CZ_U8, CZ_MAX,
                         CZ_LABEL("averager: gradients")));
    CZ_TRY(check_any_gradient(averager));
    for (cz_dtype dtype = CZ_F32; cz_dtype_size(dtype) > 0; dtype++)
        CZ_TRY(average_type(averager, level, dtype));
    return CZ_OK;
}

cz_status cz__averager_average(cz_averager *averager, cz_status mine, int *ranks)
{
    CZ__OWN_FLOATS;
    cz__level *level = find_due_level(averager);
    if (ranks)
        *ranks = 0;
    CZ_TRY(level ? average(averager, level, mine) : mine);
    averager->step++;
    if (ranks && level)
        *ranks = level->ranks;
    return CZ_OK;
}

cz_status cz_averager_average(cz_averager *averager, int *ranks)
{
    CZ__UNCANCELLED;
    if (!averager)
        return cz__fail(CZ_ERR_ARGUMENT, "averager average: averager is NULL");
    return cz__averager_average(averager, CZ_OK, ranks);
}
