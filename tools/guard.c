/* SPDX-License-Identifier: MIT */
/* Which files are read, and whether one that is to be written is among them. */
#include "guard.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/open.h"
#include "czero/archive.h"
#include "io/folder.h"
#include "io/stream.h"

typedef struct identity {
    uint64_t device, number; /* 0 and 0: a free place */
    bool beside;             /* it is not read itself, but lies in a folder that is */
} identity;

/* A table, of a folder of any number of files: open addressing, at most half of it is taken. Owned
 * by the program, which ends with it. */
static identity *known;
static int64_t known_count, known_capacity;
static bool incomplete; /* no memory for one of them */

/* Where it is, or the free place where it would go. */
static identity *place_of(identity *places, int64_t capacity, uint64_t device, uint64_t number)
{
    const uint64_t both[] = {device, number};
    const size_t mask = (size_t)capacity - 1;
    size_t i = (size_t)cz__keyed_hash(both, sizeof both) & mask;
    while ((places[i].device || places[i].number) &&
           (places[i].device != device || places[i].number != number))
        i = (i + 1) & mask;
    return &places[i];
}

static identity *find_known(uint64_t device, uint64_t number)
{
    identity *one = known ? place_of(known, known_capacity, device, number) : NULL;
    return one && (one->device || one->number) ? one : NULL;
}

static bool have_room(void)
{
    if (2 * (known_count + 1) <= known_capacity)
        return true;
    const int64_t capacity = known_capacity ? 2 * known_capacity : 64;
    identity *larger = cz__calloc((size_t)capacity, sizeof *larger);
    if (!larger)
        return false;
    for (int64_t i = 0; i < known_capacity; i++)
        if (known[i].device || known[i].number)
            *place_of(larger, capacity, known[i].device, known[i].number) = known[i];
    cz__free(known);
    known = larger;
    known_capacity = capacity;
    return true;
}

static void remember(uint64_t device, uint64_t number, bool beside)
{
    identity *one = find_known(device, number);
    if (one)
        one->beside = one->beside && beside;
    if (one)
        return;
    if (!have_room()) {
        incomplete = true;
        return;
    }
    *place_of(known, known_capacity, device, number) = (identity){device, number, beside};
    known_count++;
}

static void remember_opened(uint64_t device, uint64_t number)
{
    remember(device, number, false);
}

void guard_begin(void)
{
    cz__reader_tell = remember_opened;
}

static cz_status check_memory(void)
{
    return incomplete ? cz_fail(CZ_ERR_MEMORY, "no memory for a list of what is read") : CZ_OK;
}

/* ---- names ---- */

static bool is_of_generation(const char *name)
{
    return strncmp(name, "rank-", 5) == 0 || strcmp(name, "index.json") == 0 ||
           strcmp(name, "common.safetensors") == 0;
}

static bool is_of_model(const char *name)
{
    return cz__model_file_is(name) || strcmp(name, CZ__CONSOLIDATED_INDEX) == 0;
}

/* One of the names by which a folder is taken for a model. */
static bool makes_a_model(const char *name)
{
    return strcmp(name, CZ__CONSOLIDATED_SINGLE) == 0 || strcmp(name, CZ__CONSOLIDATED_INDEX) == 0;
}

/* ---- reading ---- */

static cz_status unseen(const char *path)
{
    return cz_fail(CZ_ERR_IO, "%s: cannot be seen: %s", path, strerror(errno));
}

/* What a link leads to is read; one that leads nowhere is not. */
static cz_status remember_entries(const char *path, DIR *folder)
{
    struct stat about;
    const struct dirent *entry;
    for (errno = 0; (entry = readdir(folder)); errno = 0) {
        if (strcmp(entry->d_name, "..") == 0)
            continue;
        const char *name = entry->d_name;
        if (fstatat(dirfd(folder), name, &about, 0) == 0)
            remember((uint64_t)about.st_dev, (uint64_t)about.st_ino,
                     !is_of_generation(name) && !is_of_model(name) && !makes_a_model(name));
        else if (errno != ENOENT && errno != ELOOP && errno != EACCES && errno != EPERM)
            return unseen(path);
    }
    return errno ? unseen(path) : CZ_OK;
}

static cz_status remember_path(const char *path)
{
    cz__look look;
    CZ_TRY(cz__look_at(&look, path));
    if (!look.there)
        return CZ_OK;
    remember(look.device, look.number, false);
    DIR *folder = look.folder ? cz__open_folder(path) : NULL;
    if (!folder)
        return look.folder ? unseen(path) : CZ_OK;
    const cz_status status = remember_entries(path, folder);
    closedir(folder);
    return status;
}

static bool goes_to_known(int file)
{
    struct stat about;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
        return false;
    const identity *one = find_known((uint64_t)about.st_dev, (uint64_t)about.st_ino);
    return one && !one->beside;
}

cz_status guard_read(const char *path)
{
    CZ_TRY(remember_path(path));
    CZ_TRY(check_memory());
    if (goes_to_known(STDERR_FILENO)) /* there is nobody who could be told */
        exit(2);
    return goes_to_known(STDOUT_FILENO)
               ? cz_fail(CZ_ERR_ARGUMENT,
                         "%s: standard output goes to this, or to a file in it: nothing was done",
                         path)
               : CZ_OK;
}

/* ---- writing ---- */

static cz_status note_generation(const cz_archive_generation *g, void *context)
{
    *(bool *)context = true;
    return CZ_OK;
}

static cz_status is_checkpoints(const char *folder, const cz__look *look, bool *is)
{
    *is = look->generation;
    if (look->generation || !look->folder || cz__look_consolidated(look))
        return CZ_OK;
    return cz_archive_list(folder, note_generation, is);
}

/* In the folder that it would be in. */
static cz_status check_place(const char *path, const char *folder, const char *name)
{
    cz__look there, look;
    bool is = false;
    CZ_TRY(cz__look_at(&there, path));
    CZ_TRY(cz__look_at(&look, folder));
    if (there.there && look.generation && is_of_generation(name))
        return cz_fail(CZ_ERR_ARGUMENT, "%s: it belongs to the checkpoint %s", path, folder);
    if (there.there && look.several && is_of_model(name))
        return cz_fail(CZ_ERR_ARGUMENT, "%s: it belongs to the model of several files in %s", path,
                       folder);
    if (makes_a_model(name))
        CZ_TRY(is_checkpoints(folder, &look, &is));
    return is ? cz_fail(CZ_ERR_ARGUMENT,
                        "%s: with a file of that name %s would not be taken for a folder of "
                        "checkpoints any more",
                        path, folder)
              : CZ_OK;
}

static cz_status check_known(const char *path)
{
    struct stat about;
    CZ_TRY(check_memory());
    for (int flags = 0; flags <= AT_SYMLINK_NOFOLLOW; flags += AT_SYMLINK_NOFOLLOW) {
        const bool found = fstatat(AT_FDCWD, path, &about, flags) == 0;
        if (!found && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
            return unseen(path);
        if (found && find_known((uint64_t)about.st_dev, (uint64_t)about.st_ino))
            return cz_fail(CZ_ERR_ARGUMENT,
                           "%s: this is what is read, or a part of it, or beside it in the folder "
                           "that is read; give another name",
                           path);
    }
    return CZ_OK;
}

static cz_status check_both(const char *path)
{
    cz__text unfinished = {0};
    CZ_TRY(check_known(path));
    cz_status status = cz__unfinished_name(&unfinished, path);
    if (status == CZ_OK)
        status = check_known(cz__text_get(&unfinished));
    cz__text_clear(&unfinished);
    return status;
}

cz_status guard_write(const char *path)
{
    char *folder = cz__strdup(path);
    if (!folder)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a path");
    char *slash = strrchr(folder, '/');
    const char *name = slash ? path + (slash - folder) + 1 : path;
    if (slash)
        slash[slash == folder] = 0;
    cz_status status = check_both(path);
    if (status == CZ_OK)
        status = check_place(path, slash ? folder : ".", name);
    cz__free(folder);
    return status;
}

static cz_status check_entries(const char *path, DIR *folder)
{
    const struct dirent *entry;
    cz__text text = {0};
    cz_status status = CZ_OK;
    for (errno = 0; status == CZ_OK && (entry = readdir(folder)); errno = 0) {
        if (!is_of_model(entry->d_name) && !cz__unfinished_is(entry->d_name))
            continue;
        cz__text_cut(&text, 0);
        status = cz__text_print(&text, "%s/%s", path, entry->d_name)
                     ? check_known(cz__text_get(&text))
                     : cz_fail(CZ_ERR_MEMORY, "no memory for a path");
    }
    const int error = status == CZ_OK ? errno : 0;
    cz__text_clear(&text);
    errno = error;
    return error ? unseen(path) : status;
}

cz_status guard_write_folder(const char *path)
{
    cz__look look;
    bool is;
    CZ_TRY(check_known(path));
    CZ_TRY(cz__look_at(&look, path));
    CZ_TRY(is_checkpoints(path, &look, &is));
    if (is)
        return cz_fail(CZ_ERR_ARGUMENT,
                       "%s: with the files of a model in it, it would not be taken for a folder of "
                       "checkpoints any more",
                       path);
    DIR *folder = look.folder ? cz__open_folder(path) : NULL;
    if (!folder)
        return look.folder ? unseen(path) : CZ_OK;
    const cz_status status = check_entries(path, folder);
    closedir(folder);
    return status;
}
