/* SPDX-License-Identifier: MIT */
/* The tests of a program, in the order of their definitions. */
#include "support/cz_test.h"

enum { MOST = 64 };

static struct CMUnitTest tests[MOST];
static size_t count;
static CMFixtureFunction set_up_each, tear_down_each;

void cz_test_each(int (*set_up)(void **state), int (*tear_down)(void **state))
{
    set_up_each = set_up;
    tear_down_each = tear_down;
}

void cz_test_register(const char *name, void (*test)(void **state))
{
    if (count == MOST)
        abort();
    tests[count++] = (struct CMUnitTest){name, test, set_up_each, tear_down_each, NULL};
}

int cz_test_run(int (*set_up)(void **state), int (*tear_down)(void **state))
{
    return _cmocka_run_group_tests("tests", tests, count, set_up, tear_down);
}
