/* SPDX-License-Identifier: MIT */
/* Hooks: a bucket as the program's own reduction sees it. All ranks come together first, so that a
 * rank that has failed says so before anybody's hook has started anything; what a hook starts
 * belongs to that meeting. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "base/status.h"
#include "ddp/object.h"
#include "group/work.h"
#include "tensor/model.h"

/* ---- what a hook asks for while it works on a bucket ---- */

int cz__bucket_index(const cz_bucket *bucket)
{
    return bucket ? bucket->index : -1;
}

bool cz__bucket_is_last(const cz_bucket *bucket)
{
    if (!bucket)
        return false;
    const cz_ddp *ddp = bucket->ddp;
    int last = ddp->bucket_count - 1;
    while (last > 0 && ddp->buckets[ddp->launch[last]].taking == 0)
        last--;
    return ddp->launch[last] == bucket->index;
}

int64_t cz__bucket_param_count(const cz_bucket *bucket)
{
    return bucket ? bucket->taking : 0;
}

static bool has_place(const cz_bucket *bucket, int64_t place)
{
    return bucket && place >= 0 && place < bucket->taking;
}

int64_t cz__bucket_param(const cz_bucket *bucket, int64_t place)
{
    return has_place(bucket, place) ? bucket->ddp->taking[bucket->first + place] : -1;
}

int64_t cz__bucket_offset(const cz_bucket *bucket, int64_t place)
{
    return has_place(bucket, place) ? bucket->ddp->offsets[bucket->first + place] : -1;
}

bool cz__bucket_is_used(const cz_bucket *bucket, int64_t place)
{
    return has_place(bucket, place) && bucket->include[cz__bucket_param(bucket, place)];
}

int64_t cz__bucket_pass(const cz_bucket *bucket)
{
    return bucket ? cz__ddp_passes(bucket->ddp) : -1;
}

void *cz__bucket_buffer(const cz_bucket *bucket)
{
    return bucket ? bucket->data : NULL;
}

int64_t cz__bucket_count(const cz_bucket *bucket)
{
    return bucket ? bucket->elements : 0;
}

cz_dtype cz__bucket_dtype(const cz_bucket *bucket)
{
    return bucket ? bucket->data_dtype : CZ_F32;
}

const cz_device *cz__bucket_device(const cz_bucket *bucket)
{
    return bucket ? bucket->ddp->device : NULL;
}

cz_group *cz__bucket_group(const cz_bucket *bucket)
{
    return bucket ? bucket->ddp->group : NULL;
}

const cz_shard_map *cz__bucket_map(const cz_bucket *bucket)
{
    if (!bucket)
        return NULL;
    return cz__ddp_reduces_to_owners(bucket->ddp) ? bucket->ddp->bound : bucket->ddp->map;
}

cz_status cz_bucket_get_info(const cz_bucket *bucket, cz_bucket_info *info)
{
    if (!bucket || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "bucket get_info: %s is NULL", bucket ? "info" : "bucket");
    const cz_bucket_info ours = {.index = bucket->index,
                                 .is_last = cz__bucket_is_last(bucket),
                                 .param_count = bucket->taking,
                                 .pass = cz__bucket_pass(bucket),
                                 .buffer = bucket->data,
                                 .count = bucket->elements,
                                 .dtype = bucket->data_dtype,
                                 .device = bucket->ddp->device,
                                 .group = bucket->ddp->group,
                                 .map = cz__bucket_map(bucket)};
    return cz__options_write(info, &ours, sizeof ours, "cz_bucket_info");
}

cz_status cz_bucket_get_param(const cz_bucket *bucket, int64_t place, cz_bucket_param *param)
{
    if (!bucket || !param)
        return cz__fail(CZ_ERR_ARGUMENT, "bucket get_param: %s is NULL",
                        bucket ? "param" : "bucket");
    if (!has_place(bucket, place))
        return cz__fail(CZ_ERR_ARGUMENT, "bucket get_param: place %" PRId64 " of %" PRId64, place,
                        cz__bucket_param_count(bucket));
    const cz_bucket_param ours = {.param = cz__bucket_param(bucket, place),
                                  .offset = cz__bucket_offset(bucket, place),
                                  .is_used = cz__bucket_is_used(bucket, place)};
    return cz__options_write(param, &ours, sizeof ours, "cz_bucket_param");
}

cz_status cz_bucket_reduce(cz_bucket *bucket, cz_reduction reduction)
{
    if (!bucket)
        return cz__fail(CZ_ERR_ARGUMENT, "bucket reduce: bucket is NULL");
    const cz__mapped memory = {.map = cz__bucket_map(bucket),
                               .data = bucket->ddp->buffered,
                               .include = bucket->include,
                               .dtype = bucket->data_dtype};
    return cz__reduce_along_map(bucket->ddp->group, &memory, reduction, CZ_LABEL("gradients"));
}

/* ---- memory that a hook asks for ---- */

static void point_at_data(cz_bucket *bucket)
{
    cz_ddp *ddp = bucket->ddp;
    const size_t size = cz_dtype_size(bucket->data_dtype);
    for (int64_t place = bucket->first; place < bucket->first + bucket->taking; place++)
        ddp->buffered[ddp->taking[place]] = bucket->data + (size_t)ddp->offsets[place] * size;
}

cz_status cz_bucket_memory(cz_bucket *bucket, const cz_device *device, size_t bytes, void **memory)
{
    if (!bucket)
        return cz__fail(CZ_ERR_ARGUMENT, "bucket memory: bucket is NULL");
    if (!device || !memory)
        return cz__fail(CZ_ERR_ARGUMENT, "bucket memory: %s is NULL", device ? "memory" : "device");
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
            return cz__fail(status, "bucket memory: no memory for %zu bytes of bucket %d", bytes,
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
    point_at_data(bucket);
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

/* ---- registered ---- */

const cz__option_table cz__hook_options = CZ__OPTION_TABLE(
    cz_hook, CZ__OPTION(cz_hook, name, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_hook, result, CZ__COMPARED_APART, CZ__FLAG),
    CZ__OPTION(cz_hook, run, CZ__LOCAL, CZ__ANY), CZ__OPTION(cz_hook, state, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_hook, release, CZ__LOCAL, CZ__ANY));

cz_status cz_ddp_register_hook(cz_ddp *ddp, const cz_hook *hook)
{
    cz_hook read;
    if (!ddp || !hook)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp register_hook: %s is NULL", ddp ? "hook" : "ddp");
    CZ_TRY(cz__options_read(&read, &cz__hook_options, hook, "ddp register_hook"));
    if (!read.name || !*read.name || !read.run)
        return cz__fail(CZ_ERR_ARGUMENT, "ddp register_hook: %s",
                        read.run ? "a hook needs a name" : "run is NULL");
    if (cz__ddp_in_pass(ddp))
        return cz__fail(CZ_ERR_STATE, "ddp register_hook: a pass has begun");
    if (ddp->hook.run)
        return cz__fail(CZ_ERR_STATE, "ddp register_hook: there is a hook already, '%s'",
                        ddp->hook_name);
    if (ddp->parts)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "ddp register_hook: '%.40s': the result of a hook depends on the ranks, "
                        "with option parts it must not",
                        read.name);
    CZ_TRY(cz__ddp_check_hook(ddp, &read, ddp->bound != NULL));
    if (ddp->in_backward)
        CZ_TRY(cz__ddp_check_slices(&read));
    snprintf(ddp->hook_name, sizeof ddp->hook_name, "%s", read.name);
    ddp->hook = read;
    ddp->hook.name = ddp->hook_name;
    return CZ_OK;
}

void cz__ddp_release_hook(cz_ddp *ddp)
{
    if (ddp->hook.release)
        ddp->hook.release(ddp->hook.state);
}

/* ---- what ranks have alike ---- */

enum { KNOWN = 8 };

static struct {
    cz__hook_run run;
    cz__hook_settings settings;
} known[KNOWN];
static pthread_mutex_t knowing = PTHREAD_MUTEX_INITIALIZER;

/* The first free place if there is none. */
static int place_of(cz__hook_run run)
{
    int k = 0;
    while (k < KNOWN && known[k].run && known[k].run != run)
        k++;
    return k;
}

void cz__hook_describe_with(cz__hook_run run, cz__hook_settings settings)
{
    pthread_mutex_lock(&knowing);
    const int place = place_of(run);
    if (place < KNOWN) {
        known[place].run = run;
        known[place].settings = settings;
    }
    pthread_mutex_unlock(&knowing);
}

void cz__hook_describe(cz__description *description, const cz_hook *hook, int64_t pass)
{
    pthread_mutex_lock(&knowing);
    const int place = place_of(hook->run);
    const cz__hook_settings settings = place < KNOWN ? known[place].settings : NULL;
    pthread_mutex_unlock(&knowing);
    if (settings)
        settings(description, hook, pass);
}

/* ---- gradients in one piece ---- */

/* Where the gradients of the parameters that take part lie one after the other; NULL: they do not,
 * or one counts as zeros. */
static char *in_place(const cz_bucket *bucket)
{
    const cz_ddp *ddp = bucket->ddp;
    const size_t size = cz_dtype_size(bucket->dtype);
    char *begin = NULL;
    for (int64_t k = 0; k < bucket->taking; k++) {
        const int64_t place = bucket->first + k, p = ddp->taking[place];
        char *gradient = ddp->gradients[p];
        if (cz_tensor_count(cz__model_value(ddp->model, p)) == 0)
            continue;
        if (!gradient || !bucket->include[p])
            return NULL;
        begin = begin ? begin : gradient - (size_t)ddp->offsets[place] * size;
        if (gradient != begin + (size_t)ddp->offsets[place] * size)
            return NULL;
    }
    return begin;
}

cz_status cz__ddp_reserve_buffers(cz_ddp *ddp)
{
    if (ddp->listener.reduced && ddp->bound)
        CZ_TRY(cz__ddp_reserve(ddp)); /* it may be there without the hook */
    for (int b = 0; b < ddp->bucket_count; b++) {
        cz_bucket *bucket = &ddp->buckets[b];
        if (bucket->buffer)
            continue;
        const size_t bytes = bucket->bytes;
        const cz_status status = ddp->device->allocate(CZ_MEMORY_GRADIENT, bytes, &bucket->buffer);
        if (status != CZ_OK) {
            bucket->buffer = NULL;
            return cz__fail(status, "ddp: no memory for %zu bytes of bucket %d", bytes, b);
        }
    }
    return CZ_OK;
}

static cz_status pack(cz_bucket *bucket)
{
    const cz_ddp *ddp = bucket->ddp;
    const size_t size = cz_dtype_size(bucket->dtype);
    bucket->data = in_place(bucket);
    const bool copies = !bucket->data;
    bucket->data = copies ? bucket->buffer : bucket->data;
    bucket->data_dtype = bucket->dtype;
    point_at_data(bucket);
    if (!copies)
        return CZ_OK;
    for (int64_t k = 0; k < bucket->taking; k++) {
        const int64_t p = ddp->taking[bucket->first + k];
        const size_t bytes = (size_t)cz_tensor_count(cz__model_value(ddp->model, p)) * size;
        if (bytes > 0)
            CZ_TRY(ddp->gradients[p]
                       ? ddp->device->copy(NULL, ddp->buffered[p], ddp->gradients[p], bytes)
                       : ddp->device->zero(NULL, ddp->buffered[p], bytes));
    }
    return CZ_OK;
}

/* Elements [begin, end) of a result, to where the mean goes. */
static cz_status put_back(const cz_bucket *bucket, int64_t param, int64_t begin, int64_t end)
{
    const cz_ddp *ddp = bucket->ddp;
    const char *from = ddp->buffered[param];
    char *to = ddp->results[param];
    if (!bucket->include[param] || begin == end || from == to)
        return CZ_OK;
    return ddp->device->convert(
        NULL, bucket->dtype, to + (size_t)begin * cz_dtype_size(bucket->dtype), bucket->data_dtype,
        from + (size_t)begin * cz_dtype_size(bucket->data_dtype), end - begin);
}

/* What this rank has of it. */
static cz_status unpack(const cz_bucket *bucket)
{
    const cz_ddp *ddp = bucket->ddp;
    const bool whole = ddp->hook.result == CZ_HOOK_WHOLE;
    cz_span_iterator iterator;
    cz_span span;
    if (whole) {
        for (int64_t k = 0; k < bucket->taking; k++) {
            const int64_t p = ddp->taking[bucket->first + k];
            CZ_TRY(put_back(bucket, p, 0, cz_tensor_count(cz__model_value(ddp->model, p))));
        }
    }
    cz_span_iterate(cz__bucket_map(bucket), cz_group_rank(ddp->group), &iterator);
    while (!whole && cz_span_next(&iterator, &span))
        CZ_TRY(put_back(bucket, span.param, span.begin, span.end));
    return CZ_OK;
}

/* ---- a bucket's way ---- */

bool cz__ddp_blames_hook(void)
{
    return strstr(cz_last_error(), "ddp: hook '");
}

/* Whose failure it is; not again for what a rank's hook has broken the group with. */
static cz_status blame(const cz_bucket *bucket, cz_status status)
{
    const cz_ddp *ddp = bucket->ddp;
    if (cz__ddp_blames_hook())
        return status;
    return cz__fail(
        status, "ddp: hook '%s' failed in bucket %d, which begins with parameter '%.60s': %.120s",
        ddp->hook_name, bucket->index, cz__model_name(ddp->model, ddp->taking[bucket->first]),
        cz_last_error());
}

/* All ranks have come. Where this rank's hook fails, the others may be waiting for what it has not
 * started. */
static cz_status run(cz_status status, void *context)
{
    cz_bucket *bucket = context;
    cz_ddp *ddp = bucket->ddp;
    if (status != CZ_OK)
        return status;
    bucket->hooked = true;
    status = pack(bucket);
    if (status)
        goto fail;
    status = ddp->hook.run(ddp->hook.state, bucket);
    if (status)
        goto fail;
    return CZ_OK;
fail:
    status = blame(bucket, status);
    cz__group_give_up(ddp->group, status);
    return status;
}

/* All has ended that the hook started. Slices go on to all ranks if nobody else takes them. */
static cz_status finish(cz_status status, const cz_bucket *bucket)
{
    const cz_ddp *ddp = bucket->ddp;
    for (int k = 0; k < bucket->last_count; k++) {
        const cz_status last = bucket->lasts[k].run(status, bucket->lasts[k].context);
        status = status == CZ_OK ? last : status;
    }
    if (status != CZ_OK)
        return status;
    CZ_TRY(unpack(bucket));
    if (ddp->hook.result == CZ_HOOK_WHOLE || ddp->bound)
        return CZ_OK;
    const cz__mapped memory = {
        .map = ddp->map, .data = ddp->results, .include = bucket->include, .dtype = bucket->dtype};
    return cz__gather_along_map(ddp->group, &memory, CZ_LABEL("gradients"));
}

/* Where this rank's continuations fail, too, the others may be waiting for what those have not
 * started. */
static cz_status finish_or_give_up(cz_status status, void *context)
{
    const cz_bucket *bucket = context;
    status = finish(status, bucket);
    if (status == CZ_OK || !bucket->hooked)
        return status;
    status = blame(bucket, status);
    cz__work_reword();
    cz__group_give_up(bucket->ddp->group, status);
    return status;
}

static cz_status finish_and_tell(cz_status status, void *context)
{
    return cz__ddp_tell(finish_or_give_up(status, context), context);
}

cz_status cz__ddp_run_hook(cz_bucket *bucket, cz_status mine, const char *label)
{
    const cz_ddp *ddp = bucket->ddp;
    bucket->memory_count = bucket->last_count = 0;
    bucket->hooked = false;
    CZ_TRY(cz__agree_start(ddp->group, mine, CZ_START(label, &bucket->work)));
    return cz__work_then(bucket->work, run,
                         ddp->listener.reduced ? finish_and_tell : finish_or_give_up, bucket);
}
