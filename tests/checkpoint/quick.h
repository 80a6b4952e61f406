/* SPDX-License-Identifier: MIT */
/* A test's folder in memory, where that can be: for tests of many saves, whose log is not of
 * interest. */
#ifndef CZ_TEST_QUICK_H
#define CZ_TEST_QUICK_H

#include "checkpoint/small.h"

static char folder[FOLDER_BYTES];

static inline int set_up(void **state)
{
    cz_log_set_sink(small_quiet, NULL);
    make_quick_folder(folder);
    return 0;
}

static inline int tear_down(void **state)
{
    remove_folder(folder);
    return 0;
}

#endif
