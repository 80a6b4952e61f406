/* SPDX-License-Identifier: MIT */
/* What can happen to a file, and how it is undone. */
#ifndef CZ_TEST_DAMAGED_FILES_H
#define CZ_TEST_DAMAGED_FILES_H

#include <fcntl.h>
#include <sys/stat.h>

#include "checkpoint/small.h"

/* A file with its bytes. */
typedef struct kept_file {
    char path[2 * SMALL_PATH];
    char *bytes; /* for free() */
    size_t count;
} kept_file;

static inline cz_status file_failed(const char *path)
{
    return cz_fail(CZ_ERR_IO, "the test cannot use %.120s: %s", path, strerror(errno));
}

static inline cz_status put_bytes(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        return file_failed(path);
    const size_t written = count > 0 ? fwrite(bytes, 1, count, file) : 0;
    return fclose(file) == 0 && written == count ? CZ_OK : file_failed(path);
}

static inline cz_status get_bytes(const char *path, char **bytes, size_t *count)
{
    FILE *file = fopen(path, "rb");
    *bytes = NULL;
    *count = 0;
    if (!file)
        return file_failed(path);
    fseek(file, 0, SEEK_END);
    *count = (size_t)ftell(file);
    rewind(file);
    *bytes = malloc(*count + 1);
    const size_t got = fread(*bytes, 1, *count, file);
    fclose(file);
    return got == *count ? CZ_OK : file_failed(path);
}

static inline cz_status keep_file(kept_file *p, const char *generation, const char *name)
{
    snprintf(p->path, sizeof p->path, "%s/%s", generation, name);
    return get_bytes(p->path, &p->bytes, &p->count);
}

/* One byte, in place. */
static inline cz_status set_byte(const char *path, size_t at, char byte)
{
    const int file = open(path, O_WRONLY);
    const bool done = file >= 0 && pwrite(file, &byte, 1, (off_t)at) == 1;
    if (file >= 0)
        close(file);
    return done ? CZ_OK : file_failed(path);
}

static inline cz_status truncate_file(const char *path, size_t count)
{
    return truncate(path, (off_t)count) == 0 ? CZ_OK : file_failed(path);
}

/* Whatever is there goes, a folder too. */
static inline cz_status restore_file(const kept_file *p)
{
    (void)remove(p->path);
    return put_bytes(p->path, p->bytes, p->count);
}

/* Where elements begin in a safetensors file; 0: it is none. */
static inline size_t data_begin(const kept_file *p)
{
    uint64_t length;
    if (!strstr(p->path, ".safetensors"))
        return 0;
    memcpy(&length, p->bytes, sizeof length);
    return (size_t)length + sizeof length;
}

#endif
