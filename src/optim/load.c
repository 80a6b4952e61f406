/* SPDX-License-Identifier: MIT */
/* An optimizer from a state dictionary. First everything is checked and all memory is had; what
 * then changes the optimizer cannot fail. The dictionary stays as it is. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "optim/object.h"
#include "tensor/model.h"

/* Of one parameter. */
typedef struct cz__loaded_param {
    const cz_state_dict *entry; /* NULL: no state */
    int64_t steps;
    unsigned slots;    /* bit e: it has element slot e */
    unsigned outlined; /* bit e: and without its elements */
    bool is_value;     /* a master, and it has none here: it becomes the value */
    bool listed;       /* in its parameter group */
    bool kept;         /* what it has is what it will have */
} cz__loaded_param;

/* Of one parameter group. */
typedef struct cz__loaded_group {
    const cz_state_dict *entry;
    double *hypers;    /* owned, in the order of its rule's specs */
    cz__extra *extras; /* owned; those of the group and those of the dictionary */
    int extra_count;
} cz__loaded_group;

struct cz__load {
    cz_optim *optim;  /* borrowed */
    const char *rule; /* the dictionary's */
    cz_missing_state missing;
    bool outline;             /* slots may be without elements */
    cz__loaded_param *params; /* owned */
    cz__loaded_group *groups; /* owned */
    double *scalars;          /* owned, as those of the optimizer */
};

/* ---- parameter groups, their members and values ---- */

/* `g` is the group here, `number` the dictionary's for it. */
static cz_status load_names(cz__load *load, int64_t g, int64_t number, const cz_state_dict *entry)
{
    cz_optim *optim = load->optim;
    const int64_t wanted = optim->groups[g].param_count;
    const char *const *names;
    int64_t count;
    if (cz_state_dict_get_texts(entry, "params", &names, &count) != CZ_OK)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "load: parameter group %" PRId64 " has no list of names 'params'", number);
    if (count != wanted)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "load: parameter group %" PRId64 " has %" PRId64
                        " parameters in the dictionary, %" PRId64 " here",
                        number, count, wanted);
    for (int64_t k = 0; k < count; k++) {
        const char *name = names[k];
        const int64_t param = cz_model_find(optim->model, name);
        if (param < 0)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "load: parameter '%.60s' of group %" PRId64 " is not in the model",
                            name, number);
        if (optim->group_of[param] != g)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "load: parameter '%.60s' is in group %" PRId64
                            " of the dictionary, which is group %" PRId64
                            " here, and here in group %" PRId64,
                            name, number, g, optim->group_of[param]);
        if (load->params[param].listed)
            return cz__fail(CZ_ERR_ARGUMENT, "load: parameter '%.60s' is twice in group %" PRId64,
                            name, number);
        load->params[param].listed = true;
    }
    return CZ_OK;
}

/* One value of a group: the rule's own, or an added one. */
static cz_status load_hyper(const cz_rule *rule, cz__loaded_group *group, const char *name)
{
    double value;
    CZ_TRY(cz_state_dict_get_real(group->entry, name, &value));
    return cz__rule_has_hyper(rule, name)
               ? cz__rule_set(rule, group->hypers, name, value)
               : cz__extra_set(group->extras, &group->extra_count, name, value);
}

static bool says_rule(const cz_state_dict *group)
{
    return cz_state_dict_kind(group, "rule") == CZ_STATE_TEXT;
}

/* The group's values as they are, with room for those of the dictionary. */
static cz_status begin_group(const cz_optim *optim, int64_t g, cz__loaded_group *group)
{
    const cz__optim_group *present = &optim->groups[g];
    const size_t hypers = (size_t)present->rule->hyper_count;
    const size_t extras = (size_t)present->extra_count;
    const size_t room = extras + (size_t)cz_state_dict_count(group->entry);
    group->hypers = cz__calloc(hypers, sizeof *group->hypers);
    group->extras = cz__calloc(room, sizeof *group->extras);
    if (!group->hypers || !group->extras)
        return cz__fail(CZ_ERR_MEMORY, "load: no memory for %zu hyper-parameters", hypers + room);
    if (hypers > 0)
        memcpy(group->hypers, present->hypers, hypers * sizeof *group->hypers);
    if (extras > 0)
        memcpy(group->extras, present->extras, extras * sizeof *group->extras);
    group->extra_count = present->extra_count;
    return CZ_OK;
}

static cz_status find_entry(const cz_state_dict *groups, int64_t number,
                            const cz_state_dict **entry)
{
    char key[24];
    snprintf(key, sizeof key, "%" PRId64, number);
    return cz_state_dict_get_dict(groups, key, entry);
}

/* A group that says none has the dictionary's. */
static cz_status compare_rules(const cz__load *load, int64_t g, int64_t number)
{
    const char *here = load->optim->groups[g].rule->name, *there = load->rule;
    if (says_rule(load->groups[g].entry))
        CZ_TRY(cz_state_dict_get_text(load->groups[g].entry, "rule", &there));
    if (strcmp(there, here) == 0)
        return CZ_OK;
    if (there == load->rule && load->optim->rule_count == 1)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "load: the dictionary is of rule %.60s, this optimizer of %s", there, here);
    return cz__fail(CZ_ERR_ARGUMENT,
                    "load: parameter group %" PRId64
                    " of the dictionary is of rule %.60s, group %" PRId64 " here of %s",
                    number, there, g, here);
}

static cz_status load_group(cz__load *load, int64_t g, int64_t number, const cz_state_dict *groups)
{
    const cz_optim *optim = load->optim;
    const cz_rule *rule = optim->groups[g].rule;
    cz__loaded_group *group = &load->groups[g];
    CZ_TRY(find_entry(groups, number, &group->entry));
    CZ_TRY(compare_rules(load, g, number));
    CZ_TRY(begin_group(optim, g, group));
    for (int64_t i = 0; i < cz_state_dict_count(group->entry); i++) {
        const char *name = cz_state_dict_key(group->entry, i);
        const bool is_rule = strcmp(name, "rule") == 0 && says_rule(group->entry);
        if (strcmp(name, "params") != 0 && !is_rule)
            CZ_TRY(load_hyper(rule, group, name));
    }
    CZ_TRY(cz__rule_check(rule, group->hypers));
    CZ_TRY(cz__rule_check_type(rule, group->hypers, optim->dtype));
    return load_names(load, g, number, group->entry);
}

/* The group here that has the first member of one there; -1: it has none that is known. */
static int64_t group_of_first(const cz_optim *optim, const cz_state_dict *entry)
{
    const char *const *names;
    int64_t count;
    if (cz_state_dict_get_texts(entry, "params", &names, &count) != CZ_OK || count == 0)
        return -1;
    const int64_t param = cz_model_find(optim->model, names[0]);
    return param < 0 ? -1 : optim->group_of[param];
}

/* Which of the dictionary's groups is which here: numbers[g], by members. Those that are left,
 * empty ones among them, in their order. */
static cz_status match(const cz_optim *optim, const cz_state_dict *groups, int64_t *numbers,
                       bool *taken)
{
    const int64_t count = optim->group_count;
    for (int64_t g = 0; g < count; g++)
        numbers[g] = -1;
    for (int64_t n = 0; n < count; n++) {
        const cz_state_dict *entry;
        CZ_TRY(find_entry(groups, n, &entry));
        const int64_t g = group_of_first(optim, entry);
        if (g >= 0 && numbers[g] < 0) {
            numbers[g] = n;
            taken[n] = true;
        }
    }
    for (int64_t g = 0, n = 0; g < count; g++) {
        while (n < count && taken[n])
            n++;
        if (numbers[g] < 0)
            numbers[g] = n++;
    }
    return CZ_OK;
}

static cz_status load_all(cz__load *load, const cz_state_dict *groups, int64_t *numbers,
                          bool *taken)
{
    CZ_TRY(match(load->optim, groups, numbers, taken));
    for (int64_t g = 0; g < load->optim->group_count; g++)
        CZ_TRY(load_group(load, g, numbers[g], groups));
    return CZ_OK;
}

static cz_status load_groups(cz__load *load, const cz_state_dict *dict)
{
    const cz_state_dict *groups;
    const int64_t count = load->optim->group_count;
    CZ_TRY(cz_state_dict_get_dict(dict, "param_groups", &groups));
    if (cz_state_dict_count(groups) != count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "load: %" PRId64 " parameter groups in the dictionary, %" PRId64 " here",
                        cz_state_dict_count(groups), count);
    int64_t *numbers = cz__calloc((size_t)count, sizeof *numbers);
    bool *taken = cz__calloc((size_t)count, sizeof *taken);
    const cz_status status =
        numbers && taken
            ? load_all(load, groups, numbers, taken)
            : cz__fail(CZ_ERR_MEMORY, "load: no memory for a table of %" PRId64 " parameter groups",
                       count);
    cz__free(numbers);
    cz__free(taken);
    return status;
}

/* ---- the state of parameters, found by name ---- */

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
                        cz__model_name(load->optim->model, param),
                        steps < 0 && real != 0 ? real : (double)steps);
    load->params[param].steps = steps;
    return CZ_OK;
}

static cz_status check_tensor(const cz__load *load, int64_t param, const cz_state_dict *entry,
                              const char *name)
{
    const cz_optim *optim = load->optim;
    const cz_tensor *value = cz__model_value(optim->model, param);
    cz_tensor tensor;
    CZ_TRY(cz_state_dict_get_tensor(entry, name, &tensor));
    if (!cz__converts(tensor.dtype))
        return cz__fail(CZ_ERR_ARGUMENT, "load: '%s' of parameter '%.60s' is %s, wanted floating",
                        name, cz__model_name(optim->model, param), cz_dtype_name(tensor.dtype));
    bool same = tensor.dimensions == value->dimensions;
    for (int d = 0; same && d < value->dimensions; d++)
        same = tensor.shape[d] == value->shape[d];
    if (!same)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "load: '%s' of parameter '%.60s' has %" PRId64
                        " elements in %d dimensions, the parameter has %" PRId64
                        " in %d: their shapes differ",
                        name, cz__model_name(optim->model, param), cz_tensor_count(&tensor),
                        tensor.dimensions, cz_tensor_count(value), value->dimensions);
    return CZ_OK;
}

static cz_status load_tensor(cz__load *load, int64_t param, const cz_state_dict *entry, int slot)
{
    const char *name = cz__optim_element_slot(load->optim, param, slot).name;
    if (load->outline && cz_state_dict_kind(entry, name) == CZ_STATE_TEXT)
        load->params[param].outlined |= 1u << slot;
    else
        CZ_TRY(check_tensor(load, param, entry, name));
    load->params[param].slots |= 1u << slot;
    return CZ_OK;
}

/* A master of a parameter that has none here. Those of an outline are elsewhere. */
static cz_status load_value_from_master(cz__load *load, int64_t param, const cz_state_dict *entry)
{
    if (load->outline && cz_state_dict_kind(entry, CZ__MASTER) == CZ_STATE_TEXT)
        return CZ_OK;
    CZ_TRY(check_tensor(load, param, entry, CZ__MASTER));
    load->params[param].is_value = true;
    return CZ_OK;
}

/* Is it of a master, and does the parameter do without one? */
static bool has_no_master(const cz__load *load, int64_t param, const char *key)
{
    const cz_optim *optim = load->optim;
    return strcmp(key, CZ__MASTER) == 0 && optim->dtype == CZ_F32 &&
           !cz__rule_takes_16_bits(cz__optim_rule_of(optim, param)) &&
           !(cz__optim_slots_in_use(optim, param) & cz__optim_master_bit(optim));
}

/* One value of a parameter's state. */
static cz_status load_value(cz__load *load, int64_t param, const cz_state_dict *entry,
                            const char *key)
{
    const cz_optim *optim = load->optim;
    if (strcmp(key, "step") == 0)
        return load_step(load, param, entry);
    if (has_no_master(load, param, key))
        return load_value_from_master(load, param, entry);
    const int slot = cz__optim_find_slot(optim, param, key);
    if (slot >= 0)
        return slot != optim->average_slot || cz__optim_averages(optim, param)
                   ? load_tensor(load, param, entry, slot)
                   : CZ_OK;
    for (int k = 0; k < optim->scalar_count; k++) {
        const char *scalar = cz__optim_scalar_slot(optim, param, k).name;
        if (scalar && strcmp(scalar, key) == 0)
            return cz_state_dict_get_real(entry, key,
                                          &load->scalars[param * optim->scalar_count + k]);
    }
    if (strcmp(key, CZ__AVERAGE) == 0 || strcmp(key, CZ__AVERAGED) == 0)
        return CZ_OK; /* nobody keeps one here */
    return cz__fail(
        CZ_ERR_ARGUMENT, "load: parameter '%.60s' has a value '%.60s', which %s has not",
        cz__model_name(optim->model, param), key, cz__optim_rule_of(optim, param)->name);
}

static cz_status check_scalars(const cz__load *load, int64_t param)
{
    const cz_optim *optim = load->optim;
    for (int k = 0; k < cz__optim_use_of(optim, param)->scalar_count; k++) {
        const char *slot = cz__optim_scalar_slot(optim, param, k).name;
        if (cz_state_dict_kind(load->params[param].entry, slot) == CZ_STATE_NONE)
            return cz__fail(CZ_ERR_ARGUMENT, "load: parameter '%.60s' has no '%s'",
                            cz__model_name(optim->model, param), slot);
    }
    return CZ_OK;
}

/* A parameter that has begun to use its slots has all of them. */
static cz_status check_complete(const cz__load *load, int64_t param)
{
    const cz_optim *optim = load->optim;
    const cz__loaded_param *p = &load->params[param];
    const int64_t g = optim->group_of[param];
    const unsigned in_use = cz__optim_slots_used(optim, &optim->groups[g], load->groups[g].hypers) &
                            ~cz__optim_added_bits(optim);
    const unsigned of_rule = p->slots & ~cz__optim_added_bits(optim);
    const bool counts = cz__optim_use_of(optim, param)->counts_steps;
    if (!p->outlined) {
        for (int e = 0; e < optim->slot_count; e++)
            if (in_use >> e & 1u && !(p->slots >> e & 1u) && (of_rule || (counts && p->steps > 0)))
                return cz__fail(CZ_ERR_ARGUMENT, "load: parameter '%.60s' has no '%s'",
                                cz__model_name(optim->model, param),
                                cz__optim_element_slot(optim, param, e).name);
    }
    if (counts && of_rule && cz_state_dict_kind(p->entry, "step") == CZ_STATE_NONE)
        return cz__fail(CZ_ERR_ARGUMENT, "load: parameter '%.60s' has no 'step'",
                        cz__model_name(optim->model, param));
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
        if (is_missing(load, p) && cz__model_requires_grad(model, p) && missing++ < 4)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s'%.40s'",
                                       missing > 1 ? ", " : "", cz__model_name(model, p));
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

static cz_status load_params(cz__load *load, const cz_state_dict *dict)
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

/* ---- all of it ---- */

static cz_status check_all(cz__load *load, const cz_state_dict *dict)
{
    const cz_optim *optim = load->optim;
    const size_t params = (size_t)optim->param_count;
    load->params = cz__calloc(params, sizeof *load->params);
    load->groups = cz__calloc((size_t)optim->group_count, sizeof *load->groups);
    load->scalars = cz__calloc(params * (size_t)optim->scalar_count, sizeof *load->scalars);
    if (!load->params || !load->groups || !load->scalars)
        return cz__fail(CZ_ERR_MEMORY, "load: no memory for tables of %zu parameters", params);
    CZ_TRY(cz_state_dict_get_text(dict, "rule", &load->rule));
    CZ_TRY(load_groups(load, dict));
    return load_params(load, dict);
}

/* Memory for slots that come with the dictionary, or with its values. */
static cz_status reserve(cz__load *load)
{
    cz_optim *optim = load->optim;
    for (int64_t g = 0; g < optim->group_count; g++)
        optim->groups[g].slots_wanted |=
            cz__optim_slots_used(optim, &optim->groups[g], load->groups[g].hypers);
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
    if (!status)
        status = reserve(load);
    if (status)
        cz__load_destroy(&load);
    *out = load;
    return status;
}

static uint64_t mix_tensor(const cz__loaded_param *param, const char *name, uint64_t print)
{
    cz_tensor tensor;
    if (cz_state_dict_get_tensor(param->entry, name, &tensor) != CZ_OK)
        return print;
    return cz__fingerprint_elements(print, tensor.data,
                                    (size_t)cz_tensor_count(&tensor) * cz_dtype_size(tensor.dtype));
}

/* Elements of slots that come with the dictionary. */
static uint64_t mix_slots(const cz__load *load, int64_t p, uint64_t print)
{
    const cz__loaded_param *param = &load->params[p];
    for (int e = 0; e < load->optim->slot_count; e++)
        if ((param->slots & ~param->outlined) >> e & 1u && !param->kept)
            print = mix_tensor(param, cz__optim_element_slot(load->optim, p, e).name, print);
    return param->is_value ? mix_tensor(param, CZ__MASTER, print) : print;
}

uint64_t cz__load_fingerprint(const cz__load *load)
{
    const cz_optim *optim = load->optim;
    uint64_t print = 0;
    for (int64_t g = 0; g < optim->group_count; g++) {
        const cz__loaded_group *group = &load->groups[g];
        const size_t hypers = (size_t)optim->groups[g].rule->hyper_count;
        print = cz__fingerprint(print, group->hypers, hypers * sizeof *group->hypers);
        print = cz__fingerprint(print, group->extras,
                                (size_t)group->extra_count * sizeof *group->extras);
    }
    for (int64_t p = 0; p < optim->param_count; p++) {
        const int64_t words[] = {load->params[p].steps, load->params[p].slots};
        print = mix_slots(load, p, cz__fingerprint(print, words, sizeof words));
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
    for (int h = 0; h < group->rule->hyper_count; h++)
        group->hypers[h] = loaded->hypers[h];
    group->slots_used = group->slots_wanted = cz__optim_slots_used(optim, group, group->hypers);
    memset(group->prepared, 0, CZ__PREPARED * sizeof *group->prepared);
}

/* Elements [begin, end) of a tensor, in that type. */
static void take_elements(const cz_device *device, cz_dtype dtype, char *to, const cz_tensor *from,
                          int64_t begin, int64_t end)
{
    char block[4096];
    const int64_t room = (int64_t)(sizeof block / cz_dtype_size(dtype));
    for (int64_t at = begin; at < end; at += room) {
        const int64_t count = end - at < room ? end - at : room;
        const size_t bytes = (size_t)count * cz_dtype_size(dtype);
        cz__convert(dtype, block, from->dtype,
                    (const char *)from->data + (size_t)at * cz_dtype_size(from->dtype), count);
        (void)device->copy(NULL, to, block, bytes);
        to += bytes;
    }
}

/* The same to 8 bits. */
static void take_packed(const cz_optim *optim, int64_t place, int slot, const cz_tensor *from)
{
    const cz__local_span *span = &optim->shard.spans[place];
    float block[4 * CZ__BLOCK];
    const int64_t room = 4 * CZ__BLOCK;
    for (int64_t at = span->begin; at < span->end; at += room) {
        const int64_t count = span->end - at < room ? span->end - at : room;
        cz__convert(CZ_F32, block, from->dtype,
                    (const char *)from->data + (size_t)at * cz_dtype_size(from->dtype), count);
        cz__optim_write_packed(optim, place, slot, at - span->begin, count, block);
    }
}

static void zero_slot(const cz_optim *optim, int64_t place, int slot)
{
    const cz__local_span *span = &optim->shard.spans[place];
    const int64_t count = span->end - span->begin;
    const size_t bytes = cz__optim_is_packed(optim, span->param, slot)
                             ? cz__packed_bytes(count)
                             : (size_t)count * cz__optim_slot_size(optim, span->param, slot);
    (void)optim->device->zero(NULL, optim->shard.slots[place * optim->slot_count + slot], bytes);
}

/* Slots that the dictionary does not have are as if they had never been used. */
static void take_slots(cz__load *load, int64_t place)
{
    cz_optim *optim = load->optim;
    const cz__local_span *span = &optim->shard.spans[place];
    const cz__loaded_param *param = &load->params[span->param];
    const size_t count = (size_t)(span->end - span->begin);
    if (count > 0 && !param->kept) {
        for (int e = 0; e < optim->slot_count; e++) {
            cz_tensor tensor;
            char *slot = optim->shard.slots[place * optim->slot_count + e];
            if (param->outlined >> e & 1u)
                continue;
            if (param->slots >> e & 1u) {
                (void)cz_state_dict_get_tensor(
                    param->entry, cz__optim_element_slot(optim, span->param, e).name, &tensor);
                if (cz__optim_is_packed(optim, span->param, e))
                    take_packed(optim, place, e, &tensor);
                else
                    take_elements(span->device, cz__optim_slot_dtype(optim, span->param, e), slot,
                                  &tensor, span->begin, span->end);
            } else if (span->slots >> e & 1u) {
                zero_slot(optim, place, e);
            }
        }
    }
}

static void take_value(const cz__load *load, int64_t param)
{
    const cz_optim *optim = load->optim;
    const cz_tensor *value = cz__model_value(optim->model, param);
    cz_tensor tensor;
    if (load->params[param].is_value &&
        cz_state_dict_get_tensor(load->params[param].entry, CZ__MASTER, &tensor) == CZ_OK)
        take_elements(cz__device_of(value), value->dtype, optim->tables.values[param], &tensor, 0,
                      cz_tensor_count(value));
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
    cz__shard_read_again(optim, &optim->shard);
    for (int64_t p = 0; p < optim->param_count; p++) {
        take_value(load, p);
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

static const char *const missing_words[] = {"none", "keep", "refuse", NULL};

const cz__option_table cz__optim_load_options = CZ__OPTION_TABLE(
    cz_optim_load_options,
    CZ__OPTION(cz_optim_load_options, missing, CZ__LOCAL, CZ__WORDS(missing_words)),
    CZ__OPTION(cz_optim_load_options, reserved, CZ__LOCAL, CZ__RESERVED));

cz_status cz_optim_load_state_dict(cz_optim *optim, const cz_state_dict *dict,
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
    CZ_TRY(cz__optim_check_trained(optim, "optim load_state_dict"));
    CZ_TRY(cz__options_read(&ours, &cz__optim_load_options, options, "optim load_state_dict"));
    CZ_TRY(cz__load_create(&load, optim, dict, ours.missing, false));
    cz__load_commit(load);
    cz__load_destroy(&load);
    return CZ_OK;
}
