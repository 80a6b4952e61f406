/* SPDX-License-Identifier: MIT */
/* Tables of names that somebody chose so that a hash without a key puts them all in one place. */
#include <string.h>
#include <time.h>

#include "base/fingerprint.h"
#include "support/cz_test.h"
#include "base/names.h"

enum { BLOCKS = 16, COUNT = 1 << BLOCKS, SEEN_BITS = 20, BLOCK = 5 };

/* Two blocks of letters after which the low bits of FNV-1a are the same, if they were `state`
 * before: the next state. */
static uint64_t find_pair(uint64_t state, char pair[2][BLOCK + 1])
{
    static uint32_t seen[1 << SEEN_BITS]; /* by what the low bits become: the try, from 1 on */
    const uint64_t low = (UINT64_C(1) << SEEN_BITS) - 1;
    memset(seen, 0, sizeof seen);
    for (uint32_t try = 1;; try++) {
        snprintf(pair[1], BLOCK + 1, "%05x", try & 0xfffff);
        /* cz__fingerprint() begins with its basis, and only the low bits of what was before go into
         * the low bits */
        uint64_t after = state;
        for (int i = 0; i < BLOCK; i++)
            after = (after ^ (uint8_t)pair[1][i]) * UINT64_C(0x100000001b3);
        uint32_t *const place = &seen[after & low];
        if (*place) {
            snprintf(pair[0], BLOCK + 1, "%05x", *place & 0xfffff);
            return after & low;
        }
        *place = try;
    }
}

TEST(chosen_names_do_not_make_a_table_slow)
{
    static char names[COUNT][BLOCKS * BLOCK + 1], pairs[BLOCKS][2][BLOCK + 1];
    uint64_t at = UINT64_C(0xcbf29ce484222325);
    for (int b = 0; b < BLOCKS; b++)
        at = find_pair(at, pairs[b]);
    for (int i = 0; i < COUNT; i++)
        for (int b = 0; b < BLOCKS; b++)
            memcpy(names[i] + b * BLOCK, pairs[b][i >> b & 1], BLOCK);
    const uint64_t low = (UINT64_C(1) << SEEN_BITS) - 1;
    for (int i = 1; i < COUNT; i += 4099) /* so it is: one place for all */
        assert_true((cz__fingerprint(0, names[i], strlen(names[i])) & low) ==
                    (cz__fingerprint(0, names[0], strlen(names[0])) & low));
    const clock_t begin = clock();
    cz__names table = {0};
    for (int i = 0; i < COUNT; i++) {
        int64_t number;
        assert_false(cz__names_find(&table, names[i], &number));
        assert_true(cz__names_reserve(&table, 1));
        cz__names_add(&table, names[i], i);
    }
    for (int i = 0; i < COUNT; i++) {
        int64_t number = -1;
        assert_true(cz__names_find(&table, names[i], &number));
        assert_int_equal(number, i);
    }
    cz__names_clear(&table);
    assert_true(clock() - begin < 5 * CLOCKS_PER_SEC); /* one place for all: a minute */
}
