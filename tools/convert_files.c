/* SPDX-License-Identifier: MIT */
/* Into consolidated files, as an export of the same training writes them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "convert.h"
#include "interop/consolidated.h"
#include "interop/exporting.h"
#include "io/folder.h"
#include "io/stream.h"
#include "metadata.h"

enum { BLOCK = 8 << 20 };

/* A tensor, and where it goes. */
typedef struct goal {
    int64_t stored;   /* -1: at an address */
    const char *slot; /* of the index */
    const char *data;
    uint64_t bytes;
    int file;
    uint64_t offset;
} goal;

typedef struct file_writing {
    conversion *c;
    cz__exporting e;
    goal *goals; /* owned */
    int64_t count, capacity;
    char *block; /* owned */
    cz__text name;
} file_writing;

/* ---- what goes where ---- */

static cz_status append(file_writing *w, goal next)
{
    goal *goals = cz__grow(w->goals, w->count, &w->capacity, sizeof *goals);
    if (!goals)
        return cz_fail(CZ_ERR_MEMORY, "convert: no memory for a list of %" PRId64 " tensors",
                       w->count + 1);
    w->goals = goals;
    w->goals[w->count++] = next;
    return CZ_OK;
}

static cz_status add_tensor(file_writing *w, int64_t stored, const char *slot)
{
    const cz__index *index = &w->c->input->index;
    goal next = {.stored = stored, .slot = slot, .bytes = convert_bytes(w->c, stored, slot)};
    CZ_TRY(cz__consolidated_name(&w->name, index->stored[stored].name, slot));
    cz__layout_find(&w->e.layout, cz__text_get(&w->name), &next.file, &next.offset);
    return append(w, next);
}

static cz_status add_tensors(file_writing *w)
{
    const char *slot;
    cz_dtype dtype;
    const cz__index *index = &w->c->input->index;
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++) {
        CZ_TRY(add_tensor(w, i, NULL));
        if (i >= index->param_count || w->e.options.parameters_only)
            continue;
        for (int64_t at = 0; cz__index_slot(index, i, &at, &slot, &dtype);)
            CZ_TRY(add_tensor(w, i, slot));
    }
    return CZ_OK;
}

static cz_status add_rest(file_writing *w)
{
    const cz__layout *layout = &w->e.layout;
    for (int f = 0; f < layout->count; f++)
        CZ_TRY(
            append(w, (goal){-1, NULL, layout->files[f].head, layout->files[f].head_bytes, f, 0}));
    for (int64_t i = 0; i < layout->common_count; i++) {
        const cz_tensor *tensor = &layout->common[i].tensor;
        goal next = {.stored = -1,
                     .data = tensor->data,
                     .bytes = (uint64_t)cz_tensor_count(tensor) * cz_dtype_size(tensor->dtype)};
        cz__layout_find(layout, layout->common[i].name, &next.file, &next.offset);
        CZ_TRY(append(w, next));
    }
    return CZ_OK;
}

static int by_place(const void *left, const void *right)
{
    const goal *a = left, *b = right;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* ---- writing ---- */

static cz_status put(int file, const char *path, const char *data, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    const int error = cz__write_all(file, data, bytes, offset, &done);
    return error ? cz_fail(CZ_ERR_IO,
                           "%s" CZ__UNFINISHED ": cannot be written at byte %" PRIu64 ": %s", path,
                           offset + done, strerror(error))
                 : CZ_OK;
}

static cz_status copy_tensor(file_writing *w, int file, const char *path, const goal *g)
{
    const int64_t size =
        (int64_t)cz__type_unit(cz__index_dtype(&w->c->input->index, g->stored, g->slot));
    const int64_t count = (int64_t)g->bytes / size;
    for (int64_t at = 0, until; at < count; at = until) {
        until = count - at < BLOCK / size ? count : at + BLOCK / size;
        const size_t bytes = (size_t)((until - at) * size);
        CZ_TRY(cz__input_read(w->c->input, g->stored, g->slot, at, until, w->block));
        CZ_TRY(put(file, path, w->block, bytes, g->offset + (uint64_t)(at * size)));
        CZ_TRY(convert_wrote(bytes, w->c));
    }
    return CZ_OK;
}

static cz_status fill_file(file_writing *w, int file, const char *path, const goal *goals,
                           int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        CZ_TRY(goals[i].stored >= 0
                   ? copy_tensor(w, file, path, &goals[i])
                   : put(file, path, goals[i].data, (size_t)goals[i].bytes, goals[i].offset));
    return cz__system_used.synchronise(file) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_IO, "%s" CZ__UNFINISHED ": cannot be synchronised: %s", path,
                         strerror(errno));
}

static cz_status write_file(file_writing *w, const goal *goals, int64_t count)
{
    const char *path = w->e.layout.files[goals[0].file].path;
    int file, error;
    CZ_TRY(cz__exporting_open(&w->e, goals[0].file, &file, &error));
    const cz_status status = fill_file(w, file, path, goals, count);
    error = cz__exporting_release(&w->e, goals[0].file);
    if (error && status == CZ_OK)
        return cz_fail(CZ_ERR_IO, "%s" CZ__UNFINISHED ": cannot be closed: %s", path,
                       strerror(error));
    return status;
}

static cz_status write_all(file_writing *w)
{
    CZ_TRY(cz__exporting_make(&w->e));
    for (int64_t i = 0, next; i < w->count; i = next) {
        for (next = i; next < w->count && w->goals[next].file == w->goals[i].file;)
            next++;
        CZ_TRY(write_file(w, w->goals + i, next - i));
    }
    return cz__exporting_publish(&w->e);
}

/* ---- together ---- */

static cz_status prepare(file_writing *w)
{
    conversion *c = w->c;
    CZ_TRY(cz__layout_create(&w->e.layout, &c->input->index,
                             w->e.elements ? w->e.elements : w->e.path, &w->e.options));
    CZ_TRY(cz__exporting_have_files(&w->e));
    CZ_TRY(add_tensors(w));
    CZ_TRY(add_rest(w));
    qsort(w->goals, (size_t)w->count, sizeof *w->goals, by_place);
    w->block = cz__allocate(CZ_MEMORY_STAGING, BLOCK);
    if (!w->block)
        return cz_fail(CZ_ERR_MEMORY, "convert: no memory for a buffer of %d bytes", BLOCK);
    uint64_t total = 0;
    for (int64_t i = 0; i < w->count; i++)
        total += w->goals[i].stored >= 0 ? w->goals[i].bytes : 0;
    progress_begin(&c->bar, "writing", total, c->quiet);
    return CZ_OK;
}

static cz_status write_or_discard(file_writing *w)
{
    CZ_TRY(prepare(w));
    const cz_status status = write_all(w);
    if (status == CZ_OK)
        return CZ_OK;
    const cz__sentence held = cz__sentence_hold();
    cz__exporting_discard(&w->e);
    cz__sentence_resume(held);
    return status;
}

/* Ranks that saved something for themselves alone, which these files have no place for. */
static void count_lost(conversion *c)
{
    const cz__input *input = c->original;
    if (!c->from->generation)
        return;
    for (int k = 0; k < input->index.world_size; k++)
        c->lost += json_object_size(json_object_get(input->parts[k].mark, "own")) > 0;
}

/* Everything that can fail; *common is the caller's to destroy. */
static cz_status write_files(file_writing *w, cz_state_dict **common)
{
    conversion *c = w->c;
    if (!w->e.path)
        return cz_fail(CZ_ERR_MEMORY, "convert: no memory for a path");
    if (c->format == FORMAT_TORCH || c->format == FORMAT_DISTRIBUTED) {
        metadata_say_lost(c->from);
        CZ_TRY(cz__exporting_for_torch(&w->e, c->format == FORMAT_DISTRIBUTED));
    }
    if (!w->e.options.parameters_only) {
        CZ_TRY(cz__input_common(c->input, common));
        count_lost(c);
    }
    w->e.options.common = *common;
    if (!cz__text_print(&c->made, "%s", w->e.path))
        return cz_fail(CZ_ERR_MEMORY, "convert: no memory for a path");
    return write_or_discard(w);
}

cz_status convert_to_files(conversion *c)
{
    cz_state_dict *common = NULL;
    file_writing w = {.c = c, .e = {.options = CZ_EXPORT_OPTIONS_INIT}};
    w.e.options.max_file_bytes = c->max_file_bytes;
    w.e.options.parameters_only = c->parameters_only || c->from->info.foreign;
    w.e.options.step = c->input->index.step < 0 ? 0 : c->input->index.step;
    w.e.path = cz__path_copy(c->to);
    w.e.index = c->input->index; /* lent */
    const cz_status status = write_files(&w, &common);
    w.e.index = (cz__index){0};
    cz__exporting_clear(&w.e);
    cz__text_clear(&w.name);
    cz__free(w.goals);
    cz__free(w.block);
    cz_state_dict_destroy(&common);
    return status;
}
