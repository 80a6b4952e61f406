/* SPDX-License-Identifier: MIT */
/* The buckets of a data-parallel model: made, and asked. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ddp/object.h"

/* New buckets beside the present ones. */
typedef struct bucket_draft {
    int *bucket_of;  /* owned: of each place in `order` */
    int64_t *sorted; /* owned until it takes over, as the others: the new order */
    int64_t *begins; /* owned, to the end: where each bucket begins in it */
    int64_t *counts; /* owned, to the end: elements of each parameter */
    cz_bucket *buckets;
    int64_t *launch, *full;
    cz_shard_map *map;
    int count;
} bucket_draft;

void cz__ddp_free_buckets(cz_bucket *buckets, int count)
{
    for (int k = 0; buckets && k < count; k++) {
        cz__free(buckets[k].include);
        cz_work_destroy(&buckets[k].work);
        cz_work_destroy(&buckets[k].values);
        cz__reserve_destroy(&buckets[k].transfers);
        cz__ddp_free_buffers(&buckets[k]);
    }
    cz__free(buckets);
}

static void draft_clear(bucket_draft *draft)
{
    cz__free(draft->bucket_of);
    cz__free(draft->sorted);
    cz__free(draft->begins);
    cz__free(draft->counts);
    cz__free(draft->launch);
    cz__free(draft->full);
    cz__ddp_free_buckets(draft->buckets, draft->count);
    cz_shard_map_destroy(&draft->map);
}

/* Counting sort by bucket, so that a bucket keeps the order. */
static void sort(bucket_draft *draft, const cz_ddp *ddp, const int64_t *order)
{
    for (int64_t k = 0; k < ddp->param_count; k++)
        draft->buckets[draft->bucket_of[k]].count++;
    int64_t begin = 0;
    for (int b = 0; b < draft->count; b++) {
        draft->begins[b] = draft->buckets[b].first = begin;
        begin += draft->buckets[b].count;
    }
    for (int64_t k = 0; k < ddp->param_count; k++)
        draft->sorted[draft->begins[draft->bucket_of[k]]++] = order[k];
    for (int b = 0; b < draft->count; b++)
        draft->begins[b] = draft->buckets[b].first;
}

/* Cuts fall on whole lines of the narrowest type, so on those of all. */
static cz_status cut(bucket_draft *draft, const cz_ddp *ddp)
{
    size_t narrowest = sizeof(double);
    for (int64_t p = 0; p < ddp->param_count; p++) {
        const cz_tensor *value = cz_model_value(ddp->model, p);
        const size_t size = cz_dtype_size(value->dtype);
        draft->counts[p] = cz_tensor_count(value);
        narrowest = size < narrowest ? size : narrowest;
    }
    return cz_shard_map_create_even(&draft->map, cz_group_size(ddp->group), ddp->param_count,
                                    draft->counts, draft->sorted, draft->count, draft->begins,
                                    narrowest);
}

static cz_status fill(bucket_draft *draft, cz_ddp *ddp, const int64_t *order)
{
    const size_t params = (size_t)ddp->param_count;
    draft->bucket_of = cz__calloc(params, sizeof *draft->bucket_of);
    draft->sorted = cz__calloc(params, sizeof *draft->sorted);
    draft->begins = cz__calloc(params, sizeof *draft->begins);
    draft->counts = cz__calloc(params, sizeof *draft->counts);
    if (!draft->bucket_of || !draft->sorted || !draft->begins || !draft->counts)
        return cz__fail(CZ_ERR_MEMORY, "ddp: tables of %zu parameters", params);
    const int count = cz__ddp_assign(cz__model_param_size, ddp->model, ddp->param_count, order,
                                     ddp->options.first_bucket_bytes, ddp->options.bucket_bytes,
                                     draft->bucket_of);
    draft->buckets = cz__calloc((size_t)count, sizeof *draft->buckets);
    draft->launch = cz__calloc((size_t)count, sizeof *draft->launch);
    draft->full = cz__calloc((size_t)count, sizeof *draft->full);
    draft->count = draft->buckets ? count : 0;
    if (!draft->buckets || !draft->launch || !draft->full)
        return cz__fail(CZ_ERR_MEMORY, "ddp: %d buckets", count);
    sort(draft, ddp, order);
    for (int b = 0; b < count; b++) {
        cz_bucket *bucket = &draft->buckets[b];
        draft->launch[b] = b;
        bucket->ddp = ddp;
        bucket->index = b;
        bucket->dtype = cz_model_value(ddp->model, draft->sorted[bucket->first])->dtype;
        bucket->include = cz__calloc(params, sizeof *bucket->include);
        if (!bucket->include)
            return cz__fail(CZ_ERR_MEMORY, "ddp: bucket %d of %d", b, count);
    }
    return cut(draft, ddp);
}

static void take_over(bucket_draft *draft, cz_ddp *ddp)
{
    cz__ddp_free_buckets(ddp->buckets, ddp->bucket_count);
    cz__free(ddp->order);
    cz__free(ddp->launch);
    cz__free(ddp->full);
    cz_shard_map_destroy(&ddp->map);
    cz__pool_destroy(&ddp->reductions); /* they were for the old buckets */
    cz__pool_destroy(&ddp->gathers);
    ddp->launch = draft->launch;
    ddp->full = draft->full;
    ddp->buckets = draft->buckets;
    ddp->bucket_count = draft->count;
    ddp->order = draft->sorted;
    ddp->map = draft->map;
    for (int b = 0; b < ddp->bucket_count; b++)
        for (int64_t k = 0; k < ddp->buckets[b].count; k++)
            ddp->params[ddp->order[ddp->buckets[b].first + k]].bucket = b;
    atomic_store(&ddp->arrived, 0); /* both tell of the old ones */
    atomic_store(&ddp->full_count, 0);
    draft->buckets = NULL;
    draft->sorted = draft->launch = draft->full = NULL;
    draft->map = NULL;
}

cz_status cz__ddp_make_buckets(cz_ddp *ddp, const int64_t *order)
{
    bucket_draft draft = {0};
    const cz_status status = fill(&draft, ddp, order);
    if (status == CZ_OK)
        take_over(&draft, ddp);
    draft_clear(&draft);
    return status;
}

/* ---- staging memory ---- */

static size_t bucket_bytes(const cz_bucket *bucket)
{
    return (size_t)cz__ddp_elements(bucket) * cz_dtype_size(bucket->dtype);
}

/* Of what fits the largest bucket; the segments of smaller ones are smaller. */
cz_status cz__ddp_make_pool(cz_ddp *ddp, cz__pool **pool)
{
    size_t longest = 0;
    for (int b = 0; b < ddp->bucket_count; b++) {
        const size_t bytes = bucket_bytes(&ddp->buckets[b]);
        longest = bytes > longest ? bytes : longest;
    }
    return *pool ? CZ_OK : cz__pool_create(pool, ddp->group, longest, ddp->bucket_count);
}

cz_status cz__ddp_have_pools(cz_ddp *ddp)
{
    if (ddp->hook.run)
        return CZ_OK;
    CZ_TRY(cz__ddp_make_pool(ddp, &ddp->reductions));
    return cz__ddp_reduces_to_owners(ddp) ? CZ_OK : cz__ddp_make_pool(ddp, &ddp->gathers);
}

size_t cz__ddp_bytes(int64_t params, int buckets)
{
    const cz_ddp *ddp = NULL;
    const size_t per_param = sizeof *ddp->params + sizeof *ddp->order + sizeof *ddp->trained +
                             sizeof *ddp->gradients + sizeof *ddp->results + sizeof *ddp->arrivals +
                             sizeof *ddp->taking + sizeof *ddp->offsets + sizeof *ddp->buffered +
                             sizeof *ddp->overlaps.gradients;
    const size_t per_bucket = sizeof *ddp->buckets + sizeof *ddp->launch + sizeof *ddp->full +
                              (size_t)params * sizeof *ddp->buckets->include;
    return sizeof *ddp + (size_t)params * per_param + (size_t)buckets * per_bucket;
}

int64_t cz__ddp_elements(const cz_bucket *bucket)
{
    const cz_ddp *ddp = bucket->ddp;
    int64_t elements = 0;
    for (int64_t k = 0; k < bucket->count; k++)
        elements += cz_tensor_count(cz_model_value(ddp->model, ddp->order[bucket->first + k]));
    return elements;
}

int cz_ddp_bucket_count(const cz_ddp *ddp)
{
    return ddp ? ddp->bucket_count : -1;
}

int64_t cz_ddp_bucket_param_count(const cz_ddp *ddp, int bucket)
{
    return bucket >= 0 && bucket < cz_ddp_bucket_count(ddp) ? ddp->buckets[bucket].count : -1;
}

int64_t cz_ddp_bucket_param(const cz_ddp *ddp, int bucket, int64_t place)
{
    if (place < 0 || place >= cz_ddp_bucket_param_count(ddp, bucket))
        return -1;
    return ddp->order[ddp->buckets[bucket].first + place];
}

bool cz_ddp_rebuilt(const cz_ddp *ddp)
{
    return ddp && ddp->rebuilt;
}
