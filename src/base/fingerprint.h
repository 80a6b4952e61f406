/* SPDX-License-Identifier: MIT */
/* Bytes in 64 bits: to compare without having them, to find a place in a table. */
#ifndef CZ_BASE_FINGERPRINT_H
#define CZ_BASE_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

/* 64 bits that differ where bytes differ, but for chance. `before`: the fingerprint of what comes before
 * these bytes, 0: nothing. */
uint64_t cz__fingerprint(uint64_t before, const void *bytes, size_t count);

/* The same for many bytes, in a fraction of the time; another number. Blocks, one after the other, give another number than
 * all at once: they are cut alike where numbers are compared. */
uint64_t cz__fingerprint_elements(uint64_t before, const void *bytes, size_t count);

#endif
