/* SPDX-License-Identifier: MIT */
/* Exact sums. The bit of a double that counts 2^(k - 1074) is bit k of a fixed-point number; chunk
 * i holds its bits from 32 i on in an int64_t, whose upper half takes in carries for a while. */
#include "base/sum.h"
#include "base/float_mode.h"

#include <math.h>
#include <string.h>

#define DIGITS 66 /* chunks of the number: (2046 + 53) / 32 and one for carries */
#define DIGIT_BITS 32
#define DIGIT_MASK 0xffffffff
enum { PLUS_INFINITY = DIGITS, MINUS_INFINITY, NOT_A_NUMBER, ADDITIONS };

_Static_assert(ADDITIONS == CZ_SUM_CHUNKS - 1, "chunks");

/* An addition changes a chunk by less than 2^53, and chunks hold 2^63. */
#define ADDITIONS_MAX 512

/* Carries go up: all digits but the top one, which has the sign, end in [0, 2^32). */
void cz__sum_settle(cz_sum *sum)
{
    int64_t carry = 0;
    if (!sum)
        return;
    for (int i = 0; i < DIGITS - 1; i++) {
        const int64_t digit = sum->chunks[i] + carry;
        carry = digit >> DIGIT_BITS;
        sum->chunks[i] = digit & DIGIT_MASK;
    }
    sum->chunks[DIGITS - 1] += carry;
    sum->chunks[ADDITIONS] = 0;
}

static void count_special(cz_sum *sum, double term)
{
    const int infinity = term > 0 ? PLUS_INFINITY : MINUS_INFINITY;
    sum->chunks[isnan(term) ? NOT_A_NUMBER : infinity]++;
}

void cz__sum_add(cz_sum *sum, double term)
{
    uint64_t bits;
    if (!sum)
        return;
    memcpy(&bits, &term, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t mantissa = bits & 0xfffffffffffff;
    if (exponent == 0x7ff) {
        count_special(sum, term);
        return;
    }
    if (exponent > 0)
        mantissa |= (uint64_t)1 << 52;
    const int place = exponent > 0 ? exponent - 1 : 0;
    const int digit = place / DIGIT_BITS, shift = place % DIGIT_BITS;
    const int64_t low = (int64_t)(mantissa << shift & DIGIT_MASK);
    const int64_t high = (int64_t)(mantissa >> (DIGIT_BITS - shift));
    const int64_t sign = bits >> 63 ? -1 : 1;
    sum->chunks[digit] += sign * low;
    sum->chunks[digit + 1] += sign * high;
    if (++sum->chunks[ADDITIONS] >= ADDITIONS_MAX)
        cz__sum_settle(sum);
}

/* The settled number is negative: make it positive. */
static void negate(cz_sum *sum)
{
    for (int i = 0; i < DIGITS; i++)
        sum->chunks[i] = -sum->chunks[i];
    cz__sum_settle(sum);
}

/* Bits from `place` on of a settled number that is not negative, 64 of them. */
static uint64_t bits_at(const cz_sum *sum, int place)
{
    uint64_t bits = 0;
    for (int k = 0; k < 64; k++) {
        const int digit = (place + k) / DIGIT_BITS, shift = (place + k) % DIGIT_BITS;
        if (digit < DIGITS)
            bits |= ((uint64_t)sum->chunks[digit] >> shift & 1) << k;
    }
    return bits;
}

static bool any_bit_below(const cz_sum *sum, int place)
{
    for (int i = 0; i < place / DIGIT_BITS; i++)
        if (sum->chunks[i])
            return true;
    const int64_t mask = ((int64_t)1 << place % DIGIT_BITS) - 1;
    return (sum->chunks[place / DIGIT_BITS] & mask) != 0;
}

static int highest_bit(const cz_sum *sum)
{
    int i = DIGITS - 1;
    while (i >= 0 && sum->chunks[i] == 0)
        i--;
    return i < 0 ? -1 : i * DIGIT_BITS + 63 - __builtin_clzll((uint64_t)sum->chunks[i]);
}

/* Of a settled number that is not negative. Below 2^-1021 every such number is a double. */
static double rounded(const cz_sum *sum)
{
    const int highest = highest_bit(sum);
    if (highest >= 1024 + 1074)
        return INFINITY;
    if (highest < 53)
        return ldexp((double)bits_at(sum, 0), -1074);
    const int lowest = highest - 52;
    uint64_t mantissa = bits_at(sum, lowest) & 0x1fffffffffffff;
    const bool half = bits_at(sum, lowest - 1) & 1;
    mantissa += half && (any_bit_below(sum, lowest - 1) || mantissa & 1);
    return ldexp((double)mantissa, lowest - 1074);
}

double cz_sum_value(const cz_sum *sum)
{
    CZ__OWN_FLOATS;
    if (!sum)
        return NAN;
    const int64_t *chunks = sum->chunks;
    if (chunks[NOT_A_NUMBER] || (chunks[PLUS_INFINITY] && chunks[MINUS_INFINITY]))
        return NAN;
    if (chunks[PLUS_INFINITY] || chunks[MINUS_INFINITY])
        return chunks[PLUS_INFINITY] ? INFINITY : -INFINITY;
    cz_sum settled = *sum;
    cz__sum_settle(&settled);
    const bool negative = settled.chunks[DIGITS - 1] < 0;
    if (negative)
        negate(&settled);
    return negative ? -rounded(&settled) : rounded(&settled);
}
