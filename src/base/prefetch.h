/* SPDX-License-Identifier: MIT */
/* Lines of the cache that will be written soon, and that another core has read: asked for ahead,
 * they come while something else is done. */
#ifndef CZ_BASE_PREFETCH_H
#define CZ_BASE_PREFETCH_H

#include <stddef.h>

/* GCC knows the instruction for levels that name it only; processors that lack it take it for
 * none. */
static inline void cz__prefetch_to_write(void *at, size_t bytes)
{
    char *end = (char *)at + bytes;
    for (char *line = at; line < end; line += 64) {
#if defined __x86_64__
        __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
        __builtin_prefetch(line, 1);
#endif
    }
}

#endif
