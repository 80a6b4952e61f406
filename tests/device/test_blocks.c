/* SPDX-License-Identifier: MIT */
/* State in 8 bits: each code is that of the nearest value of a table, the largest element of a
 * block stays as it is, what codes stand for becomes the same codes, and all levels agree. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "device/blocks.h"
#include "device/cpu/cpu.h"
#include "support/cz_test.h"

enum { BLOCK = CZ__BLOCK, MOST = 40000 };

static const float smallest = 0x1p-120f;

/* ---- a plain model: all values that there are, and a search ---- */

static int list_sizes(int cells, double *sizes)
{
    int count = 0;
    sizes[count++] = 0;
    for (int decade = -6; decade <= 0; decade++, cells *= 2)
        for (int j = 0; j < cells; j++)
            sizes[count++] = pow(10, decade) * (0.1 + 0.9 * (j + 0.5) / cells);
    sizes[count++] = 1;
    return count;
}

static double value_of(bool is_signed, int code)
{
    double sizes[257];
    const int count = list_sizes(is_signed ? 1 : 2, sizes);
    if (!is_signed || code <= 128)
        return sizes[code];
    assert_int_equal(count, 129);
    return -sizes[code - 128];
}

static float scale_of(bool is_signed, const float *values, int64_t count)
{
    float low = 0, high = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            return NAN;
        low = fminf(low, values[i]);
        high = fmaxf(high, values[i]);
    }
    const float scale = is_signed && -low > high ? low : high;
    return scale != 0 && fabsf(scale) < smallest ? smallest : scale;
}

/* Nearest, up to what one rounding in f32 is of a cell: of two as near ones it may be either. */
static void check_code(bool is_signed, const double *table, float value, float scale, uint8_t code)
{
    const double share = (double)(value / scale);
    const double wanted = is_signed ? share : fmax(share, 0);
    double nearest = HUGE_VAL;
    for (int c = 0; c < 256; c++)
        nearest = fmin(nearest, fabs(table[c] - wanted));
    const double found = fabs(table[code] - wanted);
    if (found > nearest + 4e-6 * fmax(fabs(wanted), 1e-7))
        fail_msg("%a of %a is %.9g: code %d is at %.9g, the nearest at %.9g", (double)value,
                 (double)scale, wanted, code, found, nearest);
}

static uint8_t codes[MOST];
static float scales[MOST / BLOCK + 1];

static void pack(bool is_signed, int64_t count, const float *values)
{
    memset(codes, 0xa5, sizeof codes);
    cz__pack(is_signed, count, values, codes, scales);
}

static void check_blocks(bool is_signed, int64_t count, const float *values)
{
    double table[256];
    static float back[MOST];
    for (int c = 0; c < 256; c++)
        table[c] = value_of(is_signed, c);
    pack(is_signed, count, values);
    cz__unpack(is_signed, count, codes, scales, back);
    for (int64_t i = 0; i < count; i++) {
        const int64_t begin = i / BLOCK * BLOCK;
        const int64_t some = count - begin < BLOCK ? count - begin : BLOCK;
        const float scale = scale_of(is_signed, values + begin, some);
        if (isnan(scale)) {
            assert_true(isnan(scales[i / BLOCK]) && isnan(back[i]) && codes[i] == 0);
            continue;
        }
        if (scale == smallest && scales[i / BLOCK] == 0) { /* all are zeros */
            assert_true(codes[i] == 0 && fabsf(values[i]) < 3e-7f * smallest);
            continue;
        }
        if (scales[i / BLOCK] != scale)
            fail_msg("the scale is %a, wanted is %a", (double)scales[i / BLOCK], (double)scale);
        const float wanted = (float)table[codes[i]] * scale;
        if (back[i] != wanted)
            fail_msg("code %d of %a is %a, wanted is %a", codes[i], (double)scale, (double)back[i],
                     (double)wanted);
        if (scale == 0)
            assert_int_equal(codes[i], 0);
        else
            check_code(is_signed, table, values[i], scale, codes[i]);
        if (values[i] == scale)
            assert_true(back[i] == scale);
    }
    for (int64_t i = count; i < MOST; i++)
        assert_int_equal(codes[i], 0xa5);
}

/* What codes stand for is what other types of state are made of, and files. */
static void check_again(bool is_signed, int64_t count, const float *values)
{
    static float back[MOST], again[MOST];
    static uint8_t first[MOST];
    static float first_scales[MOST / BLOCK + 1];
    const size_t blocks = (size_t)(count + BLOCK - 1) / BLOCK;
    pack(is_signed, count, values);
    memcpy(first, codes, sizeof codes);
    memcpy(first_scales, scales, sizeof scales);
    cz__unpack(is_signed, count, codes, scales, back);
    pack(is_signed, count, back);
    assert_memory_equal(codes, first, sizeof codes);
    assert_memory_equal(scales, first_scales, blocks * sizeof *scales);
    cz__unpack(is_signed, count, codes, scales, again);
    assert_memory_equal(again, back, (size_t)count * sizeof *back);
}

/* ---- values ---- */

static float values[MOST];

static float random_float(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const double share = (double)(*state >> 11) * 0x1p-53;
    const int shrink = (int)(*state >> 3 & 31);
    const double size = share * pow(2, -shrink);
    return (float)(*state & 1 ? size : -size);
}

static void fill(int64_t count, double scale, bool is_signed, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)(scale * (double)random_float(&seed));
        if (!is_signed)
            values[i] = fabsf(values[i]);
    }
}

TEST(codes_are_those_of_the_nearest_value_for_scales_of_every_size)
{
    const double sizes[] = {1, 1e-3, 1e3, 7e-20, 3e38, 1e-30, 1e-36, 1e-37, 1e-40, 1e-44};
    for (int s = 0; s < 10; s++)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            fill(10 * BLOCK, sizes[s], is_signed, (uint64_t)s + 1);
            check_blocks(is_signed, 10 * BLOCK, values);
            check_again(is_signed, 10 * BLOCK, values);
        }
}

TEST(a_block_may_be_short)
{
    const int64_t counts[] = {0, 1, 2, 15, 16, 17, 255, 256, 257, 511, 512, 1000};
    for (int k = 0; k < 12; k++)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            fill(counts[k], 0.1, is_signed, 77);
            check_blocks(is_signed, counts[k], values);
            check_again(is_signed, counts[k], values);
        }
}

/* Around every middle between two values, and at every value. */
TEST(codes_change_half_way_between_two_values)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        double sizes[257];
        const int count = list_sizes(is_signed ? 1 : 2, sizes);
        int64_t n = 0;
        for (int k = 0; k + 1 < count; k++)
            for (int sign = 1; sign >= (is_signed ? -1 : 1); sign -= 2) {
                const double half = (sizes[k] + sizes[k + 1]) / 2;
                const double near[] = {sizes[k], half * (1 - 1e-5), half * (1 + 1e-5)};
                for (int j = 0; j < 3; j++) {
                    if (n % BLOCK == 0)
                        values[n++] = 1;
                    values[n++] = (float)(sign * near[j]);
                }
            }
        check_blocks(is_signed, n, values);
        check_again(is_signed, n, values);
        pack(is_signed, n, values);
        n = 0;
        for (int k = 0; k + 1 < count; k++)
            for (int sign = 1; sign >= (is_signed ? -1 : 1); sign -= 2)
                for (int j = 0; j < 3; j++) {
                    if (n % BLOCK == 0)
                        n++;
                    int wanted = j == 2 ? k + 1 : k;
                    if (sign < 0 && wanted > 127)
                        wanted = 127;
                    wanted += sign < 0 && wanted > 0 ? 128 : 0;
                    assert_int_equal(codes[n++], wanted);
                }
    }
}

TEST(the_largest_element_is_kept_with_its_sign)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        fill(BLOCK, 1e-3, true, 5);
        values[100] = (float)(sign * 0.25);
        check_blocks(true, BLOCK, values);
        assert_true(scales[0] == values[100]);
        assert_int_equal(codes[100], 128);
    }
    fill(BLOCK, 1e-3, true, 5);
    values[3] = -0.25f; /* the same size: that above zero is kept */
    values[200] = 0.25f;
    check_blocks(true, BLOCK, values);
    assert_true(scales[0] == 0.25f);
    assert_int_equal(codes[3], 255);
    check_again(true, BLOCK, values);
}

TEST(zeroed_memory_stands_for_zeros)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        static const uint8_t no_codes[BLOCK];
        static const float no_scale[1];
        float back[BLOCK];
        memset(values, 0, sizeof values);
        check_blocks(is_signed, BLOCK, values);
        assert_memory_equal(codes, no_codes, BLOCK);
        values[7] = -0.0f;
        check_blocks(is_signed, BLOCK, values);
        assert_memory_equal(scales, no_scale, sizeof no_scale);
        cz__unpack(is_signed, BLOCK, no_codes, no_scale, back);
        for (int i = 0; i < BLOCK; i++)
            assert_true(back[i] == 0 && !signbit(back[i]));
    }
}

TEST(what_is_not_finite_makes_its_block_nan_and_no_other)
{
    const float odd[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 4; k++)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            fill(3 * BLOCK, 1, is_signed, 9);
            values[BLOCK + 17] = odd[k];
            check_blocks(is_signed, 3 * BLOCK, values);
            check_again(is_signed, 3 * BLOCK, values);
            assert_true(isfinite(scales[0]) && isnan(scales[1]) && isfinite(scales[2]));
        }
}

TEST(below_zero_counts_as_zero_where_nothing_is_below_zero)
{
    fill(2 * BLOCK, 1, true, 3);
    check_blocks(false, 2 * BLOCK, values);
    for (int i = 0; i < BLOCK; i++)
        values[i] = -1;
    check_blocks(false, BLOCK, values);
    assert_true(scales[0] == 0);
}

TEST(all_levels_give_the_same_bits)
{
    static uint8_t other[MOST];
    static float other_scales[MOST / BLOCK + 1], back[MOST], other_back[MOST];
    for (int is_signed = 0; is_signed < 2; is_signed++)
        for (int64_t count = MOST - 1; count > 100; count /= 3) {
            const cz__cpu_kernels *first = cz__cpu_kernels_at(CZ__CPU_V1);
            const size_t blocks = (size_t)(count + BLOCK - 1) / BLOCK;
            fill(count, 1e-4, is_signed, (uint64_t)count);
            values[count / 2] = NAN;
            first->pack[is_signed](count, values, codes, scales);
            first->unpack[is_signed](count, codes, scales, back);
            for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
                const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
                if (!kernels)
                    continue;
                kernels->pack[is_signed](count, values, other, other_scales);
                assert_memory_equal(other, codes, (size_t)count);
                assert_memory_equal(other_scales, scales, blocks * sizeof *scales);
                kernels->unpack[is_signed](count, codes, scales, other_back);
                assert_memory_equal(other_back, back, (size_t)count * sizeof *back);
            }
        }
}
