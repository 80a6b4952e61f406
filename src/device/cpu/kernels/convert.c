/* SPDX-License-Identifier: MIT */
/* to[i] = from[i] between the floating types, rounded to nearest even where the type is
 * narrower. */
#include "device/cpu/kernels/half.h"

/* A double on its way to 16 bits becomes a float that is rounded to odd: the second rounding then
 * is as if it were the only one. */
CZ_BODY float to_odd(double value)
{
    const float nearest = (float)value;
    const bool exact = (double)nearest == value;
    const bool number = nearest - nearest == 0; /* neither infinite nor NaN */
    const bool outward = value > 0 ? (double)nearest > value : (double)nearest < value;
    const uint32_t bits = bits_of(nearest);
    return float_of(choose(exact | !number, bits, (bits - outward) | 1u));
}

#define AS_IT_IS(x) (x)
#define F32_STORE(x) ((float)(x))
#define F64_STORE(x) ((double)(x))

#define NOT_MANY(count, from, to) 0

#define PAIR_BUT(MANY, from_name, FROM, LOAD, to_name, TO, STORE)                                  \
    CZ_CONVERT(from_name, to_name)                                                                 \
    {                                                                                              \
        const FROM *restrict in = from;                                                            \
        TO *restrict out = to;                                                                     \
        for (int64_t i = MANY(count, in, out); i < count; i++)                                     \
            out[i] = STORE(LOAD(in[i]));                                                           \
    }
#define PAIR(...) PAIR_BUT(NOT_MANY, __VA_ARGS__)

PAIR(f32, float, AS_IT_IS, f64, double, F64_STORE)
PAIR_BUT(f16_store_many, f32, float, AS_IT_IS, f16, uint16_t, f16_store)
PAIR(f32, float, AS_IT_IS, bf16, uint16_t, bf16_store)
PAIR(f64, double, AS_IT_IS, f32, float, F32_STORE)
PAIR(f64, double, to_odd, f16, uint16_t, f16_store)
PAIR(f64, double, to_odd, bf16, uint16_t, bf16_store)
PAIR_BUT(f16_load_many, f16, uint16_t, f16_load, f32, float, F32_STORE)
PAIR(f16, uint16_t, f16_load, f64, double, F64_STORE)
PAIR(f16, uint16_t, f16_load, bf16, uint16_t, bf16_store)
PAIR(bf16, uint16_t, bf16_load, f32, float, F32_STORE)
PAIR(bf16, uint16_t, bf16_load, f64, double, F64_STORE)
PAIR(bf16, uint16_t, bf16_load, f16, uint16_t, f16_store)
