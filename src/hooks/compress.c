/* SPDX-License-Identifier: MIT */
/* Gradients travel in 16 bits: the bucket becomes one of that type, any hook works on it, and its result is
 * widened when it is written back. */
#include "base/status.h"
#include "hooks/hooks.h"

static cz_status run_as(cz_dtype dtype, const cz_hook *inner, cz_bucket *bucket)
{
    const cz_device *device = cz_bucket_device(bucket);
    const int64_t count = cz_bucket_count(bucket);
    if (cz_bucket_dtype(bucket) != dtype) {
        void *memory;
        CZ_TRY(cz_bucket_memory(bucket, device, (size_t)count * cz_dtype_size(dtype), &memory));
        CZ_TRY(device->convert(NULL, dtype, memory, cz_bucket_dtype(bucket),
                               cz_bucket_buffer(bucket), count));
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

static cz_status make(cz_hook *hook, cz_status (*run)(void *, cz_bucket *), cz_hook *inner)
{
    hook->run = run;
    hook->state = inner;
    if (!inner)
        return CZ_OK;
    CZ_TRY(cz__hook_check_inner(hook, inner));
    cz__hook_describe_with(run, cz__hook_describe_inner);
    hook->result = inner->result;
    hook->release = cz__hook_release_inner;
    return CZ_OK;
}

cz_status cz__hook_make_fp16(cz_hook *hook, const cz_model *model, void *state)
{
    return make(hook, run_fp16, state);
}

cz_status cz__hook_make_bf16(cz_hook *hook, const cz_model *model, void *state)
{
    return make(hook, run_bf16, state);
}
