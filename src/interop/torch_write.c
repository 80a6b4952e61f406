/* SPDX-License-Identifier: MIT */
/* Files for torch: a pickle that says what there is, and a storage for each tensor. */
#include <string.h>

#include "base/status.h"
#include "interop/consolidated.h"
#include "interop/torch_contents.h"
#include "interop/torch_writing.h"

enum { MOST_PICKLE = 1 << 28 }; /* what is read again */

typedef cz__torch_writing writing;
typedef cz__torch_payload payload;

bool cz__torch_is_name(const char *path)
{
    static const char *const ends[] = {".pt", ".pth", ".bin"};
    const size_t length = strlen(path);
    for (int i = 0; i < 3; i++) {
        const size_t end = strlen(ends[i]);
        if (length > end && strcmp(path + length - end, ends[i]) == 0)
            return true;
    }
    return false;
}

static void put_named_integer(cz__pickling *p, const char *key, int64_t value)
{
    cz__pickle_put_text(p, key);
    cz__pickle_put_integer(p, value);
}

/* ---- the model ---- */

static cz_status put_model(writing *w)
{
    const cz__index *index = w->what->index;
    cz__torch_put_ordered_dict(&w->p);
    cz__pickle_op(&w->p, CZ__PICKLE_OP_MARK);
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++) {
        cz__pickle_put_text(&w->p, index->stored[i].name);
        CZ_TRY(cz__torch_put_stored(w, &index->stored[i], NULL, index->stored[i].dtype));
    }
    cz__pickle_end_dict(&w->p);
    return CZ_OK;
}

/* ---- what torch has no place for ---- */

static cz_status put_dict(writing *w, const cz_state_dict *dict);

static cz_status put_texts(writing *w, const cz_state_dict *dict, const char *key)
{
    cz__pickle_begin_list(&w->p);
    for (int64_t i = 0; i < cz_state_dict_text_count(dict, key); i++) {
        const char *text;
        CZ_TRY(cz_state_dict_get_text_at(dict, key, i, &text));
        cz__pickle_put_text(&w->p, text);
    }
    cz__pickle_end_list(&w->p);
    return CZ_OK;
}

static cz_status put_value(writing *w, const cz_state_dict *dict, const char *key)
{
    int64_t integer;
    double real;
    const char *text;
    const cz_state_dict *inner;
    cz_tensor tensor;
    payload *to;
    switch (cz_state_dict_kind(dict, key)) {
    case CZ_STATE_INTEGER:
        CZ_TRY(cz_state_dict_get_integer(dict, key, &integer));
        cz__pickle_put_integer(&w->p, integer);
        return CZ_OK;
    case CZ_STATE_REAL:
        CZ_TRY(cz_state_dict_get_real(dict, key, &real));
        cz__pickle_put_real(&w->p, real);
        return CZ_OK;
    case CZ_STATE_TEXT:
        CZ_TRY(cz_state_dict_get_text(dict, key, &text));
        cz__pickle_put_text(&w->p, text);
        return CZ_OK;
    case CZ_STATE_TEXTS:
        return put_texts(w, dict, key);
    case CZ_STATE_TENSOR:
        CZ_TRY(cz_state_dict_get_tensor(dict, key, &tensor));
        CZ_TRY(cz__torch_put_tensor(w, tensor.dtype, tensor.dimensions, tensor.shape, &to));
        to->memory = tensor.data;
        return CZ_OK;
    default:
        CZ_TRY(cz_state_dict_get_dict(dict, key, &inner));
        return put_dict(w, inner);
    }
}

static cz_status put_dict(writing *w, const cz_state_dict *dict)
{
    cz__pickle_begin_dict(&w->p);
    for (int64_t i = 0; i < cz_state_dict_count(dict); i++) {
        cz__pickle_put_text(&w->p, cz_state_dict_key(dict, i));
        CZ_TRY(put_value(w, dict, cz_state_dict_key(dict, i)));
    }
    cz__pickle_end_dict(&w->p);
    return CZ_OK;
}

static cz_status put_name(writing *w, int64_t number, const char *name)
{
    cz__pickle_put_text(&w->p, name);
    return CZ_OK;
}

/* -1: there is no state. */
static cz_status put_count(writing *w, int64_t number, const char *name)
{
    int64_t step = -1;
    const cz_state_dict *entry, *entries = w->what->index->entries;
    if (cz_state_dict_kind(entries, name) == CZ_STATE_DICT) {
        CZ_TRY(cz_state_dict_get_dict(entries, name, &entry));
        if (cz_state_dict_kind(entry, "step") == CZ_STATE_INTEGER)
            CZ_TRY(cz_state_dict_get_integer(entry, "step", &step));
    }
    cz__pickle_put_integer(&w->p, step);
    return CZ_OK;
}

static cz_status put_members(writing *w, const char *key, cz__torch_member_visitor visit)
{
    cz__pickle_put_text(&w->p, key);
    cz__pickle_begin_list(&w->p);
    CZ_TRY(cz__torch_visit_members(w, visit));
    cz__pickle_end_list(&w->p);
    return CZ_OK;
}

static cz_status put_own(writing *w)
{
    const cz__index *index = w->what->index;
    cz__pickle_put_text(&w->p, CZ__TORCH_KEY);
    cz__pickle_begin_dict(&w->p);
    cz__pickle_put_text(&w->p, "format");
    cz__pickle_put_text(&w->p, CZ__CONSOLIDATED_FORMAT);
    put_named_integer(&w->p, "version", CZ__CONSOLIDATED_VERSION);
    put_named_integer(&w->p, "step", w->what->step);
    cz__pickle_put_text(&w->p, "buffers");
    cz__pickle_begin_list(&w->p);
    for (int64_t i = 0; i < index->buffer_count; i++)
        cz__pickle_put_text(&w->p, index->stored[index->param_count + i].name);
    cz__pickle_end_list(&w->p);
    if (w->rule_name) {
        cz__pickle_put_text(&w->p, "rule");
        cz__pickle_put_text(&w->p, w->rule_name);
        CZ_TRY(put_members(w, "params", put_name));
        CZ_TRY(put_members(w, "steps", put_count));
    }
    cz__pickle_put_text(&w->p, "common");
    CZ_TRY(put_dict(w, w->what->common));
    cz__pickle_end_dict(&w->p);
    return CZ_OK;
}

/* ---- together ---- */

static cz_status put_all(writing *w)
{
    const cz_state_dict *optimizer = w->what->index->optimizer;
    cz__pickle_begin(&w->p);
    if (w->what->parameters_only)
        CZ_TRY(put_model(w));
    else {
        if (optimizer) {
            CZ_TRY(cz_state_dict_get_text(optimizer, "rule", &w->rule_name));
            w->rule = cz__torch_rule_find(w->rule_name);
        }
        cz__pickle_begin_dict(&w->p);
        cz__pickle_put_text(&w->p, CZ__TORCH_MODEL);
        CZ_TRY(put_model(w));
        CZ_TRY(optimizer ? cz__torch_put_optimizer(w) : CZ_OK);
        CZ_TRY(put_own(w));
        cz__pickle_end_dict(&w->p);
    }
    cz__pickle_end(&w->p);
    if (w->p.out.failed)
        return cz__torch_no_memory();
    return w->p.out.count <= MOST_PICKLE
               ? CZ_OK
               : cz__fail(CZ_ERR_UNSUPPORTED,
                          "checkpoint export: %zu bytes of names in a file for torch, at most %d",
                          w->p.out.count, (int)MOST_PICKLE);
}

cz_status cz__torch_write(const char *path, const cz__torch_export *what)
{
    writing w = {.what = what};
    cz_status status = put_all(&w);
    if (status == CZ_OK)
        status = cz__torch_write_entries(&w, path);
    cz__torch_writing_clear(&w);
    return status;
}
