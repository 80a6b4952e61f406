/* SPDX-License-Identifier: MIT */
/* A bar on a terminal. */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "show.h"

enum { WIDTH = 30 };

void progress_begin(progress *p, const char *what, uint64_t total, bool quiet)
{
    *p = (progress){.what = what, .total = total, .drawn = -1};
    p->shows = !quiet && total > 0 && isatty(STDERR_FILENO);
}

static void draw(const progress *p, int mille)
{
    char bar[WIDTH + 1];
    const int full = mille * WIDTH / 1000;
    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)full);
    bar[WIDTH] = 0;
    fprintf(stderr, "\r%s [%s] %3d %%  ", p->what, bar, mille / 10);
    if (!p->counts)
        fprintf(stderr, "%s of %s    ", show_bytes(p->done).text, show_bytes(p->total).text);
    fflush(stderr);
}

void progress_add(progress *p, uint64_t more)
{
    p->done += more;
    if (!p->shows)
        return;
    const int mille = p->done >= p->total ? 1000 : (int)((double)p->done / (double)p->total * 1000);
    if (mille == p->drawn)
        return;
    p->drawn = mille;
    draw(p, mille);
}

void progress_end(progress *p)
{
    if (p->shows && p->drawn >= 0)
        fprintf(stderr, "\r%*s\r", WIDTH + 60, "");
    p->shows = false;
}
