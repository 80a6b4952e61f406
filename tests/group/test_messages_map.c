/* SPDX-License-Identifier: MIT */
/* test_map.c, where data go by messages. */
#define GROUPS_CREATE messages_create
#include "group/window_backend.h"

static inline cz_status messages_create(cz_group **groups, int world,
                                        const cz_group_options *options)
{
    window_blind = 0;
    return window_create(groups, world, options);
}

#include "test_map.c"
