/* SPDX-License-Identifier: MIT */
/* The buckets of a data-parallel model: made, given memory, and made anew by what the first pass
 * teaches. */
#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "czero/tensor.h"
#include "ddp/ddp.h"
#include "ddp/object.h"
#include "shard/shard.h"

/* ---- which parameters share a bucket ---- */
/* A parameter is put into the open bucket of its type. When that has reached its limit it is
 * closed: it is always a little too large, and never empty. */

#define TYPES 8 /* of floating and integer elements; cz_dtype counts from 1 */

typedef struct open_bucket {
    int64_t count;
    size_t bytes;
    bool first; /* the first of this type has its own limit */
} open_bucket;

void cz__model_param_size(const void *model, int64_t param, cz_dtype *dtype, int64_t *count)
{
    const cz_tensor *value = cz__model_value(model, param);
    *dtype = value->dtype;
    *count = cz_tensor_count(value);
}

int cz__ddp_assign(cz__param_size size_of, const void *context, int64_t count, const int64_t *order,
                   size_t first_bytes, size_t bytes, int *bucket_of)
{
    open_bucket open[TYPES] = {{0}};
    int buckets = 0;
    int64_t begun_at[TYPES] = {0};
    for (int64_t k = 0; k < count; k++) {
        cz_dtype dtype;
        int64_t elements;
        size_of(context, order[k], &dtype, &elements);
        open_bucket *bucket = &open[dtype];
        if (bucket->count++ == 0)
            begun_at[dtype] = k;
        bucket_of[k] = -1 - (int)dtype; /* still open */
        bucket->bytes += (size_t)elements * cz_dtype_size(dtype);
        if (bucket->bytes < (bucket->first ? bytes : first_bytes))
            continue;
        for (int64_t j = begun_at[dtype]; j <= k; j++)
            if (bucket_of[j] == -1 - (int)dtype)
                bucket_of[j] = buckets;
        buckets++;
        *bucket = (open_bucket){0, 0, true};
    }
    for (int64_t k = 0; k < count; k++) {
        const int still_open = bucket_of[k];
        if (still_open >= 0)
            continue;
        for (int64_t j = k; j < count; j++)
            if (bucket_of[j] == still_open)
                bucket_of[j] = buckets;
        buckets++;
    }
    return buckets;
}

/* ---- in the model ---- */

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

static void free_buffers(cz_bucket *bucket)
{
    if (bucket->buffer)
        bucket->ddp->device->release(bucket->buffer);
    for (int k = 0; k < CZ__BUCKET_MEMORIES; k++)
        if (bucket->memories[k].device)
            bucket->memories[k].device->release(bucket->memories[k].data);
}

void cz__ddp_free_buckets(cz_bucket *buckets, int count)
{
    if (buckets) {
        for (int k = 0; k < count; k++) {
            cz__free(buckets[k].include);
            cz_work_destroy(&buckets[k].work);
            cz_work_destroy(&buckets[k].values);
            cz__reserve_destroy(&buckets[k].transfers);
            free_buffers(&buckets[k]);
        }
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
    cz__shard_map_destroy(&draft->map);
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
        const cz_tensor *value = cz__model_value(ddp->model, p);
        const size_t size = cz_dtype_size(value->dtype);
        draft->counts[p] = cz_tensor_count(value);
        narrowest = size < narrowest ? size : narrowest;
    }
    return cz__shard_map_create_even(&draft->map, cz_group_size(ddp->group), ddp->param_count,
                                     draft->counts, draft->sorted, draft->count, draft->begins,
                                     narrowest);
}

static size_t count_bytes(const bucket_draft *draft, const cz_ddp *ddp, const cz_bucket *bucket)
{
    int64_t elements = 0;
    for (int64_t k = 0; k < bucket->count; k++)
        elements += cz_tensor_count(cz__model_value(ddp->model, draft->sorted[bucket->first + k]));
    return (size_t)elements * cz_dtype_size(bucket->dtype);
}

static cz_status fill_buckets(bucket_draft *draft, cz_ddp *ddp, const int64_t *order)
{
    const size_t params = (size_t)ddp->param_count;
    draft->bucket_of = cz__calloc(params, sizeof *draft->bucket_of);
    draft->sorted = cz__calloc(params, sizeof *draft->sorted);
    draft->begins = cz__calloc(params, sizeof *draft->begins);
    draft->counts = cz__calloc(params, sizeof *draft->counts);
    if (!draft->bucket_of || !draft->sorted || !draft->begins || !draft->counts)
        return cz__fail(CZ_ERR_MEMORY, "ddp: no memory for tables of %zu parameters", params);
    const int count = cz__ddp_assign(cz__model_param_size, ddp->model, ddp->param_count, order,
                                     ddp->options.first_bucket_bytes, ddp->options.bucket_bytes,
                                     draft->bucket_of);
    draft->buckets = cz__calloc((size_t)count, sizeof *draft->buckets);
    draft->launch = cz__calloc((size_t)count, sizeof *draft->launch);
    draft->full = cz__calloc((size_t)count, sizeof *draft->full);
    draft->count = draft->buckets ? count : 0;
    if (!draft->buckets || !draft->launch || !draft->full)
        return cz__fail(CZ_ERR_MEMORY, "ddp: no memory for %d buckets", count);
    sort(draft, ddp, order);
    for (int b = 0; b < count; b++) {
        cz_bucket *bucket = &draft->buckets[b];
        draft->launch[b] = b;
        bucket->ddp = ddp;
        bucket->index = b;
        bucket->dtype = cz__model_value(ddp->model, draft->sorted[bucket->first])->dtype;
        bucket->bytes = count_bytes(draft, ddp, bucket);
        bucket->include = cz__calloc(params, sizeof *bucket->include);
        if (!bucket->include)
            return cz__fail(CZ_ERR_MEMORY, "ddp: no memory for bucket %d of %d", b, count);
    }
    return cut(draft, ddp);
}

static void take_over(bucket_draft *draft, cz_ddp *ddp)
{
    cz__ddp_free_buckets(ddp->buckets, ddp->bucket_count);
    cz__free(ddp->order);
    cz__free(ddp->launch);
    cz__free(ddp->full);
    cz__shard_map_destroy(&ddp->map);
    cz__pool_destroy(&ddp->reductions); /* they were for the old buckets */
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
    const cz_status status = fill_buckets(&draft, ddp, order);
    if (!status)
        take_over(&draft, ddp);
    draft_clear(&draft);
    return status;
}

/* ---- staging memory ---- */

/* Of what fits the largest bucket; the segments of smaller ones are smaller. Values have no terms.
 * Means of 16-bit gradients may be f32. */
static cz_status make_pool(cz_ddp *ddp, cz__pool **pool)
{
    size_t longest = 0;
    for (int b = 0; b < ddp->bucket_count; b++) {
        const cz_bucket *bucket = &ddp->buckets[b];
        const bool is_narrow = cz__has_16_bits(bucket->dtype);
        const size_t bytes =
            is_narrow && pool == &ddp->reductions ? 2 * bucket->bytes : bucket->bytes;
        longest = bytes > longest ? bytes : longest;
    }
    if (pool == &ddp->reductions)
        longest = cz__parts_longest(ddp->parts, longest);
    return *pool ? CZ_OK : cz__pool_create(pool, ddp->group, longest, ddp->bucket_count);
}

cz_status cz__ddp_have_pools(cz_ddp *ddp)
{
    if (ddp->hook.run)
        return CZ_OK;
    return make_pool(ddp, &ddp->reductions);
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

/* With staging memory of its own where it cannot be the others', too. */
static cz_status reserve_room(cz_ddp *ddp, cz_bucket *bucket, bool take_turns)
{
    if (!take_turns && cz__reserve_is_bare(bucket->transfers))
        cz__reserve_destroy(&bucket->transfers);
    if (bucket->transfers)
        return CZ_OK;
    return take_turns ? cz__reserve_create_bare(&bucket->transfers, ddp->group)
                      : cz__reserve_create(&bucket->transfers, ddp->group, bucket->bytes);
}

cz_status cz__ddp_reserve(cz_ddp *ddp)
{
    if (!ddp->group)
        return cz__fail(CZ_ERR_STATE, "ddp: it has no group any more");
    const bool take_turns = cz__ddp_values_take_turns(ddp);
    for (int b = 0; b < ddp->bucket_count; b++)
        CZ_TRY(reserve_room(ddp, &ddp->buckets[b], take_turns));
    return take_turns ? make_pool(ddp, &ddp->values) : CZ_OK;
}

void cz__ddp_release(cz_ddp *ddp)
{
    cz__pool_destroy(&ddp->values);
    for (int b = 0; b < ddp->bucket_count; b++)
        cz__reserve_destroy(&ddp->buckets[b].transfers);
}

/* ---- what the first pass teaches: in which order gradients arrive ---- */

static cz_status make_buckets(cz_ddp *ddp)
{
    CZ_TRY(cz__ddp_make_buckets(ddp, ddp->arrivals));
    return cz__ddp_have_pools(ddp);
}

/* After the first pass: by the order in which gradients arrived on rank 0. Those that were not
 * marked there, or take no part, come last. */
static cz_status rebuild(cz_ddp *ddp)
{
    const int64_t params = ddp->param_count;
    uint8_t *seen = cz__calloc((size_t)params, sizeof *seen);
    cz_status status =
        seen ? CZ_OK
             : cz__fail(CZ_ERR_MEMORY, "ddp: no memory for a table of %" PRId64 " parameters",
                        params);
    int64_t count = atomic_load(&ddp->arrived);
    status = cz__agree(ddp->control, status, 0, NULL, "ddp: rebuild");
    if (status)
        goto done;
    for (int64_t k = 0; k < count; k++)
        seen[ddp->arrivals[k]] = 1;
    for (int64_t k = 0; k < params; k++)
        if (!seen[ddp->order[k]])
            ddp->arrivals[count++] = ddp->order[k];
    status = cz_broadcast(ddp->control, ddp->arrivals, params, CZ_I64, cz__ddp_source(ddp),
                          CZ_LABEL("ddp: rebuild"));
    if (status)
        goto done;
    status = cz__agree(ddp->control, make_buckets(ddp), 0, NULL, "ddp: rebuild");
    ddp->rebuilt = ddp->rebuilt || !status;
done:
    cz__free(seen);
    return status;
}

/* Buckets by the arrival of their last gradient; returns how many had one. */
static int order_by_arrival(cz_ddp *ddp)
{
    const int64_t arrived = atomic_load(&ddp->arrived);
    int count = 0;
    for (int64_t k = arrived - 1; k >= 0; k--) { /* the last bucket first, */
        const int bucket = ddp->params[ddp->arrivals[k]].bucket;
        bool known = false;
        for (int n = 0; n < count && !known; n++)
            known = ddp->full[n] == bucket;
        if (!known)
            ddp->full[count++] = bucket;
    }
    for (int n = 0; n < count / 2; n++) { /* then the other way round */
        const int64_t bucket = ddp->full[n];
        ddp->full[n] = ddp->full[count - 1 - n];
        ddp->full[count - 1 - n] = bucket;
    }
    return count;
}

/* The same for a sharded optimizer, whose elements stay where they are: only the order in which
 * buckets start is that of the first pass on rank 0. */
static cz_status agree_on_launch(cz_ddp *ddp)
{
    int count = atomic_load(&ddp->full_count);
    if (count == 0) /* a static graph, in whose first pass nothing was full before the end */
        count = order_by_arrival(ddp);
    for (int b = 0; b < ddp->bucket_count; b++) { /* those that were not full there come last */
        bool known = false;
        for (int k = 0; k < count && !known; k++)
            known = ddp->full[k] == b;
        if (!known)
            ddp->full[count++] = b;
    }
    CZ_TRY(cz_broadcast(ddp->control, ddp->full, ddp->bucket_count, CZ_I64, cz__ddp_source(ddp),
                        CZ_LABEL("ddp: order of buckets")));
    memcpy(ddp->launch, ddp->full, (size_t)ddp->bucket_count * sizeof *ddp->launch);
    ddp->launch_agreed = true;
    return CZ_OK;
}

bool cz__ddp_has_learned_order(const cz_ddp *ddp)
{
    return ddp->options.keep_buckets || ddp->passes == 0 ||
           (ddp->bound ? ddp->launch_agreed : ddp->rebuilt);
}

cz_status cz__ddp_learn_order(cz_ddp *ddp)
{
    if (cz__ddp_has_learned_order(ddp))
        return CZ_OK;
    return ddp->bound ? agree_on_launch(ddp) : rebuild(ddp);
}
