/* SPDX-License-Identifier: MIT */
/* What is read is never what is written: files are known by device and number, under whatever names
 * they are reached. */
#ifndef CZ_TOOL_GUARD_H
#define CZ_TOOL_GUARD_H

#include "czero/status.h"

/* From now on what is opened for reading is remembered. */
void guard_begin(void);

/* A path that will be read, and where it is a folder all that is in it: nothing of it is to be
 * written. CZ_ERR_ARGUMENT: standard output goes to it; CZ_ERR_IO, CZ_ERR_MEMORY. */
cz_status guard_read(const char *path);

/* A file that will be written, replaced or removed. CZ_ERR_ARGUMENT: it is what is read, or belongs
 * to a checkpoint or a model of several files, which would be lost with it. CZ_ERR_IO: it cannot be
 * seen; CZ_ERR_MEMORY. */
cz_status guard_write(const char *path);
/* The same of a folder that gets the files of a model. What is in it and has no such name is left
 * alone. */
cz_status guard_write_folder(const char *path);

#endif
