/* SPDX-License-Identifier: MIT */
/* The order of sums: a binary tree over the ranks, the same bits on every rank and for every
 * segment size, 16-bit types added in f32 and rounded once, an average divided once. */
#include <math.h>

#include "group/group_test.h"

enum { COUNT = 1009 };

typedef struct question {
    cz_dtype dtype;
    cz_reduction reduction;
    const void *inputs[MANY_RANKS]; /* COUNT elements each */
    const void *wanted;
} question;

static cz_status each_rank(cz_group *group, void *arg)
{
    const question *q = arg;
    const int rank = cz_group_rank(group);
    const size_t bytes = COUNT * cz_dtype_size(q->dtype);
    double buffer[COUNT];
    memcpy(buffer, q->inputs[rank], bytes);
    CZ_TRY(cz_all_reduce(group, buffer, COUNT, q->dtype, q->reduction, NULL));
    CHECK(memcmp(buffer, q->wanted, bytes) == 0, "%s: other bits than the tree's",
          cz_dtype_name(q->dtype));
    return CZ_OK;
}

static void ask(question *q, int world)
{
    static const size_t segments[] = {64, 192, 4096, 0};
    for (int s = 0; s < 4; s++)
        expect_ok(world, segments[s], each_rank, q);
}

/* Random inputs of all ranks, and the tree's result. */
static void prepare(question *q, int world, double inputs[][COUNT], double *wanted)
{
    for (int r = 0; r < world; r++) {
        fill(q->dtype, 1000 + (uint64_t)r, COUNT, inputs[r]);
        q->inputs[r] = inputs[r];
    }
    plain_reduce(q->dtype, q->reduction, world, q->inputs, COUNT, wanted);
    q->wanted = wanted;
}

TEST(sums_are_trees)
{
    static double inputs[MANY_RANKS][COUNT], wanted[COUNT];
    for (int world = 1; world <= LARGEST_WORLD; world++) {
        question q = {.dtype = CZ_F32, .reduction = CZ_SUM};
        prepare(&q, world, inputs, wanted);
        int others = 0; /* elements for which the order of ranks gives other bits */
        for (int i = 0; i < COUNT; i++) {
            float sum = 0;
            for (int r = 0; r < world; r++)
                sum += ((const float *)q.inputs[r])[i];
            others += memcmp(&sum, (float *)wanted + i, sizeof sum) != 0;
        }
        assert_true(world < 4 || others > COUNT / 20);
        ask(&q, world);
    }
}

TEST(averages_divide_once)
{
    static double inputs[MANY_RANKS][COUNT], wanted[COUNT];
    static const int worlds[] = {3, 5, 7};
    for (int w = 0; w < (SLOW ? 2 : 3); w++) {
        question q = {.dtype = CZ_F32, .reduction = CZ_AVERAGE};
        prepare(&q, worlds[w], inputs, wanted);
        int others = 0; /* where a product with the inverse gives other bits */
        for (int i = 0; i < COUNT; i++) {
            const float product = f32_tree(q.inputs, 0, worlds[w], i) * (1.0f / (float)worlds[w]);
            others += memcmp(&product, (float *)wanted + i, sizeof product) != 0;
        }
        assert_true(others > COUNT / 20);
        ask(&q, worlds[w]);
    }
}

TEST(halves_are_rounded_once)
{
    static double inputs[MANY_RANKS][COUNT], wanted[COUNT];
    static const cz_dtype dtypes[] = {CZ_F16, CZ_BF16};
    for (int d = 0; d < 2; d++)
        for (int reduction = CZ_SUM; reduction <= CZ_AVERAGE; reduction++) {
            question q = {.dtype = dtypes[d], .reduction = (cz_reduction)reduction};
            prepare(&q, 5, inputs, wanted);
            ask(&q, 5);
        }
}

/* bf16 has 8 bits: sums in bf16 lose the small terms. In f32 the sum is 271 and the mean 16.9375,
 * and the one rounding, to even, gives 272 and 17. */
TEST(means_of_16_bit_values_keep_small_terms)
{
    static uint16_t inputs[MANY_RANKS][COUNT], wanted[COUNT];
    question q = {.dtype = CZ_BF16, .reduction = CZ_AVERAGE, .wanted = wanted};
    for (int r = 0; r < 16; r++) {
        for (int i = 0; i < COUNT; i++)
            inputs[r][i] = cz__bf16_from_f32(r == 0 ? 256 : 1);
        q.inputs[r] = inputs[r];
    }
    for (int i = 0; i < COUNT; i++)
        wanted[i] = cz__bf16_from_f32(16.9375f);
    assert_true(cz__f32_from_bf16(wanted[0]) == 17);
    ask(&q, 16);
    for (int i = 0; i < COUNT; i++)
        wanted[i] = cz__bf16_from_f32(271);
    q.reduction = CZ_SUM;
    ask(&q, 16);
}

/* f32 holds the mean itself. */
TEST(means_of_16_bit_values_equal_sums_in_f32)
{
    static float inputs[MANY_RANKS][COUNT], wanted[COUNT];
    question q = {.dtype = CZ_F32, .reduction = CZ_AVERAGE, .wanted = wanted};
    for (int r = 0; r < 16; r++) {
        for (int i = 0; i < COUNT; i++)
            inputs[r][i] = r == 0 ? 256 : 1;
        q.inputs[r] = inputs[r];
    }
    for (int i = 0; i < COUNT; i++)
        wanted[i] = 16.9375f;
    ask(&q, 16);
}

/* A NaN of any rank stays, in max and min; infinities are ordinary. */
static cz_status each_rank_nan(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    for (int reduction = CZ_MAX; reduction <= CZ_MIN; reduction++) {
        float values[MANY_RANKS + 2];
        for (int i = 0; i < size; i++)
            values[i] = i == rank ? NAN : (float)rank;
        values[size] = rank == 0 ? INFINITY : 1;
        values[size + 1] = rank == size - 1 ? -INFINITY : 1;
        CZ_TRY(cz_all_reduce(group, values, size + 2, CZ_F32, (cz_reduction)reduction, NULL));
        for (int i = 0; i < size; i++)
            CHECK(isnan(values[i]), "the NaN of rank %d became %g", i, values[i]);
        const bool most = reduction == CZ_MAX;
        CHECK(values[size] == (most ? INFINITY : size > 1 ? 1 : INFINITY), "got %g", values[size]);
        CHECK(values[size + 1] == (!most      ? -INFINITY
                                   : size > 1 ? 1
                                              : -INFINITY),
              "got %g", values[size + 1]);
    }
    return CZ_OK;
}

TEST(nan_wins)
{
    for (int world = 1; world <= LARGEST_WORLD; world++)
        expect_ok(world, 0, each_rank_nan, NULL);
}
