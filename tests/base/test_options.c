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
    assert_ok(cz__options_read(&ours, sizeof ours, NULL, "options"));
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
        const cz_status status = cz__options_read(&ours, sizeof ours, block, "options");
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
    assert_ok(cz__options_read(&ours, sizeof ours, &theirs, "options"));
    assert_true(ours.a == 2 && ours.b == 3);
    assert_int_equal(ours.size, sizeof ours);
    theirs.d = 1; /* the last field counts as the first */
    assert_int_equal(cz__options_read(&ours, sizeof ours, &theirs, "cz_x_options"),
                     CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "cz_x_options: byte 32"));
    theirs.d = 0;
    theirs.c = -0.0;
    assert_int_equal(cz__options_read(&ours, sizeof ours, &theirs, "options"), CZ_ERR_UNSUPPORTED);
}

/* A size that was never set is an error, not a length to read. */
TEST(sizes_of_no_struct)
{
    static const size_t bad[] = {0, 7, 4097, 1 << 20, SIZE_MAX / 2, SIZE_MAX};
    size_t *block = calloc(1, 4096); /* reading beyond is found by ASan */
    options ours;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        block[0] = bad[i];
        assert_int_equal(cz__options_read(&ours, sizeof ours, block, "cz_x_options"),
                         CZ_ERR_ARGUMENT);
        assert_non_null(strstr(cz_last_error(), "set it to sizeof(cz_x_options)"));
        assert_int_equal(cz__options_check_size(bad[i], "cz_x_result"), CZ_ERR_ARGUMENT);
    }
    block[0] = 4096;
    assert_ok(cz__options_read(&ours, sizeof ours, block, "options"));
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
    assert_ok(cz__options_read_element(&ours, sizeof ours, theirs, 2, "cz_x"));
    assert_true(ours.a == 2.5 && ours.b == 9);
    assert_int_equal(ours.size, sizeof ours);
    theirs[2].d = 1;
    assert_int_equal(cz__options_read_element(&ours, sizeof ours, theirs, 2, "cz_x"),
                     CZ_ERR_UNSUPPORTED);
    theirs[0].size = 4097;
    assert_int_equal(cz__options_read_element(&ours, sizeof ours, theirs, 2, "cz_x"),
                     CZ_ERR_ARGUMENT);
}

TEST(options_at_odd_addresses)
{
    char block[sizeof(options) + 1];
    const options theirs = {sizeof theirs, 0.25, 7};
    options ours;
    memcpy(block + 1, &theirs, sizeof theirs);
    assert_ok(cz__options_read(&ours, sizeof ours, block + 1, "options"));
    assert_true(ours.a == 0.25 && ours.b == 7);
}

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
