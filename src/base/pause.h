/* SPDX-License-Identifier: MIT */
/* For a thread that keeps its core while it waits for another one. */
#ifndef CZ_BASE_PAUSE_H
#define CZ_BASE_PAUSE_H

static inline void cz__pause(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

#endif
