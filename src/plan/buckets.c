/* SPDX-License-Identifier: MIT */
/* The buckets that a data-parallel model would make, and the staging memory that goes with each. */
#include "base/memory.h"
#include "base/status.h"
#include "ddp/ddp.h"
#include "group/size.h"
#include "plan/object.h"

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
        return cz__fail(CZ_ERR_MEMORY, "plan: a list of %d buckets", count);
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

/* A model on its own makes its buckets anew after the first pass, by the order in which gradients arrive, say that of
 * the fixed layout: what is frozen comes last. */
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
        return cz__fail(CZ_ERR_MEMORY, "plan: a table of %zu parameters",
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
