/* SPDX-License-Identifier: MIT */
/* Sub-groups: who is in them and in which order, groups of groups, operations on several at once,
 * and what happens when a rank is wrong, has no memory, or leaves. */
#include "group/group_test.h"

/* The sum of the members' ranks in the world, and a broadcast from the last of them. */
static cz_status check_group(cz_group *sub, const int *members, int count)
{
    int sum = 0, value, last;
    CHECK(sub && cz_group_size(sub) == count, "%d ranks, not %d", cz_group_size(sub), count);
    for (int r = 0; r < count; r++) {
        CHECK(cz_group_global_rank(sub, r) == members[r], "rank %d is %d in the world, not %d", r,
              cz_group_global_rank(sub, r), members[r]);
        sum += members[r];
    }
    value = last = members[cz_group_rank(sub)];
    CZ_TRY(cz_all_reduce(sub, &value, 1, CZ_I32, CZ_SUM, CZ_LABEL("members")));
    CZ_TRY(cz_broadcast(sub, &last, 1, CZ_I32, count - 1, NULL));
    CHECK(value == sum && last == members[count - 1], "the sum is %d, not %d; last is %d", value,
          sum, last);
    return cz_barrier(sub, NULL);
}

/* Even and odd ranks, each backwards; then the middle third of each, and the old ones go first. */
static cz_status each_rank_splits(cz_group *world, void *arg)
{
    const int rank = cz_group_rank(world), size = cz_group_size(world);
    int members[MANY_RANKS] = {0}, count = 0;
    cz_group *half = NULL, *part = NULL;
    CHECK(cz_group_global_rank(world, size - 1) == size - 1 &&
              cz_group_global_rank(world, size) == -1 && cz_group_global_rank(world, -1) == -1 &&
              cz_group_global_rank(NULL, 0) == -1,
          "the world's own ranks");
    for (int r = size - 1; r >= 0; r--)
        if (r % 2 == rank % 2)
            members[count++] = r;
    CZ_TRY(cz_group_split(world, rank % 2, -rank, &half));
    cz_status status = check_group(half, members, count);
    const bool inside = status == CZ_OK && count > 2 && cz_group_rank(half) % 2 == 0;
    THEN(cz_group_split(half, inside ? 7 : -1, 0, &part));
    cz_group_destroy(&half); /* what was made from it lives on */
    if (status == CZ_OK && inside) {
        int inner[MANY_RANKS] = {0}, n = 0;
        for (int r = 0; r < count; r += 2)
            inner[n++] = members[r];
        status = check_group(part, inner, n);
    } else if (status == CZ_OK && part) {
        status = cz_fail(CZ_ERR_INTERNAL, "a group for a rank that joins none");
    }
    cz_group_destroy(&part);
    CZ_TRY(status);
    return cz_barrier(world, NULL);
}

TEST(groups_of_groups)
{
    const int64_t held = cz_test_allocations_held();
    for (int round = 0; round < (SLOW ? 2 : 10); round++)
        for (int world = 1; world <= LARGEST_WORLD; world++)
            expect_ok(world, 0, each_rank_splits, NULL);
    assert_int_equal(cz_test_allocations_held(), held);
}

static cz_status each_rank_subset(cz_group *world, void *arg)
{
    const int rank = cz_group_rank(world), size = cz_group_size(world);
    const int list[] = {size - 1, 0, size / 2};
    for (int count = 1; count <= (size > 2 ? 3 : size > 1 ? 2 : 1); count++) {
        cz_group *sub = NULL;
        bool inside = false;
        for (int i = 0; i < count; i++)
            inside |= list[i] == rank;
        CZ_TRY(cz_group_subset(world, list, count, &sub));
        CHECK(inside == (sub != NULL), "rank %d: %s", rank, sub ? "a group" : "no group");
        const cz_status status = inside ? check_group(sub, list, count) : CZ_OK;
        cz_group_destroy(&sub);
        CZ_TRY(status);
    }
    return cz_barrier(world, NULL);
}

TEST(subsets_keep_their_order)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_subset, NULL);
}

/* Operations on the world and on a half of it, in flight together, waited for in any order. */
static cz_status each_rank_both(cz_group *world, void *arg)
{
    enum { EACH = 10 };
    const int rank = cz_group_rank(world);
    uint64_t state = (uint64_t)rank;
    cz_group *half = NULL;
    int values[2 * EACH];
    cz_work *works[2 * EACH];
    CZ_TRY(cz_group_split(world, rank % 2, rank, &half));
    for (int i = 0; i < 2 * EACH;
         i++) { /* ranks of the two halves take the groups in other orders */
        cz_group *group = (i + rank) % 2 ? world : half;
        values[i] = 1;
        CZ_TRY(cz_all_reduce(group, &values[i], 1, CZ_I32, CZ_SUM, CZ_START(NULL, &works[i])));
        nap(100, &state);
    }
    for (int k = 0; k < 2 * EACH; k++) {
        const int i = (k * 7) % (2 * EACH);
        const int wanted = cz_group_size((i + rank) % 2 ? world : half);
        CZ_TRY(cz_work_wait(works[i]));
        cz_work_destroy(&works[i]);
        CHECK(values[i] == wanted, "sum %d is %d, not %d", i, values[i], wanted);
    }
    cz_group_destroy(&half);
    return cz_barrier(world, NULL);
}

TEST(two_groups_at_once)
{
    for (int round = 0; round < (SLOW ? 2 : 10); round++)
        for (int world = 1; world <= LARGEST_WORLD; world += 2)
            expect_ok(world, 0, each_rank_both, NULL);
}

/* A rank leaves a sub-group: that one breaks, the world does not. */
static cz_status each_rank_leaves_half(cz_group *world, void *arg)
{
    const int rank = cz_group_rank(world);
    cz_group *half = NULL;
    outcome got = {CZ_ERR_PEER, ""};
    char name[32]; /* of the first rank of its half, which goes at once */
    snprintf(name, sizeof name, "rank %d left", rank % 2);
    CZ_TRY(cz_group_split(world, rank % 2, rank, &half));
    const bool leads = cz_group_rank(half) == 0;
    if (!leads)
        note(&got, cz_barrier(half, NULL));
    cz_group_destroy(&half);
    CHECK(got.status == CZ_ERR_PEER && (leads || strstr(got.sentence, name)), "got %s: %s",
          cz_status_name(got.status), got.sentence);
    return cz_barrier(world, NULL);
}

TEST(a_broken_part_leaves_the_world_whole)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_leaves_half, NULL);
}

/* One rank is wrong, each in turn: all hear of it, nobody has a group, the world works on. */
static cz_status each_rank_wrong(cz_group *world, void *arg)
{
    const int rank = cz_group_rank(world), size = cz_group_size(world);
    for (int odd = 0; odd < size; odd++)
        for (int how = 0; how < 5; how++) {
            int list[] = {0, size - 1}, count = size > 1 ? 2 : 1;
            cz_group *sub = (cz_group *)world;
            outcome got;
            if (rank == odd) {
                list[0] = how == 0 ? size : how == 1 ? -1 : how == 2 ? list[1] : list[0];
                count = how == 3 ? 0 : how == 4 ? 1 : count;
            }
            note(&got, cz_group_subset(world, list, count, &sub));
            if (size == 1 && (how == 2 || how == 4) &&
                got.status == CZ_OK) { /* nothing wrong there */
                cz_group_destroy(&sub);
                continue;
            }
            CHECK(got.status == (how == 4 ? CZ_ERR_MISMATCH : CZ_ERR_ARGUMENT) && !sub,
                  "list %d of rank %d: %s: %s", how, odd, cz_status_name(got.status), got.sentence);
        }
    return cz_barrier(world, NULL);
}

TEST(wrong_lists)
{
    for (int world = 1; world <= 5; world++)
        expect_ok(world, 0, each_rank_wrong, NULL);
}

/* ---- every allocation fails in turn ---- */

static cz_status each_rank_poor(cz_group *world, void *arg)
{
    cz_group *half = NULL;
    int one = 1;
    cz_status status = cz_group_split(world, cz_group_rank(world) % 2, 0, &half);
    THEN(cz_all_reduce(half, &one, 1, CZ_I32, CZ_SUM, NULL));
    cz_group_destroy(&half);
    return status;
}

TEST(no_memory)
{
    const int64_t held = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz_group *groups[4];
        rank_call calls[4];
        outcome outcomes[4];
        int short_of_memory = 0;
        assert_ok(cz_group_create_threads(groups, 4, NULL));
        cz_test_fail_allocation(n);
        for (int r = 0; r < 4; r++) {
            calls[r] = (rank_call){groups[r], each_rank_poor, NULL, &outcomes[r], 0};
            assert_int_equal(pthread_create(&calls[r].thread, NULL, rank_call_main, &calls[r]), 0);
        }
        for (int r = 0; r < 4; r++)
            pthread_join(calls[r].thread, NULL);
        const bool failed = cz_test_allocation_reset();
        for (int r = 0; r < 4; r++)
            short_of_memory += outcomes[r].status == CZ_ERR_MEMORY;
        assert_true(failed == (short_of_memory > 0));
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed)
            break;
    }
}

static cz_status ask_for_nothing(cz_status status, void *context)
{
    cz_group *sub = NULL, *world = context;
    CHECK(cz_group_split(world, 0, 0, &sub) == CZ_ERR_STATE && !sub, "a split in a continuation");
    CHECK(cz_progress(world) == CZ_ERR_STATE, "progress in a continuation");
    return status;
}

static cz_status each_rank_in_continuation(cz_group *world, void *arg)
{
    cz_work *work = NULL;
    CZ_TRY(cz_barrier(world, CZ_START(NULL, &work)));
    CZ_TRY(cz_work_then(work, ask_for_nothing, world));
    CZ_TRY(cz_work_wait(work));
    cz_work_destroy(&work);
    return cz_progress(world);
}

TEST(not_in_a_continuation)
{
    for (int world = 1; world <= 3; world++)
        expect_ok(world, 0, each_rank_in_continuation, NULL);
}
