/* SPDX-License-Identifier: MIT */
/* A state dictionary in a description: what all ranks are to have alike, the order of keys too. */
#include <stdio.h>
#include <string.h>

#include "base/fingerprint.h"
#include "collective/description.h"

static const char *const kinds[] = {"missing",         "an integer", "a real",       "a text",
                                    "a list of texts", "a tensor",   "a dictionary", NULL};

static const char next_entry[] = "has as next entry";
static const char no_more[] = "(no more)";

enum { PATH = 160 }; /* a longer one is cut: it is for sentences only */

/* "a/b of the common dictionary is". */
static void describe_bytes(cz__description *d, const char *what, const char *path, const char *says,
                           cz__field_kind kind, const void *value, size_t bytes)
{
    cz__describe(d, &(cz__subject){path, what, -1, NULL, says}, kind, value, bytes);
}

static void describe_tensor(cz__description *d, const char *what, const char *path,
                            const cz_tensor *tensor)
{
    const int64_t dtype = tensor->dtype;
    const size_t bytes = (size_t)cz_tensor_count(tensor) * cz_dtype_size(tensor->dtype);
    const int64_t print = (int64_t)cz__fingerprint_elements(0, tensor->data, bytes);
    describe_bytes(d, what, path, "has shape", CZ__FIELD_SHAPE, tensor->shape,
                   (size_t)tensor->dimensions * sizeof *tensor->shape);
    describe_bytes(d, what, path, "has type", CZ__FIELD_DTYPE, &dtype, sizeof dtype);
    describe_bytes(d, what, path, "has elements of fingerprint", CZ__FIELD_NUMBER, &print,
                   sizeof print);
}

static void describe_texts(cz__description *d, const char *what, const char *path,
                           const cz_state_dict *dict, const char *key)
{
    const char *const *texts = NULL;
    int64_t count = 0;
    (void)cz_state_dict_get_texts(dict, key, &texts, &count);
    describe_bytes(d, what, path, "has so many texts:", CZ__FIELD_NUMBER, &count, sizeof count);
    for (int64_t k = 0; k < count; k++)
        describe_bytes(d, what, path, "has the text", CZ__FIELD_TEXT, texts[k], strlen(texts[k]));
}

static void describe_value(cz__description *d, const char *what, const char *path,
                           const cz_state_dict *dict, const char *key)
{
    const int64_t kind = cz_state_dict_kind(dict, key);
    const cz_state_dict *child = NULL;
    const char *text = "";
    int64_t integer = 0;
    double real = 0;
    cz_tensor tensor;
    cz__describe_word(d, &(cz__subject){path, what, -1, NULL, "is"}, kinds, kind);
    if (kind == CZ_STATE_INTEGER && cz_state_dict_get_integer(dict, key, &integer) == CZ_OK)
        describe_bytes(d, what, path, "is", CZ__FIELD_NUMBER, &integer, sizeof integer);
    else if (kind == CZ_STATE_REAL && cz_state_dict_get_real(dict, key, &real) == CZ_OK)
        describe_bytes(d, what, path, "is", CZ__FIELD_REAL, &real, sizeof real);
    else if (kind == CZ_STATE_TEXT && cz_state_dict_get_text(dict, key, &text) == CZ_OK)
        describe_bytes(d, what, path, "is", CZ__FIELD_TEXT, text, strlen(text));
    else if (kind == CZ_STATE_TEXTS)
        describe_texts(d, what, path, dict, key);
    else if (kind == CZ_STATE_TENSOR && cz_state_dict_get_tensor(dict, key, &tensor) == CZ_OK)
        describe_tensor(d, what, path, &tensor);
    else if (kind == CZ_STATE_DICT && cz_state_dict_get_dict(dict, key, &child) == CZ_OK)
        cz__describe_dict(d, what, path, child);
}

void cz__describe_dict(cz__description *d, const char *what, const char *path,
                       const cz_state_dict *dict)
{
    char inner[PATH];
    const int64_t count = dict ? cz_state_dict_count(dict) : 0;
    for (int64_t i = 0; i < count; i++) {
        const char *key = cz_state_dict_key(dict, i);
        snprintf(inner, sizeof inner, "%s%s%s", path ? path : "", path ? "/" : "", key);
        describe_bytes(d, what, path, next_entry, CZ__FIELD_TEXT, key, strlen(key));
        describe_value(d, what, inner, dict, key);
    }
    describe_bytes(d, what, path, next_entry, CZ__FIELD_TEXT, no_more, sizeof no_more - 1);
}
