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
    tests[count++] = (struct CMUnitTest){name, test, NULL, NULL, NULL};
}

int cz_test_run(int (*set_up)(void **state), int (*tear_down)(void **state))
{
    if (count == 0) {
        fprintf(stderr, "this program has no test\n");
        abort();
    }
    for (size_t i = 0; i < count; i++) {
        tests[i].setup_func = set_up_each;
        tests[i].teardown_func = tear_down_each;
    }
    return _cmocka_run_group_tests("tests", tests, count, set_up, tear_down);
}
