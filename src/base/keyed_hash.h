/* SPDX-License-Identifier: MIT */
/* A hash of texts that come from outside, for tables in memory: whoever chooses the texts cannot choose where they
 * go, because the key is drawn when the process begins. Not for what ranks or files compare: that is fingerprint.h. */
#ifndef CZ_BASE_KEYED_HASH_H
#define CZ_BASE_KEYED_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The same for the same bytes in one process, another one in another process. Any thread, no failure. */
uint64_t cz__keyed_hash(const void *bytes, size_t count);

/* With that key instead: for tests. */
uint64_t cz__keyed_hash_with(const uint64_t key[2], const void *bytes, size_t count);

#endif
