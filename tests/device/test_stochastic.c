/* SPDX-License-Identifier: MIT */
/* Rounding to 16 bits by chance: only to the two values beside, with the right mean, of the place
 * and the key alone, the same at every level; and copies in f32 that follow their values. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/cpu.h"
#include "support/cz_test.h"

enum { HALVES = 65536, DRAWS = 1000000 };
static const cz_dtype types[] = {CZ_F16, CZ_BF16};

static float widen(cz_dtype dtype, uint16_t half)
{
    return dtype == CZ_F16 ? cz__f32_from_f16(half) : cz__f32_from_bf16(half);
}

static uint16_t nearest(cz_dtype dtype, float value)
{
    return dtype == CZ_F16 ? cz__f16_from_f32(value) : cz__bf16_from_f32(value);
}

static uint16_t infinity_of(cz_dtype dtype)
{
    return dtype == CZ_F16 ? 0x7c00 : 0x7f80;
}

static void round_by_chance(cz_dtype dtype, const float *from, int64_t count, uint64_t key,
                            int64_t first, uint16_t *to)
{
    assert_ok(cz_device_cpu()->convert_stochastic(NULL, dtype, to, from, count, key, first));
}

TEST(what_is_a_value_of_the_type_stays)
{
    static float from[HALVES];
    static uint16_t to[HALVES];
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < HALVES; i++)
            from[i] = widen(types[t], (uint16_t)i);
        for (uint64_t key = 0; key < 5; key++) {
            round_by_chance(types[t], from, HALVES, key << 40 | key, 0, to);
            for (int i = 0; i < HALVES; i++)
                if (isnan(from[i]) ? !isnan(widen(types[t], to[i])) : to[i] != i)
                    fail_msg("%s %x became %x", cz_dtype_name(types[t]), (unsigned)i,
                             (unsigned)to[i]);
        }
    }
}

/* Between each value and the next one, at three places: neither is skipped, no third one comes. */
TEST(only_the_two_values_beside_come)
{
    static float from[HALVES];
    static uint16_t to[HALVES];
    for (int t = 0; t < 2; t++)
        for (int quarter = 1; quarter < 4; quarter++) {
            const uint16_t end = infinity_of(types[t]);
            bool near = false, far = false;
            for (int i = 0; i < end - 1; i++) {
                const double a = widen(types[t], (uint16_t)i);
                const double b = widen(types[t], (uint16_t)(i + 1));
                from[i] = (float)(a + (b - a) * quarter / 4);
            }
            round_by_chance(types[t], from, end - 1, 7, 0, to);
            for (int i = 0; i < end - 1; i++) {
                if (to[i] != i && to[i] != i + 1)
                    fail_msg("%s %a became %x", cz_dtype_name(types[t]), (double)from[i],
                             (unsigned)to[i]);
                near |= to[i] == i;
                far |= to[i] != i;
                from[i] = -from[i];
            }
            assert_true(near && far);
            static uint16_t negative[HALVES];
            round_by_chance(types[t], from, end - 1, 7, 0, negative);
            for (int i = 0; i < end - 1; i++)
                assert_int_equal(negative[i], to[i] | 0x8000);
        }
}

TEST(infinite_is_what_rounding_to_nearest_makes_so)
{
    const float largest[] = {65504, 0x1.fep127f};
    for (int t = 0; t < 2; t++) {
        const float limit = t == 0 ? 65520 : 0x1.ffp127f;
        const float from[] = {largest[t],
                              nextafterf(limit, 0),
                              limit,
                              FLT_MAX,
                              INFINITY,
                              -largest[t],
                              -nextafterf(limit, 0),
                              -limit,
                              -INFINITY,
                              nextafterf(largest[t], INFINITY)};
        enum { COUNT = sizeof from / sizeof *from };
        for (uint64_t key = 0; key < 1000; key++) {
            uint16_t to[COUNT];
            round_by_chance(types[t], from, COUNT, key * 0x9e3779b97f4a7c15u, 3, to);
            for (int i = 0; i < COUNT; i++)
                assert_int_equal(to[i], nearest(types[t], from[i]));
        }
    }
}

TEST(nan_stays_nan)
{
    float nans[64];
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t bits = 0x7f800000u | 1u << i % 23 | (i & 32) << 26;
        memcpy(&nans[i], &bits, sizeof bits);
    }
    for (int t = 0; t < 2; t++)
        for (uint64_t key = 0; key < 100; key++) {
            uint16_t to[64];
            round_by_chance(types[t], nans, 64, key << 33 | key, 0, to);
            for (int i = 0; i < 64; i++)
                assert_true(isnan(widen(types[t], to[i])));
        }
}

/* Within four standard errors, for each of many numbers: normal ones, denormal ones, negative. */
TEST(the_mean_of_a_million_draws_is_the_number)
{
    static float from[DRAWS];
    static uint16_t to[DRAWS];
    const float numbers[] = {1.001f,   -1.001f,     3.14159265f,     1e-3f,       0.7f,
                             123.456f, 0x1.81p-15f, -0x1.2345p-20f,  0x1.1p-26f,  0x1p-30f,
                             60001,    -2.2e-7f,    0x1.23456p-127f, 0x1.01p-133f};
    for (int t = 0; t < 2; t++)
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
            const double value = (double)numbers[n];
            double sum = 0, squares = 0;
            if (types[t] == CZ_F16 && fabs(value) < 0x1p-40)
                continue; /* none in a million goes up, and that says nothing of the error */
            for (int i = 0; i < DRAWS; i++)
                from[i] = numbers[n];
            round_by_chance(types[t], from, DRAWS, 0x123456789abcdefu + n, 0, to);
            for (int i = 0; i < DRAWS; i++) {
                const double off = (double)widen(types[t], to[i]) - value;
                sum += off;
                squares += off * off;
            }
            const double error = sqrt(squares) / DRAWS; /* of the mean */
            if (!(fabs(sum / DRAWS) <= 4 * error))
                fail_msg("%s of %a: the mean is off by %g, standard error %g",
                         cz_dtype_name(types[t]), value, sum / DRAWS, error);
        }
}

/* How often a number goes away from zero, against how often it should: for each of 16 fractions,
 * over elements, and over keys that follow each other at one element. */
TEST(chance_is_even_over_elements_and_over_keys)
{
    enum { TRIALS = 200000, PARTNER = 128 }; /* places that share a number */
    static float from[TRIALS];
    static uint16_t to[TRIALS];
    for (int sixteenth = 1; sixteenth < 16; sixteenth++) {
        const double wanted = sixteenth / 16.0;
        int64_t over_elements = 0, over_keys = 0, twice = 0, both = 0;
        for (int i = 0; i < TRIALS; i++)
            from[i] = (float)(1 + wanted * 0x1p-7);
        round_by_chance(CZ_BF16, from, TRIALS, 99, 0, to);
        for (int i = 0; i < TRIALS; i++) {
            uint16_t one;
            over_elements += to[i] != 0x3f80;
            twice += i > 0 && to[i] != 0x3f80 && to[i - 1] != 0x3f80;
            both += i >= PARTNER && to[i] != 0x3f80 && to[i - PARTNER] != 0x3f80;
            round_by_chance(CZ_BF16, from, 1, (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15), 5, &one);
            over_keys += one != 0x3f80;
        }
        const double spread = 4.5 * sqrt(wanted * (1 - wanted) / TRIALS);
        assert_true(fabs((double)over_elements / TRIALS - wanted) < spread);
        assert_true(fabs((double)over_keys / TRIALS - wanted) < spread);
        assert_true(fabs((double)twice / TRIALS - wanted * wanted) < 2 * spread); /* neighbours */
        assert_true(fabs((double)both / (TRIALS - PARTNER) - wanted * wanted) < 2 * spread);
    }
}

/* What decides at a place, as a program without vectors would have it. */
static uint32_t number_at(uint64_t key, uint64_t place)
{
    const uint64_t of_range = key + (place >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    const uint64_t block = (place & 0xffffffffu) / 256, within = place % 256;
    uint32_t x = (uint32_t)(block * 128 + within % 128 + of_range);
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x ^= (uint32_t)(of_range >> 32);
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return within < 128 ? x >> 16 : x & 0xffff;
}

/* In whole steps of the type, by arithmetic: `parts` of a step are what is counted. */
static double plainly(cz_dtype dtype, double value, uint32_t number)
{
    int exponent;
    const double parts = dtype == CZ_F16 ? 8192 : 65536,
                 most = dtype == CZ_F16 ? 65504 : 0x1.fep127;
    (void)frexp(value, &exponent);
    const int least = dtype == CZ_F16 ? -14 : -126, digits = dtype == CZ_F16 ? 10 : 7;
    const double step = ldexp(1, (exponent - 1 < least ? least : exponent - 1) - digits);
    const double count = rint(fabs(value) / step * parts) + floor(number * parts / 65536);
    const double size = floor(count / parts) * step;
    return copysign(size > most ? most : size, value);
}

TEST(the_bits_are_those_of_a_plain_model)
{
    enum { COUNT = 1000 };
    float from[COUNT];
    uint16_t to[COUNT];
    const int64_t firsts[] = {0, 32, 1000, (INT64_C(1) << 32) - 500, (INT64_C(7) << 32) + 77};
    const uint64_t key = UINT64_C(0xfedcba9876543210);
    for (int t = 0; t < 2; t++)
        for (int f = 0; f < 5; f++) {
            for (int i = 0; i < COUNT; i++) /* from denormal ones up to the largest */
                from[i] =
                    ldexpf((float)sin(i + f), types[t] == CZ_F16 ? i % 58 - 40 : i % 280 - 150);
            round_by_chance(types[t], from, COUNT, key, firsts[f], to);
            for (int i = 0; i < COUNT; i++) {
                const double wanted =
                    plainly(types[t], (double)from[i], number_at(key, (uint64_t)(firsts[f] + i)));
                if (isfinite(widen(types[t], nearest(types[t], from[i]))) &&
                    (double)widen(types[t], to[i]) != wanted)
                    fail_msg("%s %a at place %d after %lld became %a, wanted %a",
                             cz_dtype_name(types[t]), (double)from[i], i, (long long)firsts[f],
                             (double)widen(types[t], to[i]), wanted);
            }
        }
}

TEST(a_cut_changes_nothing)
{
    enum { COUNT = 300 };
    float from[COUNT];
    uint16_t whole[COUNT], part[COUNT];
    const int64_t firsts[] = {0, 12345, (INT64_C(1) << 32) - 150, INT64_C(5) << 32};
    for (int i = 0; i < COUNT; i++)
        from[i] = (float)sin(i) * (i % 3 ? 1 : 1e-5f);
    for (int t = 0; t < 2; t++)
        for (int f = 0; f < 4; f++) {
            round_by_chance(types[t], from, COUNT, 42, firsts[f], whole);
            for (int cut = 0; cut <= COUNT; cut += 7) {
                round_by_chance(types[t], from, cut, 42, firsts[f], part);
                round_by_chance(types[t], from + cut, COUNT - cut, 42, firsts[f] + cut, part + cut);
                assert_memory_equal(whole, part, sizeof whole);
            }
        }
}

TEST(all_levels_give_the_same_bits)
{
    enum { COUNT = 5000 };
    static float from[COUNT], copies[2][COUNT];
    static uint16_t first[COUNT], other[COUNT], values[COUNT];
    for (int i = 0; i < COUNT; i++) {
        const uint32_t bits = (uint32_t)i * 2654435761u; /* NaN and infinity among them */
        memcpy(&from[i], &bits, sizeof bits);
    }
    for (int t = 0; t < 2; t++)
        for (cz__cpu_level level = CZ__CPU_V1; level < CZ__CPU_LEVEL_COUNT; level++) {
            const cz__cpu_kernels *kernels = cz__cpu_kernels_at(level);
            if (!kernels)
                continue;
            uint16_t *to = level == CZ__CPU_V1 ? first : other;
            kernels->stochastic[types[t]](77, 0xffffff00u, COUNT, from, to);
            for (int i = 0; i < COUNT; i++) {
                values[i] = (uint16_t)(i % 5 ? nearest(types[t], from[i]) : i);
                copies[level != CZ__CPU_V1][i] = from[i];
            }
            kernels->refresh[types[t]](COUNT, values, copies[level != CZ__CPU_V1]);
            if (level == CZ__CPU_V1)
                continue;
            assert_memory_equal(first, other, sizeof first);
            assert_memory_equal(copies[0], copies[1], sizeof copies[0]);
        }
}

TEST(a_copy_follows_a_value_that_was_changed_and_no_other)
{
    enum { COUNT = 100 };
    float copies[COUNT], before[COUNT];
    uint16_t values[COUNT];
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < COUNT; i++) {
            before[i] = copies[i] = i == 50 ? NAN : (float)i + 1e-3f;
            values[i] = nearest(types[t], copies[i]);
        }
        assert_ok(cz_device_cpu()->refresh(NULL, types[t], values, copies, COUNT));
        assert_memory_equal(copies, before, sizeof copies);
        values[7] = nearest(types[t], -2);
        values[0] |= 0x8000;
        assert_ok(cz_device_cpu()->refresh(NULL, types[t], values, copies, COUNT));
        assert_true(copies[7] == -2);
        before[7] = copies[7];
        before[0] = copies[0] = widen(types[t], values[0]);
        assert_memory_equal(copies, before, sizeof copies);
    }
}

TEST(other_types_are_refused)
{
    float from[] = {1};
    double to;
    const cz_device *cpu = cz_device_cpu();
    assert_int_equal(cpu->convert_stochastic(NULL, CZ_F64, &to, from, 1, 0, 0), CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "rounding by chance to f64 values"));
    assert_int_equal(cpu->convert_stochastic(NULL, (cz_dtype)99, &to, from, 1, 0, 0),
                     CZ_ERR_UNSUPPORTED);
    assert_int_equal(cpu->refresh(NULL, CZ_F32, from, from, 1), CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "copies in f32 of f32 values"));
}
