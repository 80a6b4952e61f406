/* SPDX-License-Identifier: MIT */
/* What all ranks own, at the same time: the numbers that a walk over the spans of each gives. */
#include "shard/shard.h"
#include "support/cz_test.h"

enum { MOST = 40, MOST_RANKS = 64 };

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

static void check(const cz_shard_map *map, const uint8_t *include)
{
    int64_t elements[MOST_RANKS + 1], spans[MOST_RANKS + 1];
    const int ranks = cz__shard_map_world_size(map);
    cz__shard_map_tally(map, include, elements, spans);
    for (int r = 0; r < ranks; r++) {
        int64_t owned = 0, pieces = 0;
        cz_span_iterator iterator;
        cz_span span;
        cz_span_iterate(map, r, &iterator);
        while (cz_span_next(&iterator, &span)) {
            if (include && !include[span.param])
                continue;
            owned += span.end - span.begin;
            pieces++;
        }
        assert_int_equal(elements[r], owned);
        assert_int_equal(spans[r], pieces);
    }
}

TEST(as_a_walk)
{
    uint64_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        int64_t counts[MOST], order[MOST], begins[MOST];
        int owners[MOST];
        uint8_t include[MOST];
        const int ranks = 1 + (int)(next_random(&seed) % MOST_RANKS);
        const int64_t params = (int64_t)(next_random(&seed) % MOST);
        int64_t ranges = 0;
        for (int64_t p = 0; p < params; p++) {
            counts[p] = (int64_t)(next_random(&seed) % (p % 4 ? 50 : 4000));
            owners[p] = (int)(next_random(&seed) % (unsigned)(ranks + 1)) - 1;
            include[p] = next_random(&seed) % 3 > 0;
            order[p] = params - 1 - p;
            if (p == 0 || next_random(&seed) % 4 == 0)
                begins[ranges++] = p;
        }
        cz_shard_map *map;
        assert_ok(cz__shard_map_create_owners(&map, ranks, params, counts, owners, NULL));
        check(map, NULL);
        check(map, include);
        cz__shard_map_destroy(&map);
        assert_ok(cz__shard_map_create_even(&map, ranks, params, counts, order, ranges, begins,
                                            round % 2 ? 4 : 2));
        check(map, NULL);
        check(map, include);
        cz__shard_map_destroy(&map);
    }
}
