/* SPDX-License-Identifier: MIT */
/* How much memory groups and their operations take, from sizes alone: what groups ask before they
 * allocate, and a plan when there is no group. */
#ifndef CZ_OPERATION_SIZE_H
#define CZ_OPERATION_SIZE_H

#include "czero/base.h"

/* The chunks that large transfers are cut into where no option says it. */
size_t cz__default_segment_bytes(int size);

/* How many rounds of messages may be under way: no more than there are, or than there is a moderate
 * amount of staging memory for. */
int cz__rounds_of(int size, size_t most, size_t longest);

/* The chunks of an operation whose longest stream has `longest` bytes, in a group with chunks of at
 * most `most`; and all the staging memory that it may need. */
size_t cz__chunk_of(size_t most, size_t longest);
size_t cz__staging_of(int size, size_t most, size_t longest);
/* A block that a group keeps for the next operation: one of few sizes. */
size_t cz__staging_class(size_t bytes);

/* The longest stream of an all-reduce of that many bytes. */
size_t cz__all_reduce_longest(size_t bytes, int size);

/* When `count` elements are cut at 64-byte blocks: how many blocks each rank gets at least, and the
 * first of those that get one more. Remainder blocks go to the last ranks, as in the even cuts of a
 * shard map. */
int cz__even_blocks(int64_t count, size_t element_size, int size, int64_t *each);

/* Of the windows of a move between maps, two of which every rank has. */
size_t cz__move_window(size_t bytes);

#endif
