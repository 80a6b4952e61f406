/* SPDX-License-Identifier: MIT */
/* Files: the one place where they are opened, and paths that are kept. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/open.h"

/* The numbers of standard input, output and error are kept from descriptors. */
#define FIRST (STDERR_FILENO + 1)

/* ---- the low numbers ---- */

/* Those that are free are taken while something is opened, by descriptors that nobody can write to
 * or read from: were the file itself moved up afterwards, another thread could print into it
 * meanwhile. */
typedef struct low_numbers {
    int held[FIRST];
    int count;
} low_numbers;

static void release(low_numbers *low)
{
    const int error = errno;
    for (int i = 0; i < low->count; i++)
        close(low->held[i]);
    errno = error;
}

static void hold(low_numbers *low)
{
    low->count = 0;
    for (int i = 0; i < FIRST; i++) {
        const int file = open("/", O_PATH | O_CLOEXEC);
        if (file >= FIRST)
            close(file);
        if (file < 0 || file >= FIRST)
            return;
        low->held[low->count++] = file;
    }
}

/* A number that another thread has freed in between, or that could not be held. */
static int move_up(int file)
{
    if (file < 0 || file >= FIRST)
        return file;
    const int moved = fcntl(file, F_DUPFD_CLOEXEC, FIRST), error = errno;
    close(file);
    errno = error;
    return moved;
}

/* ---- files ---- */

int cz__open_with_rights(int folder, const char *name, int flags, mode_t mode)
{
    low_numbers low;
    int file;
    hold(&low);
    do
        file = openat(folder, name, flags | O_CLOEXEC, mode);
    while (file < 0 && errno == EINTR);
    release(&low);
    const bool made = file >= 0 && (flags & O_EXCL);
    file = move_up(file);
    if (file < 0 && made) { /* a new one of that name would be refused */
        const int error = errno;
        (void)unlinkat(folder, name, 0);
        errno = error;
    }
    return file;
}

int cz__open_at(int folder, const char *name, int flags)
{
    return cz__open_with_rights(folder, name, flags, 0666);
}

int cz__open(const char *path, int flags)
{
    return cz__open_at(AT_FDCWD, path, flags);
}

FILE *cz__open_stream(const char *path, const char *mode)
{
    const int file = cz__open(path, *mode == 'w' ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY);
    FILE *stream = file < 0 ? NULL : fdopen(file, mode);
    if (!stream && file >= 0) {
        const int error = errno;
        close(file);
        errno = error;
    }
    return stream;
}

/* ---- folders ---- */

static DIR *list(int file)
{
    DIR *folder = file < 0 ? NULL : fdopendir(file);
    if (!folder && file >= 0) {
        const int error = errno;
        close(file);
        errno = error;
    }
    return folder;
}

DIR *cz__open_folder(const char *path)
{
    return list(cz__open(path, O_RDONLY | O_DIRECTORY));
}

DIR *cz__list_folder(int folder)
{
    return list(cz__open_at(folder, ".", O_RDONLY | O_DIRECTORY)); /* with a position of its own */
}

/* ---- the rest ---- */

int cz__open_memory(const char *name)
{
    low_numbers low;
    hold(&low);
    const int file = memfd_create(name, MFD_CLOEXEC);
    release(&low);
    return move_up(file);
}

int cz__open_temporary(char *pattern)
{
    low_numbers low;
    hold(&low);
    const int made = mkostemp(pattern, O_CLOEXEC);
    release(&low);
    const int file = move_up(made);
    if (file < 0 && made >= 0) {
        const int error = errno;
        (void)unlink(pattern);
        errno = error;
    }
    return file;
}

int cz__open_pipe(int ends[2], int flags)
{
    low_numbers low;
    hold(&low);
    const int made = pipe2(ends, flags | O_CLOEXEC);
    release(&low);
    if (made != 0)
        return -1;
    ends[0] = move_up(ends[0]);
    ends[1] = move_up(ends[1]);
    if (ends[0] >= 0 && ends[1] >= 0)
        return 0;
    const int error = errno;
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
        ends[i] = -1;
    }
    errno = error;
    return -1;
}

/* ---- paths ---- */

static void cut_slashes(char *path)
{
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/'; end--)
        path[end - 1] = '\0';
}

bool cz__paths_stay;

char *cz__path_absolute(const char *path)
{
    char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
    if (path[0] != '/' && !here)
        return NULL;
    while (here && path[0] == '.' && path[1] == '/') /* "./name" */
        for (path += 2; *path == '/';)
            path++;
    const size_t bytes = (here ? strlen(here) + 1 : 0) + strlen(path) + 1;
    char *copy = cz__calloc(bytes, 1);
    if (copy && here)
        snprintf(copy, bytes, "%s%s%s", here, strcmp(here, "/") == 0 ? "" : "/", path);
    else if (copy)
        memcpy(copy, path, bytes);
    free(here);
    errno = copy ? errno : ENOMEM;
    if (copy)
        cut_slashes(copy);
    return copy;
}

const char *cz__path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
