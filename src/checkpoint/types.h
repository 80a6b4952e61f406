/* SPDX-License-Identifier: MIT */
/* Moved to io/types.h; for tools/ulps.c until it says so. */
#include "io/types.h"
