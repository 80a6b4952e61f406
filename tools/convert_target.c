/* SPDX-License-Identifier: MIT */
/* Where a conversion writes: what may be there already. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/open.h"
#include "convert.h"
#include "guard.h"
#include "io/folder.h"
#include "tool.h"

/* ---- folders ---- */

/* Files have got their names, their index has not: a conversion was killed just then. */
static bool lacks_index(const char *path, const cz__look *look)
{
    struct stat about;
    cz__text left = {0};
    const bool named = cz__text_print(&left, "%s/" CZ__CONSOLIDATED_INDEX CZ__UNFINISHED, path);
    const bool lacks =
        !cz__look_consolidated(look) && named && lstat(cz__text_get(&left), &about) == 0;
    cz__text_clear(&left);
    return lacks;
}

/* How much is in a folder beside what was never completed there. */
static cz_status count_entries(const conversion *c, const cz__look *look, int64_t *count)
{
    const struct dirent *entry;
    const bool killed = c->format == FORMAT_HF && lacks_index(c->to, look);
    DIR *folder = cz__open_folder(c->to);
    *count = 0;
    if (!folder)
        return cz_fail(CZ_ERR_IO, "%s: cannot be read: %s", c->to, strerror(errno));
    for (errno = 0; (entry = readdir(folder)); errno = 0)
        *count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                  !cz__unfinished_is(entry->d_name) && !cz__folder_lock_is(entry->d_name) &&
                  !(killed && cz__model_file_is(entry->d_name));
    const int error = errno;
    closedir(folder);
    return error ? cz_fail(CZ_ERR_IO, "%s: cannot be read: %s", c->to, strerror(error)) : CZ_OK;
}

typedef struct unfinished {
    int64_t seen;
    bool complete; /* one of them is */
} unfinished;

static cz_status count_generation(const cz_archive_generation *g, void *context)
{
    unfinished *u = context;
    u->seen++;
    u->complete = u->complete || g->complete;
    return CZ_OK;
}

/* Nothing in it is lost by another generation: there is none that is complete, and nothing else. */
static cz_status has_unfinished_only(const char *path, int64_t entries, bool *only)
{
    unfinished found = {0};
    const cz_status status = cz_archive_list(path, count_generation, &found);
    *only = !found.complete && found.seen == entries;
    return status;
}

static cz_status is_free(const conversion *c, const cz__look *look, bool *is)
{
    int64_t entries;
    CZ_TRY(count_entries(c, look, &entries));
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
    const char *does = one ? "replaces it" : "adds a generation to it";
    if (c->format == FORMAT_HF || c->format == FORMAT_DISTRIBUTED)
        does = "replaces what is in it";
    return cz_fail(CZ_ERR_ARGUMENT, "%s is there already; --force %s", c->to, does);
}

/* A generation more in the folder of the one that is read changes nothing of that. */
static cz_status check_folder_apart(const conversion *c)
{
    cz__look look;
    CZ_TRY(cz__look_at(&look, c->to));
    return look.folder && !look.generation && !cz__look_consolidated(&look) ? CZ_OK
                                                                            : guard_write(c->to);
}

cz_status convert_check_apart(const conversion *c)
{
    cz__text elements = {0};
    if (c->format == FORMAT_SHARDED)
        return check_folder_apart(c);
    if (c->format == FORMAT_HF || c->format == FORMAT_DISTRIBUTED)
        CZ_TRY(guard_write_folder(c->to));
    CZ_TRY(guard_write(c->to));
    if (c->format != FORMAT_TORCH && c->format != FORMAT_DISTRIBUTED)
        return CZ_OK;
    cz_status status = cz__text_print(&elements, "%s" CZ__ELEMENTS, c->to)
                           ? guard_write(cz__text_get(&elements))
                           : cz_fail(CZ_ERR_MEMORY, "no memory for a path");
    cz__text_clear(&elements);
    return status;
}

static cz_status check_target(const conversion *c, bool force)
{
    struct stat link;
    cz__look look;
    bool is = false;
    const bool one = c->format == FORMAT_SAFETENSORS || c->format == FORMAT_TORCH;
    if (!c->to[0])
        return cz_fail(CZ_ERR_ARGUMENT, "TO is empty");
    if (cz__unfinished_is(c->to))
        return cz_fail(CZ_ERR_ARGUMENT,
                       "%s: files that are not complete are called so; give TO another name",
                       c->to);
    CZ_TRY(convert_check_apart(c));
    const bool is_link = lstat(c->to, &link) == 0 && S_ISLNK(link.st_mode);
    CZ_TRY(cz__look_at(&look, c->to));
    if (is_link || (look.there && !look.folder && !look.file))
        return cz_fail(CZ_ERR_ARGUMENT, "%s is there already, and neither a file nor a folder",
                       c->to);
    if (!look.there || force)
        return CZ_OK;
    if (look.folder && !one)
        CZ_TRY(is_free(c, &look, &is));
    return is ? CZ_OK : refuse(c, one);
}

/* Others' tools read this one and not the index. */
static void say_hidden(const conversion *c)
{
    cz__look look;
    cz__text words = {0};
    if (c->format == FORMAT_HF && cz__look_at(&look, c->to) == CZ_OK && look.single &&
        cz__text_print(&words,
                       "note: %s/" CZ__CONSOLIDATED_SINGLE
                       " stays, and other tools read it in place of what is written now\n",
                       c->to))
        tool_say(stderr, cz__text_get(&words));
    cz__text_clear(&words);
}

cz_status convert_check_target(const conversion *c, bool force)
{
    CZ_TRY(check_target(c, force));
    say_unfinished(c);
    say_hidden(c);
    return CZ_OK;
}
