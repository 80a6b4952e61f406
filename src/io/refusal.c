/* SPDX-License-Identifier: MIT */
/* Paths that the system refuses: which part of one it is that is missing, or no folder. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"
#include "io/stream.h"

/* The shortest beginning of the path, up to a slash or its end, that is no folder; *missing: it is not there at all. */
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
