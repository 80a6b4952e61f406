/* SPDX-License-Identifier: MIT */
/* test_continuations.c, where ranks are on two machines in turn. */
#define GROUPS_CREATE node_create_in_turn
#include "group/node_backend.h"

#define cz_group_create_threads node_create_in_turn
#include "test_continuations.c"
