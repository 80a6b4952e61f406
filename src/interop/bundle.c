/* SPDX-License-Identifier: MIT */
/* Consolidated files: which they are, and what is in them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "interop/bundle.h"
#include "interop/consolidated.h"
#include "interop/dcp.h"
#include "io/json.h"
#include "io/text.h"

enum { MOST_INDEX = 1 << 30, MOST_OPEN = 64 };

void cz__bundle_close(cz__bundle **bundle)
{
    if (!bundle || !*bundle)
        return;
    cz__bundle *b = *bundle;
    if (b->files) {
        for (int f = 0; f < b->count; f++) {
            cz__reader_close(&b->files[f].reader);
            cz__safetensors_destroy(&b->files[f].header);
            cz__free(b->files[f].path);
        }
    }
    cz__free(b->files);
    cz__free(b->tensors);
    cz__free(b->path);
    cz__torch_contents_close(&b->torch);
    json_decref(b->json);
    cz__free(b);
    *bundle = NULL;
}

static cz_status no_memory(const cz__bundle *b)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", b->path);
}

/* ---- files ---- */

/* A file's reader; not too many at a time. */
static cz_status open_file(cz__bundle *b, int file)
{
    if (b->files[file].reader)
        return CZ_OK;
    for (int f = 0; b->open >= MOST_OPEN && f < b->count; f++)
        cz__reader_close(&b->files[f].reader);
    b->open = b->open >= MOST_OPEN ? 0 : b->open;
    CZ_TRY(cz__reader_open(&b->files[file].reader, b->files[file].path));
    b->open++;
    return CZ_OK;
}

/* `name` NULL: the path itself. */
static cz_status read_header(cz__bundle *b, int file, const char *name)
{
    cz__text path = {0};
    cz__bundle_file *f = &b->files[file];
    cz__text_print(&path, name ? "%s/%s" : "%s", b->path, name);
    f->path = path.failed ? NULL : cz__strdup(cz__text_get(&path));
    cz__text_clear(&path);
    if (!f->path)
        return no_memory(b);
    CZ_TRY(open_file(b, file));
    CZ_TRY(cz__safetensors_read(&f->header, cz__reader_file(f->reader), f->path));
    const char *slash = strrchr(f->path, '/');
    return cz__shard_file_is(slash ? slash + 1 : f->path) &&
                   cz__safetensors_metadata(f->header, CZ__SHARDS_KEY)
               ? cz__fail(CZ_ERR_UNSUPPORTED, "%s: has " CZ__SHARDS_UNREAD, f->path)
               : CZ_OK;
}

static cz_status have_files(cz__bundle *b, size_t count)
{
    b->files = cz__calloc(count, sizeof *b->files);
    b->count = b->files ? (int)count : 0;
    return b->files ? CZ_OK : no_memory(b);
}

/* ---- tensors by name ---- */

static int by_name(const void *left, const void *right)
{
    return strcmp(((const cz__located *)left)->entry->name,
                  ((const cz__located *)right)->entry->name);
}

static int compare_name(const void *name, const void *located)
{
    return strcmp(name, ((const cz__located *)located)->entry->name);
}

const cz__located *cz__bundle_find(const cz__bundle *b, const char *name)
{
    return b->tensor_count == 0 ? NULL
                                : bsearch(name, b->tensors, (size_t)b->tensor_count,
                                          sizeof *b->tensors, compare_name);
}

/* The file that a tensor is in. */
static const char *path_of(const cz__bundle *b, const cz__located *tensor)
{
    return b->torch ? b->path : b->files[tensor->file].path;
}

static cz_status list_tensors(cz__bundle *b)
{
    int64_t count = b->torch ? b->torch->count : 0;
    for (int f = 0; f < b->count; f++)
        count += cz__safetensors_count(b->files[f].header);
    b->tensors = cz__calloc((size_t)count, sizeof *b->tensors);
    if (!b->tensors)
        return no_memory(b);
    for (int f = 0; f < b->count; f++)
        for (int64_t i = 0; i < cz__safetensors_count(b->files[f].header); i++)
            b->tensors[b->tensor_count++] =
                (cz__located){cz__safetensors_entry_at(b->files[f].header, i), f, NULL};
    if (b->torch) {
        for (int64_t i = 0; i < count; i++)
            b->tensors[b->tensor_count++] =
                (cz__located){&b->torch->tensors[i].form, 0, &b->torch->tensors[i]};
    }
    if (count > 0)
        qsort(b->tensors, (size_t)count, sizeof *b->tensors, by_name);
    for (int64_t i = 1; i < count; i++)
        if (by_name(&b->tensors[i - 1], &b->tensors[i]) == 0)
            return cz__fail(CZ_ERR_FORMAT, "%s: tensor '%s' is also in %s",
                            path_of(b, &b->tensors[i - 1]),
                            cz__show(b->tensors[i].entry->name).text, path_of(b, &b->tensors[i]));
    return CZ_OK;
}

static void take_fingerprint(cz__bundle *b)
{
    for (int64_t i = 0; i < b->tensor_count; i++) {
        const cz__safetensors_entry *e = b->tensors[i].entry;
        const char *const type = cz__type_name(e->dtype); /* numbers of types are a process's own */
        const uint64_t numbers[] = {(uint64_t)b->tensors[i].file, e->begin, e->end,
                                    (uint64_t)e->dimensions};
        b->fingerprint = cz__fingerprint(b->fingerprint, type, strlen(type));
        b->fingerprint = cz__fingerprint(b->fingerprint, e->name, strlen(e->name));
        b->fingerprint = cz__fingerprint(b->fingerprint, numbers, sizeof numbers);
        b->fingerprint = cz__fingerprint(b->fingerprint, e->shape, sizeof e->shape);
    }
    for (int f = 0; f < b->count; f++) {
        const char *key;
        json_t *value, *const all = cz__safetensors_all_metadata(b->files[f].header);
        json_object_foreach(all, key, value)
        {
            b->fingerprint = cz__fingerprint(b->fingerprint, key, strlen(key));
            b->fingerprint = cz__fingerprint(b->fingerprint, json_string_value(value),
                                             json_string_length(value));
        }
    }
    if (b->torch)
        b->fingerprint = cz__fingerprint(b->fingerprint, &b->torch->file->fingerprint,
                                         sizeof b->torch->file->fingerprint);
}

/* ---- the index of several files ---- */

static int by_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static bool is_plain(const char *name)
{
    bool plain = true;
    for (size_t length; plain && *name; name += length)
        length = cz__character(name, &plain);
    return plain;
}

/* A file beside the index, and nothing else; its name comes into sentences as it is. */
static cz_status check_file_name(const char *path, const char *tensor, const json_t *value)
{
    const char *name = json_string_value(value);
    if (name && strlen(name) == json_string_length(value) && name[0] && name[0] != '.' &&
        !strchr(name, '/') && is_plain(name))
        return CZ_OK;
    return cz__fail(CZ_ERR_FORMAT, "%s: tensor '%s' is in '%s', wanted the name of a file beside",
                    path, cz__show(tensor).text, name ? cz__show(name).text : "");
}

/* The files' names, each once, in order; *names is for cz__free(), the texts are the JSON's. */
static cz_status list_files(const cz__bundle *b, const char *path, json_t *map, const char ***names,
                            size_t *count)
{
    const char *tensor;
    json_t *value;
    size_t all = 0;
    *names = cz__calloc(json_object_size(map), sizeof **names);
    if (!*names)
        return no_memory(b);
    json_object_foreach(map, tensor, value)
    {
        CZ_TRY(check_file_name(path, tensor, value));
        (*names)[all++] = json_string_value(value);
    }
    qsort(*names, all, sizeof **names, by_text);
    *count = 0;
    for (size_t i = 0; i < all; i++)
        if (*count == 0 || strcmp((*names)[*count - 1], (*names)[i]) != 0)
            (*names)[(*count)++] = (*names)[i];
    return CZ_OK;
}

static const char *base_name(const char *path)
{
    return strrchr(path, '/') + 1;
}

/* The index and the files say the same. */
static cz_status check_map(const cz__bundle *b, const char *path, json_t *map)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        const cz__located *found = cz__bundle_find(b, tensor);
        const char *file = json_string_value(value);
        if (!found || strcmp(base_name(b->files[found->file].path), file) != 0)
            return cz__fail(CZ_ERR_FORMAT, "%s: tensor '%s' is not in '%s'", path,
                            cz__show(tensor).text, cz__show(file).text);
    }
    for (int64_t i = 0; i < b->tensor_count; i++)
        if (!json_object_get(map, b->tensors[i].entry->name))
            return cz__fail(CZ_ERR_FORMAT, "%s: tensor '%s' is not in the index",
                            b->files[b->tensors[i].file].path,
                            cz__show(b->tensors[i].entry->name).text);
    return CZ_OK;
}

static cz_status open_mapped(cz__bundle *b, const char *path, json_t *map)
{
    const char **names = NULL;
    size_t count = 0;
    cz_status status = list_files(b, path, map, &names, &count);
    if (status)
        goto done;
    status = have_files(b, count);
    if (status)
        goto done;
    for (size_t f = 0; f < count; f++) {
        status = read_header(b, (int)f, names[f]);
        if (status)
            break;
    }
done:
    cz__free(names);
    if (!status)
        status = list_tensors(b);
    return status == CZ_OK ? check_map(b, path, map) : status;
}

static cz_status open_indexed(cz__bundle *b, const char *path)
{
    char *bytes;
    size_t count;
    json_t *json = NULL;
    CZ_TRY(cz__file_read(path, MOST_INDEX, &bytes, &count));
    cz_status status = cz__json_parse(&json, path, bytes, count);
    cz__free(bytes);
    json_t *map = json_object_get(json, "weight_map");
    if (status)
        goto done;
    if (!json_is_object(map))
        status = cz__fail(CZ_ERR_FORMAT, "%s: it has no object \"weight_map\"", path);
    if (status)
        goto done;
    status = open_mapped(b, path, map);
done:
    json_decref(json);
    return status;
}

static cz_status open_single(cz__bundle *b, const char *name)
{
    CZ_TRY(have_files(b, 1));
    CZ_TRY(read_header(b, 0, name));
    return list_tensors(b);
}

static cz_status open_torch(cz__bundle *b, const cz__index *here)
{
    CZ_TRY(cz__torch_contents_open(&b->torch, b->path, here));
    return list_tensors(b);
}

static cz_status open_distributed(cz__bundle *b, const cz__index *here)
{
    cz__torch *file;
    CZ_TRY(cz__dcp_open(&file, b->path));
    CZ_TRY(cz__torch_contents_read(&b->torch, file, here));
    return list_tensors(b);
}

/* With none, the sentence is about the index. */
static cz_status open_folder(cz__bundle *b, const cz__look *look, const cz__index *here)
{
    cz__text index = {0};
    if (look->distributed && !look->several && !look->single)
        return open_distributed(b, here);
    if (look->single && !look->several)
        return open_single(b, CZ__CONSOLIDATED_SINGLE);
    const char *unread = look->several ? NULL : cz__folder_unread(b->path);
    if (unread)
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: %s", b->path, unread);
    cz__text_print(&index, "%s/" CZ__CONSOLIDATED_INDEX, b->path);
    const cz_status status = index.failed ? no_memory(b) : open_indexed(b, cz__text_get(&index));
    cz__text_clear(&index);
    return status;
}

/* ---- what is no tensor ---- */

static cz_status read_text(cz__bundle *b)
{
    const char *text = NULL, *path = NULL, *format;
    int64_t version;
    for (int f = 0; f < b->count; f++) {
        const char *here = cz__safetensors_metadata(b->files[f].header, CZ__METADATA_KEY);
        if (here && text)
            return cz__fail(CZ_ERR_FORMAT, "%s: it is of another export than %s", b->files[f].path,
                            path);
        text = here ? here : text;
        path = here ? b->files[f].path : path;
    }
    if (!text)
        return CZ_OK;
    CZ_TRY(cz__json_parse(&b->json, path, text, strlen(text)));
    CZ_TRY(cz__json_text(b->json, path, "format", &format));
    if (strcmp(format, CZ__CONSOLIDATED_FORMAT) != 0)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: its format is '%s', wanted '" CZ__CONSOLIDATED_FORMAT "'", path,
                        cz__show(format).text);
    CZ_TRY(cz__json_integer(b->json, path, "version", 1, INT64_MAX, &version));
    return version <= CZ__CONSOLIDATED_VERSION
               ? CZ_OK
               : cz__fail(CZ_ERR_UNSUPPORTED,
                          "%s: version %" PRId64 " of the form; this library knows up to %d", path,
                          version, CZ__CONSOLIDATED_VERSION);
}

static cz_status open_any(cz__bundle *b, const char *path, const cz__index *here)
{
    cz__look look;
    bool torch = false;
    CZ_TRY(cz__look_at(&look, path));
    if (look.folder)
        return open_folder(b, &look, here);
    if (look.file)
        CZ_TRY(cz__torch_begins(path, &torch));
    return torch ? open_torch(b, here) : open_single(b, NULL);
}

static cz_status open_path(cz__bundle *b, const char *path, const cz__index *here)
{
    b->path = cz__strdup(path);
    if (!b->path)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint import: no memory for a path");
    CZ_TRY(open_any(b, path, here));
    take_fingerprint(b);
    return read_text(b);
}

cz_status cz__bundle_open(cz__bundle **out, const char *path, const cz__index *here)
{
    *out = cz__calloc(1, sizeof **out);
    const cz_status status = *out ? open_path(*out, path, here)
                                  : cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", path);
    if (status != CZ_OK)
        cz__bundle_close(out);
    return status;
}

const char *cz__bundle_notes(const cz__bundle *b)
{
    return b->torch && b->torch->notes.count ? cz__text_get(&b->torch->notes) : NULL;
}

/* ---- elements ---- */

cz_status cz__bundle_read(cz__bundle *b, const char *name, int64_t begin, int64_t end, void *to)
{
    const cz__located *found = cz__bundle_find(b, name);
    if (!found)
        return cz__fail(CZ_ERR_FORMAT, "%s: no tensor '%s'", b->path, cz__show(name).text);
    if (found->view)
        return cz__torch_read(b->torch->file, found->view, begin, end, to);
    const cz__bundle_file *f = &b->files[found->file];
    const size_t size = cz__type_unit(found->entry->dtype);
    CZ_TRY(open_file(b, found->file));
    return cz__reader_read(f->reader,
                           cz__safetensors_data_begin(f->header) + found->entry->begin +
                               (uint64_t)begin * size,
                           to, (size_t)(end - begin) * size);
}

cz_status cz__bundle_verify(const cz__bundle *b, int rank, int world_size)
{
    return b->torch ? cz__torch_verify(b->torch->file, rank, world_size) : CZ_OK;
}

uint64_t *cz__bundle_sums(const cz__bundle *b, int64_t *count)
{
    *count = 0;
    return b->torch ? cz__torch_sums(b->torch->file, count) : NULL;
}

void cz__bundle_trust(const cz__bundle *b)
{
    if (b->torch)
        cz__torch_trust(b->torch->file);
}

static cz_status find_tensor(const char *name, cz_state_dict *dict, const char *key, void *context)
{
    cz__bundle *b = context;
    const cz__located *found = cz__bundle_find(b, name);
    void *data;
    if (!found || !cz__begins_with(name, CZ__CONSOLIDATED_COMMON))
        return cz__fail(CZ_ERR_FORMAT, "%s: no tensor '%s', which its common dictionary has",
                        b->path, cz__show(name).text);
    const cz__safetensors_entry *entry = found->entry;
    CZ_TRY(cz__type_check(entry->dtype, b->path, name));
    CZ_TRY(
        cz_state_dict_add_tensor(dict, key, entry->dtype, entry->dimensions, entry->shape, &data));
    return cz__bundle_read(
        b, name, 0, (int64_t)((entry->end - entry->begin) / cz_dtype_size(entry->dtype)), data);
}

cz_status cz__bundle_common(cz__bundle *b, cz_state_dict **out)
{
    const json_t *common = json_object_get(b->json, "common");
    *out = NULL;
    if (b->torch && b->torch->common)
        return cz_state_dict_copy(out, b->torch->common);
    return common ? cz__dict_from_json(out, common, b->path, find_tensor, b)
                  : cz_state_dict_create(out);
}
