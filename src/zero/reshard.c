/* SPDX-License-Identifier: MIT */
/* Owners change: on request, or because a parameter group was added. The new map and memory are made
 * beside the present ones, the elements move, then the new ones take over. */
#include <inttypes.h>

#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "zero/bucket_view.h"
#include "zero/deal.h"
#include "zero/overlap.h"
#include "zero/progress.h"

typedef struct resharding {
    cz_zero *zero;
    cz_partition partition;
    const int *owners; /* borrowed */
    cz__zero_progress shared;
    cz__progress progress;
    cz_shard_map *map;          /* owned until it takes over, as the others: the new one */
    cz__relocation *relocation; /* this rank's new spans */
    cz__bucket_view *view;      /* and where values are then */
    uint8_t *include;           /* parameters with the slot at hand */
    int slot;
} resharding;

static void resharding_clear(resharding *r)
{
    cz__zero_progress_clear(&r->shared);
    cz__relocation_destroy(&r->relocation); /* before the map, which it borrows */
    cz__bucket_view_destroy(&r->view);
    cz_shard_map_destroy(&r->map);
    cz__free(r->include);
}

/* All that this rank can do alone. */
static cz_status build(resharding *r)
{
    cz_zero *zero = r->zero;
    r->include = cz__calloc((size_t)zero->param_count, sizeof *r->include);
    if (!r->include)
        return cz__fail(CZ_ERR_MEMORY, "zero reshard: a table of %" PRId64 " parameters",
                        zero->param_count);
    CZ_TRY(cz__zero_partition(zero, r->partition, r->owners, &r->map));
    CZ_TRY(cz__bucket_view_create(&r->view, zero, r->map));
    return cz__relocation_create(&r->relocation, zero->optim, r->map, cz_group_rank(zero->group),
                                 &r->progress);
}

static const void *source(void *context, int64_t param, int64_t begin)
{
    const resharding *r = context;
    return cz__optim_slot_address(r->zero->optim, param, r->slot, begin);
}

static void *target(void *context, int64_t param, int64_t begin)
{
    const resharding *r = context;
    return cz__relocation_slot_address(r->relocation, param, r->slot, begin);
}

static cz_status move_slot(resharding *r)
{
    const cz_zero *zero = r->zero;
    const cz__move move = {.from = zero->map,
                           .to = r->map,
                           .include = r->include,
                           .element_size = cz_dtype_size(zero->dtype),
                           .source = source,
                           .target = target,
                           .context = r};
    bool any = false;
    for (int64_t p = 0; p < zero->param_count; p++) {
        r->include[p] = r->progress.used[p] >> r->slot & 1u;
        any = any || r->include[p];
    }
    return any ? cz__move_between_maps(zero->group, &move, "reshard") : CZ_OK;
}

/* Cannot fail. */
static void take_over(resharding *r)
{
    cz_zero *zero = r->zero;
    cz__relocation_commit(r->relocation);
    cz_shard_map_destroy(&zero->map);
    zero->map = r->map;
    zero->partition = r->partition;
    zero->without_tiles = false;
    if (zero->is_bound)
        cz__overlap_bind(zero);
    cz__bucket_view_enter(zero, r->view);
    r->map = NULL;
    r->view = NULL;
    for (int64_t p = 0; p < zero->param_count; p++) { /* they have the size of the old spans */
        zero->device->release(zero->kept[p]);
        zero->kept[p] = NULL;
    }
    cz__zero_forget_dict(zero);
}

static cz_status reshard(resharding *r)
{
    const cz_zero *zero = r->zero;
    CZ_TRY(cz__zero_progress_create(zero, &r->shared));
    r->progress = cz__zero_progress_view(&r->shared);
    CZ_TRY(cz__agree(zero->group, build(r), 0, NULL, "zero: reshard"));
    for (r->slot = 0; r->slot < cz__optim_slot_count(zero->optim); r->slot++)
        CZ_TRY(move_slot(r));
    take_over(r);
    return CZ_OK;
}

/* New groups of an optimizer without any state: shards are made again when somebody asks for them, once for all
 * groups that were added by then. Partitions for which that is not the same, and who is told where values are, go
 * the long way; so does initial state, which is kept as it was. Alike on all ranks. */
static bool can_wait(const cz_zero *zero)
{
    const bool depends_on_groups_only =
        zero->partition == CZ_PARTITION_ELEMENTS || zero->partition == CZ_PARTITION_GREEDY;
    return depends_on_groups_only && !zero->ddp && !zero->views_buckets &&
           !zero->rule->state_at_create && cz__optim_is_fresh(zero->optim);
}

cz_status cz__zero_settle_shards(cz_zero *zero)
{
    if (!zero->shards_wait)
        return CZ_OK;
    resharding r = {.zero = zero, .partition = zero->partition};
    cz_status status = cz__zero_progress_none(zero, &r.shared);
    r.progress = cz__zero_progress_view(&r.shared);
    if (status == CZ_OK)
        status = build(&r);
    if (status == CZ_OK) {
        take_over(&r);
        zero->shards_wait = false;
    }
    resharding_clear(&r);
    return status;
}

/* What ranks must have in common: the options given, and all that a step compares. */
static void describe(cz__description *description, const void *context)
{
    const resharding *r = context;
    cz__describe_call(description, &r->zero->object);
    cz__describe_partition(description, r->zero, r->partition, r->owners);
    cz__describe_settings(description, r->zero);
}

cz_status cz_zero_reshard(cz_zero *zero, cz_partition partition, const int *owners,
                          int64_t owner_count)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero reshard: zero is NULL");
    resharding r = {
        .zero = zero, .partition = cz__deal_partition(zero->rule, partition), .owners = owners};
    cz_status status = cz__zero_check_idle(zero);
    if (status == CZ_OK)
        status = cz__zero_check_partition(zero, partition, owners, owner_count);
    status = cz__agree_on(zero->group, "zero reshard", describe, &r, status, &zero->settings);
    if (status == CZ_OK)
        status = reshard(&r);
    resharding_clear(&r);
    return status;
}

/* With given owners those of the present parameters stay, and the new ones are dealt out greedily. */
static cz_status present_owners(const cz_zero *zero, int **owners)
{
    *owners = NULL;
    if (zero->partition != CZ_PARTITION_GIVEN)
        return CZ_OK;
    *owners = cz__calloc((size_t)zero->param_count, sizeof **owners);
    if (!*owners)
        return cz__fail(CZ_ERR_MEMORY, "zero: a table of %" PRId64 " owners", zero->param_count);
    for (int64_t p = 0; p < zero->param_count; p++)
        (*owners)[p] = cz_shard_map_home(zero->map, p);
    return CZ_OK;
}

/* Which parameters are trainable, looked at again where some value moved or one was frozen or unfrozen. */
static uint64_t trainable_print(cz_zero *zero)
{
    const uint64_t moves = cz__model_moves(zero->model);
    if (zero->trainable_at != moves + 1)
        zero->trainable_print =
            cz__fingerprint(0, zero->tables.trainable, (size_t)zero->param_count);
    zero->trainable_at = moves + 1;
    return zero->trainable_print;
}

/* Members and values of all groups are in one number, which a new group extends; they are listed only where ranks
 * differ in it. */
static cz_status agree_on_groups(cz_zero *zero, cz_status mine)
{
    bool same;
    const uint64_t prints[] = {mine == CZ_OK ? cz__optim_groups_print(zero->optim) : 0,
                               trainable_print(zero)};
    const uint64_t print = cz__fingerprint(0, prints, sizeof prints);
    CZ_TRY(cz__agree_for(zero->group, &zero->object, mine, print, &same, "zero add_param_group"));
    return same ? CZ_OK
                : cz__agree_on(zero->group, "zero add_param_group", cz__describe_groups, zero,
                               CZ_OK, &zero->settings);
}

cz_status cz_zero_add_param_group(cz_zero *zero, const cz_param_group *group)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    int *owners = NULL;
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero add_param_group: zero is NULL");
    const bool waits = can_wait(zero);
    cz_status status = waits ? CZ_OK : cz__zero_check_idle(zero);
    if (status == CZ_OK)
        status = present_owners(zero, &owners);
    if (status == CZ_OK)
        status = cz__optim_add_group(zero->optim, group);
    const bool added = status == CZ_OK;
    status = agree_on_groups(zero, status);
    resharding r = {.zero = zero, .partition = zero->partition, .owners = owners};
    if (status == CZ_OK && waits) {
        zero->shards_wait = true;
        cz__zero_forget_dict(zero);
    } else if (status == CZ_OK) {
        status = reshard(&r);
    }
    resharding_clear(&r);
    if (status != CZ_OK && added)
        cz__optim_remove_group(zero->optim);
    cz__free(owners);
    return status;
}
