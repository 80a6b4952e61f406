/* SPDX-License-Identifier: MIT */
/* czero inspect --json. */
#include <fnmatch.h>
#include <string.h>

#include "inspect.h"
#include "io/json.h"
#include "json.h"
#include "metadata.h"

static json_t *owners(const source *s, int64_t stored)
{
    const cz_archive_tensor tensor = source_tensor(s, stored);
    return s->generation ? json_pack("[i, i]", tensor.first_rank, tensor.last_rank) : json_null();
}

static json_t *slots(const source *s, int64_t stored)
{
    const char *slot;
    json_t *list = json_array();
    for (int64_t i = 0; list && (slot = cz_archive_slot(s->archive, stored, i, NULL)); i++)
        list = json_added(list, json_string(slot));
    return list;
}

static cz_status put_tensor(json_t *list, const source *s, int64_t i)
{
    const cz_archive_tensor tensor = source_tensor(s, i);
    json_t *item = json_object();
    if (json_array_append_new(list, item) != 0)
        return cz_fail(CZ_ERR_MEMORY, "no memory for JSON");
    CZ_TRY(cz__json_set(item, "name", json_string(tensor.name)));
    CZ_TRY(cz__json_set(item, "dtype", json_string(tensor.type)));
    CZ_TRY(cz__json_set(item, "shape", json_shape(tensor.dimensions, tensor.shape)));
    CZ_TRY(cz__json_set(item, "elements", json_integer(tensor.count)));
    CZ_TRY(cz__json_set(item, "bytes", json_integer((json_int_t)source_value_bytes(s, i))));
    CZ_TRY(cz__json_set(item, "state_bytes", json_integer((json_int_t)source_state_bytes(s, i))));
    CZ_TRY(cz__json_set(item, "state", slots(s, i)));
    return cz__json_set(item, "ranks", owners(s, i)); /* the first and the last that have some */
}

static cz_status put_tensors(json_t *root, const source *s, const char *pattern)
{
    json_t *params = json_array(), *buffers = json_array();
    CZ_TRY(cz__json_set(root, "parameters", params));
    CZ_TRY(cz__json_set(root, "buffers", buffers));
    for (int64_t i = 0; i < source_count(s); i++)
        if (!pattern || fnmatch(pattern, source_tensor(s, i).name, 0) == 0)
            CZ_TRY(put_tensor(i < s->info.param_count ? params : buffers, s, i));
    return CZ_OK;
}

static cz_status put_file(const char *path, int64_t bytes, void *context)
{
    json_t *file = json_object();
    if (json_array_append_new(context, file) != 0)
        return cz_fail(CZ_ERR_MEMORY, "no memory for JSON");
    CZ_TRY(cz__json_set(file, "path", json_any_text(path)));
    return cz__json_set(file, "bytes", bytes < 0 ? json_null() : json_integer(bytes));
}

static cz_status put_head(json_t *root, const source *s)
{
    CZ_TRY(cz__json_set(root, "path", json_any_text(s->info.path)));
    const char *form = s->info.foreign ? "model" : "consolidated";
    CZ_TRY(cz__json_set(root, "kind", json_string(s->generation ? "sharded" : form)));
    CZ_TRY(cz__json_set(root, "step", s->info.step < 0 ? json_null() : json_integer(s->info.step)));
    if (s->info.parts > 0)
        CZ_TRY(cz__json_set(root, "parts", json_integer(s->info.parts)));
    if (!s->generation)
        return CZ_OK;
    CZ_TRY(cz__json_set(root, "generation", json_integer(s->info.generation)));
    CZ_TRY(cz__json_set(root, "id", json_string(s->info.id)));
    CZ_TRY(cz__json_set(root, "world_size", json_integer(s->info.world_size)));
    return s->info.library ? cz__json_set(root, "library", json_string(s->info.library)) : CZ_OK;
}

static cz_status put_all(json_t *root, const source *s, const inspect_options *o)
{
    json_t *optimizer = NULL, *files = json_array();
    CZ_TRY(cz__json_set(root, "files", files));
    CZ_TRY(put_head(root, s));
    CZ_TRY(put_tensors(root, s, o->tree.pattern));
    if (s->info.optimizer)
        CZ_TRY(cz__dict_to_json(&optimizer, s->info.optimizer, "", NULL, NULL));
    CZ_TRY(cz__json_set(root, "optimizer", optimizer ? optimizer : json_null()));
    json_t *beside = metadata_json(s);
    if (json_object_size(beside) == 0) {
        json_decref(beside);
        beside = json_null();
    }
    CZ_TRY(cz__json_set(root, "metadata", beside));
    json_t *const common = inspect_common(s);
    CZ_TRY(cz__json_set(root, "common", common ? common : json_null()));
    return inspect_files(s, put_file, files);
}

cz_status inspect_json(source *s, const inspect_options *o)
{
    json_t *root = json_object();
    const cz_status status =
        root ? put_all(root, s, o) : cz_fail(CZ_ERR_MEMORY, "no memory for JSON");
    if (status == CZ_OK && json_finish(root))
        return CZ_OK;
    if (status != CZ_OK)
        json_decref(root);
    return status == CZ_OK ? cz_fail(CZ_ERR_IO, "the output cannot be written") : status;
}
