/* SPDX-License-Identifier: MIT */
/* Folders of a test's own, in the build tree. */
#ifndef CZ_TEST_FOLDER_H
#define CZ_TEST_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/cz_test.h"

enum { FOLDER_BYTES = 512 };

static inline void make_folder(char folder[FOLDER_BYTES])
{
    snprintf(folder, FOLDER_BYTES, "%s/checkpoint-XXXXXX", CZ_TEST_BINARY_DIR);
    assert_non_null(mkdtemp(folder));
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
