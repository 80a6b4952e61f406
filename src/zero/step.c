/* SPDX-License-Identifier: MIT */
/* A step: agree on what it is about, and let passes.c make it. Nothing changes before all ranks
 * have agreed. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "join/join.h"
#include "zero/zero.h"
#include "shard/shard.h"

/* ---- alone ---- */

static cz_status keep_gradient(cz_zero *zero, const cz_span *span)
{
    const cz_dtype dtype = cz__zero_given_dtype(zero, zero->kind_of[span->param]);
    const size_t bytes = (size_t)(span->end - span->begin) * cz_dtype_size(dtype);
    const cz_status status =
        zero->device->allocate(CZ_MEMORY_GRADIENT, bytes, &zero->kept[span->param]);
    if (!status)
        return CZ_OK;
    zero->kept[span->param] = NULL;
    return cz__fail(status,
                    "zero: no memory for %zu bytes of the gradient of parameter %" PRId64
                    " '%.60s', which other ranks, or parts, have",
                    bytes, span->param, cz__model_name(zero->model, span->param));
}

/* Have memory for the local spans of gradients that other ranks have and this one has not, and of
 * means in f32 that do not stay in cache. */
static cz_status keep_gradients(cz_zero *zero)
{
    const bool means = cz__zero_reduces(zero) && cz__zero_keeps_means(zero);
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(zero->map, cz_group_rank(zero->group), &iterator);
    while (cz_span_next(&iterator, &span)) {
        const bool wanted =
            !zero->sources[span.param] || (means && cz__zero_widens(zero, span.param));
        if (zero->present[span.param] && wanted && !zero->kept[span.param])
            CZ_TRY(keep_gradient(zero, &span));
    }
    return CZ_OK;
}

/* A gradient of any part here. The last one is where it was, and as it was. */
static cz_status look_at_parts(cz_zero *zero, int64_t p)
{
    zero->present[p] = cz__parts_has(zero->parts, p) && zero->tables.trainable[p] &&
                       cz__optim_group_of(zero->optim, p) >= 0;
    return zero->present[p] ? cz__parts_check_last(zero->parts, p, zero->sources[p]) : CZ_OK;
}

static cz_status look_at_gradients(cz_zero *zero)
{
    const bool reduces = cz__zero_reduces(zero);
    const bool shadows = zero->shadows && reduces;
    if (zero->ddp && !reduces && !cz__ddp_reduced(zero->ddp))
        return cz__fail(CZ_ERR_STATE,
                        "zero step: the last pass of its ddp has not reduced gradients");
    for (int64_t p = 0; p < zero->param_count; p++) {
        zero->sources[p] = cz__step_gradient(zero->optim, p);
        if (zero->ddp ? !cz__ddp_has(zero->ddp, p) /* no rank had one: what is there is old */
                      : shadows)
            zero->sources[p] = NULL;
        zero->present[p] = zero->sources[p] && zero->tables.trainable[p] &&
                           cz__optim_group_of(zero->optim, p) >= 0;
        if (zero->parts)
            CZ_TRY(look_at_parts(zero, p));
    }
    /* an earlier part may have had one */
    return zero->parts || cz__zero_has_means(zero) ? keep_gradients(zero) : CZ_OK;
}

/* With parts: those that were added. */
static cz_status check_parts(const cz_zero *zero, const cz_step_options *options)
{
    if (!zero->parts)
        return CZ_OK;
    if (options && options->gradients)
        return cz__fail(CZ_ERR_ARGUMENT, "zero step: with parts the gradients are those that were "
                                         "added; option gradients has to be NULL");
    if (zero->shadows)
        cz__parts_skip(zero->parts);
    return cz__parts_are_all(zero->parts, "zero step");
}

static bool can_use_tiles(const cz_zero *zero)
{
    return !zero->without_tiles && cz_group_size(zero->group) > 1 &&
           cz__optim_takes_tiles(zero->optim);
}

/* All that this rank can do alone; whatever fails here goes through the agreement. */
static cz_status begin(cz_zero *zero, const cz_step_options *options, const cz_step_result *result,
                       cz_status closure)
{
    CZ_TRY(cz__zero_settle_shards(zero));
    CZ_TRY(cz__step_begin(zero->optim, options, result, closure));
    CZ_TRY(cz__optim_check_gradients(zero->optim, false));
    CZ_TRY(check_parts(zero, options));
    zero->in_tiles = can_use_tiles(zero);
    CZ_TRY(look_at_gradients(zero));
    return cz__zero_have_room_for_settings(zero);
}

/* ---- what ranks differ in ---- */

/* Flag p: this rank owns some of p and has its gradient; flag param_count + p: has not. */
static void look_at_ownership(cz_zero *zero)
{
    const int rank = cz_group_rank(zero->group);
    uint8_t *with = zero->ownership, *without = with + zero->param_count;
    cz_span_iterator iterator;
    cz_span span;
    memset(zero->ownership, 0, 2 * (size_t)zero->param_count);
    cz_span_iterate(zero->map, rank, &iterator);
    while (cz_span_next(&iterator, &span))
        (zero->present[span.param] ? with : without)[span.param] = 1;
    for (int64_t p = 0; p < zero->param_count; p++)
        if (cz__shard_map_count(zero->map, p) == 0 && cz__shard_map_home(zero->map, p) == rank)
            (zero->present[p] ? with : without)[p] = 1;
}

/* Somebody has reduced the gradients, so an owner has one or there is none. A parameter that is cut
 * has several owners: one of them updating its elements and another leaving them would tear the
 * parameter apart and split its step count, so that is an error, not a skip. */
static cz_status share_reduced_presence(cz_zero *zero)
{
    const uint8_t *with = zero->ownership, *without = with + zero->param_count;
    look_at_ownership(zero);
    zero->ownership[2 * zero->param_count] = !zero->in_tiles;
    CZ_TRY(cz_all_reduce(zero->group, zero->ownership, 2 * zero->param_count + 1, CZ_U8, CZ_MAX,
                         CZ_LABEL("zero: presence")));
    zero->in_tiles = !zero->ownership[2 * zero->param_count];
    zero->without_tiles = !zero->in_tiles;
    for (int64_t p = 0; p < zero->param_count; p++) {
        if (cz__zero_is_trained(zero, p) && with[p] && without[p])
            return cz__fail(CZ_ERR_STATE,
                            "zero: parameter %" PRId64
                            " '%.60s' has a gradient on some of its owners only; with "
                            "CZ_GRADIENTS_REDUCED it is all or none",
                            p, cz__model_name(zero->model, p));
        zero->present[p] = with[p];
    }
    return CZ_OK;
}

static cz_status share_local_presence(cz_zero *zero)
{
    zero->present[zero->param_count] = !zero->in_tiles;
    CZ_TRY(cz_all_reduce(zero->group, zero->present, zero->param_count + 1, CZ_U8, CZ_MAX,
                         CZ_LABEL("zero: presence")));
    zero->in_tiles = !zero->present[zero->param_count];
    zero->without_tiles = !zero->in_tiles;
    return cz__agree(zero->group, keep_gradients(zero), 0, NULL, "zero: gradient memory");
}

/* Which gradients there are on any rank is known by now, alike on all. */
static cz_status check_any_gradient(const cz_zero *zero)
{
    int64_t trained = 0;
    for (int64_t p = 0; p < zero->param_count; p++) {
        if (zero->present[p])
            return CZ_OK;
        trained += cz__zero_is_trained(zero, p);
    }
    return trained == 0 || cz__optim_step_options(zero->optim)->allow_no_gradients
               ? CZ_OK
               : cz__step_without_gradients("zero", trained);
}

/* ---- together ---- */

/* They agree, but not in everything: in which? */
static cz_status settle_difference(cz_zero *zero, uint64_t settings)
{
    bool same;
    if (zero->opening)
        CZ_TRY(cz__ddp_compare_openings(zero->ddp));
    CZ_TRY(cz__agree(zero->group, CZ_OK, settings, &same, "zero: settings"));
    if (same)
        return cz__zero_reduces(zero) ? share_local_presence(zero) : share_reduced_presence(zero);
    (void)cz__zero_write_settings(zero); /* there is room */
    return cz__find_difference(zero->group, "zero", cz__describe_step, zero, &zero->settings);
}

/* In one round if ranks agree in everything, as they do in nearly all steps; *stepped: with the
 * whole step. */
static cz_status agree(cz_zero *zero, cz_status mine, bool *stepped)
{
    const double start = cz__seconds();
    const cz__ddp_opening alone = {zero->group, "zero: step", 0};
    const cz__ddp_opening *opening = zero->opening ? zero->opening : &alone;
    uint64_t settings = 0, all = 0;
    bool same, at_once = false;
    if (mine == CZ_OK) {
        at_once = cz__zero_can_step_at_once(zero);
        settings = cz__zero_settings_print(zero);
        all = cz__fingerprint_elements(settings + opening->fingerprint, zero->present,
                                       (size_t)zero->param_count) +
              zero->in_tiles;
    }
    CZ_TRY(at_once ? cz__zero_step_at_once(zero, start, opening, all, &same)
                   : cz__agree(opening->group, mine, all, &same, opening->label));
    *stepped = at_once && same;
    if (*stepped)
        return CZ_OK;
    if (!same)
        CZ_TRY(settle_difference(zero, settings));
    cz__trace_add(&zero->trace, CZ_TRACE_AGREE, start, 0);
    return zero->ddp ? CZ_OK : check_any_gradient(zero);
}

/* Say to ranks that have joined that a step follows, keeping the thread's sentence. */
static cz_status notify_join(cz_zero *zero)
{
    if (!zero->join || zero->shadows || zero->overlap)
        return CZ_OK;
    const cz__sentence own = cz__sentence_hold();
    const cz_status status = cz_join_notify(zero->join, zero->join_number);
    if (!status)
        cz__sentence_resume(own);
    else
        cz__sentence_drop(own);
    return status;
}

static cz_status make_step(cz_zero *zero, const cz_step_options *options,
                           const cz_step_result *result, cz_status closure,
                           cz__step_outcome *outcome)
{
    const cz_status mine = begin(zero, options, result, closure);
    bool stepped;
    CZ_TRY(notify_join(zero));
    CZ_TRY(agree(zero, mine, &stepped));
    if (!stepped) {
        CZ_TRY(cz__zero_compare_in_checked_mode(zero));
        CZ_TRY(cz__zero_make_step(zero, outcome));
    }
    if (zero->parts)
        cz__parts_end_step(zero->parts);
    return CZ_OK;
}

/* With option overlap the pass has made it. */
static cz_status take_step_of_pass(const cz_zero *zero, const cz_step_options *options,
                                   const cz_step_result *result, cz__step_outcome *outcome)
{
    if (options)
        return cz__fail(CZ_ERR_ARGUMENT, "zero step: with option overlap the pass has made the "
                                         "step; see cz_zero_set_overlap()");
    if (result)
        CZ_TRY(cz__options_check_size(result->size, "cz_step_result"));
    if (!cz__ddp_reduced(zero->ddp) || !zero->stepped)
        return cz__fail(CZ_ERR_STATE,
                        "zero step: the last pass of its ddp has not reduced gradients");
    *outcome = zero->outcome;
    return CZ_OK;
}

cz_status cz_zero_step(cz_zero *zero, const cz_step_options *options, cz_step_result *result)
{
    CZ__UNCANCELLED;
    cz__step_outcome outcome;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero step: zero is NULL");
    /* As the program computes; a step that a pass has made has none. */
    const cz_status closure = zero->overlap ? CZ_OK : cz__step_run_closure(options, &outcome);
    CZ__OWN_FLOATS;
    CZ_TRY(zero->overlap ? take_step_of_pass(zero, options, result, &outcome)
                         : make_step(zero, options, result, closure, &outcome));
    cz__step_end(result, &outcome);
    return CZ_OK;
}

/* ---- inside the backward pass ---- */
/* The step inside the backward pass: as soon as a bucket is reduced its owners update their spans
 * of it and the new values go to every rank, while the program fills the next bucket. A parameter
 * may change then: its gradient is complete, so this pass needs its value no more. Or else at the
 * end of the pass. */

static const cz_step_options *step_options(const cz_zero *zero)
{
    return zero->step_options.size ? &zero->step_options : NULL;
}

/* What a step does before its update: all ranks have the same settings, there is memory for
 * state. */
static cz_status begin_in_pass(void *context)
{
    cz_zero *zero = context;
    zero->stepped = false;
    cz_status mine = cz__step_begin(zero->optim, step_options(zero), NULL,
                                    cz__step_run_closure(step_options(zero), &zero->outcome));
    if (mine == CZ_OK)
        mine = cz__optim_check_gradients(zero->optim, false);
    CZ_TRY(
        cz__agree_on(zero->group, "zero step", cz__describe_settings, zero, mine, &zero->settings));
    CZ_TRY(cz__zero_compare_in_checked_mode(zero));
    zero->step_count++;
    return CZ_OK;
}

static cz_status update_bucket(void *context, const cz__ddp_ready *bucket)
{
    cz_zero *zero = context;
    const cz__mapped memory = {.map = zero->map,
                               .data = zero->tables.values,
                               .include = bucket->include,
                               .dtype = cz__model_value(zero->model, bucket->params[0])->dtype,
                               .reserve = bucket->transfers,
                               .pool = bucket->pool,
                               .detached = true,
                               .shared = zero->shared_values};
    const double start = cz__seconds();
    uint64_t bytes = 0;
    cz__optim_take_means(zero->optim, cz__zero_has_means(zero));
    for (int64_t k = 0; k < bucket->count; k++) {
        const int64_t p = bucket->params[k];
        if (bucket->include[p] && cz__optim_group_of(zero->optim, p) >= 0)
            bytes += cz__optim_update_param(zero->optim, p, bucket->gradients[p]);
    }
    cz__trace_add(&zero->trace, CZ_TRACE_UPDATE, start, bytes);
    return cz__gather_along_map(bucket->group, &memory, CZ_START(bucket->label, bucket->values));
}

static cz_status end_of_reductions(void *context)
{
    cz_zero *zero = context;
    zero->outcome.skipped = cz__ddp_weightless(zero->ddp);
    zero->stepped = zero->has_stepped = true;
    cz__zero_forget_asked(zero);
    return CZ_OK;
}

static cz_status step_in_finish(cz_zero *zero, cz_status pass)
{
    zero->stepped = false;
    const cz_status closure = cz__step_run_closure(step_options(zero), &zero->outcome);
    CZ_TRY(
        make_step(zero, step_options(zero), NULL, pass == CZ_OK ? closure : pass, &zero->outcome));
    zero->stepped = zero->has_stepped = true;
    return CZ_OK;
}

static cz_status step_at_end(void *context)
{
    return step_in_finish(context, CZ_OK);
}

/* For this step gradients are what they are without a ddp. */
static cz_status reduce_and_step_at_end(void *context, cz_status pass,
                                        const cz__ddp_opening *opening)
{
    cz_zero *zero = context;
    zero->gradients = CZ_GRADIENTS_LOCAL;
    zero->opening = opening;
    const cz_status status = step_in_finish(zero, pass);
    zero->opening = NULL;
    zero->gradients = CZ_GRADIENTS_REDUCED;
    return status;
}

cz_status cz__overlap_reserve(const cz_zero *zero, cz_overlap overlap)
{
    return overlap == CZ_OVERLAP_INTERLEAVED ? cz__ddp_reserve(zero->ddp) : CZ_OK;
}

void cz__overlap_bind(cz_zero *zero)
{
    const cz__ddp_listener listeners[] = {
        [CZ_OVERLAP_NONE] = {0},
        [CZ_OVERLAP_INTERLEAVED] = {.begin = begin_in_pass,
                                    .reduced = update_bucket,
                                    .finish = end_of_reductions,
                                    .late = zero->late,
                                    .context = zero,
                                    .marks = zero->asked ? cz__zero_marks : NULL},
        [CZ_OVERLAP_STEP] = {.finish = step_at_end,
                             .finish_unreduced = reduce_and_step_at_end,
                             .context = zero},
    };
    zero->listener = listeners[zero->overlap];
    zero->listener.means = zero->means.of;
    cz__ddp_bind(zero->ddp, zero->map, &zero->listener);
}

static cz_status check_change(const cz_zero *zero, const char *call)
{
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero %s: zero is NULL", call);
    if (zero->ddp && cz__ddp_in_pass(zero->ddp))
        return cz__fail(CZ_ERR_STATE, "zero %s: a pass of its ddp is under way", call);
    return CZ_OK;
}

static cz_status check_inside(cz_overlap overlap, const cz_step_options *options)
{
    if (options->size && overlap == CZ_OVERLAP_NONE)
        return cz__fail(CZ_ERR_ARGUMENT, "zero set_overlap: options, and without overlap it is a "
                                         "step that is given its options");
    if (options->closure || options->gradients || options->gradient_count)
        return cz__fail(CZ_ERR_ARGUMENT, "zero set_overlap: a step inside a pass has no %s",
                        options->closure ? "closure" : "other gradients");
    if (overlap == CZ_OVERLAP_INTERLEAVED && cz__step_wants_norm(options))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "zero set_overlap: %s gradients before the first update; CZ_OVERLAP_STEP "
                        "can do that",
                        options->loss_scale ? "loss_scale needs all"
                                            : "max_norm, skip_nonfinite and norm need all");
    return CZ_OK;
}

cz_status cz_zero_set_overlap(cz_zero *zero, cz_overlap overlap, const cz_step_options *options)
{
    CZ__OWN_FLOATS;
    cz_step_options ours = {0};
    CZ_TRY(check_change(zero, "set_overlap"));
    CZ_TRY(cz__overlap_check(zero, overlap));
    CZ_TRY(cz__options_read(&ours, &cz__step_options, options, "zero set_overlap"));
    ours.size = options ? sizeof ours : 0;
    CZ_TRY(check_inside(overlap, &ours));
    const bool rebinds = zero->ddp && overlap != zero->overlap;
    if (rebinds)
        CZ_TRY(cz__overlap_reserve(zero, overlap));
    zero->overlap = overlap;
    zero->step_options = ours;
    if (rebinds)
        cz__overlap_bind(zero);
    return CZ_OK;
}

cz_ddp *cz__zero_ddp(const cz_zero *zero)
{
    return zero ? zero->ddp : NULL;
}

cz_status cz_zero_wait_param(cz_zero *zero, int64_t param)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero wait_param: zero is NULL");
    if (param < 0 || param >= zero->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero wait_param: parameter %" PRId64 ", there are %" PRId64, param,
                        zero->param_count);
    CZ_TRY(cz__zero_check_reader(zero, param));
    return zero->late ? cz__ddp_wait_param(zero->ddp, param) : CZ_OK;
}
