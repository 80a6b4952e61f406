/* SPDX-License-Identifier: MIT */
/* Who owns what: from options to a shard map, and from one map to another, on request or because a
 * parameter group was added. The new map and memory are made beside the present ones, the elements
 * move, then the new ones take over. */
#include <inttypes.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "tensor/model.h"
#include "zero/deal.h"
#include "zero/zero.h"
#include "collective/model.h"
#include "shard/shard.h"

/* ---- from options to a map ---- */

/* What a partition is made from. */
typedef struct sources {
    int64_t *counts; /* owned, as all that follows; param_count each, as the next five */
    uint8_t *parts;
    int64_t *layout;
    int64_t *members;
    int64_t *granules;
    double *costs;
    int64_t *group_sizes;
    int64_t *begins, *params; /* of buckets */
    cz__bucket_lists buckets;
} sources;

static void sources_clear(sources *s)
{
    cz__free(s->counts);
    cz__free(s->parts);
    cz__free(s->layout);
    cz__free(s->members);
    cz__free(s->granules);
    cz__free(s->costs);
    cz__free(s->group_sizes);
    cz__free(s->begins);
    cz__free(s->params);
}

static cz_status allocate_sources(sources *s, const cz_zero *zero)
{
    const size_t params = (size_t)zero->param_count;
    const size_t buckets = zero->ddp ? (size_t)cz__ddp_bucket_count(zero->ddp) : 0;
    s->counts = cz__calloc(params, sizeof *s->counts);
    s->parts = cz__calloc(params, sizeof *s->parts);
    s->layout = cz__calloc(params, sizeof *s->layout);
    s->members = cz__calloc(params, sizeof *s->members);
    s->granules = cz__calloc(params, sizeof *s->granules);
    s->costs = cz__calloc(params, sizeof *s->costs);
    s->group_sizes = cz__calloc((size_t)cz__optim_group_count(zero->optim), sizeof *s->group_sizes);
    s->begins = cz__calloc(buckets + 1, sizeof *s->begins);
    s->params = cz__calloc(params, sizeof *s->params);
    if (!s->counts || !s->parts || !s->layout || !s->members || !s->granules || !s->costs ||
        !s->group_sizes || !s->begins || !s->params)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for the partition of %zu parameters",
                        params);
    return CZ_OK;
}

static cz__part part_of(const cz_zero *zero, int64_t param)
{
    if (cz__optim_group_of(zero->optim, param) < 0)
        return CZ__NOT_OURS;
    return cz__model_requires_grad(zero->model, param) ? CZ__TRAINED : CZ__FROZEN;
}

static void list_members(sources *s, const cz_zero *zero)
{
    int64_t count = 0;
    for (int64_t g = 0; g < cz__optim_group_count(zero->optim); g++) {
        const int64_t *params = cz__optim_group_params(zero->optim, g, &s->group_sizes[g]);
        if (s->group_sizes[g] > 0)
            memcpy(s->members + count, params, (size_t)s->group_sizes[g] * sizeof *params);
        count += s->group_sizes[g];
    }
}

static void list_buckets(sources *s, const cz_zero *zero)
{
    int64_t count = 0;
    const int buckets = zero->ddp ? cz__ddp_bucket_count(zero->ddp) : 0;
    for (int b = 0; b < buckets; b++) {
        s->begins[b] = count;
        for (int64_t k = 0; k < cz__ddp_bucket_param_count(zero->ddp, b); k++)
            s->params[count++] = cz__ddp_bucket_param(zero->ddp, b, k);
    }
    s->begins[buckets] = count;
    s->buckets = (cz__bucket_lists){buckets, s->begins, s->params, s->counts};
}

static cz_status sources_create(sources *s, const cz_zero *zero)
{
    CZ_TRY(allocate_sources(s, zero));
    for (int64_t p = 0; p < zero->param_count; p++) {
        s->counts[p] = cz_tensor_count(cz__model_value(zero->model, p));
        s->parts[p] = (uint8_t)part_of(zero, p);
        s->granules[p] = cz__optim_granule(zero->optim, p);
        CZ_TRY(cz__optim_cost(zero->optim, p, &s->costs[p]));
    }
    cz__model_lay_out(zero->model, s->layout);
    list_members(s, zero);
    list_buckets(s, zero);
    return CZ_OK;
}

bool cz__zero_is_trained(const cz_zero *zero, int64_t param)
{
    return zero && cz__model_requires_grad(zero->model, param) &&
           cz__optim_group_of(zero->optim, param) >= 0;
}

static cz_status check_owner(const cz_zero *zero, int64_t param, int owner)
{
    const int world_size = cz_group_size(zero->group);
    const char *name = cz__model_name(zero->model, param);
    if (owner < -1 || owner >= world_size)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: the owner of parameter %" PRId64
                        " '%.60s' is rank %d, the group has %d ranks",
                        param, name, owner, world_size);
    if (owner == -1 && cz__zero_is_trained(zero, param))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: trainable parameter %" PRId64 " '%.60s' has no owner (-1)", param,
                        name);
    return CZ_OK;
}

cz_status cz__zero_check_partition(const cz_zero *zero, cz_partition partition, const int *owners,
                                   int64_t owner_count)
{
    const bool given = partition == CZ_PARTITION_GIVEN;
    if (partition < CZ_PARTITION_ELEMENTS || partition > CZ_PARTITION_BUCKET_PIECES)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: option partition is %d, wanted 0 to 4",
                        (int)partition);
    if (partition >= CZ_PARTITION_BUCKETS && !zero->ddp)
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "zero: option partition is %s, which needs option ddp, whose buckets it deals out",
            partition == CZ_PARTITION_BUCKETS ? "CZ_PARTITION_BUCKETS"
                                              : "CZ_PARTITION_BUCKET_PIECES");
    if (!given && owners)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: owners are given, but option partition is not CZ_PARTITION_GIVEN");
    if (given && !owners)
        return cz__fail(CZ_ERR_ARGUMENT, "zero: partition is CZ_PARTITION_GIVEN, owners is NULL");
    if (given && owner_count != zero->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: owner_count is %" PRId64 ", the model has %" PRId64 " parameters",
                        owner_count, zero->param_count);
    if (given)
        for (int64_t p = 0; p < zero->param_count; p++)
            CZ_TRY(check_owner(zero, p, owners[p]));
    return CZ_OK;
}

cz_status cz__zero_partition(const cz_zero *zero, cz_partition partition, const int *owners,
                             cz_shard_map **out)
{
    sources s = {0};
    cz_status status = sources_create(&s, zero);
    const cz__deal deal = {.world_size = cz_group_size(zero->group),
                           .param_count = zero->param_count,
                           .counts = s.counts,
                           .parts = s.parts,
                           .layout = s.layout,
                           .group_count = cz__optim_group_count(zero->optim),
                           .group_sizes = s.group_sizes,
                           .members = s.members,
                           .buckets = zero->ddp ? &s.buckets : NULL,
                           .owners = owners,
                           .element_size = zero->element_size,
                           .granules = s.granules,
                           .costs = s.costs};
    if (!status)
        status = cz__deal_out(&deal, partition, out);
    sources_clear(&s);
    return status;
}

/* ---- how far each parameter is: its owners know, all ranks are told ---- */

void cz__zero_progress_clear(cz__zero_progress *progress)
{
    cz__free(progress->words);
    cz__free(progress->steps);
    cz__free(progress->used);
    cz__free(progress->scalars);
    *progress = (cz__zero_progress){0};
}

/* A parameter is a row of words: steps, used slots, the bits of each scalar. Who has nothing of it
 * leaves the lowest number, so that the largest is what its owners have. */
static void write_rows(const cz_zero *zero, const cz__progress *own, cz__zero_progress *progress)
{
    const int scalars = cz__optim_scalar_count(zero->optim);
    int64_t *word = progress->words;
    for (int64_t p = 0; p < zero->param_count; p++) {
        const bool held = cz__optim_holds(zero->optim, p);
        *word++ = held ? own->steps[p] : INT64_MIN;
        *word++ = held ? (int64_t)own->used[p] : INT64_MIN;
        for (int k = 0; k < scalars; k++, word++) {
            *word = INT64_MIN;
            if (held)
                memcpy(word, &own->scalars[p * scalars + k], sizeof *word);
        }
    }
}

static void read_rows(const cz_zero *zero, cz__zero_progress *progress)
{
    const int scalars = cz__optim_scalar_count(zero->optim);
    const int64_t *word = progress->words;
    for (int64_t p = 0; p < zero->param_count; p++) {
        const int64_t steps = *word++, used = *word++;
        progress->steps[p] = steps == INT64_MIN ? 0 : steps;
        progress->used[p] = used == INT64_MIN ? 0 : (unsigned)used;
        for (int k = 0; k < scalars; k++)
            memcpy(&progress->scalars[p * scalars + k], word++, sizeof *word);
    }
}

static cz_status allocate_progress(const cz_zero *zero, cz__zero_progress *progress)
{
    const size_t params = (size_t)zero->param_count;
    const size_t scalars = (size_t)cz__optim_scalar_count(zero->optim);
    progress->words = cz__calloc(params * (2 + scalars), sizeof *progress->words);
    progress->steps = cz__calloc(params, sizeof *progress->steps);
    progress->used = cz__calloc(params, sizeof *progress->used);
    progress->scalars = cz__calloc(params * scalars, sizeof *progress->scalars);
    if (!progress->words || !progress->steps || !progress->used || !progress->scalars)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for the progress of %zu parameters",
                        params);
    return CZ_OK;
}

cz_status cz__zero_progress_create(const cz_zero *zero, cz__zero_progress *progress)
{
    const cz__progress own = cz__optim_progress(zero->optim);
    const int64_t words = zero->param_count * (2 + cz__optim_scalar_count(zero->optim));
    *progress = (cz__zero_progress){0};
    CZ_TRY(cz__agree(zero->group, allocate_progress(zero, progress), 0, NULL, "zero: progress"));
    write_rows(zero, &own, progress);
    CZ_TRY(cz_all_reduce(zero->group, progress->words, words, CZ_I64, CZ_MAX,
                         CZ_LABEL("zero: progress")));
    read_rows(zero, progress);
    return CZ_OK;
}

/* ---- from one map to another ---- */

typedef struct resharding {
    cz_zero *zero;
    cz_partition partition;
    const int *owners; /* borrowed */
    cz__zero_progress shared;
    cz__progress progress;
    cz_shard_map *map;          /* owned until it takes over, as the others: the new one */
    cz__relocation *relocation; /* this rank's new spans */
    cz__bucket_view *view;      /* and where values are then, and means */
    cz__zero_means means;
    uint8_t *include; /* parameters with the slot at hand */
    int slot;
} resharding;

static void resharding_clear(resharding *r)
{
    cz__zero_progress_clear(&r->shared);
    cz__relocation_destroy(&r->relocation); /* before the map, which it borrows */
    cz__bucket_view_destroy(&r->view);
    cz__zero_means_clear(&r->means, r->zero);
    cz__shard_map_destroy(&r->map);
    cz__free(r->include);
}

/* All that this rank can do alone. */
static cz_status build_shards(resharding *r)
{
    cz_zero *zero = r->zero;
    r->include = cz__calloc((size_t)zero->param_count, sizeof *r->include);
    if (!r->include)
        return cz__fail(CZ_ERR_MEMORY,
                        "zero reshard: no memory for a table of %" PRId64 " parameters",
                        zero->param_count);
    CZ_TRY(cz__zero_partition(zero, r->partition, r->owners, &r->map));
    CZ_TRY(cz__bucket_view_create(&r->view, zero, r->map));
    CZ_TRY(cz__zero_means_create(&r->means, zero, r->map));
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

static cz_status move_slot(resharding *r, cz_dtype dtype)
{
    const cz_zero *zero = r->zero;
    const cz__move move = {.from = zero->map,
                           .to = r->map,
                           .include = r->include,
                           .element_size = cz_dtype_size(dtype),
                           .source = source,
                           .target = target,
                           .context = r};
    return cz__zero_include_slot(zero, &r->progress, r->slot, dtype, r->include)
               ? cz__move_between_maps(zero->group, &move, "reshard")
               : CZ_OK;
}

void cz__zero_forget_dict(cz_zero *zero)
{
    zero->printed = false;
    cz_state_dict_destroy(&zero->consolidated);
    zero->consolidated_to = CZ__NOWHERE;
}

/* Cannot fail. */
static void take_over(resharding *r)
{
    cz_zero *zero = r->zero;
    cz__relocation_commit(r->relocation);
    cz__shard_map_destroy(&zero->map);
    zero->map = r->map;
    zero->partition = r->partition;
    zero->without_tiles = false;
    cz__zero_means_clear(&zero->means, zero);
    zero->means = r->means;
    zero->listener.means = zero->means.of;
    r->means = (cz__zero_means){0};
    if (zero->is_bound)
        cz__ddp_bind(zero->ddp, zero->map, &zero->listener);
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
    CZ_TRY(cz__agree(zero->group, build_shards(r), 0, NULL, "zero: reshard"));
    for (r->slot = 0; r->slot < cz__optim_slot_count(zero->optim); r->slot++)
        for (cz_dtype dtype = CZ_F32; dtype <= CZ_BF16; dtype++)
            CZ_TRY(move_slot(r, dtype));
    take_over(r);
    return CZ_OK;
}

/* New groups of an optimizer without any state: shards are made again when somebody asks for them,
 * once for all groups that were added by then. Partitions for which that is not the same, and who
 * is told where values are, go the long way; so does initial state, which is kept as it was. Alike
 * on all ranks. */
static bool can_wait(const cz_zero *zero, const cz_param_group *group)
{
    const bool depends_on_groups_only =
        zero->partition == CZ_PARTITION_ELEMENTS || zero->partition == CZ_PARTITION_GREEDY;
    return depends_on_groups_only && !zero->ddp && !zero->views_buckets &&
           !cz__optim_any_rule(zero->optim, CZ__HAS_STATE_AT_CREATE) &&
           !cz__param_group_has_state(group) && cz__optim_is_fresh(zero->optim);
}

cz_status cz__zero_settle_shards(cz_zero *zero)
{
    if (!zero->shards_wait)
        return CZ_OK;
    resharding r = {.zero = zero, .partition = zero->partition};
    cz_status status = allocate_progress(zero, &r.shared); /* nothing has been used on any rank */
    if (status)
        goto done;
    r.progress = cz__zero_progress_view(&r.shared);
    status = build_shards(&r);
    if (status)
        goto done;
    take_over(&r);
    zero->shards_wait = false;
done:
    resharding_clear(&r);
    return status;
}

const cz_parts *cz__zero_parts(const cz_zero *zero)
{
    return zero->ddp ? cz__ddp_parts(zero->ddp) : zero->parts;
}

cz_status cz__zero_check_idle(cz_zero *zero)
{
    CZ_TRY(cz__optim_check_trained(zero->optim, "zero"));
    return cz__zero_come_to_rest(zero);
}

cz_status cz__zero_come_to_rest(cz_zero *zero)
{
    CZ_TRY(cz__zero_settle_shards(zero));
    if (zero->ddp && cz__ddp_in_pass(zero->ddp))
        return cz__fail(CZ_ERR_STATE, "zero: a pass of its ddp is under way");
    if (cz__zero_parts(zero))
        CZ_TRY(cz__parts_are_none(cz__zero_parts(zero), "zero"));
    if (zero->ddp)
        CZ_TRY(cz__ddp_settle(zero->ddp));
    return cz__optim_prepare(zero->optim);
}

/* What ranks must have in common: the options given, and all that a step compares. */
static void describe_shards(cz__description *description, const void *context)
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
    resharding r = {.zero = zero, .partition = partition, .owners = owners};
    cz_status status = cz__zero_check_idle(zero);
    if (!status)
        status = cz__zero_check_partition(zero, partition, owners, owner_count);
    status =
        cz__agree_on(zero->group, "zero reshard", describe_shards, &r, status, &zero->settings);
    if (!status)
        status = reshard(&r);
    resharding_clear(&r);
    return status;
}

/* With given owners those of the present parameters stay, and the new ones are dealt out
 * greedily. */
static cz_status present_owners(const cz_zero *zero, int **owners)
{
    *owners = NULL;
    if (zero->partition != CZ_PARTITION_GIVEN)
        return CZ_OK;
    *owners = cz__calloc((size_t)zero->param_count, sizeof **owners);
    if (!*owners)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for a table of %" PRId64 " owners",
                        zero->param_count);
    for (int64_t p = 0; p < zero->param_count; p++)
        (*owners)[p] = cz__shard_map_home(zero->map, p);
    return CZ_OK;
}

/* Which parameters are trainable, looked at again where some value moved or one was frozen or
 * unfrozen. */
static uint64_t trainable_print(cz_zero *zero)
{
    const uint64_t moves = cz__model_moves(zero->model);
    if (zero->trainable_at != moves + 1)
        zero->trainable_print =
            cz__fingerprint(0, zero->tables.trainable, (size_t)zero->param_count);
    zero->trainable_at = moves + 1;
    return zero->trainable_print;
}

/* Members and values of all groups are in one number, which a new group extends; they are listed
 * only where ranks differ in it. */
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

/* What goes with a new group. */
typedef struct addition {
    int *owners;            /* owned, as all */
    cz__zero_sums *sums;    /* if its rule has more of them than others */
    cz__reserve *transfers; /* and memory to move them */
    int sum_count;          /* before */
    bool is_added;
} addition;

static void addition_clear(addition *a)
{
    cz__free(a->owners);
    cz__zero_sums_destroy(&a->sums);
    cz__reserve_destroy(&a->transfers);
}

/* All that this rank can do alone. */
static cz_status add_group(cz_zero *zero, const cz_param_group *group, bool waits, addition *a)
{
    a->sum_count = cz__optim_sum_count(zero->optim);
    if (!waits)
        CZ_TRY(cz__zero_check_idle(zero));
    CZ_TRY(present_owners(zero, &a->owners));
    CZ_TRY(cz__optim_add_group(zero->optim, group));
    a->is_added = true;
    CZ_TRY(cz__overlap_check(zero, zero->overlap));
    if (cz__optim_sum_count(zero->optim) == a->sum_count)
        return CZ_OK;
    CZ_TRY(cz__zero_sums_create(&a->sums, zero));
    return cz__zero_reserve_transfers(&a->transfers, zero);
}

/* All ranks have it. */
static void take_sums(cz_zero *zero, addition *a)
{
    if (!a->sums)
        return;
    cz__zero_sums_destroy(&zero->sums);
    cz__reserve_destroy(&zero->transfers);
    zero->sums = a->sums;
    zero->transfers = a->transfers;
    a->sums = NULL;
    a->transfers = NULL;
}

cz_status cz_zero_add_param_group(cz_zero *zero, const cz_param_group *group)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    addition a = {0};
    if (!zero)
        return cz__fail(CZ_ERR_ARGUMENT, "zero add_param_group: zero is NULL");
    const bool waits = can_wait(zero, group);
    const cz_status added = add_group(zero, group, waits, &a);
    resharding r = {.zero = zero, .partition = zero->partition, .owners = a.owners};
    cz_status status = agree_on_groups(zero, added);
    if (status)
        goto done;
    if (waits) {
        zero->shards_wait = true;
        cz__zero_forget_dict(zero);
    } else {
        status = reshard(&r);
    }
done:
    resharding_clear(&r);
    if (status && a.is_added)
        cz__optim_remove_group(zero->optim);
    if (!status)
        take_sums(zero, &a);
    addition_clear(&a);
    return status;
}
