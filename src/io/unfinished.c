/* SPDX-License-Identifier: MIT */
/* Files that exports and conversions have not completed. */
#include "io/unfinished.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/open.h"
#include "base/status.h"

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
