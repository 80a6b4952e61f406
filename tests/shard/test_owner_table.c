/* SPDX-License-Identifier: MIT */
/* Owner tables: whole parameters, nobody's parameters, empty ones, a rank's order. */
#include <limits.h>
#include <string.h>

#include "czero/shard.h"
#include "support/cz_test.h"
#include "shard/shard.h"
#include "support/spans.h"

static const int64_t counts[] = {5, 0, 7, 1, 3};
static const int owners[] = {2, 0, -1, 2, 0};

TEST(spans_are_listed_in_order)
{
    const int64_t order[] = {4, 3, 2, 1, 0};
    const int64_t wanted[] = {3, 0}; /* rank 2 */
    cz_shard_map *map = NULL;
    cz_span_iterator iterator;
    cz_span span;
    int64_t k = 0;
    assert_ok(cz__shard_map_create_owners(&map, 4, 5, counts, owners, order));
    assert_false(cz__shard_map_cuts(map));
    cz_span_iterate(map, 2, &iterator);
    for (; cz_span_next(&iterator, &span); k++) {
        assert_int_equal(span.param, wanted[k]);
        assert_int_equal(span.begin, 0);
        assert_int_equal(span.end, counts[wanted[k]]);
        assert_int_equal(span.rank, 2);
    }
    assert_int_equal(k, 2);
    assert_int_equal(cz_test_owned(map, 2), 6);
    cz__shard_map_destroy(&map);
}

TEST(empty_and_nobodys_parameters)
{
    cz_shard_map *map = NULL;
    cz_span_iterator iterator;
    cz_span span;
    assert_ok(cz__shard_map_create_owners(&map, 3, 5, counts, owners, NULL));
    cz_span_iterate(map, 0, &iterator);
    assert_true(cz_span_next(&iterator, &span));
    assert_int_equal(span.param, 4); /* 1 is empty: a home, but no span */
    assert_false(cz_span_next(&iterator, &span));
    assert_int_equal(cz__shard_map_home(map, 1), 0);
    assert_int_equal(cz__shard_map_home(map, 2), -1);
    assert_false(cz__shard_map_locate(map, 2, 0, &span));
    assert_true(cz__shard_map_locate(map, 0, 4, &span));
    assert_int_equal(span.begin, 0);
    assert_int_equal(span.end, 5);
    assert_int_equal(span.rank, 2);
    cz_span_iterate(map, 1, &iterator);
    assert_false(cz_span_next(&iterator, &span));
    assert_int_equal(cz__shard_map_count(map, 2), 7);
    assert_int_equal(cz__shard_map_count(map, 5), -1);
    cz__shard_map_destroy(&map);
}

TEST(nothing_at_all)
{
    cz_shard_map *map = NULL;
    cz_span_iterator iterator;
    cz_span span;
    assert_ok(cz__shard_map_create_owners(&map, 2, 0, NULL, NULL, NULL));
    cz_span_iterate(map, 1, &iterator);
    assert_false(cz_span_next(&iterator, &span));
    cz_span_iterate(NULL, 0, &iterator);
    assert_false(cz_span_next(&iterator, &span));
    assert_int_equal(cz_test_owned(map, 0), 0);
    cz__shard_map_destroy(&map);
}

static void refused(int world, int64_t param_count, const int64_t *sizes, const int *who,
                    const int64_t *order)
{
    cz_shard_map *map = (cz_shard_map *)&map;
    assert_int_equal(cz__shard_map_create_owners(&map, world, param_count, sizes, who, order),
                     CZ_ERR_ARGUMENT);
    assert_null(map);
    assert_true(strlen(cz_last_error()) > 10);
}

TEST(bad_arguments_are_refused)
{
    const int64_t negative[] = {5, 0, 7, 1, -3}, twice[] = {0, 1, 2, 3, 3};
    const int low[] = {2, 0, -2, 2, 0};
    refused(0, 5, counts, owners, NULL);
    refused(2, 5, counts, owners, NULL); /* rank 2 of 2 */
    refused(3, 5, counts, low, NULL);
    refused(3, 5, negative, owners, NULL);
    refused(3, 5, counts, NULL, NULL);
    refused(3, 5, NULL, owners, NULL);
    refused(3, 5, counts, owners, twice);
    refused(3, -5, counts, owners, NULL);
    assert_int_equal(cz__shard_map_create_owners(NULL, 3, 5, counts, owners, NULL),
                     CZ_ERR_ARGUMENT);
}

TEST(every_allocation_may_fail)
{
    const int64_t held = cz_test_allocations_held();
    int64_t n = 0;
    for (bool failed = true; failed;) {
        cz_shard_map *map = NULL;
        cz_test_fail_allocation(++n);
        const cz_status status = cz__shard_map_create_owners(&map, 3, 5, counts, owners, NULL);
        failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_true(failed == !map);
        cz__shard_map_destroy(&map);
        assert_int_equal(cz_test_allocations_held(), held);
    }
    assert_true(n > 5);
}

/* Memory and time follow the parameters, whatever the number of ranks is. */
TEST(any_number_of_ranks_costs_what_its_parameters_cost)
{
    const int far[] = {INT_MAX - 1, 0, -1, 1 << 30, INT_MAX - 1};
    const int64_t order[] = {4, 3, 2, 1, 0}, wanted[] = {4, 0};
    cz_shard_map *map = NULL;
    cz_span_iterator iterator;
    cz_span span;
    cz_test_allocation_reset_peak();
    const int64_t before = cz_test_allocation_bytes();
    CZ_CHECK(cz__shard_map_create_owners(&map, INT_MAX, 5, counts, far, order));
    assert_true(cz_test_allocation_peak() - before < 16 << 10);
    cz_span_iterate(map, INT_MAX - 1, &iterator);
    for (int64_t k = 0; k < 2; k++) {
        assert_true(cz_span_next(&iterator, &span));
        assert_int_equal(span.param, wanted[k]);
        assert_int_equal(span.rank, INT_MAX - 1);
    }
    assert_false(cz_span_next(&iterator, &span));
    assert_int_equal(cz_test_owned(map, INT_MAX - 1), 8);
    assert_int_equal(cz_test_owned(map, 1 << 30), 1);
    assert_int_equal(cz_test_owned(map, 77), 0);
    cz_span_iterate(map, 77, &iterator);
    assert_false(cz_span_next(&iterator, &span));
    assert_int_equal(cz__shard_map_listed(map, 0), 1);
    assert_int_equal(cz__shard_map_listed(map, 4), -1);
    cz__shard_map_destroy(&map);
}
