/* SPDX-License-Identifier: MIT */
/* Reading: what is not there, or is something else, is named with its path. */
#include "base/float_mode.h"
#include "base/status.h"
#include "state/object.h"

#include <string.h>

#include <inttypes.h>

static const char *words(cz_state_kind kind)
{
    static const char *const all[] = {"nothing",         "an integer", "a real",      "a text",
                                      "a list of texts", "a tensor",   "a dictionary"};
    return all[kind];
}

static cz_status find_value(const cz_state_dict *dict, const char *key, cz_state_kind wanted,
                            const void *out, const cz__state_value **value)
{
    CZ_TRY(cz__state_check(dict, key));
    if (!out)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key,
                              "cannot be read: the place for it is NULL");
    const cz__state_entry *entry = cz__state_find(dict, key);
    if (!entry)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is not there, wanted %s", words(wanted));
    const cz_state_kind found = entry->value.kind;
    if (found != wanted && !(wanted == CZ_STATE_REAL && found == CZ_STATE_INTEGER))
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is %s, wanted %s", words(found),
                              words(wanted));
    *value = &entry->value;
    return CZ_OK;
}

cz_status cz_state_dict_get_integer(const cz_state_dict *dict, const char *key, int64_t *value)
{
    const cz__state_value *v;
    CZ_TRY(find_value(dict, key, CZ_STATE_INTEGER, value, &v));
    *value = v->integer;
    return CZ_OK;
}

cz_status cz_state_dict_get_real(const cz_state_dict *dict, const char *key, double *value)
{
    CZ__OWN_FLOATS;
    const cz__state_value *v;
    CZ_TRY(find_value(dict, key, CZ_STATE_REAL, value, &v));
    *value = v->kind == CZ_STATE_REAL ? v->real : (double)v->integer;
    return CZ_OK;
}

cz_status cz_state_dict_get_text(const cz_state_dict *dict, const char *key, const char **value)
{
    const cz__state_value *v;
    CZ_TRY(find_value(dict, key, CZ_STATE_TEXT, value, &v));
    *value = v->text;
    return CZ_OK;
}

cz_status cz_state_dict_get_texts(const cz_state_dict *dict, const char *key,
                                  const char *const **texts, int64_t *count)
{
    const cz__state_value *v;
    CZ_TRY(find_value(dict, key, CZ_STATE_TEXTS, texts && count ? (const void *)texts : NULL, &v));
    *texts = (const char *const *)v->texts.items;
    *count = v->texts.count;
    return CZ_OK;
}

cz_status cz_state_dict_get_tensor(const cz_state_dict *dict, const char *key, cz_tensor *view)
{
    const cz__state_value *v;
    CZ_TRY(find_value(dict, key, CZ_STATE_TENSOR, view, &v));
    *view = v->tensor;
    return CZ_OK;
}

cz_status cz_state_dict_get_dict(const cz_state_dict *dict, const char *key,
                                 const cz_state_dict **child)
{
    const cz__state_value *v;
    CZ_TRY(find_value(dict, key, CZ_STATE_DICT, child, &v));
    *child = v->dict;
    return CZ_OK;
}

/* ---- comparison ---- */

static bool equal_texts(const cz__state_texts *a, const cz__state_texts *b)
{
    if (a->count != b->count)
        return false;
    for (int64_t i = 0; i < a->count; i++)
        if (strcmp(a->items[i], b->items[i]) != 0)
            return false;
    return true;
}

static bool equal_tensors(const cz_tensor *a, const cz_tensor *b)
{
    if (a->dtype != b->dtype || a->dimensions != b->dimensions ||
        memcmp(a->shape, b->shape, (size_t)a->dimensions * sizeof *a->shape) != 0)
        return false;
    return memcmp(a->data, b->data, (size_t)cz_tensor_count(a) * cz_dtype_size(a->dtype)) == 0;
}

/* NaN equals itself, 0 and -0 differ. */
static uint64_t bits_of(double real)
{
    uint64_t bits;
    memcpy(&bits, &real, sizeof bits);
    return bits;
}

static bool equal_values(const cz__state_value *a, const cz__state_value *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case CZ_STATE_INTEGER:
        return a->integer == b->integer;
    case CZ_STATE_REAL:
        return bits_of(a->real) == bits_of(b->real);
    case CZ_STATE_TEXT:
        return strcmp(a->text, b->text) == 0;
    case CZ_STATE_TEXTS:
        return equal_texts(&a->texts, &b->texts);
    case CZ_STATE_TENSOR:
        return equal_tensors(&a->tensor, &b->tensor);
    default:
        return cz_state_dict_equal(a->dict, b->dict);
    }
}

bool cz_state_dict_equal(const cz_state_dict *a, const cz_state_dict *b)
{
    CZ__OWN_FLOATS;
    if (!a || !b || a->count != b->count)
        return a == b;
    for (int64_t i = 0; i < a->count; i++) {
        const cz__state_entry *entry = cz__state_find(b, a->entries[i]->key);
        if (!entry || !equal_values(&a->entries[i]->value, &entry->value))
            return false;
    }
    return true;
}
