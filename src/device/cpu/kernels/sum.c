/* SPDX-License-Identifier: MIT */
/* A term q is h + l + r: h = (q + s) - s is q rounded to a multiple of the last bit of s, l the
 * same of q - h with a smaller s, r what is left. Adding many h, or l, loses nothing while the sum
 * is below 2 s. Rump, Ogita and Oishi, SIAM J. Sci. Comput. 31 (2008), section 3. */
#include "device/cpu/kernels/kernel.h"

#include <math.h>
#include <string.h>

/* Biased exponents: a lane adds up to 2^8 terms, the last bit is 2^-52, the next part starts 2^-53
 * below. */
#define ROOM 8
#define NEXT (53 - ROOM)

_Static_assert(CZ__SUM_TERMS / CZ__SUM_LANES <= 1 << ROOM, "a lane's sum is exact");

CZ_BODY uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

CZ_BODY double one_and_a_half(int64_t biased_exponent)
{
    const uint64_t bits = (uint64_t)biased_exponent << 52 | (uint64_t)1 << 51;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* For terms below 2 to the power of `biased_exponent` - 1023. */
CZ_BODY bool choose_splits(int64_t biased_exponent, double split[2])
{
    const int64_t first = (biased_exponent > 1 ? biased_exponent : 1) + ROOM;
    if (first > 2045)
        return false;
    split[0] = one_and_a_half(first);
    split[1] = one_and_a_half(first > NEXT ? first - NEXT : 1);
    return true;
}

/* So many running sums, so that the loop over terms is one of elements; folded to the lanes at the
 * end. */
#define WIDTH 128

CZ_BODY void fold(double *sums)
{
    for (int width = WIDTH / 2; width >= CZ__SUM_LANES; width /= 2)
        for (int j = 0; j < width; j++)
            sums[j] += sums[j + width];
}

#define VALUE(exponent) ((exponent) + 1)
#define SQUARE(exponent) (2 * ((exponent) + 1) - 1023)

#define ELEMENT double
#define BITS int64_t
#define MAGNITUDE 0x7fffffffffffffff
#define NOT_FINITE 0x7ff0000000000000
#define EXPONENT(bits) ((bits) >> 52)
#define BOUND VALUE
#define TERM(x) (x)
#define TERMS sum_values
#define TYPE f64
#include "device/cpu/kernels/sum_body.h"

#define ELEMENT float
#define BITS int32_t
#define MAGNITUDE 0x7fffffff
#define NOT_FINITE 0x7f800000
#define EXPONENT(bits) (((bits) >> 23) + 1023 - 127)
#define BOUND SQUARE
#define TERM(x) ((double)(x) * (double)(x))
#define TERMS sum_squares
#define TYPE f32
#include "device/cpu/kernels/sum_body.h"

#define ELEMENT double
#define BITS int64_t
#define MAGNITUDE 0x7fffffffffffffff
#define NOT_FINITE 0x7ff0000000000000
#define EXPONENT(bits) ((bits) >> 52)
#define BOUND SQUARE
#define TERM(x) ((x) * (x))
#define TERMS sum_squares
#define TYPE f64
#include "device/cpu/kernels/sum_body.h"
