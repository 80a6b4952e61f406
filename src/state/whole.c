/* SPDX-License-Identifier: MIT */
/* Whole dictionaries: deep copies, comparison. Recursion ends at CZ_STATE_MAX_DEPTH. */
#include "base/float_mode.h"
#include "base/status.h"
#include "state/object.h"

#include <string.h>

cz_status cz__state_dict_copy(cz_state_dict **out, const cz_state_dict *source,
                              const cz_state_dict *parent)
{
    CZ_TRY(cz__state_dict_make(out, parent));
    for (int64_t i = 0; i < source->count; i++) {
        cz__state_value value;
        const cz__state_entry *entry = source->entries[i];
        cz_status status = cz__state_value_copy(&value, &entry->value, *out);
        if (status == CZ_OK)
            status = cz__state_put(*out, entry->key, &value);
        if (status != CZ_OK) {
            cz_state_dict_destroy(out);
            return status;
        }
    }
    return CZ_OK;
}

cz_status cz_state_dict_copy(cz_state_dict **out, const cz_state_dict *source)
{
    if (out)
        *out = NULL;
    if (!out || !source)
        return cz__fail(CZ_ERR_ARGUMENT, "state dictionary: %s is NULL", out ? "source" : "out");
    return cz__state_dict_copy(out, source, NULL);
}

int cz__state_dict_levels(const cz_state_dict *dict)
{
    int deepest = 0;
    for (int64_t i = 0; i < dict->count; i++) {
        const cz__state_value *value = &dict->entries[i]->value;
        const int levels = value->kind == CZ_STATE_DICT ? cz__state_dict_levels(value->dict) : 0;
        deepest = levels > deepest ? levels : deepest;
    }
    return deepest + 1;
}

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
