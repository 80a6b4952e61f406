/* SPDX-License-Identifier: MIT */
/* Ranks on several machines that have some each: the bits that they give in one process, wherever
 * they are; and as few bytes between machines as that takes. */
#include "group/group_test.h"

enum { COUNT = 10007, MACHINES = 3 };

/* ---- where ranks are ---- */

static int in_blocks_of_two(int rank, int size)
{
    return rank / 2;
}

static int in_halves(int rank, int size)
{
    return rank >= size / 2;
}

static int first_alone(int rank, int size)
{
    return rank > 0;
}

static int last_alone(int rank, int size)
{
    return rank == size - 1;
}

static int by_chance(int rank, int size)
{
    return (int)(mix((uint64_t)(100 * size + rank)) % MACHINES);
}

static int (*const places[])(int, int) = {in_turn,     in_blocks_of_two, in_halves,
                                          first_alone, last_alone,       by_chance};
enum { PLACES = sizeof places / sizeof *places };

/* ---- the same bits as ranks of one process ---- */

typedef struct buffers {
    char data[4][COUNT * 8]; /* of one rank: what it got */
} buffers;

static buffers results[2][MANY_RANKS];

typedef struct which {
    int64_t count;
    cz_dtype dtype;
    cz_reduction reduction;
    buffers *to;
} which;

static size_t size_of(cz_dtype dtype)
{
    return dtype == CZ_U8                        ? 1
           : dtype == CZ_F16 || dtype == CZ_BF16 ? 2
           : dtype == CZ_F64 || dtype == CZ_I64  ? 8
                                                 : 4;
}

/* Numbers that a sum rounds; some are -0 in all ranks. */
static void set_values(char *data, cz_dtype dtype, int rank)
{
    for (int64_t i = 0; i < COUNT; i++) {
        const uint64_t word = mix((uint64_t)rank << 40 | (uint64_t)i);
        const float f32 = i % 50 == 0 ? -0.0f : (float)rough_number(word) / 1000;
        const double f64 = i % 50 == 0 ? -0.0 : rough_number(word);
        const uint16_t bf16 = cz__bf16_from_f32(f32), f16 = cz__f16_from_f32(f32);
        const void *from = dtype == CZ_F32    ? (const void *)&f32
                           : dtype == CZ_F64  ? (const void *)&f64
                           : dtype == CZ_BF16 ? (const void *)&bf16
                           : dtype == CZ_F16  ? (const void *)&f16
                                              : &word;
        memcpy(data + (size_t)i * size_of(dtype), from, size_of(dtype));
    }
}

static cz_status sums(cz_group *group, const which *what, buffers *to, char *input)
{
    const int me = cz_group_rank(group), size = cz_group_size(group);
    set_values(to->data[0], what->dtype, me);
    CZ_TRY(cz_all_reduce(group, to->data[0], what->count, what->dtype, what->reduction, NULL));
    set_values(input, what->dtype, me);
    CZ_TRY(cz_reduce_scatter(group, input, to->data[1], what->count / size, what->dtype,
                             what->reduction, NULL));
    CZ_TRY(cz_reduce(group, input, to->data[2], what->count, what->dtype, what->reduction, size - 1,
                     NULL));
    CZ_TRY(cz_all_gather(group, to->data[1], to->data[3], what->count / size, what->dtype, NULL));
    return cz_broadcast(group, to->data[2], what->count, what->dtype, size - 1, NULL);
}

static cz_status each_rank(cz_group *group, void *arg)
{
    const which *what = arg;
    char *input = calloc(COUNT, 8);
    CHECK(input, "no memory");
    const cz_status status = sums(group, what, &what->to[cz_group_rank(group)], input);
    free(input);
    return status;
}

static void run(int world, int place, const cz_group_options *options, which *what)
{
    outcome outcomes[MANY_RANKS];
    cz_group *groups[MANY_RANKS];
    what->to = results[place >= 0];
    memset(what->to, 0, sizeof *results);
    atomic_store(&window_message_bytes, 0);
    if (place >= 0) {
        window_place = places[place];
        window_part_bytes = 1 << 20;
        assert_ok(window_create(groups, world, options));
    } else {
        assert_ok(cz_group_create_threads(groups, world, options));
    }
    run_groups(world, groups, each_rank, what, outcomes);
    assert_all_ok(world, outcomes, "place %d", place);
}

static void compare(int world, int place, const which *what)
{
    for (int r = 0; r < world; r++)
        if (memcmp(&results[0][r], &results[1][r], sizeof results[0][r]) != 0)
            fail_msg("rank %d of %d, place %d, type %s, reduction %d: other bits", r, world, place,
                     cz_dtype_name(what->dtype), (int)what->reduction);
}

static void expect_same_bits(int world, size_t segment_bytes, which what)
{
    const cz_group_options options = {
        .size = sizeof options, .timeout_seconds = 60, .segment_bytes = segment_bytes};
    run(world, -1, &options, &what);
    for (int place = 0; place < PLACES; place++) {
        run(world, place, &options, &what);
        compare(world, place, &what);
    }
}

TEST(machines_give_the_bits_of_one_process)
{
    const int worlds[] = {2, 3, 5, 7, LARGEST_WORLD};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        expect_same_bits(worlds[i], 0, (which){COUNT, CZ_F32, CZ_SUM, NULL});
        expect_same_bits(worlds[i], 0, (which){COUNT, CZ_BF16, CZ_AVERAGE, NULL});
    }
}

TEST(types_and_reductions)
{
    for (int dtype = CZ_F32; dtype <= CZ_U8; dtype++)
        for (int reduction = CZ_SUM; reduction <= CZ_OR; reduction++) {
            const bool floating = dtype <= CZ_BF16;
            if (floating ? reduction < CZ_AND : reduction != CZ_AVERAGE)
                expect_same_bits(
                    5, 0, (which){COUNT / 10, (cz_dtype)dtype, (cz_reduction)reduction, NULL});
        }
}

TEST(segments)
{
    for (size_t bytes = 64; bytes <= 4096; bytes *= 8) {
        const int64_t count = COUNT * (int64_t)bytes / 4096;
        expect_same_bits(5, bytes, (which){count, CZ_F32, CZ_AVERAGE, NULL});
        expect_same_bits(3, bytes, (which){count, CZ_F16, CZ_SUM, NULL});
    }
}

/* ---- bytes between machines ---- */

static cz_status all_reduce(cz_group *group, void *arg)
{
    const int me = cz_group_rank(group);
    set_values(results[0][me].data[0], CZ_F32, me);
    return cz_all_reduce(group, results[0][me].data[0], COUNT, CZ_F32, CZ_SUM, NULL);
}

static long long bytes_of_all_reduce(int world, int (*place)(int, int), int blind)
{
    outcome outcomes[MANY_RANKS];
    cz_group *groups[MANY_RANKS];
    window_place = place;
    window_blind = blind;
    window_part_bytes = 1 << 20;
    atomic_store(&window_message_bytes, 0);
    assert_ok(window_create(groups, world, NULL));
    run_groups(world, groups, all_reduce, NULL, outcomes);
    window_blind = -1;
    assert_all_ok(world, outcomes, "%s", __func__);
    return atomic_load(&window_message_bytes);
}

/* The sums of two subtrees may need some bytes between them. */
static void expect_bytes(long long got, long long times)
{
    const long long all = times * COUNT * 4;
    if (got < all || got > all + all / 100)
        fail_msg("%lld bytes went by messages, expected %lld", got, all);
}

TEST(each_machine_sends_once)
{
    expect_bytes(bytes_of_all_reduce(4, in_halves, 0), 6); /* by messages: also within machines */
    expect_bytes(bytes_of_all_reduce(4, in_halves, -1), 2);
    expect_bytes(bytes_of_all_reduce(6, in_blocks_of_two, -1), 4);
    expect_bytes(bytes_of_all_reduce(4, in_turn, -1), 3); /* subtrees of one rank each */
    expect_bytes(bytes_of_all_reduce(5, last_alone, 0), 8);
}

/* ---- a rank that leaves while data move ---- */

static cz_status leave_midway(cz_group *group, void *arg)
{
    enum { SOME = 40 };
    const int leaver = *(const int *)arg, me = cz_group_rank(group);
    cz_work *work;
    set_values(results[0][me].data[0], CZ_F32, me);
    CZ_TRY(cz_all_reduce(group, results[0][me].data[0], COUNT, CZ_F32, CZ_SUM,
                         CZ_START("midway", &work)));
    cz_status status = CZ_OK;
    if (me == leaver)
        CHECK(comes(&window_messages, SOME), "no messages");
    else
        status = cz_work_wait(work);
    cz_work_destroy(&work);
    CHECK(status == CZ_OK || status == CZ_ERR_PEER, "%s", cz_status_name(status));
    if (me == leaver)
        return CZ_OK;
    CHECK(cz_barrier(group, NULL) == CZ_ERR_PEER, "a barrier without rank %d", leaver);
    return CZ_OK;
}

TEST(a_rank_leaves_midway)
{
    enum { WORLD = 5 };
    const cz_group_options options = {
        .size = sizeof options, .timeout_seconds = 60, .segment_bytes = 64};
    window_part_bytes = 1 << 20;
    for (int place = 0; place < PLACES; place++)
        for (int leaver = 0; leaver < WORLD; leaver += 2) {
            outcome outcomes[MANY_RANKS];
            cz_group *groups[MANY_RANKS];
            window_place = places[place];
            atomic_store(&window_messages, 0);
            assert_ok(window_create(groups, WORLD, &options));
            run_groups(WORLD, groups, leave_midway, &leaver, outcomes);
            assert_all_ok(WORLD, outcomes, "place %d", place);
        }
}

int main(void)
{
    setenv("CZ_TEST_RANKS", "nodes", 1);
    return cz_test_run(NULL, NULL);
}
