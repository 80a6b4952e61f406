/* SPDX-License-Identifier: MIT */
/* PowerSGD states: made, asked, registered. */
#include "hooks/powersgd.h"

#include <inttypes.h>
#include <math.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "hooks/hooks.h"

static cz_status check_flags(const cz_powersgd_options *o)
{
    const struct {
        const char *name;
        int32_t value;
    } flags[] = {{"no_feedback", o->no_feedback},
                 {"no_warm_start", o->no_warm_start},
                 {"batched", o->batched},
                 {"draw_by_shape", o->draw_by_shape}};
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
        if (flags[k].value < 0 || flags[k].value > 1)
            return cz__fail(CZ_ERR_ARGUMENT, "powersgd: option %s is %d, wanted 0 or 1",
                            flags[k].name, (int)flags[k].value);
    return CZ_OK;
}

static cz_status check_numbers(const cz_powersgd_options *o)
{
    if (o->rank < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "powersgd: option rank is %d, wanted 0 or more",
                        (int)o->rank);
    if (o->start_iter < -1)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "powersgd: option start_iter is %" PRId64 ", wanted -1 or more",
                        o->start_iter);
    if (!(o->min_compression_rate >= 0) || !isfinite(o->min_compression_rate))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "powersgd: option min_compression_rate is %g, wanted 0 or more",
                        o->min_compression_rate);
    if (!(o->epsilon >= 0) || !isfinite(o->epsilon))
        return cz__fail(CZ_ERR_ARGUMENT, "powersgd: option epsilon is %g, wanted 0 or more",
                        o->epsilon);
    if (o->log_every < 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "powersgd: option log_every is %" PRId64 ", wanted 0 or more",
                        o->log_every);
    return CZ_OK;
}

static cz_status read_options(cz_powersgd_options *o, const cz_powersgd_options *theirs)
{
    CZ_TRY(cz__options_read(o, sizeof *o, theirs, "cz_powersgd_options"));
    CZ_TRY(check_flags(o));
    CZ_TRY(check_numbers(o));
    o->rank = o->rank ? o->rank : 1;
    o->start_iter = o->start_iter == 0 ? 1000 : o->start_iter < 0 ? 0 : o->start_iter;
    o->min_compression_rate = o->min_compression_rate > 0 ? o->min_compression_rate : 2;
    o->log_every = o->log_every ? o->log_every : 10000;
    return CZ_OK;
}

cz_status cz_powersgd_create(cz_powersgd **out, const cz_model *model,
                             const cz_powersgd_options *options)
{
    CZ__OWN_FLOATS;
    if (out)
        *out = NULL;
    if (!out || !model)
        return cz__fail(CZ_ERR_ARGUMENT, "powersgd: %s is NULL", out ? "model" : "out");
    cz_powersgd_options read;
    CZ_TRY(read_options(&read, options));
    cz_powersgd *s = cz__calloc(1, sizeof *s);
    if (!s)
        return cz__fail(CZ_ERR_MEMORY, "powersgd: no memory for a handle");
    s->options = read;
    s->model = model;
    s->param_count = cz_model_param_count(model);
    s->errors = cz__calloc((size_t)s->param_count, sizeof *s->errors);
    s->starts = cz__calloc((size_t)s->param_count, sizeof *s->starts);
    if (!s->errors || !s->starts) {
        cz_powersgd_destroy(&s);
        return cz__fail(CZ_ERR_MEMORY, "powersgd: tables of %" PRId64 " parameters",
                        cz_model_param_count(model));
    }
    cz__powersgd_seed(s, 0);
    *out = s;
    return CZ_OK;
}

void cz_powersgd_destroy(cz_powersgd **powersgd)
{
    if (!powersgd || !*powersgd)
        return;
    cz__powersgd_forget((*powersgd)->errors, (*powersgd)->param_count);
    cz__powersgd_forget((*powersgd)->starts, (*powersgd)->param_count);
    cz__free(*powersgd);
    *powersgd = NULL;
}

void cz__powersgd_seed(cz_powersgd *s, int64_t draws)
{
    cz__mersenne_seed(&s->seeds, s->options.seed);
    for (int64_t k = 0; k < draws; k++)
        (void)cz__mersenne_below_1e9(&s->seeds);
    s->draws = draws;
}

cz_status cz__powersgd_remember(cz__powersgd_memory *memory, cz_memory_kind kind, cz_dtype dtype,
                                int64_t count)
{
    const size_t bytes = (size_t)count * cz_dtype_size(dtype);
    if (memory->data && memory->count == count && memory->dtype == dtype)
        return CZ_OK;
    cz__free(memory->data);
    *memory = (cz__powersgd_memory){cz__allocate(kind, bytes), count, dtype, false};
    return memory->data ? CZ_OK
                        : cz__fail(CZ_ERR_MEMORY, "powersgd: no %zu bytes to remember", bytes);
}

void cz__powersgd_forget(cz__powersgd_memory *memories, int64_t count)
{
    for (int64_t k = 0; memories && k < count; k++)
        cz__free(memories[k].data);
    cz__free(memories);
}

cz_status cz_powersgd_get_stats(const cz_powersgd *powersgd, cz_powersgd_stats *stats)
{
    CZ__OWN_FLOATS;
    if (!powersgd || !stats)
        return cz__fail(CZ_ERR_ARGUMENT, "powersgd stats: %s is NULL",
                        powersgd ? "stats" : "powersgd");
    *stats = (cz_powersgd_stats){powersgd->iter, powersgd->before, powersgd->after, 0};
    if (stats->after > 0)
        stats->rate = (double)stats->before / (double)stats->after;
    return CZ_OK;
}

/* ---- as a hook ---- */

/* Iterations are those of the pass that begins: one that failed may have counted on some ranks only. */
static void describe(cz__description *description, const cz_hook *hook, int64_t pass)
{
    static const char *const names[] = {"rank",
                                        "no_feedback",
                                        "no_warm_start",
                                        "batched",
                                        "start_iter",
                                        "min_compression_rate",
                                        "epsilon",
                                        "seed",
                                        "draw_by_shape",
                                        "the iteration",
                                        "what was loaded (its fingerprint)",
                                        NULL};
    const cz_powersgd *s = hook->state;
    const cz_powersgd_options *o = &s->options;
    const double values[] = {o->rank,
                             o->no_feedback,
                             o->no_warm_start,
                             o->batched,
                             (double)o->start_iter,
                             o->min_compression_rate,
                             o->epsilon,
                             o->seed,
                             o->draw_by_shape,
                             (double)(s->placed ? pass - s->first_pass : s->iter),
                             (double)(s->loaded >> 11)};
    cz__hook_tell(description, hook, names, values);
}

static void use(cz_hook *hook, cz_powersgd *s)
{
    hook->run = cz__powersgd_run;
    hook->state = s;
    cz__hook_describe_with(cz__powersgd_run, describe);
}

static void release(void *state)
{
    cz_powersgd *s = state;
    cz_powersgd_destroy(&s);
}

static cz_status make_fresh(cz_hook *hook, const cz_model *model, int32_t rank, int32_t batched)
{
    cz_powersgd_options options = CZ_POWERSGD_OPTIONS_INIT;
    cz_powersgd *s;
    options.rank = rank;
    options.batched = batched;
    if (!model)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s' makes a state of its own and needs a model for it", hook->name);
    CZ_TRY(cz_powersgd_create(&s, model, &options));
    use(hook, s);
    hook->release = release;
    return CZ_OK;
}

cz_status cz__hook_make_powersgd(cz_hook *hook, const cz_model *model, void *state)
{
    if (!state)
        return make_fresh(hook, model, 1, 0);
    use(hook, state);
    return CZ_OK;
}

static cz_status make_variant(cz_hook *hook, const cz_model *model, const void *state, int32_t rank,
                              int32_t batched)
{
    if (state)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s' has a state of its own; one that was made is for 'powersgd'",
                        hook->name);
    return make_fresh(hook, model, rank, batched);
}

cz_status cz__hook_make_powersgd_rank2(cz_hook *hook, const cz_model *model, void *state)
{
    return make_variant(hook, model, state, 2, 0);
}

cz_status cz__hook_make_batched_powersgd(cz_hook *hook, const cz_model *model, void *state)
{
    return make_variant(hook, model, state, 1, 1);
}

cz_status cz__hook_make_batched_powersgd_rank2(cz_hook *hook, const cz_model *model, void *state)
{
    return make_variant(hook, model, state, 2, 1);
}
