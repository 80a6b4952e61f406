/* SPDX-License-Identifier: MIT */
/* Small files, whole or not at all; folders. */
#include "checkpoint/stream.h"
#include "checkpoint/system.h"

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes that are written at once; of a text that are read without a look at what they are. */
enum { MOST = 8 << 20, MOST_UNSEEN = 4 << 20 };

/* "PATH.tmp"; for cz__free(). */
static char *name_beside(const char *path)
{
    const size_t bytes = strlen(path) + sizeof ".tmp";
    char *name = cz__calloc(bytes, 1);
    if (name)
        snprintf(name, bytes, "%s.tmp", path);
    return name;
}

/* "FOLDER" of "FOLDER/name", for cz__free(). */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return cz__strdup(".");
    char *folder = cz__strdup(path);
    if (folder)
        folder[slash == path ? 1 : slash - path] = '\0';
    return folder;
}

char *cz__path_copy(const char *path)
{
    char *copy = cz__strdup(path);
    for (size_t end = copy ? strlen(copy) : 0; end > 1 && copy[end - 1] == '/'; end--)
        copy[end - 1] = '\0';
    return copy;
}

int cz__write_all(int file, const char *bytes, size_t count, uint64_t offset, size_t *done)
{
    for (*done = 0; *done < count;) {
        const size_t left = count - *done;
        const ssize_t now = cz__system_used.write(file, bytes + *done, left < MOST ? left : MOST,
                                                  (off_t)(offset + *done));
        if (now == 0)
            return EIO;
        if (now < 0 && errno != EINTR)
            return errno;
        *done += now > 0 ? (size_t)now : 0;
    }
    return 0;
}

static int write_and_synchronise(int file, const char *bytes, size_t count)
{
    size_t done;
    const int error = cz__write_all(file, bytes, count, 0, &done);
    if (error)
        return error;
    return cz__system_used.synchronise(file) == 0 ? 0 : errno;
}

/* A file of that name that an end at the wrong moment left behind is in nobody's use. */
static int write_beside(const char *path, const char *bytes, size_t count)
{
    unlink(path);
    const int file = cz__open(path, O_WRONLY | O_CREAT | O_EXCL);
    if (file < 0)
        return errno;
    int error = write_and_synchronise(file, bytes, count);
    if (close(file) != 0 && !error && errno != EINTR)
        error = errno;
    if (error)
        unlink(path);
    return error;
}

static cz_status write_and_rename(const char *path, const char *beside, const char *folder,
                                  const void *bytes, size_t count)
{
    int error = write_beside(beside, bytes, count);
    if (error)
        return cz__fail(CZ_ERR_IO, "%s: %zu bytes cannot be written: %s", beside, count,
                        strerror(error));
    if (rename(beside, path) != 0) {
        error = errno;
        unlink(beside);
        return cz__fail(CZ_ERR_IO, "%s: cannot be replaced by %s: %s", path, beside,
                        strerror(error));
    }
    return cz__folder_sync(folder);
}

cz_status cz__file_write(const char *path, const void *bytes, size_t count)
{
    char *beside = name_beside(path), *folder = folder_of(path);
    const cz_status status = beside && folder
                                 ? write_and_rename(path, beside, folder, bytes, count)
                                 : cz__fail(CZ_ERR_MEMORY, "%s: no memory to write it", path);
    cz__free(folder);
    cz__free(beside);
    return status;
}

cz_status cz__folder_sync(const char *path)
{
    const int folder = cz__open(path, O_RDONLY | O_DIRECTORY);
    if (folder < 0)
        return cz__fail(CZ_ERR_IO, "%s: cannot be opened as a folder: %s", path, strerror(errno));
    int error = cz__system_used.synchronise(folder) == 0 ? 0 : errno;
    if (error == EINVAL) /* file systems that have no such thing for folders */
        error = 0;
    close(folder);
    return error ? cz__fail(CZ_ERR_IO, "%s: names in it cannot be synchronised: %s", path,
                            strerror(error))
                 : CZ_OK;
}

/* What comes last cannot be out of memory: the name is cut out on the stack. */
cz_status cz__folder_sync_of(const char *path)
{
    char folder[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) + (slash == path) : 1;
    if (length >= sizeof folder)
        return cz__fail(CZ_ERR_IO, "%s: %s", path, strerror(ENAMETOOLONG));
    if (slash) {
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    return cz__folder_sync(folder);
}

cz_status cz__file_identity(const char *path, uint64_t *identity)
{
    struct stat about;
    *identity = 0;
    if (stat(path, &about) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? CZ_OK
                   : cz__fail(CZ_ERR_IO, "%s: cannot be seen: %s", path, strerror(errno));
    const uint64_t facts[] = {(uint64_t)about.st_ino, (uint64_t)about.st_size,
                              (uint64_t)about.st_mtim.tv_sec, (uint64_t)about.st_mtim.tv_nsec};
    *identity = cz__fingerprint(0, facts, sizeof facts) | 1;
    return CZ_OK;
}

/* A text has no zero bytes. A file of gigabytes that has them, as one with holes does, is found here, before there is
 * memory for it. */
static cz_status check_text(cz__reader *reader, const char *path, uint64_t size)
{
    static const size_t piece = (size_t)64 << 10;
    char *block = cz__allocate(CZ_MEMORY_STAGING, piece);
    cz_status status = block ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", path);
    for (uint64_t at = 0; status == CZ_OK && at < size; at += piece) {
        const size_t count = size - at < piece ? (size_t)(size - at) : piece;
        status = cz__reader_read(reader, at, block, count);
        if (status == CZ_OK && memchr(block, 0, count))
            status =
                cz__fail(CZ_ERR_FORMAT, "%s: it is no JSON: a zero byte at %" PRIu64 " of %" PRIu64,
                         path, at + (uint64_t)((char *)memchr(block, 0, count) - block), size);
    }
    cz__free(block);
    return status;
}

static cz_status read_text(cz__reader *reader, const char *path, size_t most, char **bytes)
{
    const uint64_t size = cz__reader_bytes(reader);
    if (size > most)
        return cz__fail(CZ_ERR_FORMAT, "%s: has %" PRIu64 " bytes, at most %zu are expected", path,
                        size, most);
    if (size > MOST_UNSEEN)
        CZ_TRY(check_text(reader, path, size));
    *bytes = cz__calloc(1, (size_t)size + 1);
    return *bytes ? cz__reader_read(reader, 0, *bytes, (size_t)size)
                  : cz__fail(CZ_ERR_MEMORY, "%s: no memory for its %" PRIu64 " bytes", path, size);
}

cz_status cz__file_read(const char *path, size_t most, char **bytes, size_t *count)
{
    cz__reader *reader;
    *bytes = NULL;
    CZ_TRY(cz__reader_open(&reader, path));
    const cz_status status = read_text(reader, path, most, bytes);
    *count = (size_t)cz__reader_bytes(reader);
    cz__reader_close(&reader);
    if (status != CZ_OK) {
        cz__free(*bytes);
        *bytes = NULL;
    }
    return status;
}
