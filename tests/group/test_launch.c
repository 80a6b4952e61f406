/* SPDX-License-Identifier: MIT */
/* The launcher: what it returns when ranks fail, leave, or hang in the program's own code. */
#include <stdatomic.h>

#include "base/clock.h"
#include "group/group_test.h"

static cz_launch_options ranks(int count)
{
    return (cz_launch_options){
        .size = sizeof(cz_launch_options), .ranks = count, .timeout_seconds = 30};
}

static cz_status count_ranks(cz_group *world, void *context)
{
    float value = 1;
    atomic_fetch_add((atomic_int *)context, 1);
    CZ_TRY(cz_all_reduce(world, &value, 1, CZ_F32, CZ_SUM, NULL));
    CHECK(value == (float)cz_group_size(world), "%g ranks", value);
    return CZ_OK;
}

TEST(every_rank_runs_once)
{
    const int64_t held = cz_test_allocations_held();
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        atomic_int count = 0;
        const cz_launch_options options = ranks(world);
        assert_ok(cz_launch(count_ranks, &count, &options));
        assert_int_equal(atomic_load(&count), world);
    }
    assert_int_equal(cz_test_allocations_held(), held);
}

TEST(the_environment)
{
    atomic_int count = 0;
    const cz_launch_options two = ranks(2);
    unsetenv("CZERO_RANKS");
    assert_ok(cz_launch(count_ranks, &count, NULL));
    assert_int_equal(atomic_exchange(&count, 0), 1);
    setenv("CZERO_RANKS", "3", 1);
    assert_ok(cz_launch(count_ranks, &count, NULL));
    assert_int_equal(atomic_exchange(&count, 0), 3);
    assert_ok(cz_launch(count_ranks, &count, &two)); /* the option counts */
    assert_int_equal(atomic_exchange(&count, 0), 2);
    cz_log_set_level(CZ_LOG_OFF);
    setenv("CZERO_RANKS", "many", 1);
    assert_ok(cz_launch(count_ranks, &count, NULL));
    assert_int_equal(atomic_exchange(&count, 0), 1);
    cz_log_set_level(CZ_LOG_WARN);
    unsetenv("CZERO_RANKS");
}

TEST(bad_options_run_nothing)
{
    struct {
        cz_launch_options known;
        int unknown;
    } more = {ranks(2), 1};
    enum { SIZE = sizeof(cz_launch_options) };
    const cz_launch_options bad[] = {{.size = SIZE, .ranks = -1},
                                     {.size = SIZE, .ranks = 4097},
                                     {.size = SIZE, .ranks = 2, .timeout_seconds = -1},
                                     {.size = SIZE, .ranks = 2, .timeout_seconds = 0.0 / 0.0},
                                     {.size = 0, .ranks = 2}};
    atomic_int count = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(cz_launch(count_ranks, &count, &bad[i]), CZ_ERR_ARGUMENT);
    const cz_launch_options later = {.size = SIZE, .ranks = 2, .reserved = 1};
    assert_int_equal(cz_launch(count_ranks, &count, &later), CZ_ERR_UNSUPPORTED);
    assert_int_equal(cz_launch(NULL, &count, NULL), CZ_ERR_ARGUMENT);
    more.known.size = sizeof more;
    assert_int_equal(cz_launch(count_ranks, &count, &more.known), CZ_ERR_UNSUPPORTED);
    assert_int_equal(atomic_load(&count), 0);
}

/* Rank `*context` fails, the others wait for it in a collective; what they hear is no news. */
static cz_status one_fails(cz_group *world, void *context)
{
    if (cz_group_rank(world) == *(int *)context)
        return cz_fail(CZ_ERR_IO, "the disk is full");
    const cz_status status = cz_barrier(world, NULL);
    CHECK(status == CZ_ERR_PEER && strstr(cz_last_error(), "(the disk is full)"), "heard: %s: %s",
          cz_status_name(status), cz_last_error());
    return status;
}

TEST(the_rank_that_failed_is_named)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        for (int bad = 0; bad < world; bad++) {
            char wanted[64];
            const cz_launch_options options = ranks(world);
            snprintf(wanted, sizeof wanted, "rank %d of %d: the disk is full", bad, world);
            assert_int_equal(cz_launch(one_fails, &bad, &options), CZ_ERR_IO);
            assert_string_equal(cz_last_error(), wanted);
        }
}

/* Of several failures the first one counts, also after ranks that only heard. */
static cz_status two_fail(cz_group *world, void *context)
{
    const int rank = cz_group_rank(world);
    if (rank == 2)
        return cz_fail(CZ_ERR_IO, "first");
    const cz_status status = cz_barrier(world, NULL); /* ends when rank 2 has failed */
    return rank == 1 ? cz_fail(CZ_ERR_UNSUPPORTED, "second") : status;
}

TEST(the_first_failure_counts)
{
    const cz_launch_options options = ranks(4);
    assert_int_equal(cz_launch(two_fail, NULL, &options), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "rank 2 of 4: first");
}

static cz_status leaves_early(cz_group *world, void *context)
{
    return cz_group_rank(world) == 0 ? CZ_OK : cz_barrier(world, NULL);
}

TEST(a_rank_that_returns_early)
{
    const cz_launch_options options = ranks(3);
    assert_int_equal(cz_launch(leaves_early, NULL, &options), CZ_ERR_PEER);
    assert_non_null(strstr(cz_last_error(), "rank 0 left the group"));
}

/* A rank that only heard of another's end does not hide a failure that comes after. */
static cz_status fails_after_hearsay(cz_group *world, void *context)
{
    atomic_int *heard = context;
    if (cz_group_rank(world) == 0)
        return CZ_OK;
    if (cz_group_rank(world) == 1) {
        const cz_status status = cz_barrier(world, NULL);
        atomic_store(heard, 1);
        return status;
    }
    while (!atomic_load(heard))
        usleep(100);
    usleep(50 * 1000);
    return cz_fail(CZ_ERR_IO, "a failure of its own");
}

TEST(hearsay_does_not_count)
{
    atomic_int heard = 0;
    const cz_launch_options options = ranks(3);
    assert_int_equal(cz_launch(fails_after_hearsay, &heard, &options), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "rank 2 of 3: a failure of its own");
}

/* A failure while the sentence is still needed: continuations that run when the rank leaves. */
static cz_status complain(cz_status status, void *context)
{
    atomic_store((atomic_int *)context, 1);
    return cz_fail(CZ_ERR_UNSUPPORTED, "%-300d", 1);
}

static cz_status fails_with_work(cz_group *world, void *context)
{
    if (cz_group_rank(world) == 0) {
        cz_work *work;
        CZ_TRY(cz_barrier(world, CZ_START(NULL, &work)));
        CZ_TRY(cz_work_then(work, complain, context));
        cz_work_destroy(&work);
        return cz_fail(CZ_ERR_IO, "the disk is full");
    }
    CHECK(comes((atomic_int *)context, 1), "no continuation ran");
    cz_status status = CZ_OK;
    while (status == CZ_OK) /* the first barrier may still end well: rank 0 came to it */
        status = cz_barrier(world, NULL);
    CHECK(status == CZ_ERR_PEER && strstr(cz_last_error(), "(the disk is full)"), "heard: %s",
          cz_last_error());
    return status;
}

TEST(a_failure_with_work_in_flight)
{
    atomic_int complained = 0;
    const cz_launch_options options = ranks(2);
    assert_int_equal(cz_launch(fails_with_work, &complained, &options), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "rank 0 of 2: the disk is full");
}

/* A launch inside a rank. */
static cz_status launches(cz_group *world, void *context)
{
    const cz_launch_options options = ranks(1 + cz_group_rank(world));
    CZ_TRY(cz_launch(count_ranks, context, &options));
    return cz_barrier(world, NULL);
}

TEST(launch_within_launch)
{
    atomic_int count = 0;
    const cz_launch_options options = ranks(3);
    assert_ok(cz_launch(launches, &count, &options));
    assert_int_equal(atomic_load(&count), 1 + 2 + 3);
}

/* Last, as its thread and memory are left alone: rank 1 never returns. */
static cz_status hangs(cz_group *world, void *context)
{
    if (cz_group_rank(world) == 0)
        return cz_fail(CZ_ERR_IO, "the disk is full");
    if (cz_group_rank(world) == 2)
        return cz_barrier(world, NULL);
    for (;;)
        pause();
}

TEST(a_rank_that_hangs)
{
    cz_launch_options options = ranks(3);
    options.timeout_seconds = 2; /* enough for the others to return */
    const double begin = cz__seconds();
    assert_int_equal(cz_launch(hangs, NULL, &options), CZ_ERR_TIMEOUT);
    assert_true(cz__seconds() - begin >= 2);
    assert_string_equal(cz_last_error(), "rank 1 of 3 did not return within 2 s after the failure "
                                         "of rank 0 of 3: the disk is full");
}
