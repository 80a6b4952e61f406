/* SPDX-License-Identifier: MIT */
/* Monotonic time. */
#ifndef CZ_BASE_CLOCK_H
#define CZ_BASE_CLOCK_H

double cz__seconds(void); /* since an arbitrary moment, never backwards */

#endif
