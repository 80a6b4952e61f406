/* SPDX-License-Identifier: MIT */
/* Which ranks are on the same machine, as threads, on several machines and where nothing is known;
 * and the cores that a rank has. */
#define _GNU_SOURCE
#include "group/group_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

static int (*machine_of)(int rank, int size); /* NULL: all ranks are together */

static int alone(int rank, int size)
{
    return rank;
}

static int in_turn_of_two(int rank, int size)
{
    return rank % 2;
}

static int in_blocks_of_three(int rank, int size)
{
    return rank / 3;
}

/* `ranks`: of the group's ranks in the outermost one. */
static cz_status expect_places(const cz_group *group, int outer)
{
    const int me = cz_group_rank(group), size = cz_group_size(group);
    int before = 0, here = 0;
    for (int r = 0; r < size; r++) {
        const int a = cz_group_global_rank(group, r), b = cz_group_global_rank(group, me);
        if (machine_of && machine_of(a, outer) != machine_of(b, outer))
            continue;
        before += r < me;
        here++;
    }
    cz_group_info info = CZ_GROUP_INFO_INIT;
    CZ_TRY(cz_group_get_info(group, &info));
    CHECK(info.local_rank == before, "local rank %d, wanted %d", info.local_rank, before);
    CHECK(info.local_size == here, "local size %d, wanted %d", info.local_size, here);
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    const int me = cz_group_rank(group), size = cz_group_size(group);
    cz_group *half = NULL;
    CZ_TRY(expect_places(group, size));
    CZ_TRY(cz_group_split(group, me % 2, -me, &half)); /* in reverse order */
    const cz_status status = expect_places(half, size);
    cz_group_destroy(&half);
    return status;
}

TEST(threads_are_on_one_machine_in_sub_groups_too)
{
    machine_of = NULL;
    for (int w = 0; w < 5; w++)
        assert_ranks_ok((int[]){1, 2, 3, 5, 7}[w], each_rank, NULL);
}

static void expect_on(int (*place)(int, int))
{
    for (int w = 0; w < 4; w++) {
        const int world = (int[]){2, 3, 5, 7}[w];
        outcome outcomes[MANY_RANKS];
        cz_group *groups[MANY_RANKS];
        window_place = machine_of = place;
        window_part_bytes = 1 << 20;
        assert_ok(window_create(groups, world, NULL));
        run_groups(world, groups, each_rank, NULL, outcomes);
        assert_all_ok(world, outcomes, "%d ranks", world);
    }
}

TEST(ranks_of_several_machines_are_counted_on_each)
{
    expect_on(in_turn_of_two);
    expect_on(in_blocks_of_three);
}

TEST(ranks_of_which_nothing_is_known_are_alone)
{
    outcome outcomes[3];
    cz_group *groups[3];
    machine_of = alone;
    setenv("CZ_TEST_RANKS", "messages", 1);
    assert_ok(create_ranks(groups, 3, NULL));
    unsetenv("CZ_TEST_RANKS");
    run_groups(3, groups, each_rank, NULL, outcomes);
    assert_all_ok(3, outcomes, "messages");
}

/* ---- cores ---- */

static int allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static cz_status expect_fair_share(cz_group *group, void *arg)
{
    const int size = cz_group_size(group), most = allowed() / size;
    int cores = 0;
    CZ_TRY(cz_group_local_cores(group, &cores)); /* a quota may make it fewer */
    CHECK(cores >= 1 && cores <= (most > 1 ? most : 1), "%d cores of %d for %d ranks", cores,
          allowed(), size);
    return CZ_OK;
}

TEST(ranks_that_may_use_the_same_cores_share_them)
{
    for (int w = 0; w < 5; w++)
        assert_ranks_ok((int[]){1, 2, 3, 5, 7}[w], expect_fair_share, NULL);
}

/* Each on its own core if there are so many: whatever the others may use. */
static cz_status expect_own_core(cz_group *group, void *arg)
{
    cpu_set_t set, own;
    int core = -1, cores = 0;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0, "no affinity");
    for (int k = 0; k <= cz_group_rank(group) % CPU_COUNT(&set); k++)
        while (!CPU_ISSET(++core, &set))
            ;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof own, &own) == 0, "core %d", core);
    CZ_TRY(cz_group_local_cores(group, &cores));
    CHECK(cores == 1, "%d cores of one", cores);
    return CZ_OK;
}

TEST(a_rank_that_is_bound_to_a_core_has_one)
{
    assert_ranks_ok(2, expect_own_core, NULL);
    assert_ranks_ok(5, expect_own_core, NULL);
}

static cz_status expect_error(cz_group *group, void *arg)
{
    const bool odd = cz_group_rank(group) == 1;
    int cores = 77;
    const cz_status status = cz_group_local_cores(group, odd ? NULL : &cores);
    CHECK(status == CZ_ERR_ARGUMENT && strstr(cz_last_error(), "local_cores: cores is NULL"), "%s",
          cz_last_error());
    CHECK(cores == 77, "changed to %d", cores);
    return cz_group_local_cores(group, &cores);
}

TEST(an_error_of_one_rank_is_everybodys)
{
    assert_ranks_ok(3, expect_error, NULL);
}
