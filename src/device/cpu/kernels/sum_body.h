/* SPDX-License-Identifier: MIT */
/* The kernel of sum.c for the terms TERM(x) of values x of type ELEMENT, named TERMS and TYPE. The
 * order of absolute values is that of their BITS without the sign. */

#define NAME(f) CZ_PASTE(CZ_PASTE(f, TERMS), TYPE)

CZ_BODY BITS NAME(find_largest)(int64_t count, const ELEMENT *x)
{
    BITS largest = 0;
    for (int64_t i = 0; i < count; i++) {
        BITS bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= MAGNITUDE;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

CZ_SUM_KERNEL(TERMS, TYPE)
{
    const ELEMENT *x = values;
    const BITS largest = NAME(find_largest)(count, x);
    double high[WIDTH] = {0}, low[WIDTH] = {0};
    uint64_t rest[WIDTH] = {0}, any = 0;
    memset(block, 0, sizeof *block);
    if (largest == 0)
        return true;
    if (largest >= NOT_FINITE || !choose_splits(BOUND(EXPONENT(largest)), block->split))
        return false;
    const double s = block->split[0], t = block->split[1];
    for (int64_t begin = 0; begin < count; begin += WIDTH) {
        const int64_t width = count - begin < WIDTH ? count - begin : WIDTH;
        for (int64_t j = 0; j < width; j++) {
            const double q = TERM(x[begin + j]), h = (q + s) - s, left = q - h, l = (left + t) - t;
            high[j] += h;
            low[j] += l;
            rest[j] |= bits_of(left - l); /* a difference of equals is +0 */
        }
    }
    fold(high);
    fold(low);
    for (int j = 0; j < WIDTH; j++)
        any |= rest[j];
    block->rest = any != 0;
    for (int j = 0; j < CZ__SUM_LANES; j++) {
        block->sums[0][j] = high[j];
        block->sums[1][j] = low[j];
    }
    return true;
}

#undef NAME
#undef ELEMENT
#undef BITS
#undef MAGNITUDE
#undef NOT_FINITE
#undef EXPONENT
#undef BOUND
#undef TERM
#undef TERMS
#undef TYPE
