/* SPDX-License-Identifier: MIT */
/* Even cuts against blocks that are dealt out one by one. */
#include <string.h>

#include "czero/shard.h"
#include "support/cz_test.h"
#include "shard/shard.h"
#include "support/spans.h"

enum { MOST_PARAMS = 12, MOST_RANKS = 9, MOST_ELEMENTS = 4000 };

static uint64_t seed;

static int64_t draw(int64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)below);
}

/* A layout, and the owner of each of its elements as the rule says it in words. */
typedef struct layout {
    int world_size;
    int64_t param_count;
    int64_t counts[MOST_PARAMS];
    int64_t order[MOST_PARAMS];
    int64_t range_count;
    int64_t range_begins[MOST_PARAMS + 1];
    size_t element_size;
    int owner[MOST_PARAMS][MOST_ELEMENTS];
    int64_t blocks[MOST_RANKS];
} layout;

static void draw_layout(layout *l)
{
    static const size_t sizes[] = {1, 2, 4, 8};
    memset(l, 0, sizeof *l);
    l->world_size = 1 + (int)draw(MOST_RANKS);
    l->param_count = draw(MOST_PARAMS + 1);
    l->element_size = sizes[draw(4)];
    const int64_t largest = draw(4) == 0 ? MOST_ELEMENTS : 1 + draw(100);
    for (int64_t p = 0; p < l->param_count; p++) {
        l->counts[p] = draw(4) == 0 ? 0 : draw(largest);
        l->order[p] = p;
    }
    for (int64_t p = l->param_count - 1; p > 0; p--) {
        const int64_t other = draw(p + 1), kept = l->order[p];
        l->order[p] = l->order[other];
        l->order[other] = kept;
    }
    l->range_count = 1 + draw(4);
    for (int64_t k = 1; k < l->range_count; k++)
        l->range_begins[k] =
            l->range_begins[k - 1] + draw(l->param_count - l->range_begins[k - 1] + 1);
}

static int64_t range_end(const layout *l, int64_t range)
{
    return range + 1 < l->range_count ? l->range_begins[range + 1] : l->param_count;
}

/* One block after the other: each rank its share, then on to the next rank. */
static void deal_range(layout *l, int64_t range, int *extra)
{
    const int64_t block = 64 / (int64_t)l->element_size;
    int64_t length = 0, share[MOST_RANKS];
    for (int64_t k = l->range_begins[range]; k < range_end(l, range); k++)
        length += l->counts[l->order[k]];
    const int64_t blocks = (length + block - 1) / block;
    for (int r = 0; r < l->world_size; r++)
        share[r] = blocks / l->world_size;
    for (int64_t k = 0; k < blocks % l->world_size; k++) {
        *extra = (*extra + l->world_size - 1) % l->world_size;
        share[*extra]++;
    }
    int rank = 0;
    int64_t element = 0, used = 0;
    for (int64_t k = l->range_begins[range]; k < range_end(l, range); k++)
        for (int64_t e = 0; e < l->counts[l->order[k]]; e++, element++) {
            if (element % block == 0) {
                while (used == share[rank])
                    rank++, used = 0;
                used++;
                l->blocks[rank]++;
            }
            l->owner[l->order[k]][e] = rank;
        }
}

static void deal_layout(layout *l)
{
    int extra = 0;
    for (int64_t range = 0; range < l->range_count; range++)
        deal_range(l, range, &extra);
}

static cz_shard_map *make(const layout *l)
{
    cz_shard_map *map = NULL;
    assert_ok(cz__shard_map_create_even(&map, l->world_size, l->param_count, l->counts, l->order,
                                        l->range_count, l->range_begins, l->element_size));
    return map;
}

static void check_locate(const layout *l, const cz_shard_map *map)
{
    for (int64_t p = 0; p < l->param_count; p++)
        for (int64_t e = 0; e < l->counts[p]; e++) {
            cz_span span;
            int64_t begin = e, end = e;
            const int rank = l->owner[p][e];
            while (begin > 0 && l->owner[p][begin - 1] == rank)
                begin--;
            while (end < l->counts[p] && l->owner[p][end] == rank)
                end++;
            assert_true(cz__shard_map_locate(map, p, e, &span));
            assert_int_equal(span.rank, rank);
            assert_int_equal(span.param, p);
            assert_int_equal(span.begin, begin);
            assert_int_equal(span.end, end);
        }
}

/* The spans of all ranks are all elements once, each rank's in the order of the layout. */
static void check_spans(const layout *l, const cz_shard_map *map)
{
    int64_t elements = 0, total = 0, position[MOST_PARAMS];
    for (int64_t k = 0; k < l->param_count; k++) {
        position[l->order[k]] = k;
        total += l->counts[k];
    }
    for (int r = 0; r < l->world_size; r++) {
        cz_span_iterator iterator;
        cz_span span;
        int64_t last = -1, owned = 0;
        cz_span_iterate(map, r, &iterator);
        while (cz_span_next(&iterator, &span)) {
            assert_int_equal(span.rank, r);
            assert_true(span.begin < span.end && span.end <= l->counts[span.param]);
            assert_true(position[span.param] > last); /* never two spans of one parameter */
            for (int64_t e = span.begin; e < span.end; e++)
                assert_int_equal(l->owner[span.param][e], r);
            last = position[span.param];
            owned += span.end - span.begin;
        }
        assert_false(cz_span_next(&iterator, &span));
        assert_int_equal(cz_test_owned(map, r), owned);
        elements += owned;
    }
    assert_int_equal(elements, total);
}

static void check_homes(const layout *l, const cz_shard_map *map)
{
    for (int64_t range = 0; range < l->range_count; range++) {
        int last = 0;
        for (int64_t k = l->range_begins[range]; k < range_end(l, range); k++)
            if (l->counts[l->order[k]] > 0)
                last = l->owner[l->order[k]][l->counts[l->order[k]] - 1];
        for (int64_t k = range_end(l, range) - 1; k >= l->range_begins[range]; k--) {
            if (l->counts[l->order[k]] > 0)
                last = l->owner[l->order[k]][0];
            assert_int_equal(cz__shard_map_home(map, l->order[k]), last);
        }
    }
}

static void check_balance(const layout *l)
{
    int64_t least = INT64_MAX, most = 0;
    for (int r = 0; r < l->world_size; r++) {
        least = l->blocks[r] < least ? l->blocks[r] : least;
        most = l->blocks[r] > most ? l->blocks[r] : most;
    }
    assert_true(most - least <= 1);
}

TEST(cuts_are_those_of_blocks_dealt_out)
{
    static layout l;
    for (seed = 1; seed < 2000; seed += 7) {
        const uint64_t begin = seed;
        draw_layout(&l);
        deal_layout(&l);
        cz_shard_map *map = make(&l);
        assert_true(cz__shard_map_cuts(map));
        assert_int_equal(cz__shard_map_world_size(map), l.world_size);
        assert_int_equal(cz__shard_map_param_count(map), l.param_count);
        check_locate(&l, map);
        check_spans(&l, map);
        check_homes(&l, map);
        check_balance(&l);
        cz__shard_map_destroy(&map);
        assert_null(map);
        seed = begin;
    }
}

/* One range: elements too differ by one block at most. */
TEST(one_range_is_even_in_elements)
{
    for (int world = 1; world <= 40; world++)
        for (int64_t count = 0; count < 2000; count += 13) {
            cz_shard_map *map = NULL;
            int64_t least = INT64_MAX, most = 0;
            assert_ok(cz__shard_map_create_even(&map, world, 1, &count, NULL, 0, NULL, 4));
            for (int r = 0; r < world; r++) {
                const int64_t owned = cz_test_owned(map, r);
                least = owned < least ? owned : least;
                most = owned > most ? owned : most;
            }
            assert_true(most - least <= 16);
            cz__shard_map_destroy(&map);
        }
}

static void refused(int world, int64_t params, const int64_t *counts, const int64_t *order,
                    int64_t ranges, const int64_t *begins, size_t size)
{
    cz_shard_map *map = (cz_shard_map *)&map;
    assert_int_equal(
        cz__shard_map_create_even(&map, world, params, counts, order, ranges, begins, size),
        CZ_ERR_ARGUMENT);
    assert_null(map);
    assert_true(strlen(cz_last_error()) > 10);
}

TEST(bad_arguments_are_refused)
{
    const int64_t counts[] = {3, 4}, negative[] = {3, -1}, huge[] = {INT64_MAX - 100, 60};
    const int64_t twice[] = {1, 1}, outside[] = {0, 2};
    const int64_t late[] = {1}, falling[] = {0, 2, 1}, beyond[] = {0, 3};
    refused(0, 2, counts, NULL, 0, NULL, 4);
    refused(2, -1, counts, NULL, 0, NULL, 4);
    refused(2, 2, NULL, NULL, 0, NULL, 4);
    refused(2, 2, negative, NULL, 0, NULL, 4);
    refused(2, 2, huge, NULL, 0, NULL, 1);
    refused(2, 2, counts, twice, 0, NULL, 4);
    refused(2, 2, counts, outside, 0, NULL, 4);
    refused(2, 2, counts, NULL, -1, NULL, 4);
    refused(2, 2, counts, NULL, 1, NULL, 4);
    refused(2, 2, counts, NULL, 1, late, 4);
    refused(2, 2, counts, NULL, 3, falling, 4);
    refused(2, 2, counts, NULL, 2, beyond, 4);
    refused(2, 2, counts, NULL, 0, NULL, 3);
    refused(2, 2, counts, NULL, 0, NULL, 0);
    assert_int_equal(cz__shard_map_create_even(NULL, 2, 2, counts, NULL, 0, NULL, 4),
                     CZ_ERR_ARGUMENT);
}

TEST(questions_outside_the_map)
{
    const int64_t counts[] = {3, 0};
    cz_shard_map *map = NULL;
    cz_span_iterator iterator;
    cz_span span;
    assert_ok(cz__shard_map_create_even(&map, 2, 2, counts, NULL, 0, NULL, 4));
    assert_false(cz__shard_map_locate(map, 0, 3, &span));
    assert_false(cz__shard_map_locate(map, 0, -1, &span));
    assert_false(cz__shard_map_locate(map, 1, 0, &span));
    assert_false(cz__shard_map_locate(map, 2, 0, &span));
    assert_int_equal(cz__shard_map_home(map, 2), -1);
    assert_int_equal(cz_test_owned(map, 2), 0);
    for (int r = -1; r <= 2; r += 3) {
        cz_span_iterate(map, r, &iterator);
        assert_false(cz_span_next(&iterator, &span));
    }
    cz__shard_map_destroy(&map);
    cz__shard_map_destroy(&map);
    cz__shard_map_destroy(NULL);
}

TEST(no_overflow_near_the_largest_total)
{
    const int64_t counts[] = {INT64_MAX - 64};
    cz_shard_map *map = NULL;
    int64_t sum = 0;
    assert_ok(cz__shard_map_create_even(&map, 7, 1, counts, NULL, 0, NULL, 1));
    for (int r = 0; r < 7; r++)
        sum += cz_test_owned(map, r);
    assert_int_equal(sum, counts[0]);
    cz__shard_map_destroy(&map);
}

/* 1.6e10 spans in all, of which one rank's are listed: the test is that it ends. */
TEST(a_million_parameters_on_16384_ranks)
{
    const int64_t param_count = 1000000;
    int64_t *counts = malloc((size_t)param_count * sizeof *counts);
    cz_shard_map *map = NULL;
    cz_span_iterator iterator;
    cz_span span;
    int64_t elements = 0;
    assert_non_null(counts);
    for (int64_t p = 0; p < param_count; p++)
        counts[p] = p % 1000;
    assert_ok(cz__shard_map_create_even(&map, 16384, param_count, counts, NULL, 0, NULL, 4));
    assert_true(cz_memory_bytes(CZ_MEMORY_GENERAL) < 40u * (size_t)param_count);
    cz_span_iterate(map, 12345, &iterator);
    while (cz_span_next(&iterator, &span))
        elements += span.end - span.begin;
    assert_int_equal(elements, cz_test_owned(map, 12345));
    cz__shard_map_destroy(&map);
    free(counts);
}

TEST(every_allocation_may_fail)
{
    const int64_t counts[] = {30, 0, 5}, order[] = {2, 0, 1};
    const int64_t held = cz_test_allocations_held();
    int64_t n = 0;
    for (bool failed = true; failed;) {
        cz_shard_map *map = NULL;
        cz_test_fail_allocation(++n);
        const cz_status status = cz__shard_map_create_even(&map, 3, 3, counts, order, 0, NULL, 4);
        failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_true(failed == !map);
        cz__shard_map_destroy(&map);
        assert_int_equal(cz_test_allocations_held(), held);
    }
    assert_true(n > 5);
}
