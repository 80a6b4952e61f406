/* SPDX-License-Identifier: MIT */
/* PowerSGD states: made, asked, registered, saved and loaded. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "hooks/hooks.h"
#include "hooks/powersgd.h"
#include "tensor/model.h"

/* ---- options ---- */

const cz__option_table cz__powersgd_options = CZ__OPTION_TABLE(
    cz_powersgd_options,
    CZ__OPTION(cz_powersgd_options, rank, CZ__COMPARED, CZ__FROM(0), CZ__ZERO_IS(1)),
    CZ__OPTION(cz_powersgd_options, drop_errors, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_powersgd_options, cold_start, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_powersgd_options, batched, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_powersgd_options, start_iter, CZ__COMPARED, CZ__FROM(-1),
               CZ__ZERO_IS_OR_NONE(1000)),
    CZ__OPTION(cz_powersgd_options, min_compression_rate, CZ__COMPARED, CZ__FROM(0),
               CZ__ZERO_IS(2)),
    CZ__OPTION(cz_powersgd_options, epsilon, CZ__COMPARED, CZ__FROM(0)),
    CZ__OPTION(cz_powersgd_options, seed, CZ__COMPARED, CZ__ANY),
    CZ__OPTION(cz_powersgd_options, draw_by_shape, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_powersgd_options, log_every, CZ__LOCAL, CZ__FROM(0), CZ__ZERO_IS(10000)),
    CZ__OPTION(cz_powersgd_options, gemm, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_powersgd_options, gemm_context, CZ__LOCAL, CZ__ANY));

/* ---- what it keeps ---- */

/* The array itself, too. */
static void forget_memories(cz__powersgd_memory *memories, int64_t count)
{
    if (memories)
        for (int64_t k = 0; k < count; k++)
            cz__free(memories[k].data);
    cz__free(memories);
}

/* Start seeds anew, as if `draws` had been drawn. */
static void start_seeds(cz_powersgd *s, int64_t draws)
{
    cz__mersenne_seed(&s->seeds, s->options.seed);
    for (int64_t k = 0; k < draws; k++)
        (void)cz__mersenne_below_1e9(&s->seeds);
    s->draws = draws;
}

/* ---- made, asked ---- */

cz_status cz_powersgd_create(cz_powersgd **out, const cz_model *model,
                             const cz_powersgd_options *options)
{
    CZ__OWN_FLOATS;
    if (out)
        *out = NULL;
    if (!out || !model)
        return cz__fail(CZ_ERR_ARGUMENT, "powersgd: %s is NULL", out ? "model" : "out");
    cz_powersgd_options read;
    CZ_TRY(cz__options_read(&read, &cz__powersgd_options, options, "powersgd"));
    cz_powersgd *s = cz__calloc(1, sizeof *s);
    if (!s)
        return cz__fail(CZ_ERR_MEMORY, "powersgd: no memory for a handle");
    s->options = read;
    s->model = model;
    s->param_count = cz__model_param_count(model);
    s->errors = cz__calloc((size_t)s->param_count, sizeof *s->errors);
    s->starts = cz__calloc((size_t)s->param_count, sizeof *s->starts);
    if (!s->errors || !s->starts) {
        cz_powersgd_destroy(&s);
        return cz__fail(CZ_ERR_MEMORY, "powersgd: no memory for tables of %" PRId64 " parameters",
                        cz__model_param_count(model));
    }
    start_seeds(s, 0);
    *out = s;
    return CZ_OK;
}

void cz_powersgd_destroy(cz_powersgd **powersgd)
{
    if (!powersgd || !*powersgd)
        return;
    forget_memories((*powersgd)->errors, (*powersgd)->param_count);
    forget_memories((*powersgd)->starts, (*powersgd)->param_count);
    cz__free(*powersgd);
    *powersgd = NULL;
}

cz_status cz_powersgd_get_stats(const cz_powersgd *powersgd, cz_powersgd_stats *stats)
{
    CZ__OWN_FLOATS;
    if (!powersgd || !stats)
        return cz__fail(CZ_ERR_ARGUMENT, "powersgd stats: %s is NULL",
                        powersgd ? "stats" : "powersgd");
    cz_powersgd_stats now = {
        .iter = powersgd->iter, .before = powersgd->before, .after = powersgd->after};
    if (now.after > 0)
        now.rate = (double)now.before / (double)now.after;
    return cz__options_write(stats, &now, sizeof now, "cz_powersgd_stats");
}

/* ---- as a hook ---- */

/* Iterations are those of the pass that begins: one that failed may have counted on some ranks
 * only. */
static void describe_hook(cz__description *description, const cz_hook *hook, int64_t pass)
{
    static const char *const names[] = {"the iteration", "what was loaded (its fingerprint)", NULL};
    const cz_powersgd *s = hook->state;
    const double values[] = {(double)(s->placed ? pass - s->first_pass : s->iter),
                             (double)(s->loaded >> 11)};
    cz__describe_options(description, &cz__powersgd_options, &s->options,
                         &(cz__subject){NULL, "hook", -1, hook->name, "is"});
    cz__hook_tell(description, hook, names, values);
}

static void use(cz_hook *hook, cz_powersgd *s)
{
    hook->run = cz__powersgd_run;
    hook->state = s;
    cz__hook_describe_with(cz__powersgd_run, describe_hook);
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

/* ---- to a dictionary ---- */

/* Of a parameter its name; batched, Q is that of a bucket. */
static const char *key_of(const cz_powersgd *s, int64_t index, bool of_bucket, char number[24])
{
    if (!of_bucket)
        return cz__model_name(s->model, index);
    snprintf(number, 24, "%" PRId64, index);
    return number;
}

static cz_status write_memories(const cz_powersgd *s, const cz__powersgd_memory *memories,
                                bool of_buckets, const char *key, cz_state_dict *dict)
{
    cz_state_dict *child;
    char number[24];
    void *data;
    CZ_TRY(cz_state_dict_add_dict(dict, key, &child));
    for (int64_t k = 0; k < s->param_count; k++) {
        const cz__powersgd_memory *m = &memories[k];
        if (!m->known)
            continue;
        CZ_TRY(cz_state_dict_add_tensor(child, key_of(s, k, of_buckets, number), m->dtype, 1,
                                        &m->count, &data));
        if (m->count > 0)
            memcpy(data, m->data, (size_t)m->count * cz_dtype_size(m->dtype));
    }
    return CZ_OK;
}

static cz_status write(const cz_powersgd *s, cz_state_dict *dict)
{
    CZ_TRY(cz_state_dict_set_integer(dict, "rank", s->options.rank));
    CZ_TRY(cz_state_dict_set_integer(dict, "batched", s->options.batched));
    CZ_TRY(cz_state_dict_set_integer(dict, "iter", s->iter));
    CZ_TRY(cz_state_dict_set_integer(dict, "draws", s->draws));
    CZ_TRY(cz_state_dict_set_integer(dict, "before", s->before));
    CZ_TRY(cz_state_dict_set_integer(dict, "after", s->after));
    CZ_TRY(write_memories(s, s->starts, s->options.batched, "q", dict));
    return write_memories(s, s->errors, false, "errors", dict);
}

cz_status cz_powersgd_state_dict(const cz_powersgd *powersgd, cz_state_dict **out)
{
    CZ__OWN_FLOATS;
    if (out)
        *out = NULL;
    if (!powersgd || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "powersgd state: %s is NULL",
                        powersgd ? "out" : "powersgd");
    CZ_TRY(cz_state_dict_create(out));
    const cz_status status = write(powersgd, *out);
    if (status != CZ_OK)
        cz_state_dict_destroy(out);
    return status;
}

/* ---- from a dictionary ---- */

static cz_status read_count(const cz_state_dict *dict, const char *key, int64_t *value)
{
    CZ_TRY(cz_state_dict_get_integer(dict, key, value));
    if (*value < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "powersgd load: %s is %" PRId64 ", wanted 0 or more", key,
                        *value);
    return CZ_OK;
}

static cz_status read_same(const cz_state_dict *dict, const char *key, int64_t wanted)
{
    int64_t value;
    CZ_TRY(read_count(dict, key, &value));
    if (value != wanted)
        return cz__fail(CZ_ERR_MISMATCH,
                        "powersgd load: %s is %" PRId64 " in the dictionary, here %" PRId64, key,
                        value, wanted);
    return CZ_OK;
}

/* -1: there is none. */
static int64_t index_of(const cz_powersgd *s, const char *key, bool of_buckets)
{
    char *end;
    if (!of_buckets)
        return cz_model_find(s->model, key);
    const long long number = strtoll(key, &end, 10);
    return *key && !*end && number >= 0 && number < s->param_count ? number : -1;
}

static cz_status check_memory(const cz_powersgd *s, int64_t index, bool is_error,
                              const cz_tensor *tensor, const char *key)
{
    const int64_t count = cz_tensor_count(tensor);
    const cz_tensor *value = is_error ? cz__model_value(s->model, index) : NULL;
    const cz_dtype wanted = value && value->dtype == CZ_F64 ? CZ_F64 : CZ_F32;
    if (tensor->dtype != CZ_F32 && tensor->dtype != CZ_F64)
        return cz__fail(CZ_ERR_MISMATCH, "powersgd load: '%.60s' is %s, wanted f32 or f64", key,
                        cz_dtype_name(tensor->dtype));
    if (value && (count != cz_tensor_count(value) || tensor->dtype != wanted))
        return cz__fail(CZ_ERR_MISMATCH,
                        "powersgd load: the error of '%.60s' has %" PRId64
                        " elements of %s, wanted %" PRId64 " of %s",
                        key, count, cz_dtype_name(tensor->dtype), cz_tensor_count(value),
                        cz_dtype_name(wanted));
    return CZ_OK;
}

static cz_status read_memories(const cz_powersgd *s, const cz_state_dict *dict, const char *key,
                               cz__powersgd_memory *memories)
{
    const bool is_error = strcmp(key, "errors") == 0;
    const bool of_buckets = s->options.batched && !is_error;
    const cz_state_dict *child;
    cz_tensor tensor;
    if (is_error && cz_state_dict_kind(dict, key) == CZ_STATE_NONE)
        return CZ_OK;
    CZ_TRY(cz_state_dict_get_dict(dict, key, &child));
    for (int64_t k = 0; k < cz_state_dict_count(child); k++) {
        const char *name = cz_state_dict_key(child, k);
        const int64_t index = index_of(s, name, of_buckets);
        if (index < 0)
            return cz__fail(CZ_ERR_MISMATCH, "powersgd load: there is no %s '%.60s'",
                            of_buckets ? "bucket" : "parameter", name);
        CZ_TRY(cz_state_dict_get_tensor(child, name, &tensor));
        CZ_TRY(check_memory(s, index, is_error, &tensor, name));
        CZ_TRY(cz__powersgd_remember(&memories[index],
                                     is_error ? CZ_MEMORY_GRADIENT : CZ_MEMORY_GENERAL,
                                     tensor.dtype, cz_tensor_count(&tensor)));
        memories[index].known = true;
        if (memories[index].count > 0)
            memcpy(memories[index].data, tensor.data,
                   (size_t)memories[index].count * cz_dtype_size(tensor.dtype));
    }
    return CZ_OK;
}

static cz_status read(const cz_powersgd *s, const cz_state_dict *dict, cz_powersgd *draft)
{
    CZ_TRY(read_same(dict, "rank", s->options.rank));
    CZ_TRY(read_same(dict, "batched", s->options.batched));
    CZ_TRY(read_count(dict, "iter", &draft->iter));
    CZ_TRY(read_count(dict, "draws", &draft->draws));
    CZ_TRY(read_count(dict, "before", &draft->before));
    CZ_TRY(read_count(dict, "after", &draft->after));
    draft->errors = cz__calloc((size_t)s->param_count, sizeof *draft->errors);
    draft->starts = cz__calloc((size_t)s->param_count, sizeof *draft->starts);
    if (!draft->errors || !draft->starts)
        return cz__fail(CZ_ERR_MEMORY,
                        "powersgd load: no memory for tables of %" PRId64 " parameters",
                        s->param_count);
    CZ_TRY(read_memories(s, dict, "q", draft->starts));
    return read_memories(s, dict, "errors", draft->errors);
}

/* All that is the same on every rank. */
static uint64_t fingerprint_of(const cz_powersgd *s, const cz_powersgd *draft)
{
    const int64_t numbers[] = {draft->iter, draft->draws};
    uint64_t print = cz__fingerprint(1, numbers, sizeof numbers);
    for (int64_t k = 0; k < s->param_count; k++)
        if (draft->starts[k].known && draft->starts[k].count > 0)
            print = cz__fingerprint(print, draft->starts[k].data,
                                    (size_t)draft->starts[k].count *
                                        cz_dtype_size(draft->starts[k].dtype));
    return print;
}

cz_status cz_powersgd_load_state_dict(cz_powersgd *powersgd, const cz_state_dict *dict)
{
    CZ__OWN_FLOATS;
    if (!powersgd || !dict)
        return cz__fail(CZ_ERR_ARGUMENT, "powersgd load: %s is NULL",
                        powersgd ? "dict" : "powersgd");
    cz_powersgd draft = {0};
    const cz_status status = read(powersgd, dict, &draft);
    forget_memories(status == CZ_OK ? powersgd->errors : draft.errors, powersgd->param_count);
    forget_memories(status == CZ_OK ? powersgd->starts : draft.starts, powersgd->param_count);
    if (status != CZ_OK)
        return status;
    powersgd->errors = draft.errors;
    powersgd->starts = draft.starts;
    powersgd->iter = draft.iter;
    powersgd->before = draft.before;
    powersgd->after = draft.after;
    powersgd->placed = false;
    powersgd->loaded = fingerprint_of(powersgd, &draft);
    start_seeds(powersgd, draft.draws);
    return CZ_OK;
}
