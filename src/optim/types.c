/* SPDX-License-Identifier: MIT */
/* Which types there are: of slots, and which parameters have masters. And of rules. */
#include "optim/object.h"

cz_dtype cz__optim_slot_dtype(const cz_optim *optim, int64_t param, int slot)
{
    const int64_t group = optim->group_of[param];
    if (slot == optim->average_slot)
        return cz__model_value(optim->model, param)->dtype == CZ_F64 ? CZ_F64 : CZ_F32;
    return slot == optim->master_slot || group < 0 ? optim->dtype
                                                   : optim->groups[group].state_dtype;
}

unsigned cz__optim_slots_of(const cz_optim *optim, int64_t param, unsigned slots)
{
    const bool narrow = cz__has_16_bits(cz__model_value(optim->model, param)->dtype);
    return narrow ? slots : slots & ~cz__optim_master_bit(optim);
}

unsigned cz__optim_slots_in_use(const cz_optim *optim, int64_t param)
{
    return cz__optim_slots_of(optim, param, optim->groups[optim->group_of[param]].slots_used);
}

bool cz__optim_is_mixed(const cz_optim *optim)
{
    return optim->is_mixed;
}

bool cz__optim_has_master(const cz_optim *optim, int64_t param)
{
    return param < optim->param_count && optim->group_of[param] >= 0 &&
           (cz__optim_slots_in_use(optim, param) & cz__optim_master_bit(optim));
}

/* ---- rules ---- */

const cz_rule *cz__optim_rule_of(const cz_optim *optim, int64_t param)
{
    const int64_t group = optim->group_of[param];
    return group < 0 ? optim->rule : optim->groups[group].rule;
}

const cz_rule *cz__optim_group_rule(const cz_optim *optim, int64_t param_group)
{
    return optim->groups[param_group].rule;
}

static bool has_kind(const cz_rule *rule, cz__rule_kind kind)
{
    if (kind == CZ__NEEDS_WHOLE_TENSORS)
        return rule->update_tensor != NULL;
    if (kind == CZ__EVALUATES_ANOTHER)
        return rule->evaluated != NULL;
    return kind == CZ__HAS_PARTIAL_SUMS ? rule->sum_count > 0 : rule->state_at_create;
}

const cz_rule *cz__optim_any_rule(const cz_optim *optim, cz__rule_kind kind)
{
    for (int k = 0; k < optim->rule_count; k++)
        if (has_kind(optim->rules[k].rule, kind))
            return optim->rules[k].rule;
    return NULL;
}

bool cz__optim_averages(const cz_optim *optim, int64_t param)
{
    return optim->group_of[param] >= 0 && optim->groups[optim->group_of[param]].average.kind;
}
