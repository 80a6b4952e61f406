/* SPDX-License-Identifier: MIT */
/* Operations that were started: waiting in any order and from several threads, polling, letting go
 * of handles, many at once. */
#include <stdatomic.h>

#include "group/group_test.h"

enum { MANY = 100, ROUNDS = SLOW ? 4 : 12 };

typedef struct sums {
    float values[MANY][21]; /* operation i has 1 + i % 21 elements */
    cz_work *works[MANY];
} sums;

static cz_status start(cz_group *group, sums *s, int i)
{
    const int count = 1 + i % 21;
    for (int k = 0; k < count; k++)
        s->values[i][k] = (float)(cz_group_rank(group) + i + k);
    return cz_all_reduce(group, s->values[i], count, CZ_F32, CZ_SUM, CZ_START("sum", &s->works[i]));
}

static cz_status check(cz_group *group, const sums *s, int i)
{
    const int size = cz_group_size(group);
    for (int k = 0; k < 1 + i % 21; k++) {
        const float wanted = (float)(size * (size - 1) / 2 + size * (i + k));
        CHECK(s->values[i][k] == wanted, "sum %d, element %d: %g, not %g", i, k, s->values[i][k],
              wanted);
    }
    return CZ_OK;
}

static cz_status each_rank_any_order(cz_group *group, void *arg)
{
    uint64_t state = (uint64_t)cz_group_rank(group); /* each rank waits in its own order */
    for (int round = 0; round < ROUNDS; round++) {
        sums s;
        int order[MANY];
        for (int i = 0; i < MANY; i++) {
            const unsigned other = draw(&state, (unsigned)i + 1);
            CZ_TRY(start(group, &s, i));
            order[i] = order[other];
            order[other] = i;
        }
        for (int k = 0; k < MANY; k++) {
            CZ_TRY(cz_work_wait(s.works[order[k]]));
            CZ_TRY(check(group, &s, order[k]));
            CZ_TRY(cz_work_wait(s.works[order[k]])); /* again */
            cz_work_destroy(&s.works[order[k]]);
            CHECK(!s.works[order[k]], "the handle is still there");
        }
    }
    return CZ_OK;
}

TEST(a_hundred_in_any_order)
{
    for (int w = 0; w < CZ_TEST_WORLD_COUNT - SLOW; w++)
        expect_ok(cz_test_worlds[w], 0, each_rank_any_order, NULL);
}

typedef struct waiter {
    cz_group *group;
    sums *sums;
    int first, step;
    cz_status status;
    pthread_t thread;
} waiter;

static void *wait_for_some(void *context)
{
    waiter *self = context;
    self->status = CZ_OK;
    for (int n = 0, i = self->first; n < MANY && self->status == CZ_OK; n++, i += self->step) {
        self->status = cz_work_wait(self->sums->works[i % MANY]);
        if (self->status == CZ_OK)
            self->status = check(self->group, self->sums, i % MANY);
    }
    return NULL;
}

static cz_status each_rank_several_threads(cz_group *group, void *arg)
{
    static const int first[] = {0, 99, 50}, step[] = {1, 99, 37};
    sums s;
    waiter waiters[3];
    for (int i = 0; i < MANY; i++)
        CZ_TRY(start(group, &s, i));
    for (int w = 0; w < 3; w++) {
        waiters[w] = (waiter){group, &s, first[w], step[w], CZ_OK, 0};
        CHECK(pthread_create(&waiters[w].thread, NULL, wait_for_some, &waiters[w]) == 0,
              "no thread");
    }
    float more = 1; /* the rank's own thread goes on meanwhile */
    const cz_status status = cz_all_reduce(group, &more, 1, CZ_F32, CZ_SUM, NULL);
    for (int w = 0; w < 3; w++)
        pthread_join(waiters[w].thread, NULL);
    for (int w = 0; w < 3; w++)
        CHECK(waiters[w].status == CZ_OK, "waiting thread %d failed", w);
    for (int i = 0; i < MANY; i++)
        cz_work_destroy(&s.works[i]);
    return status;
}

TEST(several_threads_wait)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int world = 1; world <= 4; world += 3)
            expect_ok(world, 0, each_rank_several_threads, NULL);
}

/* Without ever waiting. */
static cz_status each_rank_polls(cz_group *group, void *arg)
{
    sums s;
    uint64_t state = (uint64_t)cz_group_rank(group);
    for (int i = 0; i < 10; i++) {
        nap(300, &state);
        CZ_TRY(start(group, &s, i));
    }
    for (int i = 9; i >= 0; i--) {
        for (bool done = false; !done; nap(50, &state))
            CZ_TRY(cz_work_test(s.works[i], &done));
        CZ_TRY(check(group, &s, i));
        CZ_TRY(cz_work_wait(s.works[i]));
        cz_work_destroy(&s.works[i]);
    }
    return CZ_OK;
}

TEST(polling)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_polls, NULL);
}

/* A call that waits takes over from the executor's thread, at whatever moment it comes: while that
 * one moves operations on, looks at the time, or falls asleep. */
static cz_status each_rank_takes_over(cz_group *group, void *arg)
{
    uint64_t state = 9 + (uint64_t)cz_group_rank(group);
    for (int round = 0; round < (SLOW ? 300 : 2000); round++) {
        float started = 1, waited = 1;
        cz_work *work;
        CZ_TRY(cz_all_reduce(group, &started, 1, CZ_F32, CZ_SUM, CZ_START("started", &work)));
        nap(80, &state);
        CZ_TRY(cz_all_reduce(group, &waited, 1, CZ_F32, CZ_SUM, CZ_LABEL("waited")));
        if (draw(&state, 2))
            nap(80, &state);
        CZ_TRY(cz_work_wait(work));
        cz_work_destroy(&work);
        CHECK(started + waited == 2 * (float)cz_group_size(group), "wrong sums");
    }
    return CZ_OK;
}

TEST(waiting_takes_over)
{
    for (int world = 2; world <= 4; world++)
        expect_ok(world, 0, each_rank_takes_over, NULL);
}

static cz_status count_up(cz_status status, void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
    return status;
}

/* The operations go on without their handles, and without a thread that waits. */
static cz_status each_rank_lets_go(cz_group *group, void *arg)
{
    sums s;
    atomic_int ended = 0;
    uint64_t state = 1;
    for (int i = 0; i < MANY; i++) {
        CZ_TRY(start(group, &s, i));
        CZ_TRY(cz_work_then(s.works[i], count_up, &ended));
        cz_work_destroy(&s.works[i]);
    }
    while (atomic_load(&ended) < MANY)
        nap(200, &state);
    for (int i = 0; i < MANY; i++)
        CZ_TRY(check(group, &s, i));
    return CZ_OK;
}

TEST(handles_may_go_first)
{
    for (int world = 1; world <= 5; world++)
        expect_ok(world, 0, each_rank_lets_go, NULL);
}
