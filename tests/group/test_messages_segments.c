/* SPDX-License-Identifier: MIT */
/* test_segments.c, where data in segments of a given size go by messages: the bits are those of threads without any. */
#define GROUPS_CREATE threads_or_late_create
#include "group/late_backend.h"

static inline cz_status threads_or_late_create(cz_group **groups, int world,
                                               const cz_group_options *options)
{
    return options && options->segment_bytes ? late_create(groups, world, options)
                                             : cz_group_create_threads(groups, world, options);
}

#include "test_segments.c"
