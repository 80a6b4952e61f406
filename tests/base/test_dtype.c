/* SPDX-License-Identifier: MIT */
/* Element types, and the 16-bit floats against their definition: of all 65536 numbers the nearest,
 * of two the even one. */
#include "support/cz_test.h"
#include "base/half.h"

#include <math.h>
#include <string.h>

TEST(names_and_sizes)
{
    static const struct {
        cz_dtype dtype;
        const char *name;
        size_t size;
    } types[] = {{CZ_F32, "f32", 4}, {CZ_F64, "f64", 8}, {CZ_F16, "f16", 2}, {CZ_BF16, "bf16", 2},
                 {CZ_I32, "i32", 4}, {CZ_I64, "i64", 8}, {CZ_U8, "u8", 1}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assert_string_equal(cz_dtype_name(types[i].dtype), types[i].name);
        assert_int_equal(cz_dtype_size(types[i].dtype), types[i].size);
    }
    static const int unknown[] = {0, 8, -1, 1 << 30};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_string_equal(cz_dtype_name((cz_dtype)unknown[i]), "unknown");
        assert_int_equal(cz_dtype_size((cz_dtype)unknown[i]), 0);
    }
}

typedef struct format {
    const char *name;
    uint16_t (*narrow)(float);
    float (*widen)(uint16_t);
    int fraction_bits;
    int bias;
} format;

static const format formats[] = {
    {"f16", cz__f16_from_f32, cz__f32_from_f16, 10, 15},
    {"bf16", cz__bf16_from_f32, cz__f32_from_bf16, 7, 127},
};

/* The number by the definition of the format; the biggest exponent read as if it were a number. */
static double by_definition(const format *f, unsigned bits)
{
    const int exponent = (int)((bits & 0x7fff) >> f->fraction_bits);
    const int fraction = (int)bits & ((1 << f->fraction_bits) - 1);
    const int normal = exponent > 0;
    const double size = ldexp(fraction + (normal << f->fraction_bits),
                              exponent + !normal - f->bias - f->fraction_bits);
    return bits & 0x8000 ? -size : size;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void check_widening(const format *f)
{
    const unsigned infinity = 0x7fff >> f->fraction_bits << f->fraction_bits;
    for (unsigned bits = 0; bits < 65536; bits++) {
        const float value = f->widen((uint16_t)bits);
        const unsigned size = bits & 0x7fff;
        if (size > infinity) {
            if (!isnan(value) || !(bits_of(value) & 0x400000))
                fail_msg("%s: %#x is no quiet NaN", f->name, bits);
            if (f->narrow(value) != (bits | 1u << (f->fraction_bits - 1)))
                fail_msg("%s: NaN %#x comes back as %#x", f->name, bits, f->narrow(value));
            continue;
        }
        const double wanted =
            size == infinity ? (bits & 0x8000 ? -INFINITY : INFINITY) : by_definition(f, bits);
        if ((double)value != wanted || !!signbit(value) != (int)(bits >> 15))
            fail_msg("%s: %#x became %a, expected %a", f->name, bits, (double)value, wanted);
        if (f->narrow(value) != bits)
            fail_msg("%s: %#x comes back as %#x", f->name, bits, f->narrow(value));
    }
}

static void check_narrowing(const format *f, float value)
{
    const unsigned infinity = 0x7fff >> f->fraction_bits << f->fraction_bits;
    const unsigned bits = f->narrow(value), size = bits & 0x7fff;
    const double wanted = fabs((double)value), got = by_definition(f, size);
    if ((int)(bits >> 15) != !!signbit(value) || size > infinity)
        fail_msg("%s: %a became %#x", f->name, (double)value, bits);
    if (isinf(value)) {
        assert_int_equal(size, infinity);
        return;
    }
    /* halfway to each neighbour; beyond infinity there is none */
    const double above = size < infinity ? (got + by_definition(f, size + 1)) / 2 : INFINITY;
    const double below = size > 0 ? (got + by_definition(f, size - 1)) / 2 : 0;
    if (wanted > above || wanted < below)
        fail_msg("%s: %a became %#x = %a, not the nearest", f->name, (double)value, bits, got);
    if ((wanted == above || (size > 0 && wanted == below)) && size % 2 != 0)
        fail_msg("%s: %a became the odd %#x of two", f->name, (double)value, bits);
}

static void check_around(const format *f, float value)
{
    for (int sign = 0; sign < 2; sign++, value = -value) {
        check_narrowing(f, value);
        check_narrowing(f, nextafterf(value, INFINITY));
        check_narrowing(f, nextafterf(value, -INFINITY));
    }
}

TEST(widening_is_exact)
{
    for (size_t i = 0; i < 2; i++)
        check_widening(&formats[i]);
}

TEST(narrowing_is_nearest_even)
{
    for (size_t i = 0; i < 2; i++) {
        const format *f = &formats[i];
        const unsigned infinity = 0x7fff >> f->fraction_bits << f->fraction_bits;
        for (unsigned bits = 0; bits < infinity; bits++) { /* each number, and each tie */
            check_around(f, (float)by_definition(f, bits));
            check_around(f, (float)((by_definition(f, bits) + by_definition(f, bits + 1)) / 2));
        }
        for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 7919) /* and any others */
            if (!isnan(float_of((uint32_t)bits)))
                check_narrowing(f, float_of((uint32_t)bits));
        check_around(f, 3.4028234663852886e38f);
        check_narrowing(f, INFINITY);
        check_narrowing(f, -INFINITY);
    }
}

TEST(nan_stays_nan)
{
    static const uint32_t nans[] = {0x7f800001, 0x7f801fff, 0x7fbfffff, 0x7fc00000,
                                    0x7fffffff, 0xff800001, 0xffffffff};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        const unsigned sign = nans[i] >> 16 & 0x8000;
        assert_int_equal(cz__f16_from_f32(float_of(nans[i])) & 0xfe00, sign | 0x7e00);
        assert_int_equal(cz__bf16_from_f32(float_of(nans[i])) & 0xffc0, sign | 0x7fc0);
    }
}

TEST(known_values)
{
    assert_int_equal(cz__f16_from_f32(1), 0x3c00);
    assert_int_equal(cz__f16_from_f32(-2), 0xc000);
    assert_int_equal(cz__f16_from_f32(65504), 0x7bff);
    assert_int_equal(cz__f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(cz__f16_from_f32(65520), 0x7c00);
    assert_int_equal(cz__f16_from_f32(0x1p-24f), 0x0001);
    assert_int_equal(cz__f16_from_f32(0x1p-25f), 0x0000);
    assert_int_equal(cz__f16_from_f32(0x1.8p-25f), 0x0001);
    assert_int_equal(cz__f16_from_f32(0x1.ff8p-15f), 0x03ff);
    assert_int_equal(cz__f16_from_f32(0x1.ffcp-15f), 0x0400); /* a tie, into the normal ones */
    assert_int_equal(cz__bf16_from_f32(1), 0x3f80);
    assert_int_equal(cz__bf16_from_f32(-0.0f), 0x8000);
    assert_int_equal(cz__bf16_from_f32(1.00390625f), 0x3f80); /* a tie */
    assert_int_equal(cz__bf16_from_f32(0x1.ffp127f), 0x7f80);
}
