/* SPDX-License-Identifier: MIT */
/* Gradients travel as bytes: a row of them with the scale s and the zero point z at which its
 * smallest and largest element, and 0, have a place among 256. All ranks get all bytes and add up s
 * (q - z) in rank order. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "hooks/hooks.h"

enum { DEFAULT_WIDTH = 512 };

typedef struct quantized {
    cz_bucket *bucket;
    int64_t rows, width;
    int64_t padded;       /* rows * width: bytes of one rank */
    float *values;        /* `padded`; in the end the mean */
    float *scales;        /* of each rank, for each row s and z */
    uint8_t *bytes, *all; /* of this rank, and of each */
} quantized;

/* ---- arithmetic ---- */

/* A row with something in it that is not finite has no scale: it becomes NaN on all ranks. */
static void find_scale(int64_t count, const float *x, float *scale)
{
    float low = 0, high = 0;
    bool finite = true;
    for (int64_t i = 0; i < count; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        finite = finite && isfinite(x[i]);
    }
    const float s = (high - low) / 255;
    scale[0] = s > 0x1p-23f ? s : 0x1p-23f;
    if (!finite || !isfinite(s))
        scale[0] = NAN;
    scale[1] = isnan(scale[0]) ? 0 : fminf(fmaxf(0 - rintf(low / scale[0]), 0), 255);
}

static void to_bytes(int64_t count, const float *x, const float *scale, uint8_t *q)
{
    for (int64_t i = 0; i < count; i++)
        q[i] =
            isnan(scale[0]) ? 0 : (uint8_t)fminf(fmaxf(rintf(x[i] / scale[0]) + scale[1], 0), 255);
}

void cz__quantize_row(int64_t count, const float *x, float *scale, uint8_t *q)
{
    find_scale(count, x, scale);
    to_bytes(count, x, scale, q);
}

static void add_bytes(const quantized *z, int rank)
{
    for (int64_t row = 0; row < z->rows; row++) {
        const float *scale = z->scales + 2 * (rank * z->rows + row);
        const uint8_t *q = z->all + rank * z->padded + row * z->width;
        float *x = z->values + row * z->width;
        for (int64_t i = 0; i < z->width; i++)
            x[i] += scale[0] * ((float)q[i] - scale[1]);
    }
}

/* ---- on the way ---- */

/* All bytes are there. Overlapped optimizers read the buffer: the result goes there. */
static cz_status finish(cz_status status, void *context)
{
    const quantized *z = context;
    const int ranks = cz_group_size(cz__bucket_group(z->bucket));
    if (status != CZ_OK)
        return status;
    memset(z->values, 0, (size_t)z->padded * sizeof *z->values);
    for (int r = 0; r < ranks; r++)
        add_bytes(z, r);
    for (int64_t i = 0; i < z->padded; i++)
        z->values[i] /= (float)ranks;
    return cz_device_cpu()->convert(NULL, cz__bucket_dtype(z->bucket), cz__bucket_buffer(z->bucket),
                                    CZ_F32, z->values, cz__bucket_count(z->bucket));
}

static cz_status take_memory(quantized *z)
{
    const size_t ranks = (size_t)cz_group_size(cz__bucket_group(z->bucket));
    const size_t padded = (size_t)z->padded, pairs = 2 * ranks * (size_t)z->rows;
    const int64_t count = cz__bucket_count(z->bucket);
    const cz_device *cpu = cz_device_cpu();
    void *memory;
    CZ_TRY(cz_bucket_memory(z->bucket, cpu, padded * sizeof *z->values, &memory));
    z->values = memory;
    CZ_TRY(cz_bucket_memory(z->bucket, cpu, pairs * sizeof *z->scales, &memory));
    z->scales = memory;
    CZ_TRY(cz_bucket_memory(z->bucket, cpu, (ranks + 1) * padded, &memory));
    z->bytes = memory;
    z->all = z->bytes + padded;
    memset(z->values + count, 0, (size_t)(z->padded - count) * sizeof *z->values);
    return cpu->convert(NULL, CZ_F32, z->values, cz__bucket_dtype(z->bucket),
                        cz__bucket_buffer(z->bucket), count);
}

static cz_status quantize_rows(cz_bucket *bucket, int64_t rows, int64_t width)
{
    void *memory;
    cz_group *group = cz__bucket_group(bucket);
    if (cz__bucket_device(bucket) != cz_device_cpu())
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "quantize: gradients are on device '%.40s', wanted are those of the CPU",
                        cz__bucket_device(bucket)->name);
    CZ_TRY(cz_bucket_memory(bucket, cz_device_cpu(), sizeof(quantized), &memory));
    quantized *z = memory;
    *z = (quantized){.bucket = bucket, .rows = rows, .width = width, .padded = rows * width};
    CZ_TRY(take_memory(z));
    CZ_TRY(cz_bucket_then(bucket, finish, z));
    float *scales = z->scales + 2 * cz_group_rank(group) * rows;
    for (int64_t row = 0; row < rows; row++)
        cz__quantize_row(width, z->values + row * width, scales + 2 * row, z->bytes + row * width);
    cz_work *work = NULL;
    cz_status status =
        cz_all_gather(group, scales, z->scales, 2 * rows, CZ_F32, CZ_START("scales", &work));
    cz_work_destroy(&work);
    if (!status)
        status = cz_all_gather(group, z->bytes, z->all, z->padded, CZ_U8, CZ_START("bytes", &work));
    cz_work_destroy(&work);
    return status;
}

cz_status cz__hook_quantize_per_tensor(void *unused, cz_bucket *bucket)
{
    return quantize_rows(bucket, 1, cz__bucket_count(bucket));
}

static int64_t width_of(const void *state)
{
    return state ? *(const int64_t *)state : DEFAULT_WIDTH;
}

/* One row beyond the full ones, even if it is empty, as in PyTorch. */
static cz_status per_channel(void *state, cz_bucket *bucket)
{
    const int64_t width = width_of(state);
    return quantize_rows(bucket, cz__bucket_count(bucket) / width + 1, width);
}

static void describe_hook(cz__description *description, const cz_hook *hook, int64_t pass)
{
    const double width = (double)width_of(hook->state);
    cz__hook_tell(description, hook, (const char *const[]){"the width", NULL}, &width);
}

cz_status cz__hook_make_per_channel(cz_hook *hook, const cz_model *model, void *state)
{
    const int64_t *width = state;
    if (width && *width < 1)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s': the width of a channel is %" PRId64 ", wanted 1 or more",
                        hook->name, *width);
    cz__hook_describe_with(per_channel, describe_hook);
    hook->run = per_channel;
    hook->state = state;
    return CZ_OK;
}
