/* SPDX-License-Identifier: MIT */
/* Exact sums against a second way of adding without loss, in any order, cut in any way, with the
 * numbers that rounding gets wrong: ties, cancellation, the ends of the range, infinities and
 * NaN. */
#include "czero/sum.h"
#include "support/cz_test.h"
#include "base/sum.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define MOST 3000

static uint64_t state_of_numbers = 1;

static uint64_t number(void)
{
    state_of_numbers = state_of_numbers * 6364136223846793005u + 1442695040888963407u;
    return state_of_numbers >> 11;
}

/* Any mantissa and sign, exponents in a range around 0. */
static double any_term(int range)
{
    const double mantissa = 1 + (double)(number() & 0xfffffffffffff) / 0x10000000000000;
    const int exponent = (int)(number() % (uint64_t)(2 * range + 1)) - range;
    return ldexp(number() & 1 ? mantissa : -mantissa, exponent);
}

/* Shewchuk: partial sums that do not overlap, each addition split into sum and error. The sum must
 * stay below the largest double. */
static double second_way(int count, const double *terms)
{
    static double partials[MOST + 1];
    int used = 0;
    for (int i = 0; i < count; i++) {
        double x = terms[i];
        int kept = 0;
        for (int k = 0; k < used; k++) {
            double y = partials[k];
            if (fabs(x) < fabs(y)) {
                const double swap = x;
                x = y;
                y = swap;
            }
            const double high = x + y, low = y - (high - x);
            if (low != 0)
                partials[kept++] = low;
            x = high;
        }
        partials[kept] = x;
        used = kept + 1;
    }
    if (used == 0)
        return 0;
    double high = partials[--used], low = 0;
    while (used > 0) {
        const double x = high, y = partials[--used];
        high = x + y;
        low = y - (high - x);
        if (low != 0)
            break;
    }
    /* a tie is decided by what lies below it */
    if (used > 0 && (low < 0) == (partials[used - 1] < 0) && partials[used - 1] != 0) {
        const double twice = low * 2, next = high + twice;
        if (twice == next - high)
            high = next;
    }
    return high;
}

static double sum_of(int count, const double *terms)
{
    cz_sum sum = {{0}};
    for (int i = 0; i < count; i++)
        cz__sum_add(&sum, terms[i]);
    return cz_sum_value(&sum);
}

/* In parts, each a sum of its own, added chunk by chunk as an all-reduce does. */
static double sum_in_parts(int parts, int count, const double *terms)
{
    cz_sum total = {{0}};
    for (int part = 0; part < parts; part++) {
        cz_sum sum = {{0}};
        for (int i = part; i < count; i += parts)
            cz__sum_add(&sum, terms[i]);
        cz__sum_settle(&sum);
        for (int k = 0; k < CZ_SUM_CHUNKS; k++)
            total.chunks[k] += sum.chunks[k];
    }
    return cz_sum_value(&total);
}

static void expect_same(double got, double wanted, const char *what)
{
    if (memcmp(&got, &wanted, sizeof got) != 0)
        fail_msg("%s: got %a, wanted %a", what, got, wanted);
}

TEST(sums_of_random_terms_are_exact)
{
    static double terms[MOST];
    static const int ranges[] = {0, 1, 5, 30, 60, 200, 500, 900};
    for (int trial = 0; trial < 400; trial++) {
        const int count = (int)(number() % MOST);
        for (int i = 0; i < count; i++) /* some cancel later */
            terms[i] = i > 4 && number() % 3 == 0 ? -terms[number() % (uint64_t)i]
                                                  : any_term(ranges[trial % 8]);
        const double wanted = second_way(count, terms);
        expect_same(sum_of(count, terms), wanted, "in order");
        expect_same(sum_in_parts(1 + trial % 9, count, terms), wanted, "in parts");
        for (int i = 0; i < count / 2; i++) {
            const double swap = terms[i];
            terms[i] = terms[count - 1 - i];
            terms[count - 1 - i] = swap;
        }
        expect_same(sum_of(count, terms), wanted, "in reverse");
    }
}

TEST(rounding)
{
    const double half = 0x1p-53, tiny = DBL_TRUE_MIN, big = DBL_MAX;
    const struct {
        double terms[4], wanted;
    } cases[] = {
        {{0}, 0},
        {{-0.0, -0.0}, 0},
        {{1, half}, 1},                     /* a tie goes to the even one */
        {{1, 0x1p-52, half}, 1 + 0x1p-51},  /* here upwards */
        {{1, half, tiny}, 1 + 0x1p-52},     /* no tie: something lies below */
        {{1, half, -tiny}, 1},              /* and here above */
        {{-1, -half, -tiny}, -1 - 0x1p-52}, /* the same with a sign */
        {{2, -half, -tiny}, 2 - 0x1p-52},
        {{1e308, 1, -1e308}, 1},
        {{big, big, -big, -big}, 0},
        {{big, big, -big, tiny}, big},
        {{big, big}, INFINITY},
        {{-big, -big, -tiny}, -INFINITY},
        {{big, 0x1p970}, INFINITY}, /* rounds up to 2^1024 */
        {{big, 0x1p969, 0x1p968}, big},
        {{tiny, tiny}, 2 * tiny},
        {{DBL_MIN, -tiny}, DBL_MIN - tiny}, /* the largest subnormal */
        {{0x1p-1021, tiny}, 0x1p-1021},     /* a tie again */
        {{0x1p-1021, tiny, tiny, tiny}, 0x1p-1021 + 4 * tiny},
        {{1, INFINITY}, INFINITY},
        {{-INFINITY, big, big}, -INFINITY},
        {{INFINITY, INFINITY}, INFINITY},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        expect_same(sum_of(4, cases[k].terms), cases[k].wanted, "a case");
        expect_same(sum_in_parts(3, 4, cases[k].terms), cases[k].wanted, "a case in parts");
    }
    assert_true(isnan(sum_of(3, (double[]){1, NAN, 2})));
    assert_true(isnan(sum_of(3, (double[]){INFINITY, 1, -INFINITY})));
    assert_true(isnan(sum_in_parts(2, 2, (double[]){INFINITY, -INFINITY})));
}

/* More additions than a chunk has room for without carries, all into the same chunks. */
TEST(many_additions)
{
    cz_sum sum = {{0}}, other;
    for (int i = 0; i < 3000000; i++)
        cz__sum_add(&sum, i % 3 ? -DBL_MAX : DBL_MAX);
    assert_true(cz_sum_value(&sum) == -INFINITY);
    for (int i = 0; i < 1000000; i++)
        cz__sum_add(&sum, DBL_MAX);
    assert_true(cz_sum_value(&sum) == 0);
    cz__sum_add(&sum, -DBL_TRUE_MIN);
    other = sum;
    cz__sum_settle(&other);
    assert_true(cz_sum_value(&sum) == -DBL_TRUE_MIN && cz_sum_value(&other) == -DBL_TRUE_MIN);
}
