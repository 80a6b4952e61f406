/* SPDX-License-Identifier: MIT */
/* From a path to a checkpoint that is open. */
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "guard.h"
#include "io/folder.h"
#include "io/stream.h"

/* Neither one of them, which may lack its index, nor consolidated files. */
static bool has_generations(const char *path, const cz__look *look)
{
    int64_t number, step;
    const char *slash = strrchr(path, '/');
    return look->folder && !look->generation && !cz__look_consolidated(look) &&
           sscanf(slash ? slash + 1 : path, "%8" SCNd64 "-step-%" SCNd64, &number, &step) != 2;
}

cz_status source_is_folder(const char *path, bool *is)
{
    cz__look look;
    CZ_TRY(cz__look_at(&look, path));
    *is = has_generations(path, &look);
    return CZ_OK;
}

/* ---- opening ---- */

static cz_status check_step(const char *path, int64_t step)
{
    cz__look look;
    if (step < 0)
        return CZ_OK;
    CZ_TRY(cz__look_at(&look, path));
    return (look.folder || look.file) && !has_generations(path, &look)
               ? cz_fail(CZ_ERR_ARGUMENT,
                         "%s: --step chooses among the generations in a folder, and this is none",
                         path)
               : CZ_OK;
}

/* What is read is known before it is. */
static cz_status open_path(source *s, char *path, int64_t step, source_opener opener,
                           const char *rule)
{
    cz__index_to_folder(path);
    CZ_TRY(guard_read(path));
    CZ_TRY(check_step(path, step));
    const cz_status status = opener(&s->archive, path, step < 0 ? CZ_NEWEST : step, rule);
    if (status == CZ_ERR_STATE && step >= 0)
        return cz_fail(status, "%s. Without --step the newest one is taken", cz_last_error());
    CZ_TRY(status);
    CZ_TRY(cz_archive_get_info(s->archive, &s->info));
    s->generation = s->info.generation >= 0;
    return s->generation ? guard_read(s->info.path) : CZ_OK;
}

cz_status source_open_by(source *s, const char *path, int64_t step, source_opener opener,
                         const char *rule)
{
    *s = (source){.info = CZ_ARCHIVE_INFO_INIT};
    char *copy = cz__path_copy(path);
    const cz_status status = copy ? open_path(s, copy, step, opener, rule)
                                  : cz_fail(CZ_ERR_MEMORY, "no memory for a path");
    cz__free(copy);
    return status;
}

static cz_status open_any(cz_archive **out, const char *path, int64_t step, const char *rule)
{
    return cz_archive_open(out, path, step);
}

cz_status source_open(source *s, const char *path, int64_t step)
{
    return source_open_by(s, path, step, open_any, NULL);
}

void source_close(source *s)
{
    cz_archive_destroy(&s->archive);
}

/* ---- tensors ---- */

int64_t source_count(const source *s)
{
    return s->info.param_count + s->info.buffer_count;
}

cz_archive_tensor source_tensor(const source *s, int64_t place)
{
    cz_archive_tensor tensor = CZ_ARCHIVE_TENSOR_INIT;
    (void)cz_archive_get_tensor(s->archive, place, &tensor); /* the place is one that is there */
    return tensor;
}

uint64_t source_value_bytes(const source *s, int64_t place)
{
    const cz_archive_tensor tensor = source_tensor(s, place);
    return (uint64_t)tensor.count * tensor.element_size;
}

cz_dtype source_slot_dtype(const source *s, int64_t place, const char *slot)
{
    const char *name;
    cz_dtype dtype = (cz_dtype)0;
    for (int64_t i = 0; (name = cz_archive_slot(s->archive, place, i, &dtype)); i++)
        if (strcmp(name, slot) == 0)
            return dtype;
    return (cz_dtype)0;
}

uint64_t source_state_bytes(const source *s, int64_t place)
{
    const cz_archive_tensor tensor = source_tensor(s, place);
    cz_dtype dtype = (cz_dtype)0;
    uint64_t bytes = 0;
    for (int64_t i = 0; cz_archive_slot(s->archive, place, i, &dtype); i++)
        bytes += (uint64_t)tensor.count * cz_dtype_size(dtype);
    return bytes;
}
