/* SPDX-License-Identifier: MIT */
/* Backends of a program's own, made from the one of thread ranks: without notifications, without a
 * thread of the library, without sub-groups, unable to take back transfers, older, and wrong. */
#include <stdatomic.h>

#include "group/collective.h"
#include "group/group_test.h"
#include "group/internal.h"

static void start_silently(void *endpoint, void (*notify)(void *context), void *context)
{
}

static void poll_nothing(void *endpoint)
{
}

/* Nobody is told that a transfer has ended: polling must find it. */
static cz_backend polled(void)
{
    cz_backend table = cz__backend_threads;
    table.name = "polled";
    table.start = start_silently;
    table.poll = poll_nothing;
    table.poll_seconds = 1e-4;
    return table;
}

/* …and only on threads that are inside a call. */
static cz_backend inlined(void)
{
    cz_backend table = polled();
    table.name = "inlined";
    table.inline_only = true;
    return table;
}

static cz_backend without_split(void)
{
    cz_backend table = polled();
    table.name = "old";
    table.size = offsetof(cz_backend, split);
    return table;
}

/* Every rank on a custom group with this table; what each returned. */
static void run_custom(const cz_backend *table, int world, double timeout, cz_rank_main body,
                       void *arg, outcome *outcomes)
{
    void *endpoints[MANY_RANKS];
    rank_call calls[MANY_RANKS];
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    options.timeout_seconds = timeout;
    assert_ok(cz__threads_create(endpoints, world));
    for (int r = 0; r < world; r++) {
        calls[r] = (rank_call){.body = body, .arg = arg, .outcome = &outcomes[r]};
        assert_ok(cz_group_create_custom(&calls[r].group, r, world, table, endpoints[r], &options));
    }
    for (int r = 0; r < world; r++)
        assert_int_equal(pthread_create(&calls[r].thread, NULL, rank_call_main, &calls[r]), 0);
    for (int r = 0; r < world; r++)
        pthread_join(calls[r].thread, NULL);
}

static void expect_custom(const cz_backend *table, int world, cz_rank_main body, void *arg)
{
    outcome outcomes[MANY_RANKS];
    run_custom(table, world, 60, body, arg, outcomes);
    assert_all_ok(world, outcomes, "%s", table->name);
}

/* ---- the same results on all of them ---- */

static cz_status start_child(cz_status status, void *context)
{
    float *value = context; /* value[0] is the sum, value[1] the child's; the group stands behind */
    cz_group *group;
    memcpy(&group, value + 2, sizeof group);
    CZ_TRY(status);
    return cz_all_reduce(group, value + 1, 1, CZ_F32, CZ_SUM, CZ_LABEL("child"));
}

static cz_status each_rank(cz_group *group, void *arg)
{
    const float size = (float)cz_group_size(group);
    const char *name = arg;
    float large[3000], values[6] = {1, 1};
    cz_work *works[2];
    CHECK(strcmp(backend_of(group), name) == 0, "backend is %s", backend_of(group));
    memcpy(values + 2, &group, sizeof group);
    for (int round = 0; round < (SLOW ? 3 : 10); round++) {
        for (int i = 0; i < 3000; i++)
            large[i] = 1;
        values[0] = values[1] = 1;
        CZ_TRY(cz_all_reduce(group, large, 3000, CZ_F32, CZ_SUM, CZ_START("large", &works[0])));
        CZ_TRY(cz_all_reduce(group, values, 1, CZ_F32, CZ_SUM, CZ_START("small", &works[1])));
        CZ_TRY(cz_work_then(works[1], start_child, values));
        CZ_TRY(cz_barrier(group, NULL));
        for (bool done = false; !done; usleep(50)) {
            CZ_TRY(cz_progress(group));
            CZ_TRY(cz_work_test(works[round % 2], &done));
        }
        for (int i = 0; i < 2; i++) {
            CZ_TRY(cz_work_wait(works[i]));
            cz_work_destroy(&works[i]);
        }
        CHECK(large[0] == size && large[2999] == size && values[0] == size && values[1] == size,
              "sums are %g %g %g %g", large[0], large[2999], values[0], values[1]);
    }
    return cz_barrier(group, NULL);
}

TEST(any_kind_of_backend)
{
    const cz_backend tables[] = {cz__backend_threads, polled(), inlined(), without_split()};
    for (int t = 0; t < 4; t++)
        for (int world = 1; world <= 5; world++)
            expect_custom(&tables[t], world, each_rank, (void *)tables[t].name);
}

/* ---- only inside calls ---- */

static _Thread_local bool inside;

static cz_status test_inside(void *endpoint, cz_transfer *transfer, bool *done)
{
    if (!inside)
        abort();
    return cz__backend_threads.test(endpoint, transfer, done);
}

static cz_status each_rank_inside(cz_group *group, void *arg)
{
    for (int i = 0; i < 20; i++) {
        cz_work *work = NULL;
        inside = true;
        CZ_TRY(cz_barrier(group, CZ_START(NULL, &work)));
        inside = false;
        usleep(500); /* nobody calls the backend now */
        inside = true;
        CZ_TRY(cz_progress(group));
        CZ_TRY(cz_work_wait(work));
        cz_work_destroy(&work);
    }
    return CZ_OK; /* destroyed on this thread, too */
}

TEST(inline_backends_see_the_callers_threads_only)
{
    cz_backend table = inlined();
    table.test = test_inside;
    expect_custom(&table, 3, each_rank_inside, NULL);
}

/* Who only ever polls still hears that somebody does not come. */
static cz_status each_rank_polls(cz_group *group, void *arg)
{
    atomic_bool *over = arg;
    cz_work *work = NULL;
    bool done = false;
    if (cz_group_rank(group) == 1) {
        while (!atomic_load(over))
            usleep(1000);
        return CZ_OK;
    }
    CZ_TRY(cz_barrier(group, CZ_START("polled", &work)));
    for (int tries = 0; !done && tries < 20000; tries++) {
        CZ_TRY(cz_work_test(work, &done));
        usleep(500);
    }
    atomic_store(over, true);
    CHECK(done, "no timeout after all that time");
    const cz_status status = cz_work_wait(work);
    cz_work_destroy(&work);
    CHECK(status == CZ_ERR_TIMEOUT && strstr(cz_last_error(), "rank 1"), "got %s: %s",
          cz_status_name(status), cz_last_error());
    return CZ_OK;
}

TEST(polling_times_out)
{
    const cz_backend tables[] = {inlined(), polled()};
    for (int t = 0; t < 2; t++) {
        outcome outcomes[2];
        atomic_bool over = false;
        run_custom(&tables[t], 2, 0.3, each_rank_polls, &over, outcomes);
        assert_all_ok(2, outcomes, "%s", tables[t].name);
    }
}

/* ---- what it cannot do ---- */

static cz_status each_rank_splits(cz_group *group, void *arg)
{
    cz_group *sub = group;
    const cz_status status = cz_group_split(group, 0, 0, &sub);
    CHECK(status == CZ_ERR_UNSUPPORTED && !sub && strstr(cz_last_error(), "'old'"), "got %s: %s",
          cz_status_name(status), cz_last_error());
    return cz_barrier(group, NULL);
}

TEST(no_sub_groups)
{
    const cz_backend table = without_split();
    expect_custom(&table, 3, each_rank_splits, NULL);
}

/* It cannot take transfers back: their memory is never used for anything else. (The receives of
 * this backend stay in its lists, as they would in MPI's.) */
static bool cannot_withdraw(void *endpoint, cz_transfer *transfer)
{
    return false;
}

/* That memory is kept on purpose: the leak checker, where there is one, asks this. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:each_rank_stuck\n";
}

static cz_status each_rank_stuck(cz_group *group, void *arg)
{
    int value = 1;
    if (cz_group_rank(group) == 1)
        return CZ_OK;
    const cz_status status = cz_all_reduce(group, &value, 1, CZ_I32, CZ_SUM, CZ_LABEL("stuck"));
    CHECK(status == CZ_ERR_PEER && strstr(cz_last_error(), "rank 1"), "got %s: %s",
          cz_status_name(status), cz_last_error());
    return CZ_OK;
}

TEST(transfers_that_stay)
{
    cz_backend table = cz__backend_threads;
    table.withdraw = cannot_withdraw;
    expect_custom(&table, 2, each_rank_stuck, NULL);
}

/* ---- a verdict that does not get through, to a rank that does not notice ---- */

static bool is_verdict_to_1(const cz_transfer *transfer)
{
    return transfer->peer == 1 && (transfer->tag & 0xff) == 2;
}

static cz_status send_no_verdict(void *endpoint, cz_transfer *transfer)
{
    return is_verdict_to_1(transfer) ? CZ_OK : cz__backend_threads.post_send(endpoint, transfer);
}

static cz_status test_no_verdict(void *endpoint, cz_transfer *transfer, bool *done)
{
    *done = false;
    return is_verdict_to_1(transfer) ? CZ_OK : cz__backend_threads.test(endpoint, transfer, done);
}

static bool withdraw_no_verdict(void *endpoint, cz_transfer *transfer)
{
    return is_verdict_to_1(transfer) || cz__backend_threads.withdraw(endpoint, transfer);
}

static cz_status barrier(cz_group *group, void *arg)
{
    return cz_barrier(group, NULL);
}

TEST(a_lost_verdict_times_out)
{
    void *endpoints[2];
    cz_group *groups[2];
    outcome outcomes[2];
    cz_backend table = cz__backend_threads;
    table.post_send = send_no_verdict;
    table.test = test_no_verdict;
    table.withdraw = withdraw_no_verdict;
    table.at_most = false; /* so that there are verdicts */
    assert_ok(cz__threads_create(endpoints, 2));
    for (int r = 0; r < 2; r++) {
        cz_group_options options = CZ_GROUP_OPTIONS_INIT;
        options.timeout_seconds = r == 0 ? 1 : 1000;
        assert_ok(cz_group_create_custom(&groups[r], r, 2, &table, endpoints[r], &options));
    }
    run_groups(2, groups, barrier, NULL, outcomes);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(outcomes[r].status, CZ_ERR_TIMEOUT);
        assert_string_equal(outcomes[r].sentence,
                            "barrier (operation 0): rank 1 did not come within 1 s");
    }
}

/* ---- a backend that is attended by who waits ---- */

static atomic_int attendants, attended, polls;

static bool count_attend(void *endpoint, bool begins)
{
    atomic_fetch_add(&attendants, begins ? 1 : -1);
    atomic_fetch_add(&attended, begins);
    return true;
}

static void count_poll(void *endpoint)
{
    atomic_fetch_add(&polls, 1);
}

static cz_status each_attends(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    for (int i = 0; i < 200; i++) {
        int32_t sum = rank;
        CZ_TRY(cz_all_reduce(group, &sum, 1, CZ_I32, CZ_SUM, NULL));
        CHECK(sum == size * (size - 1) / 2, "%d", (int)sum);
    }
    if (rank == 0) { /* the others fall asleep, however slow the machine is, and poll no more */
        bool asleep = false;
        for (int i = 0; i < 200 && !asleep; i++) {
            const int before = atomic_load(&polls);
            usleep(100000);
            asleep = atomic_load(&polls) - before < 10 && atomic_load(&attendants) == 0;
        }
        CHECK(asleep, "asleep ranks poll");
    }
    return cz_barrier(group, NULL);
}

TEST(who_waits_attends_and_falls_asleep)
{
    cz_backend table = cz__backend_threads;
    table.attend = count_attend;
    table.poll = count_poll;
    for (int world = 2; world <= LARGEST_WORLD; world += 3) {
        atomic_store(&attended, 0);
        atomic_store(&polls, 0);
        expect_custom(&table, world, each_attends, NULL);
        assert_int_equal(atomic_load(&attendants), 0);
        assert_true(atomic_load(&attended) >= 200 && atomic_load(&polls) > 0);
    }
}

/* ---- wrong tables ---- */

static int left;

static void count_leave(void *endpoint, const char *why)
{
    left++;
}

static void refuse(const cz_backend *table, int rank, int size, cz_status wanted, int leaves)
{
    char endpoint;
    cz_group *group = (cz_group *)(void *)&endpoint;
    left = 0;
    assert_int_equal(cz_group_create_custom(&group, rank, size, table, &endpoint, NULL), wanted);
    assert_null(group);
    assert_int_equal(left, leaves);
}

static bool never_attend(void *endpoint, bool begins)
{
    return false;
}

TEST(wrong_tables)
{
    cz_backend good = cz__backend_threads, bad;
    cz_group *group;
    char endpoint;
    good.leave = count_leave;
    bad = good, bad.abi = CZ_BACKEND_ABI + 1;
    refuse(&bad, 0, 1, CZ_ERR_UNSUPPORTED, 0);
    bad = good, bad.post_send = NULL;
    refuse(&bad, 0, 1, CZ_ERR_ARGUMENT, 0);
    bad = good, bad.size = offsetof(cz_backend, leave);
    refuse(&bad, 0, 1, CZ_ERR_ARGUMENT, 0);
    bad = good, bad.inline_only = true;
    refuse(&bad, 0, 1, CZ_ERR_ARGUMENT, 0);
    bad = good, bad.poll_seconds = -1;
    refuse(&bad, 0, 1, CZ_ERR_ARGUMENT, 0);
    bad = good, bad.attend = never_attend;
    refuse(&bad, 0, 1, CZ_ERR_ARGUMENT, 0);
    refuse(&good, 1, 1, CZ_ERR_ARGUMENT, 1);
    refuse(&good, -1, 1, CZ_ERR_ARGUMENT, 1);
    refuse(&good, 0, 0, CZ_ERR_ARGUMENT, 1);
    refuse(&good, 0, 4097, CZ_ERR_ARGUMENT, 1);
    assert_int_equal(cz_group_create_custom(&group, 0, 1, NULL, &endpoint, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_group_create_custom(&group, 0, 1, &good, NULL, NULL), CZ_ERR_ARGUMENT);
}
