/* SPDX-License-Identifier: MIT */
/* test_rooted.c, where ranks have a window. */
#define GROUPS_CREATE window_create
#include "group/window_backend.h"

#define cz_group_create_threads window_create
#include "test_rooted.c"
