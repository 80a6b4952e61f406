/* SPDX-License-Identifier: MIT */
/* Parameter groups: which parameters share which hyper-parameters, and these while training,
 * checked for all groups before any of them changes. */
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
#include "optim/optim.h"

static const char *const average_words[] = {"none", "ema", "mean", NULL};

static cz_status add_param(cz_optim *optim, int64_t k, int64_t place, int64_t param)
{
    if (param < 0 || param >= optim->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim: parameter group %" PRId64 " lists parameter %" PRId64
                        ", the model has 0 to %" PRId64,
                        k, param, optim->param_count - 1);
    const char *name = cz__model_name(optim->model, param);
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
    group->hypers = cz__calloc((size_t)group->rule->hyper_count, sizeof *group->hypers);
    group->prepared = cz__calloc(CZ__PREPARED, sizeof *group->prepared);
    if (!group->params || !group->hypers || !group->prepared)
        return cz__fail(CZ_ERR_MEMORY,
                        "optim: no memory for parameter group %" PRId64 " of %" PRId64
                        " parameters",
                        k, param_count);
    group->param_count = param_count;
    return CZ_OK;
}

/* A rule of its own, or the optimizer's. */
static cz_status choose_rule(const cz_optim *optim, int64_t k, const cz_rule *theirs)
{
    char what[64];
    cz__optim_group *group = &optim->groups[k];
    group->rule = theirs ? theirs : optim->rule;
    group->use = -1;
    if (group->rule == optim->rule)
        return CZ_OK;
    const cz_status status = cz__rule_check_table(theirs);
    snprintf(what, sizeof what, "optim: parameter group %" PRId64, k);
    return status == CZ_OK ? CZ_OK : cz__fail_in(status, what);
}

/* What the optimizer was given is for its rule: a rate for one is none for another. */
static cz_status fill_hypers(const cz_optim *optim, cz__optim_group *group, const cz_hyper *theirs)
{
    const cz_rule *rule = group->rule;
    if (rule != optim->rule)
        cz__rule_defaults(rule, group->hypers);
    else if (rule->hyper_count > 0)
        memcpy(group->hypers, optim->defaults, (size_t)rule->hyper_count * sizeof *group->hypers);
    CZ_TRY(cz__rule_set_list(rule, group->hypers, theirs));
    return cz__rule_check(rule, group->hypers);
}

const cz__option_table cz__moving_average_options = CZ__OPTION_TABLE(
    cz_moving_average,
    CZ__OPTION(cz_moving_average, kind, CZ__COMPARED_APART, CZ__WORDS(average_words)),
    CZ__OPTION(cz_moving_average, warm_up, CZ__COMPARED_APART, CZ__FLAG),
    CZ__OPTION(cz_moving_average, decay, CZ__COMPARED_APART, CZ__BETWEEN(0, 1)),
    CZ__OPTION(cz_moving_average, start, CZ__COMPARED_APART, CZ__FROM(0)),
    CZ__OPTION(cz_moving_average, every, CZ__COMPARED_APART, CZ__FROM(0), CZ__ZERO_IS(1)));

cz_status cz__optim_read_average(cz_moving_average *ours, const cz_moving_average *theirs)
{
    return cz__options_read(ours, &cz__moving_average_options, theirs, "optim: average");
}

/* Its decay is a value that can be set while training, as the rule's. */
static cz_status fill_average(cz_optim *optim, int64_t k, const cz_param_group *theirs)
{
    cz__optim_group *group = &optim->groups[k];
    group->average = optim->average;
    if (theirs->average)
        CZ_TRY(cz__optim_read_average(&group->average, theirs->average));
    if (group->average.kind && !optim->has_averages)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim: parameter group %" PRId64
                        " wants averages, and no group had them when the optimizer was made",
                        k);
    if (group->average.kind != CZ_MOVING_AVERAGE_EMA)
        return CZ_OK;
    if (cz__rule_has_hyper(group->rule, CZ__AVERAGE_DECAY))
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "optim: rule %s has a hyper-parameter '%s', which is the name of that of "
                        "averages",
                        group->rule->name, CZ__AVERAGE_DECAY);
    group->extras = cz__calloc(1, sizeof *group->extras);
    if (!group->extras)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for hyper-parameter '%s'",
                        CZ__AVERAGE_DECAY);
    return cz__extra_set(group->extras, &group->extra_count, CZ__AVERAGE_DECAY,
                         group->average.decay);
}

static cz_status fill_group(cz_optim *optim, int64_t k, const cz_param_group *theirs)
{
    CZ_TRY(choose_rule(optim, k, theirs->rule));
    if (theirs->param_count < 0 || (theirs->param_count > 0 && !theirs->params))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "optim: parameter group %" PRId64 " has %" PRId64 " parameters%s", k,
                        theirs->param_count, theirs->params ? "" : " at NULL");
    CZ_TRY(allocate_group(optim, k, theirs->param_count));
    for (int64_t i = 0; i < theirs->param_count; i++)
        CZ_TRY(add_param(optim, k, i, theirs->params[i]));
    cz__optim_group *group = &optim->groups[k];
    const cz_master master = theirs->master ? theirs->master : optim->master;
    const bool as_it_is = cz__rule_takes_16_bits(group->rule);
    group->has_masters = master != CZ_MASTER_NONE && !as_it_is;
    group->state_dtype = theirs->state_dtype;
    if (!theirs->state_dtype && (!as_it_is || group->rule == optim->rule))
        group->state_dtype = optim->state_dtype;
    group->granule = theirs->granule;
    CZ_TRY(fill_average(optim, k, theirs));
    CZ_TRY(fill_hypers(optim, group, theirs->hypers));
    CZ_TRY(cz__optim_take_rule(optim, group));
    group->slots_used = group->slots_wanted = cz__optim_slots_used(optim, group, group->hypers);
    return CZ_OK;
}

cz_status cz__optim_settle_types(cz_optim *optim)
{
    for (int64_t k = 0; k < optim->group_count; k++) {
        cz__optim_group *group = &optim->groups[k];
        if (!group->state_dtype)
            group->state_dtype = optim->dtype;
        if (group->state_dtype == CZ_U8 && optim->dtype == CZ_F32)
            CZ_TRY(cz__optim_settle_packed(optim, k));
        const bool may_narrow = optim->dtype == CZ_F32 && !cz__rule_takes_16_bits(group->rule);
        const bool narrow = may_narrow && group->state_dtype == CZ_BF16;
        if (group->state_dtype != optim->dtype && !narrow)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "optim: state_dtype of parameter group %" PRId64
                            " is %s, wanted is %s%s",
                            k, cz_dtype_name(group->state_dtype), cz_dtype_name(optim->dtype),
                            may_narrow ? ", bf16 or u8" : "");
    }
    return CZ_OK;
}

static cz_status fill_whole(cz_optim *optim)
{
    int64_t *all = cz__calloc((size_t)optim->param_count, sizeof *all);
    if (!all)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for a list of %" PRId64 " parameters",
                        optim->param_count);
    for (int64_t p = 0; p < optim->param_count; p++)
        all[p] = p;
    cz_param_group whole = CZ_PARAM_GROUP_INIT;
    whole.params = all;
    whole.param_count = optim->param_count;
    const cz_status status = fill_group(optim, 0, &whole);
    cz__free(all);
    return status;
}

const cz__option_table cz__param_group_options = CZ__OPTION_TABLE(
    cz_param_group, CZ__OPTION(cz_param_group, params, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_param_group, param_count, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_param_group, hypers, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_param_group, master, CZ__COMPARED_APART, CZ__BETWEEN(0, CZ_MASTER_NONE)),
    CZ__OPTION(cz_param_group, state_dtype, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_param_group, rule, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_param_group, granule, CZ__COMPARED_APART, CZ__FROM(CZ_GRANULE_WHOLE)),
    CZ__OPTION(cz_param_group, average, CZ__COMPARED_APART, CZ__ANY));

bool cz__param_group_has_state(const cz_param_group *theirs)
{
    cz_param_group group;
    if (!theirs || cz__options_read(&group, &cz__param_group_options, theirs, "optim") != CZ_OK)
        return false;
    return group.rule && cz__rule_check_table(group.rule) == CZ_OK && group.rule->state_at_create;
}

static cz_status fill_listed(cz_optim *optim, const cz_optim_options *options)
{
    for (int64_t k = 0; k < optim->group_count; k++) {
        cz_param_group theirs;
        CZ_TRY(cz__options_read_element(&theirs, &cz__param_group_options, options->groups, k,
                                        "optim"));
        CZ_TRY(fill_group(optim, k, &theirs));
    }
    return CZ_OK;
}

static cz_status set_defaults(cz_optim *optim, const cz_hyper *hypers)
{
    optim->defaults = cz__calloc((size_t)optim->rule->hyper_count, sizeof *optim->defaults);
    if (!optim->defaults)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for %d hyper-parameters",
                        optim->rule->hyper_count);
    cz__rule_defaults(optim->rule, optim->defaults);
    return cz__rule_set_list(optim->rule, optim->defaults, hypers);
}

/* Does some group say that it has averages? */
static cz_status look_for_averages(cz_optim *optim, const cz_optim_options *options)
{
    optim->has_averages = optim->average.kind;
    for (int64_t k = 0; options->groups && k < options->group_count; k++) {
        cz_param_group group;
        cz_moving_average average;
        CZ_TRY(cz__options_read_element(&group, &cz__param_group_options, options->groups, k,
                                        "optim"));
        CZ_TRY(cz__optim_read_average(&average, group.average));
        optim->has_averages = optim->has_averages || average.kind;
    }
    return CZ_OK;
}

cz_status cz__optim_groups_create(cz_optim *optim, const cz_hyper *hypers,
                                  const cz_optim_options *options)
{
    if (options->group_count > 0 && !options->groups)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: %" PRId64 " parameter groups at NULL",
                        options->group_count);
    CZ_TRY(set_defaults(optim, hypers));
    optim->group_count = options->groups ? options->group_count : 1;
    optim->group_room = optim->group_count;
    optim->groups = cz__calloc((size_t)optim->group_count, sizeof *optim->groups);
    if (!optim->groups)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for %" PRId64 " parameter groups",
                        optim->group_count);
    CZ_TRY(look_for_averages(optim, options));
    if (options->groups)
        CZ_TRY(fill_listed(optim, options));
    else
        CZ_TRY(fill_whole(optim));
    for (int64_t k = 0; k < optim->group_count; k++)
        if (optim->groups[k].param_count > 0)
            return CZ_OK;
    return cz__fail(CZ_ERR_ARGUMENT, "optim: no parameters in %" PRId64 " groups",
                    optim->group_count);
}

static void free_group(cz__optim_group *group)
{
    cz__free(group->params);
    cz__free(group->hypers);
    cz__free(group->extras);
    cz__free(group->prepared);
}

void cz__optim_groups_destroy(cz_optim *optim)
{
    if (optim->groups)
        for (int64_t k = 0; k < optim->group_count; k++)
            free_group(&optim->groups[k]);
    cz__free(optim->groups);
    cz__free(optim->defaults);
}

/* Room for one more, doubled so that many can be added one by one. */
static cz_status have_room(cz_optim *optim)
{
    const int64_t count = optim->group_count;
    if (count < optim->group_room)
        return CZ_OK;
    const int64_t room = optim->group_room > 0 ? 2 * optim->group_room : 1;
    cz__optim_group *groups = cz__calloc((size_t)room, sizeof *groups);
    if (!groups)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for %" PRId64 " parameter groups",
                        count + 1);
    if (count > 0)
        memcpy(groups, optim->groups, (size_t)count * sizeof *groups);
    cz__free(optim->groups);
    optim->groups = groups;
    optim->group_room = room;
    return CZ_OK;
}

cz_status cz__optim_append_group(cz_optim *optim, const cz_param_group *group)
{
    CZ_TRY(have_room(optim));
    return fill_group(optim, optim->group_count++, group);
}

void cz__optim_remove_group(cz_optim *optim)
{
    const int64_t k = --optim->group_count;
    cz__optim_group *group = &optim->groups[k];
    for (int64_t i = 0; i < group->param_count; i++) /* those that were not reached are 0 still */
        if (optim->group_of[group->params[i]] == k)
            optim->group_of[group->params[i]] = -1;
    cz__overlap_memory_clear(&optim->overlaps);
    cz__optim_groups_changed(optim);
    if (group->use >= 0)
        cz__optim_leave_rule(optim, group);
    free_group(group);
    *group = (cz__optim_group){0};
}

void cz__optim_groups_changed(cz_optim *optim)
{
    optim->printed = 0;
    optim->print = 0;
}

uint64_t cz__optim_types_print(const cz_optim *optim, int64_t param_group, uint64_t before)
{
    const cz__optim_group *group = &optim->groups[param_group];
    const int64_t types[] = {group->has_masters,
                             group->state_dtype,
                             (int64_t)optim->seed,
                             (int64_t)group->packed,
                             group->packed ? optim->packed_from : 0,
                             group->granule,
                             group->average.kind,
                             group->average.warm_up,
                             group->average.start,
                             group->average.every};
    const uint64_t print = cz__fingerprint(before, types, sizeof types);
    return cz__fingerprint(print, group->rule->name, strlen(group->rule->name));
}

static uint64_t print_group(const cz_optim *optim, int64_t number, uint64_t before)
{
    const cz__optim_group *group = &optim->groups[number];
    const int64_t counts[] = {group->param_count, group->extra_count};
    uint64_t print = cz__optim_types_print(optim, number, before);
    print = cz__fingerprint(print, counts, sizeof counts);
    print = cz__fingerprint(print, group->params, (size_t)counts[0] * sizeof *group->params);
    print = cz__fingerprint(print, group->hypers,
                            (size_t)group->rule->hyper_count * sizeof *group->hypers);
    return cz__fingerprint(print, group->extras, (size_t)counts[1] * sizeof *group->extras);
}

uint64_t cz__optim_groups_print(cz_optim *optim)
{
    for (; optim->printed < optim->group_count; optim->printed++)
        optim->print = print_group(optim, optim->printed, optim->print);
    return optim->print;
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

/* What the rule of a parameter's group needs, and the group and its state beyond that. */
int64_t cz__optim_granule(const cz_optim *optim, int64_t param)
{
    const cz_tensor *value = cz__model_value(optim->model, param);
    const int64_t group = cz__optim_group_of(optim, param);
    if (group < 0)
        return 1;
    const int64_t asked =
        cz__granule_of_both(cz__rule_granule(optim->groups[group].rule, value),
                            cz__granule(optim->groups[group].granule, value), value);
    return cz__granule_of_both(asked, cz__optim_block(optim, param), value);
}

cz_status cz__optim_cost(const cz_optim *optim, int64_t param, double *cost)
{
    *cost = -1;
    return cz__optim_group_of(optim, param) < 0
               ? CZ_OK
               : cz__rule_cost(cz__optim_rule_of(optim, param),
                               cz__model_value(optim->model, param),
                               cz__model_name(optim->model, param), cost);
}

int64_t cz__optim_group_count(const cz_optim *optim)
{
    return optim ? optim->group_count : 0;
}

int64_t cz__optim_group_param_count(const cz_optim *optim, int64_t param_group)
{
    if (param_group < 0 || param_group >= cz__optim_group_count(optim))
        return -1;
    return optim->groups[param_group].param_count;
}

int64_t cz__optim_group_param(const cz_optim *optim, int64_t param_group, int64_t place)
{
    if (place < 0 || place >= cz__optim_group_param_count(optim, param_group))
        return -1;
    return optim->groups[param_group].params[place];
}

int64_t cz_optim_group_params(const cz_optim *optim, int64_t param_group, int64_t *params,
                              int64_t room)
{
    const int64_t count = cz__optim_group_param_count(optim, param_group);
    if (params)
        for (int64_t k = 0; k < count && k < room; k++)
            params[k] = optim->groups[param_group].params[k];
    return count;
}

const cz_rule *cz__optim_rule(const cz_optim *optim)
{
    return optim ? optim->rule : NULL;
}

cz_status cz_optim_get_info(const cz_optim *optim, cz_optim_info *info)
{
    if (!optim || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "optim get_info: %s is NULL", optim ? "info" : "optim");
    const cz_optim_info ours = {.rule = optim->rule,
                                .group_count = optim->group_count,
                                .skip_count = optim->skip_count,
                                .state_bytes = optim->shard.state_bytes};
    return cz__options_write(info, &ours, sizeof ours, "cz_optim_info");
}

/* ---- hyper-parameters ---- */

unsigned cz__optim_slots_used(const cz_optim *optim, const cz__optim_group *group,
                              const double *hypers)
{
    const unsigned master = group->has_masters ? cz__optim_master_bit(optim) : 0;
    const unsigned average = group->average.kind ? cz__optim_average_bit(optim) : 0;
    return cz__rule_element_slots(group->rule, hypers) | master | average;
}

static cz_status check_call(const cz_optim *optim, int64_t param_group, const char *name)
{
    if (!optim || !name)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: %s is NULL", optim ? "name" : "optim");
    if (param_group < 0 || param_group >= optim->group_count)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: parameter group %" PRId64 ", there are %" PRId64,
                        param_group, optim->group_count);
    return CZ_OK;
}

/* Would the group's values be right with this one, and which slots would they want? */
static cz_status try_value(cz_optim *optim, cz__optim_group *group, const char *name, double value)
{
    const size_t bytes = (size_t)group->rule->hyper_count * sizeof *group->hypers;
    if (bytes > 0)
        memcpy(optim->values, group->hypers, bytes);
    CZ_TRY(cz__rule_set(group->rule, optim->values, name, value));
    CZ_TRY(cz__rule_check(group->rule, optim->values));
    CZ_TRY(cz__rule_check_type(group->rule, optim->values, optim->dtype));
    group->slots_wanted = cz__optim_slots_used(optim, group, optim->values);
    return CZ_OK;
}

/* Of several groups with several rules: those whose rule has the value. */
static bool takes_part(const cz_optim *optim, int64_t group, int64_t groups, const char *name)
{
    return groups == 1 || optim->rule_count == 1 ||
           cz__rule_has_hyper(optim->groups[group].rule, name);
}

static cz_status check_some_rule_has(const cz_optim *optim, int64_t first, int64_t last,
                                     const char *name)
{
    int place;
    for (int64_t k = first; k <= last; k++)
        if (takes_part(optim, k, last - first + 1, name))
            return CZ_OK;
    return cz__rule_find_hyper(optim->groups[first].rule, name, &place);
}

static cz_status try_range(cz_optim *optim, int64_t first, int64_t last, const char *name,
                           double value)
{
    unsigned more = 0;
    CZ_TRY(check_some_rule_has(optim, first, last, name));
    for (int64_t k = first; k <= last; k++) {
        if (!takes_part(optim, k, last - first + 1, name))
            continue;
        CZ_TRY(try_value(optim, &optim->groups[k], name, value));
        more |= optim->groups[k].slots_wanted & ~optim->groups[k].slots_used;
    }
    /* That goes through all parameters; a rate that changes in each step and group wants no
     * memory. */
    return more ? cz__optim_reserve(optim, &optim->shard) : CZ_OK;
}

cz__extra *cz__optim_find_extra(const cz__optim_group *group, const char *name)
{
    for (int i = 0; i < group->extra_count; i++)
        if (strcmp(group->extras[i].name, name) == 0)
            return &group->extras[i];
    return NULL;
}

static cz_status set_of_rule(cz_optim *optim, int64_t first, int64_t last, const char *name,
                             double value)
{
    const cz_status status = try_range(optim, first, last, name, value);
    for (int64_t k = first; k <= last; k++) {
        cz__optim_group *group = &optim->groups[k];
        if (!status && takes_part(optim, k, last - first + 1, name)) {
            cz__optim_groups_changed(optim);
            (void)cz__rule_set(group->rule, group->hypers, name, value);
            group->slots_used = group->slots_wanted;
            memset(group->prepared, 0, CZ__PREPARED * sizeof *group->prepared);
        }
        group->slots_wanted = group->slots_used;
    }
    return status;
}

static cz_status check_extra(const char *name, double value)
{
    if (!isfinite(value))
        return cz__fail(CZ_ERR_ARGUMENT, "optim: %s is %g, allowed is a finite number", name,
                        value);
    if (strcmp(name, CZ__AVERAGE_DECAY) == 0 && (value < 0 || value > 1))
        return cz__fail(CZ_ERR_ARGUMENT, "optim: %s is %g, allowed is 0 to 1", name, value);
    return CZ_OK;
}

/* Every group has it: set all. */
static cz_status set_extra(cz_optim *optim, int64_t first, int64_t last, const char *name,
                           double value)
{
    CZ_TRY(check_extra(name, value));
    cz__optim_groups_changed(optim);
    for (int64_t k = first; k <= last; k++)
        cz__optim_find_extra(&optim->groups[k], name)->value = value;
    return CZ_OK;
}

cz_status cz_optim_set_hyper(cz_optim *optim, int64_t param_group, const char *name, double value)
{
    CZ__OWN_FLOATS;
    const bool all = param_group == CZ_ALL_GROUPS;
    const int64_t first = all ? 0 : param_group;
    CZ_TRY(check_call(optim, first, name));
    const int64_t last = all ? optim->group_count - 1 : param_group;
    bool added = true;
    for (int64_t k = first; k <= last; k++)
        added = added && cz__optim_find_extra(&optim->groups[k], name);
    return added ? set_extra(optim, first, last, name, value)
                 : set_of_rule(optim, first, last, name, value);
}

cz_status cz_optim_get_hyper(const cz_optim *optim, int64_t param_group, const char *name,
                             double *value)
{
    CZ__OWN_FLOATS;
    int place;
    const bool in_all = optim && name && param_group == CZ_ALL_GROUPS;
    if (!in_all)
        CZ_TRY(check_call(optim, param_group, name));
    if (!value)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: value is NULL");
    if (in_all) {
        CZ_TRY(cz__rule_find_hyper(optim->rule, name, &place));
        *value = optim->defaults[place];
        return CZ_OK;
    }
    const cz__extra *extra = cz__optim_find_extra(&optim->groups[param_group], name);
    if (extra) {
        *value = extra->value;
        return CZ_OK;
    }
    CZ_TRY(cz__rule_find_hyper(optim->groups[param_group].rule, name, &place));
    *value = optim->groups[param_group].hypers[place];
    return CZ_OK;
}

cz_status cz__extra_set(cz__extra *extras, int *count, const char *name, double value)
{
    const size_t length = strlen(name);
    if (length == 0 || length >= sizeof extras->name)
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "optim: hyper-parameter name '%.70s' of %zu characters, allowed are 1 to %zu", name,
            length, sizeof extras->name - 1);
    if (strcmp(name, "rule") == 0)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: 'rule' is no name for a hyper-parameter: it is "
                                         "that of a group's rule in a state dictionary");
    if (strcmp(name, "params") == 0)
        return cz__fail(CZ_ERR_ARGUMENT, "optim: 'params' is no name for a hyper-parameter: it is "
                                         "that of a group's members in a state dictionary");
    CZ_TRY(check_extra(name, value));
    int place = 0;
    while (place < *count && strcmp(extras[place].name, name) != 0)
        place++;
    if (place == *count)
        snprintf(extras[(*count)++].name, sizeof extras->name, "%s", name);
    extras[place].value = value;
    return CZ_OK;
}

cz_status cz_optim_add_hyper(cz_optim *optim, int64_t param_group, const char *name, double value)
{
    CZ__OWN_FLOATS;
    CZ_TRY(check_call(optim, param_group, name));
    cz__optim_group *group = &optim->groups[param_group];
    const size_t count = (size_t)group->extra_count;
    if (cz__rule_has_hyper(group->rule, name))
        return cz__fail(CZ_ERR_ARGUMENT, "optim: '%s' is a hyper-parameter of %s already", name,
                        group->rule->name);
    cz__extra *extras = cz__calloc(count + 1, sizeof *extras);
    if (!extras)
        return cz__fail(CZ_ERR_MEMORY, "optim: no memory for hyper-parameter '%s'", name);
    if (count > 0)
        memcpy(extras, group->extras, count * sizeof *extras);
    const cz_status status = cz__extra_set(extras, &group->extra_count, name, value);
    if (status) {
        cz__free(extras);
        return status;
    }
    cz__free(group->extras);
    group->extras = extras;
    cz__optim_groups_changed(optim);
    return CZ_OK;
}

int cz__optim_hyper_count(const cz_optim *optim, int64_t param_group)
{
    if (!optim || param_group < 0 || param_group >= optim->group_count)
        return 0;
    return optim->groups[param_group].rule->hyper_count + optim->groups[param_group].extra_count;
}

const char *cz_optim_hyper_name(const cz_optim *optim, int64_t param_group, int index)
{
    if (index < 0 || index >= cz__optim_hyper_count(optim, param_group))
        return NULL;
    const cz__optim_group *group = &optim->groups[param_group];
    const int own = group->rule->hyper_count;
    return index < own ? cz__rule_hyper(group->rule, index).name : group->extras[index - own].name;
}

/* ---- what ranks have in common ---- */

void cz__describe_rule(cz__description *d, const cz_rule *rule)
{
    cz__describe(d, &(cz__subject){NULL, "the rule", -1, NULL, "is"}, CZ__FIELD_TEXT, rule->name,
                 strlen(rule->name));
    const struct {
        const char *what;
        int64_t value;
    } numbers[] = {{"the number of hyper-parameters", rule->hyper_count},
                   {"the number of partial sums", rule->sum_count},
                   {"state_at_create", rule->state_at_create},
                   {"the granule", cz__rule_granule_given(rule)},
                   {"the number of slots", rule->slot_count}};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        cz__describe_number(d, &(cz__subject){numbers[k].what, "rule", -1, rule->name, "is"},
                            CZ__FIELD_NUMBER, numbers[k].value);
    cz__describe_word(d, &(cz__subject){"update_tensor", "rule", -1, rule->name, "is"},
                      (const char *const[]){"absent", "given", NULL}, rule->update_tensor != NULL);
    for (int s = 0; s < rule->slot_count; s++) {
        const cz_slot_spec slot = cz__rule_slot(rule, s);
        cz__describe(d, &(cz__subject){"the name", "slot", s, NULL, "is"}, CZ__FIELD_TEXT,
                     slot.name, strlen(slot.name));
        cz__describe_number(d, &(cz__subject){"the kind", "slot", s, slot.name, "is"},
                            CZ__FIELD_NUMBER, slot.kind);
    }
}

void cz__describe_other_rules(cz__description *d, const cz_optim *optim)
{
    for (int k = 0; optim && k < optim->rule_count; k++)
        if (optim->rules[k].rule != optim->rule)
            cz__describe_rule(d, optim->rules[k].rule);
}

/* Where nobody knows it there is nothing to compare. */
static void describe_cost(cz__description *d, const cz_optim *optim, int64_t param)
{
    double cost;
    if (cz__optim_cost(optim, param, &cost) == CZ_OK && cost >= 0)
        cz__describe(d,
                     &(cz__subject){"the cost", "parameter", param,
                                    cz__model_name(optim->model, param), "is"},
                     CZ__FIELD_REAL, &cost, sizeof cost);
}

/* The decay is among the hyper-parameters. */
static void describe_average(cz__description *d, const cz_moving_average *average, int64_t g)
{
    const struct {
        const char *what;
        int64_t value;
    } numbers[] = {{"average.warm_up", average->warm_up},
                   {"average.start", average->start},
                   {"average.every", average->every}};
    cz__describe_word(d, &(cz__subject){"average", "parameter group", g, NULL, "is"}, average_words,
                      average->kind);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        cz__describe_number(d, &(cz__subject){numbers[k].what, "parameter group", g, NULL, "is"},
                            CZ__FIELD_NUMBER, numbers[k].value);
}

void cz__describe_members(cz__description *d, const cz_optim *optim)
{
    static const char *const masters[] = {"none", "copies", NULL};
    const int64_t groups = cz__optim_group_count(optim);
    cz__describe_number(d, &(cz__subject){NULL, "the number of parameter groups", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, groups);
    cz__describe_number(d, &(cz__subject){NULL, "the seed of roundings", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, optim ? (int64_t)optim->seed : 0);
    for (int64_t g = 0; g < groups; g++) {
        const char *rule = optim->groups[g].rule->name;
        cz__describe(d, &(cz__subject){"the rule", "parameter group", g, NULL, "is"},
                     CZ__FIELD_TEXT, rule, strlen(rule));
        cz__describe_word(d, &(cz__subject){"master", "parameter group", g, NULL, "is"}, masters,
                          optim->groups[g].has_masters);
        cz__describe_number(d, &(cz__subject){"state_dtype", "parameter group", g, NULL, "is"},
                            CZ__FIELD_DTYPE,
                            optim->groups[g].packed ? CZ_U8 : optim->groups[g].state_dtype);
        if (optim->groups[g].packed)
            cz__describe_number(d, &(cz__subject){"u8_from", "parameter group", g, NULL, "is"},
                                CZ__FIELD_NUMBER, optim->packed_from);
        cz__describe_number(d, &(cz__subject){"granule", "parameter group", g, NULL, "is"},
                            CZ__FIELD_NUMBER, optim->groups[g].granule);
        describe_average(d, &optim->groups[g].average, g);
        int64_t count = 0;
        const int64_t *params = cz__optim_group_params(optim, g, &count);
        cz__describe_number(d, &(cz__subject){"size", "parameter group", g, NULL, "is"},
                            CZ__FIELD_NUMBER, count);
        for (int64_t k = 0; k < count; k++) {
            cz__describe_number(
                d, &(cz__subject){"a member", "parameter group", g, NULL, "is parameter"},
                CZ__FIELD_NUMBER, params[k]);
            describe_cost(d, optim, params[k]);
        }
    }
}

void cz__describe_named_members(cz__description *d, const cz_optim *optim)
{
    cz__describe_members(d, optim);
    for (int64_t g = 0; g < cz__optim_group_count(optim); g++) {
        int64_t count = 0;
        const int64_t *params = cz__optim_group_params(optim, g, &count);
        const char *name = count > 0 ? cz__model_name(optim->model, params[0]) : "";
        cz__describe(d, &(cz__subject){"the first member", "parameter group", g, NULL, "is"},
                     CZ__FIELD_TEXT, name, strlen(name));
    }
}

/* With the names of those that were added. */
static void describe_hypers(cz__description *d, const cz_optim *optim, int64_t g)
{
    const int count = cz__optim_hyper_count(optim, g);
    cz__describe_number(
        d, &(cz__subject){"the number of hyper-parameters", "parameter group", g, NULL, "is"},
        CZ__FIELD_NUMBER, count);
    for (int h = 0; h < count; h++) {
        const char *name = cz_optim_hyper_name(optim, g, h);
        double value = 0;
        (void)cz_optim_get_hyper(optim, g, name, &value);
        if (h >= optim->groups[g].rule->hyper_count)
            cz__describe(
                d, &(cz__subject){"an added hyper-parameter", "parameter group", g, NULL, "is"},
                CZ__FIELD_TEXT, name, strlen(name));
        cz__describe(d, &(cz__subject){name, "parameter group", g, NULL, "is"}, CZ__FIELD_REAL,
                     &value, sizeof value);
    }
}

uint64_t cz__optim_hypers_print(const cz_optim *optim, int64_t group, uint64_t print)
{
    const cz__optim_group *g = &optim->groups[group];
    print = cz__fingerprint_elements(print, g->hypers,
                                     (size_t)g->rule->hyper_count * sizeof *g->hypers);
    for (int k = 0; k < g->extra_count; k++) {
        print = cz__fingerprint(print, g->extras[k].name, strlen(g->extras[k].name));
        print = cz__fingerprint(print, &g->extras[k].value, sizeof g->extras[k].value);
    }
    return print;
}

void cz__describe_hypers(cz__description *d, const cz_optim *optim)
{
    for (int64_t g = 0; g < cz__optim_group_count(optim); g++)
        describe_hypers(d, optim, g);
}
