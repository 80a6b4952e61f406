/* SPDX-License-Identifier: MIT */
/* Paths that are kept for later. */
#ifndef CZ_BASE_PATH_H
#define CZ_BASE_PATH_H

/* The path from the root on, without slashes at its end, for cz__free(): what is kept so leads to the same place when the
 * program has changed its working directory. Links stay in it. NULL, with errno: no memory, or no working directory. */
char *cz__path_absolute(const char *path);

/* What is behind the last slash; it is part of the path. */
const char *cz__path_name(const char *path);

#endif
