/* SPDX-License-Identifier: MIT */
/* A bar on a terminal that says how far something is. Nothing where stderr is none. */
#ifndef CZ_TOOL_PROGRESS_H
#define CZ_TOOL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    const char *what;
    uint64_t done, total;
    bool counts; /* these are things and not bytes */
    bool shows;
    int drawn; /* per mille; -1: nothing yet */
} progress;

void progress_begin(progress *p, const char *what, uint64_t total, bool quiet);
void progress_add(progress *p, uint64_t more);
void progress_end(progress *p); /* the line is empty again */

#endif
