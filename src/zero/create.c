/* SPDX-License-Identifier: MIT */
/* Making a sharded optimizer: every rank builds its own part, then all agree that all could, and
 * that all describe the same thing. */
#include <inttypes.h>

#include "base/float_mode.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "collective/model.h"
#include "group/collective.h"
#include "tensor/model.h"
#include "zero/deal.h"
#include "zero/zero.h"
#include "shard/shard.h"

/* A ddp adds its parts itself. */
static cz_status take_parts(cz_zero *zero, const cz_zero_options *ours)
{
    if (!ours->parts)
        return CZ_OK;
    CZ_TRY(cz__parts_match(ours->parts, zero->model, zero->group, "zero"));
    if (ours->ddp && cz__ddp_parts(ours->ddp) != ours->parts)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: option ddp was made %s",
                        cz__ddp_parts(ours->ddp) ? "with other parts than option parts"
                                                 : "without parts, see its option");
    if (!ours->ddp && ours->gradients != CZ_GRADIENTS_LOCAL)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: option parts, and gradients that are %s",
                        ours->gradients == CZ_GRADIENTS_SUM ? "to be a sum: of parts it is the mean"
                                                            : "reduced");
    if (!ours->ddp)
        CZ_TRY(cz__parts_check_free(ours->parts, "zero"));
    if (!ours->ddp)
        zero->parts = ours->parts;
    return CZ_OK;
}

static cz_status read_options(cz_zero *zero, cz_zero_options *ours, const cz_zero_options *theirs)
{
    CZ_TRY(cz__options_read(ours, &cz__zero_options, theirs, "zero"));
    if (ours->ddp)
        CZ_TRY(cz__ddp_check(ours->ddp, zero->model, zero->group));
    if (ours->ddp && ours->gradients == CZ_GRADIENTS_SUM)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: option gradients is sum, and with option ddp they are the mean");
    if (ours->ddp)
        ours->gradients = CZ_GRADIENTS_REDUCED;
    CZ_TRY(take_parts(zero, ours));
    zero->ddp = ours->ddp;
    zero->overlap = ours->overlap;
    zero->late = ours->overlap_gather != 0;
    zero->gradients = ours->gradients;
    zero->views_buckets = ours->parameters_as_bucket_view != 0;
    zero->moved = ours->moved;
    zero->moved_context = ours->moved_context;
    return CZ_OK;
}

size_t cz__zero_bytes(int64_t params)
{
    const cz_zero *zero = NULL;
    return sizeof *zero + sizeof *zero->present + sizeof *zero->ownership +
           (size_t)params *
               (sizeof *zero->present + 2 * sizeof *zero->ownership + sizeof *zero->kind_of +
                sizeof *zero->included + sizeof *zero->sources + sizeof *zero->results +
                sizeof *zero->kept + sizeof *zero->nowhere + sizeof *zero->tables.values);
}

static cz_status reserve(cz_zero *zero)
{
    const size_t params = (size_t)zero->param_count;
    zero->present = cz__calloc(params + 1, sizeof *zero->present);
    zero->ownership = cz__calloc(2 * params + 1, sizeof *zero->ownership);
    zero->sources = cz__calloc(params, sizeof *zero->sources);
    zero->results = cz__calloc(params, sizeof *zero->results);
    zero->kept = cz__calloc(params, sizeof *zero->kept);
    zero->nowhere = cz__calloc(params, sizeof *zero->nowhere);
    zero->settings.part = "zero";
    CZ_TRY(cz__zero_have_room_for_settings(zero));
    if (!zero->present || !zero->ownership || !zero->sources || !zero->results || !zero->kept ||
        !zero->nowhere)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for steps over %zu parameters", params);
    CZ_TRY(cz__model_tables_of(zero->model, &zero->tables));
    const int64_t chunks = CZ_SUM_CHUNKS;
    CZ_TRY(cz__shard_map_create_even(&zero->norm, cz_group_size(zero->group), 1, &chunks, NULL, 0,
                                     NULL, sizeof(int64_t)));
    CZ_TRY(cz__zero_sums_create(&zero->sums, zero));
    return cz__zero_reserve_transfers(&zero->transfers, zero);
}

/* Gradients of others would be reduced to owners that nobody has use for. */
static cz_status check_all_in_groups(const cz_zero *zero)
{
    for (int64_t p = 0; p < zero->param_count; p++)
        if (cz__model_requires_grad(zero->model, p) && cz__optim_group_of(zero->optim, p) < 0)
            return cz__fail(
                CZ_ERR_ARGUMENT,
                "zero: with option ddp all trainable parameters are in groups, '%.60s' is in none",
                cz__model_name(zero->model, p));
    return CZ_OK;
}

/* All that this rank can do alone. */
static cz_status build_zero(cz_zero *zero, const cz_hyper *hypers, const cz_zero_options *theirs,
                            cz_zero_options *ours, cz__bucket_view **view)
{
    CZ_TRY(read_options(zero, ours, theirs));
    /* those in no group too: cz_zero_broadcast_parameters() moves them */
    CZ_TRY(cz__group_check_model(zero->group, zero->model, "zero"));
    CZ_TRY(cz__zero_find_shared(zero));
    cz_optim_options groups = CZ_OPTIM_OPTIONS_INIT;
    groups.groups = ours->groups;
    groups.group_count = ours->group_count;
    groups.threads = ours->threads;
    groups.master = ours->master;
    groups.state_dtype = ours->state_dtype;
    groups.seed = ours->seed;
    groups.average = ours->average;
    groups.u8_from = ours->u8_from;
    CZ_TRY(cz__optim_create(&zero->optim, zero->model, zero->rule, hypers, &groups));
    CZ_TRY(cz__optim_check_memory(zero->optim, false));
    zero->param_count = cz__model_param_count(zero->model);
    CZ_TRY(cz__zero_find_kinds(zero));
    CZ_TRY(cz__zero_check_partition(zero, ours->partition, ours->owners, ours->owner_count));
    zero->partition = ours->partition;
    CZ_TRY(cz__zero_partition(zero, zero->partition, ours->owners, &zero->map));
    CZ_TRY(cz__optim_set_map(zero->optim, zero->map, cz_group_rank(zero->group)));
    CZ_TRY(reserve(zero));
    CZ_TRY(cz__zero_means_create(&zero->means, zero, zero->map));
    CZ_TRY(cz__zero_have_reader_checks(zero));
    if (zero->ddp)
        CZ_TRY(check_all_in_groups(zero));
    CZ_TRY(cz__overlap_check(zero, zero->overlap));
    CZ_TRY(cz__overlap_reserve(zero, zero->overlap));
    return cz__bucket_view_create(view, zero, zero->map);
}

/* Both average: the second time for nothing, unless a hook left the first one out. */
static void say_if_averaged_twice(cz_zero *zero)
{
    zero->reduces = !zero->ddp && cz__zero_reduces(zero);
    if (zero->reduces && cz__model_count_reducing_optimizer(zero->model, 1) > 0 &&
        cz_group_size(zero->group) > 1 && cz_group_rank(zero->group) == 0)
        cz__log(CZ_LOG_WARN,
                "zero: %s is over a model whose ddp averages gradients already, and will average "
                "them again: give it option ddp, or CZ_GRADIENTS_REDUCED",
                zero->object.name);
}

static cz_status make_handle(cz_zero **zero, bool wanted)
{
    if (!wanted)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: out is NULL");
    *zero = cz__calloc(1, sizeof **zero);
    return *zero ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "zero: no memory for a handle");
}

cz_status cz_zero_create(cz_zero **out, cz_group *group, cz_model *model, const cz_rule *rule,
                         const cz_hyper *hypers, const cz_zero_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz__description description = {0};
    cz_zero_options ours = {0};
    cz__bucket_view *view = NULL;
    cz_zero *zero = NULL;
    if (out)
        *out = NULL;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: group is NULL");
    cz_status status = make_handle(&zero, out != NULL);
    if (!status) {
        *zero = (cz_zero){.group = group,
                          .model = model,
                          .rule = rule,
                          .device = cz__group_device(group),
                          .weight = -1,
                          .share = 1,
                          .consolidated_to = CZ__NOWHERE};
        status = build_zero(zero, hypers, options, &ours, &view);
    }
    const cz__creation creation = {zero, &ours};
    status = cz__agree_on(group, "zero", cz__describe_all, &creation, status, &description);
    cz__description_clear(&description);
    if (!status) {
        cz__object_make(&zero->object, group, CZ__OBJECT_OPTIMIZER);
        if (zero->parts)
            cz__parts_take(zero->parts, CZ__PARTS_ZERO);
        zero->has_parts = zero->parts != NULL;
        say_if_averaged_twice(zero);
        cz__parts_say_if_left_out(zero->ddp ? cz__ddp_parts(zero->ddp) : zero->parts, model, group,
                                  zero->object.name);
        cz__bucket_view_enter(zero, view);
        zero->is_bound = zero->ddp != NULL;
        if (zero->is_bound)
            cz__overlap_bind(zero);
    } else {
        cz__bucket_view_destroy(&view);
        cz_zero_destroy(&zero);
    }
    if (out)
        *out = zero;
    return status;
}
