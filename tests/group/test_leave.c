/* SPDX-License-Identifier: MIT */
/* A rank that leaves: before, between or during operations, in peace or with an error. The others
 * get CZ_ERR_PEER and a sentence that names it, and nothing hangs or leaks. */
#include <stdatomic.h>

#include "group/group_test.h"
#include "group/internal.h"

enum { COUNT = 3000, HELD = 6 };

/* Who leaves when, and how. */
typedef struct plan {
    int leaver;
    int operations; /* it completes so many, then leaves */
    bool holds;     /* it leaves with operations in flight */
    unsigned hurry; /* ranks take naps of up to so many microseconds between operations */
    uint64_t seed;
    bool asynchronous; /* the others have several operations in flight */
} plan;

static cz_status all_reduce(cz_group *group, float *values, const cz_operation_options *options)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = 1;
    return cz_all_reduce(group, values, COUNT, CZ_F32, CZ_SUM, options);
}

/* Destroy the group with works in hand: they have ended then, and may be used and destroyed
 * later. */
static cz_status leave_with_works(cz_group *group)
{
    static _Thread_local float values[HELD][COUNT];
    cz_work *works[HELD];
    for (int i = 0; i < HELD; i++)
        CZ_TRY(all_reduce(group, values[i], CZ_START("held", &works[i])));
    cz_group_destroy(&group);
    for (int i = HELD - 1; i >= 0; i--) {
        bool done = false;
        CZ_TRY(cz_work_test(works[i], &done));
        const cz_status status = cz_work_wait(works[i]);
        CHECK(done && (status == CZ_ERR_STATE || status == CZ_OK || status == CZ_ERR_PEER),
              "a held work: %s", cz_status_name(status));
        CHECK(status != CZ_ERR_STATE || strstr(cz_last_error(), "destroyed"), "held: %s",
              cz_last_error());
        memset(values[i], 0, sizeof values[i]); /* nobody uses it any more */
        cz_work_destroy(&works[i]);
    }
    return CZ_OK;
}

static cz_status go_on_blocking(cz_group *group, const plan *p, uint64_t *state)
{
    static _Thread_local float values[COUNT];
    for (;;) {
        CZ_TRY(all_reduce(group, values, NULL));
        CHECK(values[COUNT - 1] == (float)cz_group_size(group), "a wrong sum");
        nap(p->hurry, state);
    }
}

static cz_status go_on_asynchronously(cz_group *group, const plan *p, uint64_t *state)
{
    static _Thread_local float values[HELD][COUNT];
    cz_work *works[HELD] = {NULL};
    cz_status status = CZ_OK;
    for (int i = 0; status == CZ_OK; i = (i + 1) % HELD) {
        if (works[i])
            status = cz_work_wait(works[i]);
        cz_work_destroy(&works[i]);
        THEN(all_reduce(group, values[i], CZ_START("endless", &works[i])));
        nap(p->hurry, state);
    }
    char why[320];
    snprintf(why, sizeof why, "%s", cz_last_error());
    for (int i = 0; i < HELD; i++) { /* operations beside the one that failed may have made it */
        const cz_status other = works[i] ? cz_work_wait(works[i]) : CZ_OK;
        CHECK(other == CZ_OK || other == status, "another operation: %s", cz_last_error());
        cz_work_destroy(&works[i]);
    }
    return status == CZ_OK ? CZ_OK : cz_fail(status, "%s", why);
}

/* The handle is gone from the caller's when this returns CZ_OK with `holds`. */
static cz_status each_rank(cz_group **group, const plan *p)
{
    static _Thread_local float values[COUNT];
    const int rank = cz_group_rank(*group);
    uint64_t state = p->seed * 100 + (uint64_t)rank;
    if (rank != p->leaver)
        return p->asynchronous ? go_on_asynchronously(*group, p, &state)
                               : go_on_blocking(*group, p, &state);
    for (int i = 0; i < p->operations; i++) {
        CZ_TRY(all_reduce(*group, values, NULL));
        nap(p->hurry, &state);
    }
    if (p->holds) {
        CZ_TRY(leave_with_works(*group));
        *group = NULL;
    }
    return CZ_OK;
}

typedef struct leaving_rank {
    cz_group *group;
    const plan *plan;
    outcome outcome;
    pthread_t thread;
} leaving_rank;

static void *leaving_rank_main(void *context)
{
    leaving_rank *self = context;
    note(&self->outcome, each_rank(&self->group, self->plan));
    cz_group_destroy(&self->group);
    return NULL;
}

static void carry_out(int world, const plan *p)
{
    cz_group *groups[MANY_RANKS];
    leaving_rank ranks[MANY_RANKS];
    char name[32];
    snprintf(name, sizeof name, "rank %d left", p->leaver);
    assert_ok(create_ranks(groups, world, NULL));
    for (int r = 0; r < world; r++) {
        ranks[r] = (leaving_rank){.group = groups[r], .plan = p};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, leaving_rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < world; r++)
        pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < world; r++) {
        const outcome *got = &ranks[r].outcome;
        if (got->status != (r == p->leaver ? CZ_OK : CZ_ERR_PEER))
            fail_msg("rank %d, leaver %d: %s: %s", r, p->leaver, cz_status_name(got->status),
                     got->sentence);
        if (r != p->leaver && !strstr(got->sentence, name))
            fail_msg("rank %d: \"%s\" does not say \"%s\"", r, got->sentence, name);
    }
}

TEST(before_and_between)
{
    const int64_t held = cz_test_allocations_held();
    for (int world = 2; world <= LARGEST_WORLD; world++)
        for (int leaver = 0; leaver < world; leaver++) {
            const plan p = {.leaver = leaver, .operations = (leaver + world) % 4};
            carry_out(world, &p);
        }
    assert_int_equal(cz_test_allocations_held(), held);
}

TEST(with_operations_in_flight)
{
    const int64_t held = cz_test_allocations_held();
    for (int world = 2; world <= LARGEST_WORLD; world++)
        for (int leaver = 0; leaver < world; leaver++) {
            const plan p = {.leaver = leaver,
                            .operations = leaver % 3,
                            .holds = true,
                            .asynchronous = world % 2};
            carry_out(world, &p);
        }
    assert_int_equal(cz_test_allocations_held(), held);
}

TEST(at_random)
{
    const int64_t held = cz_test_allocations_held();
    uint64_t random = 99;
    for (int round = 0; round < (SLOW ? 25 : 100); round++) {
        const int world = 2 + (int)draw(&random, (unsigned)LARGEST_WORLD - 1);
        const plan p = {.leaver = (int)draw(&random, (unsigned)world),
                        .operations = (int)draw(&random, 5),
                        .holds = draw(&random, 2),
                        .hurry = draw(&random, 3) * 300,
                        .asynchronous = draw(&random, 2),
                        .seed = (uint64_t)round};
        carry_out(world, &p);
    }
    assert_int_equal(cz_test_allocations_held(), held);
}

/* In peace: whoever has done all its operations may go, whatever the others still do among them. */
static cz_status each_rank_in_peace(cz_group *group, void *arg)
{
    static _Thread_local float values[COUNT];
    uint64_t state = (uint64_t)cz_group_rank(group);
    for (int i = 0; i < 5; i++) {
        CZ_TRY(all_reduce(group, values, NULL));
        nap(500, &state);
    }
    return CZ_OK;
}

TEST(all_leave_when_done)
{
    for (int round = 0; round < (SLOW ? 3 : 10); round++)
        for (int world = 1; world <= LARGEST_WORLD; world++)
            expect_ok(world, 256, each_rank_in_peace, NULL);
}

/* The group stays broken: each later operation says so at once. */
static cz_status each_rank_goes_on(cz_group *group, void *arg)
{
    float value = 1;
    if (cz_group_rank(group) == 1)
        return CZ_OK;
    for (int i = 0; i < 3; i++) {
        outcome got;
        note(&got, cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, CZ_LABEL("after")));
        CHECK(got.status == CZ_ERR_PEER && strstr(got.sentence, "rank 1 left"), "call %d: %s: %s",
              i, cz_status_name(got.status), got.sentence);
    }
    return CZ_OK;
}

TEST(a_broken_group_stays_broken)
{
    for (int world = 2; world <= 5; world++)
        expect_ok(world, 0, each_rank_goes_on, NULL);
}

/* Continuations of operations that never ended run, once, with the status; and cannot start
 * more. */
typedef struct told {
    cz_group *group;
    int runs;
    cz_status sees, start;
} told;

static cz_status note_status(cz_status status, void *context)
{
    told *t = context;
    t->runs++;
    t->sees = status;
    t->start = cz_barrier(t->group, NULL);
    return status;
}

static cz_status each_rank_told(cz_group *group, void *arg)
{
    cz_work *works[HELD];
    told tales[HELD];
    if (cz_group_rank(group) == 1)
        return CZ_OK;
    for (int i = 0; i < HELD; i++) {
        tales[i] = (told){.group = group};
        cz_status status = cz_barrier(group, CZ_START("told", &works[i]));
        THEN(cz_work_then(works[i], note_status, &tales[i]));
        if (status != CZ_OK) { /* the group broke meanwhile */
            CHECK(status == CZ_ERR_PEER, "start %d: %s", i, cz_last_error());
            works[i] = NULL;
        }
    }
    for (int i = 0; i < HELD; i++) {
        if (!works[i])
            continue;
        CHECK(cz_work_wait(works[i]) == CZ_ERR_PEER, "wait %d: %s", i, cz_last_error());
        CHECK(tales[i].runs == 1 && tales[i].sees == CZ_ERR_PEER && tales[i].start == CZ_ERR_PEER,
              "continuation %d ran %d times, saw %s, could start: %s", i, tales[i].runs,
              cz_status_name(tales[i].sees), cz_status_name(tales[i].start));
        cz_work_destroy(&works[i]);
    }
    return CZ_OK;
}

TEST(continuations_are_told)
{
    for (int world = 2; world <= 5; world++)
        expect_ok(world, 0, each_rank_told, NULL);
}

/* Destroying one's own group: continuations in order, children too. */
static cz_status start_child(cz_status status, void *context)
{
    told *t = context;
    t->runs++;
    t->sees = status;
    return status == CZ_OK ? cz_barrier(t->group, NULL) : status;
}

TEST(destroy_runs_continuations)
{
    const int64_t held = cz_test_allocations_held();
    for (int with_peer = 0; with_peer < 2; with_peer++) {
        cz_group *groups[2];
        cz_work *works[HELD];
        told tales[HELD];
        assert_ok(create_ranks(groups, 2, NULL));
        if (with_peer) /* then operation 0 completes, its child never */
            assert_ok(cz_barrier(groups[1], CZ_START(NULL, &works[1])));
        if (with_peer)
            cz_work_destroy(&works[1]);
        for (int i = 0; i < HELD; i++) {
            tales[i] = (told){.group = groups[0]};
            assert_ok(cz_barrier(groups[0], CZ_START(NULL, &works[i])));
            assert_ok(cz_work_then(works[i], start_child, &tales[i]));
        }
        usleep(2000);
        cz_group_destroy(&groups[0]);
        for (int i = 0; i < HELD; i++) {
            assert_int_equal(tales[i].runs, 1);
            assert_int_equal(cz_work_wait(works[i]), CZ_ERR_STATE);
            assert_int_equal(cz_work_then(works[i], start_child, &tales[i]), CZ_ERR_STATE);
            cz_work_destroy(&works[i]);
        }
        cz_group_destroy(&groups[1]);
    }
    assert_int_equal(cz_test_allocations_held(), held);
}

static bool has_an_operation(cz_group *group)
{
    cz__executor_lock(group->executor);
    const bool has = cz__executor_first(group->executor) != NULL;
    cz__executor_unlock(group->executor);
    return has;
}

/* Another thread destroys the handle under a call that waits. */
static void *wait_in_a_barrier(void *context)
{
    rank_call *call = context;
    note(call->outcome, cz_barrier(call->group, CZ_LABEL("alone")));
    return NULL;
}

TEST(destroy_under_a_blocking_call)
{
    const int64_t held = cz_test_allocations_held();
    for (int round = 0; round < 20; round++) {
        cz_group *groups[2];
        outcome got;
        assert_ok(create_ranks(groups, 2, NULL));
        rank_call call = {.group = groups[0], .outcome = &got};
        assert_int_equal(pthread_create(&call.thread, NULL, wait_in_a_barrier, &call), 0);
        while (!has_an_operation(groups[0])) /* the test's own limit ends it */
            usleep(100);
        cz_group_destroy(&groups[0]);
        pthread_join(call.thread, NULL);
        assert_int_equal(got.status, CZ_ERR_STATE);
        cz_group_destroy(&groups[1]);
    }
    assert_int_equal(cz_test_allocations_held(), held);
}
