/* SPDX-License-Identifier: MIT */
/* The backend that docs/add-a-backend.md shows: the program there runs, every collective gives the
 * bits of thread ranks, and a rank that leaves or does not come is named. */
#include "group/group_test.h"

int program_main(void);
#define main program_main
#include "program.c"
#undef main

/* ---- ranks on boards ---- */

static cz_backend inlined(void)
{
    return board_backend;
}

/* Polled by the executor's thread instead. */
static cz_backend with_a_thread(void)
{
    cz_backend table = board_backend;
    table.inline_only = false;
    return table;
}

static void run_on_board(const cz_backend *table, int world, double timeout, cz_rank_main body,
                         void *arg, outcome *outcomes)
{
    cz_group *groups[MANY_RANKS];
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    board *b = board_create(world);
    assert_non_null(b);
    options.timeout_seconds = timeout;
    options.segment_bytes = 256;
    for (int r = 0; r < world; r++)
        assert_ok(cz_group_create_custom(&groups[r], r, world, table, &b->seats[r], &options));
    run_groups(world, groups, body, arg, outcomes);
}

static void expect_on_board(const cz_backend *table, int world, double timeout, cz_rank_main body,
                            void *arg)
{
    outcome outcomes[MANY_RANKS];
    run_on_board(table, world, timeout, body, arg, outcomes);
    for (int r = 0; r < world; r++)
        if (outcomes[r].status != CZ_OK)
            fail_msg("rank %d of %d: %s: %s", r, world, cz_status_name(outcomes[r].status),
                     outcomes[r].sentence);
}

/* ---- the same bits ---- */

enum { MOST = 400, RESULTS = 15 };

typedef struct results { /* of one rank, as bytes */
    double of[RESULTS][MANY_RANKS * MOST];
} results;

/* Every collective once, each result in a place of its own. */
static cz_status every_collective(cz_group *group, results *all)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group), root = size - 1;
    int64_t counts[MANY_RANKS], mine[MANY_RANKS];
    const int64_t n = 37;
    float *in = malloc(MANY_RANKS * MOST * sizeof *in);
    CHECK(in, "no memory");
    fill(CZ_F32, 50 + (uint64_t)rank, MANY_RANKS * MOST, in);
    for (int r = 0; r < size; r++)
        counts[r] = r % 3 * 100, mine[r] = rank % 3 * 100;
    memcpy(all->of[0], in, MOST * sizeof *in);
    memcpy(all->of[1], in, MOST * sizeof *in);
    cz_status s[RESULTS];
    void *out;
    size_t bytes;
    s[0] = cz_broadcast(group, all->of[0], MOST, CZ_F32, root, NULL);
    s[1] = cz_all_reduce(group, all->of[1], MOST, CZ_F32, CZ_AVERAGE, NULL);
    s[2] = cz_reduce(group, in, all->of[2], n, CZ_F32, CZ_PRODUCT, root, NULL);
    s[3] = cz_reduce_scatter(group, in, all->of[3], n, CZ_BF16, CZ_SUM, NULL);
    s[4] = cz_all_gather(group, in, all->of[4], n, CZ_F32, NULL);
    s[5] = cz_gather(group, in, all->of[5], MOST, CZ_U8, root, NULL);
    s[6] = cz_scatter(group, in, all->of[6], n, CZ_F32, root, NULL);
    s[7] = cz_all_to_all(group, in, all->of[7], n, CZ_F64, NULL);
    s[8] = cz_reduce_scatter_v(group, in, all->of[8], counts, CZ_I32, CZ_OR, NULL);
    s[9] = cz_all_gather_v(group, in, all->of[9], counts, CZ_F32, NULL);
    s[10] = cz_gather_v(group, in, all->of[10], counts, CZ_F32, root, NULL);
    s[11] = cz_scatter_v(group, in, all->of[11], counts, CZ_F32, root, NULL);
    s[12] = cz_broadcast_object(group, in, rank == root ? 999 : 0, root, &out, &bytes);
    if (s[12] == CZ_OK)
        memcpy(all->of[12], out, bytes);
    cz_object_free(out);
    s[13] = cz_all_to_all_v(group, in, counts, all->of[13], mine, CZ_F32, NULL);
    s[14] = cz_barrier(group, NULL);
    free(in);
    for (int i = 0; i < RESULTS; i++)
        CHECK(s[i] == CZ_OK, "operation %d: %s: %s", i, cz_status_name(s[i]), cz_last_error());
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    return every_collective(group, (results *)arg + cz_group_rank(group));
}

static void check_bits(const cz_backend *table, int world, const results *wanted, results *got)
{
    memset(got, 0, (size_t)world * sizeof *got);
    expect_on_board(table, world, 60, each_rank, got);
    for (int r = 0; r < world; r++)
        for (int i = 0; i < RESULTS; i++)
            if (memcmp(got[r].of[i], wanted[r].of[i], sizeof got[r].of[i]) != 0)
                fail_msg("rank %d of %d: operation %d has other bits than on threads", r, world, i);
}

TEST(the_bits_of_threads)
{
    const cz_backend tables[] = {inlined(), with_a_thread()};
    results *wanted = malloc((size_t)LARGEST_WORLD * sizeof *wanted);
    results *got = malloc((size_t)LARGEST_WORLD * sizeof *got);
    assert_true(wanted && got);
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        memset(wanted, 0, (size_t)world * sizeof *wanted);
        expect_ok(world, 0, each_rank, wanted);
        for (int t = 0; t < 2; t++)
            check_bits(&tables[t], world, wanted, got);
    }
    free(wanted);
    free(got);
}

TEST(the_program_runs)
{
    assert_int_equal(program_main(), 0);
}

/* ---- ranks that are missing ---- */

static cz_status each_rank_but_one(cz_group *group, void *arg)
{
    const int leaver = *(int *)arg;
    float values[200] = {0};
    outcome got = {CZ_OK, ""};
    char name[32];
    CZ_TRY(cz_all_reduce(group, values, 200, CZ_F32, CZ_SUM, NULL));
    if (cz_group_rank(group) == leaver)
        return CZ_OK;
    snprintf(name, sizeof name, "rank %d left", leaver);
    for (int i = 0; i < 2; i++) { /* it stays broken */
        note(&got, cz_all_reduce(group, values, 200, CZ_F32, CZ_SUM, CZ_LABEL("lonely")));
        CHECK(got.status == CZ_ERR_PEER && strstr(got.sentence, name) &&
                  strstr(got.sentence, "'lonely'"),
              "%s: %s", cz_status_name(got.status), got.sentence);
    }
    return CZ_OK;
}

TEST(a_rank_that_leaves)
{
    const cz_backend tables[] = {inlined(), with_a_thread()};
    for (int t = 0; t < 2; t++)
        for (int world = 2; world <= LARGEST_WORLD; world++)
            for (int leaver = 0; leaver < world; leaver++)
                expect_on_board(&tables[t], world, 60, each_rank_but_one, &leaver);
}

static cz_status each_rank_waits(cz_group *group, void *arg)
{
    atomic_int *told = arg;
    outcome got;
    const bool late = cz_group_rank(group) == 1;
    if (late && !comes(told, cz_group_size(group) - 1))
        return cz_fail(CZ_ERR_INTERNAL, "nobody timed out");
    note(&got, cz_barrier(group, CZ_LABEL("late")));
    atomic_fetch_add(told, 1);
    CHECK(got.status == CZ_ERR_TIMEOUT && strstr(got.sentence, "rank 1 did not come"), "%s: %s",
          cz_status_name(got.status), got.sentence);
    return CZ_OK;
}

TEST(a_rank_that_does_not_come)
{
    const cz_backend tables[] = {inlined(), with_a_thread()};
    for (int t = 0; t < 2; t++)
        for (int world = 2; world <= 4; world++) {
            atomic_int told = 0;
            expect_on_board(&tables[t], world, 0.3, each_rank_waits, &told);
        }
}

/* ---- what the page says of inline_only and split ---- */

static cz_status set_flag(cz_status status, void *context)
{
    *(bool *)context = true;
    return status;
}

static cz_status each_rank_inline(cz_group *group, void *arg)
{
    atomic_int *phase = arg;
    const int size = cz_group_size(group);
    int32_t value = 1;
    cz_work *work = NULL;
    bool ended = false; /* set on this thread, or TSan says so */
    CZ_TRY(cz_all_reduce(group, &value, 1, CZ_I32, CZ_SUM, CZ_START("still", &work)));
    CZ_TRY(cz_work_then(work, set_flag, &ended));
    atomic_fetch_add(phase, 1);
    CHECK(comes(phase, size), "not all have started");
    usleep(20 * 1000);
    CHECK(!ended, "it ended though nobody called");
    atomic_fetch_add(phase, 1);
    CHECK(comes(phase, 2 * size), "not all have looked");
    for (int tries = 0; tries < 60000 && !ended; tries++) {
        CZ_TRY(cz_progress(group));
        usleep(1000);
    }
    CHECK(ended, "progress does not move it");
    CZ_TRY(cz_work_wait(work));
    cz_work_destroy(&work);
    CHECK(value == size, "the sum is %d", value);
    cz_group *sub = group;
    CHECK(cz_group_split(group, 0, 0, &sub) == CZ_ERR_UNSUPPORTED && !sub, "a sub-group");
    return cz_barrier(group, NULL);
}

TEST(nothing_moves_by_itself)
{
    const cz_backend table = inlined();
    for (int world = 2; world <= 5; world++) {
        atomic_int phase = 0;
        expect_on_board(&table, world, 60, each_rank_inline, &phase);
    }
}
