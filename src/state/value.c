/* SPDX-License-Identifier: MIT */
/* Values: made before the dictionary changes, so that a failure leaves it as it was. */
#include "base/memory.h"
#include "base/status.h"
#include "state/object.h"

#include <inttypes.h>
#include <string.h>

void cz__state_value_clear(cz__state_value *value)
{
    switch (value->kind) {
    case CZ_STATE_TEXT:
        cz__free(value->text);
        break;
    case CZ_STATE_TEXTS:
        cz__free(value->texts.items);
        break;
    case CZ_STATE_TENSOR:
        cz__free(value->tensor.data);
        break;
    case CZ_STATE_DICT:
        value->dict->parent = NULL; /* it is nobody's now, so it can be destroyed */
        cz_state_dict_destroy(&value->dict);
        break;
    default:
        break;
    }
    value->kind = CZ_STATE_NONE;
}

static cz_status make_text(cz__state_value *out, const char *value)
{
    *out = (cz__state_value){.kind = CZ_STATE_TEXT, .text = cz__strdup(value)};
    return out->text ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "state dictionary: a text");
}

static cz_status make_texts(cz__state_value *out, const char *const *texts, int64_t count)
{
    size_t bytes, text_bytes = 0;
    for (int64_t i = 0; i < count; i++)
        text_bytes += strlen(texts[i]) + 1;
    if (__builtin_mul_overflow((size_t)count, sizeof(char *), &bytes) ||
        __builtin_add_overflow(bytes, text_bytes, &bytes))
        return cz__fail(CZ_ERR_MEMORY, "state dictionary: %" PRId64 " texts", count);
    char **items = cz__calloc(1, bytes);
    if (!items)
        return cz__fail(CZ_ERR_MEMORY, "state dictionary: %" PRId64 " texts", count);
    char *at = (char *)(items + count);
    for (int64_t i = 0; i < count; i++) {
        const size_t length = strlen(texts[i]) + 1;
        items[i] = memcpy(at, texts[i], length);
        at += length;
    }
    *out = (cz__state_value){.kind = CZ_STATE_TEXTS, .texts = {items, count}};
    return CZ_OK;
}

/* The same form with zeros; its data, device and what lies beyond its dimensions are not looked at. */
static cz_status make_tensor(cz__state_value *out, const cz_tensor *form)
{
    const int64_t count = cz_tensor_count(form);
    const size_t bytes = (size_t)count * cz_dtype_size(form->dtype);
    *out = (cz__state_value){.kind = CZ_STATE_TENSOR};
    out->tensor.dtype = form->dtype;
    out->tensor.dimensions = form->dimensions;
    memcpy(out->tensor.shape, form->shape, (size_t)form->dimensions * sizeof *form->shape);
    out->tensor.data = cz__allocate(CZ_MEMORY_STATE_DICT, bytes);
    return out->tensor.data
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "state dictionary: a tensor of %zu bytes", bytes);
}

static cz_status copy_tensor(cz__state_value *out, const cz_tensor *from)
{
    CZ_TRY(make_tensor(out, from));
    const size_t bytes = (size_t)cz_tensor_count(from) * cz_dtype_size(from->dtype);
    if (bytes > 0)
        memcpy(out->tensor.data, from->data, bytes);
    return CZ_OK;
}

cz_status cz__state_value_copy(cz__state_value *out, const cz__state_value *value,
                               const cz_state_dict *dict)
{
    switch (value->kind) {
    case CZ_STATE_TEXT:
        return make_text(out, value->text);
    case CZ_STATE_TEXTS:
        return make_texts(out, (const char *const *)value->texts.items, value->texts.count);
    case CZ_STATE_TENSOR:
        return copy_tensor(out, &value->tensor);
    case CZ_STATE_DICT:
        *out = (cz__state_value){.kind = CZ_STATE_DICT};
        return cz__state_dict_copy(&out->dict, value->dict, dict);
    default:
        *out = *value;
        return CZ_OK;
    }
}

cz_status cz_state_dict_set_integer(cz_state_dict *dict, const char *key, int64_t value)
{
    CZ_TRY(cz__state_check(dict, key));
    return cz__state_put(dict, key, &(cz__state_value){.kind = CZ_STATE_INTEGER, .integer = value});
}

cz_status cz_state_dict_set_real(cz_state_dict *dict, const char *key, double value)
{
    CZ_TRY(cz__state_check(dict, key));
    return cz__state_put(dict, key, &(cz__state_value){.kind = CZ_STATE_REAL, .real = value});
}

cz_status cz_state_dict_set_text(cz_state_dict *dict, const char *key, const char *value)
{
    cz__state_value made;
    CZ_TRY(cz__state_check(dict, key));
    if (!value)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is given a text that is NULL");
    CZ_TRY(make_text(&made, value));
    return cz__state_put(dict, key, &made);
}

cz_status cz_state_dict_set_texts(cz_state_dict *dict, const char *key, const char *const *texts,
                                  int64_t count)
{
    cz__state_value made;
    CZ_TRY(cz__state_check(dict, key));
    if (count < 0 || (uint64_t)count > PTRDIFF_MAX / sizeof *texts || (count > 0 && !texts))
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is given %" PRId64 " texts, %s", count,
                              texts ? "wanted are 0 to as many as memory holds"
                                    : "and the list is NULL");
    for (int64_t i = 0; i < count; i++)
        if (!texts[i])
            return cz__state_fail(CZ_ERR_ARGUMENT, dict, key,
                                  "is given %" PRId64 " texts, number %" PRId64 " is NULL", count,
                                  i);
    CZ_TRY(make_texts(&made, texts, count));
    return cz__state_put(dict, key, &made);
}

/* Is that the form of a tensor whose bytes can be counted? */
static cz_status check_form(const cz_state_dict *dict, const char *key, const cz_tensor *form)
{
    const int64_t count = cz_tensor_count(form);
    const size_t size = cz_dtype_size(form->dtype);
    if (size == 0)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "has type %d, which does not exist",
                              (int)form->dtype);
    if (count < 0 || (uint64_t)count > PTRDIFF_MAX / size)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key,
                              "has a bad shape (%d dimensions): one below 0, more than %d of them, "
                              "or too many elements",
                              form->dimensions, CZ_MAX_DIMENSIONS);
    return CZ_OK;
}

cz_status cz_state_dict_set_tensor(cz_state_dict *dict, const char *key, const cz_tensor *value)
{
    cz__state_value made;
    CZ_TRY(cz__state_check(dict, key));
    if (!value)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is given a tensor that is NULL");
    CZ_TRY(check_form(dict, key, value));
    if (value->layout != CZ_DENSE || (value->device && value->device != cz_device_cpu()))
        return cz__state_fail(CZ_ERR_UNSUPPORTED, dict, key, "is given a tensor that is %s",
                              value->layout == CZ_DENSE ? "not on the CPU" : "not dense");
    if (!value->data && cz_tensor_count(value) > 0)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is given %" PRId64 " elements at NULL",
                              cz_tensor_count(value));
    CZ_TRY(copy_tensor(&made, value));
    return cz__state_put(dict, key, &made);
}

static cz_status check_new(const cz_state_dict *dict, const char *key)
{
    CZ_TRY(cz__state_check(dict, key));
    if (cz__state_find(dict, key))
        return cz__state_fail(CZ_ERR_STATE, dict, key, "exists already");
    return CZ_OK;
}

cz_status cz_state_dict_add_tensor(cz_state_dict *dict, const char *key, cz_dtype dtype,
                                   int dimensions, const int64_t *shape, void **data)
{
    cz__state_value made;
    cz_tensor form = {.dtype = dtype, .dimensions = dimensions};
    CZ_TRY(check_new(dict, key));
    if (!data || (dimensions > 0 && !shape))
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "cannot be added: %s is NULL",
                              data ? "shape" : "data");
    if (dimensions > 0 && dimensions <= CZ_MAX_DIMENSIONS)
        memcpy(form.shape, shape, (size_t)dimensions * sizeof *shape);
    CZ_TRY(check_form(dict, key, &form));
    CZ_TRY(make_tensor(&made, &form));
    void *const address = made.tensor.data;
    CZ_TRY(cz__state_put(dict, key, &made));
    *data = address;
    return CZ_OK;
}

cz_status cz_state_dict_add_dict(cz_state_dict *dict, const char *key, cz_state_dict **child)
{
    cz__state_value made = {.kind = CZ_STATE_DICT};
    CZ_TRY(check_new(dict, key));
    if (!child)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "cannot be added: child is NULL");
    if (dict->depth >= CZ_STATE_MAX_DEPTH)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "would be level %d, there are at most %d",
                              dict->depth + 1, CZ_STATE_MAX_DEPTH);
    CZ_TRY(cz__state_dict_make(&made.dict, dict));
    cz_state_dict *const borrowed = made.dict;
    CZ_TRY(cz__state_put(dict, key, &made));
    *child = borrowed;
    return CZ_OK;
}

cz_status cz_state_dict_set_dict(cz_state_dict *dict, const char *key, const cz_state_dict *source)
{
    cz__state_value made = {.kind = CZ_STATE_DICT};
    CZ_TRY(cz__state_check(dict, key));
    if (!source)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is given a dictionary that is NULL");
    if (dict->depth + cz__state_dict_levels(source) > CZ_STATE_MAX_DEPTH)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key,
                              "would have level %d, there are at most %d",
                              dict->depth + cz__state_dict_levels(source), CZ_STATE_MAX_DEPTH);
    CZ_TRY(cz__state_dict_copy(&made.dict, source, dict));
    return cz__state_put(dict, key, &made);
}
