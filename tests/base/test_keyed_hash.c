/* SPDX-License-Identifier: MIT */
/* The keyed hash: the values of its paper, and that names which collide under one key do not under
 * another. */
#include "base/fingerprint.h"
#include "support/cz_test.h"

/* Appendix A of the paper, and the first of its authors' vectors. */
TEST(values_are_those_of_siphash)
{
    const uint64_t key[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    uint8_t bytes[16];
    for (int i = 0; i < 16; i++)
        bytes[i] = (uint8_t)i;
    assert_true(cz__keyed_hash_with(key, bytes, 0) == UINT64_C(0x726fdb47dd0e0e31));
    assert_true(cz__keyed_hash_with(key, bytes, 8) == UINT64_C(0x93f5f5799a932462));
    assert_true(cz__keyed_hash_with(key, bytes, 15) == UINT64_C(0xa129ca6149be45e5));
}

TEST(keys_are_drawn_by_each_process)
{
    const uint64_t none[2] = {0, 0};
    assert_true(cz__keyed_hash("name", 4) == cz__keyed_hash("name", 4));
    assert_true(cz__keyed_hash("name", 4) != cz__keyed_hash("nama", 4));
    assert_true(cz__keyed_hash("name", 4) != cz__keyed_hash_with(none, "name", 4));
}
