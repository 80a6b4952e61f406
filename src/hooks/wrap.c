/* SPDX-License-Identifier: MIT */
/* What hooks share: the mean that others begin with, and hooks around another one, which send in 16
 * bits or record. */
#include <stdio.h>

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "device/squares.h"
#include "hooks/hooks.h"
#include "tensor/model.h"

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

void cz__hook_release_inner(void *inner)
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
    hook->release = cz__hook_release_inner;
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

struct cz_hook_recorder {
    cz_hook inner;
    char name[48];
    cz_hook_record *records; /* owned; of each bucket */
    int count;
};

/* One bucket on its way. */
typedef struct note {
    cz_hook_recorder *recorder;
    const cz_bucket *bucket;
    double began;
} note;

cz_status cz_hook_recorder_create(cz_hook_recorder **out, const cz_hook *inner, const cz_ddp *ddp)
{
    if (out)
        *out = NULL;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "hook recorder: out is NULL");
    if (!inner || !ddp)
        return cz__fail(CZ_ERR_ARGUMENT, "hook recorder: %s is NULL", inner ? "ddp" : "inner");
    CZ_TRY(check_inner(&(cz_hook){.name = "record"}, inner));
    cz_hook_recorder *recorder = cz__calloc(1, sizeof *recorder);
    const int64_t most = cz__model_param_count(cz__ddp_model(ddp)); /* a bucket has one at least */
    if (recorder)
        recorder->records = cz__calloc((size_t)most, sizeof *recorder->records);
    if (!recorder || !recorder->records) {
        cz__free(recorder);
        return cz__fail(CZ_ERR_MEMORY, "hook recorder: no memory for the buckets");
    }
    (void)cz__options_read(&recorder->inner, &cz__hook_options, inner, "hook");
    recorder->count = (int)most;
    snprintf(recorder->name, sizeof recorder->name, "record(%s)", inner->name);
    *out = recorder;
    return CZ_OK;
}

void cz_hook_recorder_destroy(cz_hook_recorder **recorder)
{
    if (!recorder || !*recorder)
        return;
    cz__hook_release_inner(&(*recorder)->inner);
    cz__free((*recorder)->records);
    cz__free(*recorder);
    *recorder = NULL;
}

cz_status cz_hook_recorder_get(const cz_hook_recorder *recorder, int bucket, cz_hook_record *record)
{
    CZ__OWN_FLOATS;
    if (!recorder || !record || bucket < 0 || bucket >= recorder->count)
        return cz__fail(CZ_ERR_ARGUMENT, "hook recorder: bucket %d%s", bucket,
                        recorder && record ? "" : ", a NULL");
    return cz__options_write(record, &recorder->records[bucket], sizeof *record, "cz_hook_record");
}

static cz_status norm_of(const cz_bucket *bucket, double *norm)
{
    return cz__root_of_squares(cz__bucket_device(bucket), cz__bucket_dtype(bucket),
                               cz__bucket_count(bucket), cz__bucket_buffer(bucket), norm);
}

static cz_status finish(cz_status status, void *context)
{
    const note *n = context;
    cz_hook_record *record = &n->recorder->records[cz__bucket_index(n->bucket)];
    if (status != CZ_OK) {
        record->failures++;
        return status;
    }
    record->seconds += cz__seconds() - n->began;
    return norm_of(n->bucket, &record->norm_after);
}

/* Its own end comes after those of the hook inside. */
static cz_status run(void *state, cz_bucket *bucket)
{
    cz_hook_recorder *recorder = state;
    cz_hook_record *record = &recorder->records[cz__bucket_index(bucket)];
    void *memory;
    CZ_TRY(cz_bucket_memory(bucket, cz_device_cpu(), sizeof(note), &memory));
    record->calls++;
    record->elements = cz__bucket_count(bucket);
    record->dtype = cz__bucket_dtype(bucket);
    CZ_TRY(norm_of(bucket, &record->norm_before));
    *(note *)memory = (note){recorder, bucket, cz__seconds()};
    const cz_status status = recorder->inner.run(recorder->inner.state, bucket);
    record->failures += status != CZ_OK;
    return status == CZ_OK ? cz_bucket_then(bucket, finish, memory) : status;
}

static void describe_recorder(cz__description *description, const cz_hook *hook, int64_t pass)
{
    const cz_hook_recorder *recorder = hook->state;
    cz__hook_describe(description, &recorder->inner, pass);
}

cz_status cz__hook_make_record(cz_hook *hook, const cz_model *model, void *state)
{
    cz_hook_recorder *recorder = state;
    if (!recorder)
        return cz__fail(CZ_ERR_ARGUMENT, "hook '%s' wants a cz_hook_recorder as its state",
                        hook->name);
    hook->name = recorder->name;
    hook->result = recorder->inner.result;
    hook->run = run;
    hook->state = recorder;
    cz__hook_describe_with(run, describe_recorder);
    return CZ_OK;
}
