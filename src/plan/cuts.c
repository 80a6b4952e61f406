/* SPDX-License-Identifier: MIT */
/* Who owns what: the maps that a training would make, asked for all ranks at the same time and let go again. */
#include "base/memory.h"
#include "base/status.h"
#include "group/size.h"
#include "plan/object.h"
#include "shard/shard.h"
#include "zero/deal.h"

static cz_status allocate(cz__plan_draft *d)
{
    cz__plan_ranks *ranks = &d->plan->ranks;
    int64_t **const arrays[] = {&ranks->trained, &ranks->saved,   &ranks->slotted, &ranks->spans,
                                &ranks->reduced, &ranks->buffers, &d->spans};
    const size_t count = (size_t)d->plan->options.world_size + 1;
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++)
        if (!(*arrays[k] = cz__calloc(count, sizeof **arrays[k])))
            return cz__fail(CZ_ERR_MEMORY, "plan: tables of %zu ranks", count - 1);
    return CZ_OK;
}

/* ---- maps ---- */

static cz_status make_sharded(const cz__plan_draft *d, cz_shard_map **out)
{
    cz_plan *plan = d->plan;
    const cz__deal deal = {.world_size = plan->options.world_size,
                           .param_count = plan->param_count,
                           .counts = d->counts,
                           .parts = d->parts,
                           .layout = d->layout,
                           .group_count = 1,
                           .group_sizes = &plan->param_count,
                           .members = d->members,
                           .buckets = plan->options.ddp ? &d->buckets : NULL,
                           .element_size = plan->element_size};
    plan->ranges = plan->options.partition == CZ_PARTITION_ELEMENTS ? cz__deal_ranges(&deal) : 0;
    return cz__deal_out(&deal, plan->options.partition, out);
}

/* That of a data-parallel model: each bucket cut evenly. */
static cz_status make_buckets(const cz__plan_draft *d, cz_shard_map **out)
{
    size_t narrowest = sizeof(double);
    for (int64_t p = 0; p < d->plan->param_count; p++) {
        const size_t size = cz_dtype_size((cz_dtype)d->dtypes[p]);
        narrowest = size < narrowest ? size : narrowest;
    }
    return cz_shard_map_create_even(out, d->plan->options.world_size, d->plan->param_count,
                                    d->counts, d->params, d->buckets.count, d->begins, narrowest);
}

/* Of a checkpoint without a sharded optimizer. */
static cz_status make_even(const cz__plan_draft *d, cz_shard_map **out)
{
    return cz_shard_map_create_even(out, d->plan->options.world_size, d->plan->param_count,
                                    d->counts, NULL, 0, NULL, d->plan->element_size);
}

/* ---- asked ---- */

static cz_status tally_state(cz__plan_draft *d)
{
    const cz_plan *plan = d->plan;
    cz_shard_map *map = NULL;
    CZ_TRY(plan->options.unsharded ? make_even(d, &map) : make_sharded(d, &map));
    cz__shard_map_tally(map, d->trains, plan->ranks.slotted, d->spans);
    cz__shard_map_tally(map, NULL, plan->ranks.saved, plan->ranks.spans);
    for (int r = 0; r < plan->options.world_size; r++)
        plan->ranks.trained[r] = plan->options.unsharded ? plan->shapes[CZ_SHAPE_PARAM].elements
                                                         : plan->ranks.slotted[r];
    cz_shard_map_destroy(&map);
    return CZ_OK;
}

/* What ranks add up in a hook's all-reduces, as differences to the rank before. */
static void tally_hook(const cz__plan_draft *d)
{
    const cz_plan *plan = d->plan;
    const size_t size = cz_dtype_size(plan->options.wire);
    const int ranks = plan->options.world_size;
    int64_t *own = plan->ranks.reduced;
    for (int b = 0; b < d->buckets.count; b++) {
        int64_t count = 0, each;
        for (int64_t k = d->begins[b]; k < d->begins[b + 1]; k++)
            count += d->trains[d->params[k]] ? d->counts[d->params[k]] : 0;
        const int first_extra = cz__even_blocks(count, size, ranks, &each);
        const int64_t block = 64 / (int64_t)size;
        const int64_t all = block * (each * ranks + ranks - first_extra);
        own[0] += each * block;
        own[first_extra] += block;
        own[ranks - 1] -= all - count; /* the last block may be short */
    }
    for (int r = 1; r < ranks; r++)
        own[r] += own[r - 1];
}

static cz_status tally_reductions(cz__plan_draft *d)
{
    const cz_plan *plan = d->plan;
    cz_shard_map *map = NULL;
    if (!plan->options.ddp || cz__plan_to_owners(plan))
        return CZ_OK;
    if (plan->options.wire) {
        tally_hook(d);
        return CZ_OK;
    }
    CZ_TRY(make_buckets(d, &map));
    cz__shard_map_tally(map, d->trains, plan->ranks.reduced, d->spans);
    cz_shard_map_destroy(&map);
    return CZ_OK;
}

/* A checkpoint deals them out whole, the largest first. */
static cz_status deal_buffers(const cz__plan_draft *d)
{
    const cz_plan *plan = d->plan;
    const int64_t count = plan->shapes[CZ_SHAPE_BUFFER].count;
    int64_t *bytes = cz__calloc((size_t)count, sizeof *bytes), next = 0;
    int *owners = cz__calloc((size_t)count, sizeof *owners);
    cz_status status = bytes && owners ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "plan: a list of buffers");
    for (int64_t i = 0; status == CZ_OK && i < d->shapes->count; i++)
        if (d->shapes->kinds[i] == CZ_SHAPE_BUFFER)
            bytes[next++] =
                d->shapes->elements[i] * (int64_t)cz_dtype_size((cz_dtype)d->shapes->dtypes[i]);
    if (status == CZ_OK && count > 0)
        status = cz_partition_greedy(plan->options.world_size, count, bytes, 0, NULL, NULL, owners,
                                     NULL);
    for (int64_t i = 0; status == CZ_OK && i < count; i++)
        plan->ranks.buffers[owners[i]] += bytes[i];
    cz__free(bytes);
    cz__free(owners);
    return status;
}

cz_status cz__plan_cuts(cz__plan_draft *d)
{
    CZ_TRY(allocate(d));
    CZ_TRY(tally_state(d));
    CZ_TRY(tally_reductions(d));
    return deal_buffers(d);
}
