/* SPDX-License-Identifier: MIT */
/* What is in consolidated files, as an index: which tensors are parameters, which buffers, and that
 * the state is what is said of it. */
#include <inttypes.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "checkpoint/loading.h"
#include "group/collective.h"
#include "interop/bundle.h"
#include "interop/consolidated.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/text.h"
#include "tensor/model.h"

/* ---- sorting tensors ---- */

typedef enum kind { PARAMETER, BUFFER, OTHER } kind;

typedef struct sorting {
    const cz__bundle *bundle;
    const cz__index *here;
    cz__names buffers; /* of a file of ours */
    bool tells;        /* it says which those are, and has state under names of its own */
} sorting;

/* Are there names that are not of the model? */
static bool has_state(const cz__bundle *b)
{
    return b->json || (b->torch && (b->torch->ours || b->torch->outline));
}

static kind kind_of(const sorting *s, const cz__safetensors_entry *e)
{
    int64_t number;
    const char *const name = e->name;
    if (has_state(s->bundle) && (cz__begins_with(name, CZ__CONSOLIDATED_STATE) ||
                                 cz__begins_with(name, CZ__CONSOLIDATED_COMMON)))
        return OTHER;
    if (!s->tells) {
        number = s->here ? cz__index_find(s->here, e->name) : -1;
        if (number < 0 &&
            cz__type_is_foreign(e->dtype)) /* which nothing trains, and nothing cuts */
            return BUFFER;
        return s->here && number >= s->here->param_count ? BUFFER : PARAMETER;
    }
    return cz__names_find(&s->buffers, name, &number) ? BUFFER : PARAMETER;
}

static cz_status add_buffer(sorting *s, const char *name, size_t length, int64_t place)
{
    int64_t number;
    const cz__bundle *b = s->bundle;
    if (!name || strlen(name) != length || !cz__bundle_find(b, name) ||
        cz__names_find(&s->buffers, name, &number))
        return cz__fail(CZ_ERR_FORMAT, "%s: 'buffers' has '%s', wanted a tensor's name, once",
                        b->path, name ? cz__show(name).text : "");
    cz__names_add(&s->buffers, name, place);
    return CZ_OK;
}

static cz_status reserve_buffers(sorting *s, int64_t count)
{
    s->tells = true;
    return cz__names_reserve(&s->buffers, count)
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "%s: no memory for a list of buffers", s->bundle->path);
}

static cz_status list_buffers_of_torch(sorting *s)
{
    const cz__torch_contents *torch = s->bundle->torch;
    if (!torch->buffers)
        return CZ_OK;
    CZ_TRY(reserve_buffers(s, torch->buffers->count));
    for (int64_t i = 0; i < torch->buffers->count; i++) {
        const char *name = cz__pickle_item(torch->file->pickle, torch->buffers, i)->text;
        CZ_TRY(add_buffer(s, name, strlen(name), i));
    }
    return CZ_OK;
}

static cz_status list_buffers(sorting *s)
{
    json_t *list;
    const cz__bundle *b = s->bundle;
    if (b->torch)
        return list_buffers_of_torch(s);
    if (!b->json)
        return CZ_OK;
    CZ_TRY(cz__json_array(b->json, b->path, "buffers", &list));
    CZ_TRY(reserve_buffers(s, (int64_t)json_array_size(list)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        CZ_TRY(add_buffer(s, json_string_value(item), json_string_length(item), (int64_t)i));
    }
    return CZ_OK;
}

/* 1 if the tensor is of this kind, and then it is in *to; else 0. */
static int64_t take_entry(const sorting *s, kind k, const cz__safetensors_entry *e, cz__stored *to)
{
    if (kind_of(s, e) != k)
        return 0;
    to->name = e->name;
    to->dtype = e->dtype;
    to->dimensions = e->dimensions;
    memcpy(to->shape, e->shape, sizeof to->shape);
    to->count = (int64_t)((e->end - e->begin) / cz__type_unit(e->dtype));
    return 1;
}

/* All of a kind, in the order of the data: where a file is ours, that of the model. Their
 * number. */
static int64_t append(const sorting *s, kind k, cz__stored *to)
{
    const cz__bundle *b = s->bundle;
    int64_t count = 0;
    if (b->torch)
        for (int64_t i = 0; i < b->torch->count; i++)
            count += take_entry(s, k, &b->torch->tensors[i].form, to + count);
    for (int f = 0; f < b->count; f++)
        for (int64_t i = 0; i < cz__safetensors_count(b->files[f].header); i++)
            count += take_entry(s, k, cz__safetensors_entry_at(b->files[f].header, i), to + count);
    return count;
}

/* Parameters first, as an index has them. */
static void fill_index(const sorting *s, cz__index *index)
{
    index->param_count = append(s, PARAMETER, index->stored);
    index->buffer_count = append(s, BUFFER, index->stored + index->param_count);
}

/* A file that has an optimizer and no model: all that is here, without values. The type is that of
 * the state. */
static void fill_from_here(const sorting *s, cz__index *index)
{
    const cz__index *here = s->here;
    index->param_count = here->param_count;
    index->buffer_count = here->buffer_count;
    for (int64_t i = 0; i < here->param_count + here->buffer_count; i++) {
        index->stored[i] = here->stored[i];
        index->stored[i].owner = 0;
        index->stored[i].no_value = true;
    }
}

static bool has_model(const cz__bundle *b)
{
    return !b->torch || b->torch->has_model;
}

/* ---- the state ---- */

static cz_status no_tensor(const char *name, cz_state_dict *dict, const char *key, void *context)
{
    return cz__fail(CZ_ERR_FORMAT, "%s: 'optimizer' has a tensor '%s'", (const char *)context,
                    cz__show(name).text);
}

static cz_status read_outline_of_torch(const cz__bundle *b, cz__index *index)
{
    const cz__torch_contents *torch = b->torch;
    index->step = torch->step;
    index->says_nothing_of_state = (!torch->ours || torch->state_left) && !torch->outline;
    return torch->outline ? cz_state_dict_copy(&index->optimizer, torch->outline) : CZ_OK;
}

static cz_status read_outline(const cz__bundle *b, cz__index *index)
{
    if (b->torch)
        return read_outline_of_torch(b, index);
    const json_t *optimizer = json_object_get(b->json, "optimizer");
    index->says_nothing_of_state = !b->json;
    index->step = -1;
    if (!b->json)
        return CZ_OK;
    CZ_TRY(cz__json_integer(b->json, b->path, "step", 0, INT64_MAX, &index->step));
    CZ_TRY(cz__index_parse_parts(index, b->path, b->json));
    return optimizer && !json_is_null(optimizer)
               ? cz__dict_from_json(&index->optimizer, optimizer, b->path, no_tensor, b->path)
               : CZ_OK;
}

static cz_status check_slot(const cz__bundle *b, const cz__stored *stored, const char *name,
                            cz_dtype dtype)
{
    const cz__located *found = cz__bundle_find(b, name);
    if (!found)
        return cz__fail(CZ_ERR_FORMAT, "%s: no tensor '%s', which the optimizer has", b->path,
                        cz__show(name).text);
    const cz__safetensors_entry *e = found->entry;
    if (e->dtype == dtype && (dtype == stored->dtype || cz__converts(dtype)) &&
        e->dimensions == stored->dimensions &&
        memcmp(e->shape, stored->shape, (size_t)e->dimensions * sizeof *e->shape) == 0)
        return CZ_OK;
    return cz__fail(CZ_ERR_FORMAT,
                    "%s: tensor '%s' has not the type that the optimizer says, or not the type and "
                    "shape of its parameter",
                    b->torch ? b->path : b->files[found->file].path, cz__show(name).text);
}

static cz_status check_slots(const cz__bundle *b, const cz__index *index, int64_t param,
                             cz__text *name, int64_t *count)
{
    const char *slot;
    cz_dtype dtype;
    for (int64_t at = 0; cz__index_slot(index, param, &at, &slot, &dtype); (*count)++) {
        CZ_TRY(cz__consolidated_name(name, index->stored[param].name, slot));
        CZ_TRY(check_slot(b, &index->stored[param], cz__text_get(name), dtype));
    }
    return CZ_OK;
}

/* State of parameters that are there, every tensor of it. */
static cz_status check_state(const cz__bundle *b, const cz__index *index)
{
    cz__text name = {0};
    cz_status status = CZ_OK;
    int64_t expected = 0, found = 0;
    for (int64_t i = 0; i < cz_state_dict_count(index->entries); i++) {
        const char *param = cz_state_dict_key(index->entries, i);
        const int64_t place = cz__index_find(index, param);
        if (place < 0 || place >= index->param_count)
            return cz__fail(CZ_ERR_FORMAT,
                            "%s: the optimizer has state of '%s', which is no parameter", b->path,
                            cz__show(param).text);
    }
    CZ_TRY(cz__index_check_groups(index, b->path));
    for (int64_t p = 0; p < index->param_count; p++) {
        status = check_slots(b, index, p, &name, &expected);
        if (status)
            break;
    }
    cz__text_clear(&name);
    if (has_state(b))
        for (int64_t i = 0; i < b->tensor_count; i++)
            found += cz__begins_with(b->tensors[i].entry->name, CZ__CONSOLIDATED_STATE);
    if (!status && found != expected)
        status =
            cz__fail(CZ_ERR_FORMAT,
                     "%s: %" PRId64 " tensors begin with optimizer/, the optimizer has %" PRId64,
                     b->path, found, expected);
    return status;
}

static cz_status build_index(sorting *s, cz__index *index)
{
    const cz__bundle *b = s->bundle;
    for (int f = 0; f < b->count; f++)
        CZ_TRY(cz__index_add_metadata(index, cz__safetensors_all_metadata(b->files[f].header)));
    CZ_TRY(list_buffers(s));
    const int64_t count =
        has_model(b) ? b->tensor_count : s->here->param_count + s->here->buffer_count;
    index->stored = cz__calloc((size_t)count, sizeof *index->stored);
    if (!index->stored)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a table of %" PRId64 " tensors", b->path,
                        count);
    if (has_model(b))
        fill_index(s, index);
    else
        fill_from_here(s, index);
    CZ_TRY(read_outline(b, index));
    const cz_status status = cz__index_complete(index);
    if (status == CZ_ERR_ARGUMENT) /* the file's, not the program's */
        return cz__fail_in(CZ_ERR_FORMAT, b->path);
    return status == CZ_OK ? check_state(b, index) : status;
}

cz_status cz__bundle_index(const cz__bundle *bundle, const cz__index *here, cz__index *index)
{
    sorting s = {bundle, here, {0}, false};
    *index = (cz__index){0};
    const cz_status status = build_index(&s, index);
    cz__names_clear(&s.buffers);
    return status;
}

/* ---- as an input ---- */

/* `to` NULL: only see that it is there. */
static cz_status read_bundle(cz__input *input, int64_t stored, const char *slot, int64_t begin,
                             int64_t end, void *to)
{
    CZ_TRY(cz__consolidated_name(&input->name, input->index.stored[stored].name, slot));
    const char *name = cz__text_get(&input->name);
    if (to)
        return cz__bundle_read(input->files, name, begin, end, to);
    return cz__bundle_find(input->files, name)
               ? CZ_OK
               : cz__fail(CZ_ERR_FORMAT, "%s: no tensor '%s'", input->path, cz__show(name).text);
}

static cz_status read_common(cz__input *input, cz_state_dict **out)
{
    return cz__bundle_common(input->files, out);
}

static void close_bundle(cz__input *input)
{
    cz__bundle *bundle = input->files;
    cz__bundle_close(&bundle);
}

static const cz__input_form bundle_form = {read_bundle, read_common, close_bundle};

cz_status cz__input_open_bundle(cz__input *input, const char *path, const cz__index *here)
{
    CZ_TRY(cz__input_name(input, path));
    if (cz__unfinished_is(path)) /* it may have its whole length and header, and no elements */
        return cz__fail(
            CZ_ERR_FORMAT,
            "%s: an export or a conversion that was killed left this, or one is under way: it is "
            "no checkpoint. If it was killed: start it again, which replaces this, or remove it",
            path);
    cz__bundle *bundle;
    CZ_TRY(cz__bundle_open(&bundle, path, here));
    input->form = &bundle_form;
    input->files = bundle;
    return cz__bundle_index(bundle, here, &input->index);
}

/* ---- imports ---- */
/* Importing consolidated files: all ranks open them, and agree that they are the same and good; the
 * rest is a load. */

/* What chooses among generations has no meaning here. */
static cz_status check_options(const char *path, const cz_load_options *theirs)
{
    cz_load_options options;
    const char *wrong = NULL;
    CZ_TRY(cz__options_read(&options, &cz__load_options, theirs, "checkpoint import"));
    if (!path || !path[0])
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint import: the path is %s", path ? "''" : "NULL");
    if (!theirs)
        return CZ_OK;
    if (options.step != CZ_NEWEST)
        wrong = "step";
    else if (options.missing_ok)
        wrong = "missing_ok";
    else if (options.fall_back)
        wrong = "fall_back";
    return wrong ? cz__fail(CZ_ERR_ARGUMENT,
                            "checkpoint import: option %s is for generations, there are none here",
                            wrong)
                 : CZ_OK;
}

static cz_status open_files(cz__loading *l, const char *path)
{
    CZ_TRY(cz__input_open_bundle(&l->input, path, &l->here));
    l->input.index.generation = -1;
    return cz__input_common(&l->input, &l->common);
}

static cz_status verify_files(cz__loading *l)
{
    cz_group *group = l->checkpoint->group;
    const cz__bundle *bundle = cz__input_bundle(&l->input);
    int64_t count;
    uint64_t *sums = cz__bundle_sums(bundle, &count);
    CZ_TRY(cz__agree(group, cz__bundle_verify(bundle, cz_group_rank(group), cz_group_size(group)),
                     0, NULL, "checkpoint: verify"));
    if (!sums)
        return CZ_OK;
    CZ_TRY(cz_all_reduce(group, sums, count, CZ_I64, CZ_SUM, CZ_LABEL("checkpoint: blocks")));
    cz__bundle_trust(bundle);
    return CZ_OK;
}

static cz_status import_files(cz__loading *l, const char *path, cz_load_result *result)
{
    bool same;
    cz__text_cut(&l->checkpoint->notes, 0);
    CZ_TRY(cz__contents(l->checkpoint, l->call, false, &l->here));
    const cz_status status = open_files(l, path);
    CZ_TRY(cz__agree(l->checkpoint->group, status,
                     status == CZ_OK ? cz__input_bundle(&l->input)->fingerprint : 0, &same,
                     "checkpoint: import"));
    if (!same)
        return cz__say_alike(l->checkpoint->group,
                             cz__fail(CZ_ERR_FORMAT, "%s: ranks see different files there", path));
    CZ_TRY(verify_files(l));
    if (cz__bundle_notes(cz__input_bundle(&l->input)))
        cz__text_print(&l->checkpoint->notes, "%s\n",
                       cz__bundle_notes(cz__input_bundle(&l->input)));
    CZ_TRY(cz__loading_compare(l));
    return cz__loading_finish(l, result);
}

cz_status cz_checkpoint_import(cz_checkpoint *checkpoint, const char *path,
                               const cz_load_options *options, cz_load_result *result)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!checkpoint)
        return cz__fail(CZ_ERR_ARGUMENT, "checkpoint import: checkpoint is NULL");
    cz__loading l = {.checkpoint = checkpoint};
    cz_status status =
        cz__loading_begin(&l, "checkpoint import", check_options(path, options), options, result);
    if (!status)
        status = import_files(&l, path, result);
    cz__loading_clear(&l);
    return status;
}
