/* SPDX-License-Identifier: MIT */
/* test_in_flight.c, where data go by messages. */
#define GROUPS_CREATE late_create
#include "group/late_backend.h"

#define cz_group_create_threads late_create
#include "test_in_flight.c"
