/* SPDX-License-Identifier: MIT */
/* Whole things by cost: how near to even, and always the same. */
#include <string.h>

#include "shard/shard.h"
#include "support/cz_test.h"

enum { MOST = 1200, MOST_RANKS = 512 };

static int64_t costs[MOST], members[MOST], loads[MOST_RANKS];
static int owners[MOST];

static uint64_t seed;

static int64_t draw(int64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)below);
}

/* The fullest rank. */
static int64_t deal(int world, int64_t count)
{
    int64_t sums[MOST_RANKS] = {0}, most = 0;
    for (int64_t k = 0; k < count; k++) {
        members[k] = k;
        owners[k] = -1;
    }
    memset(loads, 0, sizeof loads);
    assert_ok(cz__partition_balanced(world, loads, count, costs, count, members, owners));
    for (int64_t k = 0; k < count; k++) {
        assert_in_range(owners[k], 0, world - 1);
        sums[owners[k]] += costs[k];
    }
    for (int r = 0; r < world; r++) {
        assert_int_equal(sums[r], loads[r]);
        most = sums[r] > most ? sums[r] : most;
    }
    return most;
}

/* 24 layers of a transformer of width 1024: the flops of Newton-Schulz for each of its matrices,
 * whose short side is the width. */
TEST(matrices_of_transformers_are_within_a_twentieth_of_even)
{
    static const struct {
        int layers, ranks;
    } cases[] = {{12, 2}, {12, 3},  {12, 4},  {12, 6},  {24, 8},
                 {24, 7}, {32, 16}, {96, 64}, {96, 128}};
    static const int64_t sides[] = {3, 1, 4, 4}; /* qkv, projection, up, down: in widths */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int64_t count = 0, sum = 0, largest = 0;
        for (int layer = 0; layer < cases[c].layers; layer++)
            for (int k = 0; k < 4; k++) {
                costs[count] = (4 * sides[k] + 2) << 20;
                sum += costs[count];
                largest = costs[count] > largest ? costs[count] : largest;
                count++;
            }
        const double most = (double)deal(cases[c].ranks, count),
                     mean = (double)sum / cases[c].ranks;
        if (most > 1.05 * mean && most > (double)largest)
            fail_msg("%d layers on %d ranks: %g times the mean", cases[c].layers, cases[c].ranks,
                     most / mean);
    }
}

/* One given away, perhaps for another one, leaves both ranks with less than the fullest has. */
static bool something_helps(int world, int64_t count)
{
    int from = 0;
    for (int r = 0; r < world; r++)
        from = loads[r] > loads[from] ? r : from;
    for (int64_t a = 0; a < count; a++)
        for (int64_t b = -1; owners[a] == from && b < count; b++)
            for (int to = 0; to < world; to++) {
                const int64_t moved = costs[a] - (b < 0 ? 0 : costs[b]);
                if (to != from && (b < 0 || owners[b] == to) && moved > 0 &&
                    loads[to] + moved < loads[from])
                    return true;
            }
    return false;
}

TEST(random_costs_are_within_a_twentieth_or_nothing_helps)
{
    int uneven = 0;
    for (seed = 1; seed < 1600; seed += 4) {
        const uint64_t begin = seed;
        const int world = 1 + (int)draw(40);
        const int64_t count = 1 + draw(8 * world), among = draw(3) ? 1000 : 5;
        int64_t sum = 0, largest = 0;
        for (int64_t k = 0; k < count; k++) {
            costs[k] = 1 + draw(draw(3) == 0 ? 10 * among : among);
            sum += costs[k];
            largest = costs[k] > largest ? costs[k] : largest;
        }
        const double most = (double)deal(world, count), mean = (double)sum / world;
        if (most > 1.05 * mean && most > (double)largest) {
            uneven++;
            assert_false(something_helps(world, count));
        }
        seed = begin;
    }
    assert_true(uneven > 0);
}

/* The largest first gives 7 and 5. */
TEST(exchanges_find_what_the_largest_first_does_not)
{
    memcpy(costs, (int64_t[]){3, 3, 2, 2, 2}, 5 * sizeof *costs);
    assert_int_equal(deal(2, 5), 6);
    memcpy(costs, (int64_t[]){10, 1, 1, 1}, 4 * sizeof *costs);
    assert_int_equal(deal(3, 4), 10);
}

/* Nobody looks at memory, order in it or clocks. */
TEST(equal_costs_are_dealt_out_alike_each_time)
{
    int first[MOST];
    for (int64_t k = 0; k < 100; k++)
        costs[k] = k % 3 ? 7 : 9;
    (void)deal(13, 100);
    memcpy(first, owners, sizeof first);
    for (int again = 0; again < 3; again++) {
        (void)deal(13, 100);
        assert_memory_equal(first, owners, 100 * sizeof *first);
    }
}

/* What a rank has already counts. */
TEST(loads_at_the_beginning_are_filled_up)
{
    for (int64_t k = 0; k < 4; k++) {
        costs[k] = 10;
        members[k] = k;
    }
    memcpy(loads, (int64_t[]){40, 0}, 2 * sizeof *loads);
    assert_ok(cz__partition_balanced(2, loads, 4, costs, 4, members, owners));
    assert_int_equal(loads[0], 40);
    assert_int_equal(loads[1], 40);
}

TEST(every_allocation_may_fail)
{
    const int64_t held = cz_test_allocations_held();
    int64_t n = 0;
    memcpy(costs, (int64_t[]){3, 3, 2, 2, 2}, 5 * sizeof *costs);
    for (bool failed = true; failed;) {
        memset(loads, 0, sizeof loads);
        cz_test_fail_allocation(++n);
        const cz_status status = cz__partition_balanced(2, loads, 5, costs, 5, members, owners);
        failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_int_equal(cz_test_allocations_held(), held);
    }
    assert_true(n > 5);
}
