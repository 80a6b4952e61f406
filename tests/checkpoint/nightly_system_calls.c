/* SPDX-License-Identifier: MIT */
/* Every single call of the system fails in turn in saves, loads, exports and imports. */
#define STRIDE 1
#include "checkpoint/test_system_calls.c"
