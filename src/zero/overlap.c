/* SPDX-License-Identifier: MIT */
/* The step inside the backward pass: as soon as a bucket is reduced its owners update their spans of it and
 * the new values go to every rank, while the program fills the next bucket. A parameter may change then: its
 * gradient is complete, so this pass needs its value no more. */
#include "zero/overlap.h"

#include <math.h>

#include "base/options.h"
#include "base/status.h"

/* What a step does before its update: all ranks have the same settings, there is memory for state. */
static cz_status begin(void *context)
{
    cz_zero *zero = context;
    cz__step_outcome outcome;
    CZ_TRY(cz__agree_on(zero->group, "zero", cz__describe_settings, zero,
                        cz__step_begin(zero->optim, NULL, NULL, &outcome), &zero->settings));
    zero->step_count++;
    return CZ_OK;
}

static cz_status reduced(void *context, cz_group *group, const int64_t *params, int64_t count,
                         const uint8_t *include)
{
    cz_zero *zero = context;
    const cz__mapped memory = {.map = zero->map,
                               .data = zero->values,
                               .include = include,
                               .dtype = cz_model_value(zero->model, params[0])->dtype};
    const double start = cz__seconds();
    uint64_t bytes = 0;
    for (int64_t k = 0; k < count; k++)
        if (include[params[k]] && cz__optim_group_of(zero->optim, params[k]) >= 0)
            bytes += cz__optim_update_param(zero->optim, params[k],
                                            cz__step_gradient(zero->optim, params[k]));
    cz__trace_add(&zero->trace, CZ_TRACE_UPDATE, start, bytes);
    return cz__gather_along_map(group, &memory, CZ_LABEL("parameters"));
}

cz_status cz__overlap_check(const cz_zero *zero)
{
    if (!zero->ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: option overlap needs option ddp");
    if (cz__optim_sum_count(zero->optim) > 0)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "zero: option overlap: rule %s has partial sums, which need all of a "
                        "parameter's gradient before its update",
                        zero->rule->name);
    return CZ_OK;
}

void cz__overlap_bind(cz_zero *zero)
{
    const cz__ddp_listener listener = {begin, reduced, zero};
    cz__ddp_bind(zero->ddp, zero->map, zero->overlap ? &listener : NULL);
}

cz_status cz__overlap_step(const cz_zero *zero, const cz_step_options *options,
                           cz_step_result *result)
{
    const cz__step_outcome outcome = {.loss = NAN, .norm = NAN};
    if (options)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero step: with option overlap the backward pass has made the step, there "
                        "are no options to it");
    if (result)
        CZ_TRY(cz__options_check_size(result->size, "cz_step_result"));
    if (!cz__ddp_reduced(zero->ddp))
        return cz__fail(CZ_ERR_STATE,
                        "zero step: the last pass of its ddp has not reduced gradients");
    cz__step_end(result, &outcome);
    return CZ_OK;
}
