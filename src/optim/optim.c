/* SPDX-License-Identifier: MIT */
/* The local optimizer as a whole: made, destroyed. */
#include "base/float_mode.h"
#include "base/kernel_threads.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "collective/shared.h"
#include "optim/object.h"
#include "shard/shard.h"
#include "tensor/model.h"

#include <inttypes.h>
#include <string.h>

static cz_status ask_rule(const cz_rule *rule, const char *name, const cz_tensor *value)
{
    char what[128];
    if (!rule->check_param)
        return CZ_OK;
    const cz_status status = CZ__CALL_PROGRAM(rule->check_param(value, rule->context));
    if (!status)
        return CZ_OK;
    snprintf(what, sizeof what, "optim: parameter '%.60s'", name);
    return cz__fail_in(status, what);
}

/* In what type rules compute for values of this one. */
static cz_dtype computed_in(const cz_rule *rule, cz_dtype dtype)
{
    return cz__has_16_bits(dtype) && !cz__rule_takes_16_bits(rule) ? CZ_F32 : dtype;
}

/* Who asks for 16 bits gets them where the rule and the device can. */
static cz_status check_types(const cz_optim *optim, int64_t param)
{
    const cz_tensor *value = cz__model_value(optim->model, param);
    const char *name = cz__model_name(optim->model, param);
    const cz__optim_group *group = &optim->groups[optim->group_of[param]];
    const cz_rule *rule = group->rule;
    const cz_dtype gradient = cz__model_gradient_dtype(optim->model, param);
    const cz_device *device = cz__device_of(value);
    const bool narrow = value->dtype != optim->dtype, by_chance = narrow && !group->has_masters;
    if (cz__rule_takes_16_bits(rule) && gradient != value->dtype)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim: parameter '%s' is %s and its gradient %s: rule %s updates whole "
                        "tensors, of one type",
                        name, cz_dtype_name(value->dtype), cz_dtype_name(gradient), rule->name);
    if ((by_chance || group->state_dtype != optim->dtype) && !device->convert_stochastic)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim: parameter '%s': device %s cannot round by chance to %s", name,
                        device->name, cz_dtype_name(by_chance ? value->dtype : group->state_dtype));
    if (group->packed && !cz__device_same_type(device, cz_device_cpu()))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim: parameter '%s' is on device %s: state in 8 bits is for the host's "
                        "memory",
                        name, device->name);
    if (group->average.kind && !device->average)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim: parameter '%s': device %s keeps no moving averages", name,
                        device->name);
    if (narrow && group->has_masters && !device->refresh)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim: parameter '%s': device %s has no copies in f32 of %s values", name,
                        device->name, cz_dtype_name(value->dtype));
    return CZ_OK;
}

/* Is it the rules that differ, and not the values? */
static bool computes_otherwise(const cz_optim *optim, int64_t param)
{
    const cz_rule *rule = cz__optim_rule_of(optim, param);
    const cz_rule *first = cz__optim_rule_of(optim, optim->first);
    const cz_dtype dtype = cz__model_value(optim->model, param)->dtype;
    return cz__rule_takes_16_bits(rule) != cz__rule_takes_16_bits(first) &&
           (cz__has_16_bits(dtype) || cz__has_16_bits(optim->dtype)) && dtype != CZ_F64;
}

/* One type to compute in, one type of device, dense: as the optimizer has it. And the rule takes
 * it. */
static cz_status check_param(const cz_optim *optim, int64_t param)
{
    const cz_tensor *value = cz__model_value(optim->model, param);
    const cz_rule *rule = cz__optim_rule_of(optim, param);
    const char *name = cz__model_name(optim->model, param);
    if (value->layout != CZ_DENSE)
        return cz__fail(CZ_ERR_UNSUPPORTED, "optim: parameter '%s' is sparse, %s takes dense ones",
                        name, rule->name);
    if (computed_in(rule, value->dtype) != optim->dtype && computes_otherwise(optim, param))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim: parameter '%s' of rule %s is computed in %s, '%s' of rule %s in "
                        "%s: rules that update whole tensors have 16-bit values in an optimizer "
                        "of their own",
                        name, rule->name, cz_dtype_name(computed_in(rule, value->dtype)),
                        cz__model_name(optim->model, optim->first),
                        cz__optim_rule_of(optim, optim->first)->name, cz_dtype_name(optim->dtype));
    if (computed_in(rule, value->dtype) != optim->dtype)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim: parameter '%s' is %s, '%s' is %s: an optimizer has parameters of "
                        "one type, or of f32, bf16 and f16; make one for each, with groups of its "
                        "own",
                        name, cz_dtype_name(value->dtype),
                        cz__model_name(optim->model, optim->first),
                        cz_dtype_name(cz__model_value(optim->model, optim->first)->dtype));
    if (!cz__device_same_type(cz__device_of(value), optim->device))
        return cz__fail(CZ_ERR_ARGUMENT, "optim: parameter '%s' is on device %s, '%s' on %s", name,
                        cz__device_of(value)->name, cz__model_name(optim->model, optim->first),
                        optim->device->name);
    double cost;
    CZ_TRY(check_types(optim, param));
    CZ_TRY(ask_rule(rule, name, value));
    return cz__optim_cost(optim, param, &cost);
}

static bool is_mixed(const cz_optim *optim, int64_t param)
{
    return cz__model_value(optim->model, param)->dtype != optim->dtype ||
           cz__model_gradient_dtype(optim->model, param) != optim->dtype ||
           optim->groups[optim->group_of[param]].state_dtype != optim->dtype ||
           cz__optim_block(optim, param) > 1;
}

/* The first parameter in a group decides what the optimizer takes. */
static cz_status check_params(cz_optim *optim)
{
    optim->first = -1;
    for (int64_t p = 0; p < optim->param_count; p++) {
        if (optim->group_of[p] < 0)
            continue;
        if (optim->first < 0) {
            const cz_tensor *value = cz__model_value(optim->model, p);
            optim->first = p;
            optim->dtype = computed_in(cz__optim_rule_of(optim, p), value->dtype);
            optim->device = cz__device_of(value);
            CZ_TRY(cz__optim_settle_types(optim));
        }
        CZ_TRY(check_param(optim, p));
        optim->is_mixed = optim->is_mixed || is_mixed(optim, p);
    }
    return CZ_OK;
}

static cz_status find_kernels(cz_optim *optim)
{
    for (int64_t p = 0; p < optim->param_count; p++)
        if (optim->group_of[p] >= 0)
            CZ_TRY(cz__optim_find_kernels(optim, p));
    return CZ_OK;
}

static cz_status allocate_tables(cz_optim *optim)
{
    const size_t count = (size_t)optim->param_count;
    optim->group_of = cz__calloc(count, sizeof *optim->group_of);
    optim->steps = cz__calloc(count, sizeof *optim->steps);
    optim->used = cz__calloc(count, sizeof *optim->used);
    optim->expected = cz__calloc(count, sizeof *optim->expected);
    optim->scalars_used = cz__calloc(count, sizeof *optim->scalars_used);
    if (!optim->group_of || !optim->steps || !optim->used || !optim->expected ||
        !optim->scalars_used)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for tables of %zu parameters", count);
    for (size_t p = 0; p < count; p++) {
        optim->group_of[p] = -1;
        optim->is_narrow =
            optim->is_narrow || cz__has_16_bits(cz__model_value(optim->model, (int64_t)p)->dtype);
    }
    return CZ_OK;
}

/* To wake a thread takes some 40 microseconds, in which a core does megabytes in its caches. Who
 * asks for threads gets them earlier. */
#define PART_BYTES ((uint64_t)2 << 20)
#define PART_BYTES_WISHED ((uint64_t)256 << 10)
static cz_status count_threads(cz_optim *optim, const cz_optim_options *options)
{
    optim->thread_count = cz__kernel_thread_count(options->threads, &optim->threads_asked);
    optim->part_bytes = optim->threads_asked ? PART_BYTES_WISHED : PART_BYTES;
    return CZ_OK;
}

static bool is_in_group(const void *context, int64_t param)
{
    const cz_optim *optim = context;
    return optim->group_of[param] >= 0;
}

static cz__overlaps overlaps_of(const cz_optim *optim)
{
    return (cz__overlaps){
        .part = "optim", .model = optim->model, .is_own = is_in_group, .context = optim};
}

cz_status cz__optim_check_gradients(cz_optim *optim, bool reused)
{
    cz__overlaps overlaps = overlaps_of(optim);
    overlaps.gradients = optim->step.gradients;
    overlaps.reuses_gradients = reused;
    return cz__check_overlaps_again(&optim->overlaps, &overlaps);
}

cz_status cz__optim_check_memory(cz_optim *optim, bool reused)
{
    cz__overlaps overlaps = overlaps_of(optim);
    overlaps.reuses_gradients = reused;
    overlaps.before_use = true;
    return cz__check_overlaps_at_first(&optim->overlaps, &overlaps);
}

/* Of these parameters alone, which have just come into a group. */
static cz_status check_memory_of(cz_optim *optim, const int64_t *params, int64_t count)
{
    cz__overlaps overlaps = overlaps_of(optim);
    overlaps.reuses_gradients = true;
    overlaps.before_use = true;
    return cz__check_overlaps_of(&optim->overlaps, &overlaps, params, count);
}

const cz__option_table cz__optim_options = CZ__OPTION_TABLE(
    cz_optim_options, CZ__OPTION(cz_optim_options, groups, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_optim_options, group_count, CZ__COMPARED_APART, CZ__FROM(0)),
    CZ__OPTION(cz_optim_options, threads, CZ__LOCAL, CZ__FROM(0)),
    CZ__OPTION(cz_optim_options, reserved, CZ__LOCAL, CZ__RESERVED),
    CZ__OPTION(cz_optim_options, master, CZ__COMPARED_APART, CZ__BETWEEN(0, CZ_MASTER_NONE)),
    CZ__OPTION(cz_optim_options, state_dtype, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_optim_options, seed, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_optim_options, average, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_optim_options, u8_from, CZ__COMPARED_APART, CZ__FROM(0)));

static cz_status build_optim(cz_optim *optim, const cz_hyper *hypers,
                             const cz_optim_options *theirs)
{
    cz_optim_options options;
    CZ_TRY(cz__options_read(&options, &cz__optim_options, theirs, "optim"));
    CZ_TRY(count_threads(optim, &options));
    optim->master = options.master;
    optim->state_dtype = options.state_dtype;
    optim->seed = options.seed;
    optim->packed_from = options.u8_from > 0 ? options.u8_from : CZ__PACKED_FROM;
    optim->factor = 1;
    CZ_TRY(cz__optim_read_average(&optim->average, options.average));
    CZ_TRY(allocate_tables(optim));
    CZ_TRY(cz__optim_groups_create(optim, hypers, &options));
    CZ_TRY(check_params(optim));
    for (int64_t k = 0; k < optim->group_count; k++)
        CZ_TRY(cz__rule_check_type(optim->groups[k].rule, optim->groups[k].hypers, optim->dtype));
    CZ_TRY(cz__optim_check_memory(optim, true));
    return find_kernels(optim);
}

cz_status cz__optim_create(cz_optim **out, cz_model *model, const cz_rule *rule,
                           const cz_hyper *hypers, const cz_optim_options *options)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: out is NULL");
    *out = NULL;
    if (!model)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: model is NULL");
    CZ_TRY(cz__rule_check_table(rule));
    cz_optim *optim = cz__calloc(1, sizeof *optim);
    if (!optim)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for a handle");
    optim->model = model;
    optim->rule = rule;
    optim->master_slot = optim->average_slot = -1;
    optim->param_count = cz__model_param_count(model);
    cz_status status = build_optim(optim, hypers, options);
    if (status)
        goto fail;
    cz__model_freeze(model);
    optim->froze = true;
    status = cz__model_tables_of(model, &optim->tables);
    if (status)
        goto fail;
    *out = optim;
    return CZ_OK;
fail:
    cz_optim_destroy(&optim);
    return status;
}

cz_status cz__optim_set_map(cz_optim *optim, const cz_shard_map *map, int rank)
{
    cz__optim_shard shard;
    if (optim->shard.map)
        return cz__fail(CZ_ERR_STATE, "optim: it has a shard map already");
    const cz_status status = cz__optim_shard_create(optim, &shard, map, rank);
    if (status != CZ_OK) {
        cz__optim_shard_clear(optim, &shard);
        return status;
    }
    cz__optim_shard_adopt(optim, &shard);
    return cz__optim_prepare(optim);
}

/* Each rank's optimizer would update it, and the ranks together several times. */
static cz_status check_unshared(const cz_optim *optim)
{
    for (int64_t p = 0; p < cz__model_param_count(optim->model); p++) {
        const cz_tensor *value = cz__model_value(optim->model, p);
        const size_t bytes = (size_t)cz_tensor_count(value) * cz_dtype_size(value->dtype);
        if (bytes > 0 && cz__optim_group_of(optim, p) >= 0 &&
            cz__shared_find(value->data, bytes).ranks > 1)
            return cz__fail(CZ_ERR_UNSUPPORTED,
                            "optim: parameter %" PRId64
                            " '%.60s' is in memory that ranks share; a sharded optimizer "
                            "(cz_zero_create()) writes it once",
                            p, cz__model_name(optim->model, p));
    }
    return CZ_OK;
}

/* Rank 0 of 1 has every parameter. */
static cz_status own_everything(cz_optim *optim)
{
    CZ_TRY(check_unshared(optim));
    const size_t count = (size_t)optim->param_count;
    int64_t *counts = cz__calloc(count, sizeof *counts);
    optim->gradients = cz__calloc(count, sizeof *optim->gradients);
    if (!counts || !optim->gradients) {
        cz__free(counts);
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for tables of %zu parameters", count);
    }
    for (int64_t p = 0; p < optim->param_count; p++)
        counts[p] = cz_tensor_count(cz__model_value(optim->model, p));
    const cz_status status =
        cz__shard_map_create_single(&optim->own_map, 1, optim->param_count, counts, 0);
    cz__free(counts);
    return status ? status : cz__optim_set_map(optim, optim->own_map, 0);
}

cz_status cz_optim_create(cz_optim **out, cz_model *model, const cz_rule *rule,
                          const cz_hyper *hypers, const cz_optim_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    CZ_TRY(cz__optim_create(out, model, rule, hypers, options));
    const cz_status status = own_everything(*out);
    if (status)
        cz_optim_destroy(out);
    return status;
}

static cz_status check_group(cz_optim *optim, const cz__optim_group *group)
{
    CZ_TRY(cz__rule_check_type(group->rule, group->hypers, optim->dtype));
    CZ_TRY(cz__optim_settle_types(optim));
    for (int64_t i = 0; i < group->param_count; i++) {
        CZ_TRY(check_param(optim, group->params[i]));
        CZ_TRY(cz__optim_find_kernels(optim, group->params[i]));
        optim->is_mixed = optim->is_mixed || is_mixed(optim, group->params[i]);
    }
    return check_memory_of(optim, group->params, group->param_count);
}

cz_status cz__optim_add_group(cz_optim *optim, const cz_param_group *theirs)
{
    cz_param_group group;
    const int64_t k = optim->group_count;
    if (!theirs)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: the parameter group is NULL");
    CZ_TRY(cz__options_read(&group, &cz__param_group_options, theirs, "optim"));
    cz_status status = cz__optim_append_group(optim, &group);
    if (optim->group_count == k) /* no memory for it */
        return status;
    if (!status)
        status = check_group(optim, &optim->groups[k]);
    if (status)
        cz__optim_remove_group(optim);
    return status;
}

cz_status cz_optim_add_param_group(cz_optim *optim, const cz_param_group *group)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz__optim_shard shard;
    if (!optim)
        return cz__fail(CZ_ERR_ARGUMENT, "optim add_param_group: optim is NULL");
    if (!optim->own_map)
        return cz__fail(CZ_ERR_STATE,
                        "optim add_param_group: it is part of a sharded optimizer; add it there");
    CZ_TRY(cz__optim_check_trained(optim, "optim add_param_group"));
    CZ_TRY(cz__optim_add_group(optim, group));
    const cz_status status = cz__optim_shard_create(optim, &shard, optim->own_map, 0);
    if (status != CZ_OK) {
        cz__optim_shard_clear(optim, &shard);
        cz__optim_remove_group(optim);
        return status;
    }
    cz__optim_shard_adopt(optim, &shard); /* all that was there is there again */
    return cz__optim_prepare(optim);
}

void cz_optim_destroy(cz_optim **optim)
{
    CZ__UNCANCELLED;
    if (!optim || !*optim)
        return;
    if ((*optim)->froze) /* the program may have destroyed the model: no look at its tensors */
        cz__model_thaw((*optim)->model);
    cz__kernel_threads_stop(&(*optim)->kernel_threads);
    cz__free((*optim)->part_sums);
    cz__free((*optim)->part_prepared);
    cz__optim_release_kept(*optim);
    cz__optim_shard_clear(*optim, &(*optim)->shard);
    cz__optim_groups_destroy(*optim);
    cz__free((*optim)->rules);
    cz__shard_map_destroy(&(*optim)->own_map);
    cz__free((*optim)->gradients);
    cz__free((*optim)->values);
    cz__free((*optim)->sum_values);
    cz__free((*optim)->group_of);
    cz__free((*optim)->steps);
    cz__free((*optim)->used);
    cz__free((*optim)->expected);
    cz__free((*optim)->scalars_used);
    cz__free((*optim)->scalars);
    cz__overlap_memory_clear(&(*optim)->overlaps);
    cz__free(*optim);
    *optim = NULL;
}

cz_status cz_optim_zero_grad(cz_optim *optim, bool to_none)
{
    if (!optim)
        return cz__fail(CZ_ERR_ARGUMENT, "optim zero_grad: optim is NULL");
    for (int64_t p = 0; p < optim->param_count; p++) {
        const cz_tensor *gradient = cz__model_gradient(optim->model, p);
        if (optim->group_of[p] < 0 || !gradient)
            continue;
        if (to_none) {
            CZ_TRY(cz_model_set_gradient(optim->model, p, NULL));
            continue;
        }
        const size_t bytes = (size_t)cz_tensor_count(gradient) * cz_dtype_size(gradient->dtype);
        CZ_TRY(optim->device->zero(NULL, gradient->data, bytes));
    }
    return CZ_OK;
}

size_t cz__optim_bytes(const cz_rule *rule, bool averages, int64_t params, int64_t spans)
{
    const cz_optim *optim = NULL;
    int slots = averages, scalars = averages;
    for (int i = 0; i < rule->slot_count; i++)
        *(cz__rule_slot(rule, i).kind == CZ_SLOT_ELEMENT ? &slots : &scalars) += 1;
    const size_t per_param = sizeof *optim->group_of + sizeof *optim->steps + sizeof *optim->used +
                             sizeof *optim->expected + sizeof *optim->scalars_used +
                             (size_t)scalars * sizeof *optim->scalars +
                             (size_t)rule->sum_count * sizeof *optim->sum_values +
                             sizeof *optim->shard.first_span + sizeof *optim->groups->params +
                             sizeof *optim->overlaps.gradients;
    const size_t per_span =
        sizeof *optim->shard.spans + (size_t)slots * sizeof *optim->shard.slots +
        (rule->sum_count > 0
             ? (size_t)rule->sum_count * sizeof *optim->shard.sums + sizeof *optim->shard.prepared
             : 0);
    return sizeof *optim + sizeof *optim->groups + (size_t)params * per_param +
           (size_t)spans * per_span;
}
