/* SPDX-License-Identifier: MIT */
/* Sizes of what groups allocate, from nothing but numbers. */
#include "operation/size.h"

#include "operation/operation.h"

enum {
    DEFAULT_SEGMENT_BYTES = 128 * 1024,
    DEFAULT_STAGING_BYTES = 8 << 20,
    SMALLEST_SEGMENT_BYTES = 4096 /* of the default */
};

static size_t slots_of_round(int size)
{
    return 2 * (size_t)size + 1;
}

/* Smaller ones in large groups. */
size_t cz__default_segment_bytes(int size)
{
    const size_t share = DEFAULT_STAGING_BYTES / (CZ__ROUNDS * slots_of_round(size)) / 64 * 64;
    if (share > DEFAULT_SEGMENT_BYTES)
        return DEFAULT_SEGMENT_BYTES;
    return share < SMALLEST_SEGMENT_BYTES ? SMALLEST_SEGMENT_BYTES : share;
}

size_t cz__chunk_of(size_t most, size_t longest)
{
    const size_t lines = longest / 64 + 1;
    const size_t least = lines < 4 ? 256 : 64 * lines;
    return least < most ? least : most;
}

int cz__rounds_of(int size, size_t most, size_t longest)
{
    const size_t all = (longest + most - 1) / most;
    const size_t moderate = DEFAULT_STAGING_BYTES / (slots_of_round(size) * most);
    const size_t rounds = all < moderate ? all : moderate;
    if (rounds < 1)
        return 1;
    return rounds < CZ__ROUNDS ? (int)rounds : CZ__ROUNDS;
}

/* Staging slots of a round, one chunk each: [0, size) for packing what is sent to a rank (to all:
 * that of this rank), [size, 2 size) for what comes from a rank, and one for a packed result. */
size_t cz__staging_of(int size, size_t most, size_t longest)
{
    return (size_t)cz__rounds_of(size, most, longest) * slots_of_round(size) *
           cz__chunk_of(most, longest);
}

/* Eight sizes from each power of two to the next: few different ones are kept, and little of one is
 * unused. */
size_t cz__staging_class(size_t bytes)
{
    size_t power = 4096;
    while (power < bytes / 2 + bytes % 2)
        power *= 2;
    const size_t step = power / 8;
    return bytes <= power ? power : (bytes + step - 1) / step * step;
}

size_t cz__all_reduce_longest(size_t bytes, int size)
{
    return bytes / (size_t)size + 64;
}

int cz__even_blocks(int64_t count, size_t element_size, int size, int64_t *each)
{
    const int64_t block = 64 / (int64_t)element_size;
    const int64_t blocks = (count + block - 1) / block;
    *each = blocks / size;
    return size - (int)(blocks % size);
}

size_t cz__move_window(size_t bytes)
{
    return bytes < CZ__WINDOW_BYTES ? bytes : CZ__WINDOW_BYTES;
}
