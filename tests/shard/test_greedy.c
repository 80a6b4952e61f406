/* SPDX-License-Identifier: MIT */
/* The greedy partition against the recorded partitions of PyTorch. */
#include <limits.h>
#include <string.h>

#include "czero/shard.h"
#include "shard/shard.h"
#include "support/cz_test.h"

enum { MOST_PARAMS = 512, MOST_GROUPS = 16 };

/* The record "PREFIX<a>…" of a case; NULL: there is none. */
static const int64_t *record(const cz_test_case *c, int64_t *count, const char *format, int a,
                             int b)
{
    char key[64];
    snprintf(key, sizeof key, format, a, b);
    return cz_test_case_i64(c, key, count);
}

/* A rank's spans are its golden lists, one group after the other, without empty parameters. */
static void check_storage(const cz_test_case *c, const cz_shard_map *map, int group_count)
{
    for (int r = 0; r < cz__shard_map_world_size(map); r++) {
        cz_span_iterator iterator;
        cz_span span;
        cz_span_iterate(map, r, &iterator);
        for (int group = 0; group < group_count; group++) {
            int64_t count = 0;
            const int64_t *stored = record(c, &count, "rank%d.group%d", r, group);
            assert_non_null(stored);
            for (int64_t k = 0; k < count; k++) {
                if (cz__shard_map_count(map, stored[k]) == 0)
                    continue;
                assert_true(cz_span_next(&iterator, &span));
                assert_int_equal(span.param, stored[k]);
            }
        }
        assert_false(cz_span_next(&iterator, &span));
    }
}

static void check_golden(const cz_test_case *c)
{
    static int64_t counts[MOST_PARAMS], params[MOST_PARAMS], order[MOST_PARAMS];
    static int owners[MOST_PARAMS];
    const int world_size = (int)cz_test_case_i64(c, "world_size", NULL)[0];
    int64_t param_count = 0, group_sizes[MOST_GROUPS], wanted_count = 0;
    int group_count = 0;
    const int64_t *numel;
    while ((numel = record(c, &group_sizes[group_count], "group%d.numel", group_count, 0))) {
        for (int64_t k = 0; k < group_sizes[group_count]; k++, param_count++) {
            counts[param_count] = numel[k];
            params[param_count] = param_count;
        }
        group_count++;
    }
    assert_ok(cz__partition_greedy(world_size, param_count, counts, group_count, group_sizes,
                                   params, owners, order));
    const int64_t *wanted = cz_test_case_i64(c, "rank_of_param", &wanted_count);
    assert_int_equal(wanted_count, param_count);
    for (int64_t p = 0; p < param_count; p++)
        assert_int_equal(owners[p], wanted[p]);
    cz_shard_map *map = NULL;
    assert_ok(cz__shard_map_create_owners(&map, world_size, param_count, counts, owners, order));
    check_storage(c, map, group_count);
    cz__shard_map_destroy(&map);
}

TEST(partitions_are_those_of_pytorch)
{
    cz_test_gold *gold = cz_test_gold_open("partition.gold");
    assert_non_null(gold);
    assert_int_equal(cz_test_gold_count(gold), 22);
    for (int64_t k = 0; k < cz_test_gold_count(gold); k++)
        check_golden(cz_test_gold_case(gold, k));
    cz_test_gold_close(&gold);
}

/* Groups that neither follow the model's order nor cover it. */
TEST(groups_of_some_parameters)
{
    const int64_t counts[] = {4, 9, 1, 7, 2}, sizes[] = {1, 2}, params[] = {3, 4, 1};
    const int wanted_owners[] = {-1, 1, -1, 0, 0};
    const int64_t wanted_order[] = {3, 1, 4, 0, 2};
    int owners[5];
    int64_t order[5];
    assert_ok(cz__partition_greedy(2, 5, counts, 2, sizes, params, owners, order));
    assert_memory_equal(owners, wanted_owners, sizeof owners);
    assert_memory_equal(order, wanted_order, sizeof order);
}

TEST(one_group_of_all_without_order)
{
    const int64_t counts[] = {1, 2, 3};
    const int wanted[] = {1, 1, 0};
    int owners[3];
    assert_ok(cz__partition_greedy(2, 3, counts, 0, NULL, NULL, owners, NULL));
    assert_memory_equal(owners, wanted, sizeof owners);
    assert_ok(cz__partition_greedy(2, 0, NULL, 0, NULL, NULL, NULL, NULL));
}

TEST(loads_to_begin_with)
{
    const int64_t counts[] = {1, 2, 3}, size = 2, params[] = {0, 1};
    int64_t loads[] = {5, 1, 4};
    int owners[] = {-1, -1, 2};
    assert_ok(cz__partition_greedy_onto(3, loads, 3, counts, 1, &size, params, owners, NULL));
    assert_int_equal(owners[1], 1); /* loads 5 3 4 */
    assert_int_equal(owners[0], 1);
    assert_int_equal(owners[2], 2);
    assert_int_equal(loads[1], 4);
}

static void refused(int world, int64_t param_count, const int64_t *counts, int64_t group_count,
                    const int64_t *sizes, const int64_t *params)
{
    int owners[3];
    assert_int_equal(
        cz__partition_greedy(world, param_count, counts, group_count, sizes, params, owners, NULL),
        CZ_ERR_ARGUMENT);
}

TEST(bad_arguments_are_refused)
{
    const int64_t counts[] = {1, 2, 3}, negative[] = {1, -2, 3}, huge[] = {INT64_MAX, 1, 0};
    const int64_t two[] = {1, 1}, many[] = {2, 2}, minus[] = {-1, 1};
    const int64_t params[] = {0, 2}, twice[] = {2, 2}, outside[] = {0, 3};
    refused(0, 3, counts, 0, NULL, NULL);
    refused(-3, 3, counts, 0, NULL, NULL);
    refused(2, 3, NULL, 0, NULL, NULL);
    refused(2, -3, counts, 0, NULL, NULL);
    refused(2, 3, negative, 0, NULL, NULL);
    refused(2, 3, huge, 0, NULL, NULL);
    refused(2, 3, counts, 2, NULL, params);
    refused(2, 3, counts, 2, two, NULL);
    refused(2, 3, counts, 2, many, params);
    refused(2, 3, counts, 2, minus, params);
    refused(2, 3, counts, 2, two, twice);
    refused(2, 3, counts, 2, two, outside);
    refused(2, 3, counts, -1, two, params);
    assert_int_equal(cz__partition_greedy(2, 3, counts, 0, NULL, NULL, NULL, NULL),
                     CZ_ERR_ARGUMENT);
}

TEST(a_million_parameters_on_16384_ranks)
{
    const int64_t param_count = 1000000;
    int64_t *counts = malloc((size_t)param_count * sizeof *counts);
    int *owners = malloc((size_t)param_count * sizeof *owners);
    assert_true(counts && owners);
    for (int64_t p = 0; p < param_count; p++)
        counts[p] = p * 7919 % 10007;
    assert_ok(cz__partition_greedy(16384, param_count, counts, 0, NULL, NULL, owners, NULL));
    free(counts);
    free(owners);
}

TEST(any_number_of_ranks_costs_what_its_parameters_cost)
{
    const int64_t counts[] = {3, 0, 5, 0, 3};
    int owners[5];
    int64_t order[5];
    cz_test_allocation_reset_peak();
    const int64_t before = cz_test_allocation_bytes();
    assert_ok(cz__partition_greedy(INT_MAX, 5, counts, 0, NULL, NULL, owners, order));
    assert_true(cz_test_allocation_peak() - before < 16 << 10);
    const int wanted[] = {1, 3, 0, 3, 2};
    for (int p = 0; p < 5; p++)
        assert_int_equal(owners[p], wanted[p]);
    assert_ok(cz__partition_greedy(INT_MAX, 0, NULL, 0, NULL, NULL, NULL, NULL));
}

TEST(every_allocation_may_fail)
{
    const int64_t counts[] = {1, 2, 3};
    const int64_t held = cz_test_allocations_held();
    int owners[3];
    int64_t n = 0;
    for (bool failed = true; failed;) {
        cz_test_fail_allocation(++n);
        const cz_status status = cz__partition_greedy(2, 3, counts, 0, NULL, NULL, owners, NULL);
        failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_int_equal(cz_test_allocations_held(), held);
    }
    assert_true(n > 3);
}
