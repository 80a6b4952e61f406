/* SPDX-License-Identifier: MIT */
/* Buckets and maps as a training would make them: who owns what, asked for all ranks at the same
 * time, and the bytes that each rank sends. */
#include "base/memory.h"
#include "base/status.h"
#include "ddp/ddp.h"
#include "operation/size.h"
#include "plan/object.h"
#include "shard/shard.h"
#include "zero/deal.h"

/* ---- bytes sent ---- */
/* What a rank sends in a step. */

/* Do owners alone get gradients from buckets? */
static bool reduces_to_owners(const cz_plan *plan)
{
    return !plan->options.unsharded && !plan->options.all_reduce;
}

/* Its part of what others own goes to these, as each of its terms, */
static uint64_t reduce(const cz_plan *plan, int rank, uint64_t own, size_t size)
{
    const cz__leaves leaves = cz__plan_leaves(plan);
    const uint64_t once = ((uint64_t)plan->shapes[CZ_SHAPE_PARAM].elements - own) * size;
    return cz__plan_times(once, (uint64_t)cz__leaves_terms(&leaves, rank));
}

/* and what it owns goes to everybody. */
static uint64_t gather(const cz_plan *plan, uint64_t own, size_t size)
{
    return cz__plan_times((uint64_t)(plan->options.world_size - 1), own * size);
}

uint64_t cz__plan_sent(const cz_plan *plan, int rank)
{
    const cz_plan_options *o = &plan->options;
    const uint64_t owned = (uint64_t)plan->ranks.slotted[rank];
    const uint64_t reduced = (uint64_t)plan->ranks.reduced[rank];
    const size_t wire = o->wire ? cz_dtype_size(o->wire) : plan->element_size;
    uint64_t sent = 0;
    if (o->ddp && rank == 0) /* its buffers are everybody's in each pass */
        sent = cz__plan_times((uint64_t)(o->world_size - 1), plan->shapes[CZ_SHAPE_BUFFER].bytes);
    if (reduces_to_owners(plan))
        sent = cz__plan_plus(sent, reduce(plan, rank, owned, plan->element_size));
    else
        sent = cz__plan_plus(
            sent, cz__plan_plus(reduce(plan, rank, reduced, wire), gather(plan, reduced, wire)));
    return o->unsharded ? sent : cz__plan_plus(sent, gather(plan, owned, plan->element_size));
}

/* ---- buckets ---- */
/* The buckets that a data-parallel model would make, and the staging memory that goes with each. */

static void size_of(const void *context, int64_t param, cz_dtype *dtype, int64_t *count)
{
    const cz__plan_draft *d = context;
    *dtype = (cz_dtype)d->dtypes[param];
    *count = d->counts[param];
}

/* Counting sort by bucket, so that a bucket keeps the order. */
static cz_status list(cz__plan_draft *d, const int *bucket_of, int count)
{
    const int64_t params = d->plan->param_count;
    d->begins = cz__calloc((size_t)count + 2, sizeof *d->begins);
    d->params = cz__calloc((size_t)params, sizeof *d->params);
    if (!d->begins || !d->params)
        return cz__fail(CZ_ERR_MEMORY, "plan: no memory for a list of %d buckets", count);
    int64_t *place = d->begins + 1; /* begins[b + 1] runs from the begin of b to its end */
    for (int64_t k = 0; k < params; k++)
        place[bucket_of[k] + 1]++;
    for (int b = 0; b < count; b++)
        place[b + 1] += place[b];
    for (int64_t k = 0; k < params; k++)
        d->params[place[bucket_of[k]]++] = d->layout[k];
    d->buckets = (cz__bucket_lists){count, d->begins, d->params, d->counts};
    return CZ_OK;
}

/* A hook's all-reduces are all in flight at the same time, if the worst comes to the worst. */
static void add_bucket(const cz__plan_draft *d, int bucket)
{
    cz_plan *plan = d->plan;
    const cz_plan_options *o = &plan->options;
    size_t elements = 0, bytes = 0;
    for (int64_t k = d->begins[bucket]; k < d->begins[bucket + 1]; k++) {
        const int64_t p = d->params[k];
        elements += (size_t)d->counts[p];
        bytes += (size_t)d->counts[p] * cz_dtype_size((cz_dtype)d->dtypes[p]);
    }
    const size_t wire = elements * cz_dtype_size(o->wire);
    plan->longest = bytes > plan->longest ? bytes : plan->longest;
    plan->bucket_bytes += bytes;
    plan->hook_staging += cz__staging_class(cz__staging_of(
        o->world_size, o->segment_bytes, cz__all_reduce_longest(wire, o->world_size)));
    plan->value_staging += cz__staging_of(o->world_size, o->segment_bytes, bytes);
}

/* A model on its own makes its buckets anew after the first pass, by the order in which gradients
 * arrive, say that of the fixed layout: what is frozen comes last. */
static void order_by_arrival(cz__plan_draft *d)
{
    int64_t *order = d->members, next = 0; /* of no other use without a sharded optimizer */
    for (int trained = 1; trained >= 0; trained--)
        for (int64_t k = 0; k < d->plan->param_count; k++)
            if (d->trains[d->layout[k]] == trained)
                order[next++] = d->layout[k];
    d->members = d->layout;
    d->layout = order;
}

cz_status cz__plan_buckets(cz__plan_draft *d)
{
    cz_plan *plan = d->plan;
    if (plan->options.unsharded)
        order_by_arrival(d);
    int *bucket_of = cz__calloc((size_t)plan->param_count, sizeof *bucket_of);
    if (!bucket_of)
        return cz__fail(CZ_ERR_MEMORY, "plan: no memory for a table of %zu parameters",
                        (size_t)plan->param_count);
    const int count =
        cz__ddp_assign(size_of, d, plan->param_count, d->layout, plan->options.first_bucket_bytes,
                       plan->options.bucket_bytes, bucket_of);
    const cz_status status = list(d, bucket_of, count);
    cz__free(bucket_of);
    if (status != CZ_OK)
        return status;
    plan->bucket_count = count;
    for (int b = 0; b < count; b++)
        add_bucket(d, b);
    return CZ_OK;
}

/* ---- tables of ranks ---- */

static cz_status allocate(cz__plan_draft *d)
{
    cz__plan_ranks *ranks = &d->plan->ranks;
    int64_t **const arrays[] = {&ranks->saved,   &ranks->slotted, &ranks->spans,
                                &ranks->reduced, &ranks->buffers, &d->spans};
    const size_t count = (size_t)d->plan->options.world_size + 1;
    ranks->columns = cz__calloc((size_t)d->plan->slots * count, sizeof *ranks->columns);
    if (!ranks->columns)
        return cz__fail(CZ_ERR_MEMORY, "plan: no memory for tables of %zu ranks", count - 1);
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++)
        if (!(*arrays[k] = cz__calloc(count, sizeof **arrays[k])))
            return cz__fail(CZ_ERR_MEMORY, "plan: no memory for tables of %zu ranks", count - 1);
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
                           .group_count = plan->options.group_count + 1,
                           .group_sizes = d->group_sizes,
                           .members = d->members,
                           .buckets = plan->options.ddp ? &d->buckets : NULL,
                           .element_size = plan->element_size,
                           .granules = d->granules,
                           .costs = d->costs};
    return cz__deal_out(&deal, plan->options.partition, out);
}

/* The map of a data-parallel model: each bucket cut evenly. */
static cz_status make_buckets(const cz__plan_draft *d, cz_shard_map **out)
{
    size_t narrowest = sizeof(double);
    for (int64_t p = 0; p < d->plan->param_count; p++) {
        const size_t size = cz_dtype_size((cz_dtype)d->dtypes[p]);
        narrowest = size < narrowest ? size : narrowest;
    }
    return cz__shard_map_create_even(out, d->plan->options.world_size, d->plan->param_count,
                                     d->counts, d->params, d->buckets.count, d->begins, narrowest);
}

/* Of a checkpoint without a sharded optimizer. */
static cz_status make_even(const cz__plan_draft *d, cz_shard_map **out)
{
    return cz__shard_map_create_even(out, d->plan->options.world_size, d->plan->param_count,
                                     d->counts, NULL, 0, NULL, d->plan->element_size);
}

/* ---- asked ---- */

/* Which elements have slot k of `slots`? The last ones have all. */
static cz_status tally_slots(cz__plan_draft *d, const cz_shard_map *map)
{
    cz_plan *plan = d->plan;
    const int rows = plan->options.world_size + 1;
    uint8_t *has = cz__calloc((size_t)plan->param_count, sizeof *has);
    if (!has)
        return cz__fail(CZ_ERR_MEMORY, "plan: no memory for a table of %zu parameters",
                        (size_t)plan->param_count);
    for (int k = 0; k < plan->slots; k++) {
        const bool common = k >= plan->slots - plan->common_slots;
        for (int64_t p = 0; p < plan->param_count; p++) {
            has[p] = d->trains[p] && (common || d->slots[p] > k);
            plan->elements[k] += has[p] ? d->counts[p] : 0;
        }
        cz__shard_map_tally(map, has, plan->ranks.columns + (int64_t)k * rows, d->spans);
    }
    cz__free(has);
    return CZ_OK;
}

static cz_status tally_state(cz__plan_draft *d)
{
    cz_plan *plan = d->plan;
    cz_shard_map *map = NULL;
    CZ_TRY(plan->options.unsharded ? make_even(d, &map) : make_sharded(d, &map));
    const cz_status status = tally_slots(d, map);
    cz__shard_map_tally(map, d->trains, plan->ranks.slotted, d->spans);
    cz__shard_map_tally(map, NULL, plan->ranks.saved, plan->ranks.spans);
    plan->map_bytes = cz__shard_map_bytes(map);
    cz__shard_map_destroy(&map);
    return status;
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
    if (!plan->options.ddp || reduces_to_owners(plan))
        return CZ_OK;
    if (plan->options.wire) {
        tally_hook(d);
        return CZ_OK;
    }
    CZ_TRY(make_buckets(d, &map));
    cz__shard_map_tally(map, d->trains, plan->ranks.reduced, d->spans);
    cz__shard_map_destroy(&map);
    return CZ_OK;
}

/* A checkpoint deals out buffers whole, the largest first. */
static cz_status deal_buffers(const cz__plan_draft *d)
{
    const cz_plan *plan = d->plan;
    const int64_t count = plan->shapes[CZ_SHAPE_BUFFER].count;
    int64_t *bytes = cz__calloc((size_t)count, sizeof *bytes), next = 0;
    int *owners = cz__calloc((size_t)count, sizeof *owners);
    cz_status status =
        bytes && owners ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "plan: no memory for a list of buffers");
    if (status)
        goto done;
    for (int64_t i = 0; i < d->shapes->count; i++)
        if (d->shapes->kinds[i] == CZ_SHAPE_BUFFER)
            bytes[next++] =
                d->shapes->elements[i] * (int64_t)cz_dtype_size((cz_dtype)d->shapes->dtypes[i]);
    if (count > 0)
        status = cz__partition_greedy(plan->options.world_size, count, bytes, 0, NULL, NULL, owners,
                                      NULL);
    if (status)
        goto done;
    for (int64_t i = 0; i < count; i++)
        plan->ranks.buffers[owners[i]] += bytes[i];
done:
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
