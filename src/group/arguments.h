/* SPDX-License-Identifier: MIT */
/* What the collective calls have in common: checking this rank's arguments, describing memory. */
#ifndef CZ_GROUP_ARGUMENTS_H
#define CZ_GROUP_ARGUMENTS_H

#include "group/internal.h"

/* This rank's verdict on its arguments; `name` is the operation's. */
cz_status cz__no_group(const char *name);
/* `blocks` times `count` elements must be a size, and not at NULL. */
cz_status cz__check_buffer(const char *name, const void *buffer, int64_t count, int blocks,
                           cz_dtype dtype);
/* Two buffers share no memory, unless the first is the elements of the second from `place` on;
 * below 0: not then either. */
cz_status cz__check_apart(const char *name, const void *part, int64_t part_count, const void *whole,
                          int64_t whole_count, int64_t place, cz_dtype dtype);
cz_status cz__check_reduction(const char *name, cz_reduction reduction, cz_dtype dtype);
cz_status cz__check_root(const char *name, const cz_group *group, int root);

/* A region of one block; what would be nonsense after a failed check is never looked at. */
cz__region cz__region_of(const cz_group *group, cz__region_kind kind, const void *base,
                         int64_t count, cz_dtype dtype);
/* The same, all of it the stream of `root`. */
cz__region cz__root_region(const cz_group *group, int root, const void *base, int64_t count,
                           cz_dtype dtype);

/* An operation whose longest stream has `count` elements; its regions are to be filled in. */
cz__operation cz__operation_describe(cz__operation_kind kind, int64_t count, cz_dtype dtype);

#endif
