/* SPDX-License-Identifier: MIT */
/* Intersections of random maps of either form, element by element. */
#include <string.h>

#include "czero/shard.h"
#include "support/cz_test.h"

enum { MOST_PARAMS = 10, MOST_ELEMENTS = 500, MOST_RANKS = 9 };

static uint64_t seed = 1;

static int64_t draw(int64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)below);
}

static cz_shard_map *draw_owners(int world, int64_t param_count, const int64_t *counts)
{
    cz_shard_map *map = NULL;
    int owners[MOST_PARAMS];
    for (int64_t p = 0; p < param_count; p++)
        owners[p] = (int)draw(world + 1) - 1;
    assert_ok(cz_shard_map_create_owners(&map, world, param_count, counts, owners, NULL));
    return map;
}

static cz_shard_map *draw_even(int world, int64_t param_count, const int64_t *counts)
{
    cz_shard_map *map = NULL;
    int64_t order[MOST_PARAMS];
    const int64_t ranges = 1 + draw(2), begins[] = {0, draw(param_count + 1)};
    for (int64_t k = 0; k < param_count; k++)
        order[k] = param_count - 1 - k;
    assert_ok(cz_shard_map_create_even(&map, world, param_count, counts, order, ranges, begins,
                                       (size_t)1 << draw(4)));
    return map;
}

typedef struct visits {
    int rank;
    const cz_shard_map *to;
    int seen[MOST_PARAMS][MOST_ELEMENTS];
} visits;

static cz_status visit(const cz_span *from, int to_rank, void *context)
{
    visits *v = context;
    assert_true(from->begin < from->end);
    assert_int_equal(from->rank, v->rank);
    for (int64_t e = from->begin; e < from->end; e++) {
        cz_span there;
        const int owner = cz_shard_map_locate(v->to, from->param, e, &there) ? there.rank : -1;
        assert_int_equal(owner, to_rank);
        v->seen[from->param][e]++;
    }
    return CZ_OK;
}

static void check(const cz_shard_map *from, const cz_shard_map *to)
{
    static visits v;
    for (int r = 0; r < cz_shard_map_world_size(from); r++) {
        memset(&v, 0, sizeof v);
        v.rank = r;
        v.to = to;
        assert_ok(cz_shard_map_intersect(from, r, to, visit, &v));
        for (int64_t p = 0; p < cz_shard_map_param_count(from); p++)
            for (int64_t e = 0; e < cz_shard_map_count(from, p); e++) {
                cz_span span;
                const bool mine = cz_shard_map_locate(from, p, e, &span) && span.rank == r;
                assert_int_equal(v.seen[p][e], mine);
            }
    }
}

TEST(every_element_once_and_to_its_owner)
{
    for (int round = 0; round < 200; round++) {
        int64_t counts[MOST_PARAMS];
        const int64_t param_count = 1 + draw(MOST_PARAMS);
        for (int64_t p = 0; p < param_count; p++)
            counts[p] = draw(4) == 0 ? 0 : draw(MOST_ELEMENTS);
        cz_shard_map *maps[4] = {
            draw_owners(1 + (int)draw(MOST_RANKS), param_count, counts),
            draw_even(1 + (int)draw(MOST_RANKS), param_count, counts),
            draw_owners(1 + (int)draw(MOST_RANKS), param_count, counts),
            draw_even(1 + (int)draw(MOST_RANKS), param_count, counts),
        };
        for (int i = 0; i < 2; i++)
            for (int j = 2; j < 4; j++)
                check(maps[i], maps[j]);
        for (int i = 0; i < 4; i++)
            cz_shard_map_destroy(&maps[i]);
    }
}

static cz_status stop(const cz_span *from, int to_rank, void *context)
{
    ++*(int *)context;
    return CZ_ERR_IO;
}

TEST(a_visitor_ends_the_walk)
{
    const int64_t counts[] = {100, 100};
    cz_shard_map *map = NULL;
    int calls = 0;
    assert_ok(cz_shard_map_create_even(&map, 1, 2, counts, NULL, 0, NULL, 4));
    assert_int_equal(cz_shard_map_intersect(map, 0, map, stop, &calls), CZ_ERR_IO);
    assert_int_equal(calls, 1);
    cz_shard_map_destroy(&map);
}

TEST(maps_of_other_parameters_are_refused)
{
    const int64_t counts[] = {3, 4}, others[] = {3, 5};
    cz_shard_map *a = NULL, *b = NULL, *c = NULL;
    int calls = 0;
    assert_ok(cz_shard_map_create_even(&a, 2, 2, counts, NULL, 0, NULL, 4));
    assert_ok(cz_shard_map_create_even(&b, 2, 2, others, NULL, 0, NULL, 4));
    assert_ok(cz_shard_map_create_even(&c, 2, 1, counts, NULL, 0, NULL, 4));
    assert_int_equal(cz_shard_map_intersect(a, 0, b, stop, &calls), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_shard_map_intersect(a, 0, c, stop, &calls), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_shard_map_intersect(a, 2, a, stop, &calls), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_shard_map_intersect(a, -1, a, stop, &calls), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_shard_map_intersect(NULL, 0, a, stop, &calls), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_shard_map_intersect(a, 0, NULL, stop, &calls), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_shard_map_intersect(a, 0, a, NULL, &calls), CZ_ERR_ARGUMENT);
    assert_int_equal(calls, 0);
    cz_shard_map_destroy(&a);
    cz_shard_map_destroy(&b);
    cz_shard_map_destroy(&c);
}
