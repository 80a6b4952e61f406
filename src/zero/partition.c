/* SPDX-License-Identifier: MIT */
/* From options to a shard map. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "shard/greedy.h"
#include "tensor/model.h"
#include "zero/bucket_assign.h"
#include "zero/zero.h"

typedef enum part_of_layout { TRAINED, FROZEN, NOT_OURS, PARTS } part_of_layout;

/* What a partition is made from, and its result. */
typedef struct partition_draft {
    int64_t *counts; /* owned, param_count each */
    int64_t *order;
    int64_t *members; /* the parameters of all groups, one group after the other */
    int *owners;
    int64_t *begins; /* owned: where ranges of even cuts begin in `order` */
    int64_t ranges;  /* how many there are so far, and how many parameters `order` has */
    int64_t listed;
    int64_t *group_sizes; /* owned */
    int64_t *loads;       /* owned, per rank */
} partition_draft;

static void draft_clear(partition_draft *draft)
{
    cz__free(draft->counts);
    cz__free(draft->order);
    cz__free(draft->members);
    cz__free(draft->owners);
    cz__free(draft->begins);
    cz__free(draft->group_sizes);
    cz__free(draft->loads);
}

static cz_status draft_create(partition_draft *draft, const cz_zero *zero, int world_size)
{
    const size_t params = (size_t)zero->param_count;
    draft->counts = cz__calloc(params, sizeof *draft->counts);
    draft->order = cz__calloc(params, sizeof *draft->order);
    draft->members = cz__calloc(params, sizeof *draft->members);
    draft->owners = cz__calloc(params, sizeof *draft->owners);
    draft->group_sizes =
        cz__calloc((size_t)cz_optim_group_count(zero->optim), sizeof *draft->group_sizes);
    const size_t buckets = zero->ddp ? (size_t)cz_ddp_bucket_count(zero->ddp) : 0;
    draft->begins = cz__calloc(buckets + PARTS, sizeof *draft->begins);
    draft->loads = cz__calloc((size_t)world_size, sizeof *draft->loads);
    if (!draft->counts || !draft->order || !draft->members || !draft->owners || !draft->begins ||
        !draft->group_sizes || !draft->loads)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for the partition of %zu parameters",
                        params);
    for (int64_t p = 0; p < zero->param_count; p++)
        draft->counts[p] = cz_tensor_count(cz_model_value(zero->model, p));
    return CZ_OK;
}

static part_of_layout part_of(const cz_zero *zero, int64_t param)
{
    if (cz__optim_group_of(zero->optim, param) < 0)
        return NOT_OURS;
    return cz_model_requires_grad(zero->model, param) ? TRAINED : FROZEN;
}

/* The parameters of a part, in the order of `all`, are appended to the layout. */
static void append_part(const cz_zero *zero, part_of_layout part, const int64_t *all,
                        int64_t all_count, partition_draft *draft)
{
    for (int64_t k = 0; k < all_count; k++)
        if (part_of(zero, all[k]) == part)
            draft->order[draft->listed++] = all[k];
}

/* A range for each bucket that travels on its own: of what is trained, or with what is frozen after it. */
static void append_buckets(const cz_zero *zero, part_of_layout last, int64_t *all,
                           partition_draft *draft)
{
    for (int b = 0; b < cz_ddp_bucket_count(zero->ddp); b++) {
        const int64_t count = cz_ddp_bucket_param_count(zero->ddp, b);
        draft->begins[draft->ranges++] = draft->listed;
        for (int64_t k = 0; k < count; k++)
            all[k] = cz_ddp_bucket_param(zero->ddp, b, k);
        for (part_of_layout part = TRAINED; part <= last; part++)
            append_part(zero, part, all, count, draft);
    }
}

/* A range for each part, so that both what is trained now and what may be unfrozen later is even. */
static cz_status cut_elements(const cz_zero *zero, int world_size, partition_draft *draft,
                              cz_shard_map **out)
{
    int64_t *all = draft->members; /* not needed otherwise here */
    if (zero->ddp)
        append_buckets(zero, TRAINED, all, draft);
    cz__model_lay_out(zero->model, all);
    for (part_of_layout part = zero->ddp ? FROZEN : TRAINED; part < PARTS; part++) {
        draft->begins[draft->ranges++] = draft->listed;
        append_part(zero, part, all, zero->param_count, draft);
    }
    return cz_shard_map_create_even(out, world_size, zero->param_count, draft->counts, draft->order,
                                    draft->ranges, draft->begins, cz_dtype_size(zero->dtype));
}

static cz_status deal_greedily(const cz_zero *zero, int world_size, partition_draft *draft,
                               cz_shard_map **out)
{
    const int64_t groups = cz_optim_group_count(zero->optim);
    int64_t count = 0;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t *params = cz__optim_group_params(zero->optim, g, &draft->group_sizes[g]);
        if (draft->group_sizes[g] > 0)
            memcpy(draft->members + count, params, (size_t)draft->group_sizes[g] * sizeof *params);
        count += draft->group_sizes[g];
    }
    CZ_TRY(cz_partition_greedy(world_size, zero->param_count, draft->counts, groups,
                               draft->group_sizes, draft->members, draft->owners, draft->order));
    return cz_shard_map_create_owners(out, world_size, zero->param_count, draft->counts,
                                      draft->owners, draft->order);
}

/* Whole buckets with what is frozen in them; or pieces of what is trained, the rest onto these greedily. */
static cz_status deal_buckets(const cz_zero *zero, int world_size, bool whole,
                              partition_draft *draft, cz_shard_map **out)
{
    int64_t *members = draft->members, rest = 0;
    for (int64_t p = 0; p < zero->param_count; p++)
        draft->owners[p] = -1;
    append_buckets(zero, whole ? FROZEN : TRAINED, members, draft);
    draft->begins[draft->ranges] = draft->listed;
    const cz__bucket_lists lists = {(int)draft->ranges, draft->begins, draft->order, draft->counts};
    if (whole)
        cz__assign_whole_buckets(&lists, world_size, draft->owners);
    else
        CZ_TRY(cz__assign_bucket_pieces(&lists, world_size, draft->loads, draft->owners, members));
    if (!whole && draft->listed > 0)
        memcpy(draft->order, members, (size_t)draft->listed * sizeof *members);
    for (int64_t p = 0; p < zero->param_count; p++)
        if (draft->owners[p] < 0 && part_of(zero, p) == FROZEN)
            members[rest++] = p;
    CZ_TRY(cz__partition_greedy_onto(world_size, draft->loads, zero->param_count, draft->counts, 1,
                                     &rest, members, draft->owners, draft->order + draft->listed));
    draft->listed += rest;
    cz__model_lay_out(zero->model, members);
    append_part(zero, NOT_OURS, members, zero->param_count, draft);
    return cz_shard_map_create_owners(out, world_size, zero->param_count, draft->counts,
                                      draft->owners, draft->order);
}

static cz_status check_owner(const cz_zero *zero, int64_t param, int owner)
{
    const int world_size = cz_group_size(zero->group);
    const char *name = cz_model_name(zero->model, param);
    if (owner < -1 || owner >= world_size)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: the owner of parameter %" PRId64
                        " '%.60s' is rank %d, the group has %d ranks",
                        param, name, owner, world_size);
    if (owner == -1 && cz_zero_is_trained(zero, param))
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
        return cz__fail(CZ_ERR_ARGUMENT,
                        "zero: option partition is %s, which needs option ddp, whose buckets it "
                        "deals out",
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
    for (int64_t p = 0; given && p < zero->param_count; p++)
        CZ_TRY(check_owner(zero, p, owners[p]));
    return CZ_OK;
}

/* As given; greedily onto that where nobody is given. */
static cz_status take_owners(const cz_zero *zero, int world_size, const int *owners,
                             partition_draft *draft, cz_shard_map **out)
{
    int64_t ownerless = 0;
    for (int64_t p = 0; p < zero->param_count; p++) {
        const bool ours = cz__optim_group_of(zero->optim, p) >= 0;
        draft->owners[p] = ours ? owners[p] : -1;
        if (draft->owners[p] >= 0)
            draft->loads[draft->owners[p]] += draft->counts[p];
        else if (ours)
            draft->members[ownerless++] = p;
    }
    CZ_TRY(cz__partition_greedy_onto(world_size, draft->loads, zero->param_count, draft->counts, 1,
                                     &ownerless, draft->members, draft->owners, NULL));
    return cz_shard_map_create_owners(out, world_size, zero->param_count, draft->counts,
                                      draft->owners, NULL);
}

cz_status cz__zero_partition(const cz_zero *zero, cz_partition partition, const int *owners,
                             cz_shard_map **out)
{
    const int world_size = cz_group_size(zero->group);
    partition_draft draft = {0};
    cz_status status = draft_create(&draft, zero, world_size);
    if (status == CZ_OK && partition == CZ_PARTITION_ELEMENTS)
        status = cut_elements(zero, world_size, &draft, out);
    else if (status == CZ_OK && partition == CZ_PARTITION_GREEDY)
        status = deal_greedily(zero, world_size, &draft, out);
    else if (status == CZ_OK && partition == CZ_PARTITION_GIVEN)
        status = take_owners(zero, world_size, owners, &draft, out);
    else if (status == CZ_OK)
        status = deal_buckets(zero, world_size, partition == CZ_PARTITION_BUCKETS, &draft, out);
    draft_clear(&draft);
    return status;
}
