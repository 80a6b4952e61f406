/* SPDX-License-Identifier: MIT */
/* The one place where files are opened. What is opened is closed in programs that this one starts,
 * and never has the number of standard input, output or error, even where the program has closed
 * these: what anybody prints would land in it. Everything fails with errno, as the calls of the
 * system that it stands for. */
#ifndef CZ_BASE_OPEN_H
#define CZ_BASE_OPEN_H

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>

/* open(2) and openat(2) with rights of 0666; -1: no. O_NOFOLLOW, where a link is not to be
 * followed, is the caller's. */
int cz__open(const char *path, int flags);
int cz__open_at(int folder, const char *name, int flags);
/* With rights of its own. */
int cz__open_with_rights(int folder, const char *name, int flags, mode_t mode);

/* fopen(3) for "r" or "w"; NULL: no. */
FILE *cz__open_stream(const char *path, const char *mode);

/* opendir(3); and of a folder that is open, which stays so. NULL: no. */
DIR *cz__open_folder(const char *path);
DIR *cz__list_folder(int folder);

/* An anonymous file in memory (memfd_create), a new file beside (mkostemp), a pipe (pipe2; 0:
 * done). */
int cz__open_memory(const char *name);
int cz__open_temporary(char *pattern);
int cz__open_pipe(int ends[2], int flags);

/* ---- paths that are kept for later ---- */

/* The path from the root on, without slashes at its end, for cz__free(): what is kept so leads to
 * the same place when the program has changed its working directory. Links stay in it. NULL, with
 * errno: no memory, or no working directory. */
char *cz__path_absolute(const char *path);
/* True: the process stays in its working directory, and archives call files as they were called:
 * the czero command. */
extern bool cz__paths_stay;

/* What is behind the last slash; it is part of the path. */
const char *cz__path_name(const char *path);

#endif
