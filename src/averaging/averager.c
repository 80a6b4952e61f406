/* SPDX-License-Identifier: MIT */
/* Averagers: made, destroyed, saved. */
#include <inttypes.h>

#include "averaging/averager.h"
#include "base/float_mode.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "collective/model.h"
#include "optim/optim.h"
#include "tensor/model.h"
#include "shard/shard.h"

/* ---- what was asked for ---- */

const cz__option_table cz__averager_options = CZ__OPTION_TABLE(
    cz_averager_options, CZ__OPTION(cz_averager_options, warmup_steps, CZ__COMPARED, CZ__FROM(0)),
    CZ__OPTION(cz_averager_options, allow_no_gradients, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_averager_options, reserved, CZ__LOCAL, CZ__RESERVED));

const cz__option_table cz__averager_level_options = CZ__OPTION_TABLE(
    cz_averager_level, CZ__OPTION(cz_averager_level, period, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_averager_level, ranks, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_averager_level, reserved, CZ__LOCAL, CZ__RESERVED));

static cz_status check_level(const cz_averager *averager, int64_t k)
{
    const cz__level *level = &averager->levels[k];
    const int world = cz_group_size(averager->group);
    if (level->period < 1)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "averager: the period of level %" PRId64 " is %" PRId64
                        ", wanted 1 or more",
                        k, level->period);
    if (k > 0 && level->period <= averager->levels[k - 1].period)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "averager: the period of level %" PRId64 " is %" PRId64
                        ", that of the level before is %" PRId64 "; they ascend",
                        k, level->period, averager->levels[k - 1].period);
    if (level->ranks < 1 || world % level->ranks != 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "averager: level %" PRId64 " is over %d ranks, wanted a divisor of %d", k,
                        level->ranks, world);
    if (k == averager->level_count - 1 && level->ranks != world)
        return cz__fail(CZ_ERR_ARGUMENT, "averager: the last level is over %d ranks, wanted all %d",
                        level->ranks, world);
    return CZ_OK;
}

static cz_status read_levels(cz_averager *averager, const cz_averager_level *levels, int64_t count,
                             const cz_averager_options *theirs)
{
    CZ_TRY(cz__options_read(&averager->options, &cz__averager_options, theirs, "averager"));
    if (!levels || count < 1)
        return cz__fail(CZ_ERR_ARGUMENT, "averager: %" PRId64 " levels%s, wanted 1 or more", count,
                        levels ? "" : " at NULL");
    averager->levels = cz__calloc((size_t)count, sizeof *averager->levels);
    if (!averager->levels)
        return cz__fail(CZ_ERR_MEMORY, "averager: no memory for a table of %" PRId64 " levels",
                        count);
    averager->level_count = count;
    for (int64_t k = 0; k < count; k++) {
        cz_averager_level level;
        CZ_TRY(
            cz__options_read_element(&level, &cz__averager_level_options, levels, k, "averager"));
        averager->levels[k].period = level.period;
        averager->levels[k].ranks = level.ranks;
    }
    for (int64_t k = 0; k < count; k++)
        CZ_TRY(check_level(averager, k));
    return CZ_OK;
}

/* ---- one flat pass ---- */

/* The fixed layout, one type after the other, each a range that is cut evenly. `order` and `begins`
 * have room for all; returns how many ranges there are. */
static int64_t lay_out(const cz_model *model, const int64_t *fixed, int64_t *order, int64_t *begins,
                       size_t *element_size)
{
    const int64_t params = cz__model_param_count(model);
    int64_t count = 0, ranges = 0;
    *element_size = 8;
    for (cz_dtype dtype = CZ_F32; cz_dtype_size(dtype) > 0; dtype++) {
        const int64_t begin = count;
        for (int64_t k = 0; k < params; k++)
            if (cz__model_value(model, fixed[k])->dtype == dtype)
                order[count++] = fixed[k];
        if (count == begin)
            continue;
        begins[ranges++] = begin;
        if (cz_dtype_size(dtype) < *element_size)
            *element_size = cz_dtype_size(dtype);
    }
    return ranges;
}

static cz_status make_map(const cz_model *model, int ranks, int64_t *tables, cz_shard_map **map)
{
    const int64_t params = cz__model_param_count(model);
    int64_t *counts = tables, *fixed = counts + params, *order = fixed + params,
            *begins = order + params;
    size_t element_size;
    for (int64_t p = 0; p < params; p++)
        counts[p] = cz_tensor_count(cz__model_value(model, p));
    cz__model_lay_out(model, fixed);
    const int64_t ranges = lay_out(model, fixed, order, begins, &element_size);
    return cz__shard_map_create_even(map, ranks, params, counts, order, ranges, begins,
                                     element_size);
}

static size_t model_bytes(const cz_model *model)
{
    size_t bytes = 0;
    for (int64_t p = 0; p < cz__model_param_count(model); p++) {
        const cz_tensor *value = cz__model_value(model, p);
        bytes += (size_t)cz_tensor_count(value) * cz_dtype_size(value->dtype);
    }
    return bytes;
}

/* What this rank needs for averaging in the groups that it is in. Local. */
static cz_status equip(cz_averager *averager)
{
    const size_t params = (size_t)averager->param_count;
    cz_status status = CZ_OK;
    int64_t *tables = cz__calloc(4 * params, sizeof *tables);
    if (!tables)
        return cz__fail(CZ_ERR_MEMORY, "averager: no memory for tables of %zu parameters", params);
    for (int64_t k = 0; k < averager->level_count; k++) {
        cz__level *level = &averager->levels[k];
        if (!level->group)
            continue;
        status = make_map(averager->model, level->ranks, tables, &level->map);
        if (!status)
            status =
                cz__reserve_create(&level->transfers, level->group, model_bytes(averager->model));
        if (status)
            break;
    }
    cz__free(tables);
    return status;
}

/* ---- making one ---- */

/* Or may be, once it has a gradient. */
static bool is_averaged(const void *context, int64_t param)
{
    const cz_averager *averager = context;
    return cz__model_requires_grad(averager->model, param);
}

static cz_status build_averager(cz_averager *averager, const cz_averager_level *levels,
                                int64_t count, const cz_averager_options *options)
{
    if (!averager->model)
        return cz__fail(CZ_ERR_ARGUMENT, "averager: model is NULL");
    CZ_TRY(read_levels(averager, levels, count, options));
    CZ_TRY(cz__group_check_model(averager->group, averager->model, "averager"));
    averager->param_count = cz__model_param_count(averager->model);
    for (int64_t p = 0; p < averager->param_count; p++)
        CZ_TRY(cz__averager_check_param(averager, p));
    const cz__overlaps overlaps = {.part = "averager",
                                   .model = averager->model,
                                   .is_own = is_averaged,
                                   .context = averager,
                                   .reuses_gradients = true,
                                   .before_use = true};
    CZ_TRY(cz__check_overlaps(&overlaps));
    const size_t params = (size_t)averager->param_count;
    averager->values = cz__calloc(params, sizeof *averager->values);
    averager->present = cz__calloc(params, sizeof *averager->present);
    averager->include = cz__calloc(params, sizeof *averager->include);
    return averager->values && averager->present && averager->include
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "averager: no memory for tables of %zu parameters",
                          params);
}

static void describe_averager(cz__description *d, const void *context)
{
    const cz_averager *averager = context;
    cz__describe_number(d, &(cz__subject){NULL, "the number of levels", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, averager->level_count);
    for (int64_t k = 0; k < averager->level_count; k++) {
        cz__describe_number(d, &(cz__subject){"the period", "level", k, NULL, "is"},
                            CZ__FIELD_NUMBER, averager->levels[k].period);
        cz__describe_number(d, &(cz__subject){"the number of ranks", "level", k, NULL, "is"},
                            CZ__FIELD_NUMBER, averager->levels[k].ranks);
    }
    cz__describe_options(d, &cz__averager_options, &averager->options, NULL);
    cz__describe_params(d, averager->model);
    cz__describe_trainable(d, averager->model);
}

/* Contiguous blocks, one after the other in rank order. Collective: levels are alike on all
 * ranks. */
static cz_status make_groups(cz_averager *averager)
{
    const int world = cz_group_size(averager->group), rank = cz_group_rank(averager->group);
    for (int64_t k = 0; k < averager->level_count; k++) {
        cz__level *level = &averager->levels[k];
        if (level->ranks == 1)
            continue;
        if (level->ranks == world)
            level->group = averager->group;
        else
            CZ_TRY(cz_group_split(averager->group, rank / level->ranks, rank, &level->group));
    }
    return CZ_OK;
}

cz_status cz_averager_create_hierarchical(cz_averager **out, cz_group *group, cz_model *model,
                                          const cz_averager_level *levels, int64_t count,
                                          const cz_averager_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (out)
        *out = NULL;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "averager: group is NULL");
    cz_averager *averager = out ? cz__calloc(1, sizeof *averager) : NULL;
    cz_status status;
    if (averager) {
        *averager = (cz_averager){.group = group, .model = model, .room.part = "averager"};
        status = build_averager(averager, levels, count, options);
    } else if (out) {
        status = cz__fail(CZ_ERR_MEMORY, "averager: no memory for a handle");
    } else {
        status = cz__fail(CZ_ERR_ARGUMENT, "averager: out is NULL");
    }
    cz__description description = {.part = "averager"};
    status = cz__agree_on(group, "averager", describe_averager, averager, status, &description);
    cz__description_clear(&description);
    if (status)
        goto fail;
    status = make_groups(averager);
    if (status)
        goto fail;
    status = cz__agree(group, equip(averager), 0, NULL, "averager");
    if (status)
        goto fail;
    cz__object_make(&averager->object, group, CZ__OBJECT_AVERAGER);
    for (int64_t k = 0; k < averager->level_count; k++)
        if (averager->levels[k].group && averager->levels[k].group != group)
            cz__group_serve(averager->levels[k].group, &averager->object);
    cz__model_freeze(model);
    averager->froze = true;
    if (averager->levels[0].period == 1 && averager->levels[0].ranks > 1 &&
        cz_group_rank(group) == 0)
        cz__log(CZ_LOG_WARN, "averager: period 1 averages after every step; to reduce gradients "
                             "instead costs the same and is one optimizer");
    *out = averager;
    return CZ_OK;
fail:
    cz_averager_destroy(&averager);
    return status;
}

void cz_averager_destroy(cz_averager **out)
{
    CZ__UNCANCELLED;
    if (!out || !*out)
        return;
    cz_averager *averager = *out;
    if (averager->froze)
        cz__model_thaw(averager->model);
    for (int64_t k = 0; k < averager->level_count; k++) {
        cz__level *level = &averager->levels[k];
        cz__reserve_destroy(&level->transfers);
        cz__shard_map_destroy(&level->map);
        if (level->group != averager->group)
            cz_group_destroy(&level->group);
    }
    cz__description_clear(&averager->room);
    cz__free(averager->levels);
    cz__free(averager->values);
    cz__free(averager->present);
    cz__free(averager->include);
    cz__free(averager);
    *out = NULL;
}

/* ---- the counter ---- */

cz_status cz_averager_state_dict(const cz_averager *averager, cz_state_dict **out)
{
    if (out)
        *out = NULL;
    if (!averager || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "averager state_dict: %s is NULL",
                        averager ? "out" : "averager");
    CZ_TRY(cz_state_dict_create(out));
    const cz_status status = cz_state_dict_set_integer(*out, "step", averager->step);
    if (status != CZ_OK)
        cz_state_dict_destroy(out);
    return status;
}

static cz_status read_step(const cz_state_dict *dict, int64_t *step)
{
    CZ_TRY(cz_state_dict_get_integer(dict, "step", step));
    if (*step < 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "averager: step is %" PRId64 " in the dictionary, wanted 0 or more", *step);
    return CZ_OK;
}

cz_status cz_averager_load_state_dict(cz_averager *averager, const cz_state_dict *dict)
{
    int64_t step;
    if (!averager)
        return cz__fail(CZ_ERR_ARGUMENT, "averager load_state_dict: averager is NULL");
    CZ_TRY(read_step(dict, &step));
    averager->step = step;
    return CZ_OK;
}

/* ---- beside an optimizer ---- */
/* Post-local SGD: steps on a rank's own gradients, and averaging. @see Lin et al.,
 * arXiv:1808.07217. */

struct cz_post_local_optim {
    cz_optim *optim;       /* borrowed */
    cz_averager *averager; /* borrowed */
};

cz_status cz_post_local_optim_create(cz_post_local_optim **out, cz_optim *optim,
                                     cz_averager *averager)
{
    if (out)
        *out = NULL;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD: out is NULL");
    if (!optim || !averager)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD: %s is NULL",
                        optim ? "averager" : "optim");
    if (cz__optim_model(optim) != averager->model)
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "post-local SGD: the optimizer is over one model, the averager over another");
    if (cz__optim_is_part(optim))
        return cz__fail(CZ_ERR_STATE, "post-local SGD: the optimizer is part of a sharded one");
    *out = cz__calloc(1, sizeof **out);
    if (!*out)
        return cz__fail(CZ_ERR_MEMORY, "post-local SGD: no memory for a handle");
    **out = (cz_post_local_optim){optim, averager};
    return CZ_OK;
}

void cz_post_local_optim_destroy(cz_post_local_optim **post)
{
    if (!post)
        return;
    cz__free(*post);
    *post = NULL;
}

cz_status cz_post_local_optim_step(cz_post_local_optim *post, const cz_step_options *options,
                                   cz_step_result *result)
{
    CZ__UNCANCELLED;
    if (!post)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD step: post is NULL");
    return cz__averager_average(post->averager, cz_optim_step(post->optim, options, result), NULL);
}

cz_status cz_post_local_optim_state_dict(const cz_post_local_optim *post, cz_state_dict **out)
{
    if (out)
        *out = NULL;
    if (!post || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD state_dict: %s is NULL",
                        post ? "out" : "post");
    CZ_TRY(cz_optim_state_dict(post->optim, out));
    const cz_status status = cz_state_dict_set_integer(*out, "step", post->averager->step);
    if (status != CZ_OK)
        cz_state_dict_destroy(out);
    return status;
}

cz_status cz_post_local_optim_load_state_dict(cz_post_local_optim *post, const cz_state_dict *dict,
                                              bool begin)
{
    int64_t step = 0;
    if (!post)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD load_state_dict: post is NULL");
    if (!begin || cz_state_dict_kind(dict, "step") != CZ_STATE_NONE)
        CZ_TRY(read_step(dict, &step));
    CZ_TRY(cz_optim_load_state_dict(post->optim, dict, NULL));
    post->averager->step = step;
    return CZ_OK;
}
