/* SPDX-License-Identifier: MIT */
/* Options of a group that its ranks give differently, each making its own handle: refused by all of
 * them, with the option and both values, before anything moves; or harmless, with the same bits. */
#include "group/group_test.h"
#include "group/internal.h"

enum { COUNT = 30011 };

static cz_group_options options_of(int rank, const cz_group_options *odd)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    options.timeout_seconds = 60;
    options.segment_bytes = 1 << 16;
    return rank == 1 ? *odd : options;
}

/* Ranks that are threads, but know nothing of it. */
static void create(cz_group **groups, int world, const cz_group_options *odd)
{
    void *endpoints[MANY_RANKS];
    assert_ok(cz__threads_create(endpoints, world));
    for (int r = 0; r < world; r++) {
        const cz_group_options options = options_of(r, odd);
        assert_ok(cz_group_create_custom(&groups[r], r, world, &cz__backend_threads, endpoints[r],
                                         &options));
    }
}

static cz_status sum(cz_group *group, void *arg)
{
    float *values = malloc(COUNT * sizeof *values), *at = arg;
    CHECK(values, "no memory");
    for (int64_t i = 0; i < COUNT; i++)
        values[i] = (float)(cz_group_rank(group) + 1) / (float)(i % 97 + 3);
    const cz_status status = cz_all_reduce(group, values, COUNT, CZ_F32, CZ_SUM, NULL);
    if (status == CZ_OK)
        memcpy(at + cz_group_rank(group) * COUNT, values, COUNT * sizeof *values);
    free(values);
    return status;
}

static float results[2][3 * COUNT];

static void expect_refused(int world, const cz_group_options *odd, const char *words)
{
    outcome outcomes[MANY_RANKS];
    cz_group *groups[MANY_RANKS];
    create(groups, world, odd);
    run_groups(world, groups, sum, results[0], outcomes);
    for (int r = 0; r < world; r++) {
        assert_int_equal(outcomes[r].status, CZ_ERR_MISMATCH);
        assert_non_null(strstr(outcomes[r].sentence, words));
        assert_string_equal(outcomes[r].sentence, outcomes[0].sentence);
    }
}

static void expect_harmless(int world, const cz_group_options *odd)
{
    outcome outcomes[MANY_RANKS];
    cz_group *groups[MANY_RANKS];
    const cz_group_options even = options_of(0, odd);
    for (int run = 0; run < 2; run++) {
        create(groups, world, run ? odd : &even);
        run_groups(world, groups, sum, results[run], outcomes);
        assert_all_ok(world, outcomes, "%s", __func__);
    }
    assert_memory_equal(results[0], results[1], (size_t)world * COUNT * sizeof(float));
}

TEST(segments_of_another_size_are_refused)
{
    cz_group_options odd = options_of(0, NULL);
    for (int world = 2; world <= 3; world++) {
        odd.segment_bytes = 4096;
        expect_refused(world, &odd,
                       "segment_bytes is 4096 on rank 1, 65536 on rank 0; make the group");
        odd.segment_bytes = 1 << 20;
        expect_refused(world, &odd, "segment_bytes is 1048576 on rank 1, 65536 on rank 0");
    }
}

TEST(checked_mode_on_one_rank_is_refused)
{
    cz_group_options odd = options_of(0, NULL);
    odd.checked = 1;
    for (int world = 2; world <= 3; world++)
        expect_refused(world, &odd, "checked is 1 on rank 1, 0 on rank 0");
}

TEST(times_may_differ)
{
    cz_group_options odd = options_of(0, NULL);
    odd.timeout_seconds = 30;
    odd.warn_seconds = 20;
    for (int world = 2; world <= 3; world++)
        expect_harmless(world, &odd);
}

/* Of backends that have collectives of their own the first one is agreed on. */
static atomic_int native_calls;

static cz_status own_barrier(void *endpoint, cz_collective *collective)
{
    atomic_fetch_add(&native_calls, 1);
    return cz_fail(CZ_ERR_UNSUPPORTED, "not here");
}

static cz_status own_test(void *endpoint, cz_collective *collective, bool *done)
{
    return CZ_ERR_INTERNAL;
}

static bool own_withdraw(void *endpoint, cz_collective *collective)
{
    return true;
}

static cz_status barrier(cz_group *group, void *arg)
{
    return cz_barrier(group, NULL);
}

TEST(a_backend_with_collectives_finds_it_too)
{
    void *endpoints[2];
    cz_group *groups[2];
    outcome outcomes[2];
    cz_backend own = cz__backend_threads;
    own.barrier = own_barrier;
    own.test_collective = own_test;
    own.withdraw_collective = own_withdraw;
    cz_group_options odd = options_of(0, NULL);
    odd.checked = 1;
    assert_ok(cz__threads_create(endpoints, 2));
    for (int r = 0; r < 2; r++) {
        const cz_group_options options = options_of(r, &odd);
        assert_ok(cz_group_create_custom(&groups[r], r, 2, &own, endpoints[r], &options));
    }
    run_groups(2, groups, barrier, NULL, outcomes);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(outcomes[r].status, CZ_ERR_MISMATCH);
        assert_non_null(strstr(outcomes[r].sentence, "checked is 1 on rank 1, 0 on rank 0"));
    }
    assert_int_equal(atomic_load(&native_calls), 0);
}

/* A message that is larger than its place is refused whoever sent it: headers are no protection
 * there. */
static cz_status send_more(cz_group *group, void *arg)
{
    char data[64] = {0}, place[16 + 48];
    const int rank = cz_group_rank(group);
    bool done = false;
    cz_status status;
    memset(place, 7, sizeof place);
    cz_transfer t = {.peer = 1 - rank,
                     .tag = 5,
                     .data = rank ? data : place,
                     .bytes = rank ? 64 : 16,
                     .device = cz_device_cpu()};
    status = rank ? group->backend->post_send(group->endpoint, &t)
                  : group->backend->post_receive(group->endpoint, &t);
    while (status == CZ_OK && !done)
        status = group->backend->test(group->endpoint, &t, &done);
    for (size_t i = 16; i < sizeof place; i++)
        CHECK(place[i] == 7, "byte %zu behind the place was written", i);
    return status;
}

TEST(a_message_is_never_larger_than_its_place)
{
    cz_group *groups[2];
    outcome outcomes[2];
    const cz_group_options same = options_of(0, NULL);
    create(groups, 2, &same);
    run_groups(2, groups, send_more, NULL, outcomes);
    assert_true(outcomes[0].status != CZ_OK || outcomes[1].status != CZ_OK);
    for (int r = 0; r < 2; r++)
        assert_null(strstr(outcomes[r].sentence, "behind the place"));
}
