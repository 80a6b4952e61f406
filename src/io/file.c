/* SPDX-License-Identifier: MIT */
/* Small files, whole or not at all; folders; what a file may cost. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fingerprint.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "io/stream.h"
#include "io/text.h"

/* What every file may cost: CZERO_FILE_LIMIT in MiB, or "none". A word that is neither changes
 * nothing, and is said. */
static uint64_t free_bytes(void)
{
    static atomic_bool said;
    const char *word = secure_getenv(CZ__BUDGET_VARIABLE);
    char *end = NULL;
    if (!word || !*word)
        return CZ__BUDGET_FREE;
    if (strcmp(word, "none") == 0)
        return UINT64_MAX;
    const unsigned long long mebibytes = strtoull(word, &end, 10);
    const bool fits = !*end && *word != '-' && mebibytes <= UINT64_MAX >> 21;
    if (!fits && !atomic_exchange(&said, true))
        cz__log(CZ_LOG_WARN, CZ__BUDGET_VARIABLE " is '%s', wanted a number of MiB or none: %d",
                cz__show(word).text, (int)(CZ__BUDGET_FREE >> 20));
    return fits ? (uint64_t)mebibytes << 20 : CZ__BUDGET_FREE;
}

cz__budget cz__budget_of(const char *where, uint64_t input)
{
    const uint64_t given = free_bytes();
    const uint64_t times =
        input > UINT64_MAX / 4 / CZ__BUDGET_TIMES ? UINT64_MAX / 4 : input * CZ__BUDGET_TIMES;
    return (cz__budget){where, input, given > UINT64_MAX - times ? UINT64_MAX : given + times, 0};
}

cz_status cz__budget_spend(cz__budget *b, uint64_t bytes, const char *what)
{
    if (bytes <= b->most - b->used) {
        b->used += bytes;
        return CZ_OK;
    }
    return cz__fail(CZ_ERR_UNSUPPORTED,
                    "%s: %s would cost %" PRIu64 " bytes%s, a file of %" PRIu64
                    " bytes may cost %" PRIu64
                    ": if it is from somebody you trust, " CZ__BUDGET_VARIABLE
                    "=none (or a number of MiB) lifts this limit",
                    b->where, what, bytes, b->used > 0 ? " more" : "", b->input, b->most);
}

/* ---- files ---- */

/* Bytes that are written at once; of a text that are read without a look at what they are. */
enum { MOST = 8 << 20, MOST_UNSEEN = 4 << 20 };

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

/* ---- small files ---- */

/* One on its way: it has another name until all of it is on the medium. The descriptor is kept
 * until it has its own. */
typedef struct small_file {
    int folder;              /* borrowed */
    const char *name, *path; /* borrowed; the path is for sentences */
    char *beside;            /* owned: "NAME.tmp" */
    int file;
} small_file;

/* A file of that name that an end at the wrong moment left behind is in nobody's use. */
static int write_beside(small_file *s, const char *bytes, size_t count)
{
    (void)unlinkat(s->folder, s->beside, 0);
    s->file = cz__open_at(s->folder, s->beside, O_WRONLY | O_CREAT | O_EXCL);
    return s->file < 0 ? errno : write_and_synchronise(s->file, bytes, count);
}

bool cz__file_is(int folder, const char *name, int file)
{
    struct stat there, ours;
    if (fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) != 0 || fstat(file, &ours) != 0)
        return false;
    errno = 0;
    return there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
}

static int close_file(small_file *s)
{
    const int error = s->file >= 0 && close(s->file) != 0 && errno != EINTR ? errno : 0;
    s->file = -1;
    return error;
}

static cz_status write_and_rename(small_file *s, const void *bytes, size_t count)
{
    int error = write_beside(s, bytes, count);
    if (error)
        return cz__fail(CZ_ERR_IO, "%s.tmp: %zu bytes cannot be written: %s", s->path, count,
                        strerror(error));
    if (renameat(s->folder, s->beside, s->folder, s->name) != 0)
        return cz__fail(CZ_ERR_IO, "%s: cannot be replaced by %s.tmp: %s", s->path, s->path,
                        strerror(errno));
    if (!cz__file_is(s->folder, s->name, s->file))
        return errno == 0
                   ? cz__fail(CZ_ERR_IO, "%s: another program has put another file in its place",
                              s->path)
                   : cz__fail(CZ_ERR_IO, "%s: it is written, and cannot be looked at: %s", s->path,
                              strerror(errno));
    error = close_file(s);
    if (error)
        return cz__fail(CZ_ERR_IO, "%s: cannot be closed: %s", s->path, strerror(error));
    return CZ_OK;
}

cz_status cz__file_write_in(int folder, const char *path, const void *bytes, size_t count)
{
    small_file s = {.folder = folder, .name = cz__path_name(path), .path = path, .file = -1};
    const size_t room = strlen(s.name) + sizeof ".tmp";
    s.beside = cz__calloc(room, 1);
    if (!s.beside)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory to write it", path);
    snprintf(s.beside, room, "%s.tmp", s.name);
    const cz_status status = write_and_rename(&s, bytes, count);
    if (s.file >= 0 && cz__file_is(folder, s.beside, s.file))
        (void)unlinkat(folder, s.beside, 0);
    (void)close_file(&s);
    cz__free(s.beside);
    return status == CZ_OK ? cz__folder_sync_open(folder, path) : status;
}

cz_status cz__file_write(const char *path, const void *bytes, size_t count)
{
    char *name = folder_of(path);
    if (!name)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory to write it", path);
    const int folder = cz__open(name, O_RDONLY | O_DIRECTORY);
    const cz_status status =
        folder >= 0
            ? cz__file_write_in(folder, path, bytes, count)
            : cz__fail(CZ_ERR_IO, "%s: its folder cannot be opened: %s", path, strerror(errno));
    if (folder >= 0)
        close(folder);
    cz__free(name);
    return status;
}

/* ---- folders ---- */

cz_status cz__folder_sync_open(int folder, const char *path)
{
    int error = cz__system_used.synchronise(folder) == 0 ? 0 : errno;
    if (error == EINVAL) /* file systems that have no such thing for folders */
        error = 0;
    return error ? cz__fail(CZ_ERR_IO, "%s: names in it cannot be synchronised: %s", path,
                            strerror(error))
                 : CZ_OK;
}

cz_status cz__folder_sync(const char *path)
{
    const int folder = cz__open(path, O_RDONLY | O_DIRECTORY);
    if (folder < 0)
        return cz__fail(CZ_ERR_IO, "%s: cannot be opened as a folder: %s", path, strerror(errno));
    const cz_status status = cz__folder_sync_open(folder, path);
    close(folder);
    return status;
}

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

/* A text has no zero bytes. A file of gigabytes that has them, as one with holes does, is found
 * here, before there is memory for it. */
static cz_status check_text(cz__reader *reader, const char *path, uint64_t size)
{
    static const size_t piece = (size_t)64 << 10;
    char *block = cz__allocate(CZ_MEMORY_STAGING, piece);
    cz_status status = block ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", path);
    if (status)
        goto done;
    for (uint64_t at = 0; at < size; at += piece) {
        const size_t count = size - at < piece ? (size_t)(size - at) : piece;
        status = cz__reader_read(reader, at, block, count);
        if (!status && memchr(block, 0, count))
            status =
                cz__fail(CZ_ERR_FORMAT, "%s: it is no JSON: a zero byte at %" PRIu64 " of %" PRIu64,
                         path, at + (uint64_t)((char *)memchr(block, 0, count) - block), size);
        if (status)
            break;
    }
done:
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

/* ---- paths that the system refuses ---- */

/* The shortest beginning of the path, up to a slash or its end, that is no folder; *missing: it is
 * not there at all. */
static bool find_part(const char *path, char part[PATH_MAX], bool *missing)
{
    const size_t length = strlen(path);
    struct stat about;
    if (length >= PATH_MAX)
        return false;
    for (size_t at = 1; at <= length; at++) {
        if (path[at] != '/' && path[at] != '\0')
            continue;
        memcpy(part, path, at);
        part[at] = '\0';
        *missing = stat(part, &about) != 0;
        if (*missing && errno != ENOENT)
            return false;
        if (*missing || !S_ISDIR(about.st_mode))
            return true;
    }
    return false;
}

cz_status cz__refuse_path(const char *path, const char *what, int error)
{
    char part[PATH_MAX];
    bool missing;
    if ((error != ENOENT && error != ENOTDIR && error != EEXIST) ||
        !find_part(path, part, &missing) || (missing && strcmp(part, path) == 0))
        return cz__fail(CZ_ERR_IO, "%s %s: %s", path, what, strerror(error));
    return missing ? cz__fail(CZ_ERR_IO, "%s %s: there is no folder %s", path, what, part)
                   : cz__fail(CZ_ERR_IO, "%s %s: %s is no folder", path, what, part);
}

/* ---- a file takes the name of another ---- */

/* Not every file system does it, and not every kernel. */
static bool cannot_exchange(int error)
{
    return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
}

/* 0, or an errno: nothing was changed. */
static int exchange(const char *beside, const char *path, cz__placed *placed)
{
    if (renameat2(AT_FDCWD, beside, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        *placed = CZ__PLACED_AND_OLD;
        return 0;
    }
    if (!cannot_exchange(errno))
        return errno;
    if (rename(beside, path) != 0)
        return errno;
    *placed = CZ__PLACED;
    return 0;
}

static int take_name(const char *beside, const char *path, bool *was_there, cz__placed *placed)
{
    struct stat about;
    *was_there = lstat(path, &about) == 0;
    if (!*was_there && errno != ENOENT)
        return errno;
    if (*was_there && S_ISDIR(about.st_mode))
        return EISDIR;
    if (*was_there)
        return exchange(beside, path, placed);
    if (rename(beside, path) != 0)
        return errno;
    *placed = CZ__PLACED;
    return 0;
}

/* Its name did not reach the medium, perhaps: the status and sentence are those of the thread. */
static cz_status take_back(cz_status status, const char *beside, const char *path, bool was_there,
                           cz__placed *placed)
{
    if (was_there && *placed == CZ__PLACED) {
        cz__log(CZ_LOG_WARN, "%s is complete, but %s", path, cz_last_error());
        return CZ_OK;
    }
    const int error = was_there ? renameat2(AT_FDCWD, beside, AT_FDCWD, path, RENAME_EXCHANGE)
                                : rename(path, beside);
    if (error != 0)
        return cz__fail(status,
                        "%s; and that could not be taken back (%s): %s is new, and complete",
                        cz_last_error(), strerror(errno), path);
    *placed = CZ__NOT_PLACED;
    return status;
}

cz_status cz__replace(const char *beside, const char *path, cz__placed *placed)
{
    bool was_there;
    *placed = CZ__NOT_PLACED;
    const int error = take_name(beside, path, &was_there, placed);
    if (error)
        return cz__fail(CZ_ERR_IO, "%s: cannot be replaced by %s: %s", path, beside,
                        strerror(error));
    const cz_status status = cz__folder_sync_of(path);
    return status == CZ_OK ? CZ_OK : take_back(status, beside, path, was_there, placed);
}
