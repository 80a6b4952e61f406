/* SPDX-License-Identifier: MIT */
/* Tensors of torch: views of storages, checked before they are believed, and their elements. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "interop/consolidated.h"
#include "interop/torch.h"
#include "tensor/model.h"

/* ---- tensors ---- */

/* ---- the storage ---- */

typedef struct storage {
    const cz__pickle_global *type;
    const char *key;
    int64_t count; /* elements; of an untyped one bytes */
} storage;

static cz_status bad(const cz__torch *t, const char *name, const char *what)
{
    return cz__fail(CZ_ERR_FORMAT, "%s: tensor '%s': %s", cz__text_get(&t->where),
                    cz__show(name).text, what);
}

/* ('storage', type, key, location, count) */
static cz_status read_storage(const cz__torch *t, const cz__pickle_value *v, const char *name,
                              storage *s)
{
    const cz__pickle *p = t->pickle;
    if (v->kind != CZ__PICKLE_PERSISTENT)
        return bad(t, name, "it is over something that is no storage");
    v = cz__pickle_item(p, v, 0); /* a tuple */
    if (v->count != 5 || !cz__pickle_is_text(cz__pickle_item(p, v, 0), "storage"))
        return bad(t, name, "it is over something that is no storage");
    const cz__pickle_value *type = cz__pickle_item(p, v, 1), *key = cz__pickle_item(p, v, 2);
    const cz__pickle_value *count = cz__pickle_item(p, v, 4);
    if (type->kind != CZ__PICKLE_GLOBAL || type->global->role != CZ__PICKLE_STORAGE ||
        key->kind != CZ__PICKLE_TEXT || count->kind != CZ__PICKLE_INTEGER || count->integer < 0)
        return bad(t, name, "its storage has no type, key or size");
    *s = (storage){type->global, key->text, count->integer};
    return CZ_OK;
}

static int by_name(const void *name, const void *entry)
{
    return strcmp(name, ((const cz__container_entry *)entry)->name);
}

static cz_status find_storage(const cz__torch *t, const storage *s, const char *name,
                              uint64_t bytes, const cz__container_entry **entry)
{
    cz__text path = {0};
    cz__text_print(&path, "%s%s", cz__text_get(&t->prefix), s->key);
    if (path.failed)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", t->path);
    *entry = t->entry_count > 0 ? bsearch(cz__text_get(&path), t->entries, (size_t)t->entry_count,
                                          sizeof *t->entries, by_name)
                                : NULL;
    cz__text_clear(&path);
    if (!*entry)
        return cz__fail(CZ_ERR_FORMAT, "%s: tensor '%s': its storage '%s' is not in the file",
                        t->path, cz__show(name).text, cz__show(s->key).text);
    if ((*entry)->unusual)
        return cz__fail(
            CZ_ERR_FORMAT,
            "%s: tensor '%s': its storage '%s' is %s, wanted it as it is: torch writes it so",
            t->path, cz__show(name).text, cz__show(s->key).text, (*entry)->unusual);
    if ((*entry)->bytes != bytes)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: tensor '%s': its storage '%s' has %" PRIu64 " bytes, wanted %" PRIu64,
                        t->path, cz__show(name).text, cz__show(s->key).text, (*entry)->bytes,
                        bytes);
    return CZ_OK;
}

/* ---- the view ---- */

/* A tuple of numbers that are 0 or more. */
static cz_status read_numbers(const cz__torch *t, const cz__pickle_value *v, const char *name,
                              const char *what, int64_t *numbers)
{
    if (v->kind != CZ__PICKLE_TUPLE)
        return bad(t, name, what);
    for (int64_t i = 0; i < v->count; i++) {
        const cz__pickle_value *number = cz__pickle_item(t->pickle, v, i);
        if (number->kind != CZ__PICKLE_INTEGER || number->integer < 0)
            return bad(t, name, what);
        numbers[i] = number->integer;
    }
    return CZ_OK;
}

static cz_status read_shape(const cz__torch *t, const cz__pickle_value *arguments, const char *name,
                            cz__torch_tensor *tensor)
{
    const cz__pickle_value *size = cz__pickle_item(t->pickle, arguments, 2);
    const cz__pickle_value *stride = cz__pickle_item(t->pickle, arguments, 3);
    if (size->kind != CZ__PICKLE_TUPLE || stride->kind != CZ__PICKLE_TUPLE ||
        size->count != stride->count)
        return bad(t, name, "it has not as many strides as dimensions");
    if (size->count > CZ_MAX_DIMENSIONS)
        return cz__fail(
            CZ_ERR_UNSUPPORTED, "%s: tensor '%s' has %" PRId64 " dimensions, at most %d",
            cz__text_get(&t->where), cz__show(name).text, size->count, CZ_MAX_DIMENSIONS);
    tensor->form.dimensions = (int)size->count;
    CZ_TRY(read_numbers(t, size, name, "a size that is no number from 0 on", tensor->form.shape));
    return read_numbers(t, stride, name, "a stride that is no number from 0 on", tensor->strides);
}

/* How many elements it has, and the last place of the storage that it reaches. */
static bool measure(const cz__torch_tensor *tensor, int64_t offset, int64_t *count, int64_t *last)
{
    *count = 1;
    *last = offset;
    for (int d = 0; d < tensor->form.dimensions; d++)
        if (tensor->form.shape[d] == 0)
            *count = 0;
    if (*count > 0) {
        for (int d = 0; d < tensor->form.dimensions; d++) {
            int64_t reach;
            if (__builtin_mul_overflow(*count, tensor->form.shape[d], count) ||
                __builtin_mul_overflow(tensor->form.shape[d] - 1, tensor->strides[d], &reach) ||
                __builtin_add_overflow(*last, reach, last))
                return false;
        }
    }
    return *count <= INT64_MAX / 16;
}

/* One without elements is so, whatever its other sizes, whose product may not fit. */
static bool is_dense(const cz__torch_tensor *tensor, int64_t count)
{
    int64_t expected = 1;
    if (count == 0)
        return true;
    for (int d = tensor->form.dimensions - 1; d >= 0; d--) {
        if (tensor->form.shape[d] != 1 && tensor->strides[d] != expected)
            return false;
        expected *= tensor->form.shape[d];
    }
    return true;
}

/* The type of the elements: the storage's, or the one that is said beside. */
static cz_status find_type(const cz__torch *t, const cz__pickle_value *call, const storage *s,
                           const char *name, const cz__pickle_global **type)
{
    const cz__pickle_value *arguments = cz__pickle_item(t->pickle, call, 1);
    *type = s->type;
    if (cz__pickle_item(t->pickle, call, 0)->global->role == CZ__PICKLE_REBUILD_AS) {
        const cz__pickle_value *v = cz__pickle_item(t->pickle, arguments, 6);
        if (v->kind != CZ__PICKLE_GLOBAL || v->global->role != CZ__PICKLE_DTYPE)
            return bad(t, name, "its type is none");
        *type = v->global;
    }
    return (*type)->dtype ? CZ_OK
                          : cz__fail(CZ_ERR_UNSUPPORTED,
                                     "%s: tensor '%s' is of torch.%s, which the library has not",
                                     cz__text_get(&t->where), cz__show(name).text, (*type)->name);
}

/* Bits that say that elements are to be negated or conjugated when they are read. */
static cz_status check_metadata(const cz__torch *t, const cz__pickle_value *arguments, int64_t at,
                                const char *name)
{
    if (at >= arguments->count)
        return CZ_OK;
    const cz__pickle_value *v = cz__pickle_item(t->pickle, arguments, at);
    if (v->kind == CZ__PICKLE_NONE || (v->kind == CZ__PICKLE_DICT && v->count == 0))
        return CZ_OK;
    return bad(t, name, "a view that is negated or conjugated: save its .resolve_neg()");
}

static cz_status check_call(const cz__torch *t, const cz__pickle_value *call, const char *name,
                            const cz__pickle_value **arguments)
{
    if (call->kind == CZ__PICKLE_OPAQUE && call->note)
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: '%s' is of %s.%s: the library has no %s",
                        cz__text_get(&t->where), cz__show(name).text, call->module, call->name,
                        call->note);
    if (call->kind == CZ__PICKLE_OPAQUE)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: '%s' is of %s%s%s, wanted a tensor: nothing was executed",
                        cz__text_get(&t->where), cz__show(name).text, cz__show(call->module).text,
                        call->module[0] ? "." : "", cz__show(call->name).text);
    if (call->kind != CZ__PICKLE_CALL)
        return cz__fail(CZ_ERR_FORMAT, "%s: '%s' is %s, wanted a tensor", cz__text_get(&t->where),
                        cz__show(name).text, cz__pickle_kind_name(call->kind));
    *arguments = cz__pickle_item(t->pickle, call, 1);
    const int least =
        cz__pickle_item(t->pickle, call, 0)->global->role == CZ__PICKLE_REBUILD_AS ? 7 : 6;
    if ((*arguments)->count < least || (*arguments)->count > least + 1)
        return bad(t, name, "it is built from more or fewer values than there are");
    return check_metadata(t, *arguments, least, name);
}

/* Put the view over its storage. */
static cz_status place(const cz__torch *t, const storage *s, const cz__pickle_global *type,
                       int64_t offset, cz__torch_tensor *tensor)
{
    int64_t count, last;
    uint64_t bytes;
    const uint64_t size = cz__type_unit(type->dtype);
    const uint64_t unit = s->type->bytes ? (uint64_t)s->type->bytes : 1;
    if (s->type->bytes && s->type->bytes != type->bytes)
        return bad(t, tensor->form.name, "its type has not the size of its storage's");
    if (!measure(tensor, offset, &count, &last) ||
        __builtin_mul_overflow((uint64_t)s->count, unit, &bytes) ||
        (count > 0 && (uint64_t)last >= bytes / size))
        return bad(t, tensor->form.name, "it reaches beyond its storage");
    tensor->form.dtype = type->dtype;
    tensor->form.begin = 0;
    tensor->form.end = (uint64_t)count * size;
    tensor->dense = is_dense(tensor, count);
    tensor->swap = t->big_endian && size > 1;
    if (count == 0)
        return CZ_OK;
    CZ_TRY(find_storage(t, s, tensor->form.name, bytes, &tensor->storage));
    tensor->first = (uint64_t)offset * size;
    return CZ_OK;
}

cz_status cz__torch_tensor_of(const cz__torch *t, const cz__pickle_value *value, const char *name,
                              cz__torch_tensor *tensor)
{
    storage s = {0};
    const cz__pickle_value *arguments = NULL;
    const cz__pickle_global *type;
    *tensor = (cz__torch_tensor){.form.name = name};
    if (t->store)
        return t->store->tensor_of(t, value, name, tensor);
    CZ_TRY(check_call(t, value, name, &arguments));
    CZ_TRY(read_storage(t, cz__pickle_item(t->pickle, arguments, 0), name, &s));
    CZ_TRY(find_type(t, value, &s, name, &type));
    CZ_TRY(read_shape(t, arguments, name, tensor));
    const cz__pickle_value *offset = cz__pickle_item(t->pickle, arguments, 1);
    if (offset->kind != CZ__PICKLE_INTEGER || offset->integer < 0)
        return bad(t, name, "its offset is no number from 0 on");
    return place(t, &s, type, offset->integer, tensor);
}

/* ---- elements ---- */

static cz_status read_bytes(const cz__torch *t, const cz__torch_tensor *tensor, uint64_t offset,
                            void *to, size_t count)
{
    if (t->reader)
        return cz__reader_read_verified(t->reader, t->part, t->held,
                                        tensor->storage->offset + offset - t->part->begin, to,
                                        count);
    if (t->container)
        return cz__container_read(t->container, tensor->storage, offset, to, count);
    memset(to, 0, count);
    return CZ_OK;
}

static void swap_elements(char *to, size_t size, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        for (size_t k = 0; k < size / 2; k++) {
            char *a = to + (size_t)i * size + k, *b = to + (size_t)i * size + size - 1 - k;
            const char held = *a;
            *a = *b;
            *b = held;
        }
}

/* Elements wherever their strides put them; runs of the last dimension are read at once where they
 * lie together. */
static cz_status gather(const cz__torch *t, const cz__torch_tensor *tensor, int64_t begin,
                        int64_t end, char *to)
{
    const int last = tensor->form.dimensions - 1; /* one without dimensions is dense */
    const uint64_t size = cz__type_unit(tensor->form.dtype);
    const int64_t row = tensor->form.shape[last];
    const uint64_t step = (uint64_t)tensor->strides[last] * size;
    if (row <= 0)
        return CZ_OK;
    for (int64_t at = begin; at < end;) {
        uint64_t offset = tensor->first + (uint64_t)(at % row) * step;
        int64_t rest = at / row, count = row - at % row;
        for (int d = last - 1; d >= 0; rest /= tensor->form.shape[d--])
            offset +=
                (uint64_t)(rest % tensor->form.shape[d]) * (uint64_t)tensor->strides[d] * size;
        count = count < end - at ? count : end - at;
        if (step == size)
            CZ_TRY(read_bytes(t, tensor, offset, to, (size_t)count * size));
        if (step != size)
            for (int64_t i = 0; i < count; i++, offset += step)
                CZ_TRY(read_bytes(t, tensor, offset, to + (size_t)i * size, size));
        to += (size_t)count * size;
        at += count;
    }
    return CZ_OK;
}

cz_status cz__torch_read(const cz__torch *t, const cz__torch_tensor *tensor, int64_t begin,
                         int64_t end, void *to)
{
    const size_t size = cz__type_unit(tensor->form.dtype);
    if (begin >= end)
        return CZ_OK;
    if (t->store)
        return t->store->read(t, tensor, begin, end, to);
    CZ_TRY(tensor->dense ? read_bytes(t, tensor, tensor->first + (uint64_t)begin * size, to,
                                      (size_t)(end - begin) * size)
                         : gather(t, tensor, begin, end, to));
    if (tensor->swap && cz__type_is_complex(tensor->form.dtype)) /* of two numbers each */
        swap_elements(to, size / 2, 2 * (end - begin));
    else if (tensor->swap)
        swap_elements(to, size, end - begin);
    return CZ_OK;
}

/* ---- numbers ---- */

/* The only element of a tensor. */
static cz_status read_number(const cz__torch *t, const cz__torch_tensor *tensor, double *number,
                             int64_t *integer)
{
    union {
        char bytes[8];
        int64_t i64;
        int32_t i32;
        uint8_t u8;
    } element;
    const cz_dtype dtype = tensor->form.dtype;
    CZ_TRY(cz__torch_read(t, tensor, 0, 1, &element));
    *integer = dtype == CZ_I32 ? element.i32 : element.u8;
    if (dtype == CZ_I64)
        *integer = element.i64;
    *number = (double)*integer;
    if (!cz__converts(dtype))
        return CZ_OK;
    cz__convert(CZ_F64, number, dtype, &element, 1);
    *integer = *number == floor(*number) && fabs(*number) < 0x1p62 ? (int64_t)*number : INT64_MIN;
    return CZ_OK;
}

cz_status cz__torch_number(const cz__torch *t, const cz__pickle_value *value, const char *name,
                           bool *is_number, double *number, int64_t *integer)
{
    cz__torch_tensor tensor;
    *is_number = true;
    switch (value->kind) {
    case CZ__PICKLE_BOOL:
    case CZ__PICKLE_INTEGER:
        *integer = value->integer;
        *number = (double)value->integer;
        return CZ_OK;
    case CZ__PICKLE_REAL:
        *number = value->real;
        *integer =
            *number == floor(*number) && fabs(*number) < 0x1p62 ? (int64_t)*number : INT64_MIN;
        return CZ_OK;
    case CZ__PICKLE_CALL:
        CZ_TRY(cz__torch_tensor_of(t, value, name, &tensor));
        *is_number = tensor.form.end == cz_dtype_size(tensor.form.dtype) && tensor.form.end > 0;
        return *is_number ? read_number(t, &tensor, number, integer) : CZ_OK;
    default:
        *is_number = false;
        return CZ_OK;
    }
}

/* ---- contents ---- */
/* What was read of a file of torch: tensors, notes, and how much may still be taken of it. */

cz_status cz__torch_refuse(const cz__torch_contents *c, const char *format, ...)
{
    char what[500];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return cz__fail(CZ_ERR_FORMAT, "%s: %s", cz__text_get(&c->file->where), what);
}

static cz_status no_memory(const cz__torch_contents *c)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", c->file->path);
}

cz_status cz__torch_note(cz__torch_contents *c, const char *format, ...)
{
    char what[800];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    cz__make_plain(what);
    return cz__text_print(&c->notes, "%s%s", c->notes.count ? "\n" : "", what) ? CZ_OK
                                                                               : no_memory(c);
}

bool cz__torch_knows_model(const cz__index *here)
{
    return here && (cz_state_dict_kind(here->optimizer, "param_groups") == CZ_STATE_DICT ||
                    here->param_count + here->buffer_count > 0);
}

cz_status cz__torch_contents_spend(cz__torch_contents *c)
{
    return c->values-- > 0
               ? CZ_OK
               : cz__torch_refuse(c, "the same values again and again, or in themselves");
}

/* ---- tensors ---- */

static cz_status pay_for_elements(cz__torch_contents *c, const cz__torch_tensor *tensor)
{
    char what[160];
    snprintf(what, sizeof what, "tensor '%s', a view of less,", cz__show(tensor->form.name).text);
    return cz__budget_spend(&c->elements, tensor->form.end, what);
}

cz_status cz__torch_contents_add(cz__torch_contents *c, const cz__pickle_value *value,
                                 const char *slot, const char *name, cz_dtype *dtype)
{
    cz__text full = {0};
    cz__torch_tensor *tensors = cz__grow(c->tensors, c->count, &c->capacity, sizeof *tensors);
    if (!tensors)
        return no_memory(c);
    c->tensors = tensors;
    cz__torch_tensor *tensor = &c->tensors[c->count];
    CZ_TRY(cz__torch_contents_spend(c));
    cz_status status = cz__consolidated_name(&full, name, slot);
    if (status)
        goto done;
    status = cz__torch_tensor_of(c->file, value, cz__text_get(&full), tensor);
    if (status)
        goto done;
    status = pay_for_elements(c, tensor);
done:
    tensor->form.name = status == CZ_OK ? cz__strdup(cz__text_get(&full)) : NULL;
    cz__text_clear(&full);
    if (status != CZ_OK)
        return status;
    if (!tensor->form.name)
        return no_memory(c);
    *dtype = tensor->form.dtype;
    c->count++;
    return CZ_OK;
}

void cz__torch_contents_close(cz__torch_contents **contents)
{
    if (!contents || !*contents)
        return;
    cz__torch_contents *c = *contents;
    for (int64_t i = 0; i < c->count; i++)
        cz__free((char *)(uintptr_t)c->tensors[i].form.name);
    cz__free(c->tensors);
    cz__text_clear(&c->notes);
    cz_state_dict_destroy(&c->outline);
    cz_state_dict_destroy(&c->common);
    cz__torch_close(&c->file);
    cz__free(c);
    *contents = NULL;
}
