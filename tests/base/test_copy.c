/* SPDX-License-Identifier: MIT */
/* Copies past the caches: every alignment and size around a line, and large ones; nothing beyond
 * them changes. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "support/cz_test.h"

enum { GUARD = 64, LARGE = (1 << 20) + 13, ROOM = LARGE + 4 * GUARD };

static unsigned char from[ROOM], to[ROOM], wanted[ROOM];

static void check(size_t to_offset, size_t from_offset, size_t bytes)
{
    const size_t seen = to_offset + bytes + GUARD;
    memset(to, 0xa5, seen);
    memset(wanted, 0xa5, seen);
    memcpy(wanted + to_offset, from + from_offset, bytes);
    cz__copy_past_caches(to + to_offset, from + from_offset, bytes);
    assert_memory_equal(to, wanted, seen);
}

TEST(any_bytes_are_copied_to_any_offset)
{
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 2654435761u >> 24);
    for (size_t at = 0; at < GUARD; at++)
        for (size_t bytes = 0; bytes <= 5 * GUARD; bytes++)
            check(at, (at * 7 + bytes) % GUARD, bytes);
    for (size_t at = 0; at < GUARD; at += 21)
        check(at, GUARD - at, LARGE);
    cz__copy_past_caches(NULL, NULL, 0);
}
