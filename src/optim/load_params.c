/* SPDX-License-Identifier: MIT */
/* Loading: the state of a dictionary's parameters, found by name. */
#include "base/status.h"
#include "optim/loading.h"
#include "tensor/convert.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* An integer, or a real that is one. */
static cz_status load_step(cz__load *load, int64_t param, const cz_state_dict *entry)
{
    double real = 0;
    int64_t steps = 0;
    if (cz_state_dict_kind(entry, "step") == CZ_STATE_INTEGER) {
        CZ_TRY(cz_state_dict_get_integer(entry, "step", &steps));
    } else {
        CZ_TRY(cz_state_dict_get_real(entry, "step", &real));
        steps = fabs(real) < 9e15 ? (int64_t)real : -1;
        if ((double)steps != real)
            steps = -1;
    }
    if (steps < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "load: the step count of parameter '%.60s' is %g",
                        cz_model_name(load->optim->model, param),
                        steps < 0 && real != 0 ? real : (double)steps);
    load->params[param].steps = steps;
    return CZ_OK;
}

static cz_status load_tensor(cz__load *load, int64_t param, const cz_state_dict *entry, int slot)
{
    const cz_optim *optim = load->optim;
    const cz_tensor *value = cz_model_value(optim->model, param);
    const char *name = cz__optim_element_slot(optim, slot)->name;
    cz_tensor tensor;
    if (load->outline && cz_state_dict_kind(entry, name) == CZ_STATE_TEXT) {
        load->params[param].slots |= 1u << slot;
        load->params[param].outlined |= 1u << slot;
        return CZ_OK;
    }
    CZ_TRY(cz_state_dict_get_tensor(entry, name, &tensor));
    if (!cz__converts(tensor.dtype))
        return cz__fail(CZ_ERR_ARGUMENT, "load: '%s' of parameter '%.60s' is %s, wanted floating",
                        name, cz_model_name(optim->model, param), cz_dtype_name(tensor.dtype));
    bool same = tensor.dimensions == value->dimensions;
    for (int d = 0; same && d < value->dimensions; d++)
        same = tensor.shape[d] == value->shape[d];
    if (!same)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "load: '%s' of parameter '%.60s' has %" PRId64
                        " elements in %d dimensions, the parameter has %" PRId64
                        " in %d: their shapes differ",
                        name, cz_model_name(optim->model, param), cz_tensor_count(&tensor),
                        tensor.dimensions, cz_tensor_count(value), value->dimensions);
    load->params[param].slots |= 1u << slot;
    return CZ_OK;
}

/* One value of a parameter's state. */
static cz_status load_value(cz__load *load, int64_t param, const cz_state_dict *entry,
                            const char *key)
{
    const cz_optim *optim = load->optim;
    if (strcmp(key, "step") == 0)
        return load_step(load, param, entry);
    for (int e = 0; e < optim->slot_count; e++)
        if (strcmp(cz__optim_element_slot(optim, e)->name, key) == 0)
            return load_tensor(load, param, entry, e);
    for (int k = 0; k < optim->scalar_count; k++)
        if (strcmp(cz__optim_scalar_slot(optim, k)->name, key) == 0)
            return cz_state_dict_get_real(entry, key,
                                          &load->scalars[param * optim->scalar_count + k]);
    return cz__fail(CZ_ERR_ARGUMENT,
                    "load: parameter '%.60s' has a value '%.60s', which %s has not",
                    cz_model_name(optim->model, param), key, optim->rule->name);
}

static cz_status check_scalars(const cz__load *load, int64_t param)
{
    const cz_optim *optim = load->optim;
    for (int k = 0; k < optim->scalar_count; k++)
        if (cz_state_dict_kind(load->params[param].entry, cz__optim_scalar_slot(optim, k)->name) ==
            CZ_STATE_NONE)
            return cz__fail(CZ_ERR_ARGUMENT, "load: parameter '%.60s' has no '%s'",
                            cz_model_name(optim->model, param),
                            cz__optim_scalar_slot(optim, k)->name);
    return CZ_OK;
}

/* A parameter that has begun to use its slots has all of them. */
static cz_status check_complete(const cz__load *load, int64_t param)
{
    const cz_optim *optim = load->optim;
    const cz__loaded_param *p = &load->params[param];
    const unsigned in_use =
        cz__optim_slots_used(optim, load->groups[optim->group_of[param]].hypers);
    const bool counts = cz__optim_counts_steps(optim);
    for (int e = 0; e < optim->slot_count && !p->outlined; e++)
        if (in_use >> e & 1u && !(p->slots >> e & 1u) && (p->slots || (counts && p->steps > 0)))
            return cz__fail(CZ_ERR_ARGUMENT, "load: parameter '%.60s' has no '%s'",
                            cz_model_name(optim->model, param),
                            cz__optim_element_slot(optim, e)->name);
    if (counts && p->slots && cz_state_dict_kind(p->entry, "step") == CZ_STATE_NONE)
        return cz__fail(CZ_ERR_ARGUMENT, "load: parameter '%.60s' has no 'step'",
                        cz_model_name(optim->model, param));
    return check_scalars(load, param);
}

static cz_status load_param(cz__load *load, const cz_state_dict *state, const char *name)
{
    const cz_optim *optim = load->optim;
    const int64_t param = cz_model_find(optim->model, name);
    if (param < 0 || optim->group_of[param] < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "load: parameter '%.60s' of the dictionary is not %s",
                        name, param < 0 ? "in the model" : "in a parameter group here");
    cz__loaded_param *p = &load->params[param];
    CZ_TRY(cz_state_dict_get_dict(state, name, &p->entry));
    for (int64_t i = 0; i < cz_state_dict_count(p->entry); i++)
        CZ_TRY(load_value(load, param, p->entry, cz_state_dict_key(p->entry, i)));
    return check_complete(load, param);
}

/* ---- parameters that the dictionary has no state of ---- */

static bool is_missing(const cz__load *load, int64_t param)
{
    return load->optim->group_of[param] >= 0 && !load->params[param].entry;
}

static cz_status refuse_missing(const cz__load *load)
{
    const cz_model *model = load->optim->model;
    char names[200] = "";
    size_t length = 0;
    int64_t missing = 0;
    for (int64_t p = 0; p < load->optim->param_count; p++)
        if (is_missing(load, p) && cz_model_requires_grad(model, p) && missing++ < 4)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s'%.40s'",
                                       missing > 1 ? ", " : "", cz_model_name(model, p));
    if (missing == 0)
        return CZ_OK;
    return cz__fail(CZ_ERR_ARGUMENT,
                    "load: the dictionary has no state of %" PRId64 " parameters: %s%s", missing,
                    names, missing > 4 ? ", …" : "");
}

static void keep_missing(cz__load *load)
{
    const cz_optim *optim = load->optim;
    for (int64_t p = 0; p < optim->param_count; p++) {
        cz__loaded_param *param = &load->params[p];
        param->kept = is_missing(load, p);
        if (!param->kept)
            continue;
        param->steps = optim->steps[p];
        param->slots = optim->used[p];
        for (int k = 0; k < optim->scalar_count; k++)
            load->scalars[p * optim->scalar_count + k] =
                optim->scalars[p * optim->scalar_count + k];
    }
}

cz_status cz__load_params(cz__load *load, const cz_state_dict *dict)
{
    const cz_state_dict *state;
    CZ_TRY(cz_state_dict_get_dict(dict, "state", &state));
    for (int64_t i = 0; i < cz_state_dict_count(state); i++)
        CZ_TRY(load_param(load, state, cz_state_dict_key(state, i)));
    if (load->missing == CZ_MISSING_REFUSE)
        return refuse_missing(load);
    if (load->missing == CZ_MISSING_KEEP)
        keep_missing(load);
    return CZ_OK;
}
