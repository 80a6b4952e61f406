/* SPDX-License-Identifier: MIT */
/* Counts and displacements beyond 2^31: which bytes go where, found out without moving any. */
#include <limits.h>

#include "group/mock_transport.h"

typedef struct question {
    cz_group *groups[MOCK_RANKS];
    int64_t count; /* elements */
    cz_dtype dtype;
    int64_t counts[MOCK_RANKS]; /* of the operations that have one for each rank */
} question;

static int64_t bytes_of(const question *q, int64_t elements)
{
    return elements * (int64_t)cz_dtype_size(q->dtype);
}

static int64_t before(const question *q, int rank)
{
    int64_t sum = 0;
    for (int r = 0; r < rank; r++)
        sum += q->counts[r];
    return sum;
}

static void expect_flow(const flow *f, const char *what, int to, int from, int64_t from_begin,
                        int64_t to_begin, int64_t bytes)
{
    if (f->bytes != bytes || (bytes && (f->from_begin != from_begin || f->to_begin != to_begin)))
        fail_msg("%s, rank %d from %d: %" PRId64 " bytes of %" PRId64 " on to %" PRId64
                 ", wanted %" PRId64 " of %" PRId64 " on to %" PRId64,
                 what, to, from, f->bytes, f->from_begin, f->to_begin, bytes, from_begin, to_begin);
}

/* Start a collective on each rank; `in`, `out`, `options` and `r` may be used. */
#define RUN(call)                                                                                  \
    do {                                                                                           \
        cz_work *works[MOCK_RANKS];                                                                \
        mock_forget();                                                                             \
        for (int r = 0; r < MOCK_RANKS; r++) {                                                     \
            cz_group *group = q->groups[r];                                                        \
            char *in = the_mock.input[r], *out = the_mock.output[r];                               \
            const cz_operation_options *options = CZ_START(#call, &works[r]);                      \
            (void)in, (void)out;                                                                   \
            assert_int_equal((call), CZ_OK);                                                       \
        }                                                                                          \
        mock_finish(q->groups, works);                                                             \
    } while (0)

static void check_broadcast(question *q)
{
    const int root = 1;
    RUN(cz_broadcast(group, in, q->count, q->dtype, root, options));
    for (int to = 0; to < MOCK_RANKS; to++)
        for (int from = 0; from < MOCK_RANKS; from++)
            expect_flow(&the_mock.moved[to][from], "broadcast", to, from, 0, 0,
                        from == root && to != root ? bytes_of(q, q->count) : 0);
}

/* The slices of the ranks are one after the other, reduced in place, and then sent to all
 * others. */
static void check_all_reduce(question *q)
{
    int64_t begin = 0;
    RUN(cz_all_reduce(group, in, q->count, q->dtype, CZ_SUM, options));
    for (int owner = 0; owner < MOCK_RANKS; owner++) {
        const flow *slice = &the_mock.reduced[owner];
        const int64_t bytes = slice->bytes, whole = bytes_of(q, q->count);
        assert_true(bytes >= whole / MOCK_RANKS - 64 && bytes <= whole / MOCK_RANKS + 64);
        expect_flow(slice, "all_reduce", owner, owner, begin, begin, bytes);
        for (int to = 0; to < MOCK_RANKS; to++)
            expect_flow(&the_mock.moved[to][owner], "all_reduce", to, owner, begin, begin,
                        to == owner ? 0 : bytes);
        begin += bytes;
    }
    assert_true(begin == bytes_of(q, q->count));
}

static void check_reduce_scatter(question *q)
{
    const int64_t block = bytes_of(q, q->count);
    RUN(cz_reduce_scatter(group, in, out, q->count, q->dtype, CZ_MAX, options));
    for (int r = 0; r < MOCK_RANKS; r++)
        expect_flow(&the_mock.reduced[r], "reduce_scatter", r, r, r * block, 0, block);
}

static void check_reduce(question *q)
{
    RUN(cz_reduce(group, in, out, q->count, q->dtype, CZ_SUM, 2, options));
    for (int r = 0; r < MOCK_RANKS; r++)
        expect_flow(&the_mock.reduced[r], "reduce", r, r, 0, 0, r == 2 ? bytes_of(q, q->count) : 0);
}

static void check_all_gather(question *q)
{
    const int64_t block = bytes_of(q, q->count);
    RUN(cz_all_gather(group, in, out, q->count, q->dtype, options));
    for (int to = 0; to < MOCK_RANKS; to++)
        for (int from = 0; from < MOCK_RANKS; from++)
            expect_flow(&the_mock.moved[to][from], "all_gather", to, from, 0, from * block, block);
}

static void check_all_to_all(question *q)
{
    const int64_t block = bytes_of(q, q->count);
    RUN(cz_all_to_all(group, in, out, q->count, q->dtype, options));
    for (int to = 0; to < MOCK_RANKS; to++)
        for (int from = 0; from < MOCK_RANKS; from++)
            expect_flow(&the_mock.moved[to][from], "all_to_all", to, from, to * block, from * block,
                        block);
}

static void check_gather_and_scatter(question *q)
{
    const int64_t block = bytes_of(q, q->count);
    RUN(cz_gather(group, in, out, q->count, q->dtype, 0, options));
    for (int from = 0; from < MOCK_RANKS; from++)
        expect_flow(&the_mock.moved[0][from], "gather", 0, from, 0, from * block, block);
    RUN(cz_scatter(group, in, out, q->count, q->dtype, 0, options));
    for (int to = 0; to < MOCK_RANKS; to++)
        expect_flow(&the_mock.moved[to][0], "scatter", to, 0, to * block, 0, block);
}

static void check_listed(question *q)
{
    RUN(cz_all_gather_v(group, in, out, q->counts, q->dtype, options));
    for (int to = 0; to < MOCK_RANKS; to++)
        for (int from = 0; from < MOCK_RANKS; from++)
            expect_flow(&the_mock.moved[to][from], "all_gather_v", to, from, 0,
                        bytes_of(q, before(q, from)), bytes_of(q, q->counts[from]));
    RUN(cz_reduce_scatter_v(group, in, out, q->counts, q->dtype, CZ_SUM, options));
    for (int r = 0; r < MOCK_RANKS; r++)
        expect_flow(&the_mock.reduced[r], "reduce_scatter_v", r, r, bytes_of(q, before(q, r)), 0,
                    bytes_of(q, q->counts[r]));
    RUN(cz_gather_v(group, in, out, q->counts, q->dtype, 2, options));
    for (int from = 0; from < MOCK_RANKS; from++)
        expect_flow(&the_mock.moved[2][from], "gather_v", 2, from, 0, bytes_of(q, before(q, from)),
                    bytes_of(q, q->counts[from]));
    RUN(cz_scatter_v(group, in, out, q->counts, q->dtype, 1, options));
    for (int to = 0; to < MOCK_RANKS; to++)
        expect_flow(&the_mock.moved[to][1], "scatter_v", to, 1, bytes_of(q, before(q, to)), 0,
                    bytes_of(q, q->counts[to]));
}

/* Rank r sends counts[(r + to) % 3] elements to rank `to`. */
static void check_all_to_all_v(question *q)
{
    int64_t lists[MOCK_RANKS][MOCK_RANKS]; /* the same from both sides */
    for (int r = 0; r < MOCK_RANKS; r++)
        for (int to = 0; to < MOCK_RANKS; to++)
            lists[r][to] = q->counts[(r + to) % MOCK_RANKS];
    RUN(cz_all_to_all_v(group, in, lists[r], out, lists[r], q->dtype, options));
    for (int to = 0; to < MOCK_RANKS; to++)
        for (int from = 0; from < MOCK_RANKS; from++) {
            int64_t from_begin = 0, to_begin = 0;
            for (int r = 0; r < to; r++)
                from_begin += lists[from][r];
            for (int r = 0; r < from; r++)
                to_begin += lists[to][r];
            expect_flow(&the_mock.moved[to][from], "all_to_all_v", to, from,
                        bytes_of(q, from_begin), bytes_of(q, to_begin),
                        bytes_of(q, lists[from][to]));
        }
}

static void check_all(int64_t count, cz_dtype dtype, size_t segment_bytes)
{
    question q = {.count = count, .dtype = dtype, .counts = {count, 7, count / 2 + 1}};
    const size_t bytes = (size_t)bytes_of(&q, MOCK_RANKS * count) + 64;
    if (!mock_open(q.groups, bytes, segment_bytes)) {
        mock_close(q.groups);
        print_message("no %zu bytes of addresses\n", bytes);
        skip();
    }
    check_broadcast(&q);
    check_all_reduce(&q);
    check_reduce_scatter(&q);
    check_reduce(&q);
    check_all_gather(&q);
    check_all_to_all(&q);
    check_gather_and_scatter(&q);
    check_listed(&q);
    check_all_to_all_v(&q);
    mock_close(q.groups);
}

/* Are the mocks able to see anything? Small counts, many segments. */
TEST(the_mock_sees_what_small_counts_move)
{
    static const int64_t counts[] = {0, 1, 63, 64, 65, 1000, 4097};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_all(counts[i], CZ_U8, 64);
        check_all(counts[i], CZ_F32, 128);
    }
}

/* Bytes beside 2^31 and beyond 2^32; displacements are up to three times as many. */
TEST(counts_beyond_2_to_the_31_are_cut_into_parts)
{
    static const int64_t counts[] = {INT_MAX - 1, INT_MAX, (int64_t)INT_MAX + 1,
                                     3 * (INT64_C(1) << 31)};
    for (int i = 0; i < 4; i++)
        check_all(counts[i], CZ_U8, (size_t)1 << (20 + 3 * (i % 2)));
}

/* Elements beside 2^31 of more than a byte, in large segments and in those that programs get. */
TEST(bytes_beyond_2_to_the_31_are_cut_into_parts)
{
    check_all((int64_t)INT_MAX + 2, CZ_BF16, (size_t)1 << 23);
    check_all((int64_t)INT_MAX / 2 + 3, CZ_F64, SLOW ? (size_t)1 << 22 : 0);
}

/* What cannot be a number of bytes is refused. */
TEST(impossible_counts)
{
    static const int64_t counts[] = {INT64_MAX, INT64_MAX / 8, INT64_MAX / 8 / 3, -1, INT64_MIN};
    cz_group *group = NULL;
    char byte[8] = {0};
    assert_ok(cz_group_create_self(&group, NULL));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const int64_t n = counts[i];
        assert_int_equal(cz_broadcast(group, byte, n, CZ_F64, 0, NULL), CZ_ERR_ARGUMENT);
        assert_int_equal(cz_all_reduce(group, byte, n, CZ_F64, CZ_SUM, NULL), CZ_ERR_ARGUMENT);
        assert_int_equal(cz_all_gather(group, byte, byte, n, CZ_F64, NULL), CZ_ERR_ARGUMENT);
        assert_int_equal(cz_all_to_all(group, byte, byte, n, CZ_F64, NULL), CZ_ERR_ARGUMENT);
        assert_int_equal(cz_gather_v(group, byte, byte, &n, CZ_F64, 0, NULL), CZ_ERR_ARGUMENT);
        assert_int_equal(cz_all_to_all_v(group, byte, &n, byte, &n, CZ_F64, NULL), CZ_ERR_ARGUMENT);
    }
    cz_group_destroy(&group);
}
