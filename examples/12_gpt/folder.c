/* SPDX-License-Identifier: MIT */
/* The run folder. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report.h"

/* mkdir -p */
static cz_status make_folder(const char *path)
{
    char part[4096];
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return cz_fail(CZ_ERR_ARGUMENT, "--out '%s': not a folder name", path);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) && errno != EEXIST)
            return cz_fail(CZ_ERR_IO, "%s: %s", part, strerror(errno));
    }
    return CZ_OK;
}

/* A run folder holds one run. */
static void remove_old(const char *folder)
{
    static const char *const names[] = {"metrics.jsonl", "summary.json", "loss.svg", "sample.txt"};
    char path[4200];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
}

cz_status report_open_folder(const char *path)
{
    CZ_TRY(make_folder(path));
    remove_old(path);
    return CZ_OK;
}
