/* SPDX-License-Identifier: MIT */
/* Data through memory that all ranks reach: none by messages if all do, all by messages while some
 * rank does not; the same bits either way, also with more operations at once than there is room
 * for. */
#include "engine/window.h"
#include "group/group_test.h"

enum { LARGE = 40007, AT_ONCE = 3 * CZ__LANES };

static float value(int rank, int64_t i)
{
    return (float)rough_number(mix((uint64_t)rank << 40 | (uint64_t)i));
}

static float sum(int first, int count, int64_t i)
{
    int left = 1;
    if (count == 1)
        return value(first, i);
    while (2 * left < count)
        left *= 2;
    return sum(first, left, i) + sum(first + left, count - left, i);
}

static cz_status check(const float *got, int64_t begin, int64_t count, int size, const char *name)
{
    for (int64_t i = 0; i < count; i++)
        CHECK(got[i] == sum(0, size, begin + i), "%s: element %d of %d", name, (int)i, (int)count);
    return CZ_OK;
}

static void set(float *data, int rank, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        data[i] = value(rank, i);
}

/* The four that move most data. */
static cz_status sums(cz_group *group, float *data, float *other)
{
    const int me = cz_group_rank(group), size = cz_group_size(group);
    const int64_t part = LARGE / size;
    set(data, me, LARGE);
    CZ_TRY(cz_all_reduce(group, data, LARGE, CZ_F32, CZ_SUM, NULL));
    CZ_TRY(check(data, 0, LARGE, size, "all_reduce"));
    set(data, me, LARGE);
    CZ_TRY(cz_reduce_scatter(group, data, other, part, CZ_F32, CZ_SUM, NULL));
    CZ_TRY(check(other, me * part, part, size, "reduce_scatter"));
    memset(data, 0, LARGE * sizeof *data);
    CZ_TRY(cz_all_gather(group, other, data, part, CZ_F32, NULL));
    CZ_TRY(check(data, 0, part * size, size, "all_gather"));
    CZ_TRY(cz_barrier(group, NULL)); /* some are not done with the copies of this */
    if (me != size - 1)
        memset(data, 0, LARGE * sizeof *data);
    CZ_TRY(cz_broadcast(group, data, part * size, CZ_F32, size - 1, NULL));
    return check(data, 0, part * size, size, "broadcast");
}

static cz_status each_rank(cz_group *group, void *arg)
{
    float *data = calloc(2 * LARGE, sizeof *data);
    CHECK(data, "no memory");
    const cz_status status = sums(group, data, data + LARGE);
    free(data);
    return status;
}

/* Messages with data that it took. */
static int run(int world, cz_rank_main body)
{
    outcome outcomes[MANY_RANKS];
    cz_group *groups[MANY_RANKS];
    const cz_group_options options = {.size = sizeof options, .timeout_seconds = 60};
    atomic_store(&window_messages, 0);
    assert_ok(window_create(groups, world, &options));
    run_groups(world, groups, body, NULL, outcomes);
    assert_all_ok(world, outcomes, "%s", __func__);
    return atomic_load(&window_messages);
}

TEST(nothing_goes_by_messages)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        assert_int_equal(run(world, each_rank), 0);
}

TEST(a_rank_that_does_not_reach_it)
{
    for (int world = 2; world <= LARGEST_WORLD; world++)
        for (window_blind = 0; window_blind < world; window_blind += 2)
            assert_true(run(world, each_rank) > 0);
    window_blind = -1;
}

/* Each rank finds it at another operation, and all change over together. */
TEST(it_is_there_later)
{
    for (window_late = 1; window_late <= 2; window_late++) {
        const int all = (window_blind = 0, run(3, each_rank));
        window_blind = -1;
        const int some = run(3, each_rank);
        assert_true(some > 0 && some < all);
    }
    window_late = 0;
}

TEST(sizes)
{
    const size_t usual = window_part_bytes, sizes[] = {4096, 8192, 40960, 1 << 20, 8 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        window_part_bytes = sizes[i];
        assert_true((run(3, each_rank) > 0) == (i < 2)); /* too small for a segment of each */
    }
    window_part_bytes = usual;
}

/* ---- many at once ---- */

static cz_status many(cz_group *group, float *data, cz_work **works)
{
    const int me = cz_group_rank(group), size = cz_group_size(group);
    for (int k = 0; k < AT_ONCE; k++) {
        set(data + k * LARGE, me, LARGE - k);
        CZ_TRY(cz_all_reduce(group, data + k * LARGE, LARGE - k, CZ_F32, CZ_SUM,
                             CZ_START("one of many", &works[k])));
    }
    for (int k = AT_ONCE - 1; k >= 0; k--) {
        CZ_TRY(cz_work_wait(works[k]));
        CZ_TRY(check(data + k * LARGE, 0, LARGE - k, size, "one of many"));
        cz_work_destroy(&works[k]);
    }
    return CZ_OK;
}

static cz_status each_rank_many(cz_group *group, void *arg)
{
    cz_work *works[AT_ONCE] = {NULL};
    float *data = calloc(AT_ONCE * LARGE, sizeof *data);
    CHECK(data, "no memory");
    cz_status status = CZ_OK;
    for (int round = 0; round < 3 && status == CZ_OK; round++)
        status = many(group, data, works);
    for (int k = 0; k < AT_ONCE; k++)
        cz_work_destroy(&works[k]);
    free(data);
    return status;
}

TEST(more_than_there_are_lanes)
{
    for (int world = 2; world <= LARGEST_WORLD; world += 3)
        (void)run(world, each_rank_many);
}

/* ---- a lane that was used so often that the flags' numbers go round ---- */

/* As if all lanes had been used so often, the last time to the end. */
static void pretend_uses(const cz_group *group, uint64_t uses)
{
    cz__window *window = group->window;
    cz__lane_flags *lanes = (cz__lane_flags *)(void *)window->parts[group->rank];
    for (int lane = 0; lane < window->lane_count; lane++) {
        cz__lane_flags *flags = &lanes[lane];
        _Atomic uint64_t *rounds[] = {&flags->published, &flags->reduced, &flags->copied,
                                      &flags->landed};
        for (size_t k = 0; k < sizeof rounds / sizeof *rounds; k++)
            atomic_store(rounds[k], uses << 32 | UINT32_MAX);
        atomic_store(&flags->ended, uses);
        window->uses[lane] = uses;
    }
}

static cz_status each_rank_used_often(cz_group *group, void *arg)
{
    const uint64_t around[] = {(UINT64_C(1) << 31) - 2, (UINT64_C(1) << 32) - 2};
    CZ_TRY(each_rank(group, arg));
    for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
        CZ_TRY(cz_barrier(group, NULL));
        pretend_uses(group, around[k]);
        CZ_TRY(cz_barrier(group, NULL));
        for (int i = 0; i < 8; i++)
            CZ_TRY(each_rank(group, arg));
        CZ_TRY(each_rank_many(group, arg));
    }
    return CZ_OK;
}

TEST(lanes_that_were_used_2_to_the_32_times)
{
    for (int world = 2; world <= LARGEST_WORLD; world += 2)
        (void)run(world, each_rank_used_often);
}

/* ---- so little that it goes with the headers ---- */

enum { WARM = 40, SMALL = 700 };

static cz_status one_small(cz_group *group, float *data, float *other, int64_t count, int root)
{
    const int me = cz_group_rank(group), size = cz_group_size(group);
    set(data, me, count);
    CZ_TRY(cz_all_reduce(group, data, count, CZ_F32, CZ_SUM, NULL));
    CZ_TRY(check(data, 0, count, size, "all_reduce"));
    set(data, me, count);
    CZ_TRY(cz_reduce(group, data, other, count, CZ_F32, CZ_SUM, root, NULL));
    CZ_TRY(me == root ? check(other, 0, count, size, "reduce") : CZ_OK);
    memset(data, me == root ? 1 : 0, (size_t)count * sizeof *data);
    if (me == root)
        memcpy(data, other, (size_t)count * sizeof *data);
    CZ_TRY(cz_broadcast(group, data, count, CZ_F32, root, NULL));
    CZ_TRY(check(data, 0, count, size, "broadcast"));
    const int64_t part = count / size;
    if (part == 0)
        return CZ_OK;
    set(data, me, part * size);
    CZ_TRY(cz_reduce_scatter(group, data, other, part, CZ_F32, CZ_SUM, NULL));
    CZ_TRY(check(other, me * part, part, size, "reduce_scatter"));
    memset(data, 0, (size_t)count * sizeof *data);
    CZ_TRY(cz_all_gather(group, other, data, part, CZ_F32, NULL));
    return check(data, 0, part * size, size, "all_gather");
}

/* Some in flight at once; more than there are boxes. */
static cz_status small_at_once(cz_group *group, float *data)
{
    enum { COUNT = 20 };
    const int me = cz_group_rank(group), size = cz_group_size(group);
    cz_work *works[COUNT] = {NULL};
    cz_status status = CZ_OK;
    for (int k = 0; k < COUNT && status == CZ_OK; k++) {
        set(data + k * SMALL, me, 1 + 13 * k);
        status = cz_all_reduce(group, data + k * SMALL, 1 + 13 * k, CZ_F32, CZ_SUM,
                               CZ_START("small", &works[k]));
    }
    for (int k = COUNT - 1; k >= 0; k--) {
        if (status == CZ_OK)
            status = cz_work_wait(works[k]);
        if (status == CZ_OK)
            status = check(data + k * SMALL, 0, 1 + 13 * k, size, "small ones at once");
        cz_work_destroy(&works[k]);
    }
    return status;
}

static cz_status each_rank_small(cz_group *group, void *arg)
{
    float *data = calloc(22 * SMALL, sizeof *data);
    CHECK(data, "no memory");
    cz_status status = CZ_OK;
    for (int i = 0; i < WARM && status == CZ_OK; i++)
        status = cz_barrier(group, NULL);
    const int headers = atomic_load(&window_headers);
    for (int64_t count = 1; count <= SMALL && status == CZ_OK; count += 1 + count / 3)
        status = one_small(group, data, data + SMALL, count, (int)(count % cz_group_size(group)));
    for (int i = 0; i < 3 && status == CZ_OK; i++)
        status = small_at_once(group, data);
    if (status == CZ_OK)
        status = cz_barrier(group, NULL);
    free(data);
    CHECK(status != CZ_OK || atomic_load(&window_headers) == headers, "%d messages for headers",
          atomic_load(&window_headers) - headers);
    return status;
}

TEST(ranks_meet_without_messages)
{
    for (int world = 2; world <= LARGEST_WORLD; world++)
        assert_int_equal(run(world, each_rank_small), 0);
}

/* ---- how ranks meet changes under way ---- */

enum { BURST = 40 };

/* In flight at once on a new group, across the change-over. */
static cz_status each_rank_burst(cz_group *group, void *arg)
{
    cz_work *works[BURST] = {NULL};
    const int me = cz_group_rank(group), size = cz_group_size(group);
    float data[BURST][20];
    cz_status status = CZ_OK;
    for (int k = 0; k < BURST && status == CZ_OK; k++) {
        for (int i = 0; i < 20; i++)
            data[k][i] = value(me, 100 * k + i);
        status = cz_all_reduce(group, data[k], 20, CZ_F32, CZ_SUM, CZ_START("burst", &works[k]));
    }
    for (int k = 0; k < BURST; k++) {
        if (status == CZ_OK)
            status = cz_work_wait(works[k]);
        cz_work_destroy(&works[k]);
    }
    CZ_TRY(status);
    for (int k = 0; k < BURST; k++)
        for (int i = 0; i < 20; i++)
            CHECK(data[k][i] == sum(0, size, 100 * k + i), "sum %d of operation %d", i, k);
    return CZ_OK;
}

TEST(many_in_flight_while_the_way_to_meet_changes)
{
    window_shuffles = true;
    for (int round = 0; round < 30; round++)
        (void)run(2 + round % 3, each_rank_burst);
    window_shuffles = false;
}

/* Rank 0 has posted its last verdict and is gone when the others look whether it is there. */
static cz_status each_rank_outstays(cz_group *group, void *arg)
{
    float data = value(cz_group_rank(group), 0);
    for (int i = 0; i < WARM; i++)
        CZ_TRY(cz_barrier(group, NULL));
    window_outstays = cz_group_rank(group) > 0 ? 0 : -1;
    CZ_TRY(cz_all_reduce(group, &data, 1, CZ_F32, CZ_SUM, NULL));
    CHECK(data == sum(0, cz_group_size(group), 0), "the last sum");
    return CZ_OK;
}

TEST(a_rank_that_leaves_in_peace_right_after_its_verdict)
{
    for (int round = 0; round < 10; round++)
        (void)run(2 + round % 4, each_rank_outstays);
}

/* The last of more operations than may be met for before it is known how. */
static cz_status each_rank_waits(cz_group *group, void *arg)
{
    cz_work *works[BURST] = {NULL};
    float data[BURST] = {0};
    cz_status status = CZ_OK;
    if (cz_group_rank(group) == 2)
        return CZ_OK;
    for (int k = 0; k < BURST && status == CZ_OK; k++)
        status = cz_all_reduce(group, &data[k], 1, CZ_F32, CZ_SUM, CZ_START("waits", &works[k]));
    if (status == CZ_OK)
        status = cz_work_wait(works[BURST - 1]);
    for (int k = 0; k < BURST; k++)
        cz_work_destroy(&works[k]);
    CHECK(status == CZ_ERR_PEER, "status %s, wanted what rank 2 did", cz_status_name(status));
    return CZ_OK;
}

TEST(operations_that_wait_to_know_how_they_meet_hear_of_a_failure)
{
    window_blind = 0;
    (void)run(3, each_rank_waits);
    window_blind = -1;
}

/* ---- so much that both ways of storing into slots are tried ---- */

enum { ENORMOUS = 2 * (1 << 20) + 100003, TIMES = 4 };

static cz_status huge(cz_group *group, float *data, float *other)
{
    const int me = cz_group_rank(group), size = cz_group_size(group);
    const int64_t part = ENORMOUS / size;
    for (int k = 0; k < TIMES; k++) {
        set(data, me, ENORMOUS);
        CZ_TRY(cz_reduce(group, data, other, ENORMOUS, CZ_F32, CZ_SUM, k % size, NULL));
        CZ_TRY(me == k % size ? check(other, 0, ENORMOUS, size, "reduce") : CZ_OK);
        CZ_TRY(cz_all_reduce(group, data, ENORMOUS, CZ_F32, CZ_SUM, NULL));
        CZ_TRY(check(data, 0, ENORMOUS, size, "all_reduce"));
        memcpy(other, data + me * part, (size_t)part * sizeof *data);
        memset(data, 0, ENORMOUS * sizeof *data);
        CZ_TRY(cz_all_gather(group, other, data, part, CZ_F32, NULL));
        CZ_TRY(check(data, 0, part * size, size, "all_gather"));
    }
    return CZ_OK;
}

static cz_status each_rank_huge(cz_group *group, void *arg)
{
    float *data = calloc(2 * ENORMOUS, sizeof *data);
    CHECK(data, "no memory");
    const cz_status status = huge(group, data, data + ENORMOUS);
    free(data);
    return status;
}

TEST(large_operations)
{
    const size_t usual = window_part_bytes;
    window_part_bytes = 4 << 20;
    assert_int_equal(run(2, each_rank_huge), 0);
    window_part_bytes = usual;
}

TEST(a_table_that_is_not_whole)
{
    cz_backend table = window_backend;
    cz_group *group = NULL;
    char endpoint;
    table.present = NULL;
    assert_int_equal(cz_group_create_custom(&group, 0, 2, &table, &endpoint, NULL),
                     CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "needs present"));
}

int main(void)
{
    setenv("CZ_TEST_RANKS", "segment", 1);
    return cz_test_run(NULL, NULL);
}
