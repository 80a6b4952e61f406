/* SPDX-License-Identifier: MIT */
/* What a hook asks for while it works on a bucket. */
#include <inttypes.h>

#include "base/status.h"
#include "ddp/object.h"
#include "tensor/convert.h"
#include "tensor/model.h"

int cz_bucket_index(const cz_bucket *bucket)
{
    return bucket ? bucket->index : -1;
}

bool cz_bucket_is_last(const cz_bucket *bucket)
{
    if (!bucket)
        return false;
    const cz_ddp *ddp = bucket->ddp;
    int last = ddp->bucket_count - 1;
    while (last > 0 && ddp->buckets[ddp->launch[last]].taking == 0)
        last--;
    return ddp->launch[last] == bucket->index;
}

int64_t cz_bucket_param_count(const cz_bucket *bucket)
{
    return bucket ? bucket->taking : 0;
}

static bool has_place(const cz_bucket *bucket, int64_t place)
{
    return bucket && place >= 0 && place < bucket->taking;
}

int64_t cz_bucket_param(const cz_bucket *bucket, int64_t place)
{
    return has_place(bucket, place) ? bucket->ddp->taking[bucket->first + place] : -1;
}

int64_t cz_bucket_offset(const cz_bucket *bucket, int64_t place)
{
    return has_place(bucket, place) ? bucket->ddp->offsets[bucket->first + place] : -1;
}

bool cz_bucket_is_used(const cz_bucket *bucket, int64_t place)
{
    return has_place(bucket, place) && bucket->include[cz_bucket_param(bucket, place)];
}

int64_t cz_bucket_pass(const cz_bucket *bucket)
{
    return bucket ? cz_ddp_passes(bucket->ddp) : -1;
}

void *cz_bucket_buffer(const cz_bucket *bucket)
{
    return bucket ? bucket->data : NULL;
}

int64_t cz_bucket_count(const cz_bucket *bucket)
{
    return bucket ? bucket->elements : 0;
}

cz_dtype cz_bucket_dtype(const cz_bucket *bucket)
{
    return bucket ? bucket->data_dtype : CZ_F32;
}

const cz_device *cz_bucket_device(const cz_bucket *bucket)
{
    return bucket ? bucket->ddp->device : NULL;
}

cz_group *cz_bucket_group(const cz_bucket *bucket)
{
    return bucket ? bucket->ddp->group : NULL;
}

const cz_shard_map *cz_bucket_map(const cz_bucket *bucket)
{
    if (!bucket)
        return NULL;
    return cz__ddp_reduces_to_owners(bucket->ddp) ? bucket->ddp->bound : bucket->ddp->map;
}

cz_status cz_bucket_reduce(cz_bucket *bucket, cz_reduction reduction)
{
    if (!bucket)
        return cz__fail(CZ_ERR_ARGUMENT, "bucket reduce: bucket is NULL");
    const cz__mapped memory = {.map = cz_bucket_map(bucket),
                               .data = bucket->ddp->buffered,
                               .include = bucket->include,
                               .dtype = bucket->data_dtype};
    return cz__reduce_along_map(bucket->ddp->group, &memory, reduction, CZ_LABEL("gradients"));
}

/* ---- memory ---- */

void cz__ddp_point(cz_bucket *bucket)
{
    cz_ddp *ddp = bucket->ddp;
    const size_t size = cz_dtype_size(bucket->data_dtype);
    for (int64_t place = bucket->first; place < bucket->first + bucket->taking; place++)
        ddp->buffered[ddp->taking[place]] = bucket->data + (size_t)ddp->offsets[place] * size;
}

cz_status cz_bucket_memory(cz_bucket *bucket, const cz_device *device, size_t bytes, void **memory)
{
    if (!bucket || !device || !memory)
        return cz__fail(CZ_ERR_ARGUMENT, "bucket memory: %s is NULL",
                        !bucket  ? "bucket"
                        : device ? "memory"
                                 : "device");
    *memory = NULL;
    CZ_TRY(cz__device_check("bucket memory", "bucket", device));
    if (bucket->memory_count == CZ__BUCKET_MEMORIES)
        return cz__fail(CZ_ERR_STATE, "bucket memory: asked for more than %d times in bucket %d",
                        CZ__BUCKET_MEMORIES, bucket->index);
    cz__bucket_memory *slot = &bucket->memories[bucket->memory_count];
    if (slot->device && (slot->device != device || slot->bytes < bytes)) {
        slot->device->release(slot->data);
        slot->device = NULL;
    }
    if (!slot->device) {
        const cz_status status = device->allocate(CZ_MEMORY_STAGING, bytes, &slot->data);
        if (status != CZ_OK)
            return cz__fail(status, "bucket memory: no %zu bytes for bucket %d", bytes,
                            bucket->index);
        slot->device = device;
        slot->bytes = bytes;
    }
    bucket->memory_count++;
    *memory = slot->data;
    return CZ_OK;
}

cz_status cz_bucket_replace_buffer(cz_bucket *bucket, void *buffer, cz_dtype dtype)
{
    if (!bucket || !buffer)
        return cz__fail(CZ_ERR_ARGUMENT, "bucket replace_buffer: %s is NULL",
                        bucket ? "buffer" : "bucket");
    if (!cz__converts(dtype))
        return cz__fail(CZ_ERR_ARGUMENT, "bucket replace_buffer: gradients as %s",
                        cz_dtype_name(dtype));
    bucket->data = buffer;
    bucket->data_dtype = dtype;
    cz__ddp_point(bucket);
    return CZ_OK;
}

cz_status cz_bucket_then(cz_bucket *bucket, cz_continuation last, void *context)
{
    if (!bucket || !last)
        return cz__fail(CZ_ERR_ARGUMENT, "bucket then: %s is NULL", bucket ? "last" : "bucket");
    if (bucket->last_count == CZ__BUCKET_LASTS)
        return cz__fail(CZ_ERR_STATE, "bucket then: asked for more than %d times in bucket %d",
                        CZ__BUCKET_LASTS, bucket->index);
    bucket->lasts[bucket->last_count++] = (cz__bucket_last){last, context};
    return CZ_OK;
}
