/* SPDX-License-Identifier: MIT */
/* What is around an update: options, the program's closure, the rule's beginning, where gradients
 * are. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "base/sum.h"
#include "base/thread.h"
#include "device/squares.h"
#include "optim/object.h"
#include "tensor/model.h"

/* ---- the norm ---- */
/* The norm of a step's gradients, and what follows from it: clipping, skipping. Squares are added
 * exactly, so the norm depends on no cut and on no order. Clipping: Pascanu, Mikolov, Bengio, "On
 * the difficulty of training recurrent neural networks", ICML 2013. */

bool cz__step_wants_norm(const cz_step_options *options)
{
    return options->norm || options->skip_nonfinite || options->max_norm > 0 || options->loss_scale;
}

bool cz__norm_is_wanted(const cz_optim *optim)
{
    return cz__step_wants_norm(&optim->step);
}

/* The gradient of a span that takes part in this step; NULL: it does not. */
static char *gradient_of(const cz_optim *optim, const cz__local_span *span, void *const *gradients)
{
    if (span->begin == span->end || !gradients[span->param] ||
        !optim->tables.trainable[span->param])
        return NULL;
    return (char *)gradients[span->param] +
           (size_t)span->begin * cz__optim_gradient_size(optim, span->param);
}

void cz__optim_take_means(cz_optim *optim, bool taken)
{
    optim->has_means = taken;
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
            (void)optim->device->add_squares(NULL, cz__optim_given_dtype(optim, span->param),
                                             span->end - span->begin, gradient, sum);
    }
    cz__sum_settle(sum);
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
            (void)cz__add_squares(optim->device, cz__optim_given_dtype(optim, span->param),
                                  span->end - span->begin, gradient, shift, sum);
    }
    cz__sum_settle(sum);
}

void cz__norm_scale(cz_optim *optim, void *const *gradients, double factor)
{
    optim->factor = factor;
    if (cz__optim_works_in_parts(optim)) {
        cz__norm_scale_in_parts(optim, gradients, factor);
        return;
    }
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const cz__local_span *span = &optim->shard.spans[s];
        char *gradient = gradient_of(optim, span, gradients);
        if (gradient && cz__optim_given_dtype(optim, span->param) == optim->dtype)
            (void)optim->device->scale(NULL, optim->dtype, factor, span->end - span->begin,
                                       gradient);
    }
}

/* ---- loss scale ---- */

static cz_status check_loss_scale(const cz_loss_scale *s)
{
    if (!s)
        return CZ_OK;
    CZ_TRY(cz__options_check_size(s->size, "cz_loss_scale"));
    if (!(s->scale > 0) || isinf(s->scale))
        return cz__fail(CZ_ERR_ARGUMENT, "step: loss_scale is %g, wanted is above 0", s->scale);
    if (s->interval < 0 || s->good_steps < 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "step: loss_scale has interval %" PRId64 " and good_steps %" PRId64
                        ", wanted are 0 and above",
                        s->interval, s->good_steps);
    if (s->interval > 0 && (!(s->growth >= 1) || isinf(s->growth)))
        return cz__fail(CZ_ERR_ARGUMENT, "step: loss_scale has growth %g, wanted is at least 1",
                        s->growth);
    if (s->interval > 0 && (!(s->backoff > 0) || s->backoff > 1))
        return cz__fail(CZ_ERR_ARGUMENT, "step: loss_scale has backoff %g, wanted is 0 to 1",
                        s->backoff);
    return CZ_OK;
}

/* In f32, as PyTorch has it. */
static void adapt_loss_scale(cz_loss_scale *s, bool are_finite)
{
    const float scale = (float)s->scale, grown = (float)(scale * s->growth);
    if (s->interval == 0)
        return;
    if (!are_finite) {
        s->scale = (float)(scale * s->backoff);
        s->good_steps = 0;
    } else if (++s->good_steps >= s->interval) {
        s->scale = isfinite(grown) ? grown : scale;
        s->good_steps = 0;
    }
}

uint64_t cz__loss_scale_print(const cz_optim *optim, uint64_t print)
{
    const cz_loss_scale *s = optim->step.loss_scale;
    return s ? cz__fingerprint(print, s, sizeof *s) : print;
}

void cz__describe_loss_scale(cz__description *d, const cz_optim *optim)
{
    const cz_loss_scale none = {0}, *s = optim->step.loss_scale ? optim->step.loss_scale : &none;
    const struct {
        const char *what;
        double value;
    } numbers[] = {{"scale", s->scale},
                   {"growth", s->growth},
                   {"backoff", s->backoff},
                   {"interval", (double)s->interval},
                   {"good_steps", (double)s->good_steps}};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        cz__describe(d, &(cz__subject){numbers[k].what, "loss_scale", -1, NULL, "is"},
                     CZ__FIELD_REAL, &numbers[k].value, sizeof numbers[k].value);
}

/* ---- what follows from the norm ---- */

/* What gradients, divided by the loss scale, are multiplied by. The norm of finite ones may be
 * beyond double; their root divided by 2^600 is not. */
static double clip(const cz_optim *optim, double root, int shift, double norm)
{
    const double most = optim->step.max_norm;
    if (most == 0 || isinf(most))
        return 1;
    const double factor = isinf(norm) ? ldexp(most / root, shift) : most / (norm + 1e-6);
    return factor >= 1 ? 1
                       : factor; /* NaN, too: without skip_nonfinite it shows in the parameters */
}

double cz__norm_judge(cz_optim *optim, const cz_sum *sum, int shift, cz__step_outcome *outcome)
{
    cz_loss_scale *loss_scale = optim->step.loss_scale;
    const double scale = loss_scale ? loss_scale->scale : 1;
    const double root = sqrt(cz_sum_value(sum)) / scale;
    const bool skips = optim->step.skip_nonfinite || (loss_scale && loss_scale->interval > 0);
    outcome->norm = ldexp(root, -shift);
    outcome->skipped = skips && !isfinite(root);
    optim->skip_count += outcome->skipped;
    if (loss_scale)
        adapt_loss_scale(loss_scale, isfinite(root));
    return outcome->skipped ? 1 : clip(optim, root, shift, outcome->norm) / scale;
}

int64_t cz__optim_skip_count(const cz_optim *optim)
{
    return optim ? optim->skip_count : 0;
}

/* ---- the step ---- */

const cz__option_table cz__step_options = CZ__OPTION_TABLE(
    cz_step_options, CZ__OPTION(cz_step_options, closure, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_step_options, closure_context, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_step_options, argument, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_step_options, gradients, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_step_options, gradient_count, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_step_options, max_norm, CZ__COMPARED, CZ__FROM(0), .range.infinite = true),
    CZ__OPTION(cz_step_options, skip_nonfinite, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_step_options, norm, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_step_options, allow_no_gradients, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_step_options, reserved, CZ__LOCAL, CZ__RESERVED),
    CZ__OPTION(cz_step_options, loss_scale, CZ__COMPARED_APART, CZ__ANY));

static cz_status check_gradients(const cz_optim *optim, const cz_step_options *options)
{
    const int64_t wanted = options->gradients ? optim->param_count : 0;
    if (options->gradient_count != wanted)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "step: gradient_count is %" PRId64 ", wanted is %" PRId64 "%s",
                        options->gradient_count, wanted,
                        options->gradients ? ", the number of parameters of the model"
                                           : " where gradients is NULL");
    return CZ_OK;
}

/* Whatever else is wrong with the options: it may wait for other ranks, which are in theirs. */
cz_status cz__step_run_closure(const cz_step_options *options, cz__step_outcome *outcome)
{
    cz_step_options ours;
    *outcome = (cz__step_outcome){.loss = NAN, .norm = NAN};
    if (!options)
        return CZ_OK;
    (void)cz__options_read(&ours, &cz__step_options, options, "step");
    if (!ours.closure)
        return CZ_OK;
    const cz_status status = CZ__CALL_PROGRAM(ours.closure(&outcome->loss, ours.closure_context));
    return status == CZ_OK ? CZ_OK : cz__fail_in(status, "closure");
}

static cz_status begin_rule(cz_optim *optim, const cz_rule *rule)
{
    if (!rule->begin_step)
        return CZ_OK;
    const cz_status status =
        CZ__CALL_PROGRAM(rule->begin_step(optim, optim->step.argument, rule->context));
    return status == CZ_OK ? CZ_OK : cz__fail_in(status, rule->name);
}

cz_status cz__step_without_gradients(const char *part, int64_t params)
{
    return cz__fail(
        CZ_ERR_STATE,
        "%s step: none of %" PRId64
        " trainable parameters has a gradient, so nothing would be trained; say where gradients "
        "are (cz_model_set_gradient(), cz_model_set_gradients_flat(), or option gradients), or set "
        "option allow_no_gradients",
        part, params);
}

cz_status cz__step_begin(cz_optim *optim, const cz_step_options *options,
                         const cz_step_result *result, cz_status closure)
{
    cz_step_options ours;
    CZ_TRY(closure);
    CZ_TRY(cz__optim_check_trained(optim, "step"));
    CZ_TRY(cz__options_read(&ours, &cz__step_options, options, "step"));
    if (result)
        CZ_TRY(cz__options_check_size(result->size, "cz_step_result"));
    CZ_TRY(check_gradients(optim, &ours));
    CZ_TRY(check_loss_scale(ours.loss_scale));
    optim->step = ours;
    optim->factor = 1;
    for (int k = 0; k < optim->rule_count; k++)
        CZ_TRY(begin_rule(optim, optim->rules[k].rule));
    return cz__optim_prepare(optim);
}

void cz__step_end(cz_step_result *result, const cz__step_outcome *outcome)
{
    const cz_step_result ours = {
        .loss = outcome->loss, .norm = outcome->norm, .skipped = outcome->skipped};
    if (result) /* its size was checked when the step began */
        (void)cz__options_write(result, &ours, sizeof ours, "cz_step_result");
}

void *cz__step_gradient(const cz_optim *optim, int64_t param)
{
    return optim->step.gradients ? optim->step.gradients[param] : optim->tables.gradients[param];
}

const cz_step_options *cz__optim_step_options(const cz_optim *optim)
{
    return &optim->step;
}

/* The only rank's sums are those of all. */
static void round_sums(cz_optim *optim, int64_t param)
{
    const int count = optim->sum_count;
    const cz_sum *sums = cz__optim_has_sums(optim, param) ? cz__optim_sums(optim, param) : NULL;
    if (sums)
        for (int k = 0; k < count; k++)
            optim->sum_values[param * count + k] = cz_sum_value(&sums[k]);
}

static void update(cz_optim *optim)
{
    if (optim->sum_count > 0) {
        cz__optim_update_sums(optim, optim->gradients);
        for (int64_t p = 0; p < optim->param_count; p++)
            round_sums(optim, p);
    }
    cz__optim_update(optim, optim->gradients);
}

void cz__optim_step_param(cz_optim *optim, int64_t param, const void *gradient)
{
    if (cz__optim_has_sums(optim, param)) {
        cz__optim_update_sums_param(optim, param, gradient);
        round_sums(optim, param);
    }
    (void)cz__optim_update_param(optim, param, gradient);
}

/* Gradients that were allocated later than the parameters were registered, and never made known. */
static cz_status check_any_gradient(const cz_optim *optim)
{
    int64_t trained = 0;
    for (int64_t p = 0; p < optim->param_count; p++) {
        if (optim->group_of[p] < 0 || !optim->tables.trainable[p])
            continue;
        if (cz__step_gradient(optim, p))
            return CZ_OK;
        trained++;
    }
    return trained == 0 || optim->step.allow_no_gradients
               ? CZ_OK
               : cz__step_without_gradients("optim", trained);
}

cz_status cz_optim_step(cz_optim *optim, const cz_step_options *options, cz_step_result *result)
{
    CZ__UNCANCELLED;
    cz__step_outcome outcome;
    if (!optim)
        return cz__fail(CZ_ERR_ARGUMENT, "optim step: optim is NULL");
    if (!optim->own_map)
        return cz__fail(CZ_ERR_STATE, "optim step: it is part of a sharded optimizer; step that");
    const cz_status closure = cz__step_run_closure(options, &outcome); /* as the program computes */
    CZ__OWN_FLOATS;
    CZ_TRY(cz__step_begin(optim, options, result, closure));
    CZ_TRY(cz__optim_check_gradients(optim, false));
    CZ_TRY(check_any_gradient(optim));
    memcpy(optim->gradients,
           optim->step.gradients ? optim->step.gradients : optim->tables.gradients,
           (size_t)optim->param_count * sizeof *optim->gradients);
    if (cz__norm_is_wanted(optim)) {
        cz_sum sum = {{0}};
        cz__norm_add(optim, optim->gradients, &sum);
        const int shift = cz__norm_shift(optim, &sum);
        if (shift != 0)
            cz__norm_add_shifted(optim, optim->gradients, shift, &sum);
        const double factor = cz__norm_judge(optim, &sum, shift, &outcome);
        if (factor != 1)
            cz__norm_scale(optim, optim->gradients, factor);
    }
    if (!outcome.skipped)
        update(optim);
    cz__step_end(result, &outcome);
    return CZ_OK;
}
