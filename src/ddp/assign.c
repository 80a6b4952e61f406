/* SPDX-License-Identifier: MIT */
/* Which parameters share a bucket. A parameter is put into the open bucket of its type; when that has
 * reached its limit it is closed, so a bucket is always a little too large and never empty. */
#include "ddp/assign.h"

#include "czero/tensor.h"

#define TYPES 8 /* of floating and integer elements; cz_dtype counts from 1 */

typedef struct open_bucket {
    int64_t count;
    size_t bytes;
    bool first; /* the first of this type has its own limit */
} open_bucket;

void cz__model_param_size(const void *model, int64_t param, cz_dtype *dtype, int64_t *count)
{
    const cz_tensor *value = cz_model_value(model, param);
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
