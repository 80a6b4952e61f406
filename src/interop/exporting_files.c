/* SPDX-License-Identifier: MIT */
/* The files of an export. Rank 0 has made them and says which they are; what a rank opened stays open, so that nobody who
 * may write to the folder can put something else in its place. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "group/shared.h"
#include "interop/exporting.h"
#include "io/stream.h"
#include "io/unfinished.h"

enum { MOST_OPEN = 64 }; /* the rest is opened again, and compared again */

cz_status cz__exporting_have_files(cz__exporting *e)
{
    const size_t count = (size_t)e->layout.count;
    e->files = cz__calloc(count, sizeof *e->files);
    e->inodes = cz__calloc(count + 1, sizeof *e->inodes);
    for (size_t f = 0; e->files && f < count; f++)
        e->files[f] = -1;
    return e->files && e->inodes ? CZ_OK
                                 : cz__fail(CZ_ERR_MEMORY, "checkpoint export: a list of files");
}

void cz__exporting_close_files(cz__exporting *e)
{
    for (int f = 0; e->files && f < e->layout.count; f++)
        if (e->files[f] >= 0)
            close(e->files[f]);
    cz__free(e->files);
    cz__free(e->inodes);
    e->files = NULL;
    e->inodes = NULL;
}

/* Of this machine: numbers of files are the same on it. */
static int64_t number_host(void)
{
    char host[64];
    cz__shared_host(host);
    return (int64_t)cz__fingerprint(0, host, sizeof host);
}

/* Behind the files' numbers. */
static int64_t *host_of(const cz__exporting *e)
{
    return &e->inodes[e->layout.count];
}

int cz__exporting_made(cz__exporting *e, int number, int file)
{
    struct stat about;
    e->files[number] = file;
    if (fstat(file, &about) != 0)
        return errno;
    e->inodes[number] = (int64_t)about.st_ino;
    *host_of(e) = number_host();
    return 0;
}

static cz_status exchanged(const char *path)
{
    return cz__fail(CZ_ERR_IO,
                    "%s: it is not the file that rank 0 has made: another program has put another "
                    "one in its place, or the folder is not one that all ranks share",
                    path);
}

/* A link of either kind could lead to any file. Other machines may number files otherwise. */
static bool is_the_file(const cz__exporting *e, int number, int file)
{
    struct stat about;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
        return false;
    return *host_of(e) == number_host() ? (int64_t)about.st_ino == e->inodes[number]
                                        : about.st_nlink == 1;
}

static cz_status open_again(cz__exporting *e, int number, const char *path, int *error)
{
    const int file = cz__open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    *error = file < 0 ? errno : 0;
    if (file < 0)
        return *error == ELOOP
                   ? exchanged(path)
                   : cz__fail(CZ_ERR_IO, "%s: cannot be opened: %s", path, strerror(*error));
    if (!is_the_file(e, number, file)) {
        close(file);
        return exchanged(path);
    }
    e->files[number] = file;
    return CZ_OK;
}

cz_status cz__exporting_open(cz__exporting *e, int number, int *file, int *error)
{
    cz__text name = {0};
    *error = 0;
    cz_status status = CZ_OK;
    if (e->files[number] < 0)
        status = cz__unfinished_name(&name, e->layout.files[number].path);
    if (status == CZ_OK && e->files[number] < 0)
        status = open_again(e, number, cz__text_get(&name), error);
    cz__text_clear(&name);
    *file = e->files[number];
    return status;
}

int cz__exporting_release(cz__exporting *e, int number)
{
    const int file = e->files[number];
    if (number < MOST_OPEN || file < 0)
        return 0;
    e->files[number] = -1;
    return close(file) != 0 && errno != EINTR ? errno : 0;
}

cz_status cz__exporting_check_name(const cz__exporting *e, int number, const char *path,
                                   bool *other)
{
    struct stat there = {0}, mine = {0};
    const int file = e->files[number];
    *other = false;
    const bool seen = lstat(path, &there) == 0;
    if ((!seen && errno != ENOENT) || (file >= 0 && fstat(file, &mine) != 0))
        return cz__fail(CZ_ERR_IO, "%s: cannot be seen: %s", path, strerror(errno));
    *other = !seen || !S_ISREG(there.st_mode);
    if (file >= 0)
        *other = *other || there.st_dev != mine.st_dev || there.st_ino != mine.st_ino;
    else
        *other = *other || (int64_t)there.st_ino != e->inodes[number];
    return *other ? exchanged(path) : CZ_OK;
}
