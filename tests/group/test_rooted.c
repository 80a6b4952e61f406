/* SPDX-License-Identifier: MIT */
/* Reduce, gather, scatter and all-to-all against plain oracles: every root, in place and out of
 * place, NULL where a rank's buffer is not looked at. */
#include "group/group_bench.h"

static const cz_dtype dtypes[] = {CZ_F32, CZ_BF16, CZ_F64, CZ_I64, CZ_U8};
enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

static cz_status check_reduce(bench *b, cz_reduction reduction, int root, bool in_place)
{
    guarded in, out;
    const bool here = b->rank == root;
    char *input = guarded_open(&in, b->bytes, b->dtype);
    char *output = guarded_open(&out, b->bytes, b->dtype);
    char *result = !here ? NULL : in_place ? input : output;
    plain_reduce(b->dtype, reduction, b->size, (const void *const *)b->inputs, b->count, b->wanted);
    memcpy(input, b->inputs[b->rank], b->bytes);
    cz_status status =
        cz_reduce(b->group, input, result, b->count, b->dtype, reduction, root, NULL);
    if (status == CZ_OK && here)
        status = compare(b, "reduce", result, b->wanted, b->bytes);
    if (status == CZ_OK && !(here && in_place))
        status = compare(b, "input of reduce", input, b->inputs[b->rank], b->bytes);
    CZ_TRY(close_guarded(b, "reduce (input)", &in));
    CZ_TRY(close_guarded(b, "reduce (output)", &out));
    return status;
}

static cz_status check_gather(bench *b, int root, bool in_place)
{
    guarded in, out;
    const bool here = b->rank == root;
    const size_t whole = b->bytes * (size_t)b->size, mine = b->bytes * (size_t)b->rank;
    char *input = guarded_open(&in, b->bytes, b->dtype);
    char *output = guarded_open(&out, whole, b->dtype);
    char *source = here && in_place ? output + mine : input;
    for (int r = 0; r < b->size; r++)
        memcpy((char *)b->wanted + b->bytes * (size_t)r, b->inputs[r], b->bytes);
    memcpy(source, b->inputs[b->rank], b->bytes);
    cz_status status =
        cz_gather(b->group, source, here ? output : NULL, b->count, b->dtype, root, NULL);
    if (status == CZ_OK && here)
        status = compare(b, "gather", output, b->wanted, whole);
    THEN(compare(b, "input of gather", source, b->inputs[b->rank], b->bytes));
    CZ_TRY(close_guarded(b, "gather (input)", &in));
    CZ_TRY(close_guarded(b, "gather (output)", &out));
    return status;
}

static cz_status check_scatter(bench *b, int root, bool in_place)
{
    guarded in, out;
    const bool here = b->rank == root;
    const size_t whole = b->bytes * (size_t)b->size, mine = b->bytes * (size_t)b->rank;
    char *input = guarded_open(&in, whole, b->dtype);
    char *output = guarded_open(&out, b->bytes, b->dtype);
    char *result = here && in_place ? input + mine : output;
    memcpy(input, b->inputs[root], whole);
    cz_status status =
        cz_scatter(b->group, here ? input : NULL, result, b->count, b->dtype, root, NULL);
    THEN(compare(b, "scatter", result, (char *)b->inputs[root] + mine, b->bytes));
    THEN(compare(b, "input of scatter", input, b->inputs[root], whole));
    CZ_TRY(close_guarded(b, "scatter (input)", &in));
    CZ_TRY(close_guarded(b, "scatter (output)", &out));
    return status;
}

static cz_status check_all_to_all(bench *b)
{
    guarded in, out;
    const size_t whole = b->bytes * (size_t)b->size, mine = b->bytes * (size_t)b->rank;
    char *input = guarded_open(&in, whole, b->dtype), *output = guarded_open(&out, whole, b->dtype);
    memcpy(input, b->inputs[b->rank], whole);
    for (int r = 0; r < b->size; r++)
        memcpy((char *)b->wanted + b->bytes * (size_t)r, (char *)b->inputs[r] + mine, b->bytes);
    cz_status status = cz_all_to_all(b->group, input, output, b->count, b->dtype, NULL);
    THEN(compare(b, "all_to_all", output, b->wanted, whole));
    THEN(compare(b, "input of all_to_all", input, b->inputs[b->rank], whole));
    CZ_TRY(close_guarded(b, "all_to_all (input)", &in));
    CZ_TRY(close_guarded(b, "all_to_all (output)", &out));
    return status;
}

static cz_status check_all(bench *b)
{
    for (int root = 0; root < b->size; root++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            const cz_reduction reduction =
                (cz_reduction)(1 + (b->count + root + in_place + b->dtype) % CZ_OR);
            if (is_defined(reduction, b->dtype))
                CZ_TRY(check_reduce(b, reduction, root, in_place));
            CZ_TRY(check_gather(b, root, in_place));
            CZ_TRY(check_scatter(b, root, in_place));
        }
    }
    return check_all_to_all(b);
}

static cz_status each_rank(cz_group *group, void *arg)
{
    return bench_each(group, arg, dtypes, DTYPE_COUNT, check_all);
}

TEST(every_root_of_every_world)
{
    static int64_t few[] = {0, 1, 3, 16, 17, 18, -1}, many[] = {1000, 1001, -1};
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        expect_ok(world, 0, each_rank, few);
        expect_ok(world, world % 2 ? 64 : 256, each_rank, many);
    }
}

/* A wrong argument where it is looked at is seen by all; elsewhere it is none. */
static cz_status each_rank_wrong(cz_group *group, void *arg)
{
    const int size = cz_group_size(group), last = size - 1;
    int buffer[MANY_RANKS] = {0}, other[MANY_RANKS] = {0};
    char rank_last[32];
    snprintf(rank_last, sizeof rank_last, "rank %d", last);
#define REFUSE(call, rank) CZ_TRY(expect(call, CZ_ERR_ARGUMENT, rank))
    REFUSE(cz_reduce(group, buffer, NULL, 1, CZ_I32, CZ_SUM, last, NULL), rank_last);
    REFUSE(cz_gather(group, buffer, NULL, 1, CZ_I32, last, NULL), rank_last);
    REFUSE(cz_scatter(group, NULL, buffer, 1, CZ_I32, last, NULL), rank_last);
    REFUSE(cz_reduce(group, buffer, other, 1, CZ_I32, CZ_SUM, size, NULL), "rank 0");
    REFUSE(cz_gather(group, buffer, other, -1, CZ_I32, 0, NULL), "rank 0");
    REFUSE(cz_all_to_all(group, NULL, other, 1, CZ_I32, NULL), "rank 0");
#undef REFUSE
    return cz_barrier(group, NULL);
}

TEST(wrong_arguments)
{
    for (int world = 1; world <= 4; world++)
        expect_ok(world, 0, each_rank_wrong, NULL);
}

/* One rank makes a call in another way than the others. */
static cz_status each_rank_odd(cz_group *group, void *arg)
{
    float a[2 * MANY_RANKS] = {0}, b[2 * MANY_RANKS] = {0};
    for (int odd = 0; odd < cz_group_size(group); odd++) {
        const bool mine = cz_group_rank(group) == odd;
        char name[32];
        snprintf(name, sizeof name, "rank %d", odd);
#define DIFFER(call, word)                                                                         \
    CZ_TRY(expect(call, CZ_ERR_MISMATCH, word));                                                   \
    CHECK(strstr(cz_last_error(), name), "%s is not in: %s", name, cz_last_error())
        DIFFER(cz_reduce(group, a, b, 1, CZ_F32, CZ_SUM, mine ? 1 : 0, NULL), "root 1");
        DIFFER(cz_gather(group, a, b, mine ? 2 : 1, CZ_F32, 0, NULL), "gave 2");
        DIFFER(cz_scatter(group, a, b, 1, mine ? CZ_I32 : CZ_F32, 1, NULL), "i32");
        DIFFER(cz_reduce(group, a, b, 2, CZ_F32, mine ? CZ_PRODUCT : CZ_SUM, 0, NULL), "product");
        DIFFER((mine ? cz_gather : cz_scatter)(group, a, b, 1, CZ_F32, 0, NULL), "gather");
        DIFFER(cz_all_to_all(group, a, b, mine ? 0 : 1, CZ_F32, NULL), "gave 0");
#undef DIFFER
    }
    return cz_barrier(group, NULL);
}

TEST(ranks_that_disagree)
{
    for (int world = 3; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_odd, NULL);
}

/* Bits of floats, and averages of integers, in every operation that reduces. */
static cz_status each_rank_undefined(cz_group *group, void *arg)
{
    int64_t in[MANY_RANKS] = {0}, out[MANY_RANKS] = {0}, counts[MANY_RANKS] = {0};
    for (int dtype = CZ_F32; dtype <= CZ_U8; dtype++)
        for (int r = CZ_SUM - 1; r <= CZ_OR + 1; r++) {
            const cz_reduction reduction = (cz_reduction)r;
            const cz_dtype type = (cz_dtype)dtype;
            const cz_status wanted = r < CZ_SUM || r > CZ_OR       ? CZ_ERR_ARGUMENT
                                     : is_defined(reduction, type) ? CZ_OK
                                                                   : CZ_ERR_UNSUPPORTED;
            const cz_status got[] = {
                cz_all_reduce(group, in, 1, type, reduction, NULL),
                cz_reduce(group, in, out, 1, type, reduction, 0, NULL),
                cz_reduce_scatter(group, in, out, 1, type, reduction, NULL),
                cz_reduce_scatter_v(group, in, out, counts, type, reduction, NULL)};
            for (int i = 0; i < 4; i++)
                CHECK(got[i] == wanted, "operation %d, reduction %d of %s: %s", i, r,
                      cz_dtype_name(type), cz_status_name(got[i]));
        }
    return CZ_OK;
}

TEST(what_is_not_defined)
{
    expect_ok(1, 0, each_rank_undefined, NULL);
    expect_ok(3, 0, each_rank_undefined, NULL);
}

/* Several segments of the size that programs get. */
static cz_status each_rank_large(cz_group *group, void *arg)
{
    bench b;
    bench_open(&b, group, CZ_F32, 150001);
    cz_status status = check_reduce(&b, CZ_AVERAGE, b.size - 1, false);
    THEN(check_gather(&b, 0, true));
    THEN(check_scatter(&b, b.size - 1, false));
    THEN(check_all_to_all(&b));
    bench_close(&b);
    return status;
}

TEST(default_segments)
{
    for (int world = 1; world <= 3; world++)
        expect_ok(world, 0, each_rank_large, NULL);
}
