/* SPDX-License-Identifier: MIT */
/* Element types, and the two 16-bit floats in integer arithmetic: no rounding mode and no flush to
 * zero of the program can change a result. */
#include "base/half.h"
#include "czero/base.h"

#include <string.h>

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [CZ_F32] = {"f32", 4}, [CZ_F64] = {"f64", 8}, [CZ_F16] = {"f16", 2}, [CZ_BF16] = {"bf16", 2},
    [CZ_I32] = {"i32", 4}, [CZ_I64] = {"i64", 8}, [CZ_U8] = {"u8", 1},
};

static bool known(cz_dtype dtype)
{
    const size_t index = (size_t)dtype;
    return index < sizeof types / sizeof *types && types[index].name;
}

size_t cz_dtype_size(cz_dtype dtype)
{
    return known(dtype) ? types[dtype].size : 0;
}

const char *cz_dtype_name(cz_dtype dtype)
{
    return known(dtype) ? types[dtype].name : "unknown";
}

#define F32_INFINITY 0x7f800000u
#define F32_QUIET 0x00400000u

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* x / 2^shift to the nearest integer, ties to the even one; shift > 0. */
static uint32_t shift_right(uint32_t x, unsigned shift)
{
    const uint32_t below_half = (UINT32_C(1) << (shift - 1)) - 1;
    return (x + below_half + (x >> shift & 1)) >> shift;
}

uint16_t cz__bf16_from_f32(float value)
{
    const uint32_t bits = bits_of(value);
    if ((bits & ~0x80000000u) > F32_INFINITY)
        return (uint16_t)((bits | F32_QUIET) >> 16);
    return (uint16_t)shift_right(bits, 16); /* a carry goes into the exponent, up to infinity */
}

float cz__f32_from_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    return float_of((wide & ~0x80000000u) > F32_INFINITY ? wide | F32_QUIET : wide);
}

/* A binary16 has 5 bits of exponent (bias 15, so 112 below that of binary32) and 10 of fraction. */
uint16_t cz__f16_from_f32(float value)
{
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000u, size = bits & ~0x80000000u;
    const uint32_t exponent = size >> 23;
    if (size > F32_INFINITY)
        return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
    if (exponent >= 113 + 30) /* 2^16 and above */
        return (uint16_t)(sign | 0x7c00u);
    if (exponent >= 113) /* a carry goes into the exponent, up to infinity */
        return (uint16_t)(sign | shift_right(size - (112u << 23), 13));
    if (exponent < 102) /* below half of the smallest, 2^-24 */
        return (uint16_t)sign;
    /* |value| = fraction * 2^(exponent - 150), wanted in units of 2^-24 */
    const uint32_t fraction = (size & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_right(fraction, 126 - exponent));
}

float cz__f32_from_f16(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu;
    const uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1f)
        return float_of(sign | F32_INFINITY | fraction << 13 | (fraction ? F32_QUIET : 0));
    if (exponent > 0)
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    const float size = (float)fraction * 0x1p-24f; /* exact: a normal number, or 0 */
    return float_of(sign | bits_of(size));
}
