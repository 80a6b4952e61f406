/* SPDX-License-Identifier: MIT */
/* Distances in steps from one number of a type to the next. */
#include "ulps.h"

#include <math.h>
#include <string.h>

#include "support/cz_test.h"
#include "base/half.h"

#define COMPARE(d, dtype, a, b, allowed)                                                           \
    ulps_compare(d, dtype, a, b, (int64_t)(sizeof(a) / sizeof *(a)), 0, allowed)

TEST(steps_of_f32)
{
    const float a[] = {1, 1, -1, 0.0f, 0.0f, -0.0f, 3};
    const float b[] = {
        1, nextafterf(1, 2), nextafterf(-1, 0), -0.0f, nextafterf(0, 1), nextafterf(0, 1), 3};
    distance d = {.at = -1};
    COMPARE(&d, CZ_F32, a, b, 0);
    assert_int_equal(d.count, 7);
    assert_int_equal(d.different, 5);
    assert_int_equal(d.beyond, 4); /* but the zeros of two signs */
    assert_int_equal(d.ulps, 1);
    assert_int_equal(d.at, 1);
    d = (distance){.at = -1};
    COMPARE(&d, CZ_F32, a, b, 1);
    assert_int_equal(d.beyond, 0);
    assert_int_equal(d.at, -1);
}

TEST(across_zero_and_to_infinity)
{
    const double tiny = nextafter(0, 1);
    const double a[] = {-tiny, INFINITY}, b[] = {tiny, 1.7976931348623157e308};
    distance d = {.at = -1};
    ulps_compare(&d, CZ_F64, a, b, 1, 0, 0);
    assert_int_equal(d.ulps, 2);
    d = (distance){.at = -1};
    ulps_compare(&d, CZ_F64, a + 1, b + 1, 1, 5, 0);
    assert_int_equal(d.ulps, 1);
    assert_true(isinf(d.absolute));
    assert_int_equal(d.at, 5);
}

TEST(nan_on_one_side)
{
    const uint32_t other_nan = 0x7fc00001;
    float a[] = {NAN, NAN, 1}, b[] = {NAN, 1, NAN};
    memcpy(&b[0], &other_nan, sizeof other_nan);
    distance d = {.at = -1};
    COMPARE(&d, CZ_F32, a, b, UINT64_MAX);
    assert_int_equal(d.different, 3);
    assert_int_equal(d.nans, 2);
    assert_int_equal(d.beyond, 2);
}

TEST(16_bits_and_integers)
{
    const uint16_t one[] = {cz__bf16_from_f32(1)}, next[] = {(uint16_t)(cz__bf16_from_f32(1) + 1)};
    const int64_t low[] = {INT64_MIN}, high[] = {INT64_MAX};
    const int32_t minus[] = {-3}, plus[] = {4};
    const uint8_t small[] = {1}, large[] = {255};
    distance d = {.at = -1};
    COMPARE(&d, CZ_BF16, one, next, 0);
    assert_int_equal(d.ulps, 1);
    assert_true(d.absolute == 0x1p-7);
    d = (distance){.at = -1};
    COMPARE(&d, CZ_F16, one, next, 0);
    assert_int_equal(d.ulps, 1);
    d = (distance){.at = -1};
    COMPARE(&d, CZ_I64, low, high, 0);
    assert_true(d.ulps == UINT64_MAX);
    d = (distance){.at = -1};
    COMPARE(&d, CZ_I32, minus, plus, 6);
    assert_int_equal(d.ulps, 7);
    assert_int_equal(d.beyond, 1);
    d = (distance){.at = -1};
    COMPARE(&d, CZ_U8, small, large, 0);
    assert_int_equal(d.ulps, 254);
}
