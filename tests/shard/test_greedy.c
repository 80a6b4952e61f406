/* SPDX-License-Identifier: MIT */
/* The greedy partition against the recorded partitions of PyTorch. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "czero/shard.h"
#include "shard/greedy.h"
#include "support/failing.h"

enum { MOST_PARAMS = 512, MOST_GROUPS = 16, MOST_RANKS = 64 };

typedef struct golden {
    int world_size;
    int64_t param_count, group_count;
    int64_t counts[MOST_PARAMS], rank_of_param[MOST_PARAMS], group_sizes[MOST_GROUPS];
    int64_t stored[MOST_RANKS][MOST_GROUPS][MOST_PARAMS], stored_count[MOST_RANKS][MOST_GROUPS];
} golden;

static int64_t read_values(FILE *file, int64_t *values)
{
    long long count = 0, value = 0;
    assert_int_equal(fscanf(file, "%lld", &count), 1);
    for (long long k = 0; k < count; k++) {
        assert_int_equal(fscanf(file, "%lld", &value), 1);
        values[k] = value;
    }
    return count;
}

static void read_record(FILE *file, golden *g)
{
    char key[64];
    int rank, group;
    int64_t world = 0;
    assert_int_equal(fscanf(file, "%63s", key), 1);
    if (strcmp(key, "world_size") == 0) {
        read_values(file, &world);
        g->world_size = (int)world;
    } else if (strcmp(key, "rank_of_param") == 0) {
        read_values(file, g->rank_of_param);
    } else if (sscanf(key, "rank%d.group%d", &rank, &group) == 2) {
        g->stored_count[rank][group] = read_values(file, g->stored[rank][group]);
    } else {
        assert_int_equal(sscanf(key, "group%d.numel", &group), 1);
        g->group_sizes[group] = read_values(file, g->counts + g->param_count);
        g->param_count += g->group_sizes[group];
        g->group_count = group + 1;
    }
}

/* A rank's spans are its golden lists, one group after the other, without empty parameters. */
static void check_storage(const golden *g, const cz_shard_map *map)
{
    for (int r = 0; r < g->world_size; r++) {
        cz_span_iterator iterator;
        cz_span span;
        int64_t first = 0;
        cz_span_iterate(map, r, &iterator);
        for (int64_t group = 0; group < g->group_count; first += g->group_sizes[group++])
            for (int64_t k = 0; k < g->stored_count[r][group]; k++) {
                const int64_t param = g->stored[r][group][k];
                if (g->counts[param] == 0)
                    continue;
                assert_true(cz_span_next(&iterator, &span));
                assert_int_equal(span.param, param);
                assert_true(param >= first && param < first + g->group_sizes[group]);
            }
        assert_false(cz_span_next(&iterator, &span));
    }
}

static void check_golden(const golden *g)
{
    static int64_t params[MOST_PARAMS], order[MOST_PARAMS];
    static int owners[MOST_PARAMS];
    cz_shard_map *map = NULL;
    for (int64_t p = 0; p < g->param_count; p++)
        params[p] = p;
    assert_int_equal(cz_partition_greedy(g->world_size, g->param_count, g->counts, g->group_count,
                                         g->group_sizes, params, owners, order),
                     CZ_OK);
    for (int64_t p = 0; p < g->param_count; p++)
        assert_int_equal(owners[p], g->rank_of_param[p]);
    assert_int_equal(
        cz_shard_map_create_owners(&map, g->world_size, g->param_count, g->counts, owners, order),
        CZ_OK);
    check_storage(g, map);
    cz_shard_map_destroy(&map);
}

static void test_golden_partitions(void **state)
{
    static golden g;
    char word[256];
    int cases = 0;
    FILE *file = fopen(CZ_TEST_GOLDEN_DIR "/partition.gold", "r");
    assert_non_null(file);
    while (fscanf(file, "%255s", word) == 1) {
        if (word[0] == '#') {
            assert_non_null(fgets(word, sizeof word, file));
        } else if (strcmp(word, "case") == 0) {
            assert_int_equal(fscanf(file, "%255s", word), 1);
            memset(&g, 0, sizeof g);
        } else if (strcmp(word, "i64") == 0) {
            read_record(file, &g);
        } else if (strcmp(word, "end") == 0) {
            check_golden(&g);
            cases++;
        }
    }
    fclose(file);
    assert_int_equal(cases, 22);
}

/* Groups that neither follow the model's order nor cover it. */
static void test_groups_of_some_parameters(void **state)
{
    const int64_t counts[] = {4, 9, 1, 7, 2}, sizes[] = {1, 2}, params[] = {3, 4, 1};
    const int wanted_owners[] = {-1, 1, -1, 0, 0};
    const int64_t wanted_order[] = {3, 1, 4, 0, 2};
    int owners[5];
    int64_t order[5];
    assert_int_equal(cz_partition_greedy(2, 5, counts, 2, sizes, params, owners, order), CZ_OK);
    assert_memory_equal(owners, wanted_owners, sizeof owners);
    assert_memory_equal(order, wanted_order, sizeof order);
}

static void test_one_group_of_all_without_order(void **state)
{
    const int64_t counts[] = {1, 2, 3};
    const int wanted[] = {1, 1, 0};
    int owners[3];
    assert_int_equal(cz_partition_greedy(2, 3, counts, 0, NULL, NULL, owners, NULL), CZ_OK);
    assert_memory_equal(owners, wanted, sizeof owners);
    assert_int_equal(cz_partition_greedy(2, 0, NULL, 0, NULL, NULL, NULL, NULL), CZ_OK);
}

static void test_loads_to_begin_with(void **state)
{
    const int64_t counts[] = {1, 2, 3}, size = 2, params[] = {0, 1};
    int64_t loads[] = {5, 1, 4};
    int owners[] = {-1, -1, 2};
    assert_int_equal(cz__partition_greedy_onto(3, loads, 3, counts, 1, &size, params, owners, NULL),
                     CZ_OK);
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
        cz_partition_greedy(world, param_count, counts, group_count, sizes, params, owners, NULL),
        CZ_ERR_ARGUMENT);
}

static void test_bad_arguments_are_refused(void **state)
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
    assert_int_equal(cz_partition_greedy(2, 3, counts, 0, NULL, NULL, NULL, NULL), CZ_ERR_ARGUMENT);
}

static void test_a_million_parameters_on_16384_ranks(void **state)
{
    const int64_t param_count = 1000000;
    int64_t *counts = malloc((size_t)param_count * sizeof *counts);
    int *owners = malloc((size_t)param_count * sizeof *owners);
    const clock_t begin = clock();
    assert_true(counts && owners);
    for (int64_t p = 0; p < param_count; p++)
        counts[p] = p * 7919 % 10007;
    assert_int_equal(cz_partition_greedy(16384, param_count, counts, 0, NULL, NULL, owners, NULL),
                     CZ_OK);
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 5); /* 0.3 s; slow under sanitizers */
    free(counts);
    free(owners);
}

static void test_every_allocation_may_fail(void **state)
{
    const int64_t counts[] = {1, 2, 3};
    int owners[3];
    cz_status status = CZ_ERR_MEMORY;
    long n = 0;
    assert_true(cz_test_failing_begin());
    while (status != CZ_OK) {
        cz_test_fail_allocation(++n);
        status = cz_partition_greedy(2, 3, counts, 0, NULL, NULL, owners, NULL);
        cz_test_fail_allocation(0);
        assert_true(status == CZ_OK || status == CZ_ERR_MEMORY);
        assert_int_equal(cz_memory_bytes(CZ_MEMORY_GENERAL), 0);
    }
    assert_true(n > 3);
    assert_true(cz_test_failing_end());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_partitions),
        cmocka_unit_test(test_groups_of_some_parameters),
        cmocka_unit_test(test_one_group_of_all_without_order),
        cmocka_unit_test(test_loads_to_begin_with),
        cmocka_unit_test(test_bad_arguments_are_refused),
        cmocka_unit_test(test_a_million_parameters_on_16384_ranks),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
