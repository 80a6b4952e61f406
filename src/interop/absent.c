/* SPDX-License-Identifier: MIT */
/* In place of the rest of this folder where the library is built without jansson or xxhash: every call says so. */
#include "base/status.h"
#include "czero/checkpoint.h"
#include "interop/shapes.h"
#include "io/text.h"

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

cz_status cz_checkpoint_read_own(cz_checkpoint *checkpoint, int rank, cz_state_dict **out)
{
    return absent();
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

/* Of lists of shapes, which are read without this folder; ASCII will do. */
cz__shown cz__show(const char *name)
{
    cz__shown shown = {{0}};
    for (size_t i = 0; i < sizeof shown.text - 1 && name[i]; i++)
        shown.text[i] = (char)(name[i] < 0x20 || name[i] > 0x7e ? '?' : name[i]);
    return shown;
}
