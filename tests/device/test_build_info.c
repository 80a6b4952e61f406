/* SPDX-License-Identifier: MIT */
/* The line for bug reports. */
#include "support/cz_test.h"

#include "czero/device.h"

#include <string.h>

static void test_the_line_says_what_is_in_use(void **state)
{
    char level[32];
    const char *line = cz_build_info();
    snprintf(level, sizeof level, "(%s in use)", cz_cpu_level());
    assert_non_null(strstr(line, cz_version()));
    assert_non_null(strstr(line, level));
    assert_non_null(strstr(line, "backends self, threads"));
    assert_null(strchr(line, '\n'));
    assert_ptr_equal(cz_build_info(), line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_line_says_what_is_in_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
