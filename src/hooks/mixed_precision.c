/* SPDX-License-Identifier: MIT */
/* Gradients of low-precision copies of parameters are reduced in another type and handed over in
 * full precision. */
#include <inttypes.h>

#include "base/options.h"
#include "base/status.h"
#include "hooks/hooks.h"
#include "tensor/model.h"

/* What a bucket's end needs. */
typedef struct handover {
    const cz_mixed_precision *state;
    cz_bucket *bucket;
} handover;

static cz_status hand_over(const handover *h, int64_t place)
{
    const cz_bucket *bucket = h->bucket;
    const int64_t param = cz__bucket_param(bucket, place);
    const cz_tensor *full = h->state->full ? &h->state->full[param] : NULL;
    const cz_dtype dtype = cz__bucket_dtype(bucket);
    if (full && full->data)
        CZ_TRY(cz__bucket_device(bucket)->convert(NULL, full->dtype, full->data, dtype,
                                                  (const char *)cz__bucket_buffer(bucket) +
                                                      (size_t)cz__bucket_offset(bucket, place) *
                                                          cz_dtype_size(dtype),
                                                  cz_tensor_count(full)));
    return h->state->ready ? h->state->ready(h->state->context, param) : CZ_OK;
}

static cz_status finish(cz_status status, void *context)
{
    const handover *h = context;
    if (status)
        return status;
    for (int64_t k = 0; k < cz__bucket_param_count(h->bucket); k++)
        if (cz__bucket_is_used(h->bucket, k))
            CZ_TRY(hand_over(h, k));
    return CZ_OK;
}

/* A mean is rounded to the type that travels. Where it is wanted in full precision, that is not the
 * parameter's. */
static cz_dtype reduce_as(const cz_mixed_precision *s, const cz_bucket *bucket)
{
    const cz_dtype own = cz__bucket_dtype(bucket);
    bool wide = false;
    if (s->reduce_dtype)
        return s->reduce_dtype;
    if (s->full)
        for (int64_t k = 0; k < cz__bucket_param_count(bucket); k++)
            wide = wide || s->full[cz__bucket_param(bucket, k)].dtype == CZ_F64;
    if (wide)
        return CZ_F64;
    return s->full && cz_dtype_size(own) == 2 ? CZ_F32 : own;
}

static cz_status run(void *state, cz_bucket *bucket)
{
    const cz_mixed_precision *s = state;
    const cz_device *device = cz__bucket_device(bucket);
    const int64_t count = cz__bucket_count(bucket);
    const cz_dtype dtype = reduce_as(s, bucket);
    void *memory, *handed;
    if (dtype != cz__bucket_dtype(bucket)) {
        CZ_TRY(cz_bucket_memory(bucket, device, (size_t)count * cz_dtype_size(dtype), &memory));
        CZ_TRY(device->convert(NULL, dtype, memory, cz__bucket_dtype(bucket),
                               cz__bucket_buffer(bucket), count));
        CZ_TRY(cz_bucket_replace_buffer(bucket, memory, dtype));
    }
    CZ_TRY(cz_bucket_memory(bucket, cz_device_cpu(), sizeof(handover), &handed));
    *(handover *)handed = (handover){s, bucket};
    CZ_TRY(cz_bucket_then(bucket, finish, handed));
    return cz__hook_all_reduce(NULL, bucket);
}

static cz_status check_one(const cz_hook *hook, const cz_model *model, int64_t param,
                           const cz_tensor *full)
{
    const cz_tensor *value = cz__model_value(model, param);
    const int64_t count = cz_tensor_count(full), wanted = cz_tensor_count(value);
    const cz_device *device = cz__device_of(full), *its = cz__device_of(value);
    const char *name = cz__model_name(model, param);
    if (!cz__converts(full->dtype))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s': the gradient of '%.60s' in full precision is %s, wanted is a "
                        "floating type",
                        hook->name, name, cz_dtype_name(full->dtype));
    if (full->layout != CZ_DENSE)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s': the gradient of '%.60s' in full precision is not dense",
                        hook->name, name);
    if (count != wanted)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s': the gradient of '%.60s' in full precision has %" PRId64
                        " elements, the parameter %" PRId64,
                        hook->name, name, count, wanted);
    if (device != its)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s': the gradient of '%.60s' in full precision is on device '%s', "
                        "the parameter on '%s'",
                        hook->name, name, device->name, its->name);
    return CZ_OK;
}

static cz_status check_full(const cz_hook *hook, const cz_model *model, const cz_tensor *full)
{
    if (!model)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s' needs a model for its tensors in full precision", hook->name);
    for (int64_t p = 0; p < cz__model_param_count(model); p++)
        if (full[p].data)
            CZ_TRY(check_one(hook, model, p, &full[p]));
    return CZ_OK;
}

const cz__option_table cz__mixed_precision_options = CZ__OPTION_TABLE(
    cz_mixed_precision, CZ__OPTION(cz_mixed_precision, reduce_dtype, CZ__COMPARED, CZ__ANY),
    CZ__OPTION(cz_mixed_precision, full, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_mixed_precision, ready, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_mixed_precision, context, CZ__LOCAL, CZ__ANY));

static void describe_hook(cz__description *description, const cz_hook *hook, int64_t pass)
{
    cz__describe_options(description, &cz__mixed_precision_options, hook->state,
                         &(cz__subject){NULL, "hook", -1, hook->name, "is"});
}

cz_status cz__hook_make_mixed_precision(cz_hook *hook, const cz_model *model, void *state)
{
    const cz_mixed_precision *s = state;
    if (!s || s->size != sizeof *s)
        return cz__fail(CZ_ERR_ARGUMENT, "hook '%s' wants a cz_mixed_precision as its state",
                        hook->name);
    if (s->reduce_dtype && !cz__converts(s->reduce_dtype))
        return cz__fail(CZ_ERR_ARGUMENT, "hook '%s': gradients are reduced as %s", hook->name,
                        cz_dtype_name(s->reduce_dtype));
    if (s->full)
        CZ_TRY(check_full(hook, model, s->full));
    cz__hook_describe_with(run, describe_hook);
    hook->run = run;
    hook->state = state;
    return CZ_OK;
}
