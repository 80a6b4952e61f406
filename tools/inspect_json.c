/* SPDX-License-Identifier: MIT */
/* czero inspect --json. */
#include <fnmatch.h>
#include <string.h>

#include "base/status.h"
#include "io/dict_json.h"
#include "io/seal.h"
#include "inspect.h"
#include "json.h"

static json_t *owners(const source *s, int64_t stored)
{
    int first, last;
    if (!s->generation)
        return json_null();
    source_owners(&s->input.index, stored, &first, &last);
    return json_pack("[i, i]", first, last);
}

static json_t *slots(const cz__index *index, int64_t stored)
{
    const char *slot;
    cz_dtype dtype;
    json_t *list = json_array();
    if (stored >= index->param_count)
        return list;
    for (int64_t at = 0; cz__index_slot(index, stored, &at, &slot, &dtype);)
        json_array_append_new(list, json_string(slot));
    return list;
}

static cz_status put_tensor(json_t *list, const source *s, int64_t i)
{
    const cz__index *index = &s->input.index;
    const cz__stored *stored = &index->stored[i];
    json_t *item = json_object();
    if (json_array_append_new(list, item) != 0)
        return cz__fail(CZ_ERR_MEMORY, "no memory for JSON");
    CZ_TRY(cz__json_set(item, "name", json_string(stored->name)));
    CZ_TRY(cz__json_set(item, "dtype", json_string(cz__type_shown(stored->dtype))));
    CZ_TRY(cz__json_set(item, "shape", json_shape(stored->dimensions, stored->shape)));
    CZ_TRY(cz__json_set(item, "elements", json_integer(stored->count)));
    CZ_TRY(cz__json_set(item, "bytes", json_integer((json_int_t)source_value_bytes(index, i))));
    CZ_TRY(
        cz__json_set(item, "state_bytes", json_integer((json_int_t)source_state_bytes(index, i))));
    CZ_TRY(cz__json_set(item, "state", slots(index, i)));
    return cz__json_set(item, "ranks", owners(s, i)); /* the first and the last that have some */
}

static cz_status put_tensors(json_t *root, const source *s, const char *pattern)
{
    const cz__index *index = &s->input.index;
    json_t *params = json_array(), *buffers = json_array();
    CZ_TRY(cz__json_set(root, "parameters", params));
    CZ_TRY(cz__json_set(root, "buffers", buffers));
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++)
        if (!pattern || fnmatch(pattern, index->stored[i].name, 0) == 0)
            CZ_TRY(put_tensor(i < index->param_count ? params : buffers, s, i));
    return CZ_OK;
}

static cz_status put_file(const char *path, int64_t bytes, void *context)
{
    json_t *file = json_object();
    if (json_array_append_new(context, file) != 0)
        return cz__fail(CZ_ERR_MEMORY, "no memory for JSON");
    CZ_TRY(cz__json_set(file, "path", json_any_text(path)));
    return cz__json_set(file, "bytes", bytes < 0 ? json_null() : json_integer(bytes));
}

static cz_status put_head(json_t *root, const source *s)
{
    const cz__index *index = &s->input.index;
    const char *library = json_string_value(json_object_get(index->json, "library"));
    CZ_TRY(cz__json_set(root, "path", json_any_text(source_path(s))));
    CZ_TRY(cz__json_set(root, "kind",
                        json_string(s->generation ? "sharded"
                                    : s->foreign  ? "model"
                                                  : "consolidated")));
    CZ_TRY(cz__json_set(root, "step",
                        s->foreign || index->step < 0 ? json_null() : json_integer(index->step)));
    if (!s->generation)
        return CZ_OK;
    CZ_TRY(cz__json_set(root, "generation", json_integer(index->generation)));
    CZ_TRY(cz__json_set(root, "id", json_string(index->id)));
    CZ_TRY(cz__json_set(root, "world_size", json_integer(index->world_size)));
    return library ? cz__json_set(root, "library", json_string(library)) : CZ_OK;
}

static cz_status put_all(json_t *root, const source *s, const inspect_options *o)
{
    json_t *optimizer = NULL, *files = json_array();
    const json_t *common = inspect_common(s);
    CZ_TRY(cz__json_set(root, "files", files));
    CZ_TRY(put_head(root, s));
    CZ_TRY(put_tensors(root, s, o->tree.pattern));
    if (s->input.index.optimizer)
        CZ_TRY(cz__dict_to_json(&optimizer, s->input.index.optimizer, "", NULL, NULL));
    CZ_TRY(cz__json_set(root, "optimizer", optimizer ? optimizer : json_null()));
    const json_t *const beside = s->input.index.metadata;
    CZ_TRY(cz__json_set(root, "metadata", beside ? json_incref((json_t *)beside) : json_null()));
    CZ_TRY(cz__json_set(root, "common", common ? json_incref((json_t *)common) : json_null()));
    return inspect_files(s, put_file, files);
}

cz_status inspect_json(source *s, const inspect_options *o)
{
    json_t *root = json_object();
    const cz_status status =
        root ? put_all(root, s, o) : cz__fail(CZ_ERR_MEMORY, "no memory for JSON");
    if (status == CZ_OK && json_finish(root))
        return CZ_OK;
    if (status != CZ_OK)
        json_decref(root);
    return status == CZ_OK ? cz__fail(CZ_ERR_IO, "the output cannot be written") : status;
}
