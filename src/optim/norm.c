/* SPDX-License-Identifier: MIT */
/* The norm of a step's gradients, and what follows from it: clipping, skipping. Squares are added exactly,
 * so the norm depends on no cut and on no order.
 * Clipping: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", ICML 2013. */
#include "device/squares.h"
#include "optim/object.h"

#include <math.h>

bool cz__norm_is_wanted(const cz_optim *optim)
{
    return optim->wants_norm || optim->skips || optim->max_norm > 0;
}

void cz__step_numbers(const cz_optim *optim, double values[CZ__STEP_NUMBERS])
{
    values[0] = optim->max_norm;
    values[1] = optim->skips;
    values[2] = optim->wants_norm;
    values[3] = optim->takes_none;
}

/* The gradient of a span that takes part in this step; NULL: it does not. */
static char *gradient_of(const cz_optim *optim, const cz__local_span *span, void *const *gradients)
{
    if (span->begin == span->end || !gradients[span->param] ||
        !optim->tables.trainable[span->param])
        return NULL;
    return (char *)gradients[span->param] + (size_t)span->begin * optim->element_size;
}

void cz__norm_add(const cz_optim *optim, void *const *gradients, cz_sum *sum)
{
    if (cz__optim_works_in_parts(optim)) {
        cz__norm_add_in_parts(optim, gradients, sum);
        return;
    }
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const cz__local_span *span = &optim->shard.spans[s];
        const char *gradient = gradient_of(optim, span, gradients);
        if (gradient) /* a floating type: there is an update kernel for it */
            (void)optim->device->add_squares(NULL, optim->dtype, span->end - span->begin, gradient,
                                             sum);
    }
    cz_sum_settle(sum);
}

int cz__norm_shift(const cz_optim *optim, const cz_sum *sum)
{
    return cz__device_same_type(optim->device, cz_device_cpu())
               ? cz__squares_shift(optim->dtype, sum)
               : 0;
}

void cz__norm_add_shifted(const cz_optim *optim, void *const *gradients, int shift, cz_sum *sum)
{
    *sum = (cz_sum){{0}};
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const cz__local_span *span = &optim->shard.spans[s];
        const char *gradient = gradient_of(optim, span, gradients);
        if (gradient)
            (void)cz__add_squares(optim->device, optim->dtype, span->end - span->begin, gradient,
                                  shift, sum);
    }
    cz_sum_settle(sum);
}

void cz__norm_add_tile(cz__tiles *tiles, int64_t count, const void *gradient)
{
    const cz_optim *optim = tiles->optim;
    (void)optim->device->add_squares(NULL, optim->dtype, count, gradient, tiles->squares);
}

void cz__norm_scale(const cz_optim *optim, void *const *gradients, double factor)
{
    if (cz__optim_works_in_parts(optim)) {
        cz__norm_scale_in_parts(optim, gradients, factor);
        return;
    }
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const cz__local_span *span = &optim->shard.spans[s];
        char *gradient = gradient_of(optim, span, gradients);
        if (gradient)
            (void)optim->device->scale(NULL, optim->dtype, factor, span->end - span->begin,
                                       gradient);
    }
}

/* The norm of finite gradients may be beyond double; their root divided by 2^600 is not. */
double cz__norm_judge(cz_optim *optim, const cz_sum *sum, int shift, cz__step_outcome *outcome)
{
    const double root = sqrt(cz_sum_value(sum));
    outcome->norm = ldexp(root, -shift);
    outcome->skipped = optim->skips && !isfinite(root);
    optim->skip_count += outcome->skipped;
    if (outcome->skipped || optim->max_norm == 0 || isinf(optim->max_norm))
        return 1;
    const double factor = isinf(outcome->norm) ? ldexp(optim->max_norm / root, shift)
                                               : optim->max_norm / (outcome->norm + 1e-6);
    return factor >= 1 ? 1
                       : factor; /* NaN, too: without skip_nonfinite it shows in the parameters */
}

int64_t cz_optim_skip_count(const cz_optim *optim)
{
    return optim ? optim->skip_count : 0;
}
