/* SPDX-License-Identifier: MIT */
/* Sub-groups: who is in them and in which order, splits of splits, several at work beside their
 * parent, and what is wrong with one rank's arguments. */
#include "group/group_test.h"

enum { COUNT = 41, HELD = 4 };

/* ---- what members are wanted, computed without a group ---- */

/* How the ranks of a group split: by turns, in halves, all together in reverse, with some left
 * out. */
static void rule(int kind, int rank, int size, int *color, int *key)
{
    static const int three[] = {2, 0, 2, 1, 0, 7, 2, 1, 1, 0, 2};
    *color = kind == 0   ? rank % 2
             : kind == 1 ? rank >= size / 2
             : kind == 2 ? 5
             : kind == 3 ? (rank % 3 == 1 ? -1 : 1000000)
                         : three[rank % 11];
    *key = kind == 0 ? rank : kind == 3 ? 0 : kind == 4 ? rank * 7 % 5 : -rank;
}

enum { RULES = 5 };

/* The ranks with the color of `rank`, ordered by key, then rank. */
static int members_of(int kind, int rank, int size, int *members)
{
    int color, key, count = 0, keys[MANY_RANKS];
    rule(kind, rank, size, &color, &key);
    for (int r = 0; r < size && color >= 0; r++) {
        int other, place = count;
        rule(kind, r, size, &other, &key);
        if (other != color)
            continue;
        for (; place > 0 && keys[place - 1] > key; place--) {
            keys[place] = keys[place - 1];
            members[place] = members[place - 1];
        }
        keys[place] = key;
        members[place] = r;
        count++;
    }
    return count;
}

/* ---- a sub-group does what a group of these ranks does ---- */

/* Sums in the sub-group's own order: other bits than in the order of the parent. */
static cz_status check_sum(cz_group *sub, const int *globals, uint64_t seed)
{
    float inputs[MANY_RANKS][COUNT], wanted[COUNT], got[COUNT];
    const void *in[MANY_RANKS];
    const int size = cz_group_size(sub);
    for (int r = 0; r < size; r++) {
        fill(CZ_F32, seed + (uint64_t)globals[r], COUNT, inputs[r]);
        in[r] = inputs[r];
    }
    plain_reduce(CZ_F32, CZ_SUM, size, in, COUNT, wanted);
    memcpy(got, inputs[cz_group_rank(sub)], sizeof got);
    CZ_TRY(cz_all_reduce(sub, got, COUNT, CZ_F32, CZ_SUM, CZ_LABEL("sub")));
    CHECK(memcmp(got, wanted, sizeof got) == 0, "another sum in a sub-group of %d", size);
    return CZ_OK;
}

static cz_status check_group(cz_group *sub, const int *globals, int count, int global)
{
    const int rank = cz_group_rank(sub);
    CHECK(cz_group_size(sub) == count, "%d ranks, wanted %d", cz_group_size(sub), count);
    CHECK(strcmp(backend_of(sub), "threads") == 0, "backend %s", backend_of(sub));
    CHECK(globals[rank] == global, "rank %d is %d, wanted %d", rank, global, globals[rank]);
    for (int r = -1; r <= count; r++) {
        const int wanted = r < 0 || r == count ? -1 : globals[r];
        CHECK(cz_group_global_rank(sub, r) == wanted, "global rank of %d is %d, wanted %d", r,
              cz_group_global_rank(sub, r), wanted);
    }
    return check_sum(sub, globals, 1000);
}

static cz_status each_rank_splits(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    for (int kind = 0; kind < RULES; kind++) {
        int color, key, members[MANY_RANKS];
        cz_group *sub = group; /* must be overwritten */
        rule(kind, rank, size, &color, &key);
        const int count = members_of(kind, rank, size, members);
        CZ_TRY(cz_group_split(group, color, key, &sub));
        CHECK((sub == NULL) == (count == 0), "rule %d: %s handle", kind, sub ? "a" : "no");
        const cz_status status = sub ? check_group(sub, members, count, rank) : CZ_OK;
        cz_group_destroy(&sub);
        CZ_TRY(status);
    }
    CHECK(cz_group_global_rank(group, size - 1) == size - 1, "a world's ranks are global");
    return cz_barrier(group, NULL);
}

TEST(members_and_their_order)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, world % 2 ? 0 : 64, each_rank_splits, NULL);
}

/* Twice: global ranks lead back to the first group, not to the one in between. */
static cz_status split_again(cz_group *sub, const int *globals, int kind)
{
    const int rank = cz_group_rank(sub), size = cz_group_size(sub);
    int color, key, members[MANY_RANKS], finals[MANY_RANKS];
    cz_group *last = NULL;
    rule(kind, rank, size, &color, &key);
    const int count = members_of(kind, rank, size, members);
    for (int r = 0; r < count; r++)
        finals[r] = globals[members[r]];
    CZ_TRY(cz_group_split(sub, color, key, &last));
    const cz_status status = last ? check_group(last, finals, count, globals[rank]) : CZ_OK;
    cz_group_destroy(&last);
    return status;
}

static cz_status each_rank_splits_twice(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    for (int kind = 0; kind < RULES * RULES; kind++) {
        int color, key, members[MANY_RANKS];
        cz_group *sub = NULL;
        rule(kind / RULES, rank, size, &color, &key);
        members_of(kind / RULES, rank, size, members);
        CZ_TRY(cz_group_split(group, color, key, &sub));
        const cz_status status = sub ? split_again(sub, members, kind % RULES) : CZ_OK;
        cz_group_destroy(&sub);
        CZ_TRY(status);
    }
    return CZ_OK;
}

TEST(splits_of_splits)
{
    for (int world = 2; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_splits_twice, NULL);
}

/* ---- by a list ---- */

static cz_status each_rank_lists(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    for (int count = 1; count <= size; count++) {
        int ranks[MANY_RANKS];
        bool member = false;
        cz_group *sub = group;
        for (int i = 0; i < count; i++) { /* backwards, beginning anywhere */
            ranks[i] = (2 * size - 1 - i + count) % size;
            member |= ranks[i] == rank;
        }
        CZ_TRY(cz_group_subset(group, ranks, count, &sub));
        CHECK((sub != NULL) == member, "rank %d of a list of %d: %s", rank, count,
              sub ? "a handle" : "no handle");
        const cz_status status = sub ? check_group(sub, ranks, count, rank) : CZ_OK;
        cz_group_destroy(&sub);
        CZ_TRY(status);
    }
    return CZ_OK;
}

TEST(lists)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_lists, NULL);
}

/* One rank has another list in turn: it is wrong, or it is right and differs. All ranks hear of
 * it. */
static cz_status each_rank_lists_wrongly(cz_group *group, void *arg)
{
    static const int lists[][2] = {{0, 1}, {0, -1}, {0, 99}, {1, 1}, {1, 0}, {0, 2}, {0, 0}};
    static const int counts[] = {2, 2, 2, 2, 2, 2, 1};
    const int size = cz_group_size(group);
    for (int odd = 0; odd < size; odd++)
        for (int kind = -1; kind < 7; kind++) {
            const bool mine = cz_group_rank(group) == odd;
            const int which = mine && kind >= 0 ? kind : 0;
            outcome got;
            cz_group *sub = group;
            note(&got, cz_group_subset(group, mine && kind < 0 ? NULL : lists[which], counts[which],
                                       &sub));
            const cz_status wanted = kind == 0  ? CZ_OK
                                     : kind > 3 ? CZ_ERR_MISMATCH
                                                : CZ_ERR_ARGUMENT;
            CHECK(got.status == wanted, "list %d of rank %d: %s: %s", kind, odd,
                  cz_status_name(got.status), got.sentence);
            CHECK(kind == 0 || !sub, "a handle with list %d", kind);
            cz_group_destroy(&sub);
        }
    cz_group *sub = NULL;
    CHECK(cz_group_subset(group, lists[0], 0, &sub) == CZ_ERR_ARGUMENT, "an empty list");
    CHECK(cz_group_subset(group, lists[0], 2, NULL) == CZ_ERR_ARGUMENT, "nowhere to put it");
    CHECK(cz_group_split(group, 0, 0, NULL) == CZ_ERR_ARGUMENT, "nowhere to put it");
    return cz_barrier(group, NULL);
}

TEST(wrong_lists)
{
    for (int world = 3; world <= 5; world++)
        expect_ok(world, 0, each_rank_lists_wrongly, NULL);
    assert_int_equal(cz_group_global_rank(NULL, 0), -1);
}

/* Some ranks split, one does something else. */
static cz_status each_rank_calls_another(cz_group *group, void *arg)
{
    for (int odd = 0; odd < cz_group_size(group); odd++) {
        cz_group *sub = group;
        outcome got;
        note(&got, cz_group_rank(group) == odd ? cz_barrier(group, NULL)
                                               : cz_group_split(group, 0, 0, &sub));
        CHECK(got.status == CZ_ERR_MISMATCH, "%s: %s", cz_status_name(got.status), got.sentence);
        CHECK(cz_group_rank(group) == odd || !sub, "a handle");
    }
    return cz_barrier(group, NULL);
}

TEST(another_call)
{
    for (int world = 2; world <= 5; world++)
        expect_ok(world, 0, each_rank_calls_another, NULL);
}

TEST(a_group_of_one_splits)
{
    cz_group *group = NULL, *sub = NULL, *none = NULL;
    int value = 3;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(cz_group_split(group, 0, 0, &sub));
    assert_ok(cz_group_split(sub, -1, 0, &none));
    assert_null(none);
    cz_group_destroy(&group);
    assert_int_equal(cz_group_size(sub), 1);
    assert_int_equal(cz_group_global_rank(sub, 0), 0);
    assert_ok(cz_all_reduce(sub, &value, 1, CZ_I32, CZ_SUM, NULL));
    assert_int_equal(value, 3);
    cz_group_destroy(&sub);
}

/* ---- rows, columns and the whole at once ---- */

typedef struct lane {
    cz_group *group;
    int32_t values[HELD][COUNT];
    cz_work *works[HELD];
} lane;

static cz_status start_lane(lane *l, int i, int global)
{
    for (int k = 0; k < COUNT; k++)
        l->values[i][k] = (global + 1) * (k + 1);
    return cz_all_reduce(l->group, l->values[i], COUNT, CZ_I32, CZ_SUM,
                         CZ_START("lane", &l->works[i]));
}

static cz_status finish_lane(lane *l, int i)
{
    int32_t sum = 0;
    CZ_TRY(cz_work_wait(l->works[i]));
    cz_work_destroy(&l->works[i]);
    for (int r = 0; r < cz_group_size(l->group); r++)
        sum += cz_group_global_rank(l->group, r) + 1;
    for (int k = 0; k < COUNT; k++)
        CHECK(l->values[i][k] == sum * (k + 1), "%d, wanted %d", l->values[i][k], sum * (k + 1));
    return CZ_OK;
}

static cz_status use_lanes(lane *lanes, int global)
{
    uint64_t state = (uint64_t)global;
    for (int round = 0; round < (SLOW ? 5 : 20); round++) {
        for (int i = 0; i < HELD; i++) /* ranks start on their groups in different orders */
            for (int k = 0; k < 3; k++) {
                CZ_TRY(start_lane(&lanes[(k + global) % 3], i, global));
                nap(draw(&state, 8) ? 0 : 200, &state);
            }
        for (int i = HELD - 1; i >= 0; i--)
            for (int k = 0; k < 3; k++)
                CZ_TRY(finish_lane(&lanes[(2 * k + round + global) % 3], i));
    }
    return CZ_OK;
}

static cz_status each_rank_grid(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group);
    lane *lanes = calloc(3, sizeof *lanes); /* what is in flight may outlive an error here */
    CHECK(lanes, "no memory");
    lanes[0].group = group;
    CZ_TRY(cz_group_split(group, rank / 2, rank, &lanes[1].group));
    CZ_TRY(cz_group_split(group, rank % 2, -rank, &lanes[2].group));
    CZ_TRY(use_lanes(lanes, rank));
    cz_group_destroy(&lanes[1 + rank % 2].group);
    cz_group_destroy(&lanes[2 - rank % 2].group);
    free(lanes);
    return cz_barrier(group, NULL);
}

TEST(several_at_once)
{
    for (int world = 2; world <= LARGEST_WORLD; world++)
        expect_ok(world, world % 2 ? 64 : 0, each_rank_grid, NULL);
}
