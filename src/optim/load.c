/* SPDX-License-Identifier: MIT */
/* An optimizer from a state dictionary. First everything is checked and all memory is had; what then
 * changes the optimizer cannot fail. The dictionary stays as it is. */
#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "optim/loading.h"
#include "tensor/convert.h"

#include <inttypes.h>
#include <string.h>

static cz_status check_all(cz__load *load, const cz_state_dict *dict)
{
    const cz_optim *optim = load->optim;
    const size_t params = (size_t)optim->param_count;
    const char *rule;
    load->params = cz__calloc(params, sizeof *load->params);
    load->groups = cz__calloc((size_t)optim->group_count, sizeof *load->groups);
    load->scalars = cz__calloc(params * (size_t)optim->scalar_count, sizeof *load->scalars);
    if (!load->params || !load->groups || !load->scalars)
        return cz__fail(CZ_ERR_MEMORY, "load: tables of %zu parameters", params);
    CZ_TRY(cz_state_dict_get_text(dict, "rule", &rule));
    if (strcmp(rule, optim->rule->name) != 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "load: the dictionary is of rule %.60s, this optimizer of %s", rule,
                        optim->rule->name);
    CZ_TRY(cz__load_groups(load, dict));
    return cz__load_params(load, dict);
}

/* Memory for slots that come with the dictionary, or with its values. */
static cz_status reserve(cz__load *load)
{
    cz_optim *optim = load->optim;
    for (int64_t g = 0; g < optim->group_count; g++)
        optim->groups[g].slots_wanted |= cz__optim_slots_used(optim, load->groups[g].hypers);
    for (int64_t p = 0; p < optim->param_count; p++)
        optim->expected[p] = load->params[p].slots;
    const cz_status status = cz__optim_reserve(optim, &optim->shard);
    for (int64_t g = 0; g < optim->group_count; g++)
        optim->groups[g].slots_wanted = optim->groups[g].slots_used;
    for (int64_t p = 0; p < optim->param_count; p++)
        optim->expected[p] = 0;
    return status;
}

cz_status cz__load_create(cz__load **out, cz_optim *optim, const cz_state_dict *dict,
                          cz_missing_state missing, bool outline)
{
    *out = NULL;
    if (!dict)
        return cz__fail(CZ_ERR_ARGUMENT, "load: the state dictionary is NULL");
    cz__load *load = cz__calloc(1, sizeof *load);
    if (!load)
        return cz__fail(CZ_ERR_MEMORY, "load: no memory for a handle");
    load->optim = optim;
    load->outline = outline;
    load->missing = missing;
    cz_status status = check_all(load, dict);
    if (status == CZ_OK)
        status = reserve(load);
    if (status != CZ_OK)
        cz__load_destroy(&load);
    *out = load;
    return status;
}

/* Elements of slots that come with the dictionary. */
static uint64_t mix_slots(const cz__load *load, const cz__loaded_param *param, uint64_t print)
{
    for (int e = 0; e < load->optim->slot_count; e++) {
        cz_tensor tensor;
        if (!((param->slots & ~param->outlined) >> e & 1u) || param->kept ||
            cz_state_dict_get_tensor(param->entry, cz__optim_element_slot(load->optim, e)->name,
                                     &tensor) != CZ_OK)
            continue;
        print = cz__fingerprint_elements(
            print, tensor.data, (size_t)cz_tensor_count(&tensor) * cz_dtype_size(tensor.dtype));
    }
    return print;
}

uint64_t cz__load_fingerprint(const cz__load *load)
{
    const cz_optim *optim = load->optim;
    const size_t hypers = (size_t)optim->rule->hyper_count;
    uint64_t print = 0;
    for (int64_t g = 0; g < optim->group_count; g++) {
        const cz__loaded_group *group = &load->groups[g];
        print = cz__fingerprint(print, group->hypers, hypers * sizeof *group->hypers);
        print = cz__fingerprint(print, group->extras,
                                (size_t)group->extra_count * sizeof *group->extras);
    }
    for (int64_t p = 0; p < optim->param_count; p++) {
        const int64_t words[] = {load->params[p].steps, load->params[p].slots};
        print = mix_slots(load, &load->params[p], cz__fingerprint(print, words, sizeof words));
    }
    const size_t scalars = (size_t)optim->param_count * (size_t)optim->scalar_count;
    return cz__fingerprint(print, load->scalars, scalars * sizeof *load->scalars);
}

static void take_group(cz_optim *optim, cz__optim_group *group, cz__loaded_group *loaded)
{
    cz__free(group->extras);
    group->extras = loaded->extras;
    group->extra_count = loaded->extra_count;
    loaded->extras = NULL;
    for (int h = 0; h < optim->rule->hyper_count; h++)
        group->hypers[h] = loaded->hypers[h];
    group->slots_used = group->slots_wanted = cz__optim_slots_used(optim, group->hypers);
    memset(group->prepared, 0, CZ__PREPARED * sizeof *group->prepared);
}

/* The elements of one slot of a span, in this optimizer's type. */
static void take_elements(cz_optim *optim, const cz__local_span *span, int slot,
                          const cz_tensor *tensor)
{
    char block[4096];
    const int64_t room = (int64_t)(sizeof block / optim->element_size);
    char *to = optim->shard.slots[(span - optim->shard.spans) * optim->slot_count + slot];
    for (int64_t at = span->begin; at < span->end; at += room) {
        const int64_t count = span->end - at < room ? span->end - at : room;
        const size_t bytes = (size_t)count * optim->element_size;
        cz__convert(optim->dtype, block, tensor->dtype,
                    (const char *)tensor->data + (size_t)at * cz_dtype_size(tensor->dtype), count);
        (void)optim->device->copy(NULL, to, block, bytes);
        to += bytes;
    }
}

/* Slots that the dictionary does not have are as if they had never been used. */
static void take_slots(cz__load *load, int64_t place)
{
    cz_optim *optim = load->optim;
    const cz__local_span *span = &optim->shard.spans[place];
    const cz__loaded_param *param = &load->params[span->param];
    const size_t bytes = (size_t)(span->end - span->begin) * optim->element_size;
    for (int e = 0; e < optim->slot_count && bytes > 0 && !param->kept; e++) {
        cz_tensor tensor;
        if (param->outlined >> e & 1u)
            continue;
        if (param->slots >> e & 1u) {
            (void)cz_state_dict_get_tensor(param->entry, cz__optim_element_slot(optim, e)->name,
                                           &tensor);
            take_elements(optim, span, e, &tensor);
        } else if (span->slots >> e & 1u) {
            (void)optim->device->zero(NULL, optim->shard.slots[place * optim->slot_count + e],
                                      bytes);
        }
    }
}

void cz__load_commit(cz__load *load)
{
    cz_optim *optim = load->optim;
    optim->loaded = true;
    cz__optim_groups_changed(optim);
    for (int64_t g = 0; g < optim->group_count; g++)
        take_group(optim, &optim->groups[g], &load->groups[g]);
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        take_slots(load, s);
    for (int64_t p = 0; p < optim->param_count; p++) {
        if (optim->shard.first_span[p] < 0 || load->params[p].kept)
            continue;
        optim->steps[p] = load->params[p].steps;
        optim->used[p] = load->params[p].slots;
        optim->scalars_used[p] = load->params[p].entry != NULL;
        for (int k = 0; k < optim->scalar_count; k++)
            optim->scalars[p * optim->scalar_count + k] =
                load->scalars[p * optim->scalar_count + k];
    }
    (void)cz__optim_prepare(optim); /* there is memory; Adagrad's sums begin */
}

void cz__load_destroy(cz__load **load)
{
    if (!load || !*load)
        return;
    for (int64_t g = 0; (*load)->groups && g < (*load)->optim->group_count; g++) {
        cz__free((*load)->groups[g].hypers);
        cz__free((*load)->groups[g].extras);
    }
    cz__free((*load)->groups);
    cz__free((*load)->params);
    cz__free((*load)->scalars);
    cz__free(*load);
    *load = NULL;
}

cz_status cz_optim_load_state_dict(cz_optim *optim, const cz_state_dict *dict)
{
    CZ__OWN_FLOATS;
    return cz_optim_load_state_dict_with(optim, dict, NULL);
}

cz_status cz_optim_load_state_dict_with(cz_optim *optim, const cz_state_dict *dict,
                                        const cz_optim_load_options *options)
{
    CZ__OWN_FLOATS;
    cz__load *load;
    cz_optim_load_options ours;
    if (!optim)
        return cz__fail(CZ_ERR_ARGUMENT, "optim load_state_dict: optim is NULL");
    if (!optim->own_map)
        return cz__fail(CZ_ERR_STATE,
                        "optim load_state_dict: it is part of a sharded optimizer; load that");
    CZ_TRY(cz__options_read(&ours, sizeof ours, options, "cz_optim_load_options"));
    CZ_TRY(cz__options_check_reserved(ours.reserved, "cz_optim_load_options"));
    if (ours.missing < CZ_MISSING_NONE || ours.missing > CZ_MISSING_REFUSE)
        return cz__fail(CZ_ERR_ARGUMENT, "optim load_state_dict: missing is %d, wanted 0 to 2",
                        (int)ours.missing);
    CZ_TRY(cz__load_create(&load, optim, dict, ours.missing, false));
    cz__load_commit(load);
    cz__load_destroy(&load);
    return CZ_OK;
}
