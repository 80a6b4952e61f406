/* SPDX-License-Identifier: MIT */
/* Many terms at once are the terms one by one, to the last bit, at every level and length, whatever
 * the numbers are: alike, far apart, subnormal, too large, not finite. */
#include "device/cpu/cpu.h"
#include "support/cz_test.h"
#include "base/half.h"
#include "base/sum.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define MOST 5000

static double terms[MOST + 1];
static float narrow[MOST + 1];

/* A kind of numbers: a curve around 0 with exponents up to `range` lower. */
static void fill(uint64_t seed, double scale, int range)
{
    static double spread[MOST];
    cz_test_stream_f64(seed, MOST, terms);
    cz_test_stream_f64(seed + 1000, MOST, spread);
    for (int i = 0; i < MOST; i++) {
        terms[i] = ldexp(terms[i] * scale, -(int)(fabs(spread[i]) * range));
        narrow[i] = (float)terms[i];
    }
}

static double one_by_one(cz__sum_kind kind, int first, int count)
{
    cz_sum sum = {{0}};
    for (int i = first; i < first + count; i++)
        cz__sum_add(&sum, kind == CZ__SUM_VALUES        ? terms[i]
                          : kind == CZ__SUM_SQUARES_F64 ? terms[i] * terms[i]
                                                        : (double)narrow[i] * (double)narrow[i]);
    return cz_sum_value(&sum);
}

static void check(const char *what, int first, int count)
{
    for (int kind = 0; kind < CZ__SUM_KIND_COUNT; kind++) {
        const double wanted = one_by_one((cz__sum_kind)kind, first, count);
        for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
            const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
            cz_sum sum = {{0}};
            if (!kernels)
                continue;
            cz__cpu_add_terms(
                kernels, (cz__sum_kind)kind, count,
                kind == CZ__SUM_SQUARES_F32 ? (const void *)(narrow + first) : terms + first, &sum);
            const double got = cz_sum_value(&sum);
            if (memcmp(&got, &wanted, sizeof got) != 0 && !(isnan(got) && isnan(wanted)))
                fail_msg("%s, kind %d, %s, %d terms from %d: got %a, wanted %a", what, kind,
                         kernels->level, count, first, got, wanted);
        }
    }
}

TEST(numbers)
{
    static const double scales[] = {1, 1e-30, 1e30, 1e-45, 1e-160, 1e-300, 1e-310, 1e150, 1e300};
    static const int ranges[] = {0, 10, 30, 60, 300, 1000};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
        for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
            fill(1 + s * 10 + r, scales[s], ranges[r]);
            check("numbers", 0, MOST);
            check("numbers", 3, 333);
        }
}

TEST(lengths)
{
    fill(7, 1, 20);
    for (int count = 0; count < 300; count++)
        check("lengths", count % 7, count);
    for (int count = 2040; count < 2056; count++)
        check("lengths", count % 7, count);
}

/* Equal ones are the most that a running sum has to hold, and just below a power of two the
 * largest. */
TEST(full_lanes)
{
    static const double values[] = {1, 0x1.fffffffffffffp0, -0x1.fffffffffffffp0, 0x1.fffffep0};
    for (int v = 0; v < 4; v++) {
        for (int i = 0; i < MOST; i++) {
            terms[i] = values[v];
            narrow[i] = v == 0 ? 1 : 0x1.fffffep0f;
        }
        check("equal ones", 0, MOST);
    }
}

TEST(what_no_block_takes)
{
    const double odd[] = {NAN, INFINITY, -INFINITY, DBL_MAX, -DBL_MAX, DBL_TRUE_MIN, 0x1p1020};
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++)
        for (int place = 0; place < 300; place += 37) {
            fill(3 + k, 1, 5);
            terms[place] = odd[k];
            narrow[place] =
                fabs(odd[k]) <= FLT_MAX || isinf(odd[k]) || isnan(odd[k]) ? (float)odd[k] : FLT_MAX;
            check("odd ones", 0, 300);
        }
    memset(terms, 0, sizeof terms);
    memset(narrow, 0, sizeof narrow);
    check("zeros", 0, MOST);
}

/* Through the device, and 16-bit types; cut anywhere. */
TEST(device)
{
    const cz_device *cpu = cz_device_cpu();
    static uint16_t halves[2][MOST];
    cz_sum sums[4] = {{{0}}}, wanted[2] = {{{0}}}, array = {{0}};
    fill(11, 1, 8);
    for (int i = 0; i < MOST; i++) {
        halves[0][i] = cz__f16_from_f32(narrow[i]);
        halves[1][i] = cz__bf16_from_f32(narrow[i]);
        const double half = cz__f32_from_f16(halves[0][i]), brain = cz__f32_from_bf16(halves[1][i]);
        cz__sum_add(&wanted[0], half * half);
        cz__sum_add(&wanted[1], brain * brain);
    }
    for (int begin = 0, count; begin < MOST; begin += count) {
        count = begin * 3 % 1000 + 1;
        count = begin + count < MOST ? count : MOST - begin;
        assert_ok(cpu->add_squares(NULL, CZ_F32, count, narrow + begin, &sums[0]));
        assert_ok(cpu->add_squares(NULL, CZ_F64, count, terms + begin, &sums[1]));
        assert_ok(cpu->add_squares(NULL, CZ_F16, count, halves[0] + begin, &sums[2]));
        assert_ok(cpu->add_squares(NULL, CZ_BF16, count, halves[1] + begin, &sums[3]));
        cz_sum_add(&array, count, terms + begin);
    }
    assert_true(cz_sum_value(&sums[0]) == one_by_one(CZ__SUM_SQUARES_F32, 0, MOST));
    assert_true(cz_sum_value(&sums[1]) == one_by_one(CZ__SUM_SQUARES_F64, 0, MOST));
    assert_true(cz_sum_value(&sums[2]) == cz_sum_value(&wanted[0]));
    assert_true(cz_sum_value(&sums[3]) == cz_sum_value(&wanted[1]));
    assert_true(cz_sum_value(&array) == one_by_one(CZ__SUM_VALUES, 0, MOST));
    assert_int_equal(cpu->add_squares(NULL, CZ_I64, 0, NULL, &array), CZ_ERR_UNSUPPORTED);
    assert_string_equal(cz_last_error(), "cpu: squares of i64 values");
}
