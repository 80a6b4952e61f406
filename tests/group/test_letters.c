/* SPDX-License-Identifier: MIT */
/* Ranks that meet by letters, with small data in them: as many messages as that takes, the bits of
 * a plain sum on either side of the limit, and failures that are the same on all ranks. */
#include "group/group_test.h"
#include "group/internal.h"

static atomic_int sends;
static size_t cut_by; /* bytes of each message that get lost */

static cz_status count_send(void *endpoint, cz_transfer *transfer)
{
    atomic_fetch_add(&sends, 1);
    transfer->bytes -= cut_by;
    return cz__backend_threads.post_send(endpoint, transfer);
}

static void run_letters(int world, cz_rank_main body, void *arg, outcome *outcomes)
{
    void *endpoints[MANY_RANKS];
    cz_group *groups[MANY_RANKS];
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    cz_backend table = cz__backend_threads;
    table.post_send = count_send;
    options.timeout_seconds = 60;
    assert_ok(cz__threads_create(endpoints, world));
    for (int r = 0; r < world; r++)
        assert_ok(cz_group_create_custom(&groups[r], r, world, &table, endpoints[r], &options));
    run_groups(world, groups, body, arg, outcomes);
}

static int rounds_of(int world)
{
    int rounds = 0;
    while (1 << rounds < world)
        rounds++;
    return rounds;
}

/* ---- results ---- */

enum { MOST = 3000 };

typedef struct inputs {
    float of[MANY_RANKS][MOST];
} inputs;

static cz_status check_reductions(cz_group *group, const inputs *all, int64_t count)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group), root = size - 1;
    const int64_t each = count / size;
    const void *addresses[MANY_RANKS];
    float wanted[MOST + 1], got[MOST + 1] = {0};
    for (int r = 0; r < size; r++)
        addresses[r] = all->of[r];
    memcpy(got, all->of[rank], (size_t)count * sizeof *got);
    plain_reduce(CZ_F32, CZ_AVERAGE, size, addresses, count, wanted);
    CZ_TRY(cz_all_reduce(group, got, count, CZ_F32, CZ_AVERAGE, NULL));
    CHECK(memcmp(got, wanted, (size_t)count * sizeof *got) == 0, "all_reduce of %d", (int)count);
    plain_reduce(CZ_F32, CZ_SUM, size, addresses, count, wanted);
    CZ_TRY(cz_reduce(group, all->of[rank], got, count, CZ_F32, CZ_SUM, root, NULL));
    CHECK(rank != root || memcmp(got, wanted, (size_t)count * sizeof *got) == 0, "reduce of %d",
          (int)count);
    CZ_TRY(cz_reduce_scatter(group, all->of[rank], got, each, CZ_F32, CZ_SUM, NULL));
    CHECK(memcmp(got, wanted + rank * each, (size_t)each * sizeof *got) == 0,
          "reduce_scatter of %d", (int)each);
    return CZ_OK;
}

static cz_status check_moves(cz_group *group, const inputs *all, int64_t count)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group), root = size / 2;
    const int64_t each = count / size;
    float got[MOST + 1] = {0};
    memcpy(got, all->of[rank], (size_t)count * sizeof *got);
    CZ_TRY(cz_broadcast(group, got, count, CZ_F32, root, NULL));
    CHECK(memcmp(got, all->of[root], (size_t)count * sizeof *got) == 0, "broadcast of %d",
          (int)count);
    CZ_TRY(cz_all_gather(group, all->of[rank], got, each, CZ_F32, NULL));
    for (int r = 0; r < size; r++)
        CHECK(memcmp(got + r * each, all->of[r], (size_t)each * sizeof *got) == 0,
              "all_gather of %d from rank %d", (int)each, r);
    return CZ_OK;
}

static cz_status each_size(cz_group *group, void *arg)
{
    static const int64_t counts[] = {0,   1,   2,   15,   16,   17,   100,  255,  256, 257,
                                     400, 900, 960, 1007, 1008, 1024, 1025, 2000, MOST};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        CZ_TRY(check_reductions(group, arg, counts[i]));
        CZ_TRY(check_moves(group, arg, counts[i]));
    }
    return CZ_OK;
}

TEST(plain_bits_on_either_side_of_the_limit)
{
    static inputs all;
    outcome outcomes[MANY_RANKS];
    for (int r = 0; r < MANY_RANKS; r++)
        fill(CZ_F32, 70 + (uint64_t)r, MOST, all.of[r]);
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        run_letters(world, each_size, &all, outcomes);
        assert_all_ok(world, outcomes, "%s", __func__);
    }
}

/* ---- messages ---- */

static cz_status each_small_on(cz_group *group, void *device)
{
    group->device = device;
    float values[4] = {1, 2, 3, 4};
    CZ_TRY(cz_all_reduce(group, values, 4, CZ_F32, CZ_SUM, NULL));
    for (int i = 0; i < 4; i++)
        CHECK(values[i] == (float)((i + 1) * cz_group_size(group)), "element %d", i);
    return CZ_OK;
}

/* Letters are in the host's memory, where the kernels of another device may not read. */
TEST(data_of_another_device_do_not_go_with_the_headers)
{
    cz_device other = *cz_device_cpu();
    outcome outcomes[MANY_RANKS];
    for (int world = 2; world <= LARGEST_WORLD; world++) {
        atomic_store(&sends, 0);
        run_letters(world, each_small_on, &other, outcomes);
        assert_all_ok(world, outcomes, "%s", __func__);
        assert_true(atomic_load(&sends) > world * rounds_of(world));
    }
}

enum { OPERATIONS = 20 };

static cz_status each_small(cz_group *group, void *arg)
{
    float values[4] = {1, 2, 3, 4}, all[4 * MANY_RANKS];
    for (int i = 0; i < OPERATIONS; i++)
        CZ_TRY(i % 2 ? cz_all_gather(group, values, all, 4, CZ_F32, NULL)
                     : cz_all_reduce(group, values, 4, CZ_F32, CZ_SUM, NULL));
    return CZ_OK;
}

TEST(small_data_go_with_the_headers)
{
    outcome outcomes[MANY_RANKS];
    for (int world = 2; world <= LARGEST_WORLD; world++) {
        atomic_store(&sends, 0);
        run_letters(world, each_small, NULL, outcomes);
        assert_all_ok(world, outcomes, "%s", __func__);
        assert_int_equal(atomic_load(&sends), OPERATIONS * world * rounds_of(world));
    }
}

/* Of what goes with headers, data are told apart. */
static cz_status each_counted(cz_group *group, void *arg)
{
    cz_group_info before = CZ_GROUP_INFO_INIT, after = before;
    float value[16] = {1};
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(cz_group_get_info(group, &before));
    CZ_TRY(cz_broadcast(group, value, 16, CZ_F32, 0, NULL));
    CZ_TRY(cz_group_get_info(group, &after));
    const uint64_t sent = after.sent_bytes - before.sent_bytes,
                   headers = after.header_bytes - before.header_bytes;
    CHECK(after.messages - before.messages == 1 &&
              sent - headers == (cz_group_rank(group) ? 0 : sizeof value),
          "%d bytes, %d of them headers", (int)sent, (int)headers);
    return CZ_OK;
}

TEST(data_with_headers_count_as_data)
{
    outcome outcomes[MANY_RANKS];
    run_letters(2, each_counted, NULL, outcomes);
    assert_all_ok(2, outcomes, "%s", __func__);
}

/* ---- failures ---- */

typedef struct sentences {
    outcome of[MANY_RANKS][3];
} sentences;

static cz_status each_wrong(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), last = cz_group_size(group) - 1;
    outcome *mine = ((sentences *)arg)->of[rank];
    float values[64] = {(float)rank};
    note(&mine[0], cz_all_reduce(group, values, rank == last ? 7 : 8, CZ_F32, CZ_SUM, NULL));
    note(&mine[1], cz_all_reduce(group, rank == last ? NULL : values, 8, CZ_F32, CZ_SUM, NULL));
    note(&mine[2],
         rank == last ? cz_barrier(group, NULL) : cz_broadcast(group, values, 64, CZ_F32, 0, NULL));
    CHECK(values[0] == (float)rank, "changed");
    return cz_all_reduce(group, values, 1, CZ_F32, CZ_SUM, NULL);
}

TEST(all_say_what_was_wrong_and_go_on)
{
    static const cz_status wanted[] = {CZ_ERR_MISMATCH, CZ_ERR_ARGUMENT, CZ_ERR_MISMATCH};
    static sentences all;
    outcome outcomes[MANY_RANKS];
    for (int world = 2; world <= LARGEST_WORLD; world++) {
        char name[32];
        snprintf(name, sizeof name, "rank %d", world - 1);
        run_letters(world, each_wrong, &all, outcomes);
        assert_all_ok(world, outcomes, "%s", __func__);
        for (int k = 0; k < 3; k++)
            for (int r = 0; r < world; r++) {
                assert_int_equal(all.of[r][k].status, wanted[k]);
                assert_string_equal(all.of[r][k].sentence, all.of[0][k].sentence);
                assert_non_null(strstr(all.of[r][k].sentence, name));
            }
    }
}

/* Some rank leaves while the others are in the middle of many. */
static cz_status each_until_one_leaves(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    cz_status status = CZ_OK;
    for (int i = 0; i < 200 && status == CZ_OK; i++) {
        float value = 1;
        if (rank == size / 2 && i == 100)
            return CZ_OK;
        status = cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, NULL);
        CHECK(status != CZ_OK || value == (float)size, "a wrong sum, %g", (double)value);
        CHECK(status == CZ_OK || i == 100, "%d: %s", i, cz_last_error());
    }
    CHECK(status == CZ_ERR_PEER, "%s", cz_status_name(status));
    return CZ_OK;
}

TEST(a_rank_that_leaves_is_noticed)
{
    outcome outcomes[MANY_RANKS];
    for (int world = 2; world <= LARGEST_WORLD; world++) {
        run_letters(world, each_until_one_leaves, NULL, outcomes);
        assert_all_ok(world, outcomes, "%s", __func__);
    }
}

static cz_status each_barrier(cz_group *group, void *arg)
{
    return cz_barrier(group, NULL);
}

TEST(a_letter_that_is_not_whole_breaks_the_group)
{
    outcome outcomes[MANY_RANKS];
    for (int world = 2; world <= 3; world++) {
        cut_by = 64;
        run_letters(world, each_barrier, NULL, outcomes);
        cut_by = 0;
        for (int r = 0; r < world; r++) {
            assert_int_equal(outcomes[r].status, CZ_ERR_INTERNAL);
            assert_non_null(strstr(outcomes[r].sentence, "is not whole"));
        }
    }
}
