/* SPDX-License-Identifier: MIT */
/* The fingerprint is FNV-1a, and goes on where another ended. */
#include "support/cz_test.h"

#include "base/fingerprint.h"

static void test_published_values(void **state)
{
    assert_true(cz__fingerprint(0, NULL, 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(cz__fingerprint(0, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(cz__fingerprint(0, "foobar", 6) == UINT64_C(0x85944171f73967e8));
}

static void test_what_comes_before_counts(void **state)
{
    const uint64_t ab = cz__fingerprint(cz__fingerprint(0, "a", 1), "b", 1);
    const uint64_t ba = cz__fingerprint(cz__fingerprint(0, "b", 1), "a", 1);
    assert_true(ab != ba && ab != cz__fingerprint(0, "b", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_values),
        cmocka_unit_test(test_what_comes_before_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
