/* SPDX-License-Identifier: MIT */
/* The C library's functions under their own names: the program's come first, in front of those of
 * shared objects too. */
#include "support/system_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_llong until_failure; /* 1: the next one fails; 0 and below: none */
static atomic_int error_number;
static atomic_bool failed, stays;
static _Atomic(const char *) failed_name = "";

void cz_test_fail_system_call(int64_t n, int error, bool for_good)
{
    atomic_store(&failed, false);
    atomic_store(&error_number, error);
    atomic_store(&stays, for_good);
    atomic_store(&failed_name, "");
    atomic_store(&until_failure, n);
}

bool cz_test_system_call_reset(void)
{
    atomic_store(&until_failure, 0);
    atomic_store(&stays, false);
    return atomic_load(&failed);
}

const char *cz_test_system_call_failed(void)
{
    return atomic_load(&failed_name);
}

/* Does this call fail? If so errno says why. */
static bool fails(const char *name)
{
    const long long left =
        atomic_load(&until_failure) > 0 ? atomic_fetch_sub(&until_failure, 1) : 0;
    const bool again =
        atomic_load(&stays) && atomic_load(&failed) && strcmp(atomic_load(&failed_name), name) == 0;
    if (left != 1 && !again)
        return false;
    atomic_store(&failed_name, name);
    atomic_store(&failed, true);
    errno = atomic_load(&error_number) == CZ_TEST_SHORT ? EIO : atomic_load(&error_number);
    return true;
}

/* `count`, half of it, or 0: the call fails. */
static size_t allowed(const char *name, size_t count)
{
    if (!fails(name))
        return count;
    return atomic_load(&error_number) == CZ_TEST_SHORT && count > 1 ? count / 2 : 0;
}

static void *own(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#define CALL(result, refused, name, parameters, arguments)                                         \
    result name parameters;                                                                        \
    result name parameters                                                                         \
    {                                                                                              \
        static result(*_Atomic next) parameters;                                                   \
        if (!next)                                                                                 \
            next = (result(*) parameters)own(#name);                                               \
        return fails(#name) ? (refused) : next arguments;                                          \
    }

#define TRANSFER(name, parameters, arguments, file)                                                \
    ssize_t name parameters;                                                                       \
    ssize_t name parameters                                                                        \
    {                                                                                              \
        static ssize_t(*_Atomic next) parameters;                                                  \
        const size_t wanted = count;                                                               \
        if (!next)                                                                                 \
            next = (ssize_t(*) parameters)own(#name);                                              \
        if ((file) > STDERR_FILENO)                                                                \
            count = allowed(#name, count);                                                         \
        return count == 0 && wanted > 0 ? -1 : next arguments;                                     \
    }

TRANSFER(read, (int file, void *data, size_t count), (file, data, count), file)
TRANSFER(write, (int file, const void *data, size_t count), (file, data, count), file)
TRANSFER(pread, (int file, void *data, size_t count, off_t at), (file, data, count, at), file)
TRANSFER(pwrite, (int file, const void *data, size_t count, off_t at), (file, data, count, at),
         file)
CALL(int, -1, fsync, (int file), (file))
CALL(int, -1, fdatasync, (int file), (file))
CALL(int, -1, ftruncate, (int file, off_t bytes), (file, bytes))
CALL(int, errno, posix_fallocate, (int file, off_t at, off_t bytes), (file, at, bytes))
CALL(int, -1, fallocate, (int file, int mode, off_t at, off_t bytes), (file, mode, at, bytes))
CALL(int, -1, rename, (const char *from, const char *to), (from, to))
CALL(int, -1, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
CALL(int, -1, link, (const char *from, const char *to), (from, to))
CALL(int, -1, linkat, (int a, const char *from, int b, const char *to, int flags),
     (a, from, b, to, flags))
CALL(int, -1, unlink, (const char *path), (path))
CALL(int, -1, unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
CALL(int, -1, rmdir, (const char *path), (path))
CALL(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
CALL(int, -1, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode))
CALL(int, -1, stat, (const char *restrict path, struct stat *restrict out), (path, out))
CALL(int, -1, lstat, (const char *restrict path, struct stat *restrict out), (path, out))
CALL(int, -1, fstat, (int file, struct stat *out), (file, out))
CALL(int, -1, fstatat,
     (int folder, const char *restrict path, struct stat *restrict out, int flags),
     (folder, path, out, flags))
CALL(DIR *, NULL, opendir, (const char *path), (path))
CALL(DIR *, NULL, fdopendir, (int file), (file))
CALL(struct dirent *, NULL, readdir, (DIR * folder), (folder))
CALL(FILE *, NULL, fopen, (const char *restrict path, const char *restrict mode), (path, mode))
CALL(FILE *, NULL, fdopen, (int file, const char *mode), (file, mode))
CALL(char *, NULL, realpath, (const char *restrict path, char *restrict out), (path, out))
CALL(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))
CALL(void *, MAP_FAILED, mmap,
     (void *at, size_t bytes, int protection, int flags, int file, off_t from),
     (at, bytes, protection, flags, file, from))
CALL(int, EAGAIN, pthread_create,
     (pthread_t *restrict thread, const pthread_attr_t *restrict how, void *(*run)(void *),
      void *restrict argument),
     (thread, how, run, argument))

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0;
    va_end(more);
    int (*const next)(const char *, int, ...) = (int (*)(const char *, int, ...))own("open");
    return fails("open") ? -1 : next(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0;
    va_end(more);
    int (*const next)(int, const char *, int, ...) =
        (int (*)(int, const char *, int, ...))own("openat");
    return fails("openat") ? -1 : next(folder, path, flags, mode);
}

/* ---- what a process holds ---- */

static int entries_of(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

/* A thread that was joined stays in the folder until the kernel has put it away. */
static bool is_leaving(const char *thread)
{
    enum { PF_EXITING = 4 };
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", thread);
    FILE *file = fopen(path, "r");
    const bool there = file && fgets(line, sizeof line, file);
    if (file)
        fclose(file);
    const char *after_name = strrchr(line, ')');
    unsigned flags = 0;
    const bool told = after_name && sscanf(after_name, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1;
    return !there || !told || (flags & PF_EXITING) != 0;
}

static int threads_now(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (const struct dirent *d = folder ? readdir(folder) : NULL; d; d = readdir(folder))
        count += d->d_name[0] != '.' && !is_leaving(d->d_name);
    if (folder)
        closedir(folder);
    return count;
}

static int lines_of(const char *path)
{
    int count = 0;
    FILE *file = fopen(path, "r");
    for (int c = file ? getc(file) : EOF; c != EOF; c = getc(file))
        count += c == '\n';
    if (file)
        fclose(file);
    return count;
}

cz_test_holdings cz_test_holdings_now(void)
{
    return (cz_test_holdings){entries_of("/proc/self/fd"), lines_of("/proc/self/maps"),
                              threads_now()};
}
