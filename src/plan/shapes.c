/* SPDX-License-Identifier: MIT */
/* Lists of shapes. */
#include "plan/object.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "tensor/model.h"

static const int64_t most_elements = INT64_MAX / 64; /* so that no number of bytes overflows */

cz_status cz_shapes_create(cz_shapes **out)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "shapes: out is NULL");
    *out = cz__calloc(1, sizeof **out);
    return *out ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "shapes: no memory for a handle");
}

void cz_shapes_destroy(cz_shapes **shapes)
{
    if (!shapes || !*shapes)
        return;
    cz__free((*shapes)->elements);
    cz__free((*shapes)->dtypes);
    cz__free((*shapes)->kinds);
    cz__free((*shapes)->dimensions);
    cz__free((*shapes)->sizes);
    cz__free((*shapes)->layout);
    cz__free(*shapes);
    *shapes = NULL;
}

/* Room for one more in all lists. */
static cz_status reserve(cz_shapes *s)
{
    int64_t capacity[4] = {s->capacity, s->capacity, s->capacity, s->capacity};
    int64_t *elements = cz__grow(s->elements, s->count, &capacity[0], sizeof *elements);
    if (elements)
        s->elements = elements;
    uint8_t *dtypes = elements ? cz__grow(s->dtypes, s->count, &capacity[1], 1) : NULL;
    if (dtypes)
        s->dtypes = dtypes;
    uint8_t *kinds = dtypes ? cz__grow(s->kinds, s->count, &capacity[2], 1) : NULL;
    if (kinds)
        s->kinds = kinds;
    uint8_t *dimensions = kinds ? cz__grow(s->dimensions, s->count, &capacity[3], 1) : NULL;
    if (!dimensions)
        return cz__fail(CZ_ERR_MEMORY, "shapes: no memory for a list of %" PRId64 " tensors",
                        s->count + 1);
    s->dimensions = dimensions;
    s->capacity = capacity[3];
    return CZ_OK;
}

/* They are there once they are counted. */
static cz_status write_sizes(cz_shapes *s, const cz_tensor *tensor)
{
    for (int d = 0; d < tensor->dimensions; d++) {
        int64_t *sizes = cz__grow(s->sizes, s->size_count + d, &s->size_capacity, sizeof *sizes);
        if (!sizes)
            return cz__fail(CZ_ERR_MEMORY, "shapes: no memory for a list of %" PRId64 " sizes",
                            s->size_count + d + 1);
        s->sizes = sizes;
        s->sizes[s->size_count + d] = tensor->shape[d];
    }
    return CZ_OK;
}

static cz_status append(cz_shapes *s, size_t name_bytes, const cz_tensor *tensor, int64_t elements,
                        cz_shape_kind kind)
{
    const cz_dtype dtype = tensor->dtype;
    const int64_t all = s->sums[0].elements + s->sums[1].elements + s->sums[2].elements;
    if (elements > most_elements - all)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "shapes: a tensor of %" PRId64 " elements after %" PRId64
                        " in those before it: more than can be counted",
                        elements, all);
    CZ_TRY(reserve(s));
    CZ_TRY(write_sizes(s, tensor));
    s->size_count += tensor->dimensions;
    s->elements[s->count] = elements;
    s->dimensions[s->count] = (uint8_t)tensor->dimensions;
    s->dtypes[s->count] = (uint8_t)dtype;
    s->kinds[s->count++] = (uint8_t)kind;
    cz__shape_sums *sums = &s->sums[kind];
    sums->count++;
    sums->elements += elements;
    sums->bytes += (uint64_t)elements * cz_dtype_size(dtype);
    sums->name_bytes += name_bytes;
    return CZ_OK;
}

/* Of the parameters: which type the first one has, and which one has another. */
static void note_type(cz_shapes *s, const char *name, cz_dtype dtype)
{
    s->dtype = s->dtype ? s->dtype : dtype;
    if (s->dtype != dtype && !*s->other.text)
        s->other = cz__show(name);
}

cz_status cz_shapes_add(cz_shapes *shapes, const char *name, cz_dtype dtype, int dimensions,
                        const int64_t *shape, cz_shape_kind kind)
{
    cz_tensor tensor = {.dtype = dtype, .dimensions = dimensions};
    if (!shapes)
        return cz__fail(CZ_ERR_ARGUMENT, "shapes: shapes is NULL");
    if (!name || !*name || (dimensions > 0 && !shape))
        return cz__fail(CZ_ERR_ARGUMENT, "shapes: %s",
                        name && *name ? "shape is NULL" : "a tensor has no name");
    if (cz_dtype_size(dtype) == 0 || (unsigned)kind >= CZ__SHAPE_KINDS)
        return cz__fail(CZ_ERR_ARGUMENT, "shapes: '%s': no such %s: %d", cz__show(name).text,
                        cz_dtype_size(dtype) ? "kind" : "type",
                        cz_dtype_size(dtype) ? (int)kind : (int)dtype);
    if (dimensions < 0 || dimensions > CZ_MAX_DIMENSIONS)
        return cz__fail(CZ_ERR_ARGUMENT, "shapes: '%s' has %d dimensions, allowed are 0 to %d",
                        cz__show(name).text, dimensions, CZ_MAX_DIMENSIONS);
    for (int d = 0; d < dimensions; d++)
        tensor.shape[d] = shape[d];
    const int64_t elements = cz_tensor_count(&tensor);
    if (elements < 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "shapes: '%s' has a size below 0, or more elements than can be counted",
                        cz__show(name).text);
    if (kind != CZ_SHAPE_BUFFER && !cz__converts(dtype))
        return cz__fail(CZ_ERR_ARGUMENT, "shapes: '%s' is %s: a parameter is of a floating type",
                        cz__show(name).text, cz_dtype_name(dtype));
    CZ_TRY(append(shapes, strlen(name), &tensor, elements, kind));
    if (kind != CZ_SHAPE_BUFFER)
        note_type(shapes, name, dtype);
    return CZ_OK;
}

/* ---- of a model ---- */

static cz_status add_tensor(cz_shapes *shapes, const char *name, const cz_tensor *tensor,
                            cz_shape_kind kind)
{
    return cz_shapes_add(shapes, name, tensor->dtype, tensor->dimensions, tensor->shape, kind);
}

static cz_status add_model(cz_shapes *shapes, const cz_model *model)
{
    const int64_t params = cz__model_param_count(model);
    for (int64_t p = 0; p < params; p++)
        CZ_TRY(add_tensor(shapes, cz__model_name(model, p), cz__model_value(model, p),
                          cz__model_requires_grad(model, p) ? CZ_SHAPE_PARAM : CZ_SHAPE_FROZEN));
    for (int64_t b = 0; b < cz__model_buffer_count(model); b++)
        CZ_TRY(add_tensor(shapes, cz__model_buffer_name(model, b), cz__model_buffer(model, b),
                          CZ_SHAPE_BUFFER));
    shapes->layout = cz__calloc((size_t)params, sizeof *shapes->layout);
    if (!shapes->layout)
        return cz__fail(CZ_ERR_MEMORY, "shapes: no memory for the order of %" PRId64 " parameters",
                        params);
    cz__model_lay_out(model, shapes->layout);
    return CZ_OK;
}

cz_status cz_shapes_from_model(cz_shapes **out, const cz_model *model)
{
    CZ_TRY(cz_shapes_create(out));
    const cz_status status =
        model ? add_model(*out, model) : cz__fail(CZ_ERR_ARGUMENT, "shapes: model is NULL");
    if (status != CZ_OK)
        cz_shapes_destroy(out);
    return status;
}

/* ---- asked ---- */

static const cz__shape_sums *sums_of(const cz_shapes *shapes, cz_shape_kind kind)
{
    static const cz__shape_sums none;
    return shapes && (unsigned)kind < CZ__SHAPE_KINDS ? &shapes->sums[kind] : &none;
}

int64_t cz__shapes_count(const cz_shapes *shapes, cz_shape_kind kind)
{
    return sums_of(shapes, kind)->count;
}

int64_t cz__shapes_elements(const cz_shapes *shapes, cz_shape_kind kind)
{
    return sums_of(shapes, kind)->elements;
}
