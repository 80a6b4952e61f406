/* SPDX-License-Identifier: MIT */
/* The line for bug reports. */
#include "support/cz_test.h"

#include "czero/device.h"
#include "device/cpu/cpu.h"

#include <string.h>

TEST(the_line_says_what_is_in_use)
{
    char level[32];
    const char *line = cz_build_info();
    snprintf(level, sizeof level, "(%s in use)", cz__cpu_kernels_chosen()->level);
    assert_non_null(strstr(line, cz_version()));
    assert_non_null(strstr(line, level));
    assert_non_null(strstr(line, "backends self, threads"));
    assert_null(strchr(line, '\n'));
    assert_ptr_equal(cz_build_info(), line);
}
