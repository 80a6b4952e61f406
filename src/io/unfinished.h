/* SPDX-License-Identifier: MIT */
/* What a consolidated file is called until it is complete. No program of a user's gives a file such a name, so what is
 * found under it was left by an export or a conversion that was killed, and may be replaced unasked. */
#ifndef CZ_IO_UNFINISHED_H
#define CZ_IO_UNFINISHED_H

#include "io/text.h"

#define CZ__UNFINISHED ".czero-unfinished"
#define CZ__ELEMENTS ".elements" /* and that: of a file for torch, what all ranks write */

/* "PATH.czero-unfinished", in place of what is in `name`. CZ_ERR_MEMORY. */
cz_status cz__unfinished_name(cz__text *name, const char *path);
bool cz__unfinished_is(const char *name);

/* A line for each that belongs to a file, which may not be there itself, or is in a folder; if more than a few are in
 * one, a line for all. What cannot be read has none. */
void cz__unfinished_list(cz__text *list, const char *path);

#endif
