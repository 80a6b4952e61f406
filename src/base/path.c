/* SPDX-License-Identifier: MIT */
/* Paths that are kept for later. */
#include "base/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

static void cut_slashes(char *path)
{
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/'; end--)
        path[end - 1] = '\0';
}

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
