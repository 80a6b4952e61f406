/* SPDX-License-Identifier: MIT */
/* Looking at a path without opening what is there. */
#include "io/look.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/open.h"
#include "base/status.h"

static cz_status unseen(const char *path, const char *name, int error)
{
    return cz__fail(CZ_ERR_IO, "%s%s%s: cannot be seen: %s", path, name ? "/" : "",
                    name ? name : "", strerror(error));
}

static cz_status look_for(int folder, const char *path, const char *name, bool *has)
{
    struct stat about;
    *has = fstatat(folder, name, &about, 0) == 0;
    return *has || errno == ENOENT ? CZ_OK : unseen(path, name, errno);
}

static cz_status look_into(cz__look *look, int file, const char *path)
{
    struct stat about;
    if (fstat(file, &about) != 0)
        return unseen(path, NULL, errno);
    look->there = true;
    look->folder = S_ISDIR(about.st_mode);
    look->file = S_ISREG(about.st_mode);
    look->device = (uint64_t)about.st_dev;
    look->number = (uint64_t)about.st_ino;
    if (!look->folder)
        return CZ_OK;
    CZ_TRY(look_for(file, path, "index.json", &look->generation));
    CZ_TRY(look_for(file, path, CZ__CONSOLIDATED_INDEX, &look->several));
    return look_for(file, path, CZ__CONSOLIDATED_SINGLE, &look->single);
}

cz_status cz__look_at(cz__look *look, const char *path)
{
    *look = (cz__look){0};
    const int file = cz__open(path, O_PATH);
    if (file < 0)
        return errno == ENOENT || errno == ENOTDIR ? CZ_OK : unseen(path, NULL, errno);
    const cz_status status = look_into(look, file, path);
    close(file);
    return status;
}

/* ---- names of files ---- */

bool cz__model_file_print(char *name, size_t bytes, int edition, int number, int count)
{
    char mark[16] = "";
    if (edition > 0)
        snprintf(mark, sizeof mark, "%d-", edition);
    return (size_t)snprintf(name, bytes, "model-%s%05d-of-%05d.safetensors", mark, number, count) <
           bytes;
}

bool cz__model_file_is(const char *name)
{
    char again[80];
    int edition = 0, number, count;
    if (sscanf(name, "model-%9d-of-%9d", &number, &count) != 2 &&
        sscanf(name, "model-%9d-%9d-of-%9d", &edition, &number, &count) != 3)
        return false;
    return cz__model_file_print(again, sizeof again, edition, number, count) &&
           strcmp(name, again) == 0;
}

/* ---- files that are not complete ---- */

enum { FEW = 3 };

cz_status cz__unfinished_name(cz__text *name, const char *path)
{
    cz__text_cut(name, 0);
    return cz__text_print(name, "%s" CZ__UNFINISHED, path)
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "checkpoint export: no memory for a path");
}

bool cz__unfinished_is(const char *name)
{
    const size_t length = strlen(name), end = sizeof CZ__UNFINISHED - 1;
    return length > end && strcmp(name + length - end, CZ__UNFINISHED) == 0;
}

static void list_in(cz__text *list, const char *path, DIR *folder)
{
    struct dirent *entry;
    int64_t count = 0;
    const size_t before = list->count;
    while ((entry = readdir(folder)))
        if (cz__unfinished_is(entry->d_name) && count++ < FEW)
            cz__text_print(list, "%s/%s\n", path, entry->d_name);
    if (count <= FEW)
        return;
    cz__text_cut(list, before);
    cz__text_print(list, "%s/*" CZ__UNFINISHED " (%" PRId64 " files)\n", path, count);
}

void cz__unfinished_list(cz__text *list, const char *path)
{
    static const char *const ends[] = {CZ__UNFINISHED, CZ__ELEMENTS CZ__UNFINISHED};
    DIR *folder = cz__open_folder(path);
    cz__text name = {0};
    if (folder) {
        list_in(list, path, folder);
        closedir(folder);
    }
    for (int i = 0; i < 2; i++) {
        cz__text_cut(&name, 0);
        if (cz__text_print(&name, "%s%s", path, ends[i]) && access(cz__text_get(&name), F_OK) == 0)
            cz__text_print(list, "%s\n", cz__text_get(&name));
    }
    cz__text_clear(&name);
}
