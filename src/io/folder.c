/* SPDX-License-Identifier: MIT */
/* Folders that the program or a user names: what is in them, and the lock that one save at a time
 * has. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/open.h"
#include "base/status.h"
#include "io/folder.h"

/* ---- a look ---- */
/* Looking at a path without opening what is there. */

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
    CZ_TRY(look_for(file, path, CZ__CONSOLIDATED_SINGLE, &look->single));
    return look_for(file, path, CZ__DISTRIBUTED_INDEX, &look->distributed);
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

bool cz__shard_file_is(const char *name)
{
    int rank, number, count;
    return sscanf(name, "shard-%9d-model-%9d-of-%9d", &rank, &number, &count) == 3 &&
           cz__ends_with(name, ".safetensors");
}

/* "__7.metadata" */
static bool is_metadata_of_rank(const char *name)
{
    char again[32];
    int rank;
    return sscanf(name, "__%9d", &rank) == 1 &&
           snprintf(again, sizeof again, "__%d" CZ__DISTRIBUTED_INDEX, rank) > 0 &&
           strcmp(name, again) == 0;
}

const char *cz__folder_unread(const char *path)
{
    const char *unread = NULL;
    const struct dirent *entry;
    DIR *folder = cz__open_folder(path);
    while (folder && !unread && (entry = readdir(folder)))
        if (is_metadata_of_rank(entry->d_name))
            unread =
                "each rank has metadata of its own here, as "
                "torch.distributed.checkpoint.save(use_collectives=False) writes them, which are "
                "not read: save without that";
        else if (cz__shard_file_is(entry->d_name))
            unread = "here are " CZ__SHARDS_UNREAD;
    if (folder)
        closedir(folder);
    return unread;
}

void cz__index_to_folder(char *path)
{
    char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (strcmp(name, "index.json") != 0 && strcmp(name, CZ__CONSOLIDATED_INDEX) != 0)
        return;
    char *end = slash && slash > path ? slash : path + 1; /* "/" and "." are of one letter */
    if (!slash)
        path[0] = '.';
    *end = 0;
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

/* Or what such a small file is written as, cz__file_write(). */
bool cz__unfinished_is(const char *name)
{
    return cz__ends_with(name, CZ__UNFINISHED) || cz__ends_with(name, CZ__UNFINISHED ".tmp");
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

/* ---- one writer ---- */
/* One save at a time. The lock is on a file that is there for the time of a save and that nobody
 * but its owner can open, so that who may only read a folder holds up nothing; each user has one. A
 * file that was left behind has no lock on it. */

enum { TRIES = 100, NAME_BYTES = 40 };
#define BEGINNING ".czero-lock-"

static void name_lock(char name[NAME_BYTES], uid_t owner)
{
    snprintf(name, NAME_BYTES, BEGINNING "%lu", (unsigned long)owner);
}

bool cz__folder_lock_is(const char *name)
{
    const size_t begins = sizeof BEGINNING - 1;
    return strncmp(name, BEGINNING, begins) == 0 && name[begins] != '\0' &&
           strspn(name + begins, "0123456789") == strlen(name + begins);
}

/* ---- children ---- */

/* A child that was forked meanwhile has the file too, and would hold the lock when this process is
 * killed. */
enum { MOST_LOCKS = 64 };
static atomic_int held[MOST_LOCKS]; /* descriptor + 1; 0: none */

static void let_go_in_child(void)
{
    for (int i = 0; i < MOST_LOCKS; i++) {
        const int file = atomic_exchange(&held[i], 0);
        if (file > 0)
            close(file - 1);
    }
}

static void watch_children(void)
{
    (void)pthread_atfork(NULL, NULL, let_go_in_child);
}

static void remember_lock(int file)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_children);
    for (int i = 0; i < MOST_LOCKS; i++) {
        int none = 0;
        if (atomic_compare_exchange_strong(&held[i], &none, file + 1))
            return;
    }
}

static void forget_lock(int file)
{
    for (int i = 0; i < MOST_LOCKS; i++) {
        int same = file + 1;
        if (atomic_compare_exchange_strong(&held[i], &same, 0))
            return;
    }
}

/* ---- the file ---- */

/* One of ours; another's of that name is no lock, and goes if it can. -1, with errno. */
static int open_lock(int folder, const char *name, uid_t owner)
{
    struct stat about;
    const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
    int file = cz__open_with_rights(folder, name, flags | O_CREAT | O_EXCL, 0600);
    if (file >= 0 || errno != EEXIST)
        return file;
    file = cz__open_at(folder, name, flags);
    if (file < 0 && errno == ENOENT)
        return file;
    if (file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == owner &&
        (about.st_mode & 077) == 0)
        return file;
    if (file >= 0)
        close(file);
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
        errno = ENOENT; /* once more */
    else
        errno = EPERM;
    return -1;
}

/* 0, or an errno: EAGAIN: somebody has it. The explicit kind: it belongs to the descriptor and not
 * to the process, which may have two checkpoints. */
static int take_lock(int file)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(file, F_OFD_SETLK, &all) == 0)
        return 0;
    return errno == EACCES ? EAGAIN : errno;
}

static bool has_name(int folder, const char *name, int file)
{
    struct stat there, ours;
    return fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && fstat(file, &ours) == 0 &&
           there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
}

static cz_status refuse(int error, const char *path, const char *name)
{
    if (error == EPERM)
        return cz__fail(
            CZ_ERR_IO,
            "checkpoint save: %s/%s is not this user's file, though it is called so: remove it",
            path, name);
    return cz__fail(CZ_ERR_IO, "checkpoint save: %s/%s cannot be made: %s", path, name,
                    strerror(error));
}

cz_status cz__folder_lock(int *lock, int folder, const char *path, const struct stat *owner)
{
    char name[NAME_BYTES];
    name_lock(name, owner->st_uid);
    for (int i = 0; i < TRIES; i++) { /* whoever lets go takes the file away */
        *lock = open_lock(folder, name, owner->st_uid);
        if (*lock < 0 && errno != ENOENT)
            return refuse(errno, path, name);
        const int error = *lock < 0 ? ENOENT : take_lock(*lock);
        if (error == 0 && has_name(folder, name, *lock)) {
            remember_lock(*lock);
            return CZ_OK;
        }
        if (*lock >= 0)
            close(*lock);
        *lock = -1;
        if (error == EAGAIN)
            return cz__fail(CZ_ERR_IO,
                            "checkpoint save: %s is in use by another save: does another job write "
                            "to this folder?",
                            path);
        if (error && error != ENOENT) { /* the file system has no locks */
            (void)unlinkat(folder, name, 0);
            return CZ_OK;
        }
    }
    return CZ_OK;
}

void cz__folder_unlock(int lock, int folder)
{
    char name[NAME_BYTES];
    struct stat about;
    struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (lock < 0)
        return;
    if (fstat(lock, &about) == 0) {
        name_lock(name, about.st_uid);
        if (has_name(folder, name, lock))
            (void)unlinkat(folder, name, 0);
    }
    (void)fcntl(lock, F_OFD_SETLK, &all);
    forget_lock(lock);
    close(lock);
}
