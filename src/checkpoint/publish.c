/* SPDX-License-Identifier: MIT */
/* What rank 0 does for an export: make the files that all ranks write, and give them their names. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "checkpoint/consolidated.h"
#include "checkpoint/exporting.h"
#include "checkpoint/stream.h"
#include "checkpoint/system.h"
#include "checkpoint/torch_write.h"
#include "checkpoint/unfinished.h"

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
    const int file = cz__open(cz__text_get(name), O_WRONLY | O_CREAT | O_EXCL);
    if (file < 0)
        return cz__refuse_path(cz__text_get(name), "cannot be made", errno);
    e->created = number + 1;
    int error = set_length(file, cz__layout_bytes(&e->layout, number));
    if (!error && number == 0)
        error = put_token(e, file);
    if (close(file) != 0 && !error && errno != EINTR)
        error = errno;
    return error ? cz__fail(CZ_ERR_IO, "%s: no room for %" PRIu64 " bytes: %s", cz__text_get(name),
                            cz__layout_bytes(&e->layout, number), strerror(error))
                 : CZ_OK;
}

cz_status cz__exporting_make(cz__exporting *e)
{
    cz__text name = {0};
    cz_status status = CZ_OK;
    if (getrandom(e->token, sizeof e->token, 0) != (ssize_t)sizeof e->token)
        status = cz__fail(CZ_ERR_IO, "checkpoint export: no random numbers from the system");
    if (status == CZ_OK && has_folder(e))
        status = make_folder(e);
    if (status == CZ_OK && e->elements)
        status = check_target(e->path);
    for (int f = 0; status == CZ_OK && f < e->layout.count; f++)
        status = make_file(e, f, &name);
    cz__text_clear(&name);
    return status;
}

/* ---- publishing ---- */

static cz_status give_name(const char *path)
{
    cz__text name = {0};
    cz_status status = cz__unfinished_name(&name, path);
    if (status == CZ_OK && rename(cz__text_get(&name), path) != 0)
        status = cz__fail(CZ_ERR_IO, "%s: cannot be replaced by %s: %s", path, cz__text_get(&name),
                          strerror(errno));
    cz__text_clear(&name);
    return status;
}

/* While files of an index are replaced there is none: a reader never finds one that is of other files. All that may
 * want room is done before. */
static cz_status publish_folder(cz__exporting *e, const char *index, const char *beside)
{
    CZ_TRY(check_target(index));
    CZ_TRY(cz__file_write(beside, cz__text_get(&e->layout.index), e->layout.index.count));
    if (unlink(index) != 0 && errno != ENOENT)
        return cz__fail(CZ_ERR_IO, "%s: cannot be replaced: %s", index, strerror(errno));
    CZ_TRY(cz__folder_sync(e->path));
    for (; e->named < e->layout.count; e->named++)
        CZ_TRY(give_name(e->layout.files[e->named].path));
    CZ_TRY(cz__folder_sync(e->path));
    return give_name(index);
}

/* "FOLDER/model.safetensors.index.json", and what it is called before. */
static cz_status index_names(const cz__exporting *e, cz__text *index, cz__text *beside)
{
    cz__text_print(index, "%s/" CZ__CONSOLIDATED_INDEX, e->path);
    return index->failed ? cz__fail(CZ_ERR_MEMORY, "checkpoint export: a path")
                         : cz__unfinished_name(beside, cz__text_get(index));
}

/* ---- a file for torch ---- */

/* Checksums are in its container, and those of elements are known to nobody until all of them were seen: one rank
 * goes through them. */
static cz_status convert(cz__exporting *e, const char *elements, const char *beside)
{
    cz__torch_export what = {.index = &e->index,
                             .common = e->options.common,
                             .step = e->options.step,
                             .parameters_only = e->options.parameters_only != 0};
    CZ_TRY(cz__bundle_open(&what.elements, elements, NULL));
    (void)unlink(beside); /* left behind */
    const cz_status status = cz__torch_write(beside, &what);
    e->converted = status == CZ_OK;
    cz__bundle_close(&what.elements);
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
    if (status == CZ_OK)
        status = cz__unfinished_name(&beside, e->path);
    if (status == CZ_OK)
        status = convert(e, cz__text_get(&elements), cz__text_get(&beside));
    if (status == CZ_OK)
        status = confirm_torch(e, cz__text_get(&beside));
    if (status == CZ_OK)
        status = give_name(e->path);
    if (status == CZ_OK) {
        (void)unlink(cz__text_get(&elements));
        e->converted = false;
        e->created = 0;
    }
    cz__text_clear(&elements);
    cz__text_clear(&beside);
    return status == CZ_OK ? cz__folder_sync_of(e->path) : status;
}

cz_status cz__exporting_publish(cz__exporting *e)
{
    cz__text index = {0}, beside = {0};
    if (e->elements)
        return publish_torch(e);
    if (!has_folder(e)) {
        CZ_TRY(give_name(e->path));
        e->created = 0;
        return cz__folder_sync_of(e->path);
    }
    cz_status status = index_names(e, &index, &beside);
    if (status == CZ_OK)
        status = publish_folder(e, cz__text_get(&index), cz__text_get(&beside));
    if (status != CZ_OK)
        (void)unlink(cz__text_get(&beside));
    cz__text_clear(&index);
    cz__text_clear(&beside);
    if (status != CZ_OK)
        return status;
    e->created = e->named = 0;
    e->made_folder = false;
    CZ_TRY(cz__folder_sync(e->path));
    return cz__folder_sync_of(e->path);
}

void cz__exporting_discard(cz__exporting *e)
{
    cz__text name = {0};
    for (int f = 0; f < e->created; f++) {
        cz__text_cut(&name, 0);
        cz__text_print(&name, "%s%s", e->layout.files[f].path, f < e->named ? "" : CZ__UNFINISHED);
        if (!name.failed)
            (void)unlink(cz__text_get(&name));
    }
    if (e->converted && cz__unfinished_name(&name, e->path) == CZ_OK)
        (void)unlink(cz__text_get(&name));
    if (e->made_folder)
        (void)rmdir(e->path);
    cz__text_clear(&name);
}
