/* SPDX-License-Identifier: MIT */
/* Every collective against a plain oracle: all types, reductions, world sizes and awkward counts,
 * in place and out of place, at unaligned addresses, in one segment and in many. */
#include "group/group_bench.h"

static const cz_dtype dtypes[] = {CZ_F32, CZ_F64, CZ_F16, CZ_BF16, CZ_I32, CZ_I64, CZ_U8};
enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

static cz_status check_all_reduce(bench *b, cz_reduction reduction)
{
    guarded memory;
    void *buffer = guarded_open(&memory, b->bytes, b->dtype);
    plain_reduce(b->dtype, reduction, b->size, (const void *const *)b->inputs, b->count, b->wanted);
    memcpy(buffer, b->inputs[b->rank], b->bytes);
    cz_status status = cz_all_reduce(b->group, buffer, b->count, b->dtype, reduction, NULL);
    THEN(compare(b, "all_reduce", buffer, b->wanted, b->bytes));
    CZ_TRY(close_guarded(b, "all_reduce", &memory));
    return status;
}

/* In place the result is block `rank` of the input; either way the other blocks are left alone. */
static cz_status check_reduce_scatter(bench *b, cz_reduction reduction, bool in_place)
{
    guarded in, out;
    const size_t whole = b->bytes * (size_t)b->size, mine = b->bytes * (size_t)b->rank;
    char *input = guarded_open(&in, whole, b->dtype),
         *output = guarded_open(&out, b->bytes, b->dtype);
    char *result = in_place ? input + mine : output;
    plain_reduce(b->dtype, reduction, b->size, (const void *const *)b->inputs, b->count * b->size,
                 b->wanted);
    memcpy(input, b->inputs[b->rank], whole);
    cz_status status =
        cz_reduce_scatter(b->group, input, result, b->count, b->dtype, reduction, NULL);
    THEN(compare(b, "reduce_scatter", result, (char *)b->wanted + mine, b->bytes));
    if (in_place)
        memcpy(result, (char *)b->inputs[b->rank] + mine, b->bytes);
    THEN(compare(b, "input of reduce_scatter", input, b->inputs[b->rank], whole));
    CZ_TRY(close_guarded(b, "reduce_scatter (input)", &in));
    CZ_TRY(close_guarded(b, "reduce_scatter (output)", &out));
    return status;
}

static cz_status check_all_gather(bench *b, bool in_place)
{
    guarded in, out;
    const size_t whole = b->bytes * (size_t)b->size, mine = b->bytes * (size_t)b->rank;
    char *input = guarded_open(&in, b->bytes, b->dtype),
         *output = guarded_open(&out, whole, b->dtype);
    char *source = in_place ? output + mine : input;
    for (int r = 0; r < b->size; r++)
        memcpy((char *)b->wanted + b->bytes * (size_t)r, b->inputs[r], b->bytes);
    memcpy(source, b->inputs[b->rank], b->bytes);
    cz_status status = cz_all_gather(b->group, source, output, b->count, b->dtype, NULL);
    THEN(compare(b, "all_gather", output, b->wanted, whole));
    THEN(compare(b, "input of all_gather", source, b->inputs[b->rank], b->bytes));
    CZ_TRY(close_guarded(b, "all_gather (input)", &in));
    CZ_TRY(close_guarded(b, "all_gather (output)", &out));
    return status;
}

static cz_status check_broadcast(bench *b, int root)
{
    guarded memory;
    void *buffer = guarded_open(&memory, b->bytes, b->dtype);
    memcpy(buffer, b->inputs[b->rank], b->bytes);
    cz_status status = cz_broadcast(b->group, buffer, b->count, b->dtype, root, NULL);
    THEN(compare(b, "broadcast", buffer, b->inputs[root], b->bytes));
    CZ_TRY(close_guarded(b, "broadcast", &memory));
    return status;
}

static cz_status check_all(bench *b)
{
    for (int reduction = CZ_SUM; reduction <= CZ_OR; reduction++) {
        if (!is_defined((cz_reduction)reduction, b->dtype))
            continue;
        CZ_TRY(check_all_reduce(b, (cz_reduction)reduction));
        CZ_TRY(check_reduce_scatter(b, (cz_reduction)reduction, false));
        CZ_TRY(check_reduce_scatter(b, (cz_reduction)reduction, true));
    }
    CZ_TRY(check_all_gather(b, false));
    CZ_TRY(check_all_gather(b, true));
    CZ_TRY(check_broadcast(b, (int)(b->count % b->size)));
    CZ_TRY(check_broadcast(b, b->size - 1));
    return cz_barrier(b->group, NULL);
}

static cz_status each_rank(cz_group *group, void *arg)
{
    return bench_each(group, arg, dtypes, DTYPE_COUNT, check_all);
}

TEST(counts_beside_multiples_of_16)
{
    static int64_t counts[] = {0, 1, 3, 15, 16, 17, 31, 97, -1};
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank, counts);
}

TEST(many_segments)
{
    static int64_t counts[] = {257, 1000, -1};
    static const size_t segments[] = {64, 128, 256, 1024};
    for (int world = 1; world <= LARGEST_WORLD; world++)
        for (int s = world % 2; s < 4; s += SLOW ? 4 : 2) /* every other one, in turn */
            expect_ok(world, segments[s], each_rank, counts);
}

/* Several of the segments that programs get, of f32 and of u8, and a last one that is shorter. */
static cz_status each_rank_large(cz_group *group, void *arg)
{
    for (int d = 0; d < 2; d++) {
        bench b;
        bench_open(&b, group, d ? CZ_U8 : CZ_F32,
                   d ? 600011 : 3 * 65536 * cz_group_size(group) + 7);
        cz_status status = check_all_reduce(&b, CZ_SUM);
        THEN(check_broadcast(&b, 0));
        if (status == CZ_OK && d)
            status = check_reduce_scatter(&b, CZ_MAX, false);
        if (status == CZ_OK && d)
            status = check_all_gather(&b, true);
        bench_close(&b);
        CZ_TRY(status);
    }
    return CZ_OK;
}

TEST(default_segments)
{
    for (int world = 1; world <= 3; world++)
        expect_ok(world, 0, each_rank_large, NULL);
}

static cz_status each_self(cz_group *group, void *arg)
{
    bench b;
    CHECK(strcmp(backend_of(group), "self") == 0, "backend is %s", backend_of(group));
    bench_open(&b, group, CZ_F32, 100);
    const cz_status status = check_all(&b);
    bench_close(&b);
    return status;
}

TEST(a_group_of_one)
{
    cz_group *group = NULL;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_int_equal(cz_group_rank(group), 0);
    assert_int_equal(cz_group_size(group), 1);
    const cz_status status = each_self(group, NULL);
    cz_group_destroy(&group);
    assert_null(group);
    if (status != CZ_OK)
        fail_msg("%s", cz_last_error());
    cz_group_destroy(&group);
    cz_group_destroy(NULL);
}

/* On rank 1 alone input and output overlap in a way that is not allowed: all ranks are told. */
static cz_status each_overlapping(cz_group *group, void *arg)
{
    enum { RANKS = 3, COUNT = 10 };
    static const int64_t counts[RANKS] = {COUNT, COUNT, COUNT};
    float one[(RANKS + 1) * COUNT] = {0}, two[(RANKS + 1) * COUNT];
    float *other = cz_group_rank(group) == 1 ? one + 5 : two;
#define REFUSE(name, ...)                                                                          \
    CZ_TRY(expect(cz_##name(group, one, __VA_ARGS__), CZ_ERR_ARGUMENT,                             \
                  "rank 1: " #name ": input and output share memory"))
    REFUSE(all_gather, other, COUNT, CZ_F32, NULL);
    REFUSE(reduce_scatter, other, COUNT, CZ_F32, CZ_SUM, NULL);
    REFUSE(reduce, other, COUNT, CZ_F32, CZ_SUM, 1, NULL);
    REFUSE(gather, other, COUNT, CZ_F32, 1, NULL);
    REFUSE(scatter, other, COUNT, CZ_F32, 1, NULL);
    REFUSE(all_to_all, other, COUNT, CZ_F32, NULL);
    REFUSE(all_gather_v, other, counts, CZ_F32, NULL);
    REFUSE(reduce_scatter_v, other, counts, CZ_F32, CZ_SUM, NULL);
    REFUSE(gather_v, other, counts, CZ_F32, 1, NULL);
    REFUSE(scatter_v, other, counts, CZ_F32, 1, NULL);
    REFUSE(all_to_all_v, counts, other, counts, CZ_F32, NULL);
#undef REFUSE
    return cz_barrier(group, NULL);
}

TEST(buffers_that_overlap_are_refused_on_all_ranks)
{
    assert_ranks_ok(3, each_overlapping, NULL);
}

TEST(no_group)
{
    assert_int_equal(cz_barrier(NULL, NULL), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "group is NULL"));
    assert_int_equal(cz_group_rank(NULL), -1);
    assert_int_equal(cz_group_size(NULL), 0);
}

TEST(bad_options_make_no_group)
{
    cz_group *groups[2] = {NULL, NULL};
    enum { SIZE = sizeof(cz_group_options) };
    const cz_group_options bad[] = {{.size = SIZE, .timeout_seconds = -1},
                                    {.size = SIZE, .warn_seconds = -1},
                                    {.size = SIZE, .segment_bytes = 100},
                                    {.size = SIZE, .segment_bytes = (size_t)2 << 30},
                                    {.size = 0},
                                    {.size = SIZE, .timeout_seconds = 0.0 / 0.0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(create_ranks(groups, 2, &bad[i]), CZ_ERR_ARGUMENT);
        assert_int_equal(cz_group_create_self(groups, &bad[i]), CZ_ERR_ARGUMENT);
        assert_null(groups[0]);
    }
    assert_int_equal(cz_group_create_threads(groups, 0, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_group_create_threads(groups, 4097, NULL), CZ_ERR_ARGUMENT);
}
