/* SPDX-License-Identifier: MIT */
/* Bytes in 64 bits: to compare without having them, to find a place in a table. */
#ifndef CZ_BASE_FINGERPRINT_H
#define CZ_BASE_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

/* 64 bits that differ where bytes differ, but for chance. `before`: the fingerprint of what comes
 * before these bytes, 0: nothing. */
uint64_t cz__fingerprint(uint64_t before, const void *bytes, size_t count);

/* The same for many bytes, in a fraction of the time; another number. Blocks, one after the other,
 * give another number than all at once: they are cut alike where numbers are compared. */
uint64_t cz__fingerprint_elements(uint64_t before, const void *bytes, size_t count);

/* ---- with a key ---- */
/* A hash of texts that come from outside, for tables in memory: whoever chooses the texts cannot
 * choose where they go, because the key is drawn when the process begins. Not for what ranks or
 * files compare: that is cz__fingerprint(). */

/* The same for the same bytes in one process, another one in another process. Any thread, no
 * failure. */
uint64_t cz__keyed_hash(const void *bytes, size_t count);

/* With that key instead: for tests. */
uint64_t cz__keyed_hash_with(const uint64_t key[2], const void *bytes, size_t count);

#endif
