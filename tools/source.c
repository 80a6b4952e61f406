/* SPDX-License-Identifier: MIT */
/* From a path to a checkpoint that is open. */
#include "source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/consolidated.h"

static bool exists_in(const char *folder, const char *name)
{
    struct stat about;
    cz__text path = {0};
    cz__text_print(&path, "%s/%s", folder, name);
    const bool found = !path.failed && stat(cz__text_get(&path), &about) == 0;
    cz__text_clear(&path);
    return found;
}

static bool is_consolidated(const char *folder)
{
    return exists_in(folder, CZ__CONSOLIDATED_INDEX) || exists_in(folder, CZ__CONSOLIDATED_SINGLE);
}

static bool is_directory(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* A folder called as generations are, though its index may be missing. */
static bool is_generation(const char *path)
{
    int64_t number, step;
    const char *slash = strrchr(path, '/');
    return exists_in(path, "index.json") ||
           sscanf(slash ? slash + 1 : path, "%8" SCNd64 "-step-%" SCNd64, &number, &step) == 2;
}

bool source_is_folder(const char *path)
{
    return is_directory(path) && !is_generation(path) && !is_consolidated(path);
}

/* ---- generations ---- */

static cz_status visit_page(const char *folder, const cz__generation *list, int count,
                            source_visitor visit, void *context)
{
    cz__text path = {0};
    cz_status status = CZ_OK;
    for (int i = 0; status == CZ_OK && i < count; i++) {
        status = cz__generation_path(&path, folder, list[i].number, list[i].step);
        if (status == CZ_OK)
            status = visit(cz__text_get(&path), &list[i], context);
    }
    cz__text_clear(&path);
    return status;
}

static cz_status visit_all(cz_group *self, const char *folder, source_visitor visit, void *context)
{
    cz__generation *list, oldest, *before = NULL;
    int count = CZ__GENERATIONS;
    cz_status status = CZ_OK;
    while (status == CZ_OK && count == CZ__GENERATIONS) {
        CZ_TRY(cz__survey(self, folder, before, &list, &count));
        status = visit_page(folder, list, count, visit, context);
        if (count > 0)
            oldest = list[count - 1];
        before = &oldest;
        cz__free(list);
    }
    return status;
}

cz_status source_visit(const char *folder, source_visitor visit, void *context)
{
    cz_group *self;
    CZ_TRY(cz_group_create_self(&self, NULL));
    const cz_status status = visit_all(self, folder, visit, context);
    cz_group_destroy(&self);
    return status;
}

void source_say_incomplete(const cz__generation *g, char *why, size_t bytes)
{
    if (!g->indexed)
        snprintf(why, bytes, "it was never completed: there is no index.json");
    else
        snprintf(why, bytes, "it was never completed: the part of rank %d of %d is missing",
                 g->world_size > 0 ? g->missing : 0, g->world_size);
}

typedef struct search {
    cz__text found; /* its path */
    cz__text *notes;
    int64_t step;
    int seen; /* generations of any kind */
} search;

static cz_status look_at(const char *path, const cz__generation *g, void *context)
{
    search *s = context;
    char why[120];
    s->seen++;
    if (s->found.count > 0 || (s->step >= 0 && g->step != s->step))
        return CZ_OK;
    if (cz__generation_complete(g))
        return cz__text_print(&s->found, "%s", path)
                   ? CZ_OK
                   : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a path");
    source_say_incomplete(g, why, sizeof why);
    cz__text_print(s->notes, "%s was passed over: %s\n", path, why);
    return CZ_OK;
}

static cz_status none_found(const search *s, const char *folder)
{
    if (s->seen == 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: there is no checkpoint in this folder. Wanted: folders such as "
                        "00000001-step-100 (czero's), or model.safetensors or "
                        "model.safetensors.index.json (Hugging Face's)",
                        folder);
    if (s->step >= 0)
        return cz__fail(CZ_ERR_STATE,
                        "%s: no complete generation of step %" PRId64
                        ". Without --step the newest one is taken",
                        folder, s->step);
    return cz__fail(CZ_ERR_STATE, "%s: no generation is complete:\n%s", folder,
                    cz__text_get(s->notes));
}

static cz_status open_newest(source *s, const char *folder, int64_t step)
{
    search found = {.notes = &s->notes, .step = step};
    cz_status status = source_visit(folder, look_at, &found);
    if (status == CZ_OK)
        status = found.found.count > 0 ? cz__input_open(&s->input, cz__text_get(&found.found))
                                       : none_found(&found, folder);
    cz__text_clear(&found.found);
    return status;
}

/* ---- any of them ---- */

static cz_status open_generation(source *s, const char *path)
{
    s->generation = true;
    if (!exists_in(path, "index.json"))
        return cz__fail(CZ_ERR_STATE,
                        "%s: this generation was never completed: there is no index.json. For the "
                        "newest complete one give the folder that it is in",
                        path);
    return cz__input_open(&s->input, path);
}

/* A part of a checkpoint is a safetensors file too. */
static cz_status check_part(const cz__bundle *b)
{
    const char *format = cz__safetensors_metadata(b->files[0].header, "format");
    return format && strcmp(format, "czero checkpoint part") == 0
               ? cz__fail(CZ_ERR_ARGUMENT,
                          "%s: this is one file of a checkpoint; give the folder that it is in",
                          b->path)
               : CZ_OK;
}

static cz_status open_bundle(source *s, const char *path)
{
    const cz_status status = cz__input_open_bundle(&s->input, path, NULL);
    if (s->input.bundle && s->input.bundle->count > 0)
        CZ_TRY(check_part(s->input.bundle));
    s->foreign = s->input.index.says_nothing_of_state;
    if (s->input.bundle && cz__bundle_notes(s->input.bundle))
        cz__text_print(&s->notes, "note: %s\n", cz__bundle_notes(s->input.bundle));
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

static cz_status open_path(source *s, const char *path, int64_t step)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return cz__fail(errno == ENOENT ? CZ_ERR_ARGUMENT : CZ_ERR_IO, "%s: %s", path,
                        errno == ENOENT ? "there is no such file or folder" : strerror(errno));
    if (!S_ISDIR(about.st_mode) && !S_ISREG(about.st_mode))
        return cz__fail(CZ_ERR_ARGUMENT, "%s: is a device, pipe or socket, not a file", path);
    if (source_is_folder(path))
        return open_newest(s, path, step);
    if (step >= 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: --step chooses among the generations in a folder, and this is none",
                        path);
    if (!S_ISDIR(about.st_mode) || is_consolidated(path))
        return open_bundle(s, path);
    return open_generation(s, path);
}

cz_status source_open(source *s, const char *path, int64_t step)
{
    *s = (source){0};
    char *copy = cz__path_copy(path);
    if (!copy)
        return cz__fail(CZ_ERR_MEMORY, "no memory for a path");
    if (ends_with(copy, "/index.json") || ends_with(copy, "/" CZ__CONSOLIDATED_INDEX))
        *strrchr(copy, '/') = 0;
    s->generation = is_directory(copy) && !is_consolidated(copy);
    const cz_status status = open_path(s, copy, step);
    cz__free(copy);
    return status;
}

void source_close(source *s)
{
    cz__input_close(&s->input);
    cz__text_clear(&s->notes);
}

cz_status source_verify_entries(const source *s)
{
    return s->generation ? CZ_OK : cz__bundle_verify(s->input.bundle, 0, 1);
}

const char *source_path(const source *s)
{
    return s->input.path;
}

const char *source_kind(const source *s)
{
    if (s->generation)
        return "a checkpoint in parts";
    if (s->input.bundle->torch)
        return s->foreign ? "a model in a file of torch" : "a checkpoint in a file of torch";
    if (s->foreign)
        return s->input.bundle->count > 1 ? "a model in several safetensors files"
                                          : "a model in one safetensors file";
    return s->input.bundle->count > 1 ? "a consolidated checkpoint in several files"
                                      : "a consolidated checkpoint in one file";
}

/* ---- what an index says of a tensor ---- */

void source_owners(const cz__index *index, int64_t stored, int *first, int *last)
{
    const cz__stored *s = &index->stored[stored];
    cz_span span;
    *first = *last = s->owner;
    if (s->owner >= 0 || !index->map)
        return;
    *first = *last = cz_shard_map_home(index->map, stored);
    if (s->count > 0 && cz_shard_map_locate(index->map, stored, s->count - 1, &span))
        *last = span.rank;
}

uint64_t source_value_bytes(const cz__index *index, int64_t stored)
{
    const cz__stored *s = &index->stored[stored];
    return (uint64_t)s->count * cz_dtype_size(s->dtype);
}

uint64_t source_state_bytes(const cz__index *index, int64_t stored)
{
    const char *slot;
    cz_dtype dtype;
    uint64_t bytes = 0;
    if (stored >= index->param_count)
        return 0;
    for (int64_t at = 0; cz__index_slot(index, stored, &at, &slot, &dtype);)
        bytes += (uint64_t)index->stored[stored].count * cz_dtype_size(dtype);
    return bytes;
}
