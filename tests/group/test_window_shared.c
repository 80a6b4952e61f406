/* SPDX-License-Identifier: MIT */
/* test_shared.c, on groups whose ranks the library takes for processes: blocks are mapped files. */
#include "group/window_backend.h"

#define cz_group_create_threads window_create
#include "test_shared.c"
