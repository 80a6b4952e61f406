/* SPDX-License-Identifier: MIT */
/* Ranks that do not come: a warning first, then the group breaks on every rank with a sentence that
 * names operation, label and exactly the missing ranks. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "group/group_test.h"

enum { COUNT = 1000, PATTERN = 0x3c };

/* Ranks that come must make it within the timeout, on a busy machine and under a sanitizer too. */
static const double timeout = SLOW ? 2 : 1;

/* ---- the log ---- */

typedef struct lines {
    pthread_mutex_t lock;
    const char *operation; /* whose lines are kept */
    atomic_int count;
    char text[MANY_RANKS][256];
} lines;

static void keep_line(cz_log_level level, const char *line, void *context)
{
    lines *log = context;
    pthread_mutex_lock(&log->lock);
    if (strstr(line, "waits in") && strstr(line, log->operation) && log->count < MANY_RANKS) {
        snprintf(log->text[log->count], sizeof log->text[0], "%s", line);
        log->count++;
    }
    pthread_mutex_unlock(&log->lock);
}

static void log_open(lines *log, const char *operation)
{
    *log = (lines){.lock = PTHREAD_MUTEX_INITIALIZER, .operation = operation};
    cz_log_set_level(CZ_LOG_WARN);
    cz_log_set_sink(keep_line, log);
}

static int count_lines(const lines *log, const char *word)
{
    int count = 0;
    for (int i = 0; i < log->count; i++)
        count += strstr(log->text[i], word) != NULL;
    return count;
}

/* ---- ranks that never come ---- */

typedef struct party {
    unsigned late;    /* bit r: rank r comes late */
    atomic_int ready; /* ranks about to come in time */
    atomic_int gone;  /* ranks that gave up */
    int completed;    /* operations before */
} party;

/* The others come together, the late ones when all others have given up. */
static cz_status each_rank(cz_group *group, void *arg)
{
    party *p = arg;
    const int size = cz_group_size(group), in_time = size - __builtin_popcount(p->late);
    const bool late = p->late >> cz_group_rank(group) & 1;
    float values[COUNT];
    for (int i = 0; i < p->completed; i++)
        CZ_TRY(cz_barrier(group, NULL));
    memset(values, PATTERN, sizeof values);
    atomic_fetch_add(&p->ready, !late);
    CHECK(comes(late ? &p->gone : &p->ready, in_time), "the other ranks do not come");
    const cz_status status = cz_all_reduce(group, values, COUNT, CZ_F32, CZ_SUM, CZ_LABEL("b"));
    atomic_fetch_add(&p->gone, 1);
    if (status == CZ_OK)
        return CZ_OK;
    const cz_status again = cz_barrier(group, NULL);
    CHECK(comes(&p->gone, size), "some rank hangs"); /* it may still look at memory of this one */
    for (size_t i = 0; i < sizeof values; i++)
        if (((unsigned char *)values)[i] != PATTERN || again != status)
            return cz_fail(CZ_ERR_INTERNAL, "the buffer was written, or the group works again");
    return status;
}

static void expect_missing(int world, unsigned late, const char *who, int completed)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    outcome outcomes[MANY_RANKS];
    lines log;
    char wanted[96];
    party p = {.late = late, .completed = completed};
    options.timeout_seconds = timeout;
    options.warn_seconds = timeout / 2;
    log_open(&log, "all_reduce 'b'");
    const double begin = cz__seconds();
    run_ranks(world, &options, each_rank, &p, outcomes);
    assert_true(cz__seconds() - begin >= timeout);
    cz_log_set_sink(NULL, NULL);
    snprintf(wanted, sizeof wanted, "all_reduce 'b' (operation %d): %s did not come within %g s",
             completed, who, timeout);
    for (int r = 0; r < world; r++) {
        assert_int_equal(outcomes[r].status, CZ_ERR_TIMEOUT);
        assert_string_equal(outcomes[r].sentence, wanted);
    }
    snprintf(wanted, sizeof wanted, "waits in all_reduce 'b' (operation %d) for %s,", completed,
             who);
    assert_in_range(log.count, 1, world - __builtin_popcount(late)); /* at most one line each */
    assert_int_equal(count_lines(&log, wanted), log.count);
}

TEST(one_is_missing)
{
    expect_missing(4, 1u << 2, "rank 2", 0);
    expect_missing(2, 1u << 0, "rank 0", 3);
    expect_missing(5, 1u << 4, "rank 4", 1);
}

TEST(several_are_missing)
{
    expect_missing(4, 1u << 1 | 1u << 3, "ranks 1, 3", 0);
    expect_missing(5, 1u << 0 | 1u << 1 | 1u << 4, "ranks 0, 1, 4", 2);
    expect_missing(3, 1u << 0 | 1u << 1, "ranks 0, 1", 0);
}

/* Late, but in time: a line on each rank that waits, once, and everything goes on. */
static cz_status each_rank_late(cz_group *group, void *arg)
{
    lines *log = arg;
    float value = 1;
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 2)
        CHECK(comes(&log->count, 3), "not every rank warned");
    CZ_TRY(cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, CZ_LABEL("b")));
    CHECK(value == 4, "the sum is %g", value);
    return cz_barrier(group, NULL);
}

TEST(a_stall_is_reported_once_with_operation_and_missing_rank)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    outcome outcomes[MANY_RANKS];
    lines log;
    char wanted[96];
    options.timeout_seconds = 60;
    options.warn_seconds = timeout;
    log_open(&log, "all_reduce 'b'");
    run_ranks(4, &options, each_rank_late, &log, outcomes);
    cz_log_set_sink(NULL, NULL);
    assert_all_ok(4, outcomes, "%s", __func__);
    for (int r = 0; r < 4; r++) {
        snprintf(wanted, sizeof wanted, "rank %d waits in all_reduce 'b' (operation 1) for rank 2,",
                 r);
        assert_int_equal(count_lines(&log, wanted), r != 2);
    }
}

/* ---- nobody waits, or somebody only polls ---- */

static cz_status note_status(cz_status status, void *context)
{
    atomic_store((atomic_int *)context, (int)status);
    return status;
}

static cz_status each_rank_unwatched(cz_group *group, void *arg)
{
    atomic_int *seen = arg; /* one per rank */
    const int rank = cz_group_rank(group);
    cz_work *work;
    if (rank == 1) {
        while (atomic_load(&seen[0]) == CZ_OK || atomic_load(&seen[2]) == CZ_OK)
            usleep(1000);
        return CZ_OK;
    }
    CZ_TRY(cz_barrier(group, CZ_START("unwatched", &work)));
    CZ_TRY(cz_work_then(work, note_status, &seen[rank]));
    for (bool done = false; rank == 2 && !done; usleep(500))
        CZ_TRY(cz_work_test(work, &done));
    while (atomic_load(&seen[rank]) == CZ_OK)
        usleep(1000);
    cz_work_destroy(&work);
    return CZ_OK;
}

TEST(nobody_waits)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    outcome outcomes[MANY_RANKS];
    atomic_int seen[3] = {CZ_OK, CZ_OK, CZ_OK};
    options.timeout_seconds = timeout;
    run_ranks(3, &options, each_rank_unwatched, seen, outcomes);
    assert_all_ok(3, outcomes, "%s", __func__);
    assert_int_equal(atomic_load(&seen[0]), CZ_ERR_TIMEOUT);
    assert_int_equal(atomic_load(&seen[2]), CZ_ERR_TIMEOUT);
}

/* A transfer may take longer than the timeout: everybody came, and it moves on. */
static cz_status each_rank_long(cz_group *group, void *arg)
{
    const int64_t count = *(const int64_t *)arg;
    float *values = calloc((size_t)count, sizeof *values);
    CHECK(values, "no memory for %" PRId64 " values", count);
    const cz_status status = cz_all_reduce(group, values, count, CZ_F32, CZ_SUM, NULL);
    free(values);
    return status;
}

TEST(a_long_transfer_is_not_late)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    outcome outcomes[MANY_RANKS];
    double seconds = 0;
    options.timeout_seconds = timeout;
    options.segment_bytes = 64;
    for (int64_t count = 1 << 18; seconds <= timeout; count *= 2) { /* until it is long enough */
        const double begin = cz__seconds();
        run_ranks(2, &options, each_rank_long, &count, outcomes);
        seconds = cz__seconds() - begin;
        assert_all_ok(2, outcomes, "%s", __func__);
    }
}

/* A timeout beyond all clocks, after the warning: the rank that waits sleeps, it does not spin. */
static cz_status each_rank_patient(cz_group *group, void *arg)
{
    lines *log = arg;
    if (cz_group_rank(group) == 1) {
        CHECK(comes(&log->count, 1), "rank 0 does not warn");
        const clock_t begin = clock();
        usleep(500 * 1000);
        const double busy = (double)(clock() - begin) / CLOCKS_PER_SEC;
        CHECK(busy < 0.25, "%g s of processor time while both ranks sleep", busy);
    }
    return cz_barrier(group, NULL);
}

TEST(endless_patience)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    outcome outcomes[MANY_RANKS];
    static const double patience[] = {1e300, 1.0 / 0.0, 1e12};
    lines log;
    for (int i = 0; i < 3; i++) {
        options.timeout_seconds = patience[i];
        options.warn_seconds = 0.05;
        log_open(&log, "barrier");
        run_ranks(2, &options, each_rank_patient, &log, outcomes);
        cz_log_set_sink(NULL, NULL);
        assert_all_ok(2, outcomes, "%s", __func__);
        assert_int_equal(count_lines(&log, "rank 0 waits in"), 1);
    }
}
