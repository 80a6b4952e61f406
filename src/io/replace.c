/* SPDX-License-Identifier: MIT */
/* The moment in which a file takes the name of another. */
#include "io/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/status.h"
#include "io/stream.h"

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
