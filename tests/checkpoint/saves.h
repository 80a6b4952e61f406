/* SPDX-License-Identifier: MIT */
/* What tests of saves share: the folder, what is in it, and files that the system does not
 * write. */
#ifndef CZ_TEST_SAVES_H
#define CZ_TEST_SAVES_H

#include <dirent.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "checkpoint/small.h"
#include "io/stream.h"

static char folder[FOLDER_BYTES];

static inline int set_up(void **state)
{
    cz_log_set_sink(small_quiet, NULL);
    make_folder(folder);
    return 0;
}

static inline int tear_down(void **state)
{
    cz__system_used = cz__system_own;
    remove_folder(folder);
    return 0;
}

static inline bool exists(const char *in, const char *name)
{
    char path[2 * SMALL_PATH];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", in, name);
    return lstat(path, &about) == 0;
}

static inline int entries(const char *path)
{
    int count = 0;
    struct dirent *entry;
    DIR *directory = opendir(path);
    while (directory && (entry = readdir(directory)))
        count += entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    return count;
}

static inline cz_status want(bool holds, const char *what)
{
    return holds ? CZ_OK : cz_fail(CZ_ERR_STATE, "wanted: %s", what);
}

/* Ranks agree about what the folder is like before one of them changes it. */
static inline cz_status want_entries(small *s, const char *path, int count)
{
    CZ_TRY(cz_barrier(s->group, NULL));
    const int found = entries(path);
    CZ_TRY(cz_barrier(s->group, NULL));
    return found == count
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "%d entries in %.100s, wanted %d", found, path, count);
}

#define BODY(name) RANK_BODY(name, small, small_close, group, context)

static const int world_sizes[] = {1, 2, 3, 5};
enum { WORLDS = sizeof world_sizes / sizeof *world_sizes };

/* Files with this in their names are not written as others are. */
static const char *victim;

static inline bool is_victim(int file)
{
    char link[64], path[2 * SMALL_PATH];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return victim && strstr(path, victim);
}

/* How a save fails: at once, or when it is waited for. */
static inline cz_status save_and_wait(small *s, int64_t step, bool later)
{
    CZ_TRY(small_save(s, step, later));
    return cz_checkpoint_wait(s->checkpoint);
}

#endif
