/* SPDX-License-Identifier: MIT */
/* Before a program (LD_PRELOAD): the n-th call of some functions of the C library fails, the others
 * are what they were.
 *
 *     CZ_FAIL_CALLS=rename,fsync CZ_FAIL_AT=3 CZ_FAIL_COUNT=count \
 *         LD_PRELOAD=libfail_call.so program
 *
 * CZ_FAIL_CALLS names functions, or the groups "files" (all that changes or looks at files) and
 * "memory". CZ_FAIL_AT: the call that fails, from 1 on; 0: none. CZ_FAIL_ERROR: its errno, a
 * number, in place of EIO (ENOMEM for memory). CZ_FAIL_COUNT: a file that gets the number of such
 * calls when the program ends. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static const char *calls; /* NULL: not begun, or nothing fails */
static atomic_long made;
static long at;
static int error_wanted;

static void __attribute__((constructor)) begin(void)
{
    const char *number = getenv("CZ_FAIL_AT"), *error = getenv("CZ_FAIL_ERROR");
    at = number ? strtol(number, NULL, 10) : 0;
    error_wanted = error ? (int)strtol(error, NULL, 10) : 0;
    calls = getenv("CZ_FAIL_CALLS");
}

static void __attribute__((destructor)) end(void)
{
    char text[32];
    const char *path = getenv("CZ_FAIL_COUNT");
    const long file =
        path ? syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    const int length = snprintf(text, sizeof text, "%ld\n", atomic_load(&made));
    if (file >= 0) {
        (void)syscall(SYS_write, file, text, length);
        (void)syscall(SYS_close, file);
    }
}

static bool has_word(const char *word)
{
    const size_t length = strlen(word);
    for (const char *found = calls; (found = strstr(found, word)); found += length)
        if ((found == calls || found[-1] == ',') && (!found[length] || found[length] == ','))
            return true;
    return false;
}

/* Is this the call that fails? errno is set then. */
static bool fails(const char *name, const char *group, int error)
{
    if (!calls || !(has_word(name) || has_word(group)))
        return false;
    if (atomic_fetch_add(&made, 1) + 1 != at)
        return false;
    errno = error_wanted ? error_wanted : error;
    return true;
}

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))
#define FILE_CALL(type, failed, name, parameters, arguments)                                       \
    type name parameters                                                                           \
    {                                                                                              \
        static __typeof__(&(name)) real;                                                           \
        if (!real)                                                                                 \
            real = REAL(name);                                                                     \
        return fails(#name, "files", EIO) ? (failed) : real arguments;                             \
    }

FILE_CALL(int, -1, rename, (const char *a, const char *b), (a, b))
FILE_CALL(int, -1, renameat, (int d, const char *a, int e, const char *b), (d, a, e, b))
FILE_CALL(int, -1, renameat2, (int d, const char *a, int e, const char *b, unsigned f),
          (d, a, e, b, f))
FILE_CALL(int, -1, link, (const char *a, const char *b), (a, b))
FILE_CALL(int, -1, unlink, (const char *a), (a))
FILE_CALL(int, -1, unlinkat, (int d, const char *a, int f), (d, a, f))
FILE_CALL(int, -1, rmdir, (const char *a), (a))
FILE_CALL(int, -1, mkdir, (const char *a, mode_t m), (a, m))
FILE_CALL(int, -1, mkdirat, (int d, const char *a, mode_t m), (d, a, m))
FILE_CALL(int, -1, fsync, (int d), (d))
FILE_CALL(int, -1, fdatasync, (int d), (d))
FILE_CALL(int, -1, ftruncate, (int d, off_t n), (d, n))
FILE_CALL(int, -1, fallocate, (int d, int m, off_t o, off_t n), (d, m, o, n))
FILE_CALL(ssize_t, -1, pwrite, (int d, const void *b, size_t n, off_t o), (d, b, n, o))
FILE_CALL(ssize_t, -1, pread, (int d, void *b, size_t n, off_t o), (d, b, n, o))
FILE_CALL(ssize_t, -1, write, (int d, const void *b, size_t n), (d, b, n))
FILE_CALL(ssize_t, -1, read, (int d, void *b, size_t n), (d, b, n))
FILE_CALL(int, -1, stat, (const char *restrict a, struct stat *restrict s), (a, s))
FILE_CALL(int, -1, lstat, (const char *restrict a, struct stat *restrict s), (a, s))
FILE_CALL(int, -1, fstat, (int d, struct stat *s), (d, s))
FILE_CALL(int, -1, fstatat, (int d, const char *restrict a, struct stat *restrict s, int f),
          (d, a, s, f))
FILE_CALL(int, -1, access, (const char *a, int m), (a, m))
FILE_CALL(int, -1, faccessat, (int d, const char *a, int m, int f), (d, a, m, f))
FILE_CALL(DIR *, NULL, opendir, (const char *a), (a))
FILE_CALL(DIR *, NULL, fdopendir, (int d), (d))
FILE_CALL(struct dirent *, NULL, readdir, (DIR * d), (d))

int close(int file)
{
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "close");
    const int result = real(file);
    return fails("close", "files", EIO) ? -1 : result;
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    if (!real)
        real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    return fails("open", "files", EIO) ? -1 : real(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    static int (*real)(int, const char *, int, ...);
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    if (!real)
        real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
    return fails("openat", "files", EIO) ? -1 : real(folder, path, flags, mode);
}

void *malloc(size_t bytes)
{
    return fails("malloc", "memory", ENOMEM) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails("calloc", "memory", ENOMEM) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fails("realloc", "memory", ENOMEM) ? NULL : __libc_realloc(old, bytes);
}
