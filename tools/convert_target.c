/* SPDX-License-Identifier: MIT */
/* Where a conversion writes: what may be there already. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/open.h"
#include "base/status.h"
#include "checkpoint/consolidated.h"
#include "checkpoint/folder.h"
#include "checkpoint/layout.h"
#include "checkpoint/unfinished.h"
#include "convert.h"
#include "tool.h"

/* ---- folders ---- */

/* Files have got their names, their index has not: a conversion was killed just then. */
static bool lacks_index(const char *path)
{
    return cz__folder_has(path, CZ__CONSOLIDATED_INDEX CZ__UNFINISHED) &&
           !cz__folder_is_consolidated(path);
}

/* How much is in a folder beside what was never completed there; -1: it cannot be read. */
static int64_t count_entries(const conversion *c)
{
    struct dirent *entry;
    int64_t count = 0;
    const bool killed = c->format == FORMAT_HF && lacks_index(c->to);
    DIR *folder = cz__open_folder(c->to);
    if (!folder)
        return -1;
    while ((entry = readdir(folder)))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 !cz__unfinished_is(entry->d_name) &&
                 !(killed && cz__layout_is_name(entry->d_name));
    closedir(folder);
    return count;
}

/* Nothing in it is lost by another generation: there is none that is complete, and nothing else. */
static cz_status has_unfinished_only(const char *path, int64_t entries, bool *only)
{
    cz__found found;
    const cz_status status = cz__generation_find(&found, path, -1);
    *only = found.path.count == 0 && found.seen == entries;
    cz__found_clear(&found);
    return status;
}

static cz_status is_free(const conversion *c, bool *is)
{
    const int64_t entries = count_entries(c);
    *is = entries == 0;
    return entries > 0 && c->format == FORMAT_SHARDED ? has_unfinished_only(c->to, entries, is)
                                                      : CZ_OK;
}

/* ---- any of them ---- */

/* What one before it left when it was killed. */
static void say_unfinished(const conversion *c)
{
    cz__text left = {0}, words = {0};
    if (c->format != FORMAT_SHARDED)
        cz__unfinished_list(&left, c->to);
    if (left.count > 0 && cz__text_print(&words,
                                         "note: a conversion or an export was not completed and "
                                         "left this, which is replaced now:\n%s",
                                         cz__text_get(&left)))
        tool_say(stderr, cz__text_get(&words));
    cz__text_clear(&left);
    cz__text_clear(&words);
}

static cz_status refuse(const conversion *c, bool one)
{
    return cz__fail(CZ_ERR_ARGUMENT, "%s is there already; --force %s", c->to,
                    one                      ? "replaces it"
                    : c->format == FORMAT_HF ? "replaces what is in it"
                                             : "adds a generation to it");
}

static cz_status check(const conversion *c, bool force)
{
    struct stat about, read;
    bool is = false;
    const bool one = c->format == FORMAT_SAFETENSORS || c->format == FORMAT_TORCH;
    if (!c->to[0])
        return cz__fail(CZ_ERR_ARGUMENT, "TO is empty");
    if (cz__unfinished_is(c->to))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: files that are not complete are called so; give TO another name",
                        c->to);
    if (stat(c->to, &about) == 0 && stat(source_path(c->from), &read) == 0 &&
        about.st_dev == read.st_dev && about.st_ino == read.st_ino)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: this is what is read; give TO another name", c->to);
    if (lstat(c->to, &about) != 0)
        return CZ_OK;
    if (!S_ISDIR(about.st_mode) && !S_ISREG(about.st_mode))
        return cz__fail(CZ_ERR_ARGUMENT, "%s is there already, and neither a file nor a folder",
                        c->to);
    if (force)
        return CZ_OK;
    if (S_ISDIR(about.st_mode) && !one)
        CZ_TRY(is_free(c, &is));
    return is ? CZ_OK : refuse(c, one);
}

cz_status convert_check_target(const conversion *c, bool force)
{
    CZ_TRY(check(c, force));
    say_unfinished(c);
    return CZ_OK;
}
