/* SPDX-License-Identifier: MIT */
/* The sampler: each epoch a permutation, the same global order on every number of ranks. */
#include "support/cz_test.h"

#include "base/leaves.h"
#include "czero/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static cz_sampler *make(int64_t sample_count, int64_t global_batch, int rank, int world_size,
                        uint64_t seed)
{
    cz_sampler_options options = CZ_SAMPLER_OPTIONS_INIT;
    options.sample_count = sample_count;
    options.global_batch = global_batch;
    options.rank = rank;
    options.world_size = world_size;
    options.seed = seed;
    cz_sampler *sampler;
    assert_ok(cz_sampler_create(&sampler, &options));
    return sampler;
}

/* The global order, from `position` on: one rank, one batch. */
static void global_order(int64_t sample_count, uint64_t seed, int64_t position, int64_t count,
                         int64_t *out)
{
    int64_t got;
    cz_sampler *sampler = make(sample_count, count, 0, 1, seed);
    assert_ok(cz_sampler_set_position(sampler, position));
    assert_ok(cz_sampler_next(sampler, out, &got));
    assert_int_equal(got, count);
    cz_sampler_destroy(&sampler);
}

static void check_permutation(int64_t n, uint64_t seed, int64_t epoch)
{
    int64_t *order = malloc((size_t)n * sizeof *order);
    char *seen = calloc((size_t)n, 1);
    global_order(n, seed, epoch * n, n, order);
    for (int64_t i = 0; i < n; i++) {
        if (order[i] < 0 || order[i] >= n || seen[order[i]])
            fail_msg("%d samples, epoch %d: place %d holds %d", (int)n, (int)epoch, (int)i,
                     (int)order[i]);
        seen[order[i]] = 1;
    }
    free(order);
    free(seen);
}

TEST(every_epoch_is_a_permutation)
{
    for (int64_t n = 1; n <= 300; n++)
        for (int64_t epoch = 0; epoch < 3; epoch++)
            check_permutation(n, (uint64_t)n, epoch);
    static const int64_t sizes[] = {1021, 4095, 4096, 4097, 65535, 65536, 65537, 100003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_permutation(sizes[i], 5, 1);
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

TEST(large_data_sets)
{
    enum { COUNT = 20000 };
    static const int64_t sizes[] = {(INT64_C(1) << 31) - 1, (INT64_C(1) << 32) + 15,
                                    INT64_C(1) << 62, (INT64_C(1) << 62) + 1, INT64_MAX};
    int64_t *order = malloc(COUNT * sizeof *order);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int above_half = 0;
        global_order(sizes[s], 3, 0, COUNT, order);
        for (int i = 0; i < COUNT; i++) {
            assert_true(order[i] >= 0 && order[i] < sizes[s]);
            above_half += order[i] > sizes[s] / 2;
        }
        assert_in_range(above_half, COUNT / 2 - 425, COUNT / 2 + 425); /* 6 times sqrt(COUNT) / 2 */
        qsort(order, COUNT, sizeof *order, compare);
        for (int i = 1; i < COUNT; i++)
            assert_true(order[i] != order[i - 1]);
    }
    free(order);
}

TEST(epochs_and_seeds_differ)
{
    int64_t a[100], b[100], c[100];
    global_order(100, 1, 0, 100, a);
    global_order(100, 1, 100, 100, b);
    global_order(100, 2, 0, 100, c);
    int same_epoch = 0, same_seed = 0, in_order = 0;
    for (int64_t i = 0; i < 100; i++) {
        same_epoch += a[i] == b[i];
        same_seed += a[i] == c[i];
        in_order += a[i] == i;
    }
    assert_true(same_epoch < 10 && same_seed < 10 && in_order < 10); /* one is expected of each */
}

/* Lehmer code: which of the n! orders. */
static int index_of(const int64_t *order, int n)
{
    int index = 0;
    for (int i = 0; i < n; i++) {
        int smaller = 0;
        for (int k = i + 1; k < n; k++)
            smaller += order[k] < order[i];
        index = index * (n - i) + smaller;
    }
    return index;
}

/* Every order of few samples is as likely as any other: networks on few bits are the weak ones. */
TEST(all_orders_are_equally_likely)
{
    static const int factorial[] = {1, 1, 2, 6, 24, 120, 720};
    for (int n = 2; n <= 6; n++) {
        const int each = n < 6 ? 200 : 40, orders = factorial[n], epochs = each * orders;
        int seen[720] = {0};
        int64_t *all = malloc((size_t)(epochs * n) * sizeof *all);
        global_order(n, 11, 0, epochs * n, all);
        for (int e = 0; e < epochs; e++)
            seen[index_of(all + e * n, n)]++;
        double chi = 0;
        for (int i = 0; i < orders; i++)
            chi += pow(seen[i] - each, 2) / each;
        if (fabs(chi - (orders - 1)) > 6 * sqrt(2.0 * (orders - 1)))
            fail_msg("%d samples: chi square %g for %d orders", n, chi, orders);
        free(all);
    }
}

/* Any sample at any place, and any two neighbours, of an epoch of n. */
TEST(places_and_neighbours_are_even)
{
    static const int sizes[] = {7, 16, 29, 64};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int n = sizes[s], epochs = 100 * n, cells = n * n;
        int64_t *all = malloc((size_t)(epochs * n) * sizeof *all);
        int *places = calloc((size_t)cells, sizeof *places),
            *pairs = calloc((size_t)cells, sizeof *pairs);
        global_order(n, 12, 0, epochs * n, all);
        for (int e = 0; e < epochs; e++)
            for (int i = 0; i < n; i++) {
                places[i * n + all[e * n + i]]++;
                if (i > 0)
                    pairs[all[e * n + i - 1] * n + all[e * n + i]]++;
            }
        double chi_places = 0, chi_pairs = 0;
        for (int i = 0; i < cells; i++) {
            chi_places += pow(places[i] - 100.0, 2) / 100;
            if (i % (n + 1) != 0)
                chi_pairs += pow(pairs[i] - 100.0, 2) / 100;
        }
        const double freedom = (n - 1.0) * (n - 1);
        if (fabs(chi_places - freedom) > 6 * sqrt(2 * freedom))
            fail_msg("%d samples: places have chi square %g, expected %g", n, chi_places, freedom);
        if (fabs(chi_pairs - n * (n - 1.0)) > 6 * sqrt(2.0 * n * (n - 1)))
            fail_msg("%d samples: pairs have chi square %g, expected %d", n, chi_pairs,
                     n * (n - 1));
        free(all);
        free(places);
        free(pairs);
    }
}

static cz_sampler_info info_of(const cz_sampler *sampler)
{
    cz_sampler_info info = CZ_SAMPLER_INFO_INIT;
    assert_ok(cz_sampler_get_info(sampler, &info));
    return info;
}

/* What all ranks get in `steps` batches, in rank order, appended to `out`; all end at one
 * position. */
static int64_t deal(int64_t sample_count, int64_t global_batch, int world_size, int64_t position,
                    int steps, int64_t *out)
{
    for (int r = 0; r < world_size; r++) {
        cz_sampler *sampler = make(sample_count, global_batch, r, world_size, 21);
        const int64_t most = info_of(sampler).local_batch;
        assert_in_range(most, global_batch / world_size,
                        (global_batch + world_size - 1) / world_size);
        assert_ok(cz_sampler_set_position(sampler, position));
        for (int s = 0; s < steps; s++) {
            int64_t begin = 0, count;
            for (int before = 0; before < r; before++) /* the first ranks have one more */
                begin += global_batch / world_size + (before < global_batch % world_size);
            assert_ok(cz_sampler_next(sampler, out + s * global_batch + begin, &count));
            assert_int_equal(count, most);
        }
        assert_int_equal(info_of(sampler).position, position + steps * global_batch);
        cz_sampler_destroy(&sampler);
    }
    return position + steps * global_batch;
}

TEST(the_order_is_the_same_on_all_worlds)
{
    static const int64_t batches[] = {1, 2, 5, 7, 8, 30, 100};
    int64_t wanted[1000], got[1000];
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
        for (int w = 1; w <= 9; w++) {
            const int steps = 6;
            memset(got, 0xff, sizeof got);
            global_order(23, 21, 0, steps * batches[b], wanted); /* 100 spans five epochs */
            deal(23, batches[b], w, 0, steps, got);
            assert_memory_equal(got, wanted, (size_t)(steps * batches[b]) * sizeof *got);
        }
}

TEST(another_world_goes_on)
{
    int64_t wanted[200], got[200];
    global_order(41, 21, 0, 4 * 10 + 3 * 16 + 5 * 7, wanted);
    int64_t position = deal(41, 10, 3, 0, 4, got);
    position = deal(41, 16, 5, position, 3, got + position);
    position = deal(41, 7, 8, position, 5, got + position); /* one rank gets none */
    assert_memory_equal(got, wanted, (size_t)position * sizeof *got);
}

static cz_sampler *make_with_parts(int64_t sample_count, int64_t global_batch, int rank,
                                   int world_size, int part_count)
{
    cz_sampler_options options = CZ_SAMPLER_OPTIONS_INIT;
    options.sample_count = sample_count;
    options.global_batch = global_batch;
    options.rank = rank;
    options.world_size = world_size;
    options.seed = 21;
    options.part_count = part_count;
    cz_sampler *sampler;
    assert_ok(cz_sampler_create(&sampler, &options));
    return sampler;
}

/* As deal(), from the parts of all ranks: each at its place of the global batch, all of one size or
 * one more. */
static int64_t deal_parts(int64_t global_batch, int world_size, int part_count, int64_t position,
                          int steps, int64_t *out)
{
    const cz__leaves parts = {part_count, world_size};
    const int64_t more = global_batch % part_count;
    for (int r = 0; r < world_size; r++) {
        cz_sampler *sampler = make_with_parts(23, global_batch, r, world_size, part_count);
        const int64_t most = info_of(sampler).local_batch;
        int64_t seen = 0, count;
        assert_ok(cz_sampler_set_position(sampler, position));
        for (int s = 0; s < steps; s++)
            for (int i = 0; i < cz__leaves_of(&parts, r); i++) {
                const int part = cz__leaves_at(&parts, r, i);
                const int64_t begin =
                    global_batch / part_count * part + (part < more ? part : more);
                assert_int_equal(info_of(sampler).position, position + s * global_batch);
                assert_ok(cz_sampler_next(sampler, out + s * global_batch + begin, &count));
                assert_int_equal(count, global_batch / part_count + (part < more));
                seen = count > seen ? count : seen;
            }
        assert_int_equal(seen, most);
        assert_int_equal(info_of(sampler).position, position + steps * global_batch);
        cz_sampler_destroy(&sampler);
    }
    return position + steps * global_batch;
}

TEST(parts_have_the_same_samples_on_all_worlds)
{
    static const int64_t batches[] = {1, 7, 12, 30, 100};
    static const int parts[] = {1, 5, 12, 13};
    int64_t wanted[400], got[400];
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        global_order(23, 21, 0, 4 * batches[b], wanted);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            for (int w = 1; w <= parts[k]; w++) {
                memset(got, 0xff, sizeof got);
                deal_parts(batches[b], w, parts[k], 0, 4, got);
                assert_memory_equal(got, wanted, (size_t)(4 * batches[b]) * sizeof *got);
            }
    }
}

TEST(another_world_goes_on_with_parts)
{
    int64_t wanted[200], got[200];
    global_order(23, 21, 0, 9 * 14, wanted);
    int64_t position = deal_parts(14, 3, 12, 0, 4, got);
    position = deal_parts(14, 7, 12, position, 2, got + position);
    position = deal_parts(14, 1, 12, position, 3, got + position);
    assert_memory_equal(got, wanted, (size_t)position * sizeof *got);
}

/* Of a batch of which a rank has had some parts, the position is where it begins. */
TEST(a_batch_in_the_middle_of_its_parts_comes_again)
{
    int64_t first[10], again[10], count;
    cz_sampler *sampler = make_with_parts(23, 10, 0, 1, 5);
    for (int i = 0; i < 7; i++)
        assert_ok(cz_sampler_next(sampler, i < 5 ? again : first + 2 * (i - 5), &count));
    assert_int_equal(info_of(sampler).position, 10);
    assert_ok(cz_sampler_set_position(sampler, info_of(sampler).position));
    for (int i = 0; i < 2; i++)
        assert_ok(cz_sampler_next(sampler, again + 2 * i, &count));
    assert_memory_equal(again, first, 4 * sizeof *first);
    assert_int_equal(info_of(sampler).position, 10);
    cz_sampler_destroy(&sampler);
}

TEST(bad_numbers_of_parts)
{
    static const int parts[] = {-1, 3, 4097};
    cz_sampler_options options = CZ_SAMPLER_OPTIONS_INIT;
    options.sample_count = options.global_batch = 16;
    options.world_size = 4;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        cz_sampler *sampler;
        options.part_count = parts[k];
        assert_int_equal(cz_sampler_create(&sampler, &options), CZ_ERR_ARGUMENT);
        assert_non_null(strstr(cz_last_error(), "part_count is"));
        assert_null(sampler);
    }
}

TEST(in_order)
{
    cz_sampler_options options = CZ_SAMPLER_OPTIONS_INIT;
    options.sample_count = 5;
    options.global_batch = 3;
    options.in_order = 1;
    cz_sampler *sampler;
    int64_t samples[3], count;
    assert_ok(cz_sampler_create(&sampler, &options));
    for (int64_t i = 0; i < 10; i++) {
        assert_ok(cz_sampler_next(sampler, samples, &count));
        for (int64_t k = 0; k < 3; k++)
            assert_int_equal(samples[k], (3 * i + k) % 5);
    }
    cz_sampler_destroy(&sampler);
}

static void refuse(int64_t sample_count, int64_t global_batch, int rank, int world_size)
{
    cz_sampler_options options = CZ_SAMPLER_OPTIONS_INIT;
    options.sample_count = sample_count;
    options.global_batch = global_batch;
    options.rank = rank;
    options.world_size = world_size;
    cz_sampler *sampler = (cz_sampler *)&options;
    assert_int_equal(cz_sampler_create(&sampler, &options), CZ_ERR_ARGUMENT);
    assert_null(sampler);
}

TEST(bad_arguments)
{
    refuse(0, 1, 0, 1);
    refuse(-1, 1, 0, 1);
    refuse(1, 0, 0, 1);
    refuse(1, -5, 0, 1);
    refuse(1, 1, 0, -1);
    refuse(1, 1, 1, 0); /* of 1 */
    refuse(1, 1, -1, 1);
    refuse(1, 1, 1, 1);
    cz_sampler *sampler = NULL;
    assert_int_equal(cz_sampler_create(&sampler, NULL), CZ_ERR_ARGUMENT);
    cz_sampler_info info = CZ_SAMPLER_INFO_INIT;
    cz_sampler_destroy(NULL);
    cz_sampler_destroy(&sampler);

    int64_t samples[2], count;
    sampler = make(7, 2, 0, 1, 0);
    assert_int_equal(cz_sampler_get_info(sampler, NULL), CZ_ERR_ARGUMENT);
    info.size = 0;
    assert_int_equal(cz_sampler_get_info(sampler, &info), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_sampler_next(sampler, NULL, &count), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_sampler_next(sampler, samples, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_sampler_set_position(sampler, -1), CZ_ERR_ARGUMENT);
    assert_int_equal(info_of(sampler).position, 0);
    assert_ok(cz_sampler_set_position(sampler, INT64_MAX - 2));
    assert_ok(cz_sampler_next(sampler, samples, &count));
    assert_int_equal(cz_sampler_next(sampler, samples, &count), CZ_ERR_STATE);
    assert_int_equal(info_of(sampler).position, INT64_MAX);
    cz_sampler_destroy(&sampler);
    assert_null(sampler);
}

/* Bytes that no field owns could not get a meaning later. */
TEST(every_byte_of_the_options)
{
    cz_sampler_options options = CZ_SAMPLER_OPTIONS_INIT;
    cz_sampler *sampler;
    assert_int_equal(sizeof options, offsetof(cz_sampler_options, part_count) + sizeof(int32_t));
    assert_int_equal(offsetof(cz_sampler_options, part_count),
                     offsetof(cz_sampler_options, in_order) + sizeof(int32_t));
    options.sample_count = options.global_batch = 1;
    options.in_order = 256;
    assert_int_equal(cz_sampler_create(&sampler, &options), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "in_order is 256"));
    assert_null(sampler);
}

TEST(out_of_memory)
{
    cz_sampler_options options = CZ_SAMPLER_OPTIONS_INIT;
    options.sample_count = options.global_batch = 1;
    cz_sampler *sampler;
    cz_test_fail_allocation(1);
    assert_int_equal(cz_sampler_create(&sampler, &options), CZ_ERR_MEMORY);
    assert_true(cz_test_allocation_reset());
    assert_null(sampler);
    assert_int_equal(cz_test_allocations_held(), 0);
}
