/* SPDX-License-Identifier: MIT */
/* Time, and a thread that keeps its core while it waits for another one. */
#ifndef CZ_BASE_CLOCK_H
#define CZ_BASE_CLOCK_H

#include <time.h>

/* Since an arbitrary moment, never backwards. */
static inline double cz__seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void cz__pause(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

#endif
