/* SPDX-License-Identifier: MIT */
/* Folders of a test's own, in the build tree or in memory. */
#ifndef CZ_TEST_FOLDER_H
#define CZ_TEST_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/cz_test.h"

enum { FOLDER_BYTES = 512 };

static inline void make_folder_in(char folder[FOLDER_BYTES], const char *where)
{
    snprintf(folder, FOLDER_BYTES, "%s/checkpoint-XXXXXX", where);
    assert_non_null(mkdtemp(folder));
}

/* For tests of hundreds of saves, which would wait for a medium most of the time: in memory where
 * that can be. */
static inline void make_quick_folder(char folder[FOLDER_BYTES])
{
    make_folder_in(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : CZ_TEST_BINARY_DIR);
}

static inline void make_folder(char folder[FOLDER_BYTES])
{
    if (SANITIZED) /* which watches memory, not the medium */
        make_quick_folder(folder);
    else
        make_folder_in(folder, CZ_TEST_BINARY_DIR);
}

static inline int remove_entry(const char *path, const struct stat *about, int kind,
                               struct FTW *place)
{
    return remove(path);
}

static inline void remove_folder(const char *folder)
{
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
