/* SPDX-License-Identifier: MIT */
/* Floating-point numbers of one type, in the order of their values, have bits that count up (with
 * the sign turned round): so steps are a subtraction. */
#include "ulps.h"

#include "io/types.h"
#include "base/half.h"

#include <math.h>
#include <string.h>

/* An element: its place in the order of all numbers of its type, and its value. */
typedef struct element {
    uint64_t place;
    double value;
} element;

static uint64_t place_of(uint64_t bits, int width)
{
    const uint64_t sign = UINT64_C(1) << (width - 1);
    const uint64_t middle = UINT64_C(1) << 63;
    return bits & sign ? middle - (bits & (sign - 1)) : middle + bits;
}

static element f64_at(const void *data, int64_t i)
{
    element e;
    uint64_t bits;
    memcpy(&bits, (const char *)data + 8 * i, 8);
    memcpy(&e.value, &bits, 8);
    e.place = place_of(bits, 64);
    return e;
}

static element f32_at(const void *data, int64_t i)
{
    float value;
    uint32_t bits;
    memcpy(&bits, (const char *)data + 4 * i, 4);
    memcpy(&value, &bits, 4);
    return (element){place_of(bits, 32), value};
}

static element short_at(cz_dtype dtype, const void *data, int64_t i)
{
    uint16_t bits;
    memcpy(&bits, (const char *)data + 2 * i, 2);
    const float value = dtype == CZ_F16 ? cz__f32_from_f16(bits) : cz__f32_from_bf16(bits);
    return (element){place_of(bits, 16), value};
}

static element integer_at(cz_dtype dtype, const void *data, int64_t i)
{
    int64_t value = 0;
    int32_t half;
    if (dtype == CZ_I64)
        memcpy(&value, (const char *)data + 8 * i, 8);
    else if (dtype == CZ_U8)
        value = ((const uint8_t *)data)[i];
    else {
        memcpy(&half, (const char *)data + 4 * i, 4);
        value = half;
    }
    return (element){(uint64_t)value ^ UINT64_C(1) << 63, (double)value};
}

static element element_at(cz_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case CZ_F64:
        return f64_at(data, i);
    case CZ_F32:
        return f32_at(data, i);
    case CZ_F16:
    case CZ_BF16:
        return short_at(dtype, data, i);
    default:
        return integer_at(dtype, data, i);
    }
}

static void count_in(distance *d, element a, element b, int64_t at, uint64_t allowed)
{
    bool beyond;
    d->different++;
    if (isnan(a.value) || isnan(b.value)) {
        beyond = !(isnan(a.value) && isnan(b.value));
        d->nans += beyond;
    } else {
        const uint64_t ulps = a.place > b.place ? a.place - b.place : b.place - a.place;
        const double absolute = fabs(a.value - b.value);
        beyond = ulps > allowed;
        d->ulps = ulps > d->ulps ? ulps : d->ulps;
        d->absolute = absolute > d->absolute ? absolute : d->absolute;
        if (isfinite(a.value) && isfinite(b.value)) {
            d->size += a.value * a.value;
            d->apart += absolute * absolute;
        }
    }
    if (beyond && d->beyond++ == 0)
        d->at = at;
}

double ulps_relative(const distance *d)
{
    return sqrt(d->apart) / sqrt(d->size);
}

void ulps_add(distance *to, const distance *from)
{
    to->count += from->count;
    to->different += from->different;
    to->beyond += from->beyond;
    to->nans += from->nans;
    to->ulps = from->ulps > to->ulps ? from->ulps : to->ulps;
    to->absolute = from->absolute > to->absolute ? from->absolute : to->absolute;
    to->size += from->size;
    to->apart += from->apart;
}

void ulps_compare(distance *d, cz_dtype dtype, const void *a, const void *b, int64_t count,
                  int64_t first, uint64_t allowed)
{
    const size_t size = cz__type_unit(dtype);
    d->count += count;
    if (d->beyond == 0)
        d->at = -1;
    if (memcmp(a, b, (size_t)count * size) == 0)
        return;
    for (int64_t i = 0; i < count; i++)
        if (memcmp((const char *)a + (size_t)i * size, (const char *)b + (size_t)i * size, size) !=
            0) {
            if (cz__type_is_foreign(dtype)) /* different is all that is known */
                count_in(d, (element){0}, (element){allowed + 1, 1}, first + i, allowed);
            else
                count_in(d, element_at(dtype, a, i), element_at(dtype, b, i), first + i, allowed);
        }
}
