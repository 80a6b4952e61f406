/* SPDX-License-Identifier: MIT */
/* Conversions against the public ones, one value at a time: every 16-bit number, and those around
 * each of them. */
#include <math.h>
#include <string.h>

#include "czero/device.h"
#include "support/cz_test.h"
#include "base/half.h"

enum { HALVES = 65536, AROUND = 5 };
static const cz_dtype types[] = {CZ_F32, CZ_F64, CZ_F16, CZ_BF16};

static double widen(cz_dtype dtype, uint16_t half)
{
    return dtype == CZ_F16 ? cz__f32_from_f16(half) : cz__f32_from_bf16(half);
}

static double load(cz_dtype dtype, const void *from, int64_t i)
{
    if (dtype == CZ_F64)
        return ((const double *)from)[i];
    return dtype == CZ_F32 ? ((const float *)from)[i] : widen(dtype, ((const uint16_t *)from)[i]);
}

/* Is `got` the number of that type nearest to `value`, the even one of two? By its neighbours. */
static bool nearest(cz_dtype dtype, uint16_t got, double value)
{
    const uint16_t infinity = dtype == CZ_F16 ? 0x7c00 : 0x7f80;
    const double limit = dtype == CZ_F16 ? 65520 : ldexp(2 - ldexp(1, -8), 127);
    const uint16_t size = got & 0x7fff;
    const double mine = load(dtype, &got, 0);
    if (isnan(value))
        return isnan(mine);
    if (signbit(value) != (got >> 15) || size > infinity)
        return false;
    if (fabs(value) >= limit)
        return size == infinity;
    if (size == infinity)
        return false;
    const double off = fabs(mine - value);
    for (int step = -1; step <= 1; step += 2) {
        const uint16_t beside = (uint16_t)(size + step);
        if ((step < 0 && size == 0) || beside >= infinity)
            continue;
        const double other = fabs(load(dtype, &beside, 0) - fabs(value));
        if (other < off || (other == off && got & 1))
            return false;
    }
    return true;
}

static void check(cz_dtype from_type, const void *from, cz_dtype to_type, int64_t count)
{
    static union {
        double f64[HALVES * AROUND];
        float f32[HALVES * AROUND];
        uint16_t half[HALVES * AROUND];
    } to;
    assert_ok(cz_device_cpu()->convert(NULL, to_type, &to, from_type, from, count));
    for (int64_t i = 0; i < count; i++) {
        const double value = load(from_type, from, i), got = load(to_type, &to, i);
        const bool narrow = to_type == CZ_F16 || to_type == CZ_BF16;
        const bool right = narrow              ? nearest(to_type, to.half[i], value)
                           : to_type == CZ_F64 ? got == value || (isnan(got) && isnan(value))
                                               : (float)got == (float)value || isnan(value);
        if (!right)
            fail_msg("%s %a became %s %a", cz_dtype_name(from_type), value, cz_dtype_name(to_type),
                     got);
    }
}

TEST(every_half_is_converted_to_every_type)
{
    static uint16_t halves[HALVES];
    for (int i = 0; i < HALVES; i++)
        halves[i] = (uint16_t)i;
    for (int from = 2; from < 4; from++)
        for (int to = 0; to < 4; to++)
            check(types[from], halves, types[to], HALVES);
}

/* Each half, the middle to the next one, and what is just beside the middle: in f64 by less than a
 * float has. */
TEST(roundings)
{
    static double wide[HALVES * AROUND];
    static float narrow[HALVES * AROUND];
    for (int h = 2; h < 4; h++) {
        for (int i = 0; i < HALVES; i++) {
            const double a = widen(types[h], (uint16_t)i), b = widen(types[h], (uint16_t)(i + 1));
            const double middle = a / 2 + b / 2;
            wide[AROUND * i] = a;
            wide[AROUND * i + 1] = middle;
            wide[AROUND * i + 2] = middle + fabs(middle) * 0x1p-50;
            wide[AROUND * i + 3] = middle - fabs(middle) * 0x1p-50;
            wide[AROUND * i + 4] = middle * (1 + 0x1p-22);
        }
        for (int i = 0; i < HALVES * AROUND; i++)
            narrow[i] = (float)wide[i];
        for (int to = 0; to < 4; to++) {
            check(CZ_F64, wide, types[to], HALVES * AROUND);
            check(CZ_F32, narrow, types[to], HALVES * AROUND);
        }
    }
}

TEST(what_is_refused)
{
    int32_t integer = 1;
    float real = 0;
    const cz_device *cpu = cz_device_cpu();
    assert_int_equal(cpu->convert(NULL, CZ_F32, &real, CZ_I32, &integer, 1), CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "no conversion of i32 values to f32"));
    assert_int_equal(cpu->convert(NULL, (cz_dtype)99, &real, CZ_F32, &real, 1), CZ_ERR_UNSUPPORTED);
    assert_ok(cpu->convert(NULL, CZ_F16, NULL, CZ_F32, NULL, 0));
}
