/* SPDX-License-Identifier: MIT */
/* Conversions between floating types, element by element: for loading, not for a step. */
#include "tensor/convert.h"

#include <string.h>

bool cz__converts(cz_dtype dtype)
{
    return dtype == CZ_F32 || dtype == CZ_F64 || dtype == CZ_F16 || dtype == CZ_BF16;
}

static double load(cz_dtype dtype, const void *from, int64_t i)
{
    if (dtype == CZ_F64)
        return ((const double *)from)[i];
    if (dtype == CZ_F32)
        return (double)((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    return (double)(dtype == CZ_F16 ? cz_f32_from_f16(bits) : cz_f32_from_bf16(bits));
}

/* A double on its way to 16 bits becomes a float that is rounded to odd: the second rounding then is as
 * if it were the only one. */
static float to_odd(double value)
{
    const float nearest = (float)value;
    if (!((double)nearest != value) || nearest - nearest != 0) /* exact, infinite or NaN */
        return nearest;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    const bool outward = (value > 0) ? (double)nearest > value : (double)nearest < value;
    bits = (outward ? bits - 1 : bits) | 1u;
    float odd;
    memcpy(&odd, &bits, sizeof odd);
    return odd;
}

static void store(cz_dtype dtype, void *to, int64_t i, double value)
{
    if (dtype == CZ_F64)
        ((double *)to)[i] = value;
    else if (dtype == CZ_F32)
        ((float *)to)[i] = (float)value;
    else if (dtype == CZ_F16)
        ((uint16_t *)to)[i] = cz_f16_from_f32(to_odd(value));
    else
        ((uint16_t *)to)[i] = cz_bf16_from_f32(to_odd(value));
}

void cz__convert(cz_dtype to_type, void *to, cz_dtype from_type, const void *from, int64_t count)
{
    if (to_type == from_type && count > 0) {
        memcpy(to, from, (size_t)count * cz_dtype_size(to_type));
        return;
    }
    for (int64_t i = 0; i < count; i++)
        store(to_type, to, i, load(from_type, from, i));
}
