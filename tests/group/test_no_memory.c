/* SPDX-License-Identifier: MIT */
/* An operation for which one rank has no memory: all ranks get CZ_ERR_MEMORY and the group works
 * on, however often it happens. */
#include "group/group_test.h"

enum { WORLD = 3, COUNT = 500, STEPS = 8 };

/* What each step of a program said on this rank; errors do not stop it, as they do not stop the
 * others. */
typedef struct record {
    outcome steps[STEPS];
    atomic_int *at_the_end; /* ranks that have done all steps */
    bool failed;            /* an allocation did */
} record;

typedef struct child {
    cz_group *group;
    float value;
} child;

static cz_status start_child(cz_status status, void *context)
{
    child *c = context;
    CZ_TRY(status);
    return cz_all_reduce(c->group, &c->value, 1, CZ_F32, CZ_SUM, CZ_LABEL("child"));
}

static cz_status run_steps(cz_group *group, outcome *steps)
{
    float a[COUNT] = {0}, b[COUNT] = {0}, all[COUNT * WORLD] = {0}, in[7] = {0}, out[7], one = 1;
    child c = {group, 1};
    cz_work *works[4] = {NULL};
    note(&steps[0], cz_barrier(group, NULL));
    note(&steps[1], cz_all_reduce(group, a, COUNT, CZ_F32, CZ_SUM, CZ_START("large", &works[0])));
    note(&steps[2], cz_all_reduce(group, &one, 1, CZ_F32, CZ_SUM, NULL));
    note(&steps[3], cz_all_gather(group, b, all, COUNT, CZ_F32, CZ_START("all", &works[1])));
    note(&steps[4], cz_barrier(group, CZ_START("parent", &works[2])));
    if (works[2])
        CZ_TRY(cz_work_then(works[2], start_child, &c));
    note(&steps[5], cz_reduce(group, in, out, 7, CZ_F32, CZ_SUM, 0, CZ_START("rest", &works[3])));
    note(&steps[6], cz_broadcast(group, &one, 1, CZ_F32, 1, NULL));
    note(&steps[7], cz_barrier(group, NULL));
    for (int i = 0; i < 4; i++) {
        static const int step[] = {1, 3, 4, 5};
        if (works[i])
            note(&steps[step[i]], cz_work_wait(works[i]));
        cz_work_destroy(&works[i]);
    }
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    record *mine = (record *)arg + cz_group_rank(group);
    float one = 1;
    CZ_TRY(run_steps(group, mine->steps));
    atomic_fetch_add(mine->at_the_end, 1);
    CHECK(comes(mine->at_the_end, WORLD), "not all ranks have come to the end");
    mine->failed = cz_test_allocation_reset();
    CZ_TRY(cz_all_reduce(group, &one, 1, CZ_F32, CZ_SUM, NULL));
    CHECK(one == WORLD, "after it the sum is %g", one);
    return CZ_OK;
}

/* All ranks tell the same of a step; how many failed. */
static int compare_steps(const record *records, int64_t n)
{
    int failed = 0;
    for (int s = 0; s < STEPS; s++) {
        const outcome *first = &records[0].steps[s];
        failed += first->status != CZ_OK;
        if (first->status != CZ_OK && first->status != CZ_ERR_MEMORY)
            fail_msg("allocation %d, step %d: %s", (int)n, s, first->sentence);
        for (int r = 1; r < WORLD; r++)
            if (records[r].steps[s].status != first->status ||
                strcmp(records[r].steps[s].sentence, first->sentence) != 0)
                fail_msg("allocation %d, step %d, rank %d: \"%s\" instead of \"%s\"", (int)n, s, r,
                         records[r].steps[s].sentence, first->sentence);
    }
    return failed;
}

TEST(every_allocation)
{
    for (int64_t n = 1;; n++) {
        cz_group *groups[WORLD];
        outcome outcomes[WORLD];
        record records[WORLD] = {0};
        atomic_int at_the_end = 0;
        for (int r = 0; r < WORLD; r++)
            records[r].at_the_end = &at_the_end;
        assert_ok(cz_group_create_threads(groups, WORLD, NULL));
        cz_test_fail_allocation(n);
        run_groups(WORLD, groups, each_rank, records, outcomes);
        assert_all_ok(WORLD, outcomes, "allocation %d", (int)n);
        const bool failed = records[0].failed;
        assert_int_equal(compare_steps(records, n), failed);
        if (!failed)
            break;
    }
}

/* One rank has no memory for any of many operations in a row, whether it waits for them or not. */
static cz_status each_rank_starved(cz_group *group, void *arg)
{
    enum { HELD = 12 };
    const bool odd = cz_group_rank(group) == *(int *)arg;
    cz_work *held[HELD], *work;
    float one = 1;
    outcome got;
    for (int i = 0; i < HELD; i++)
        CZ_TRY(cz_barrier(group, CZ_START("held", &held[i])));
    for (int i = 0; i < HELD; i++)
        CZ_TRY(cz_work_wait(held[i]));
    for (int i = 0; i < HELD && !odd; i++) /* these have memory from here on */
        cz_work_destroy(&held[i]);
    CZ_TRY(cz_barrier(group, NULL)); /* the odd rank's only work that is not in use… */
    CZ_TRY(cz_barrier(group, odd ? CZ_START("now it is", &work) : NULL));
    for (int i = 0; i < 2 * HELD; i++) {
        cz_work *handle = NULL;
        if (odd)
            cz_test_fail_allocation(1);
        note(&got, cz_barrier(group, i % 2 ? CZ_START("starved", &handle) : NULL));
        CHECK(!odd || !handle, "a handle on nothing");
        if (handle)
            note(&got, cz_work_wait(handle));
        cz_work_destroy(&handle);
        CHECK(got.status == CZ_ERR_MEMORY && strstr(got.sentence, "barrier: no memory"),
              "operation %d: %s: %s", i, cz_status_name(got.status), got.sentence);
    }
    for (int i = 0; i < HELD && odd; i++)
        cz_work_destroy(&held[i]);
    if (odd)
        cz_work_destroy(&work);
    (void)cz_test_allocation_reset();
    CZ_TRY(cz_all_reduce(group, &one, 1, CZ_F32, CZ_SUM, NULL));
    CHECK(one == (float)cz_group_size(group), "after it the sum is %g", one);
    return CZ_OK;
}

TEST(again_and_again)
{
    for (int world = 1; world <= 3; world++)
        for (int odd = 0; odd < world; odd++)
            expect_ok(world, 0, each_rank_starved, &odd);
}

/* A continuation cannot wait for the spare memory to come back: the second such operation in it
 * breaks the group, on all ranks, from the continuation's operation on. */
typedef struct pair {
    cz_group *group;
    bool odd;
    cz_status started[2];
} pair;

static cz_status start_pair(cz_status status, void *context)
{
    pair *p = context;
    CZ_TRY(status);
    for (int i = 0; i < 2; i++) {
        if (p->odd)
            cz_test_fail_allocation(1);
        p->started[i] = cz_barrier(p->group, CZ_LABEL("child"));
    }
    return CZ_OK;
}

static cz_status each_rank_pair(cz_group *group, void *arg)
{
    const int odd = *(int *)arg;
    pair p = {.group = group, .odd = cz_group_rank(group) == odd};
    cz_work *works[4];
    char wanted[64];
    outcome got;
    for (int i = 0; i < 4; i++)
        CZ_TRY(cz_barrier(group, CZ_START("warm", &works[i])));
    for (int i = 0; i < 4; i++)
        CZ_TRY(cz_work_wait(works[i]));
    for (int i = 0; i < 3 && !p.odd; i++) /* the odd rank has no other works than these */
        cz_work_destroy(&works[i]);
    cz_work *parent;
    CZ_TRY(cz_barrier(group, CZ_START("parent", &parent)));
    CZ_TRY(cz_work_then(parent, start_pair, &p));
    note(&got, cz_work_wait(parent));
    cz_work_destroy(&parent);
    for (int i = 0; i < 4; i++)
        cz_work_destroy(&works[i]);
    CHECK(got.status == CZ_ERR_PEER || got.status == CZ_ERR_MEMORY, "%s", got.sentence);
    CHECK(!p.odd || (p.started[0] == CZ_OK && p.started[1] == CZ_ERR_MEMORY), "it started");
    snprintf(wanted, sizeof wanted, "rank %d has no memory for an operation", odd);
    note(&got, cz_barrier(group, NULL));
    CHECK(got.status == CZ_ERR_PEER && strstr(got.sentence, wanted), "%s", got.sentence);
    return CZ_OK;
}

TEST(twice_in_a_continuation)
{
    for (int world = 1; world <= 3; world++)
        for (int odd = 0; odd < world; odd++)
            expect_ok(world, 0, each_rank_pair, &odd);
}
