/* SPDX-License-Identifier: MIT */
/* State dictionaries: their keys, which are found one by one while they are few and by a table when
 * many, and the values that are put under them. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "state/object.h"

/* ---- where in a tree of dictionaries something is wrong ---- */

/* "state/w1/exp_avg"; NULL: out of memory. */
static char *path_of(const cz_state_dict *dict, const char *key)
{
    size_t bytes = strlen(key) + 1;
    for (const cz_state_dict *d = dict; d->parent; d = d->parent)
        bytes += strlen(d->key) + 1;
    char *path = cz__calloc(1, bytes);
    if (!path)
        return NULL;
    char *at = path + bytes - 1 - strlen(key);
    memcpy(at, key, strlen(key) + 1);
    for (const cz_state_dict *d = dict; d->parent; d = d->parent) {
        *--at = '/';
        at -= strlen(d->key);
        memcpy(at, d->key, strlen(d->key));
    }
    return path;
}

cz_status cz__state_fail(cz_status status, const cz_state_dict *dict, const char *key,
                         const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    char *path = path_of(dict, key);
    cz__fail(status, "state dictionary: '%s' %s", path ? path : key, what);
    cz__free(path);
    return status;
}

/* ---- values ---- */

/* Free what a value owns; it is CZ_STATE_NONE afterwards. */
static void clear_value(cz__state_value *value)
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
    return out->text ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "state dictionary: no memory for a text");
}

static cz_status make_texts(cz__state_value *out, const char *const *texts, int64_t count)
{
    size_t bytes, text_bytes = 0;
    for (int64_t i = 0; i < count; i++)
        text_bytes += strlen(texts[i]) + 1;
    if (__builtin_mul_overflow((size_t)count, sizeof(char *), &bytes) ||
        __builtin_add_overflow(bytes, text_bytes, &bytes))
        return cz__fail(CZ_ERR_MEMORY, "state dictionary: no memory for %" PRId64 " texts", count);
    char **items = cz__calloc(1, bytes);
    if (!items)
        return cz__fail(CZ_ERR_MEMORY, "state dictionary: no memory for %" PRId64 " texts", count);
    char *at = (char *)(items + count);
    for (int64_t i = 0; i < count; i++) {
        const size_t length = strlen(texts[i]) + 1;
        items[i] = memcpy(at, texts[i], length);
        at += length;
    }
    *out = (cz__state_value){.kind = CZ_STATE_TEXTS, .texts = {items, count}};
    return CZ_OK;
}

/* The same form with zeros; its data, device and what lies beyond its dimensions are not looked
 * at. */
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
               : cz__fail(CZ_ERR_MEMORY, "state dictionary: no memory for a tensor of %zu bytes",
                          bytes);
}

static cz_status copy_tensor(cz__state_value *out, const cz_tensor *from)
{
    CZ_TRY(make_tensor(out, from));
    const size_t bytes = (size_t)cz_tensor_count(from) * cz_dtype_size(from->dtype);
    if (bytes > 0)
        memcpy(out->tensor.data, from->data, bytes);
    return CZ_OK;
}

/* ---- keys ---- */

#define FEW 8

/* An empty dictionary that may go under a key of `parent`, NULL: an outermost one. */
static cz_status make_dict(cz_state_dict **out, const cz_state_dict *parent)
{
    *out = cz__calloc(1, sizeof **out);
    if (!*out)
        return cz__fail(CZ_ERR_MEMORY, "state dictionary: no memory for %zu bytes", sizeof **out);
    (*out)->depth = parent ? parent->depth + 1 : 1;
    return CZ_OK;
}

cz_status cz_state_dict_create(cz_state_dict **out)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "state dictionary: out is NULL");
    return make_dict(out, NULL);
}

void cz_state_dict_destroy(cz_state_dict **dict)
{
    cz_state_dict *d = dict ? *dict : NULL;
    if (d && !d->parent) {
        for (int64_t i = 0; i < d->count; i++) {
            clear_value(&d->entries[i]->value);
            cz__free(d->entries[i]);
        }
        cz__names_clear(&d->names);
        cz__free(d->entries);
        cz__free(d);
    }
    if (dict)
        *dict = NULL;
}

static int64_t index_of(const cz_state_dict *dict, const char *key)
{
    int64_t index = -1;
    if (dict->names.count > 0)
        return cz__names_find(&dict->names, key, &index) ? index : -1;
    for (int64_t i = 0; i < dict->count; i++)
        if (strcmp(dict->entries[i]->key, key) == 0)
            return i;
    return -1;
}

cz__state_entry *cz__state_find(const cz_state_dict *dict, const char *key)
{
    const int64_t index = index_of(dict, key);
    return index < 0 ? NULL : dict->entries[index];
}

cz_status cz__state_check(const cz_state_dict *dict, const char *key)
{
    if (!dict || !key)
        return cz__fail(CZ_ERR_ARGUMENT, "state dictionary: %s is NULL", dict ? "key" : "dict");
    if (!*key)
        return cz__fail(CZ_ERR_ARGUMENT, "state dictionary: a key is empty");
    return CZ_OK;
}

static bool reserve_entry(cz_state_dict *dict)
{
    if (dict->count < dict->capacity)
        return true;
    const int64_t capacity = dict->capacity > 0 ? 2 * dict->capacity : 4;
    cz__state_entry **entries = cz__calloc((size_t)capacity, sizeof(cz__state_entry *));
    if (!entries)
        return false;
    if (dict->count > 0)
        memcpy(entries, dict->entries, (size_t)dict->count * sizeof(cz__state_entry *));
    cz__free(dict->entries);
    dict->entries = entries;
    dict->capacity = capacity;
    return true;
}

/* The table has all keys or none. */
static bool reserve_name(cz_state_dict *dict)
{
    if (dict->names.count > 0)
        return cz__names_reserve(&dict->names, 1);
    if (dict->count < FEW)
        return true;
    if (!cz__names_reserve(&dict->names, dict->count + 1))
        return false;
    for (int64_t i = 0; i < dict->count; i++)
        cz__names_add(&dict->names, dict->entries[i]->key, i);
    return true;
}

/* A new entry without a value; NULL: out of memory. */
static cz__state_entry *append(cz_state_dict *dict, const char *key)
{
    const size_t key_bytes = strlen(key) + 1;
    cz__state_entry *entry = cz__calloc(1, sizeof *entry + key_bytes);
    if (!entry || !reserve_entry(dict) || !reserve_name(dict)) {
        cz__free(entry);
        return NULL;
    }
    memcpy(entry->key, key, key_bytes);
    if (dict->names.count > 0)
        cz__names_add(&dict->names, entry->key, dict->count);
    dict->entries[dict->count++] = entry;
    return entry;
}

/* Give the key this value, which is consumed, whatever comes out; what it had is freed. */
static cz_status put_value(cz_state_dict *dict, const char *key, cz__state_value *value)
{
    cz__state_entry *entry = cz__state_find(dict, key);
    if (!entry && !(entry = append(dict, key))) {
        clear_value(value);
        return cz__state_fail(CZ_ERR_MEMORY, dict, key, "could not be added: out of memory");
    }
    /* From here on `key` may be gone: it may be a text in the value. */
    clear_value(&entry->value);
    entry->value = *value;
    if (value->kind == CZ_STATE_DICT) {
        value->dict->parent = dict;
        value->dict->key = entry->key;
    }
    return CZ_OK;
}

int64_t cz_state_dict_count(const cz_state_dict *dict)
{
    return dict ? dict->count : -1;
}

const char *cz_state_dict_key(const cz_state_dict *dict, int64_t index)
{
    return dict && index >= 0 && index < dict->count ? dict->entries[index]->key : NULL;
}

cz_state_kind cz_state_dict_kind(const cz_state_dict *dict, const char *key)
{
    const cz__state_entry *entry = dict && key ? cz__state_find(dict, key) : NULL;
    return entry ? entry->value.kind : CZ_STATE_NONE;
}

cz_status cz_state_dict_remove(cz_state_dict *dict, const char *key)
{
    CZ_TRY(cz__state_check(dict, key));
    const int64_t index = index_of(dict, key);
    if (index < 0)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is not there, nothing to remove");
    cz__state_entry *entry = dict->entries[index], *last = dict->entries[dict->count - 1];
    if (dict->names.count > 0) {
        cz__names_remove(&dict->names, entry->key);
        if (last != entry) {
            cz__names_remove(&dict->names, last->key);
            cz__names_add(&dict->names, last->key, index);
        }
    }
    dict->entries[index] = last;
    dict->count--;
    clear_value(&entry->value);
    cz__free(entry);
    return CZ_OK;
}

/* ---- deep copies; recursion ends at CZ_STATE_MAX_DEPTH ---- */

static cz_status copy_dict(cz_state_dict **out, const cz_state_dict *source,
                           const cz_state_dict *parent);

/* A copy that may be put into `dict`. */
static cz_status copy_value(cz__state_value *out, const cz__state_value *value,
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
        return copy_dict(&out->dict, value->dict, dict);
    default:
        *out = *value;
        return CZ_OK;
    }
}

/* A copy that may go under a key of `parent`, NULL: an outermost one. */
static cz_status copy_dict(cz_state_dict **out, const cz_state_dict *source,
                           const cz_state_dict *parent)
{
    CZ_TRY(make_dict(out, parent));
    for (int64_t i = 0; i < source->count; i++) {
        cz__state_value value;
        const cz__state_entry *entry = source->entries[i];
        cz_status status = copy_value(&value, &entry->value, *out);
        if (!status)
            status = put_value(*out, entry->key, &value);
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
    return copy_dict(out, source, NULL);
}

/* Levels of nesting, 1 without any. */
static int count_levels(const cz_state_dict *dict)
{
    int deepest = 0;
    for (int64_t i = 0; i < dict->count; i++) {
        const cz__state_value *value = &dict->entries[i]->value;
        const int levels = value->kind == CZ_STATE_DICT ? count_levels(value->dict) : 0;
        deepest = levels > deepest ? levels : deepest;
    }
    return deepest + 1;
}

/* ---- set: a value is made first, so that a failure changes nothing ---- */

cz_status cz_state_dict_set_integer(cz_state_dict *dict, const char *key, int64_t value)
{
    CZ_TRY(cz__state_check(dict, key));
    return put_value(dict, key, &(cz__state_value){.kind = CZ_STATE_INTEGER, .integer = value});
}

cz_status cz_state_dict_set_real(cz_state_dict *dict, const char *key, double value)
{
    CZ_TRY(cz__state_check(dict, key));
    return put_value(dict, key, &(cz__state_value){.kind = CZ_STATE_REAL, .real = value});
}

cz_status cz_state_dict_set_text(cz_state_dict *dict, const char *key, const char *value)
{
    cz__state_value made;
    CZ_TRY(cz__state_check(dict, key));
    if (!value)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is given a text that is NULL");
    CZ_TRY(make_text(&made, value));
    return put_value(dict, key, &made);
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
    return put_value(dict, key, &made);
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
    return put_value(dict, key, &made);
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
    CZ_TRY(put_value(dict, key, &made));
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
    CZ_TRY(make_dict(&made.dict, dict));
    cz_state_dict *const borrowed = made.dict;
    CZ_TRY(put_value(dict, key, &made));
    *child = borrowed;
    return CZ_OK;
}

cz_status cz_state_dict_set_dict(cz_state_dict *dict, const char *key, const cz_state_dict *source)
{
    cz__state_value made = {.kind = CZ_STATE_DICT};
    CZ_TRY(cz__state_check(dict, key));
    if (!source)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is given a dictionary that is NULL");
    if (dict->depth + count_levels(source) > CZ_STATE_MAX_DEPTH)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key,
                              "would have level %d, there are at most %d",
                              dict->depth + count_levels(source), CZ_STATE_MAX_DEPTH);
    CZ_TRY(copy_dict(&made.dict, source, dict));
    return put_value(dict, key, &made);
}
