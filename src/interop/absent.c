/* SPDX-License-Identifier: MIT */
/* In place of io/, checkpoint/ and this folder where the library is built without jansson or
 * xxhash: every call says so. */
#include "base/status.h"
#include "czero/archive.h"
#include "interop/shapes.h"

static cz_status absent(void)
{
    return cz__fail(CZ_ERR_UNSUPPORTED, "this library was built without checkpoints "
                                        "(CZERO_CHECKPOINT; it needs jansson and xxhash)");
}

cz_status cz_checkpoint_create(cz_checkpoint **out, cz_group *group, const char *folder,
                               const cz_checkpoint_options *options)
{
    if (out)
        *out = NULL;
    return absent();
}

void cz_checkpoint_destroy(cz_checkpoint **checkpoint)
{
}

cz_status cz_checkpoint_save(cz_checkpoint *checkpoint, const cz_save_options *options)
{
    return absent();
}

cz_status cz_checkpoint_save_async(cz_checkpoint *checkpoint, const cz_save_options *options)
{
    return absent();
}

cz_status cz_checkpoint_wait(cz_checkpoint *checkpoint)
{
    return absent();
}

cz_status cz_checkpoint_load(cz_checkpoint *checkpoint, const cz_load_options *options,
                             cz_load_result *result)
{
    return absent();
}

const char *cz_checkpoint_notes(const cz_checkpoint *checkpoint)
{
    return "";
}

cz_status cz_checkpoint_fetch_own(cz_checkpoint *checkpoint, int rank, cz_state_dict **out)
{
    return absent();
}

cz_status cz_checkpoint_export(cz_checkpoint *checkpoint, const char *path,
                               const cz_export_options *options)
{
    return absent();
}

cz_status cz_checkpoint_import(cz_checkpoint *checkpoint, const char *path,
                               const cz_load_options *options, cz_load_result *result)
{
    return absent();
}

cz_status cz_archive_open(cz_archive **out, const char *path, int64_t step)
{
    if (out)
        *out = NULL;
    return absent();
}

void cz_archive_destroy(cz_archive **archive)
{
}

cz_status cz_archive_get_info(const cz_archive *archive, cz_archive_info *info)
{
    return absent();
}

cz_status cz_archive_get_tensor(const cz_archive *archive, int64_t place, cz_archive_tensor *tensor)
{
    return absent();
}

int64_t cz_archive_find(const cz_archive *archive, const char *name)
{
    return -1;
}

const char *cz_archive_slot(const cz_archive *archive, int64_t place, int64_t number,
                            cz_dtype *dtype)
{
    return NULL;
}

cz_status cz_archive_read(cz_archive *archive, int64_t place, const char *slot, int64_t begin,
                          int64_t end, void *elements)
{
    return absent();
}

cz_status cz_archive_read_dict(cz_archive *archive, int rank, cz_state_dict **out)
{
    return absent();
}

const char *cz_archive_note(const cz_archive *archive, int64_t number, const char **key)
{
    return NULL;
}

const char *cz_archive_file(cz_archive *archive, int64_t number)
{
    return NULL;
}

cz_status cz_archive_verify(cz_archive *archive, const cz_verify_options *options,
                            cz_verify_result *result)
{
    return absent();
}

cz_status cz_archive_list(const char *folder, cz_archive_visitor visit, void *context)
{
    return absent();
}

cz_status cz__checkpoint_shapes(const char *path, cz__shape_visitor visit, void *context)
{
    return absent();
}

cz_status cz__json_shapes(const char *path, const char *bytes, size_t count,
                          cz__shape_visitor visit, void *context)
{
    return absent();
}

uint64_t cz__save_memory(const cz__save_shape *shape)
{
    return 0;
}

uint64_t cz__export_memory(const cz__save_shape *shape)
{
    return 0;
}

cz_status cz_archive_fingerprint(cz_archive *archive, uint64_t fingerprint[2])
{
    return absent();
}
