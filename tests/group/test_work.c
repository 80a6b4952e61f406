/* SPDX-License-Identifier: MIT */
/* Operations that were started: waiting in any order and from several threads, polling, letting go of
 * handles, many at once; continuations and what they start. */
#include <stdatomic.h>

#include "group/collective.h"
#include "group/group_test.h"

enum { MANY = 100, ROUNDS = SLOW ? 4 : 12 };

/* ---- waiting ---- */

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

static void test_a_hundred_in_any_order(void **state)
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
        CHECK(pthread_create(&waiters[w].thread, NULL, wait_for_some, &waiters[w]) == 0, "no thread");
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

static void test_several_threads_wait(void **state)
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

static void test_polling(void **state)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_polls, NULL);
}

/* A call that waits takes over from the executor's thread, at whatever moment it comes: while that one
 * moves operations on, looks at the time, or falls asleep. */
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

static void test_waiting_takes_over(void **state)
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

static void test_handles_may_go_first(void **state)
{
    for (int world = 1; world <= 5; world++)
        expect_ok(world, 0, each_rank_lets_go, NULL);
}

/* ---- continuations ---- */

typedef struct tale {
    cz_group *group;
    int *log; /* what ran, in its order */
    atomic_int *length;
    int number;
    int runs;
    cz_status sees;   /* the status it was given */
    cz_status returns;
    float sum, second, third; /* of children and of children's children */
    cz_work *child;
    uint64_t state;
} tale;

static cz_status log_it(cz_status status, void *context)
{
    tale *t = context;
    t->runs++;
    t->sees = status;
    t->log[atomic_fetch_add(t->length, 1)] = t->number;
    return t->returns == CZ_OK ? status : cz_fail(t->returns, "number %d fails", t->number);
}

/* Some are attached at once, some later, on some ranks after the end; always before the next start. */
static cz_status each_rank_in_order(cz_group *group, void *arg)
{
    enum { OPERATIONS = 30 };
    int log[OPERATIONS];
    atomic_int length = 0;
    tale tales[OPERATIONS];
    float values[OPERATIONS];
    cz_work *works[OPERATIONS];
    uint64_t state = 5 + (uint64_t)cz_group_rank(group);
    for (int i = 0; i < OPERATIONS; i++) {
        tales[i] = (tale){.log = log, .length = &length, .number = i};
        values[i] = 1;
        CZ_TRY(cz_all_reduce(group, &values[i], 1, CZ_F32, CZ_SUM, CZ_START(NULL, &works[i])));
        if (draw(&state, 2))
            nap(500, &state);
        CZ_TRY(cz_work_then(works[i], log_it, &tales[i]));
    }
    for (int i = OPERATIONS - 1; i >= 0; i--) {
        CZ_TRY(cz_work_wait(works[i]));
        CHECK(tales[i].runs == 1 && tales[i].sees == CZ_OK, "continuation %d ran %d times", i,
              tales[i].runs);
        cz_work_destroy(&works[i]);
    }
    for (int i = 0; i < OPERATIONS; i++)
        CHECK(log[i] == i, "continuation %d ran as number %d", log[i], i);
    return CZ_OK;
}

static void test_continuations_run_once_in_order(void **state)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int world = 1; world <= 5; world += 2)
            expect_ok(world, 0, each_rank_in_order, NULL);
}

/* A continuation starts two sums, the second with a continuation that starts a third. */
static cz_status start_third(cz_status status, void *context)
{
    tale *t = context;
    CZ_TRY(status);
    nap(200, &t->state);
    t->third = t->second;
    return cz_all_reduce(t->group, &t->third, 1, CZ_F32, CZ_SUM, NULL);
}

static cz_status start_two(cz_status status, void *context)
{
    tale *t = context;
    cz_work *second = NULL;
    CZ_TRY(status);
    t->runs++;
    nap(200, &t->state);
    t->sum = (float)(t->number * 100 + 1);
    t->second = (float)(t->number * 100 + 2);
    CZ_TRY(cz_all_reduce(t->group, &t->sum, 1, CZ_F32, CZ_SUM, CZ_LABEL("first child")));
    CZ_TRY(cz_all_reduce(t->group, &t->second, 1, CZ_F32, CZ_SUM, CZ_START("second", &second)));
    CZ_TRY(cz_work_then(second, start_third, t));
    cz_work_destroy(&second);
    return CZ_OK;
}

static cz_status each_rank_children(cz_group *group, void *arg)
{
    enum { OPERATIONS = 20 };
    const int size = cz_group_size(group);
    uint64_t state = 50 + (uint64_t)cz_group_rank(group);
    tale tales[OPERATIONS];
    float values[OPERATIONS];
    cz_work *works[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++) {
        tales[i] = (tale){.group = group, .number = i, .state = mix(state + (unsigned)i)};
        values[i] = 1;
        nap(300, &state);
        CZ_TRY(cz_all_reduce(group, &values[i], 1, CZ_F32, CZ_SUM, CZ_START(NULL, &works[i])));
        CZ_TRY(cz_work_then(works[i], start_two, &tales[i]));
    }
    for (int k = 0; k < OPERATIONS; k++) {
        const int i = (k * 7 + cz_group_rank(group)) % OPERATIONS;
        CZ_TRY(cz_work_wait(works[i]));
        cz_work_destroy(&works[i]);
        CHECK(tales[i].runs == 1 && tales[i].sum == (float)(size * (i * 100 + 1)) &&
                  tales[i].second == (float)(size * (i * 100 + 2)) &&
                  tales[i].third == (float)(size * size * (i * 100 + 2)),
              "children of %d: %g %g %g", i, tales[i].sum, tales[i].second, tales[i].third);
    }
    return CZ_OK;
}

static void test_children_match_on_all_ranks(void **state)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int world = 1; world <= 5; world += 2)
            expect_ok(world, 0, each_rank_children, NULL);
}

/* ---- what goes wrong ---- */

static cz_status started(cz_group *group, float *value, cz_work **work)
{
    *value = 1;
    return cz_all_reduce(group, value, 1, CZ_F32, CZ_SUM, CZ_START("failing", work));
}

static cz_status each_rank_failing(cz_group *group, void *arg)
{
    int log[4];
    atomic_int length = 0;
    float value, size = (float)cz_group_size(group);
    cz_work *work;
    outcome got;
    tale t = {.log = log, .length = &length, .number = 3, .returns = CZ_ERR_IO};
    CZ_TRY(started(group, &value, &work));
    CZ_TRY(cz_work_then(work, log_it, &t));
    note(&got, cz_work_wait(work));
    cz_work_destroy(&work);
    CHECK(got.status == CZ_ERR_IO && strcmp(got.sentence, "number 3 fails") == 0 && value == size,
          "a failing continuation: %s, the sum is %g", got.sentence, value);
    /* the operation itself fails: its continuation is told, with the sentence at hand */
    t = (tale){.log = log, .length = &length, .number = 2};
    CZ_TRY(cz_all_reduce(group, &value, -1, CZ_F32, CZ_SUM, CZ_START("failing", &work)));
    CZ_TRY(cz_work_then(work, log_it, &t));
    note(&got, cz_work_wait(work));
    cz_work_destroy(&work);
    CHECK(got.status == CZ_ERR_ARGUMENT && t.runs == 1 && t.sees == CZ_ERR_ARGUMENT &&
              strstr(got.sentence, "count is -1"),
          "a failing operation: %s", got.sentence);
    return cz_barrier(group, NULL);
}

/* A child that fails makes its work fail. */
static cz_status start_failing_child(cz_status status, void *context)
{
    tale *t = context;
    return cz_all_reduce(t->group, NULL, 4, CZ_F32, CZ_SUM, CZ_LABEL("child"));
}

static cz_status each_rank_failing_child(cz_group *group, void *arg)
{
    float value;
    cz_work *work;
    outcome got;
    tale t = {.group = group};
    CZ_TRY(started(group, &value, &work));
    CZ_TRY(cz_work_then(work, start_failing_child, &t));
    note(&got, cz_work_wait(work));
    cz_work_destroy(&work);
    CHECK(got.status == CZ_ERR_ARGUMENT && strstr(got.sentence, "NULL"), "got %s", got.sentence);
    return cz_barrier(group, NULL);
}

static void test_failures_are_passed_on(void **state)
{
    for (int world = 1; world <= 4; world++) {
        expect_ok(world, 0, each_rank_failing, NULL);
        expect_ok(world, 0, each_rank_failing_child, NULL);
    }
}

typedef struct forbidden {
    cz_group *group, *other_group;
    cz_work *own, *child;
    float value;
    cz_status wait, agree, other, then;
    bool done;
} forbidden;

static cz_status do_nothing(cz_status status, void *context)
{
    return status;
}

static cz_status do_forbidden_things(cz_status status, void *context)
{
    forbidden *f = context;
    bool same;
    f->wait = cz_work_wait(f->own);
    f->agree = cz__agree(f->group, CZ_OK, 1, &same, NULL);
    f->other = cz_barrier(f->other_group, NULL);
    f->then = cz_work_then(f->own, do_nothing, NULL);
    CZ_TRY(cz_work_test(f->own, &f->done));
    return cz_all_reduce(f->group, &f->value, 1, CZ_F32, CZ_SUM, CZ_START("child", &f->child));
}

static cz_status each_rank_forbidden(cz_group *group, void *arg)
{
    float value;
    forbidden f = {.group = group, .value = 1, .done = true};
    CZ_TRY(cz_group_create_self(&f.other_group, NULL));
    CZ_TRY(started(group, &value, &f.own));
    CZ_TRY(cz_work_then(f.own, do_forbidden_things, &f));
    CZ_TRY(cz_work_wait(f.own));
    CHECK(f.wait == CZ_ERR_STATE && f.agree == CZ_ERR_STATE && f.other == CZ_ERR_STATE &&
              f.then == CZ_ERR_STATE && !f.done,
          "in a continuation: %s %s %s %s", cz_status_name(f.wait), cz_status_name(f.agree),
          cz_status_name(f.other), cz_status_name(f.then));
    CHECK(f.value == (float)cz_group_size(group), "the child's sum is %g", f.value);
    CHECK(cz_work_then(f.own, do_nothing, NULL) == CZ_ERR_STATE, "a second continuation");
    CHECK(cz_work_then(f.child, do_nothing, NULL) == CZ_ERR_STATE, "a continuation of an ended child");
    CZ_TRY(cz_work_wait(f.child));
    cz_work_destroy(&f.child);
    cz_work_destroy(&f.own);
    cz_group_destroy(&f.other_group);
    CZ_TRY(started(group, &value, &f.own));
    CZ_TRY(cz_work_wait(f.own));
    CHECK(cz_work_then(f.own, do_nothing, NULL) == CZ_ERR_STATE, "a continuation after a wait");
    CHECK(cz_work_then(f.own, NULL, NULL) == CZ_ERR_ARGUMENT, "a NULL continuation");
    CHECK(cz_work_then(NULL, do_nothing, NULL) == CZ_ERR_ARGUMENT, "a NULL work");
    CHECK(cz_work_wait(NULL) == CZ_ERR_ARGUMENT, "waiting for NULL");
    CHECK(cz_work_test(f.own, NULL) == CZ_ERR_ARGUMENT, "testing into NULL");
    CHECK(cz_work_test(NULL, &f.done) == CZ_ERR_ARGUMENT, "testing NULL");
    cz_work_destroy(&f.own);
    cz_work_destroy(&f.own);
    cz_work_destroy(NULL);
    return CZ_OK;
}

static void test_what_is_not_allowed(void **state)
{
    for (int world = 1; world <= 3; world++)
        expect_ok(world, 0, each_rank_forbidden, NULL);
}

/* After the end it runs all the same, on the executor's thread or on one that waits. */
static cz_status each_rank_then_late(cz_group *group, void *arg)
{
    for (int round = 0; round < 10 * ROUNDS; round++) {
        float value;
        atomic_int runs = 0;
        bool done = false;
        cz_work *work;
        uint64_t state = (uint64_t)round;
        CZ_TRY(started(group, &value, &work));
        while (!done)
            CZ_TRY(cz_work_test(work, &done));
        CZ_TRY(cz_work_then(work, count_up, &runs));
        if (round % 2)
            CZ_TRY(cz_work_wait(work));
        for (int tries = 0; atomic_load(&runs) == 0 && tries < 20000; tries++)
            nap(round % 2 ? 1 : 100, &state);
        CHECK(atomic_load(&runs) == 1, "it ran %d times", atomic_load(&runs));
        cz_work_destroy(&work);
    }
    return CZ_OK;
}

static void test_a_continuation_after_the_end(void **state)
{
    for (int world = 1; world <= 4; world++)
        expect_ok(world, 0, each_rank_then_late, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hundred_in_any_order),
        cmocka_unit_test(test_several_threads_wait),
        cmocka_unit_test(test_polling),
        cmocka_unit_test(test_waiting_takes_over),
        cmocka_unit_test(test_handles_may_go_first),
        cmocka_unit_test(test_continuations_run_once_in_order),
        cmocka_unit_test(test_children_match_on_all_ranks),
        cmocka_unit_test(test_failures_are_passed_on),
        cmocka_unit_test(test_what_is_not_allowed),
        cmocka_unit_test(test_a_continuation_after_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
