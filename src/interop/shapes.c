/* SPDX-License-Identifier: MIT */
/* Shapes of what is in files, and the memory that writing files takes. */
#include "interop/archive.h"
#include "interop/shapes.h"

#include <string.h>

#include "base/plain_text.h"
#include "base/status.h"
#include "interop/exporting.h"
#include "io/json.h"
#include "io/stream.h"

/* ---- files ---- */

static cz_status visit_index(const cz__index *index, cz__shape_visitor visit, void *context)
{
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++) {
        const cz__stored *stored = &index->stored[i];
        cz__file_shape shape = {
            .name = stored->name,
            .tensor = {.dtype = stored->dtype, .dimensions = stored->dimensions},
            .buffer = i >= index->param_count};
        memcpy(shape.tensor.shape, stored->shape, sizeof stored->shape);
        CZ_TRY(visit(&shape, context));
    }
    return CZ_OK;
}

cz_status cz__checkpoint_shapes(const char *path, cz__shape_visitor visit, void *context)
{
    cz_archive *archive;
    cz_status status = cz__archive_open_of_rule(&archive, path, CZ_NEWEST, NULL);
    if (status == CZ_ERR_STATE)
        return cz__fail(CZ_ERR_ARGUMENT, "%s", cz_last_error());
    if (!status)
        status = visit_index(&cz__archive_input(archive)->index, visit, context);
    cz_archive_destroy(&archive);
    return status;
}

/* ---- JSON ---- */

static cz_status wrong(const char *path, const char *name, const char *what)
{
    return cz__fail(CZ_ERR_FORMAT, "%s: tensor '%s': %s", path, cz__show(name).text, what);
}

static cz_dtype find_dtype(const char *name)
{
    if (!name)
        return (cz_dtype)0;
    for (cz_dtype d = CZ_F32; cz_dtype_size(d) > 0; d++)
        if (strcasecmp(cz_dtype_name(d), name) == 0)
            return d;
    return (cz_dtype)0;
}

static cz_status read_tensor(const char *path, const char *name, const json_t *entry,
                             cz__file_shape *shape)
{
    const json_t *sizes = json_object_get(entry, "shape"), *kind = json_object_get(entry, "kind");
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    *shape = (cz__file_shape){.name = name, .tensor.dtype = find_dtype(type)};
    if (!shape->tensor.dtype)
        return wrong(path, name, "wanted: \"dtype\", F32, F64, F16, BF16, I32, I64 or U8");
    if (!json_is_array(sizes) || json_array_size(sizes) > CZ_MAX_DIMENSIONS)
        return wrong(path, name, "wanted: \"shape\", a list of 8 whole numbers at most");
    shape->tensor.dimensions = (int)json_array_size(sizes);
    for (int d = 0; d < shape->tensor.dimensions; d++) {
        const json_t *size = json_array_get(sizes, (size_t)d);
        if (!json_is_integer(size))
            return wrong(path, name, "\"shape\" has something that is no whole number");
        shape->tensor.shape[d] = json_integer_value(size);
    }
    const char *word = json_string_value(kind);
    shape->frozen = word && strcmp(word, "frozen") == 0;
    shape->buffer = word && strcmp(word, "buffer") == 0;
    if (kind && !shape->frozen && !shape->buffer)
        return wrong(path, name, "\"kind\" is \"frozen\" or \"buffer\", or is left out");
    return CZ_OK;
}

cz_status cz__json_shapes(const char *path, const char *bytes, size_t count,
                          cz__shape_visitor visit, void *context)
{
    CZ__PLAIN_TEXT;
    json_error_t error;
    const char *name;
    json_t *entry;
    cz_status status = CZ_OK;
    cz__budget budget = cz__budget_of(path, count);
    CZ_TRY(cz__budget_spend(&budget, cz__json_cost(bytes, count), "its JSON"));
    json_t *const root = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(root)) {
        json_decref(root);
        return cz__fail(
            CZ_ERR_FORMAT,
            "%s: wanted JSON such as {\"w\": {\"dtype\": \"F32\", \"shape\": [2, 3]}}%s%s", path,
            root ? "" : ": ", root ? "" : cz__show(error.text).text);
    }
    json_object_foreach(root, name, entry)
    {
        cz__file_shape shape;
        if (strcmp(name, "__metadata__") == 0)
            continue;
        status = read_tensor(path, name, entry, &shape);
        if (!status)
            status = visit(&shape, context);
        if (status != CZ_OK)
            break;
    }
    json_decref(root);
    return status;
}

/* ---- memory ---- */

/* Of a tensor in a header: the entry, its name, both in lists that have grown, and its line of
 * JSON. Of a parameter or buffer in an index, with its names' table and the outline of its state.
 * What a name takes of these beside. */
enum { PIECE_BYTES = 520, TENSOR_BYTES = 700, SLOT_BYTES = 120, NAMES = 3 };

static uint64_t lists(const cz__save_shape *s, int64_t pieces)
{
    const uint64_t name = s->tensors > 0 ? s->name_bytes / (uint64_t)s->tensors : 0;
    return (uint64_t)pieces * (PIECE_BYTES + NAMES * name) +
           (uint64_t)s->tensors * (TENSOR_BYTES + (uint64_t)s->slots * SLOT_BYTES + NAMES * name);
}

uint64_t cz__save_memory(const cz__save_shape *s)
{
    const uint64_t header = (uint64_t)s->pieces * PIECE_BYTES / 4;
    return cz__writer_bytes(s->elements_bytes + header + 64) + lists(s, s->pieces);
}

uint64_t cz__export_memory(const cz__save_shape *s)
{
    return cz__exporting_bytes() + lists(s, s->tensors * (1 + s->slots)) +
           (uint64_t)s->pieces * 2 * sizeof(cz__run);
}
