/* SPDX-License-Identifier: MIT */
/* Which types there are: of slots, and which parameters have masters. */
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

bool cz__optim_averages(const cz_optim *optim, int64_t param)
{
    return optim->group_of[param] >= 0 && optim->groups[optim->group_of[param]].average.kind;
}
