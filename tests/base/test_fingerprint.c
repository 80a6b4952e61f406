/* SPDX-License-Identifier: MIT */
/* The fingerprint is FNV-1a, and goes on where another ended. */
#include "support/cz_test.h"

#include "base/fingerprint.h"

TEST(published_values)
{
    assert_true(cz__fingerprint(0, NULL, 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(cz__fingerprint(0, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(cz__fingerprint(0, "foobar", 6) == UINT64_C(0x85944171f73967e8));
}

TEST(what_comes_before_counts)
{
    const uint64_t ab = cz__fingerprint(cz__fingerprint(0, "a", 1), "b", 1);
    const uint64_t ba = cz__fingerprint(cz__fingerprint(0, "b", 1), "a", 1);
    assert_true(ab != ba && ab != cz__fingerprint(0, "b", 1));
}

/* Of many bytes each counts, and where it is. */
TEST(each_byte_of_many_counts)
{
    enum { BYTES = 167 };
    uint8_t bytes[BYTES] = {0};
    const uint64_t zeros = cz__fingerprint_elements(7, bytes, BYTES);
    uint64_t prints[BYTES];
    for (int i = 0; i < BYTES; i++) {
        bytes[i] = 0x80;
        prints[i] = cz__fingerprint_elements(7, bytes, BYTES);
        bytes[i] = 0;
        assert_true(prints[i] != zeros);
        for (int k = 0; k < i; k++)
            assert_true(prints[k] != prints[i]);
    }
    assert_true(cz__fingerprint_elements(8, bytes, BYTES) != zeros);
    assert_true(cz__fingerprint_elements(7, bytes, BYTES - 1) != zeros);
}
