/* SPDX-License-Identifier: MIT */
/* Elements of a shape. */
#include "support/cz_test.h"

#include "czero/tensor.h"

static int64_t count_of(int dimensions, int64_t a, int64_t b, int64_t c)
{
    const cz_tensor tensor = {.dtype = CZ_F32, .dimensions = dimensions, .shape = {a, b, c}};
    return cz_tensor_count(&tensor);
}

TEST(counts_are_products_that_fit)
{
    assert_int_equal(count_of(0, 9, 9, 9), 1);
    assert_int_equal(count_of(1, 7, 9, 9), 7);
    assert_int_equal(count_of(3, 2, 3, 5), 30);
    assert_int_equal(count_of(2, 1, INT64_MAX, 0), INT64_MAX);
    const cz_tensor eight = {.dimensions = 8, .shape = {2, 2, 2, 2, 2, 2, 2, 3}};
    assert_int_equal(cz_tensor_count(&eight), 384);
}

TEST(empty_ones)
{
    assert_int_equal(count_of(1, 0, 9, 9), 0);
    assert_int_equal(count_of(3, 5, 0, 7), 0);
    assert_int_equal(count_of(3, INT64_MAX, INT64_MAX, 0), 0); /* wherever the 0 stands */
    assert_int_equal(count_of(3, 0, INT64_MAX, INT64_MAX), 0);
}

TEST(what_is_no_shape)
{
    assert_int_equal(cz_tensor_count(NULL), -1);
    assert_int_equal(count_of(-1, 1, 1, 1), -1);
    assert_int_equal(count_of(CZ_MAX_DIMENSIONS + 1, 1, 1, 1), -1);
    assert_int_equal(count_of(1, -1, 1, 1), -1);
    assert_int_equal(count_of(2, 0, -1, 1), -1);
    assert_int_equal(count_of(2, -2, -3, 1), -1);
    assert_int_equal(count_of(2, INT64_MAX, 2, 1), -1);
    assert_int_equal(count_of(3, INT64_C(1) << 32, INT64_C(1) << 31, 1), -1);
}
