/* SPDX-License-Identifier: MIT */
/* Continuations: once, in the order of their operations, with children that match on all ranks;
 * what fails in them, and what they may not do. */
#include <stdatomic.h>

#include "group/collective.h"
#include "group/group_test.h"

enum { ROUNDS = SLOW ? 4 : 12 };

typedef struct tale {
    cz_group *group;
    int *log; /* what ran, in its order */
    atomic_int *length;
    int number;
    int runs;
    cz_status sees; /* the status it was given */
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

/* Some are attached at once, some later, on some ranks after the end; always before the next
 * start. */
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

TEST(continuations_run_once_in_order)
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

TEST(children_match_on_all_ranks)
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

TEST(failures_are_passed_on)
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
    CHECK(cz_work_then(f.child, do_nothing, NULL) == CZ_ERR_STATE,
          "a continuation of an ended child");
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

TEST(what_is_not_allowed)
{
    for (int world = 1; world <= 3; world++)
        expect_ok(world, 0, each_rank_forbidden, NULL);
}

static cz_status count_up(cz_status status, void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
    return status;
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
        for (; !done; nap(20, &state))
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

TEST(a_continuation_after_the_end)
{
    for (int world = 1; world <= 4; world++)
        expect_ok(world, 0, each_rank_then_late, NULL);
}
