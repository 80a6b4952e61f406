/* SPDX-License-Identifier: MIT */
/* Numbers as text: the same in every locale and floating-point environment of the program, and read
 * back exactly. */
#include "base/plain_text.h"
#include "base/status.h"

#include "support/cz_test.h"
#include "support/comma_locale.h"
#include "support/float_mode.h"

#include <math.h>

enum { NUMBERS = 2000 };

static double number(int i)
{
    uint64_t bits = (uint64_t)i * 0x9e3779b97f4a7c15u ^ (uint64_t)i << 7;
    double value;
    bits &= ~((uint64_t)1 << 62); /* finite */
    memcpy(&value, &bits, sizeof value);
    return i % 3 == 0 ? i / 7.0 : i % 3 == 1 ? 1.0 / (i + 1) : value;
}

static void check_numbers(void)
{
    for (int i = 0; i < NUMBERS; i++) {
        char expected[CZ__REAL_TEXT_BYTES], text[CZ__REAL_TEXT_BYTES], *end;
        const double value = number(i);
        cz__real_text(expected, value);
        for (int mode = MODE_DEFAULT; mode < MODE_COUNT; mode++) {
            set_mode((test_mode)mode);
            const mode_seen before = see_mode();
            cz__real_text(text, value);
            const double back = cz__read_real(text, &end);
            const mode_seen after = see_mode();
            fesetenv(FE_DFL_ENV);
            assert_string_equal(text, expected);
            assert_memory_equal(&back, &value, sizeof value);
            assert_int_equal(*end, '\0');
            assert_memory_equal(&before, &after, sizeof before);
        }
    }
}

TEST(numbers_come_back_from_text_in_every_environment)
{
    check_numbers();
}

TEST(the_shortest_text_is_chosen)
{
    char text[CZ__REAL_TEXT_BYTES];
    cz__real_text(text, 0.1);
    assert_string_equal(text, "0.1");
    cz__real_text(text, 0.123456789);
    assert_string_equal(text, "0.123456789");
    cz__real_text(text, 0.1 + 0.2);
    assert_string_equal(text, "0.30000000000000004");
    cz__real_text(text, -INFINITY);
    assert_string_equal(text, "-inf");
}

TEST(sentences_have_points_in_a_locale_of_commas)
{
    char plain[32], line[32];
    if (!set_comma_locale())
        skip();
    check_numbers();
    (void)cz_fail(CZ_ERR_STATE, "%g s", 0.5);
    snprintf(line, sizeof line, "%s", cz_last_error());
    snprintf(plain, sizeof plain, "%g", 0.5);
    setlocale(LC_ALL, "C");
    assert_string_equal(line, "0.5 s");
    assert_string_equal(plain, "0,5"); /* the program's own locale was left alone */
}
