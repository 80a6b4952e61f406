/* SPDX-License-Identifier: MIT */
/* The layout of consolidated files. Tensors of larger elements come first, so that every tensor
 * begins at a multiple of its element's size (readers view them in place); among those of one size
 * values come before state and state before the common dictionary, each in the order of the
 * model. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "interop/consolidated.h"
#include "interop/exporting.h"
#include "io/json.h"
#include "io/text.h"

typedef struct laying {
    cz__layout *layout;
    const cz__index *index;
    const cz_export_options *options;
    const char *path;
    cz__text name;
} laying;

static cz_status no_memory(void)
{
    return cz__fail(CZ_ERR_MEMORY, "checkpoint export: no memory for what the files hold");
}

/* ---- tensors to files ---- */

static cz_status add_file(cz__layout *layout)
{
    cz__layout_file *files =
        cz__grow(layout->files, layout->count, &layout->capacity, sizeof *files);
    if (!files)
        return no_memory();
    layout->files = files;
    CZ_TRY(cz__safetensors_create(&layout->files[layout->count].header));
    layout->count++;
    return CZ_OK;
}

/* To the last file, or a new one if that is full. */
static cz_status add_tensor(laying *l, const char *name, cz_dtype dtype, int dimensions,
                            const int64_t *shape)
{
    cz__layout *layout = l->layout;
    const uint64_t bytes =
        (uint64_t)cz__type_units(dtype, dimensions, shape) * cz__type_unit(dtype);
    const uint64_t limit = l->options->max_file_bytes;
    const uint64_t full = cz__safetensors_data_bytes(layout->files[layout->count - 1].header);
    if (limit > 0 && full > 0 && (full > limit || bytes > limit - full))
        CZ_TRY(add_file(layout));
    cz__safetensors *header = layout->files[layout->count - 1].header;
    int64_t other;
    if (cz__names_find(&layout->names, name, &other))
        return cz__fail(CZ_ERR_ARGUMENT, "two tensors are called '%s'", cz__show(name).text);
    CZ_TRY(cz__safetensors_add(header, name, dtype, dimensions, shape));
    if (!cz__names_reserve(&layout->names, 1))
        return no_memory();
    cz__names_add(&layout->names,
                  cz__safetensors_entry_at(header, cz__safetensors_count(header) - 1)->name,
                  layout->count - 1);
    return CZ_OK;
}

static cz_status add_values(laying *l, size_t size)
{
    const cz__index *index = l->index;
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++) {
        const cz__stored *s = &index->stored[i];
        if (cz__type_unit(s->dtype) == size)
            CZ_TRY(add_tensor(l, s->name, s->dtype, s->dimensions, s->shape));
    }
    return CZ_OK;
}

static cz_status add_state(laying *l, size_t size)
{
    const char *slot;
    cz_dtype dtype;
    for (int64_t p = 0; p < l->index->param_count; p++) {
        const cz__stored *s = &l->index->stored[p];
        for (int64_t at = 0; cz__index_slot(l->index, p, &at, &slot, &dtype);) {
            if (cz_dtype_size(dtype) != size)
                continue;
            CZ_TRY(cz__consolidated_name(&l->name, s->name, slot));
            CZ_TRY(add_tensor(l, cz__text_get(&l->name), dtype, s->dimensions, s->shape));
        }
    }
    return CZ_OK;
}

static cz_status add_common(laying *l, size_t size)
{
    for (int64_t i = 0; i < l->layout->common_count; i++) {
        const cz__layout_common *c = &l->layout->common[i];
        if (cz_dtype_size(c->tensor.dtype) == size)
            CZ_TRY(add_tensor(l, c->name, c->tensor.dtype, c->tensor.dimensions, c->tensor.shape));
    }
    return CZ_OK;
}

static cz_status add_all(laying *l)
{
    CZ_TRY(add_file(l->layout));
    for (size_t size = 16; size > 0; size /= 2) {
        CZ_TRY(add_values(l, size));
        if (l->options->parameters_only)
            continue;
        CZ_TRY(add_state(l, size));
        CZ_TRY(add_common(l, size));
    }
    return CZ_OK;
}

/* ---- what is no tensor ---- */

static cz_status keep_common(const char *name, const cz_tensor *tensor, void *context)
{
    cz__layout *layout = context;
    cz__layout_common *common =
        cz__grow(layout->common, layout->common_count, &layout->common_capacity, sizeof *common);
    if (!common)
        return no_memory();
    layout->common = common;
    cz__layout_common *c = &layout->common[layout->common_count];
    *c = (cz__layout_common){cz__strdup(name), *tensor};
    if (!c->name)
        return no_memory();
    layout->common_count++;
    return CZ_OK;
}

/* Parameters are those that are not listed here. */
static cz_status describe_buffers(json_t *root, const cz__index *index)
{
    json_t *list = json_array();
    CZ_TRY(cz__json_set(root, "buffers", list));
    for (int64_t i = 0; i < index->buffer_count; i++)
        if (json_array_append_new(list, json_string(index->stored[index->param_count + i].name)) !=
            0)
            return no_memory();
    return CZ_OK;
}

static cz_status describe_file(const laying *l, json_t *root)
{
    json_t *optimizer = NULL, *common;
    CZ_TRY(cz__json_set(root, "format", json_string(CZ__CONSOLIDATED_FORMAT)));
    CZ_TRY(cz__json_set(root, "version", json_integer(cz__outline_version(l->index->optimizer))));
    CZ_TRY(cz__json_set(root, "step", json_integer(l->options->step)));
    if (l->index->part_count > 0)
        CZ_TRY(cz__json_set(root, "parts", json_integer(l->index->part_count)));
    CZ_TRY(describe_buffers(root, l->index));
    if (l->index->optimizer)
        CZ_TRY(cz__dict_to_json(&optimizer, l->index->optimizer, "", NULL, NULL));
    CZ_TRY(cz__json_set(root, "optimizer", optimizer ? optimizer : json_null()));
    CZ_TRY(cz__dict_to_json(&common, l->options->common, CZ__CONSOLIDATED_COMMON, keep_common,
                            l->layout));
    return cz__json_set(root, "common", common);
}

/* The text for the metadata; the common dictionary's tensors are listed on the way. */
static cz_status describe_all(const laying *l, cz__text *text)
{
    json_t *root = json_object();
    cz_status status = root ? describe_file(l, root) : no_memory();
    if (!status && !cz__text_json(text, root))
        status = no_memory();
    json_decref(root);
    return status;
}

/* ---- names of files ---- */

static cz_status set_path(char **path, const char *folder, const char *name)
{
    cz__text text = {0};
    cz__text_print(&text, name ? "%s/%s" : "%s", folder, name);
    cz__free(*path);
    *path = text.failed ? NULL : cz__strdup(cz__text_get(&text));
    cz__text_clear(&text);
    return *path ? CZ_OK : no_memory();
}

/* What a file is called while it is written. */
static cz_status set_first_path(const laying *l, int file)
{
    char name[80];
    cz__layout_file *f = &l->layout->files[file];
    if (l->options->max_file_bytes == 0)
        return set_path(&f->path, l->path, NULL);
    cz__model_file_print(name, sizeof name, 0, file + 1, l->layout->count);
    return set_path(&f->path, l->path, name);
}

static cz_status map_weights(const cz__layout *layout, int edition, json_t *map)
{
    char name[80];
    for (int f = 0; f < layout->count; f++) {
        const cz__safetensors *header = layout->files[f].header;
        cz__model_file_print(name, sizeof name, edition, f + 1, layout->count);
        for (int64_t i = 0; i < cz__safetensors_count(header); i++)
            CZ_TRY(cz__json_set(map, cz__safetensors_entry_at(header, i)->name, json_string(name)));
    }
    return CZ_OK;
}

/* The index as Hugging Face's tools write and read it. */
static cz_status print_index(cz__layout *layout, int edition)
{
    uint64_t total = 0;
    for (int f = 0; f < layout->count; f++)
        total += cz__safetensors_data_bytes(layout->files[f].header);
    json_t *map = json_object();
    json_t *root =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    cz__text_cut(&layout->index, 0);
    cz_status status = root ? map_weights(layout, edition, map) : no_memory();
    if (!status && !cz__text_json(&layout->index, root))
        status = no_memory();
    json_decref(root);
    return status;
}

cz_status cz__layout_path(const cz__layout *layout, const char *path, int edition, int file,
                          cz__text *text)
{
    char name[80];
    cz__model_file_print(name, sizeof name, edition, file + 1, layout->count);
    cz__text_cut(text, 0);
    return cz__text_print(text, "%s/%s", path, name) ? CZ_OK : no_memory();
}

cz_status cz__layout_choose(cz__layout *layout, const char *path, int edition)
{
    char name[80];
    for (int f = 0; f < layout->count; f++) {
        cz__model_file_print(name, sizeof name, edition, f + 1, layout->count);
        CZ_TRY(set_path(&layout->files[f].name, path, name));
    }
    return print_index(layout, edition);
}

/* ---- together ---- */

/* Names that would be taken for something else. */
static cz_status check_names(const laying *l)
{
    const cz__index *index = l->index;
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++) {
        const char *name = index->stored[i].name;
        if (!l->options->parameters_only && (cz__begins_with(name, CZ__CONSOLIDATED_STATE) ||
                                             cz__begins_with(name, CZ__CONSOLIDATED_COMMON)))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "checkpoint export: '%s': names that begin with optimizer/ or common/ "
                            "are those of state",
                            cz__show(name).text);
    }
    return CZ_OK;
}

/* Readers of models want "format"; what is no tensor is in the first file. */
static cz_status finish_file(laying *l, int file, const char *text)
{
    cz__layout_file *f = &l->layout->files[file];
    const char *key;
    json_t *value;
    CZ_TRY(cz__safetensors_set_metadata(f->header, "format", "pt"));
    json_object_foreach(l->index->metadata, key, value) /* of another program, as it was */
    {
        CZ_TRY(cz__safetensors_set_metadata(f->header, key, json_string_value(value)));
    }
    if (file == 0 && text)
        CZ_TRY(cz__safetensors_set_metadata(f->header, CZ__METADATA_KEY, text));
    CZ_TRY(set_first_path(l, file));
    return cz__safetensors_dump(f->header, &f->head, &f->head_bytes);
}

static cz_status lay_out(laying *l, cz__text *text)
{
    CZ_TRY(check_names(l));
    if (!l->options->parameters_only)
        CZ_TRY(describe_all(l, text));
    CZ_TRY(add_all(l));
    for (int f = 0; f < l->layout->count; f++)
        CZ_TRY(finish_file(l, f, text->bytes));
    return CZ_OK;
}

cz_status cz__layout_create(cz__layout *layout, const cz__index *index, const char *path,
                            const cz_export_options *options)
{
    laying l = {layout, index, options, path, {0}};
    cz__text text = {0};
    *layout = (cz__layout){0};
    const cz_status status = lay_out(&l, &text);
    cz__text_clear(&text);
    cz__text_clear(&l.name);
    return status;
}

void cz__layout_clear(cz__layout *layout)
{
    for (int f = 0; f < layout->count; f++) {
        cz__safetensors_destroy(&layout->files[f].header);
        cz__free(layout->files[f].head);
        cz__free(layout->files[f].path);
        cz__free(layout->files[f].name);
    }
    for (int64_t i = 0; i < layout->common_count; i++)
        cz__free(layout->common[i].name);
    cz__free(layout->files);
    cz__free(layout->common);
    cz__names_clear(&layout->names);
    cz__text_clear(&layout->index);
    *layout = (cz__layout){0};
}

void cz__layout_find(const cz__layout *layout, const char *name, int *file, uint64_t *offset)
{
    int64_t number = 0;
    (void)cz__names_find(&layout->names, name, &number);
    *file = (int)number;
    *offset = layout->files[number].head_bytes +
              cz__safetensors_find(layout->files[number].header, name)->begin;
}

uint64_t cz__layout_bytes(const cz__layout *layout, int file)
{
    return layout->files[file].head_bytes + cz__safetensors_data_bytes(layout->files[file].header);
}
