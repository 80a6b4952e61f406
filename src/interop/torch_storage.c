/* SPDX-License-Identifier: MIT */
/* Storages of a file for torch: a tensor in the pickle, and an entry with its elements. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "interop/consolidated.h"
#include "interop/torch_write.h"
#include "io/container.h"

typedef cz__torch_writing writing;
typedef cz__torch_payload payload;

cz_status cz__torch_no_memory(void)
{
    return cz__fail(CZ_ERR_MEMORY, "checkpoint export: no memory for what a file for torch holds");
}

/* ---- in the pickle ---- */

void cz__torch_put_ordered_dict(cz__pickling *p)
{
    cz__pickle_put_global(p, "collections", "OrderedDict");
    cz__pickle_op(p, CZ__PICKLE_OP_EMPTY_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_REDUCE);
}

static const char *storage_name(cz_dtype dtype)
{
    switch ((int)dtype) {
    case CZ__TYPE_BOOL:
        return "BoolStorage";
    case CZ__TYPE_I8:
        return "CharStorage";
    case CZ__TYPE_I16:
        return "ShortStorage";
    case CZ__TYPE_C64:
        return "ComplexFloatStorage";
    case CZ__TYPE_C128:
        return "ComplexDoubleStorage";
    case CZ_F32:
        return "FloatStorage";
    case CZ_F64:
        return "DoubleStorage";
    case CZ_F16:
        return "HalfStorage";
    case CZ_BF16:
        return "BFloat16Storage";
    case CZ_I32:
        return "IntStorage";
    case CZ_I64:
        return "LongStorage";
    case CZ_U8:
        return "ByteStorage";
    default:
        return NULL;
    }
}

static void put_numbers(cz__pickling *p, const int64_t *numbers, int count)
{
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    for (int i = 0; i < count; i++)
        cz__pickle_put_integer(p, numbers[i]);
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
}

/* ('storage', torch.FloatStorage, '7', 'cpu', 12) */
static void put_storage(cz__pickling *p, cz_dtype dtype, int64_t key, int64_t count)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, key);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    cz__pickle_put_text(p, "storage");
    cz__pickle_put_global(p, "torch", storage_name(dtype));
    cz__pickle_put_text(p, text);
    cz__pickle_put_text(p, "cpu");
    cz__pickle_put_integer(p, count);
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_PERSISTENT);
}

/* The call that makes it: _rebuild_tensor_v2(storage, offset, size, stride, requires_grad,
 * hooks). */
static void put_form(cz__pickling *p, cz_dtype dtype, int64_t key, int dimensions,
                     const int64_t *shape)
{
    int64_t strides[CZ_MAX_DIMENSIONS], count = 1;
    for (int d = 0; d < dimensions; d++)
        count = shape[d] == 0 ? 0 : count;
    for (int64_t d = dimensions - 1, product = 1; d >= 0; d--) {
        strides[d] = product;
        product *= count > 0 ? shape[d] : 1; /* without elements the product may not fit */
    }
    for (int d = 0; d < dimensions && count > 0; d++)
        count *= shape[d];
    cz__pickle_put_global(p, "torch._utils", "_rebuild_tensor_v2");
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    put_storage(p, dtype, key, count);
    cz__pickle_put_integer(p, 0);
    put_numbers(p, shape, dimensions);
    put_numbers(p, strides, dimensions);
    cz__pickle_put_bool(p, false);
    cz__torch_put_ordered_dict(p);
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_REDUCE);
}

/* A tensor with a storage of its own, which the caller fills in. */
cz_status cz__torch_put_tensor(writing *w, const char *name, cz_dtype dtype, int dimensions,
                               const int64_t *shape, payload **out)
{
    if (!storage_name(dtype))
        return cz__fail(
            CZ_ERR_UNSUPPORTED,
            "checkpoint export: '%.100s': a file for torch has no tensors of type %s that "
            "every torch reads: write a safetensors file",
            name, cz__type_shown(dtype));
    payload *payloads = cz__grow(w->payloads, w->count, &w->capacity, sizeof *payloads);
    if (!payloads)
        return cz__torch_no_memory();
    w->payloads = payloads;
    put_form(&w->p, dtype, w->count, dimensions, shape);
    *out = &w->payloads[w->count];
    **out = (payload){.dtype = dtype,
                      .bytes =
                          (uint64_t)cz__type_units(dtype, dimensions, shape) * cz__type_unit(dtype),
                      .elements = w->what->elements};
    snprintf((*out)->entry, sizeof(*out)->entry, "archive/data/%" PRId64, w->count);
    w->count++;
    return CZ_OK;
}

/* A value (slot NULL), or a slot in its shape. */
cz_status cz__torch_put_stored(writing *w, const cz__stored *stored, const char *slot,
                               cz_dtype dtype)
{
    payload *to;
    CZ_TRY(cz__consolidated_name(&w->name, stored->name, slot));
    CZ_TRY(cz__torch_put_tensor(w, cz__text_get(&w->name), dtype, stored->dimensions, stored->shape,
                                &to));
    to->tensor = cz__strdup(cz__text_get(&w->name));
    return to->tensor ? CZ_OK : cz__torch_no_memory();
}

/* As torch has it: a tensor without dimensions. */
cz_status cz__torch_put_scalar(writing *w, cz_dtype dtype, double number)
{
    payload *to;
    CZ_TRY(cz__torch_put_tensor(w, "step", dtype, 0, NULL, &to));
    to->f32 = (float)number;
    to->f64 = number;
    return CZ_OK;
}

/* ---- in the file ---- */

static cz_status read_memory(uint64_t offset, void *to, size_t count, void *context)
{
    memcpy(to, (const char *)context + offset, count);
    return CZ_OK;
}

/* Parts are of whole elements: all but the last are of a size that is a power of two. */
static cz_status read_payload(uint64_t offset, void *to, size_t count, void *context)
{
    const payload *p = context;
    const size_t size = cz__type_unit(p->dtype);
    return cz__bundle_read(p->elements, p->tensor, (int64_t)(offset / size),
                           (int64_t)((offset + count) / size), to);
}

static cz__container_item item_of(payload *p)
{
    cz__container_item item = {p->entry, p->bytes, read_payload, p};
    if (p->tensor)
        return item;
    item.read = read_memory;
    item.context = p->dtype == CZ_F32 ? (void *)&p->f32 : (void *)&p->f64;
    if (p->memory)
        item.context = (void *)(uintptr_t)p->memory;
    return item;
}

cz_status cz__torch_list_items(writing *w, cz__container_item **out, int64_t *count)
{
    static char order[] = "little", version[] = "3\n";
    static char names[][24] = {"archive/data.pkl", "archive/byteorder", "archive/version"};
    cz__container_item *items = *out = cz__calloc((size_t)w->count + 3, sizeof *items);
    *count = w->count + 3;
    if (!items)
        return cz__torch_no_memory();
    items[0] = (cz__container_item){names[0], w->p.out.count, read_memory, w->p.out.bytes};
    items[1] = (cz__container_item){names[1], sizeof order - 1, read_memory, order};
    for (int64_t i = 0; i < w->count; i++)
        items[2 + i] = item_of(&w->payloads[i]);
    items[2 + w->count] = (cz__container_item){names[2], sizeof version - 1, read_memory, version};
    return CZ_OK;
}

cz_status cz__torch_write_entries(writing *w, const char *path)
{
    cz__container_item *items;
    int64_t count;
    CZ_TRY(cz__torch_list_items(w, &items, &count));
    const cz_status status = cz__container_write(path, items, count);
    cz__free(items);
    return status;
}

void cz__torch_writing_clear(writing *w)
{
    for (int64_t i = 0; i < w->count; i++)
        cz__free(w->payloads[i].tensor);
    cz__free(w->payloads);
    cz__text_clear(&w->p.out);
    cz__text_clear(&w->name);
}
