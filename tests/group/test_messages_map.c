/* SPDX-License-Identifier: MIT */
/* test_map.c, where data go by messages. */
#define GROUPS_CREATE late_create
#include "group/late_backend.h"

#include "test_map.c"
