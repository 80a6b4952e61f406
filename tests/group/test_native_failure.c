/* SPDX-License-Identifier: MIT */
/* What goes wrong on groups whose backend has collectives of its own: ranks that are late, that
 * leave, whose arguments are wrong, that disagree; and backends that fail or are not complete. */
#include "group/native_backend.h"

static const int worlds[] = {1, 2, 3, 5};
enum { WORLDS = sizeof worlds / sizeof *worlds };

/* Every native operation, so that no other rank's memory is needed to call it. */
static cz_status call_any(cz_group *group, int which, float *data, const char *label)
{
    float all[MANY_RANKS] = {0};
    switch (which % 5) {
    case 0:
        return cz_all_reduce(group, data, 1, CZ_F32, CZ_SUM, CZ_LABEL(label));
    case 1:
        return cz_reduce_scatter(group, data ? all : NULL, data, 1, CZ_F32, CZ_SUM,
                                 CZ_LABEL(label));
    case 2:
        return cz_all_gather(group, data, all, 1, CZ_F32, CZ_LABEL(label));
    case 3:
        return cz_broadcast(group, data, data ? 1 : -1, CZ_F32, 0, CZ_LABEL(label));
    default:
        return cz_barrier(group, data ? CZ_LABEL(label) : &(cz_operation_options){.size = 1});
    }
}

typedef struct trial {
    int which; /* operation */
    int odd;   /* rank */
    atomic_int told;
} trial;

/* ---- late, gone ---- */

static cz_status each_rank_waits(cz_group *group, void *arg)
{
    trial *t = arg;
    float value = 1;
    outcome got;
    char wanted[48];
    snprintf(wanted, sizeof wanted, "rank %d did not come", t->odd);
    if (cz_group_rank(group) == t->odd && !comes(&t->told, cz_group_size(group) - 1))
        return cz_fail(CZ_ERR_INTERNAL, "nobody timed out");
    note(&got, call_any(group, t->which, &value, "late"));
    atomic_fetch_add(&t->told, 1);
    CHECK(got.status == CZ_ERR_TIMEOUT && strstr(got.sentence, wanted) &&
              strstr(got.sentence, "'late'"),
          "%s: %s", cz_status_name(got.status), got.sentence);
    return CZ_OK;
}

TEST(a_rank_that_does_not_come)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    options.timeout_seconds = 0.2;
    for (int which = 0; which < 5; which++) {
        const int world = worlds[1 + which % 3];
        outcome outcomes[MANY_RANKS];
        trial t = {.which = which, .odd = which % world};
        native_run(&native_backend, world, &options, each_rank_waits, &t, outcomes);
        assert_all_ok(world, outcomes, "operation %d", which);
    }
}

/* All ranks have come, but the backend never ends it. */
static cz_status never(void *endpoint, cz_collective *c, bool *done)
{
    *done = false;
    return CZ_OK;
}

static cz_status each_rank_hangs(cz_group *group, void *arg)
{
    float value = 1;
    const cz_status status = call_any(group, 0, &value, "endless");
    CHECK(status == CZ_ERR_TIMEOUT && strstr(cz_last_error(), "some rank did not come"), "%s: %s",
          cz_status_name(status), cz_last_error());
    return CZ_OK;
}

TEST(a_backend_that_hangs)
{
    cz_backend table = native_backend;
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    outcome outcomes[MANY_RANKS];
    table.test_collective = never;
    options.timeout_seconds = 2;
    native_run(&table, 3, &options, each_rank_hangs, NULL, outcomes);
    assert_all_ok(3, outcomes, "%s", __func__);
}

static cz_status each_rank_but_one(cz_group *group, void *arg)
{
    const trial *t = arg;
    float value = 1;
    char wanted[32];
    snprintf(wanted, sizeof wanted, "rank %d left", t->odd);
    CZ_TRY(call_any(group, t->which, &value, "all"));
    if (cz_group_rank(group) == t->odd)
        return CZ_OK;
    for (int i = 0; i < 2; i++) { /* it stays broken */
        const cz_status status = call_any(group, t->which + i, &value, "lonely");
        CHECK(status == CZ_ERR_PEER && strstr(cz_last_error(), wanted) &&
                  strstr(cz_last_error(), "'lonely'"),
              "%s: %s", cz_status_name(status), cz_last_error());
    }
    return CZ_OK;
}

TEST(a_rank_that_leaves)
{
    for (int which = 0; which < 5; which++)
        for (int w = 1; w < WORLDS; w++)
            for (int odd = 0; odd < worlds[w]; odd++) {
                trial t = {.which = which, .odd = odd};
                native_expect(&native_backend, worlds[w], 0, each_rank_but_one, &t);
            }
}

/* ---- wrong arguments ---- */

/* The one rank gets its own status, the others hear of it without waiting for the timeout. */
static cz_status each_rank_wrong(cz_group *group, void *arg)
{
    const trial *t = arg;
    const bool odd = cz_group_rank(group) == t->odd;
    float value = 1;
    outcome got;
    char name[32];
    snprintf(name, sizeof name, "rank %d: ", t->odd);
    CZ_TRY(call_any(group, t->which + 1, &value, "fine"));
    note(&got, call_any(group, t->which, odd ? NULL : &value, "wrong"));
    CHECK(got.status == (odd ? CZ_ERR_ARGUMENT : CZ_ERR_PEER) && strstr(got.sentence, name),
          "%s: %s", cz_status_name(got.status), got.sentence);
    note(&got, call_any(group, t->which + 2, &value, "after"));
    CHECK(got.status == CZ_ERR_PEER && strstr(got.sentence, name), "after it: %s: %s",
          cz_status_name(got.status), got.sentence);
    return CZ_OK;
}

/* In checked mode all is as on every group. */
static cz_status each_rank_checked(cz_group *group, void *arg)
{
    const trial *t = arg;
    const int size = cz_group_size(group);
    const bool odd = cz_group_rank(group) == t->odd;
    float value = 1;
    outcome got;
    note(&got, call_any(group, t->which, odd ? NULL : &value, "wrong"));
    CHECK(got.status == CZ_ERR_ARGUMENT, "%s: %s", cz_status_name(got.status), got.sentence);
    note(&got, call_any(group, odd ? t->which + 1 : t->which, &value, "other"));
    CHECK(got.status == (size == 1 ? CZ_OK : CZ_ERR_MISMATCH), "%s: %s", cz_status_name(got.status),
          got.sentence);
    value = 1;
    CZ_TRY(cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, NULL));
    CHECK(value == (float)size, "after it the sum is %g", value);
    return CZ_OK;
}

TEST(wrong_arguments)
{
    for (int which = 0; which < 5; which++)
        for (int w = 0; w < WORLDS; w++)
            for (int odd = 0; odd < worlds[w]; odd++) {
                trial t = {.which = which, .odd = odd};
                native_expect(&native_backend, worlds[w], 0, each_rank_wrong, &t);
                native_expect(&native_backend, worlds[w], 1, each_rank_checked, &t);
            }
}

/* ---- operations that other ranks need still end ---- */

/* Rank 0 does the first operation and breaks the group in the second; the others come later to
 * both. */
static cz_status each_rank_late(cz_group *group, void *arg)
{
    trial *t = arg;
    float value = 1;
    cz_work *work;
    const bool first = cz_group_rank(group) == 0;
    outcome got;
    if (!first)
        CHECK(comes(&t->told, 1), "rank 0 did not break the group");
    CZ_TRY(cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, CZ_START("first", &work)));
    note(&got, call_any(group, 0, first ? NULL : &value, "second"));
    atomic_fetch_add(&t->told, 1);
    CHECK(got.status == (first ? CZ_ERR_ARGUMENT : CZ_ERR_PEER), "second: %s", got.sentence);
    note(&got, cz_work_wait(work));
    cz_work_destroy(&work);
    CHECK(got.status == CZ_OK && value == (float)cz_group_size(group), "first: %s", got.sentence);
    return CZ_OK;
}

TEST(what_was_before_still_ends)
{
    for (int w = 0; w < WORLDS; w++) {
        trial t = {0};
        native_expect(&native_backend, worlds[w], 0, each_rank_late, &t);
    }
}

/* ---- backends ---- */

static cz_status cannot_start(void *endpoint, cz_collective *c)
{
    return cz_fail(CZ_ERR_IO, "the link is down");
}

static cz_status each_rank_hears(cz_group *group, void *arg)
{
    float value = 1;
    for (int i = 0; i < 2; i++) {
        const cz_status status = call_any(group, 0, &value, "down");
        CHECK(status == CZ_ERR_IO && strstr(cz_last_error(), "the link is down"), "%s: %s",
              cz_status_name(status), cz_last_error());
    }
    return CZ_OK;
}

TEST(a_backend_that_fails)
{
    cz_backend table = native_backend;
    table.all_reduce = cannot_start;
    for (int w = 0; w < WORLDS; w++)
        native_expect(&table, worlds[w], 0, each_rank_hears, NULL);
}

TEST(tables_that_are_not_complete)
{
    static const size_t entries[] = {offsetof(cz_backend, test_collective),
                                     offsetof(cz_backend, withdraw_collective)};
    static const char *const names[] = {"needs test_collective", "needs withdraw_collective"};
    for (int e = 0; e < 2; e++) {
        cz_backend table = native_backend;
        cz_group *group = NULL;
        int endpoint = 0;
        memset((char *)&table + entries[e], 0, sizeof(void *));
        assert_int_equal(cz_group_create_custom(&group, 0, 1, &table, &endpoint, NULL),
                         CZ_ERR_ARGUMENT);
        assert_non_null(strstr(cz_last_error(), names[e]));
    }
}

/* A work that the backend cannot give back is never used again. */
static bool cannot_withdraw(void *endpoint, cz_collective *c)
{
    return false;
}

/* That memory is kept on purpose: the leak checker, where there is one, asks this. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:each_rank_but_one\n";
}

TEST(collectives_that_stay)
{
    cz_backend table = native_backend;
    trial t = {.which = 0, .odd = 1};
    table.withdraw_collective = cannot_withdraw;
    native_expect(&table, 2, 0, each_rank_but_one, &t);
}
