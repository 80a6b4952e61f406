/* SPDX-License-Identifier: MIT */
/* From options to a shard map. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tensor/model.h"
#include "zero/deal.h"
#include "zero/zero.h"

/* What a partition is made from. */
typedef struct sources {
    int64_t *counts; /* owned, as all that follows; param_count each, as the next three */
    uint8_t *parts;
    int64_t *layout;
    int64_t *members;
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
    cz__free(s->group_sizes);
    cz__free(s->begins);
    cz__free(s->params);
}

static cz_status allocate(sources *s, const cz_zero *zero)
{
    const size_t params = (size_t)zero->param_count;
    const size_t buckets = zero->ddp ? (size_t)cz_ddp_bucket_count(zero->ddp) : 0;
    s->counts = cz__calloc(params, sizeof *s->counts);
    s->parts = cz__calloc(params, sizeof *s->parts);
    s->layout = cz__calloc(params, sizeof *s->layout);
    s->members = cz__calloc(params, sizeof *s->members);
    s->group_sizes = cz__calloc((size_t)cz_optim_group_count(zero->optim), sizeof *s->group_sizes);
    s->begins = cz__calloc(buckets + 1, sizeof *s->begins);
    s->params = cz__calloc(params, sizeof *s->params);
    if (!s->counts || !s->parts || !s->layout || !s->members || !s->group_sizes || !s->begins ||
        !s->params)
        return cz__fail(CZ_ERR_MEMORY, "zero: no memory for the partition of %zu parameters",
                        params);
    return CZ_OK;
}

static cz__part part_of(const cz_zero *zero, int64_t param)
{
    if (cz__optim_group_of(zero->optim, param) < 0)
        return CZ__NOT_OURS;
    return cz_model_requires_grad(zero->model, param) ? CZ__TRAINED : CZ__FROZEN;
}

static void list_members(sources *s, const cz_zero *zero)
{
    int64_t count = 0;
    for (int64_t g = 0; g < cz_optim_group_count(zero->optim); g++) {
        const int64_t *params = cz__optim_group_params(zero->optim, g, &s->group_sizes[g]);
        if (s->group_sizes[g] > 0)
            memcpy(s->members + count, params, (size_t)s->group_sizes[g] * sizeof *params);
        count += s->group_sizes[g];
    }
}

static void list_buckets(sources *s, const cz_zero *zero)
{
    int64_t count = 0;
    const int buckets = zero->ddp ? cz_ddp_bucket_count(zero->ddp) : 0;
    for (int b = 0; b < buckets; b++) {
        s->begins[b] = count;
        for (int64_t k = 0; k < cz_ddp_bucket_param_count(zero->ddp, b); k++)
            s->params[count++] = cz_ddp_bucket_param(zero->ddp, b, k);
    }
    s->begins[buckets] = count;
    s->buckets = (cz__bucket_lists){buckets, s->begins, s->params, s->counts};
}

static cz_status sources_create(sources *s, const cz_zero *zero)
{
    CZ_TRY(allocate(s, zero));
    for (int64_t p = 0; p < zero->param_count; p++) {
        s->counts[p] = cz_tensor_count(cz_model_value(zero->model, p));
        s->parts[p] = (uint8_t)part_of(zero, p);
    }
    cz__model_lay_out(zero->model, s->layout);
    list_members(s, zero);
    list_buckets(s, zero);
    return CZ_OK;
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
                           .group_count = cz_optim_group_count(zero->optim),
                           .group_sizes = s.group_sizes,
                           .members = s.members,
                           .buckets = zero->ddp ? &s.buckets : NULL,
                           .owners = owners,
                           .element_size = cz_dtype_size(zero->dtype)};
    if (status == CZ_OK)
        status = cz__deal_out(&deal, partition, out);
    sources_clear(&s);
    return status;
}
