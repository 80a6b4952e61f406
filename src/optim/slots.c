/* SPDX-License-Identifier: MIT */
/* What is in the state of a parameter: which slots are present, what they start with, the scalars. */
#include "base/float_mode.h"
#include "base/status.h"
#include "optim/object.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool is_step(const cz_slot_spec *slot)
{
    return slot->kind == CZ_SLOT_SCALAR && strcmp(slot->name, "step") == 0;
}

bool cz__optim_counts_steps(const cz_optim *optim)
{
    for (int i = 0; i < optim->rule->slot_count; i++)
        if (is_step(&optim->rule->slots[i]))
            return true;
    return false;
}

/* The k-th of the rule's slots of a kind, the step count left out; NULL if there are fewer. */
static const cz_slot_spec *find_slot(const cz_rule *rule, cz_slot_kind kind, int k)
{
    for (int i = 0; i < rule->slot_count; i++)
        if (rule->slots[i].kind == kind && !is_step(&rule->slots[i]) && k-- == 0)
            return &rule->slots[i];
    return NULL;
}

const cz_slot_spec *cz__optim_element_slot(const cz_optim *optim, int e)
{
    return find_slot(optim->rule, CZ_SLOT_ELEMENT, e);
}

const cz_slot_spec *cz__optim_scalar_slot(const cz_optim *optim, int k)
{
    return find_slot(optim->rule, CZ_SLOT_SCALAR, k);
}

/* ---- coming into use ---- */

double cz__optim_first_value(const cz_optim *optim, const cz_slot_spec *slot, int64_t param)
{
    if (!slot->initial_hyper)
        return slot->initial;
    int place = 0; /* there is one of that name: the table was checked */
    (void)cz__rule_find_hyper(optim->rule, slot->initial_hyper, &place);
    return optim->groups[optim->group_of[param]].hypers[place];
}

static void start_slot(cz_optim *optim, int64_t param, int e)
{
    const double value = cz__optim_first_value(optim, cz__optim_element_slot(optim, e), param);
    if (value == 0 && !signbit(value)) /* as memory is reserved */
        return;
    for (int64_t s = optim->shard.first_span[param]; s >= 0; s = optim->shard.spans[s].next) {
        const cz__local_span *span = &optim->shard.spans[s];
        /* A device that cannot write to its own memory cannot run the kernel either. */
        if (span->slots >> e & 1u)
            (void)span->device->fill(NULL, optim->dtype, value, span->end - span->begin,
                                     optim->shard.slots[s * optim->slot_count + e]);
    }
}

static void start_scalars(cz_optim *optim, int64_t param)
{
    double *scalars = optim->scalars + param * optim->scalar_count;
    for (int k = 0; k < optim->scalar_count && !optim->scalars_used[param]; k++)
        scalars[k] = cz__optim_first_value(optim, cz__optim_scalar_slot(optim, k), param);
    optim->scalars_used[param] = true;
}

void cz__optim_start(cz_optim *optim, int64_t param, unsigned slots)
{
    const unsigned fresh = slots & ~optim->used[param];
    for (int e = 0; e < optim->slot_count; e++)
        if (fresh >> e & 1u)
            start_slot(optim, param, e);
    optim->used[param] |= slots;
    start_scalars(optim, param);
}

/* ---- asked ---- */

int64_t cz_optim_step_count(const cz_optim *optim, int64_t param)
{
    return optim && param >= 0 && param < optim->param_count ? optim->steps[param] : 0;
}

cz_status cz_optim_scalar(const cz_optim *optim, int64_t param, const char *slot, double *value)
{
    CZ__OWN_FLOATS;
    if (!optim || !slot || !value)
        return cz__fail(CZ_ERR_ARGUMENT, "optim scalar: an argument is NULL");
    if (param < 0 || param >= optim->param_count)
        return cz__fail(CZ_ERR_ARGUMENT, "optim scalar: parameter %" PRId64 " of %" PRId64, param,
                        optim->param_count);
    for (int k = 0; k < optim->scalar_count; k++) {
        if (strcmp(cz__optim_scalar_slot(optim, k)->name, slot) != 0)
            continue;
        const bool present = optim->shard.first_span[param] >= 0 && optim->scalars_used[param];
        *value = present ? optim->scalars[param * optim->scalar_count + k] : NAN;
        return CZ_OK;
    }
    return cz__fail(CZ_ERR_ARGUMENT, "optim scalar: %s has no scalar slot '%s'%s",
                    optim->rule->name, slot,
                    strcmp(slot, "step") == 0 ? "; cz_optim_step_count() has the steps" : "");
}
