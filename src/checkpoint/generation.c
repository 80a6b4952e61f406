/* SPDX-License-Identifier: MIT */
/* Generations in a folder: names and files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/open.h"
#include "base/status.h"
#include "checkpoint/generation.h"

static void begin(cz__text *path, const char *folder)
{
    cz__text_cut(path, 0);
    cz__text_print(path, "%s/", folder);
}

static cz_status end(const cz__text *path)
{
    return path->failed ? cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a path") : CZ_OK;
}

cz_status cz__generation_path(cz__text *path, const char *folder, int64_t number, int64_t step)
{
    begin(path, folder);
    cz__text_print(path, "%08" PRId64 "-step-%" PRId64, number, step);
    return end(path);
}

cz_status cz__index_path(cz__text *path, const char *generation)
{
    begin(path, generation);
    cz__text_print(path, "index.json");
    return end(path);
}

cz_status cz__common_path(cz__text *path, const char *generation)
{
    begin(path, generation);
    cz__text_print(path, "common.safetensors");
    return end(path);
}

cz_status cz__part_path(cz__text *path, const char *generation, int rank, int world_size,
                        const char *suffix)
{
    begin(path, generation);
    cz__text_print(path, "rank-%05d-of-%05d.%s", rank, world_size, suffix);
    return end(path);
}

/* ---- one save at a time ---- */

cz_status cz__folder_lock(int *lock, const char *folder)
{
    *lock = cz__open(folder, O_RDONLY | O_DIRECTORY);
    if (*lock < 0 || flock(*lock, LOCK_EX | LOCK_NB) == 0)
        return CZ_OK;
    const int error = errno;
    close(*lock);
    *lock = -1;
    return error == EWOULDBLOCK ? cz__fail(CZ_ERR_IO,
                                           "checkpoint save: %s is in use by another save: does "
                                           "another job write to this folder?",
                                           folder)
                                : CZ_OK;
}

void cz__folder_unlock(int lock)
{
    if (lock < 0)
        return;
    (void)flock(lock, LOCK_UN); /* a process that was forked meanwhile has the file too */
    close(lock);
}

/* ---- taking one away ---- */

static bool is_ours(const char *name)
{
    return strncmp(name, "rank-", 5) == 0 || strncmp(name, "index.json", 10) == 0 ||
           strncmp(name, "common.safetensors", 18) == 0;
}

static cz_status refused(const char *what, const char *path)
{
    return cz__fail(CZ_ERR_IO, "%s cannot be %s: %s", path, what, strerror(errno));
}

static cz_status remove_files(const char *path, DIR *directory, cz__text *file)
{
    struct dirent *entry;
    while ((entry = readdir(directory))) {
        if (!is_ours(entry->d_name))
            continue;
        begin(file, path);
        cz__text_print(file, "%s", entry->d_name);
        CZ_TRY(end(file));
        if (unlink(cz__text_get(file)) != 0 && errno != ENOENT)
            return refused("removed", cz__text_get(file));
    }
    return CZ_OK;
}

cz_status cz__generation_remove(const char *path)
{
    cz__text file = {0};
    DIR *directory = cz__open_folder(path);
    if (!directory)
        return errno == ENOENT ? CZ_OK : refused("read", path);
    cz_status status = cz__index_path(&file, path);
    if (status == CZ_OK && unlink(cz__text_get(&file)) != 0 && errno != ENOENT)
        status = refused("removed", cz__text_get(&file));
    if (status == CZ_OK)
        status = remove_files(path, directory, &file);
    closedir(directory);
    cz__text_clear(&file);
    if (status == CZ_OK && rmdir(path) != 0 && errno != ENOENT)
        status = refused("removed", path);
    return status;
}
