/* SPDX-License-Identifier: MIT */
/* Every allocation fails in turn: whoever it hits reports it, all ranks return an error, nothing
 * leaks. In a steady state nothing is allocated. */
#include <stdatomic.h>

#include "group/collective.h"
#include "group/group_test.h"

enum { WORLD = 3, COUNT = 500 };

TEST(a_group_that_cannot_be_made_leaves_nothing)
{
    const int64_t held = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz_group *groups[WORLD];
        memset(groups, 0xff, sizeof groups);
        cz_test_fail_allocation(n);
        const cz_status status = cz_group_create_threads(groups, WORLD, NULL);
        const bool failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        for (int r = 0; r < WORLD; r++) {
            assert_true(failed == (groups[r] == NULL));
            cz_group_destroy(&groups[r]);
        }
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed)
            break;
    }
}

TEST(creation_of_self)
{
    const int64_t held = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz_group *group = NULL;
        cz_test_fail_allocation(n);
        const cz_status status = cz_group_create_self(&group, NULL);
        const bool failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        assert_true(failed == (group == NULL));
        cz_group_destroy(&group);
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed)
            break;
    }
}

/* The first operations of a group, some in flight together, one with a continuation and its
 * child. */
typedef struct rank_memory {
    cz_group *group;
    float child;
    atomic_int runs;
} rank_memory;

static cz_status start_child(cz_status status, void *context)
{
    rank_memory *m = context;
    atomic_fetch_add(&m->runs, 1);
    CZ_TRY(status);
    return cz_all_reduce(m->group, &m->child, 1, CZ_F32, CZ_SUM, CZ_LABEL("child"));
}

static cz_status run_all(cz_group *world, rank_memory *m, float *large, cz_work **works)
{
    float value = 1;
    CZ_TRY(cz_barrier(world, NULL));
    CZ_TRY(cz_all_reduce(world, large, COUNT, CZ_F32, CZ_SUM, CZ_START("large", &works[0])));
    CZ_TRY(cz_all_reduce(world, &value, 1, CZ_F32, CZ_SUM, NULL));
    CHECK(value == (float)cz_group_size(world), "the sum is %g", value);
    CZ_TRY(cz_barrier(world, CZ_START(NULL, &works[1])));
    CZ_TRY(cz_work_then(works[1], start_child, m));
    CZ_TRY(cz_work_wait(works[0]));
    CHECK(large[COUNT - 1] == (float)cz_group_size(world), "the sum is %g", large[COUNT - 1]);
    return cz_work_wait(works[1]);
}

static cz_status first_operations(cz_group *world, void *arg)
{
    float large[COUNT];
    rank_memory m = {.group = world, .child = 1};
    cz_work *works[2] = {NULL, NULL};
    char why[320];
    for (int i = 0; i < COUNT; i++)
        large[i] = 1;
    const cz_status status = run_all(world, &m, large, works);
    snprintf(why, sizeof why, "%s", cz_last_error());
    for (int i = 0; i < 2; i++) { /* the buffers above are theirs until they have ended */
        if (works[i])
            (void)cz_work_wait(works[i]);
        cz_work_destroy(&works[i]);
    }
    return status == CZ_OK ? CZ_OK : cz_fail(status, "%s", why);
}

TEST(launch_and_first_operations)
{
    const int64_t held = cz_test_allocations_held();
    const cz_launch_options options = {
        .size = sizeof options, .ranks = WORLD, .timeout_seconds = 30};
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_launch(first_operations, NULL, &options);
        const bool failed = cz_test_allocation_reset();
        if (status != (failed ? CZ_ERR_MEMORY : CZ_OK))
            fail_msg("allocation %d: %s: %s", (int)n, cz_status_name(status), cz_last_error());
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed)
            break;
    }
}

/* Every rank gets an error, whichever rank it is that has no memory. */
static cz_status each_rank_counts(cz_group *group, void *arg)
{
    return first_operations(group, NULL);
}

TEST(all_ranks_get_an_error)
{
    for (int64_t n = 1;; n++) {
        cz_group *groups[WORLD];
        outcome outcomes[WORLD];
        rank_call calls[WORLD];
        int memory = 0;
        assert_ok(cz_group_create_threads(groups, WORLD, NULL));
        cz_test_fail_allocation(n);
        for (int r = 0; r < WORLD; r++) {
            calls[r] = (rank_call){groups[r], each_rank_counts, NULL, &outcomes[r], 0};
            assert_int_equal(pthread_create(&calls[r].thread, NULL, rank_call_main, &calls[r]), 0);
        }
        for (int r = 0; r < WORLD; r++)
            pthread_join(calls[r].thread, NULL);
        const bool failed = cz_test_allocation_reset();
        for (int r = 0; r < WORLD; r++) {
            memory += outcomes[r].status == CZ_ERR_MEMORY;
            assert_true(failed == (outcomes[r].status != CZ_OK));
            assert_true(!failed || outcomes[r].status == CZ_ERR_MEMORY ||
                        outcomes[r].status == CZ_ERR_PEER);
        }
        assert_true(failed == (memory > 0));
        if (!failed)
            break;
    }
}

/* ---- the steady state ---- */

static atomic_llong made_before;

static cz_status mixed_operations(cz_group *group, float *large, float *small)
{
    const int size = cz_group_size(group);
    CZ_TRY(cz_all_reduce(group, small, 3, CZ_F32, CZ_MAX, CZ_LABEL("small")));
    CZ_TRY(cz_all_reduce(group, large, COUNT, CZ_F32, CZ_MAX, NULL));
    CZ_TRY(cz_broadcast(group, large, COUNT, CZ_F32, size - 1, NULL));
    CZ_TRY(cz_all_gather(group, small, large, 5, CZ_F32, NULL));
    CZ_TRY(cz_reduce_scatter(group, large, small, 5, CZ_F32, CZ_MIN, NULL));
    CZ_TRY(cz__agree(group, CZ_OK, 1, NULL, NULL));
    return cz_barrier(group, NULL);
}

/* A large and some small ones in flight together, whichever ends first. */
static cz_status operations_in_flight(cz_group *group, float *large, float *small)
{
    cz_work *works[4];
    for (int i = 0; i < 4; i++)
        CZ_TRY(i == 2
                   ? cz_all_reduce(group, large, COUNT, CZ_F32, CZ_MAX, CZ_START("x", &works[i]))
                   : cz_all_reduce(group, &small[i], 1, CZ_F32, CZ_MAX, CZ_START("x", &works[i])));
    for (int i = 0; i < 4; i++) {
        CZ_TRY(cz_work_wait(works[i]));
        cz_work_destroy(&works[i]);
    }
    return cz_barrier(group, NULL);
}

static cz_status take_long(cz_status status, void *context)
{
    usleep(50 * 1000);
    return status;
}

/* As many at once as ever: while a continuation takes long, nothing of the rank moves on. Without
 * it some might end before the next ones begin, also in all rounds but a late one. */
static cz_status all_at_once(cz_group *group, float *large, float *small)
{
    cz_work *work;
    CZ_TRY(cz_barrier(group, CZ_START("slow", &work)));
    cz_status status = cz_work_then(work, take_long, NULL);
    THEN(operations_in_flight(group, large, small));
    THEN(cz_work_wait(work));
    cz_work_destroy(&work);
    return status;
}

static cz_status each_rank_steady(cz_group *group, void *arg)
{
    float large[COUNT] = {0}, small[5] = {0};
    const int rounds = SLOW ? 200 : 1000;
    CZ_TRY(mixed_operations(group, large, small));
    CZ_TRY(all_at_once(group, large, small));
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        atomic_store(&made_before, cz_test_allocations_made());
    CZ_TRY(cz_barrier(group, NULL));
    for (int i = 0; i < rounds; i++)
        CZ_TRY(i % 2 ? mixed_operations(group, large, small)
                     : operations_in_flight(group, large, small));
    const int64_t more = cz_test_allocations_made() - atomic_load(&made_before);
    CHECK(more == 0, "%d allocations in %d rounds", (int)more, rounds);
    return cz_barrier(group, NULL);
}

TEST(no_allocation_in_a_steady_state)
{
    expect_ok(1, 0, each_rank_steady, NULL);
    expect_ok(WORLD, 256, each_rank_steady, NULL);
}
