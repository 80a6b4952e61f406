/* SPDX-License-Identifier: MIT */
/** @file tensor.h  Views on memory that the caller owns, and the model: an ordered list of
 *  parameters (name, value, gradient, requires_grad) and buffers.
 *
 *      cz_model *model;
 *      CZ_TRY(cz_model_create(&model));
 *      const int64_t shape[] = {rows, columns};
 *      CZ_TRY(cz_model_add(model, "weight", values, gradients, CZ_F32, 2, shape));
 */
#ifndef CZERO_TENSOR_H
#define CZERO_TENSOR_H

#include "czero/device.h"

CZ_BEGIN_DECLS

#define CZ_MAX_DIMENSIONS 8

typedef enum cz_layout {
    CZ_DENSE = 0,      /**< row-major, no gaps */
    CZ_SPARSE_ROWS = 1 /**< a list of rows; no part of the library takes it yet, each says so */
} cz_layout;

/** A view. The memory is the caller's and outlives every object that refers to it. The struct never
 *  changes: a layout that needs more than a shape has it where `data` points. */
typedef struct cz_tensor {
    void *data; /**< NULL is allowed where there are no elements */
    cz_dtype dtype;
    cz_layout layout;
    int dimensions; /**< 0 (a single element) … CZ_MAX_DIMENSIONS */
    int64_t shape[CZ_MAX_DIMENSIONS];
    const cz_device *device; /**< NULL: the CPU */
} cz_tensor;

/** Elements of a tensor: the product of its shape, 1 without dimensions, 0 with an empty one.
 *  -1 if a dimension is negative or the product does not fit. Local; any thread. */
static inline int64_t cz_tensor_count(const cz_tensor *tensor)
{
    int64_t count = 1;
    bool empty = false;
    if (!tensor || tensor->dimensions < 0 || tensor->dimensions > CZ_MAX_DIMENSIONS)
        return -1;
    for (int d = 0; d < tensor->dimensions; d++) {
        if (tensor->shape[d] < 0)
            return -1;
        empty = empty || tensor->shape[d] == 0;
    }
    for (int d = 0; d < tensor->dimensions && !empty; d++) {
        if (count > INT64_MAX / tensor->shape[d])
            return -1;
        count *= tensor->shape[d];
    }
    return empty ? 0 : count;
}

/** The ordered parameters and buffers of a program. Not thread-safe: one thread at a time; each
 *  rank has its own. */
typedef struct cz_model cz_model;

/** Local. @return CZ_ERR_ARGUMENT: `out` is NULL; CZ_ERR_MEMORY. */
CZ_API cz_status cz_model_create(cz_model **out);

/** Local; accepts NULL and *NULL; frees no tensor. Optimizers on the model can still be destroyed
 *  afterwards, in any order, and nothing else may be done with them; the tensors may be gone by
 *  then. What the model itself holds is freed with the last of them. */
CZ_API void cz_model_destroy(cz_model **model);

/** Append one parameter that lives on the CPU. It is trainable until
 *  cz_model_set_requires_grad() says otherwise.
 *
 *  Local. @param name   copied; unique in the model, not empty
 *  @param value  `shape` elements, row-major; borrowed. NULL only if there are no elements.
 *  @param grad   the same shape and type; borrowed. NULL: no gradient (now). Of another type:
 *                cz_model_add_tensor()
 *  @param dimensions, shape  0 dimensions: a single element
 *  @return CZ_ERR_ARGUMENT: a NULL, a name that is taken, a bad shape or type. CZ_ERR_STATE: an
 *          optimizer was built on the model; its list is frozen. CZ_ERR_MEMORY. Nothing was
 *          changed.
 */
CZ_API cz_status cz_model_add(cz_model *model, const char *name, void *value, void *grad,
                              cz_dtype dtype, int dimensions, const int64_t *shape);

/** As cz_model_add() with everything a tensor can say. `grad` NULL: no gradient. Value and gradient
 *  may be of two of the types f32, bf16 and f16; a gradient with `data` NULL is of that type when
 *  cz_model_set_gradient() says where it is.
 *  Also CZ_ERR_ARGUMENT: they differ otherwise in type, in shape, layout or device; the device's
 *  table lacks an entry. CZ_ERR_UNSUPPORTED: its table has another CZ_DEVICE_ABI or is too short.
 *  */
CZ_API cz_status cz_model_add_tensor(cz_model *model, const char *name, const cz_tensor *value,
                                     const cz_tensor *grad);

/** Append `count` parameters that lie one after the other in one block of values and one of
 *  gradients (in the manner of llm.c); used in place, never copied. In the fixed layout
 *  that shards and buckets refer to (shard.h) they keep their order.
 *
 *  Local. @param values, grads  the sum of `sizes` elements each; borrowed. `grads` may be NULL.
 *  @param names  `count` names, copied; NULL: "0", "1", … counted over the whole model
 *  @param sizes  elements of each, 0 allowed; each becomes a tensor of one dimension. With shapes:
 *                cz_model_add_views()
 *  @return as cz_model_add(); on an error no parameter of the call was added.
 */
CZ_API cz_status cz_model_add_flat(cz_model *model, void *values, void *grads, cz_dtype dtype,
                                   int64_t count, const char *const *names, const int64_t *sizes);

/** What lies in a flat block: one parameter, or one of each layer, packed. The struct never
 *  changes. */
typedef struct cz_view {
    /** with layers: one '*' in it becomes the number of the layer, from 0 on; else it has none */
    const char *name;
    int64_t layers; /**< so many parameters of that shape, one after the other; 0: one */
    int dimensions; /**< 0 (a single element) … CZ_MAX_DIMENSIONS */
    int64_t shape[CZ_MAX_DIMENSIONS]; /**< of each of them */
} cz_view;

/** Append the parameters of one block of values and one of gradients, as cz_model_add_flat(), with
 *  names and shapes, so that they are saved as what they are; memory that is packed over layers
 *  becomes a parameter for each layer:
 *
 *      const cz_view views[] = {{"wte", 0, 2, {vocab, channels}},
 *                               {"h.*.ln_1.weight", layers, 1, {channels}},
 *                               {"h.*.attn.c_attn.weight", layers, 2, {3 * channels, channels}}};
 *      CZ_TRY(cz_model_add_views(model, params, grads, CZ_F32, views, 3));
 *
 *  Local. @param values, grads  the elements of all views, one after the other without gaps;
 *                borrowed. `grads` may be NULL: cz_model_set_gradients_flat().
 *  @param views  `count` of them, copied
 *  @return as cz_model_add(); CZ_ERR_ARGUMENT also: layers below 0, a '*' missing or too many. On
 *          an error no parameter of the call was added. */
CZ_API cz_status cz_model_add_views(cz_model *model, void *values, void *grads, cz_dtype dtype,
                                    const cz_view *views, int64_t count);

/** Append a buffer: a tensor that is part of the model but not trained. Names are shared with the
 *  parameters'. Local; errors as cz_model_add(). */
CZ_API cz_status cz_model_add_buffer(cz_model *model, const char *name, void *value, cz_dtype dtype,
                                     int dimensions, const int64_t *shape);

/** What is in a model. */
typedef struct cz_model_info {
    size_t size; /**< set by CZ_MODEL_INFO_INIT */
    int64_t param_count;
    int64_t buffer_count;
    int64_t element_count; /**< of all parameters */
} cz_model_info;
#define CZ_MODEL_INFO_INIT {sizeof(cz_model_info), 0, 0, 0}
CZ_INIT_FUNCTION(cz_model_info, CZ_MODEL_INFO_INIT)

/** Local.
 *  @return CZ_ERR_ARGUMENT: a NULL, or a size that was not set. So it is for the next. */
CZ_API cz_status cz_model_get_info(const cz_model *model, cz_model_info *info);

/** A parameter or a buffer. What it points to is owned by the model; the tensors are valid until
 *  the next addition. */
typedef struct cz_model_param {
    size_t size; /**< set by CZ_MODEL_PARAM_INIT */
    const char *name;
    const cz_tensor *value;
    const cz_tensor *gradient; /**< NULL: there is none now */
    int32_t requires_grad;     /**< 0: it is frozen, or a buffer */
    int32_t reserved;          /**< 0 */
} cz_model_param;
#define CZ_MODEL_PARAM_INIT {sizeof(cz_model_param), NULL, NULL, NULL, 0, 0}
CZ_INIT_FUNCTION(cz_model_param, CZ_MODEL_PARAM_INIT)

/** Local. @param index  from param_count on: a buffer, in their order
 *  @return CZ_ERR_ARGUMENT also: no such parameter or buffer. */
CZ_API cz_status cz_model_get_param(const cz_model *model, int64_t index, cz_model_param *param);

/** The index of the parameter of that name, -1 if there is none. Local. */
CZ_API int64_t cz_model_find(const cz_model *model, const char *name);

/** Freeze or unfreeze a parameter: frozen ones have no reduction, no update and no state. With a
 *  sharded optimizer: do it alike on every rank, between steps. Local.
 *  @return CZ_ERR_ARGUMENT: no such parameter. */
CZ_API cz_status cz_model_set_requires_grad(cz_model *model, int64_t param, bool requires_grad);

/** Say where the gradient of a parameter is from now on (in the shape of its value, and in its
 *  type, unless it was added with another one), or with NULL that it has none: such a parameter is
 *  skipped by a step, its step count included. Local; between steps.
 *  @return CZ_ERR_ARGUMENT: no such parameter. */
CZ_API cz_status cz_model_set_gradient(cz_model *model, int64_t param, void *grad);

/** The same for all parameters of a flat block at once: where their gradients are from now on, in
 *  the order of the block, such as memory that is allocated with the first backward pass; NULL:
 *  they have none. Local; between steps.
 *  @param param  any parameter of the block, which is one that cz_model_add_flat() or
 *                cz_model_add_views() has added
 *  @return CZ_ERR_ARGUMENT: no such parameter, or one that is in no block; nothing was changed. */
CZ_API cz_status cz_model_set_gradients_flat(cz_model *model, int64_t param, void *grads);

/** Set every gradient that is present to zero, frozen parameters' too. Local.
 *  @return CZ_ERR_ARGUMENT: NULL. CZ_ERR_UNSUPPORTED: one is sparse; nothing was changed. */
CZ_API cz_status cz_model_zero_grad(cz_model *model);

CZ_END_DECLS
#endif
