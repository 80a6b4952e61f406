/* SPDX-License-Identifier: MIT */
/* Sub-groups when something goes wrong: the parent goes first, a rank leaves one of them, does not
 * come, leaves in the middle of a split, or has no memory. */
#include "group/group_test.h"

enum { COUNT = 3000, HELD = 4 };

static cz_status all_reduce(cz_group *group, float *values, const cz_operation_options *options)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = 1;
    return cz_all_reduce(group, values, COUNT, CZ_F32, CZ_SUM, options);
}

static cz_status check_works(cz_group *group)
{
    float values[COUNT];
    CZ_TRY(all_reduce(group, values, NULL));
    CHECK(values[COUNT - 1] == (float)cz_group_size(group), "the sum is %g", values[COUNT - 1]);
    return cz_barrier(group, NULL);
}

/* ---- the parent goes first ---- */

/* With operations in flight on the sub-group, and one on the parent that will never end. */
static cz_status use_after_parent(cz_group **parent, cz_group *sub)
{
    static _Thread_local float values[HELD][COUNT];
    cz_work *works[HELD], *lost = NULL;
    if (cz_group_size(*parent) > 1 && cz_group_rank(*parent) == 0)
        CZ_TRY(cz_barrier(*parent, CZ_START("lost", &lost)));
    for (int i = 0; i < HELD; i++)
        CZ_TRY(all_reduce(sub, values[i], CZ_START("kept", &works[i])));
    cz_group_destroy(parent);
    for (int i = HELD - 1; i >= 0; i--) {
        CZ_TRY(cz_work_wait(works[i]));
        CHECK(values[i][7] == (float)cz_group_size(sub), "the sum is %g", values[i][7]);
        cz_work_destroy(&works[i]);
    }
    if (lost)
        CHECK(cz_work_wait(lost) != CZ_OK, "a barrier without its ranks");
    cz_work_destroy(&lost);
    return check_works(sub);
}

static cz_status each_rank_parent_first(cz_group *group, void *arg)
{
    cz_group *parent = NULL, *sub = NULL;
    const int rank = cz_group_rank(group);
    CZ_TRY(cz_group_split(group, 0, -rank, &parent));
    CZ_TRY(cz_group_split(parent, rank % 2, 0, &sub));
    CZ_TRY(use_after_parent(&parent, sub));
    CHECK(cz_group_global_rank(sub, cz_group_rank(sub)) == rank, "global ranks went with it");
    cz_group_destroy(&sub);
    return check_works(group);
}

TEST(the_parent_goes_first)
{
    const int64_t held = cz_test_allocations_held();
    for (int round = 0; round < (SLOW ? 3 : 10); round++)
        for (int world = 2; world <= LARGEST_WORLD; world++)
            expect_ok(world, 0, each_rank_parent_first, NULL);
    assert_int_equal(cz_test_allocations_held(), held);
}

/* The very first group, gone on all ranks. */
static cz_status keep_sub(cz_group *group, void *arg)
{
    cz_group **subs = arg;
    const int rank = cz_group_rank(group);
    return cz_group_split(group, rank % 2, rank, &subs[rank]);
}

static cz_status each_rank_orphan(cz_group *group, void *arg)
{
    return check_works(group);
}

TEST(the_world_is_gone)
{
    for (int world = 2; world <= LARGEST_WORLD; world++) {
        cz_group *subs[MANY_RANKS];
        outcome outcomes[MANY_RANKS];
        run_ranks(world, NULL, keep_sub, subs, outcomes);
        assert_all_ok(world, outcomes, "%s", __func__);
        run_groups(world, subs, each_rank_orphan, NULL, outcomes);
        assert_all_ok(world, outcomes, "%s", __func__);
    }
}

/* ---- a rank leaves a sub-group ---- */

typedef struct scene {
    int leaver;            /* in the world */
    atomic_int bystanders; /* that have seen their own sub-group work */
} scene;

static cz_status expect_peer(cz_group *sub, int leaver)
{
    float values[COUNT];
    outcome got = {CZ_OK, ""};
    char name[32];
    snprintf(name, sizeof name, "rank %d left", leaver);
    for (int i = 0; i < 3; i++) {
        while (got.status == CZ_OK) /* those before it left may still have worked */
            note(&got, all_reduce(sub, values, NULL));
        CHECK(got.status == CZ_ERR_PEER && strstr(got.sentence, name), "%s, not \"%s\": %s",
              cz_status_name(got.status), name, got.sentence);
        got.status = CZ_OK;
    }
    return CZ_OK;
}

/* Even ranks and odd ranks; one of them leaves its sub-group: the others of it are told by its
 * global rank, the other sub-group and the parent go on. */
static cz_status each_rank_leaves(cz_group *group, void *arg)
{
    scene *s = arg;
    const int rank = cz_group_rank(group);
    cz_group *sub = NULL;
    cz_status status = CZ_OK;
    CZ_TRY(cz_group_split(group, rank % 2, -rank, &sub));
    CZ_TRY(check_works(sub));
    if (rank == s->leaver)
        cz_group_destroy(&sub);
    else if (rank % 2 == s->leaver % 2)
        status = expect_peer(sub, s->leaver);
    else
        status = check_works(sub);
    THEN(check_works(group));
    cz_group_destroy(&sub);
    if (status == CZ_OK) /* a broken sub-group is no obstacle to the next */
        status = cz_group_split(group, 0, 0, &sub);
    THEN(check_works(sub));
    cz_group_destroy(&sub);
    return status;
}

TEST(a_rank_leaves_a_subgroup)
{
    for (int world = 2; world <= LARGEST_WORLD; world++)
        for (int leaver = 0; leaver < world; leaver++) {
            scene s = {.leaver = leaver};
            expect_ok(world, 0, each_rank_leaves, &s);
        }
}

/* The other way round: the parent is broken by a rank that left it, a sub-group without it goes
 * on. */
static cz_status each_rank_parent_breaks(cz_group *group, void *arg)
{
    cz_group *sub = NULL, *next = NULL;
    outcome got;
    const int rank = cz_group_rank(group);
    CZ_TRY(cz_group_split(group, rank == 1 ? -1 : 0, 0, &sub));
    if (!sub)
        return CZ_OK;
    note(&got, cz_barrier(group, NULL));
    CHECK(got.status == CZ_ERR_PEER, "%s: %s", cz_status_name(got.status), got.sentence);
    CHECK(cz_group_split(group, 0, 0, &next) == CZ_ERR_PEER && !next, "a split of a broken group");
    const cz_status status = check_works(sub);
    cz_group_destroy(&sub);
    return status;
}

TEST(the_parent_breaks)
{
    for (int world = 2; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_parent_breaks, NULL);
}

/* Ranks that leave at any moment of the others' split. */
static cz_status each_rank_at_random(cz_group *group, void *arg)
{
    uint64_t state = mix(*(uint64_t *)arg + (uint64_t)cz_group_rank(group));
    cz_group *sub = NULL;
    outcome got = {CZ_OK, ""};
    if (cz_group_rank(group) == 1) {
        nap(400, &state);
        return CZ_OK;
    }
    for (int i = 0; i < 20 && got.status == CZ_OK; i++) {
        note(&got, cz_group_split(group, cz_group_rank(group) % 2, 0, &sub));
        CHECK((got.status == CZ_OK) == (sub != NULL), "%s with a handle",
              cz_status_name(got.status));
        cz_group_destroy(&sub);
    }
    CHECK(got.status == CZ_ERR_PEER, "%s: %s", cz_status_name(got.status), got.sentence);
    return CZ_OK;
}

TEST(a_rank_leaves_in_a_split)
{
    const int64_t held = cz_test_allocations_held();
    for (uint64_t round = 0; round < (SLOW ? 15 : 60); round++)
        expect_ok(2 + (int)(round % 4), 0, each_rank_at_random, &(uint64_t){round * 100});
    assert_int_equal(cz_test_allocations_held(), held);
}

/* ---- a rank does not come ---- */

static cz_status each_rank_late(cz_group *group, void *arg)
{
    cz_group *sub = NULL;
    outcome got;
    atomic_int *told = arg;
    const int rank = cz_group_rank(group);
    CZ_TRY(cz_group_split(group, 0, -rank, &sub)); /* the world's rank 0 is the last one there */
    if (rank == 0 && !comes(told, 2))
        return cz_fail(CZ_ERR_INTERNAL, "nobody timed out");
    note(&got, cz_barrier(sub, CZ_LABEL("late")));
    atomic_fetch_add(told, 1);
    cz_group_destroy(&sub);
    CHECK(got.status == CZ_ERR_TIMEOUT && strstr(got.sentence, "'late'") &&
              strstr(got.sentence, "rank 0 did not come within 0.7 s"),
          "%s: %s", cz_status_name(got.status), got.sentence);
    return check_works(group);
}

TEST(timeout_of_the_parent_is_theirs)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    outcome outcomes[3];
    atomic_int told = 0;
    options.timeout_seconds = 0.7;
    run_ranks(3, &options, each_rank_late, &told, outcomes);
    assert_all_ok(3, outcomes, "%s", __func__);
}

/* ---- memory ---- */

typedef struct split_outcome {
    outcome of[3];
    bool usable[3];
} split_outcome;

static cz_status each_rank_splits(cz_group *group, void *arg)
{
    split_outcome *s = arg;
    const int rank = cz_group_rank(group);
    cz_group *sub = NULL;
    note(&s->of[rank], cz_group_split(group, rank == 2, -rank, &sub));
    CHECK((s->of[rank].status == CZ_OK) == (sub != NULL), "%s, and %s handle",
          cz_status_name(s->of[rank].status), sub ? "a" : "no");
    cz_group_destroy(&sub);
    if (s->of[rank].status == CZ_ERR_PEER || strstr(s->of[rank].sentence, "broken"))
        return CZ_OK;
    (void)cz_test_allocation_reset(); /* has happened, on whichever rank */
    s->usable[rank] = true;
    return check_works(group);
}

static void check_outcome(int64_t n, bool failed, const split_outcome *s, const outcome *bodies)
{
    for (int r = 0; r < 3; r++) {
        const cz_status got = s->of[r].status;
        if (bodies[r].status != CZ_OK && bodies[r].status != CZ_ERR_PEER)
            fail_msg("allocation %d, rank %d: %s", (int)n, r, bodies[r].sentence);
        if (failed ? got != CZ_ERR_MEMORY && got != CZ_ERR_PEER : got != CZ_OK)
            fail_msg("allocation %d, rank %d: split gives %s: %s", (int)n, r, cz_status_name(got),
                     s->of[r].sentence);
        if (s->usable[r] && bodies[r].status != CZ_OK)
            fail_msg("allocation %d, rank %d: the parent: %s", (int)n, r, bodies[r].sentence);
    }
}

TEST(no_memory)
{
    const int64_t held = cz_test_allocations_held();
    int whole = 0;
    bool failed = true;
    for (int64_t n = 1; failed; n++) {
        cz_group *groups[3];
        split_outcome s = {0};
        outcome bodies[3];
        assert_ok(cz_group_create_threads(groups, 3, NULL));
        cz_test_fail_allocation(n);
        run_groups(3, groups, each_rank_splits, &s, bodies);
        failed = s.of[0].status != CZ_OK;
        (void)cz_test_allocation_reset();
        check_outcome(n, failed, &s, bodies);
        whole += failed && s.usable[0] && s.usable[1] && s.usable[2];
        assert_int_equal(cz_test_allocations_held(), held);
    }
    assert_true(whole > 5); /* most leave the parent as it was */
}
