/* SPDX-License-Identifier: MIT */
/* Fingerprints of elements by their places: sums that are the same however elements are dealt out,
 * and in whatever order they are added. */
#ifndef CZ_DEVICE_PRINT_H
#define CZ_DEVICE_PRINT_H

#include "czero/device.h"

/* What elements are of: of a parameter's value or slot, a number of its own. */
uint64_t cz__print_key(const char *param, const char *what);

/* Add elements [first, first + count) of a tensor with that key, which lie at `values` on the
 * device, to two sums that wrap around. */
cz_status cz__print_add(const cz_device *device, uint64_t key, cz_dtype dtype, int64_t first,
                        int64_t count, const void *values, uint64_t print[2]);

/* A number that is no tensor, such as a step count, in 64 bits. */
void cz__print_add_bits(uint64_t key, uint64_t bits, uint64_t print[2]);

#endif
