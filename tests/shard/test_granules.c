/* SPDX-License-Identifier: MIT */
/* Cuts at granules against granules that are dealt out one by one; who gets what is left of
 * parameters, and whole ones; and how even that is. */
#include <string.h>

#include "czero/shard.h"
#include "support/cz_test.h"
#include "shard/shard.h"
#include "support/spans.h"

enum { MOST_PARAMS = 14, MOST_RANKS = 9, MOST_ELEMENTS = 5000 };

static uint64_t seed;

static int64_t draw(int64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)below);
}

typedef struct layout {
    int world_size;
    int64_t param_count;
    int64_t counts[MOST_PARAMS];
    int64_t order[MOST_PARAMS];
    int64_t range_count;
    int64_t begins[MOST_PARAMS + 1];
    int64_t units[MOST_PARAMS + 1];
    int owners[MOST_PARAMS];
    int owner[MOST_PARAMS][MOST_ELEMENTS];
    int64_t position[MOST_PARAMS];
} layout;

static int64_t draw_count(void)
{
    static const int64_t counts[] = {0, 1, 2, 255, 256, 257, 127, 509, 511, 512, 513, 1021, 4999};
    return draw(3) == 0 ? draw(MOST_ELEMENTS) : counts[draw(sizeof counts / sizeof *counts)];
}

/* Ranges in descending order of their granules, whole ones first. */
static void draw_ranges(layout *l)
{
    static const int64_t units[] = {0, 1000, 256, 256, 256, 16, 7, 3, 1};
    int64_t k = 0, unit = draw(3);
    for (; k < l->param_count && unit < 9; unit += 1 + draw(3)) {
        l->begins[l->range_count] = l->range_count == 0 ? 0 : k;
        l->units[l->range_count++] = units[unit];
        k += draw(l->param_count - k + 1);
    }
    if (l->range_count == 0)
        l->units[l->range_count++] = 256;
}

static void draw_layout(layout *l)
{
    memset(l, 0, sizeof *l);
    l->world_size = 1 + (int)draw(MOST_RANKS);
    l->param_count = draw(MOST_PARAMS + 1);
    for (int64_t p = 0; p < l->param_count; p++) {
        l->counts[p] = draw_count();
        l->order[p] = p;
        l->owners[p] = -1;
    }
    for (int64_t p = l->param_count - 1; p > 0; p--) {
        const int64_t other = draw(p + 1), kept = l->order[p];
        l->order[p] = l->order[other];
        l->order[other] = kept;
    }
    for (int64_t k = 0; k < l->param_count; k++)
        l->position[l->order[k]] = k;
    draw_ranges(l);
}

static cz__cuts cuts_of(const layout *l)
{
    return (cz__cuts){l->order, l->range_count, l->begins, l->units, 4, l->owners};
}

static int64_t range_end(const layout *l, int64_t range)
{
    return range + 1 < l->range_count ? l->begins[range + 1] : l->param_count;
}

/* What of a parameter is cut in granules. */
static int64_t granules_of(const layout *l, int64_t range, int64_t param)
{
    const int64_t unit = l->units[range], count = l->counts[param];
    return unit == 0 ? 0 : count - count % unit;
}

/* One granule after the other: each rank its share, then on to the next rank. What remains is where
 * it was dealt to. */
static void deal_range(layout *l, int64_t range, int *back, int *forth)
{
    const int64_t unit = l->units[range], block = unit > 1 ? unit : 16;
    int64_t length = 0, share[MOST_RANKS], element = 0, used = 0;
    for (int64_t k = l->begins[range]; k < range_end(l, range); k++)
        length += granules_of(l, range, l->order[k]);
    const int64_t blocks = (length + block - 1) / block;
    for (int r = 0; r < l->world_size; r++)
        share[r] = blocks / l->world_size;
    for (int64_t k = 0; k < blocks % l->world_size; k++) {
        if (unit == 1) {
            *back = (*back + l->world_size - 1) % l->world_size;
            share[*back]++;
        } else {
            share[*forth]++;
            *forth = (*forth + 1) % l->world_size;
        }
    }
    int rank = 0;
    for (int64_t k = l->begins[range]; k < range_end(l, range); k++) {
        const int64_t p = l->order[k], granules = granules_of(l, range, p);
        for (int64_t e = 0; e < l->counts[p]; e++) {
            if (e >= granules) {
                l->owner[p][e] = l->owners[p];
                continue;
            }
            if (element++ % block == 0) {
                while (used == share[rank])
                    rank++, used = 0;
                used++;
            }
            l->owner[p][e] = rank;
        }
    }
}

static void deal_layout(layout *l)
{
    int back = 0, forth = 0;
    for (int64_t range = 0; range < l->range_count; range++)
        deal_range(l, range, &back, &forth);
}

static void check_locate(const layout *l, const cz_shard_map *map)
{
    for (int64_t p = 0; p < l->param_count; p++)
        for (int64_t e = 0; e < l->counts[p]; e += e < 300 ? 1 : 1 + draw(64)) {
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
            if (e == 0)
                assert_int_equal(cz__shard_map_home(map, p), rank);
        }
}

/* All elements once, and no rank has two spans of a parameter. */
static void check_spans(const layout *l, const cz_shard_map *map)
{
    int64_t elements[MOST_RANKS + 1], spans[MOST_RANKS + 1], all = 0, total = 0;
    cz__shard_map_tally(map, NULL, elements, spans);
    for (int64_t k = 0; k < l->param_count; k++)
        total += l->counts[k];
    for (int r = 0; r < l->world_size; r++) {
        cz_span_iterator iterator;
        cz_span span;
        bool seen[MOST_PARAMS] = {false};
        int64_t owned = 0, pieces = 0;
        cz_span_iterate(map, r, &iterator);
        while (cz_span_next(&iterator, &span)) {
            assert_int_equal(span.rank, r);
            assert_true(span.begin < span.end && span.end <= l->counts[span.param]);
            assert_false(seen[span.param]);
            for (int64_t e = span.begin; e < span.end; e++)
                assert_int_equal(l->owner[span.param][e], r);
            seen[span.param] = true;
            owned += span.end - span.begin;
            pieces++;
        }
        assert_false(cz_span_next(&iterator, &span));
        assert_int_equal(elements[r], owned);
        assert_int_equal(spans[r], pieces);
        all += owned;
    }
    assert_int_equal(all, total);
}

static int64_t largest_granule(const layout *l)
{
    int64_t largest = 16;
    for (int64_t range = 0; range < l->range_count; range++)
        for (int64_t k = l->begins[range]; k < range_end(l, range); k++) {
            const int64_t unit = l->units[range], count = l->counts[l->order[k]];
            const int64_t here = unit == 0 || unit > count ? count : unit;
            largest = here > largest ? here : largest;
        }
    return largest;
}

static int64_t difference(const layout *l, const cz_shard_map *map)
{
    int64_t elements[MOST_RANKS + 1], spans[MOST_RANKS + 1], least = INT64_MAX, most = 0;
    cz__shard_map_tally(map, NULL, elements, spans);
    for (int r = 0; r < l->world_size; r++) {
        least = elements[r] < least ? elements[r] : least;
        most = elements[r] > most ? elements[r] : most;
    }
    return most - least;
}

/* What a file says of a map makes it again. */
static void check_told(const layout *l, const cz_shard_map *map)
{
    int64_t begins[MOST_PARAMS + 1], units[MOST_PARAMS + 1];
    size_t size;
    const int64_t ranges = cz__shard_map_ranges(map, &size, begins, units, MOST_PARAMS + 1);
    assert_int_equal(ranges, l->range_count);
    assert_int_equal(size, 4);
    assert_memory_equal(begins, l->begins, (size_t)ranges * sizeof *begins);
    assert_memory_equal(units, l->units, (size_t)ranges * sizeof *units);
    for (int64_t k = 0; k < l->param_count; k++) {
        int64_t range = 0;
        const int64_t p = l->order[k];
        while (range + 1 < ranges && begins[range + 1] <= k)
            range++;
        const bool remains = l->counts[p] > granules_of(l, range, p);
        assert_int_equal(cz__shard_map_listed(map, k), p);
        assert_int_equal(cz__shard_map_remainder_owner(map, p), remains ? l->owners[p] : -1);
    }
}

TEST(cuts_are_those_of_granules_dealt_out)
{
    static layout l;
    for (seed = 1; seed < 4000; seed += 7) {
        const uint64_t begin = seed;
        cz_shard_map *map = NULL;
        draw_layout(&l);
        const cz__cuts cuts = cuts_of(&l);
        assert_ok(
            cz__cuts_deal_remainders(&cuts, l.world_size, l.param_count, l.counts, NULL, l.owners));
        deal_layout(&l);
        assert_ok(cz__shard_map_create_cuts(&map, l.world_size, l.param_count, l.counts, &cuts));
        check_locate(&l, map);
        check_spans(&l, map);
        check_told(&l, map);
        /* nearly always one; what is left of parameters that span ranks has little choice */
        assert_true(difference(&l, map) <= 2 * largest_granule(&l));
        cz__shard_map_destroy(&map);
        assert_null(map);
        seed = begin;
    }
}

/* One kind of granule: the sizes at which tails go wrong, fewer granules than ranks. */
TEST(one_kind_of_granule_differs_by_one_at_most)
{
    static const int64_t sizes[] = {0, 1, 255, 256, 257, 511, 1021, 4999};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    static layout l;
    for (int world = 1; world <= MOST_RANKS; world++)
        for (int64_t a = 0; a < SIZES; a++)
            for (int64_t b = 0; b < SIZES; b++)
                for (int64_t c = 0; c < SIZES; c++) {
                    cz_shard_map *map = NULL;
                    l = (layout){.world_size = world, .param_count = 3, .range_count = 1};
                    memcpy(l.counts, (int64_t[]){sizes[a], sizes[b], sizes[c]}, 3 * sizeof *sizes);
                    for (int64_t p = 0; p < 3; p++) {
                        l.order[p] = p;
                        l.owners[p] = -1;
                    }
                    l.units[0] = 256;
                    const cz__cuts cuts = cuts_of(&l);
                    assert_ok(cz__cuts_deal_remainders(&cuts, world, 3, l.counts, NULL, l.owners));
                    assert_ok(cz__shard_map_create_cuts(&map, world, 3, l.counts, &cuts));
                    assert_true(difference(&l, map) <= 256);
                    cz__shard_map_destroy(&map);
                }
}

static cz_status make_cuts(cz_shard_map **map, int64_t ranges, const int64_t *begins,
                           const int64_t *units, const int *owners)
{
    static const int64_t counts[] = {700, 300, 5};
    const cz__cuts cuts = {NULL, ranges, begins, units, 4, owners};
    return cz__shard_map_create_cuts(map, 3, 3, counts, &cuts);
}

static void refused(const int64_t *units, const int *owners, const char *sentence)
{
    static const int64_t begins[] = {0, 2};
    cz_shard_map *map = (cz_shard_map *)&map;
    assert_int_equal(make_cuts(&map, 2, begins, units, owners), CZ_ERR_ARGUMENT);
    assert_null(map);
    assert_non_null(strstr(cz_last_error(), sentence));
}

/* 700 elements are 2 granules of 256 and 188, 300 are one and 44: a granule for each rank. */
TEST(bad_cuts_are_refused)
{
    static const int64_t units[] = {256, 0}, negative[] = {256, -1}, whole[] = {0, 0};
    static const int64_t begins[] = {0, 2};
    static const int good[] = {1, 2, 0}, missing[] = {1, 2, -1}, beyond[] = {1, 3, 0};
    static const int before[] = {0, 2, 0}, other[] = {2, 0, 1};
    cz_shard_map *map = NULL;
    assert_ok(make_cuts(&map, 2, begins, units, good));
    cz__shard_map_destroy(&map);
    assert_ok(make_cuts(&map, 2, begins, units, other));
    cz__shard_map_destroy(&map);
    refused(negative, good, "range 1 has granules of -1 elements, wanted at least 0");
    refused(units, missing,
            "the last 5 elements of parameter 2, which fill no granule, are of "
            "rank -1 of 3");
    refused(units, beyond,
            "the last 44 elements of parameter 1, which fill no granule, are of "
            "rank 3 of 3");
    refused(units, before, "are of rank 0, where granules before the last one are");
    refused(whole, NULL, "the last 700 elements of parameter 0");
}

TEST(every_allocation_may_fail)
{
    static const int64_t counts[] = {700, 300, 5}, units[] = {256, 0}, begins[] = {0, 2};
    const int64_t held = cz_test_allocations_held();
    int64_t n = 0;
    for (bool failed = true; failed;) {
        cz_shard_map *map = NULL;
        int owners[] = {-1, -1, -1};
        const cz__cuts cuts = {NULL, 2, begins, units, 4, owners};
        cz_test_fail_allocation(++n);
        cz_status status = cz__cuts_deal_remainders(&cuts, 3, 3, counts, NULL, owners);
        if (!status)
            status = cz__shard_map_create_cuts(&map, 3, 3, counts, &cuts);
        failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_true(failed == !map);
        cz__shard_map_destroy(&map);
        assert_int_equal(cz_test_allocations_held(), held);
    }
    assert_true(n > 20);
}

/* A granule for each of some hundred row lengths, tails, and whole ones: that it ends. */
TEST(a_million_parameters_on_16384_ranks)
{
    enum { PARAMS = 1000000, RANKS = 16384 };
    static int64_t counts[PARAMS], elements[RANKS + 1], spans[RANKS + 1];
    static int owners[PARAMS];
    static const int64_t begins[] = {0, 100000, 400000, 900000}, units[] = {0, 4096, 256, 1};
    cz_shard_map *map = NULL;
    cz_span_iterator iterator;
    cz_span span;
    int64_t walked = 0, least = INT64_MAX, most = 0;
    for (int64_t p = 0; p < PARAMS; p++) {
        counts[p] = p % 7 == 0 ? p % 64 : 1000 + p % 3001;
        owners[p] = -1;
    }
    const cz__cuts cuts = {NULL, 4, begins, units, 4, owners};
    assert_ok(cz__cuts_deal_remainders(&cuts, RANKS, PARAMS, counts, NULL, owners));
    assert_ok(cz__shard_map_create_cuts(&map, RANKS, PARAMS, counts, &cuts));
    cz__shard_map_tally(map, NULL, elements, spans);
    for (int r = 0; r < RANKS; r++) {
        least = elements[r] < least ? elements[r] : least;
        most = elements[r] > most ? elements[r] : most;
    }
    assert_true(most - least <= 4096);
    cz_span_iterate(map, 12345, &iterator);
    while (cz_span_next(&iterator, &span))
        walked += span.end - span.begin;
    assert_int_equal(walked, elements[12345]);
    cz__shard_map_destroy(&map);
}
