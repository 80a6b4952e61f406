/* SPDX-License-Identifier: MIT */
/* The step taken apart: parameter by parameter, while the backward pass makes the gradients of
 * others. */
#include "optim/ahead.h"
#include "optim/optim.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "tensor/model.h"

struct cz_in_backward {
    cz_model *model;   /* borrowed; frozen by the optimizers */
    cz_optim **optims; /* owned list of borrowed optimizers */
    int64_t count;
    int64_t param_count;
    cz_in_backward_options options;
    bool driven;          /* by a data-parallel model */
    pthread_mutex_t lock; /* what an optimizer keeps for a step is for one parameter at a time */
    bool has_lock;
    bool begun;
    bool ended;       /* by the program: nothing but who drives it has it */
    uint8_t *marked;  /* owned; per parameter: in this step */
    cz__ahead *ahead; /* owned; NULL: marks update, and nothing is undone */
};

/* ---- made, destroyed ---- */

static cz_status check_optims(cz_optim *const *optims, int64_t count)
{
    if (!optims || count < 1)
        return cz__fail(CZ_ERR_ARGUMENT, "in backward: %" PRId64 " optimizers%s, wanted 1 or more",
                        count, optims ? "" : " at NULL");
    for (int64_t k = 0; k < count; k++) {
        if (!optims[k])
            return cz__fail(CZ_ERR_ARGUMENT, "in backward: optimizer %" PRId64 " is NULL", k);
        if (cz__optim_model(optims[k]) != cz__optim_model(optims[0]))
            return cz__fail(
                CZ_ERR_ARGUMENT,
                "in backward: optimizer %" PRId64 " is over another model than the first", k);
        if (cz__optim_is_part(optims[k]))
            return cz__fail(CZ_ERR_STATE,
                            "in backward: optimizer %" PRId64
                            " is part of a sharded one, which has CZ_OVERLAP_INTERLEAVED for this",
                            k);
        for (int64_t j = 0; j < k; j++)
            if (optims[j] == optims[k])
                return cz__fail(CZ_ERR_ARGUMENT,
                                "in backward: optimizers %" PRId64 " and %" PRId64 " are the same",
                                j, k);
    }
    return CZ_OK;
}

static cz_status build_in_backward(cz_in_backward *in_backward, cz_optim *const *optims,
                                   int64_t count)
{
    in_backward->model = cz__optim_model(optims[0]);
    in_backward->param_count = cz__model_param_count(in_backward->model);
    in_backward->count = count;
    in_backward->optims = cz__calloc((size_t)count, sizeof *in_backward->optims);
    in_backward->marked = cz__calloc((size_t)in_backward->param_count, sizeof *in_backward->marked);
    in_backward->has_lock = pthread_mutex_init(&in_backward->lock, NULL) == 0;
    if (!in_backward->optims || !in_backward->marked || !in_backward->has_lock)
        return cz__fail(CZ_ERR_MEMORY,
                        "in backward: no memory for tables of %" PRId64 " parameters",
                        in_backward->param_count);
    memcpy(in_backward->optims, optims, (size_t)count * sizeof(cz_optim *));
    const cz_in_backward_options *options = &in_backward->options;
    return options->background || options->undo || options->group
               ? cz__ahead_create(&in_backward->ahead, optims[0], options)
               : CZ_OK;
}

const cz__option_table cz__in_backward_options = CZ__OPTION_TABLE(
    cz_in_backward_options, CZ__OPTION(cz_in_backward_options, released, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_in_backward_options, context, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_in_backward_options, background, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(cz_in_backward_options, undo, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(cz_in_backward_options, undo_bytes, CZ__LOCAL, CZ__FROM(0), .range.multiple = 64),
    CZ__OPTION(cz_in_backward_options, group, CZ__LOCAL, CZ__ANY));

cz_status cz_in_backward_create(cz_in_backward **out, cz_optim *const *optims, int64_t count,
                                const cz_in_backward_options *options)
{
    CZ__OWN_FLOATS;
    cz_in_backward_options ours;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "in backward: out is NULL");
    *out = NULL;
    CZ_TRY(cz__options_read(&ours, &cz__in_backward_options, options, "in backward"));
    CZ_TRY(check_optims(optims, count));
    if (count > 1 && (ours.background || ours.undo || ours.group))
        return cz__fail(
            CZ_ERR_UNSUPPORTED,
            "in backward: %" PRId64 " optimizers, background, undo and a group are for one", count);
    cz_in_backward *in_backward = cz__calloc(1, sizeof *in_backward);
    if (!in_backward)
        return cz__fail(CZ_ERR_MEMORY, "in backward: no memory for a handle");
    in_backward->options = ours;
    const cz_status status = build_in_backward(in_backward, optims, count);
    if (status != CZ_OK)
        cz_in_backward_destroy(&in_backward);
    *out = in_backward;
    return status;
}

static void destroy(cz_in_backward *in_backward)
{
    cz__ahead_destroy(&in_backward->ahead);
    if (in_backward->has_lock)
        pthread_mutex_destroy(&in_backward->lock);
    cz__free(in_backward->optims);
    cz__free(in_backward->marked);
    cz__free(in_backward);
}

/* Who drives it has it still, and can begin no more steps. */
void cz_in_backward_destroy(cz_in_backward **out)
{
    if (!out || !*out)
        return;
    cz_in_backward *in_backward = *out;
    *out = NULL;
    in_backward->ended = true;
    if (!in_backward->driven)
        destroy(in_backward);
}

cz_model *cz__in_backward_model(const cz_in_backward *in_backward)
{
    return in_backward->model;
}

void cz__in_backward_drive(cz_in_backward *in_backward, bool driven)
{
    in_backward->driven = driven;
    in_backward->begun = false;
    if (in_backward->ended && !driven)
        destroy(in_backward);
}

bool cz__in_backward_has_end(const cz_in_backward *in_backward)
{
    return in_backward->ahead != NULL;
}

bool cz__in_backward_is_driven(const cz_in_backward *in_backward)
{
    return in_backward->driven;
}

/* ---- a step ---- */

cz_status cz__in_backward_begin(cz_in_backward *in_backward, const void *argument)
{
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    options.argument = argument;
    in_backward->begun = false;
    if (in_backward->ended)
        return cz__fail(CZ_ERR_STATE, "in backward: the program has destroyed it");
    if (in_backward->ahead)
        CZ_TRY(cz__ahead_settle(in_backward->ahead));
    for (int64_t k = 0; k < in_backward->count; k++) {
        CZ_TRY(cz__step_begin(in_backward->optims[k], &options, NULL, CZ_OK));
        CZ_TRY(cz__optim_check_gradients(in_backward->optims[k], true));
    }
    if (in_backward->ahead)
        CZ_TRY(cz__ahead_begin(in_backward->ahead));
    memset(in_backward->marked, 0, (size_t)in_backward->param_count);
    in_backward->begun = true;
    return CZ_OK;
}

static cz_status refuse_if_driven(const cz_in_backward *in_backward, const char *call)
{
    if (in_backward->driven)
        return cz__fail(CZ_ERR_STATE,
                        "in backward %s: a ddp steps it, when it has reduced gradients", call);
    return CZ_OK;
}

cz_status cz_in_backward_begin(cz_in_backward *in_backward, const void *argument)
{
    CZ__OWN_FLOATS;
    if (!in_backward)
        return cz__fail(CZ_ERR_ARGUMENT, "in backward begin: in_backward is NULL");
    CZ_TRY(refuse_if_driven(in_backward, "begin"));
    return cz__in_backward_begin(in_backward, argument);
}

void cz__in_backward_update(cz_in_backward *in_backward, int64_t param, void *gradient)
{
    pthread_mutex_lock(&in_backward->lock);
    const int64_t count = in_backward->ended ? 0 : in_backward->count;
    for (int64_t k = 0; k < count; k++)
        cz__optim_step_param(in_backward->optims[k], param, gradient);
    pthread_mutex_unlock(&in_backward->lock);
    if (in_backward->options.released)
        in_backward->options.released(param, gradient, in_backward->options.context);
}

/* Where the gradient is; an empty one needs no memory. */
static void *find_gradient(const cz_in_backward *in_backward, int64_t param, void *gradient)
{
    if (!gradient)
        gradient = cz__model_gradient_address(in_backward->model, param);
    if (!gradient && cz_tensor_count(cz__model_value(in_backward->model, param)) == 0)
        gradient = in_backward->marked;
    return gradient;
}

/* Once in a step, whoever comes first. */
static bool take_mark(cz_in_backward *in_backward, int64_t param)
{
    pthread_mutex_lock(&in_backward->lock);
    const bool first = !in_backward->marked[param];
    in_backward->marked[param] = 1;
    pthread_mutex_unlock(&in_backward->lock);
    return first;
}

cz_status cz_in_backward_mark_ready(cz_in_backward *in_backward, int64_t param, void *gradient)
{
    CZ__OWN_FLOATS;
    if (!in_backward)
        return cz__fail(CZ_ERR_ARGUMENT, "in backward mark_ready: in_backward is NULL");
    if (param < 0 || param >= in_backward->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "in backward mark_ready: parameter %" PRId64 ", there are %" PRId64, param,
                        in_backward->param_count);
    CZ_TRY(refuse_if_driven(in_backward, "mark_ready"));
    const char *name = cz__model_name(in_backward->model, param);
    if (!in_backward->begun)
        return cz__fail(CZ_ERR_STATE,
                        "in backward mark_ready: parameter '%.60s': no step has begun", name);
    gradient = find_gradient(in_backward, param, gradient);
    if (!gradient)
        return cz__fail(CZ_ERR_STATE, "in backward mark_ready: parameter '%.60s' has no gradient",
                        name);
    if (!take_mark(in_backward, param))
        return cz__fail(CZ_ERR_STATE,
                        "in backward mark_ready: parameter '%.60s' was marked before in this step",
                        name);
    if (in_backward->ahead)
        cz__ahead_add(in_backward->ahead, param, gradient);
    else
        cz__in_backward_update(in_backward, param, gradient);
    return CZ_OK;
}

static cz_status read_end(const cz_in_backward *in_backward, cz_step_options *ours,
                          const cz_step_options *options, const cz_step_result *result)
{
    CZ_TRY(cz__options_read(ours, &cz__step_options, options, "in backward end"));
    if (result)
        CZ_TRY(cz__options_check_size(result->size, "cz_step_result"));
    if (ours->closure || ours->gradients || ours->gradient_count || ours->argument)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "in backward end: a closure, gradients or an argument come too late");
    if (ours->loss_scale)
        return cz__fail(CZ_ERR_UNSUPPORTED, "in backward end: loss_scale cannot be had here");
    if (!in_backward->options.undo && cz__step_wants_norm(ours))
        return cz__fail(CZ_ERR_STATE, "in backward end: norm, max_norm and skip_nonfinite want "
                                      "option undo, which it was made without");
    if (!in_backward->begun)
        return cz__fail(CZ_ERR_STATE, "in backward end: no step has begun");
    return CZ_OK;
}

cz_status cz_in_backward_end(cz_in_backward *in_backward, const cz_step_options *options,
                             cz_step_result *result)
{
    CZ__UNCANCELLED;
    CZ__OWN_FLOATS;
    cz_step_options ours = {0};
    cz__step_outcome outcome = {.loss = NAN, .norm = NAN};
    if (!in_backward)
        return cz__fail(CZ_ERR_ARGUMENT, "in backward end: in_backward is NULL");
    CZ_TRY(refuse_if_driven(in_backward, "end"));
    cz_status status = read_end(in_backward, &ours, options, result);
    if (in_backward->ahead)
        status = cz__ahead_end(in_backward->ahead, &ours, status, &outcome);
    if (status == CZ_OK || in_backward->options.undo)
        in_backward->begun = false;
    CZ_TRY(status);
    cz__step_end(result, &outcome);
    return CZ_OK;
}

/* ---- compared ---- */

static uint64_t of_group(uint64_t print, const cz_optim *optim, int64_t g)
{
    int64_t count;
    const int64_t *params = cz__optim_group_params(optim, g, &count);
    print = cz__fingerprint(print, &count, sizeof count);
    print = cz__fingerprint(print, params, (size_t)count * sizeof *params);
    return cz__optim_hypers_print(optim, g, cz__optim_types_print(optim, g, print));
}

void cz__in_backward_describe(cz__description *d, const void *context)
{
    const cz_in_backward *in_backward = context;
    cz__describe_number(d, &(cz__subject){NULL, "the number of optimizers", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, in_backward->count);
    for (int64_t k = 0; k < in_backward->count; k++) {
        cz__describe_rule(d, cz__optim_rule(in_backward->optims[k]));
        cz__describe_members(d, in_backward->optims[k]);
        cz__describe_other_rules(d, in_backward->optims[k]);
        cz__describe_hypers(d, in_backward->optims[k]);
    }
}

uint64_t cz__in_backward_fingerprint(const cz_in_backward *in_backward)
{
    uint64_t print = 0;
    for (int64_t k = 0; k < in_backward->count; k++) {
        const cz_optim *optim = in_backward->optims[k];
        const char *rule = cz__optim_rule(optim)->name;
        print = cz__fingerprint(print, rule, strlen(rule));
        for (int64_t g = 0; g < cz__optim_group_count(optim); g++)
            print = of_group(print, optim, g);
    }
    return print;
}
