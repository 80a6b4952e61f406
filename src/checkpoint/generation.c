/* SPDX-License-Identifier: MIT */
/* Generations in a folder: names and files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/open.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/index.h"
#include "io/stream.h"

static void begin_path(cz__text *path, const char *folder)
{
    cz__text_cut(path, 0);
    cz__text_print(path, "%s/", folder);
}

static cz_status end_path(const cz__text *path)
{
    return path->failed ? cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a path") : CZ_OK;
}

void cz__generation_name(char name[64], int64_t number, int64_t step)
{
    snprintf(name, 64, "%08" PRId64 "-step-%" PRId64, number, step);
}

cz_status cz__generation_path(cz__text *path, const char *folder, int64_t number, int64_t step)
{
    char name[64];
    cz__generation_name(name, number, step);
    begin_path(path, folder);
    cz__text_print(path, "%s", name);
    return end_path(path);
}

cz_status cz__index_path(cz__text *path, const char *generation)
{
    begin_path(path, generation);
    cz__text_print(path, "index.json");
    return end_path(path);
}

cz_status cz__common_path(cz__text *path, const char *generation)
{
    begin_path(path, generation);
    cz__text_print(path, "common.safetensors");
    return end_path(path);
}

cz_status cz__part_path(cz__text *path, const char *generation, int rank, int world_size,
                        const char *suffix)
{
    begin_path(path, generation);
    cz__text_print(path, "rank-%05d-of-%05d.%s", rank, world_size, suffix);
    return end_path(path);
}

bool cz__part_parse(const char *name, int *rank, int *world_size, const char **suffix)
{
    char again[64];
    *suffix = strchr(name, '.');
    if (!*suffix || sscanf(name, "rank-%d-of-%d.", rank, world_size) != 2 || *rank < 0 ||
        *rank >= *world_size || *world_size > CZ__MOST_RANKS)
        return false;
    snprintf(again, sizeof again, "rank-%05d-of-%05d", *rank, *world_size);
    const size_t length = strlen(again);
    const bool same = strncmp(again, name, length) == 0 && *suffix == name + length;
    *suffix += same;
    return same;
}

/* ---- removing them ---- */

#define INDEX "index.json"
#define HIDDEN INDEX ".tmp"

/* ---- whose it is ---- */

enum { HEAD_BYTES = 4096 }; /* what says so is at the beginning */

static bool is_regular(int folder, const char *name)
{
    struct stat about;
    return fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode);
}

static void read_id(cz__head *head, const char *text)
{
    static const char key[] = "\"id\":\"";
    const char *id = strstr(text, key);
    if (!id)
        return;
    id += sizeof key - 1;
    if (strspn(id, "0123456789abcdef") == sizeof head->id - 1)
        memcpy(head->id, id, sizeof head->id - 1);
}

static void read_world_size(cz__head *head, const char *text)
{
    static const char key[] = "\"world_size\":";
    const char *number = strstr(text, key);
    if (number)
        head->world_size = (int)strtol(number + sizeof key - 1, NULL, 10);
}

bool cz__head_read(cz__head *head, int folder, const char *name)
{
    char text[HEAD_BYTES + 1] = "";
    struct stat about;
    *head = (cz__head){0};
    const int file = cz__open_at(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return false;
    errno = EINVAL;
    const bool regular = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
    const ssize_t got = regular ? cz__system_used.read(file, text, HEAD_BYTES, 0) : -1;
    const int error = errno;
    close(file);
    errno = error;
    if (got < 0)
        return false;
    const char *begin = got > 8 && text[8] == '{' ? text + 8 : text; /* of safetensors */
    head->blank = !*begin; /* nothing, or room that nothing was written to */
    head->index = strncmp(begin, "{\"format\":\"czero checkpoint\"", 28) == 0;
    read_id(head, begin);
    read_world_size(head, begin);
    return true;
}

/* ---- taking it away ---- */

typedef struct removing {
    int folder;       /* the generation's */
    const char *path; /* for sentences */
    cz__head head;    /* of its index; zeroed: it has none */
    char other[256];  /* something that stays; "": nothing */
    bool alike;       /* something does that could be of a generation of which nothing is known */
    int unread;       /* an errno: why nobody knows whose `other` is */
} removing;

static cz_status refused(const char *what, const char *path, const char *name)
{
    return cz__fail(CZ_ERR_IO, "%s%s%s cannot be %s: %s", path, *name ? "/" : "", name, what,
                    strerror(errno));
}

/* `known` zeroed: of any generation. */
static bool has_name(const cz__head *known, const char *name)
{
    int rank, world_size;
    const char *suffix;
    if (strcmp(name, "common.safetensors") == 0)
        return true;
    if (!cz__part_parse(name, &rank, &world_size, &suffix) ||
        (known->world_size > 0 && world_size != known->world_size))
        return false;
    return strcmp(suffix, "safetensors") == 0 || strcmp(suffix, "json") == 0 ||
           strcmp(suffix, "json.tmp") == 0;
}

/* What was not written to its end may not say whose it is. What cannot be read is nobody's; *unread
 * is why. */
static bool is_ours(const removing *r, const char *name, int *unread)
{
    cz__head head;
    if (!has_name(&r->head, name))
        return false;
    if (cz__head_read(&head, r->folder, name))
        return !head.id[0] || !r->head.id[0] || strcmp(head.id, r->head.id) == 0;
    *unread = errno;
    return errno == ENOENT;
}

static cz_status remove_files(removing *r, DIR *directory)
{
    struct dirent *entry;
    struct stat about;
    for (errno = 0; (entry = readdir(directory)); errno = 0) {
        const char *name = entry->d_name;
        int unread = 0;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (fstatat(r->folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno != ENOENT)
                return refused("seen", r->path, name);
            continue;
        }
        if (strcmp(name, HIDDEN) == 0 && S_ISREG(about.st_mode))
            continue;
        if (!S_ISREG(about.st_mode) || !is_ours(r, name, &unread)) {
            memcpy(r->other, name, strlen(name) + 1);
            r->unread = unread;
            r->alike = r->alike || has_name(&(cz__head){0}, name);
        } else if (unlinkat(r->folder, name, 0) != 0 && errno != ENOENT) {
            return refused("removed", r->path, name);
        }
    }
    return errno ? refused("read", r->path, "") : CZ_OK;
}

/* First the index, so that the generation does not count any more: it gets the name of one that was
 * not completed, and goes last, because it says whose the rest is. It stays with files that would
 * be taken for the generation's without it. */
static cz_status hide_index(removing *r)
{
    struct stat about;
    if (fstatat(r->folder, INDEX, &about, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT)
            return refused("seen", r->path, INDEX);
        return cz__head_read(&r->head, r->folder, HIDDEN) || errno == ENOENT
                   ? CZ_OK
                   : refused("read", r->path, HIDDEN);
    }
    if (S_ISREG(about.st_mode) && !cz__head_read(&r->head, r->folder, INDEX))
        return refused("read", r->path, INDEX);
    if (!S_ISREG(about.st_mode) || (!r->head.index && !r->head.blank))
        return cz__fail(CZ_ERR_IO, "%s: its " INDEX " is no checkpoint's: nothing in it is removed",
                        r->path);
    if (renameat2(r->folder, INDEX, r->folder, HIDDEN, RENAME_NOREPLACE) == 0)
        return CZ_OK;
    return unlinkat(r->folder, INDEX, 0) == 0 || errno == ENOENT
               ? CZ_OK
               : refused("removed", r->path, INDEX);
}

static cz_status remove_all(removing *r)
{
    CZ_TRY(hide_index(r));
    DIR *directory = cz__list_folder(r->folder);
    if (!directory)
        return refused("read", r->path, "");
    const cz_status status = remove_files(r, directory);
    closedir(directory);
    if (status != CZ_OK || r->alike || !is_regular(r->folder, HIDDEN))
        return status;
    return unlinkat(r->folder, HIDDEN, 0) == 0 || errno == ENOENT
               ? CZ_OK
               : refused("removed", r->path, HIDDEN);
}

static cz_status remove_folder(const removing *r, int folder, const char *name)
{
    if (r->other[0] && r->unread)
        return cz__fail(CZ_ERR_IO, "%s: '%s' in it cannot be read, and stays: %s", r->path,
                        cz__show(r->other).text, strerror(r->unread));
    if (r->other[0])
        return cz__fail(CZ_ERR_IO, "%s: '%s' in it is not of this generation, and stays", r->path,
                        cz__show(r->other).text);
    return unlinkat(folder, name, AT_REMOVEDIR) == 0 || errno == ENOENT
               ? CZ_OK
               : refused("removed", r->path, "");
}

static cz_status remove_in(int folder, const char *name, const char *path)
{
    struct stat about;
    removing r = {.path = path};
    r.folder = cz__open_at(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (r.folder < 0 && errno == ENOENT)
        return CZ_OK;
    if (r.folder < 0) {
        const int error = errno;
        if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(about.st_mode))
            return cz__fail(CZ_ERR_IO, "%s: is a link: neither it nor what it leads to is removed",
                            path);
        errno = error;
        return refused("opened as a folder", path, "");
    }
    cz_status status = remove_all(&r);
    close(r.folder);
    return status == CZ_OK ? remove_folder(&r, folder, name) : status;
}

cz_status cz__generation_remove_in(int folder, const char *path, int64_t number, int64_t step)
{
    char name[64];
    cz__text whole = {0};
    cz__generation_name(name, number, step);
    cz_status status = cz__generation_path(&whole, path, number, step);
    if (!status)
        status = remove_in(folder, name, cz__text_get(&whole));
    cz__text_clear(&whole);
    return status;
}

cz_status cz__generation_remove(const char *folder, int64_t number, int64_t step)
{
    const int file = cz__open(folder, O_RDONLY | O_DIRECTORY);
    if (file < 0)
        return errno == ENOENT ? CZ_OK : refused("opened", folder, "");
    const cz_status status = cz__generation_remove_in(file, folder, number, step);
    close(file);
    return status;
}
