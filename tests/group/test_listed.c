/* SPDX-License-Identifier: MIT */
/* Collectives with a count for each rank: nothing for some, everything for one, anything; and lists
 * that are wrong or differ. */
#include "group/group_bench.h"

/* Where rank r's part begins. */
static int64_t begin_of(const int64_t *counts, int r)
{
    int64_t begin = 0;
    for (int k = 0; k < r; k++)
        begin += counts[k];
    return begin;
}

/* The bench's count is the total; its inputs are that long. */
static cz_status check_all_gather(bench *b, const int64_t *counts, int root, bool in_place)
{
    guarded in, out;
    const size_t size = cz_dtype_size(b->dtype), mine = (size_t)counts[b->rank] * size;
    const size_t begin = (size_t)begin_of(counts, b->rank) * size;
    char *input = guarded_open(&in, mine, b->dtype),
         *output = guarded_open(&out, b->bytes, b->dtype);
    const bool here = root < 0 || root == b->rank;
    char *source = in_place && here ? output + begin : input;
    memcpy(source, b->inputs[b->rank], mine);
    for (int r = 0; r < b->size; r++)
        memcpy((char *)b->wanted + (size_t)begin_of(counts, r) * size, b->inputs[r],
               (size_t)counts[r] * size);
    cz_status status = root < 0 ? cz_all_gather_v(b->group, source, output, counts, b->dtype, NULL)
                                : cz_gather_v(b->group, source, here ? output : NULL, counts,
                                              b->dtype, root, NULL);
    if (status == CZ_OK && here)
        status = compare(b, "gather_v", output, b->wanted, b->bytes);
    CZ_TRY(close_guarded(b, "gather_v (input)", &in));
    CZ_TRY(close_guarded(b, "gather_v (output)", &out));
    return status;
}

/* Root below 0: reduce_scatter_v, else scatter_v. */
static cz_status check_scatter(bench *b, const int64_t *counts, int root, bool in_place)
{
    guarded in, out;
    const size_t size = cz_dtype_size(b->dtype), mine = (size_t)counts[b->rank] * size;
    const size_t begin = (size_t)begin_of(counts, b->rank) * size;
    char *input = guarded_open(&in, b->bytes, b->dtype),
         *output = guarded_open(&out, mine, b->dtype);
    const bool here = root < 0 || root == b->rank;
    char *result = in_place && here ? input + begin : output;
    memcpy(input, b->inputs[b->rank], b->bytes);
    if (root < 0)
        plain_reduce(b->dtype, CZ_SUM, b->size, (const void *const *)b->inputs, b->count,
                     b->wanted);
    else
        memcpy(b->wanted, b->inputs[root], b->bytes);
    cz_status status =
        root < 0
            ? cz_reduce_scatter_v(b->group, input, result, counts, b->dtype, CZ_SUM, NULL)
            : cz_scatter_v(b->group, here ? input : NULL, result, counts, b->dtype, root, NULL);
    THEN(compare(b, "scatter_v", result, (char *)b->wanted + begin, mine));
    if (in_place && here)
        memcpy(result, (char *)b->inputs[b->rank] + begin, mine);
    THEN(compare(b, "input of scatter_v", input, b->inputs[b->rank], b->bytes));
    CZ_TRY(close_guarded(b, "scatter_v (input)", &in));
    CZ_TRY(close_guarded(b, "scatter_v (output)", &out));
    return status;
}

/* How the elements are dealt out: 0: at random, 1: many of them, 2: all to one rank, 3: none, 4:
 * very unevenly. */
static void make_counts(int kind, int size, int64_t *counts)
{
    uint64_t state = (uint64_t)(kind * 100 + size);
    for (int r = 0; r < size; r++) {
        counts[r] = 0;
        if (kind == 0 && draw(&state, 3) > 0)
            counts[r] = (int64_t)draw(&state, 20);
        else if (kind == 1)
            counts[r] = 200 + (int64_t)draw(&state, 400);
        else if (kind == 2 && r == size / 2)
            counts[r] = 333;
        else if (kind == 4)
            counts[r] = r == 0 ? 2000 : r % 2;
    }
}

static cz_status check_all(bench *b, const int64_t *counts)
{
    for (int root = -1; root < b->size; root++)
        for (int in_place = 0; in_place < 2; in_place++) {
            CZ_TRY(check_all_gather(b, counts, root, in_place));
            CZ_TRY(check_scatter(b, counts, root, in_place));
        }
    return CZ_OK;
}

static cz_status each_rank(cz_group *group, void *arg)
{
    static const cz_dtype dtypes[] = {CZ_F32, CZ_F16, CZ_F64, CZ_U8, CZ_I64};
    for (int kind = 0; kind < 5; kind++) {
        bench b;
        int64_t counts[MANY_RANKS];
        make_counts(kind, cz_group_size(group), counts);
        bench_open(&b, group, dtypes[(kind + cz_group_size(group)) % 5],
                   begin_of(counts, cz_group_size(group)));
        const cz_status status = check_all(&b, counts);
        bench_close(&b);
        CZ_TRY(status);
    }
    return CZ_OK;
}

TEST(parts_of_all_sizes)
{
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        expect_ok(world, 0, each_rank, NULL);
        expect_ok(world, world % 2 ? 128 : 64, each_rank, NULL);
    }
}

static cz_status call_with(cz_group *group, int which, const int64_t *list)
{
    float all[4 * MANY_RANKS] = {0}, mine[8] = {0};
    return which == 0   ? cz_reduce_scatter_v(group, all, mine, list, CZ_F32, CZ_SUM, NULL)
           : which == 1 ? cz_all_gather_v(group, mine, all, list, CZ_F32, NULL)
           : which == 2 ? cz_gather_v(group, mine, all, list, CZ_F32, 0, NULL)
                        : cz_scatter_v(group, all, mine, list, CZ_F32, 0, NULL);
}

/* Each rank in turn has another list: the same total, another total, a negative count, none. */
static cz_status each_rank_wrong(cz_group *group, void *arg)
{
    const int size = cz_group_size(group), rank = cz_group_rank(group);
    for (int odd = 0; odd < size; odd++)
        for (int how = 0; how < 4; how++) {
            outcome got;
            char name[32];
            int64_t counts[MANY_RANKS];
            for (int r = 0; r < size; r++)
                counts[r] = 2;
            if (rank == odd) {
                counts[0] += how == 0 || how == 1;
                counts[1] -= how == 0 ? 1 : how == 2 ? 3 : 0;
            }
            const int64_t *list = rank == odd && how == 3 ? NULL : counts;
            note(&got, call_with(group, odd % 4, list));
            snprintf(name, sizeof name, "rank %d", odd);
            CHECK(got.status == (how < 2 ? CZ_ERR_MISMATCH : CZ_ERR_ARGUMENT) &&
                      strstr(got.sentence, name),
                  "list %d of rank %d: %s: %s", how, odd, cz_status_name(got.status), got.sentence);
        }
    return cz_barrier(group, NULL);
}

TEST(wrong_lists)
{
    for (int world = 2; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_wrong, NULL);
}
