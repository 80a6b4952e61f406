/* SPDX-License-Identifier: MIT */
/* One writer at a time in a folder. */
#ifndef CZ_IO_FOLDER_LOCK_H
#define CZ_IO_FOLDER_LOCK_H

#include "czero/base.h"

struct stat;

/* For the time of a save: a second one at the same time is CZ_ERR_IO. The folder is open; `owner` is what this process has
 * made in it. The lock is a file that only its owner can open, and ends with the process in any case; -1 where the file
 * system has none. */
cz_status cz__folder_lock(int *lock, int folder, const char *path, const struct stat *owner);
void cz__folder_unlock(int lock, int folder);

/* Is that the name of such a file, whoever owns it? */
bool cz__folder_lock_is(const char *name);

#endif
