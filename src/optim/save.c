/* SPDX-License-Identifier: MIT */
/* An optimizer as a state dictionary: the rule's name, the state by parameter name, the parameter
 * groups. The layout is at cz_optim_state_dict(). */
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "optim/object.h"
#include "optim/optim.h"

#include <inttypes.h>
#include <string.h>

cz__progress cz__optim_progress(const cz_optim *optim)
{
    return (cz__progress){optim->steps, optim->used, optim->scalars};
}

/* Bit e: a dictionary holds element slot e of this parameter: what has been used, and beside it
 * what is in use. A master or an average that has not been used yet says nothing that the value
 * does not. */
static unsigned saved_slots(const cz_optim *optim, const cz__progress *progress, int64_t param)
{
    if (optim->group_of[param] < 0 || !progress->used[param])
        return 0;
    return progress->used[param] |
           (cz__optim_slots_in_use(optim, param) & ~cz__optim_added_bits(optim));
}

/* The step count, and what is kept beside it. */
static cz_status save_scalars(const cz_optim *optim, const cz__progress *progress, int64_t param,
                              cz_state_dict *entry)
{
    const double *scalars = progress->scalars + param * optim->scalar_count;
    CZ_TRY(cz_state_dict_set_integer(entry, "step", progress->steps[param]));
    for (int k = 0; k < optim->scalar_count; k++) {
        const char *name = cz__optim_scalar_slot(optim, param, k).name;
        if (name)
            CZ_TRY(cz_state_dict_set_real(entry, name, scalars[k]));
    }
    return CZ_OK;
}

/* In an outline, a slot that has been used is the name of its type. */
static cz_status outline_slot(const cz_optim *optim, const cz__progress *progress, int64_t param,
                              int slot, cz_state_dict *entry)
{
    if (!(progress->used[param] >> slot & 1u))
        return CZ_OK;
    return cz_state_dict_set_text(entry, cz__optim_element_slot(optim, param, slot).name,
                                  cz_dtype_name(cz__optim_slot_dtype(optim, param, slot)));
}

/* One that is in use without having been used yet holds what it starts with. */
static cz_status save_slot(const cz_optim *optim, const cz__progress *progress, int64_t param,
                           int slot, cz_state_dict *entry)
{
    const cz_tensor *value = cz__model_value(optim->model, param);
    const cz_slot_spec spec = cz__optim_element_slot(optim, param, slot);
    const cz_dtype dtype = cz__optim_slot_dtype(optim, param, slot);
    void *data;
    CZ_TRY(
        cz_state_dict_add_tensor(entry, spec.name, dtype, value->dimensions, value->shape, &data));
    if (progress->used[param] >> slot & 1u)
        return CZ_OK;
    return cz_device_cpu()->fill(NULL, dtype, cz__optim_first_value(optim, spec, param),
                                 cz_tensor_count(value), data);
}

typedef cz_status (*slot_saver)(const cz_optim *optim, const cz__progress *progress, int64_t param,
                                int slot, cz_state_dict *entry);

static cz_status save_param(const cz_optim *optim, const cz__progress *progress, int64_t param,
                            slot_saver saver, cz_state_dict *state)
{
    const unsigned saved = saved_slots(optim, progress, param);
    cz_state_dict *entry;
    if (progress->steps[param] == 0 && !saved)
        return CZ_OK;
    CZ_TRY(cz_state_dict_add_dict(state, cz__model_name(optim->model, param), &entry));
    CZ_TRY(save_scalars(optim, progress, param, entry));
    for (int e = 0; e < optim->slot_count; e++)
        if (saved >> e & 1u)
            CZ_TRY(saver(optim, progress, param, e, entry));
    return CZ_OK;
}

static cz_status save_names(const cz_optim *optim, const cz__optim_group *group,
                            cz_state_dict *entry)
{
    const char **names = cz__calloc((size_t)group->param_count, sizeof *names);
    if (!names)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for a list of %" PRId64 " names",
                        group->param_count);
    for (int64_t k = 0; k < group->param_count; k++)
        names[k] = cz__model_name(optim->model, group->params[k]);
    const cz_status status = cz_state_dict_set_texts(entry, "params", names, group->param_count);
    cz__free(names);
    return status;
}

static cz_status save_group(const cz_optim *optim, int64_t k, cz_state_dict *groups)
{
    char key[24];
    cz_state_dict *entry;
    snprintf(key, sizeof key, "%" PRId64, k);
    CZ_TRY(cz_state_dict_add_dict(groups, key, &entry));
    for (int h = 0; h < cz__optim_hyper_count(optim, k); h++) {
        const char *name = cz_optim_hyper_name(optim, k, h);
        double value = 0;
        (void)cz_optim_get_hyper(optim, k, name, &value);
        CZ_TRY(cz_state_dict_set_real(entry, name, value));
    }
    const char *rule = optim->groups[k].rule->name;
    if (strcmp(rule, optim->rule->name) != 0)
        CZ_TRY(cz_state_dict_set_text(entry, "rule", rule));
    return save_names(optim, &optim->groups[k], entry);
}

/* Parameters in the order of their groups, as PyTorch counts them. */
static cz_status save(const cz_optim *optim, const cz__progress *progress, slot_saver saver,
                      cz_state_dict *dict)
{
    cz_state_dict *state, *groups;
    CZ_TRY(cz_state_dict_set_text(dict, "rule", optim->rule->name));
    CZ_TRY(cz_state_dict_add_dict(dict, "state", &state));
    for (int64_t g = 0; g < optim->group_count; g++)
        for (int64_t k = 0; k < optim->groups[g].param_count; k++)
            CZ_TRY(save_param(optim, progress, optim->groups[g].params[k], saver, state));
    CZ_TRY(cz_state_dict_add_dict(dict, "param_groups", &groups));
    for (int64_t g = 0; g < optim->group_count; g++)
        CZ_TRY(save_group(optim, g, groups));
    return CZ_OK;
}

static cz_status create(cz_state_dict **out, const cz_optim *optim, const cz__progress *progress,
                        slot_saver saver)
{
    CZ_TRY(cz_state_dict_create(out));
    const cz_status status = save(optim, progress, saver, *out);
    if (status != CZ_OK)
        cz_state_dict_destroy(out);
    return status;
}

cz_status cz__optim_dict_create(cz_state_dict **out, const cz_optim *optim,
                                const cz__progress *progress)
{
    return create(out, optim, progress, save_slot);
}

cz_status cz__optim_outline_create(cz_state_dict **out, const cz_optim *optim,
                                   const cz__progress *progress)
{
    return create(out, optim, progress, outline_slot);
}

void *cz__optim_dict_slot(const cz_optim *optim, const cz_state_dict *dict, int64_t param, int slot)
{
    const cz_state_dict *state, *entry;
    cz_tensor tensor = {0};
    if (cz_state_dict_get_dict(dict, "state", &state) != CZ_OK ||
        cz_state_dict_get_dict(state, cz__model_name(optim->model, param), &entry) != CZ_OK ||
        cz_state_dict_get_tensor(entry, cz__optim_element_slot(optim, param, slot).name, &tensor) !=
            CZ_OK)
        return NULL;
    return tensor.data;
}

static cz_status copy_slot(const cz_optim *optim, const cz__local_span *span, int slot,
                           cz_state_dict *dict)
{
    const size_t size = cz__optim_slot_size(optim, span->param, slot);
    const size_t begin = (size_t)span->begin * size;
    char *to = cz__optim_dict_slot(optim, dict, span->param, slot);
    if (cz__optim_is_packed(optim, span->param, slot)) {
        cz__optim_read_packed(optim, span - optim->shard.spans, slot, 0, span->end - span->begin,
                              (float *)(void *)(to + begin));
        return CZ_OK;
    }
    return optim->device->copy(
        NULL, to + begin,
        optim->shard.slots[(span - optim->shard.spans) * optim->slot_count + slot],
        (size_t)(span->end - span->begin) * size);
}

static cz_status copy_slots(const cz_optim *optim, const cz__progress *progress,
                            cz_state_dict *dict)
{
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const cz__local_span *span = &optim->shard.spans[s];
        const unsigned used = progress->used[span->param];
        for (int e = 0; e < optim->slot_count; e++)
            if (used >> e & 1u && span->begin < span->end)
                CZ_TRY(copy_slot(optim, span, e, dict));
    }
    return CZ_OK;
}

cz_status cz_optim_state_dict(const cz_optim *optim, cz_state_dict **out)
{
    CZ__OWN_FLOATS;
    if (out)
        *out = NULL;
    if (!optim || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "optim state_dict: %s is NULL", optim ? "out" : "optim");
    if (!optim->own_map)
        return cz__fail(CZ_ERR_STATE,
                        "optim state_dict: it is part of a sharded optimizer; ask that");
    CZ_TRY(cz__optim_check_trained(optim, "optim state_dict"));
    const cz__progress progress = cz__optim_progress(optim);
    CZ_TRY(cz__optim_dict_create(out, optim, &progress));
    const cz_status status = copy_slots(optim, &progress, *out);
    if (status)
        cz_state_dict_destroy(out);
    return status;
}
