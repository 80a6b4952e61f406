/* SPDX-License-Identifier: MIT */
/* Option structs of other sizes than ours, and numbers from the environment. */
#include "support/cz_test.h"
#include "support/comma_locale.h"

#include "base/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    size_t size;
    double a;
    int64_t b;
} options;

static const cz__option_table known = {
    "cz_x_options", sizeof(options),
    (const cz__option[]){CZ__OPTION(options, a, CZ__LOCAL, CZ__ANY),
                         CZ__OPTION(options, b, CZ__LOCAL, CZ__ANY),
                         {0}}};

typedef struct newer {
    size_t size;
    double a;
    int64_t b;
    double c;
    char d;
} newer;

TEST(null_means_all_zero)
{
    options ours;
    memset(&ours, 0xff, sizeof ours);
    assert_ok(cz__options_read(&ours, &known, NULL, "here"));
    assert_int_equal(ours.size, sizeof ours);
    assert_true(ours.a == 0 && ours.b == 0);
}

TEST(every_shorter_size)
{
    const options theirs = {.size = 0, .a = 1.5, .b = -1};
    for (size_t size = 0; size <= sizeof theirs; size++) {
        /* at the very end of a block: reading beyond what they have is found by ASan */
        char *block = malloc(size > sizeof(size_t) ? size : sizeof(size_t));
        memcpy(block, &theirs, size);
        memcpy(block, &size, sizeof size);
        options ours, wanted = {0};
        memset(&ours, 0xff, sizeof ours);
        const cz_status status = cz__options_read(&ours, &known, block, "here");
        memcpy(&wanted, block, size > sizeof(size_t) ? size : sizeof(size_t));
        wanted.size = sizeof wanted;
        assert_int_equal(status, size < sizeof(size_t) ? CZ_ERR_ARGUMENT : CZ_OK);
        if (status == CZ_OK)
            assert_memory_equal(&ours, &wanted, sizeof ours);
        free(block);
    }
}

TEST(newer_callers)
{
    options ours;
    newer theirs;
    memset(&theirs, 0, sizeof theirs);
    theirs.size = sizeof theirs;
    theirs.a = 2;
    theirs.b = 3;
    assert_ok(cz__options_read(&ours, &known, &theirs, "here"));
    assert_true(ours.a == 2 && ours.b == 3);
    assert_int_equal(ours.size, sizeof ours);
    theirs.d = 1; /* the last field counts as the first */
    assert_int_equal(cz__options_read(&ours, &known, &theirs, "here"), CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "cz_x_options: byte 32"));
    theirs.d = 0;
    theirs.c = -0.0;
    assert_int_equal(cz__options_read(&ours, &known, &theirs, "here"), CZ_ERR_UNSUPPORTED);
}

/* A size that was never set is an error, not a length to read. */
TEST(sizes_of_no_struct)
{
    static const size_t bad[] = {0, 7, 4097, 1 << 20, SIZE_MAX / 2, SIZE_MAX};
    size_t *block = calloc(1, 4096); /* reading beyond is found by ASan */
    options ours;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        block[0] = bad[i];
        assert_int_equal(cz__options_read(&ours, &known, block, "here"), CZ_ERR_ARGUMENT);
        assert_non_null(strstr(cz_last_error(), "set it to sizeof(cz_x_options)"));
        assert_int_equal(cz__options_check_size(bad[i], "cz_x_result"), CZ_ERR_ARGUMENT);
    }
    block[0] = 4096;
    assert_ok(cz__options_read(&ours, &known, block, "here"));
    assert_ok(cz__options_check_size(sizeof(size_t), "options"));
    free(block);
}

/* The first element's size holds for all; what the others say is not looked at. */
TEST(elements_of_an_array)
{
    newer theirs[3];
    options ours;
    memset(theirs, 0, sizeof theirs);
    theirs[0].size = sizeof *theirs;
    theirs[2].a = 2.5;
    theirs[2].b = 9;
    assert_ok(cz__options_read_element(&ours, &known, theirs, 2, "here"));
    assert_true(ours.a == 2.5 && ours.b == 9);
    assert_int_equal(ours.size, sizeof ours);
    theirs[2].d = 1;
    assert_int_equal(cz__options_read_element(&ours, &known, theirs, 2, "here"),
                     CZ_ERR_UNSUPPORTED);
    theirs[0].size = 4097;
    assert_int_equal(cz__options_read_element(&ours, &known, theirs, 2, "here"), CZ_ERR_ARGUMENT);
}

TEST(options_at_odd_addresses)
{
    char block[sizeof(options) + 1];
    const options theirs = {sizeof theirs, 0.25, 7};
    options ours;
    memcpy(block + 1, &theirs, sizeof theirs);
    assert_ok(cz__options_read(&ours, &known, block + 1, "here"));
    assert_true(ours.a == 0.25 && ours.b == 7);
}

/* ---- ranges ---- */

typedef struct ranged {
    size_t size;
    int32_t flag;
    uint32_t word;
    int64_t count;
    size_t bytes;
    double part;
    double seconds;
    int32_t rank;
    int32_t reserved;
} ranged;

static const char *const words[] = {"none", "some", "all", NULL};
static const cz__option_table ranges = CZ__OPTION_TABLE(
    ranged, CZ__OPTION(ranged, flag, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(ranged, word, CZ__LOCAL, CZ__WORDS(words)),
    CZ__OPTION(ranged, count, CZ__LOCAL, CZ__FROM(-1), CZ__ZERO_IS_OR_NONE(1000)),
    CZ__OPTION(ranged, bytes, CZ__LOCAL, CZ__BETWEEN(0, 4096), .range.multiple = 64),
    CZ__OPTION(ranged, part, CZ__LOCAL, CZ__BELOW(0, 1)),
    CZ__OPTION(ranged, seconds, CZ__LOCAL, CZ__FROM(0), .range.infinite = true),
    CZ__OPTION(ranged, rank, CZ__LOCAL, CZ__FROM(0), CZ__ZERO_IS(4)),
    CZ__OPTION(ranged, reserved, CZ__LOCAL, CZ__RESERVED));

static void expect_read(cz_status wanted, const ranged *theirs, const char *sentence)
{
    ranged ours;
    const cz_status status = cz__options_read(&ours, &ranges, theirs, "thing");
    if (status != wanted || (sentence && strcmp(cz_last_error(), sentence) != 0))
        fail_msg("%s '%s', wanted '%s'", cz_status_name(status), cz_last_error(),
                 sentence ? sentence : "CZ_OK");
}

#define REFUSED(field, value, sentence)                                                            \
    expect_read(CZ_ERR_ARGUMENT, &(ranged){.size = sizeof(ranged), .field = (value)},              \
                "thing: option " #field " is " sentence)
#define ALLOWED(field, value)                                                                      \
    expect_read(CZ_OK, &(ranged){.size = sizeof(ranged), .field = (value)}, NULL)

TEST(values_out_of_their_ranges)
{
    REFUSED(flag, 2, "2, wanted 0 or 1");
    REFUSED(flag, -1, "-1, wanted 0 or 1");
    REFUSED(word, 3, "3, wanted 0 to 2");
    REFUSED(word, (uint32_t)-1, "-1, wanted 0 to 2");
    REFUSED(count, -2, "-2, wanted -1 or more");
    REFUSED(count, INT64_MIN, "-9223372036854775808, wanted -1 or more");
    REFUSED(bytes, 65, "65, wanted a multiple of 64, 0 to 4096");
    REFUSED(bytes, SIZE_MAX, "18446744073709551615, wanted a multiple of 64, 0 to 4096");
    REFUSED(part, 1, "1, wanted 0 or more, below 1");
    REFUSED(part, -0.5, "-0.5, wanted 0 or more, below 1");
    REFUSED(part, NAN, "nan, wanted 0 or more, below 1");
    REFUSED(seconds, -1, "-1, wanted 0 or more, or infinity");
    REFUSED(seconds, -INFINITY, "-inf, wanted 0 or more, or infinity");
    REFUSED(seconds, NAN, "nan, wanted 0 or more, or infinity");
    expect_read(CZ_ERR_UNSUPPORTED, &(ranged){.size = sizeof(ranged), .reserved = 1},
                "ranged: reserved is 1, wanted 0");
}

TEST(values_at_the_ends_of_their_ranges)
{
    ALLOWED(flag, 1);
    ALLOWED(word, 2);
    ALLOWED(count, -1);
    ALLOWED(count, INT64_MAX);
    ALLOWED(bytes, 4096);
    ALLOWED(part, -0.0);
    ALLOWED(part, nextafter(1, 0));
    ALLOWED(seconds, INFINITY);
}

TEST(zero_is_replaced_by_what_it_stands_for)
{
    ranged ours;
    assert_ok(cz__options_read(&ours, &ranges, NULL, "thing"));
    assert_true(ours.count == 1000 && ours.rank == 4 && ours.bytes == 0 && ours.part == 0);
    assert_ok(
        cz__options_read(&ours, &ranges, &(ranged){.size = sizeof(ranged), .count = 7}, "thing"));
    assert_true(ours.count == 7);
    assert_ok(
        cz__options_read(&ours, &ranges, &(ranged){.size = sizeof(ranged), .count = -1}, "thing"));
    assert_true(ours.count == 0); /* none */
}

/* ---- the environment ---- */

static int warnings;

static void count_line(cz_log_level level, const char *line, void *context)
{
    warnings++;
}

static double read_number(const char *text)
{
    if (text)
        setenv("CZERO_TEST_NUMBER", text, 1);
    else
        unsetenv("CZERO_TEST_NUMBER");
    return cz__environment_number("CZERO_TEST_NUMBER", 0.5, 1e6, 30);
}

TEST(numbers_from_the_environment)
{
    static const char *const bad[] = {"x", "1x",     "1 ",      "nan", "inf", "-1",
                                      "0", "0.4999", "1000001", "1,5", " ",   "1e400"};
    cz_log_set_sink(count_line, NULL);
    assert_true(read_number(NULL) == 30);
    assert_true(read_number("") == 30);
    assert_true(read_number("0.5") == 0.5);
    assert_true(read_number("1e6") == 1e6);
    assert_true(read_number("12") == 12);
    assert_int_equal(warnings, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (read_number(bad[i]) != 30)
            fail_msg("\"%s\" was taken for a number", bad[i]);
        assert_int_equal(warnings, i + 1);
    }
    cz_log_set_sink(NULL, NULL);
}

TEST(a_point_in_every_locale)
{
    if (!set_comma_locale())
        skip();
    const double number = read_number("1.5");
    setlocale(LC_ALL, "C");
    assert_true(number == 1.5);
}
