/* SPDX-License-Identifier: MIT */
/* State in 8 bits, in the host's memory: values as codes and, for each block of CZ__BLOCK of them,
 * a scale. What codes stand for is in cpu/kernels/blocks.c. Zeroed memory stands for zeros; a block
 * with an element that is not finite is NaN. Local; any thread; the same bits at every level. */
#ifndef CZ_DEVICE_BLOCKS_H
#define CZ_DEVICE_BLOCKS_H

#include "czero/base.h"

#include <stdbool.h>
#include <stdint.h>

#define CZ__BLOCK 256

/* `count` values, blocks from the first on: where they may be below zero (`is_signed`), or are not.
 * No overlap. */
void cz__pack(bool is_signed, int64_t count, const float *values, uint8_t *codes, float *scales);

/* What codes and scales stand for; packed, it becomes the same ones. */
void cz__unpack(bool is_signed, int64_t count, const uint8_t *codes, const float *scales,
                float *values);

/* Scales of so many elements. */
static inline int64_t cz__blocks(int64_t count)
{
    return (count + CZ__BLOCK - 1) / CZ__BLOCK;
}

#endif
