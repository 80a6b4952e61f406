/* SPDX-License-Identifier: MIT */
/* The 16-bit floats as straight lines that a compiler turns into vectors; the same bits as
 * cz__f32_from_f16() and its sisters, but that signalling NaNs may stay so on the way to f32. */
#ifndef CZ_DEVICE_CPU_KERNELS_HALF_H
#define CZ_DEVICE_CPU_KERNELS_HALF_H

#include "device/cpu/kernels/kernel.h"

#include <string.h>

CZ_BODY uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

CZ_BODY float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A choice without a branch: compilers give up on loops with many of those. */
CZ_BODY uint32_t choose(bool condition, uint32_t yes, uint32_t no)
{
    const uint32_t mask = 0u - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

CZ_BODY float bf16_load(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

CZ_BODY uint16_t bf16_store(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t nearest = bits + 0x7fffu + (bits >> 16 & 1u), quiet = bits | 0x400000u;
    return (uint16_t)(choose(value != value, quiet, nearest) >> 16);
}

/* An exponent of binary16 becomes one of binary32 by adding 112. */
CZ_BODY float f16_load(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, size = (uint32_t)(bits & 0x7fffu) << 13;
    const uint32_t normal = size + (112u << 23), special = size + (224u << 23);
    const uint32_t tiny = bits_of(float_of(size + (113u << 23)) - 0x1p-14f); /* exact */
    return float_of(sign |
                    choose(size < 1u << 23, tiny, choose(size < 31u << 23, normal, special)));
}

CZ_BODY uint16_t f16_store(float value)
{
    const uint32_t bits = bits_of(value), size = bits & 0x7fffffffu;
    const uint32_t normal = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
    /* below 2^-14 the addition rounds to multiples of 2^-24, the last bit of a float near 1/2 */
    const uint32_t tiny = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
    const uint32_t nan = 0x7e00u | (size >> 13 & 0x3ffu);
    const uint32_t finite = choose(size < 113u << 23, tiny, normal);
    const uint32_t special = choose(size > 255u << 23, nan, 0x7c00u);
    return (uint16_t)((bits >> 16 & 0x8000u) | choose(size < 143u << 23, finite, special));
}

#endif
