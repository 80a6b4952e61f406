/* SPDX-License-Identifier: MIT */
/* Every single allocation of saves and loads fails in turn. */
#define STRIDE 1
#include "checkpoint/test_allocations.c"
