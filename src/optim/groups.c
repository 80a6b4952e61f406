/* SPDX-License-Identifier: MIT */
/* Parameter groups: which parameters share which hyper-parameters. */
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "optim/object.h"

#include <inttypes.h>

static cz_status add_param(cz_optim *optim, int64_t k, int64_t place, int64_t param)
{
    if (param < 0 || param >= optim->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim: parameter group %" PRId64 " lists parameter %" PRId64
                        ", the model has 0 to %" PRId64,
                        k, param, optim->param_count - 1);
    const char *name = cz_model_name(optim->model, param);
    const int64_t other = optim->group_of[param];
    if (other == k)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim: parameter '%s' is twice in parameter group %" PRId64, name, k);
    if (other >= 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim: parameter '%s' is in parameter groups %" PRId64 " and %" PRId64,
                        name, other, k);
    optim->group_of[param] = k;
    optim->groups[k].params[place] = param;
    return CZ_OK;
}

static cz_status allocate_group(cz_optim *optim, int64_t k, int64_t param_count)
{
    cz__optim_group *group = &optim->groups[k];
    group->params = cz__calloc((size_t)param_count, sizeof *group->params);
    group->hypers = cz__calloc((size_t)optim->rule->hyper_count, sizeof *group->hypers);
    group->prepared = cz__calloc(CZ__PREPARED, sizeof *group->prepared);
    if (!group->params || !group->hypers || !group->prepared)
        return cz__fail(CZ_ERR_MEMORY,
                        "optim: parameter group %" PRId64 " of %" PRId64 " parameters", k,
                        param_count);
    group->param_count = param_count;
    return CZ_OK;
}

static cz_status add_group(cz_optim *optim, int64_t k, const cz_param_group *theirs,
                           const cz_hyper *hypers)
{
    if (theirs->param_count < 0 || (theirs->param_count > 0 && !theirs->params))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim: parameter group %" PRId64 " has %" PRId64 " parameters%s", k,
                        theirs->param_count, theirs->params ? "" : " at NULL");
    CZ_TRY(allocate_group(optim, k, theirs->param_count));
    for (int64_t i = 0; i < theirs->param_count; i++)
        CZ_TRY(add_param(optim, k, i, theirs->params[i]));
    cz__optim_group *group = &optim->groups[k];
    cz__rule_defaults(optim->rule, group->hypers);
    CZ_TRY(cz__rule_set_list(optim->rule, group->hypers, hypers));
    CZ_TRY(cz__rule_set_list(optim->rule, group->hypers, theirs->hypers));
    CZ_TRY(cz__rule_check(optim->rule, group->hypers));
    group->slots_used = group->slots_wanted = cz__optim_slots_used(optim, group->hypers);
    return CZ_OK;
}

static cz_status add_all_params(cz_optim *optim, const cz_hyper *hypers)
{
    int64_t *all = cz__calloc((size_t)optim->param_count, sizeof *all);
    if (!all)
        return cz__fail(CZ_ERR_MEMORY, "optim: a list of %" PRId64 " parameters",
                        optim->param_count);
    for (int64_t p = 0; p < optim->param_count; p++)
        all[p] = p;
    const cz_param_group whole = {sizeof whole, all, optim->param_count, NULL};
    const cz_status status = add_group(optim, 0, &whole, hypers);
    cz__free(all);
    return status;
}

static cz_status add_listed_groups(cz_optim *optim, const cz_hyper *hypers,
                                   const cz_optim_options *options)
{
    for (int64_t k = 0; k < optim->group_count; k++) {
        cz_param_group theirs;
        CZ_TRY(
            cz__options_read_element(&theirs, sizeof theirs, options->groups, k, "cz_param_group"));
        CZ_TRY(add_group(optim, k, &theirs, hypers));
    }
    return CZ_OK;
}

cz_status cz__optim_groups_create(cz_optim *optim, const cz_hyper *hypers,
                                  const cz_optim_options *options)
{
    if (options->group_count < 0 || (options->group_count > 0 && !options->groups))
        return cz__fail(CZ_ERR_ARGUMENT, "optim: %" PRId64 " parameter groups%s",
                        options->group_count, options->groups ? "" : " at NULL");
    optim->group_count = options->groups ? options->group_count : 1;
    optim->groups = cz__calloc((size_t)optim->group_count, sizeof *optim->groups);
    if (!optim->groups)
        return cz__fail(CZ_ERR_MEMORY, "optim: %" PRId64 " parameter groups", optim->group_count);
    if (options->groups)
        CZ_TRY(add_listed_groups(optim, hypers, options));
    else
        CZ_TRY(add_all_params(optim, hypers));
    for (int64_t k = 0; k < optim->group_count; k++)
        if (optim->groups[k].param_count > 0)
            return CZ_OK;
    return cz__fail(CZ_ERR_ARGUMENT, "optim: no parameters in %" PRId64 " groups",
                    optim->group_count);
}

void cz__optim_groups_destroy(cz_optim *optim)
{
    for (int64_t k = 0; optim->groups && k < optim->group_count; k++) {
        cz__free(optim->groups[k].params);
        cz__free(optim->groups[k].hypers);
        cz__free(optim->groups[k].extras);
        cz__free(optim->groups[k].prepared);
    }
    cz__free(optim->groups);
}

const int64_t *cz__optim_group_params(const cz_optim *optim, int64_t param_group, int64_t *count)
{
    *count = optim->groups[param_group].param_count;
    return optim->groups[param_group].params;
}

int64_t cz__optim_group_of(const cz_optim *optim, int64_t param)
{
    return param >= 0 && param < optim->param_count ? optim->group_of[param] : -1;
}

const double *cz__optim_hypers(const cz_optim *optim, int64_t param_group)
{
    return optim->groups[param_group].hypers;
}
