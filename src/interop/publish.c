/* SPDX-License-Identifier: MIT */
/* What rank 0 does for an export: make the files that all ranks write, and give them their
 * names. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "interop/consolidated.h"
#include "interop/exporting.h"
#include "interop/dcp_write.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/stream.h"

static bool has_folder(const cz__exporting *e)
{
    return e->options.max_file_bytes > 0;
}

/* ---- making ---- */

static cz_status make_folder(cz__exporting *e)
{
    struct stat about;
    e->made_folder = mkdir(e->path, 0777) == 0;
    if (e->made_folder)
        return CZ_OK;
    const int error = errno;
    if (error == EEXIST && stat(e->path, &about) == 0 && S_ISDIR(about.st_mode))
        return CZ_OK;
    return cz__refuse_path(e->path, "is no folder, and cannot be made one", error);
}

/* A folder of that name would be found only when all is written. */
static cz_status check_target(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode)
               ? cz__fail(CZ_ERR_IO, "%s: is a folder, which no file replaces", path)
               : CZ_OK;
}

static int set_length(int file, uint64_t bytes)
{
    if (cz__system_used.reserve(file, 0, 0, (off_t)bytes) == 0)
        return 0;
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        return errno;
    return ftruncate(file, (off_t)bytes) == 0 ? 0 : errno;
}

/* The token has to be where other machines find it before they look. */
static int put_token(const cz__exporting *e, int file)
{
    const ssize_t put = cz__system_used.write(file, e->token, sizeof e->token, 0);
    if (put != (ssize_t)sizeof e->token)
        return put < 0 ? errno : EIO;
    return cz__system_used.synchronise(file) == 0 ? 0 : errno;
}

/* One of that name that was left behind is in nobody's use. */
static cz_status make_file(cz__exporting *e, int number, cz__text *name)
{
    const char *path = e->layout.files[number].path;
    CZ_TRY(check_target(path));
    CZ_TRY(cz__unfinished_name(name, path));
    (void)unlink(cz__text_get(name));
    const int file = cz__open(cz__text_get(name), O_RDWR | O_CREAT | O_EXCL);
    if (file < 0)
        return cz__refuse_path(cz__text_get(name), "cannot be made", errno);
    e->created = number + 1;
    const char *what = "cannot get its length";
    int error = cz__exporting_made(e, number, file);
    if (!error)
        error = set_length(file, cz__layout_bytes(&e->layout, number));
    if (!error && number == 0) {
        what = "cannot be written and synchronised";
        error = put_token(e, file);
    }
    const int released = cz__exporting_release(e, number);
    error = error ? error : released;
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        what = "no room";
    return error ? cz__fail(CZ_ERR_IO, "%s: %s, %" PRIu64 " bytes: %s", cz__text_get(name), what,
                            cz__layout_bytes(&e->layout, number), strerror(error))
                 : CZ_OK;
}

cz_status cz__exporting_make(cz__exporting *e)
{
    cz__text name = {0};
    cz_status status = CZ_OK;
    if (getrandom(e->token, sizeof e->token, 0) != (ssize_t)sizeof e->token)
        status = cz__fail(CZ_ERR_IO, "checkpoint export: no random numbers from the system");
    if (status)
        goto done;
    if (has_folder(e))
        status = make_folder(e);
    if (status)
        goto done;
    if (e->elements && !e->distributed)
        status = check_target(e->path);
    if (status)
        goto done;
    for (int f = 0; f < e->layout.count; f++) {
        status = make_file(e, f, &name);
        if (status)
            break;
    }
done:
    cz__text_clear(&name);
    return status;
}

/* ---- a folder ---- */

enum { MOST_INDEX = 1 << 30, EDITIONS = 1000 };

/* Files of editions before this one. */
typedef struct earlier {
    json_t *indexed; /* owned, as the next; keys: of the index that is there */
    /* Of one that was killed before it was published, or just after it was replaced. */
    json_t *left;
} earlier;

/* The files of an index that have names of ours. Of one that cannot be parsed nothing is known, so
 * they stay. */
static cz_status list_named(json_t *set, const char *index)
{
    char *bytes;
    size_t count;
    json_t *json = NULL, *value;
    const char *tensor;
    struct stat about;
    if (lstat(index, &about) != 0)
        return errno == ENOENT
                   ? CZ_OK
                   : cz__fail(CZ_ERR_IO, "%s: cannot be seen: %s", index, strerror(errno));
    CZ_TRY(cz__file_read(index, MOST_INDEX, &bytes, &count));
    cz_status status = cz__json_parse(&json, index, bytes, count);
    cz__free(bytes);
    if (status == CZ_ERR_FORMAT)
        return CZ_OK;
    json_object_foreach(json_object_get(json, "weight_map"), tensor, value)
    {
        const char *name = json_string_value(value);
        if (!status && name && cz__model_file_is(name))
            status = cz__json_set(set, name, json_true());
    }
    json_decref(json);
    return status;
}

static cz_status is_taken(const char *path, const earlier *before, bool *taken)
{
    struct stat about;
    const char *name = strrchr(path, '/') + 1;
    *taken = lstat(path, &about) == 0;
    if (!*taken && errno != ENOENT)
        return cz__fail(CZ_ERR_IO, "%s: cannot be seen: %s", path, strerror(errno));
    if (*taken && S_ISREG(about.st_mode) && json_object_get(before->left, name) &&
        !json_object_get(before->indexed, name))
        *taken = false; /* nobody's */
    return CZ_OK;
}

static cz_status any_taken(const cz__exporting *e, const earlier *before, bool *taken)
{
    *taken = false;
    for (int f = 0; f < e->layout.count; f++) {
        CZ_TRY(is_taken(e->layout.files[f].name, before, taken));
        if (*taken)
            break;
    }
    return CZ_OK;
}

/* The first edition of whose names there is none. */
static cz_status choose_names(cz__exporting *e, const earlier *before, int *chosen)
{
    for (int edition = 0; edition < EDITIONS; edition++) {
        bool taken;
        *chosen = edition;
        CZ_TRY(cz__layout_choose(&e->layout, e->path, edition));
        CZ_TRY(any_taken(e, before, &taken));
        if (!taken)
            return CZ_OK;
    }
    return cz__fail(CZ_ERR_IO,
                    "%s: all names of files are taken, up to %s: remove those that no index names",
                    e->path, e->layout.files[0].name);
}

static cz_status give_name(cz__exporting *e, int number)
{
    bool other;
    const cz__layout_file *file = &e->layout.files[number];
    cz__text unfinished = {0};
    cz_status status = cz__unfinished_name(&unfinished, file->path);
    if (status)
        goto done;
    status = cz__exporting_check_name(e, number, cz__text_get(&unfinished), &other);
    if (status)
        goto done;
    if (rename(cz__text_get(&unfinished), file->name) != 0)
        status = cz__fail(CZ_ERR_IO, "%s: cannot be called %s: %s", cz__text_get(&unfinished),
                          file->name, strerror(errno));
done:
    cz__text_clear(&unfinished);
    CZ_TRY(status);
    status = cz__exporting_check_name(e, number, file->name, &other);
    if (status == CZ_OK || !other)
        e->named = number + 1; /* it is ours, to be removed by that name */
    return status;
}

static bool is_new(const cz__exporting *e, const char *name)
{
    for (int f = 0; f < e->layout.count; f++)
        if (strcmp(strrchr(e->layout.files[f].name, '/') + 1, name) == 0)
            return true;
    return false;
}

/* What stays does no harm but takes room. */
static bool remove_file(const cz__exporting *e, const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return true;
    const char *why = strerror(errno);
    cz__log(CZ_LOG_WARN, "%s: nothing needs it any more, and it cannot be removed: %s", path, why);
    if (e->checkpoint)
        cz__text_print(&e->checkpoint->notes,
                       "%s stays: nothing needs it any more, and it cannot be removed: %s\n", path,
                       why);
    return false;
}

static bool remove_named(const cz__exporting *e, json_t *names)
{
    const char *name;
    json_t *unused;
    bool all = true;
    cz__text path = {0};
    json_object_foreach(names, name, unused)
    {
        cz__text_cut(&path, 0);
        if (is_new(e, name))
            continue;
        all = cz__text_print(&path, "%s/%s", e->path, name) &&
              remove_file(e, cz__text_get(&path)) && all;
    }
    cz__text_clear(&path);
    return all;
}

static void note_unseen(const cz__exporting *e, int error)
{
    static const char *const what = "what exports that were killed have left there stays: it "
                                    "cannot be listed";
    cz__log(CZ_LOG_WARN, "%s: %s: %s", e->path, what, strerror(error));
    if (e->checkpoint)
        cz__text_print(&e->checkpoint->notes, "%s: %s: %s\n", e->path, what, strerror(error));
}

/* Files that were never completed, of exports that had others. */
static void remove_unfinished(const cz__exporting *e)
{
    struct dirent *entry;
    char name[NAME_MAX + 1];
    cz__text path = {0};
    DIR *folder = cz__open_folder(e->path);
    if (folder)
        errno = 0;
    for (; folder && (entry = readdir(folder)); errno = 0) {
        if (!cz__unfinished_is(entry->d_name))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(strlen(entry->d_name) - strlen(CZ__UNFINISHED)),
                 entry->d_name);
        cz__text_cut(&path, 0);
        if (cz__model_file_is(name) && cz__text_print(&path, "%s/%s", e->path, entry->d_name))
            (void)remove_file(e, cz__text_get(&path));
    }
    if (errno)
        note_unseen(e, errno);
    if (folder)
        closedir(folder);
    cz__text_clear(&path);
}

/* All that may fail comes before the index changes hands: files of a new edition stand beside those
 * that are there. */
static cz_status switch_index(cz__exporting *e, const char *index, const char *beside,
                              cz__placed *placed)
{
    CZ_TRY(cz__file_write(beside, cz__text_get(&e->layout.index), e->layout.index.count));
    while (e->named < e->layout.count)
        CZ_TRY(give_name(e, e->named));
    CZ_TRY(cz__folder_sync(e->path));
    if (e->made_folder)
        CZ_TRY(cz__folder_sync_of(e->path));
    return cz__replace(beside, index, placed);
}

/* The index that was replaced is there, beside, until all of its files are gone: whoever comes
 * after a kill finds them by it. */
static bool remove_replaced(const cz__exporting *e, const char *beside, const earlier *before)
{
    const bool removed = remove_named(e, before->indexed);
    remove_unfinished(e);
    return remove_named(e, before->left) && removed && remove_file(e, beside);
}

/* The files of the edition that is published, under the first one's names as well. */
static cz_status link_first(cz__exporting *e, const char *beside, int edition, int *linked)
{
    cz__text from = {0};
    *linked = 0;
    cz_status status = cz__layout_choose(&e->layout, e->path, 0);
    if (status)
        goto done;
    status = cz__file_write(beside, cz__text_get(&e->layout.index), e->layout.index.count);
    if (status)
        goto done;
    for (; *linked < e->layout.count; (*linked)++) {
        status = cz__layout_path(&e->layout, e->path, edition, *linked, &from);
        if (!status && link(cz__text_get(&from), e->layout.files[*linked].name) != 0)
            status = CZ_ERR_IO;
        if (status)
            break;
    }
done:
    cz__text_clear(&from);
    return status == CZ_OK ? cz__folder_sync(e->path) : status;
}

/* Everything is published. Where the file system can, files get the names that those had which they
 * replaced, by an index more, and where it cannot they keep theirs. */
static void take_first_names(cz__exporting *e, const char *index, const char *beside, int edition)
{
    int linked = 0;
    cz__text old = {0};
    cz__placed placed = CZ__NOT_PLACED;
    const cz__sentence held = cz__sentence_hold();
    if (link_first(e, beside, edition, &linked) == CZ_OK)
        (void)cz__replace(beside, index, &placed);
    for (int f = 0; f < linked; f++) {
        if (placed == CZ__NOT_PLACED)
            (void)remove_file(e, e->layout.files[f].name);
        else if (cz__layout_path(&e->layout, e->path, edition, f, &old) == CZ_OK)
            (void)remove_file(e, cz__text_get(&old));
    }
    (void)remove_file(e, beside);
    cz__text_clear(&old);
    cz__sentence_resume(held);
}

static cz_status replace_edition(cz__exporting *e, const char *index, const char *beside,
                                 const earlier *before)
{
    int edition;
    cz__placed placed = CZ__NOT_PLACED;
    CZ_TRY(list_named(before->indexed, index));
    CZ_TRY(list_named(before->left, beside));
    CZ_TRY(choose_names(e, before, &edition));
    const cz_status status = switch_index(e, index, beside, &placed);
    if (placed == CZ__NOT_PLACED) {
        (void)unlink(beside);
        return status;
    }
    e->created = e->named = 0;
    e->made_folder = false;
    if (status != CZ_OK)
        return status;
    if (remove_replaced(e, beside, before) && edition > 0)
        take_first_names(e, index, beside, edition);
    return CZ_OK;
}

static cz_status publish_folder(cz__exporting *e)
{
    cz__text index = {0}, beside = {0};
    const earlier before = {json_object(), json_object()};
    cz__text_print(&index, "%s/" CZ__CONSOLIDATED_INDEX, e->path);
    cz_status status =
        index.failed || !before.indexed || !before.left
            ? cz__fail(CZ_ERR_MEMORY, "checkpoint export: no memory for names of files")
            : cz__unfinished_name(&beside, cz__text_get(&index));
    if (status)
        goto done;
    status = check_target(cz__text_get(&index));
    if (status)
        goto done;
    status = replace_edition(e, cz__text_get(&index), cz__text_get(&beside), &before);
done:
    json_decref(before.indexed);
    json_decref(before.left);
    cz__text_clear(&index);
    cz__text_clear(&beside);
    return status;
}

/* ---- one file ---- */

/* It takes the name, and what had it is removed. */
static cz_status publish_file(cz__exporting *e)
{
    cz__placed placed = CZ__NOT_PLACED;
    bool other;
    cz__text beside = {0};
    cz_status status = cz__unfinished_name(&beside, e->path);
    if (status)
        goto done;
    if (!e->elements)
        status = cz__exporting_check_name(e, 0, cz__text_get(&beside), &other);
    if (status)
        goto done;
    status = cz__replace(cz__text_get(&beside), e->path, &placed);
    if (status)
        goto done;
    if (!e->elements && cz__exporting_check_name(e, 0, e->path, &other) != CZ_OK) {
        status = other ? CZ_ERR_IO : CZ_OK;
        if (!other) /* it is new, and complete: that it cannot be looked at changes nothing */
            cz__log(CZ_LOG_WARN, "%s", cz_last_error());
    }
    if (status)
        goto done;
    if (placed == CZ__PLACED_AND_OLD)
        (void)remove_file(e, cz__text_get(&beside));
done:
    if (placed != CZ__NOT_PLACED && e->elements)
        e->converted = false;
    else if (placed != CZ__NOT_PLACED)
        e->created = 0;
    cz__text_clear(&beside);
    return status;
}

/* ---- a file for torch ---- */

/* Checksums are in its container, and those of elements are known to nobody until all of them were
 * seen: one rank goes through them. */
static cz_status convert(cz__exporting *e, const char *elements, const char *to)
{
    bool other;
    cz__torch_export what = {.index = &e->index,
                             .common = e->options.common,
                             .step = e->options.step,
                             .parameters_only = e->options.parameters_only != 0};
    CZ_TRY(cz__exporting_check_name(e, 0, elements, &other));
    CZ_TRY(cz__bundle_open(&what.elements, elements, NULL));
    if (!e->distributed)
        (void)unlink(to); /* left behind */
    cz_status status = e->distributed ? cz__dcp_write(to, &what) : cz__torch_write(to, &what);
    e->converted = status == CZ_OK && !e->distributed;
    cz__bundle_close(&what.elements);
    if (!status) /* what was read is what was written */
        status = cz__exporting_check_name(e, 0, elements, &other);
    return status;
}

/* Is it what an import wants? */
static cz_status confirm_torch(const cz__exporting *e, const char *beside)
{
    cz__bundle *bundle = NULL;
    const cz_status status = cz__bundle_open(&bundle, beside, &e->index);
    cz__bundle_close(&bundle);
    return status;
}

static cz_status publish_torch(cz__exporting *e)
{
    cz__text elements = {0}, beside = {0};
    cz_status status = cz__unfinished_name(&elements, e->elements);
    if (status)
        goto done;
    status = cz__unfinished_name(&beside, e->path);
    if (status)
        goto done;
    status = convert(e, cz__text_get(&elements), cz__text_get(&beside));
    if (status)
        goto done;
    status = confirm_torch(e, cz__text_get(&beside));
    if (status)
        goto done;
    /* Once the file has its name nothing is left behind: who is told that it is there already
     * would have to remove the rest by hand. */
    (void)remove_file(e, cz__text_get(&elements));
    e->created = 0;
    status = publish_file(e);
done:
    cz__text_clear(&elements);
    cz__text_clear(&beside);
    return status;
}

/* Complete with its last file, which takes its name when all others have theirs. */
static cz_status publish_distributed(cz__exporting *e)
{
    cz__text elements = {0};
    cz_status status = cz__unfinished_name(&elements, e->elements);
    if (!status)
        status = convert(e, cz__text_get(&elements), e->path);
    if (!status) {
        (void)remove_file(e, cz__text_get(&elements));
        e->created = 0;
    }
    cz__text_clear(&elements);
    return status;
}

cz_status cz__exporting_publish(cz__exporting *e)
{
    if (e->distributed)
        return publish_distributed(e);
    if (e->elements)
        return publish_torch(e);
    return has_folder(e) ? publish_folder(e) : publish_file(e);
}

void cz__exporting_discard(cz__exporting *e)
{
    cz__text name = {0};
    for (int f = 0; f < e->created; f++) {
        cz__text_cut(&name, 0);
        if (f < e->named)
            cz__text_print(&name, "%s", e->layout.files[f].name);
        else
            cz__text_print(&name, "%s" CZ__UNFINISHED, e->layout.files[f].path);
        if (!name.failed)
            (void)unlink(cz__text_get(&name));
    }
    if (e->converted && cz__unfinished_name(&name, e->path) == CZ_OK)
        (void)unlink(cz__text_get(&name));
    if (e->made_folder)
        (void)rmdir(e->path);
    cz__text_clear(&name);
}
