/* SPDX-License-Identifier: MIT */
/* What hooks share: the mean that others begin with, and hooks around another one, which send in 16
 * bits or record. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "device/squares.h"
#include "hooks/hooks.h"

void cz__hook_tell(cz__description *description, const cz_hook *hook, const char *const *names,
                   const double *values)
{
    for (int k = 0; names[k]; k++)
        cz__describe(description, &(cz__subject){names[k], "hook", -1, hook->name, "is"},
                     CZ__FIELD_REAL, &values[k], sizeof values[k]);
}

static cz_status lacks(const cz_hook *hook, const char *what)
{
    return cz__fail(CZ_ERR_ARGUMENT, "hook '%s': the hook inside it has no %s; see cz_hook_find()",
                    hook->name, what);
}

static cz_status check_inner(const cz_hook *hook, const cz_hook *inner)
{
    cz_hook read;
    if (inner->size < sizeof inner->size)
        return lacks(hook, "size");
    CZ_TRY(cz__options_read(&read, &cz__hook_options, inner, hook->name));
    if (!read.run || !read.name)
        return lacks(hook, read.run ? "name" : "run");
    return CZ_OK;
}

static void release_inner(void *inner)
{
    cz_hook hook; /* the program's may be shorter */
    if (cz__options_read(&hook, &cz__hook_options, inner, "hook") == CZ_OK && hook.release)
        hook.release(hook.state);
}

static void describe_inner(cz__description *description, const cz_hook *hook, int64_t pass)
{
    const cz_hook *inner = hook->state;
    if (inner)
        cz__hook_describe(description, inner, pass);
}

cz_status cz__hook_all_reduce(void *unused, cz_bucket *bucket)
{
    return cz_all_reduce(cz__bucket_group(bucket), cz__bucket_buffer(bucket),
                         cz__bucket_count(bucket), cz__bucket_dtype(bucket), CZ_AVERAGE,
                         CZ_LABEL("gradients"));
}

/* ---- 16 bits ---- */
/* Gradients travel in 16 bits: the bucket becomes one of that type, any hook works on it, and its
 * result is widened when it is written back. */

static cz_status run_as(cz_dtype dtype, const cz_hook *inner, cz_bucket *bucket)
{
    const cz_device *device = cz__bucket_device(bucket);
    const int64_t count = cz__bucket_count(bucket);
    if (cz__bucket_dtype(bucket) != dtype) {
        void *memory;
        CZ_TRY(cz_bucket_memory(bucket, device, (size_t)count * cz_dtype_size(dtype), &memory));
        CZ_TRY(device->convert(NULL, dtype, memory, cz__bucket_dtype(bucket),
                               cz__bucket_buffer(bucket), count));
        CZ_TRY(cz_bucket_replace_buffer(bucket, memory, dtype));
    }
    return inner ? inner->run(inner->state, bucket) : cz__hook_all_reduce(NULL, bucket);
}

static cz_status run_fp16(void *state, cz_bucket *bucket)
{
    return run_as(CZ_F16, state, bucket);
}

static cz_status run_bf16(void *state, cz_bucket *bucket)
{
    return run_as(CZ_BF16, state, bucket);
}

static cz_status make_compressed(cz_hook *hook, cz_status (*run)(void *, cz_bucket *),
                                 cz_hook *inner)
{
    hook->run = run;
    hook->state = inner;
    if (!inner)
        return CZ_OK;
    CZ_TRY(check_inner(hook, inner));
    cz__hook_describe_with(run, describe_inner);
    hook->result = inner->result;
    hook->release = release_inner;
    return CZ_OK;
}

cz_status cz__hook_make_fp16(cz_hook *hook, const cz_model *model, void *state)
{
    return make_compressed(hook, run_fp16, state);
}

cz_status cz__hook_make_bf16(cz_hook *hook, const cz_model *model, void *state)
{
    return make_compressed(hook, run_bf16, state);
}

/* ---- a recorder ---- */
/* A hook around another one that notes what passes: how much, how long, how large. */

/* One bucket on its way. */
typedef struct note {
    const cz_hook_recorder *recorder;
    const cz_bucket *bucket;
    double began;
} note;

/* The program's records may be shorter, or longer, than those here. */
static void *find_record(const cz_hook_recorder *recorder, const cz_bucket *bucket)
{
    const int64_t index = cz__bucket_index(bucket);
    return index < recorder->count
               ? (char *)recorder->records + (size_t)index * recorder->records->size
               : NULL;
}

static cz_hook_record read_record(const void *from)
{
    cz_hook_record record = {0};
    size_t size;
    memcpy(&size, from, sizeof size);
    memcpy(&record, from, size < sizeof record ? size : sizeof record);
    return record;
}

static cz_status norm_of(const cz_bucket *bucket, double *norm)
{
    return cz__root_of_squares(cz__bucket_device(bucket), cz__bucket_dtype(bucket),
                               cz__bucket_count(bucket), cz__bucket_buffer(bucket), norm);
}

static cz_status finish(cz_status status, void *context)
{
    const note *n = context;
    void *place = find_record(n->recorder, n->bucket);
    cz_hook_record record = read_record(place);
    if (status != CZ_OK) {
        record.failures++;
        (void)cz__options_write(place, &record, sizeof record, "cz_hook_record");
        return status;
    }
    record.seconds += cz__seconds() - n->began;
    CZ_TRY(norm_of(n->bucket, &record.norm_after));
    return cz__options_write(place, &record, sizeof record, "cz_hook_record");
}

/* Its own end comes after those of the hook inside. */
static cz_status run(void *state, cz_bucket *bucket)
{
    const cz_hook_recorder *recorder = state;
    const cz_hook *inner = recorder->inner;
    void *place = find_record(recorder, bucket), *memory;
    if (!place)
        return inner->run(inner->state, bucket);
    CZ_TRY(cz_bucket_memory(bucket, cz_device_cpu(), sizeof(note), &memory));
    cz_hook_record record = read_record(place);
    record.calls++;
    record.elements = cz__bucket_count(bucket);
    record.dtype = cz__bucket_dtype(bucket);
    CZ_TRY(norm_of(bucket, &record.norm_before));
    CZ_TRY(cz__options_write(place, &record, sizeof record, "cz_hook_record"));
    *(note *)memory = (note){recorder, bucket, cz__seconds()};
    const cz_status status = inner->run(inner->state, bucket);
    if (status == CZ_OK)
        return cz_bucket_then(bucket, finish, memory);
    record.failures++;
    (void)cz__options_write(place, &record, sizeof record, "cz_hook_record");
    return status;
}

static void describe_recorder(cz__description *description, const cz_hook *hook, int64_t pass)
{
    const cz_hook_recorder *recorder = hook->state;
    cz__hook_describe(description, recorder->inner, pass);
}

static void release_recorder(void *state)
{
    const cz_hook_recorder *recorder = state;
    release_inner((void *)recorder->inner);
}

static cz_status check_records(const cz_hook *hook, const cz_hook_recorder *recorder)
{
    if (recorder->count < 0 || (recorder->count > 0 && !recorder->records))
        return cz__fail(CZ_ERR_ARGUMENT, "hook '%s': %" PRId64 " records%s", hook->name,
                        recorder->count, recorder->records ? "" : " at NULL");
    for (int64_t k = 0; k < recorder->count; k++) {
        const size_t *size =
            (const void *)((const char *)recorder->records + (size_t)k * recorder->records->size);
        CZ_TRY(cz__options_check_size(*size, "cz_hook_record"));
        if (*size != recorder->records->size)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "hook '%s': record %" PRId64 " has %zu bytes, the first one %zu",
                            hook->name, k, *size, recorder->records->size);
    }
    return CZ_OK;
}

cz_status cz__hook_make_record(cz_hook *hook, const cz_model *model, void *state)
{
    cz_hook_recorder *recorder = state;
    if (!recorder || recorder->size < sizeof *recorder || !recorder->inner)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s' wants a cz_hook_recorder with a hook in it as its state",
                        hook->name);
    CZ_TRY(check_inner(hook, recorder->inner));
    CZ_TRY(check_records(hook, recorder));
    hook->result = recorder->inner->result;
    hook->run = run;
    hook->state = recorder;
    hook->release = release_recorder;
    cz__hook_describe_with(run, describe_recorder);
    return CZ_OK;
}

const cz_hook *cz__hook_inner(const cz_hook *hook)
{
    if (hook->release == release_recorder)
        return ((const cz_hook_recorder *)hook->state)->inner;
    return hook->release == release_inner ? hook->state : NULL;
}
