/* SPDX-License-Identifier: MIT */
/* Additions to a model: everything is checked and memory is had before anything changes. */
#include "base/memory.h"
#include "base/status.h"
#include "tensor/entries.h"
#include "tensor/model.h"

#include <inttypes.h>
#include <string.h>

/* Room for `more` entries and their names. */
static bool reserve(cz_model *model, cz__entries *list, int64_t more)
{
    if (!cz__names_reserve(&model->names, more)) /* also bounds `more` */
        return false;
    if (list->count + more <= list->capacity)
        return true;
    const int64_t twice = 2 * list->capacity, needed = list->count + more;
    const int64_t capacity = twice > needed ? twice : needed;
    cz__entry *items = cz__calloc((size_t)capacity, sizeof *items);
    if (!items)
        return false;
    if (list->count > 0)
        memcpy(items, list->items, (size_t)list->count * sizeof *items);
    cz__free(list->items);
    list->items = items;
    list->capacity = capacity;
    return true;
}

bool cz__model_takes_gradients(cz_dtype value, cz_dtype gradient)
{
    const bool wide = value == CZ_F64 || gradient == CZ_F64;
    return value == gradient || (cz__converts(value) && cz__converts(gradient) && !wide);
}

/* What is not the same and should be; NULL: all is. */
static const char *find_difference(const cz_tensor *a, const cz_tensor *b)
{
    if (!cz__model_takes_gradients(a->dtype, b->dtype))
        return "type";
    if (a->layout != b->layout)
        return "layout";
    if (a->dimensions != b->dimensions ||
        memcmp(a->shape, b->shape, (size_t)a->dimensions * sizeof *a->shape) != 0)
        return "shape";
    return cz__device_of(a) == cz__device_of(b) ? NULL : "device";
}

cz_status cz__device_check(const char *part, const char *name, const cz_device *device)
{
    const size_t needed = offsetof(cz_device, find_update) + sizeof device->find_update;
    if (device->abi != CZ_DEVICE_ABI)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "%s: the device of \"%s\" has abi %" PRIu32 ", wanted is %" PRIu32, part,
                        name, device->abi, (uint32_t)CZ_DEVICE_ABI);
    if (device->size < needed)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "%s: the device of \"%s\" is a table of %zu bytes, needed are %zu", part,
                        name, device->size, needed);
    if (!device->name || !device->allocate || !device->release || !device->copy || !device->zero ||
        !device->fill || !device->scale || !device->convert || !device->reduce ||
        !device->add_squares || !device->find_update)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: the device of \"%s\" lacks an entry", part, name);
    return CZ_OK;
}

static cz_status check_tensor(const char *name, const cz_tensor *tensor, bool is_there)
{
    const int64_t count = cz_tensor_count(tensor);
    if (count < 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "model: \"%s\" has a bad shape (%d dimensions): one below 0, more than %d "
                        "of them, or too many elements",
                        name, tensor->dimensions, CZ_MAX_DIMENSIONS);
    const size_t size = cz_dtype_size(tensor->dtype);
    if (size == 0)
        return cz__fail(CZ_ERR_ARGUMENT, "model: \"%s\" has type %d, which does not exist", name,
                        (int)tensor->dtype);
    if ((uint64_t)count > PTRDIFF_MAX / size)
        return cz__fail(CZ_ERR_ARGUMENT, "model: \"%s\" has %" PRId64 " elements of %zu bytes",
                        name, count, size);
    if (tensor->layout != CZ_DENSE && tensor->layout != CZ_SPARSE_ROWS)
        return cz__fail(CZ_ERR_ARGUMENT, "model: \"%s\" has layout %d, which does not exist", name,
                        (int)tensor->layout);
    if (!tensor->data && count > 0 && is_there)
        return cz__fail(CZ_ERR_ARGUMENT, "model: \"%s\" has %" PRId64 " elements at NULL", name,
                        count);
    return cz__device_check("model", name, cz__device_of(tensor));
}

static cz_status check_list(const cz_model *model)
{
    if (!model)
        return cz__fail(CZ_ERR_ARGUMENT, "model: model is NULL");
    if (model->freezes > 0)
        return cz__fail(CZ_ERR_STATE, "model: nothing can be added, an optimizer stands on it");
    return CZ_OK;
}

/* Everything but memory: may this entry be added to this list? */
static cz_status check_entry(const cz_model *model, const char *name, const cz_tensor *value,
                             const cz_tensor *grad)
{
    int64_t number;
    if (!name || !*name)
        return cz__fail(CZ_ERR_ARGUMENT, "model: a name is %s", name ? "empty" : "NULL");
    if (!value)
        return cz__fail(CZ_ERR_ARGUMENT, "model: the value of \"%s\" is NULL", name);
    if (cz__names_find(&model->names, name, &number))
        return cz__fail(CZ_ERR_ARGUMENT, "model: the name \"%s\" is taken by %s %" PRId64, name,
                        number < 0 ? "buffer" : "parameter", number < 0 ? -1 - number : number);
    CZ_TRY(check_tensor(name, value, true));
    if (!grad)
        return CZ_OK;
    const char *what = find_difference(value, grad);
    if (what)
        return cz__fail(CZ_ERR_ARGUMENT, "model: value and gradient of \"%s\" differ in %s", name,
                        what);
    return check_tensor(name, grad, false);
}

/* The last step of every addition; there is room. */
static cz_status append(cz_model *model, cz__entries *list, const char *name,
                        const cz_tensor *value, const cz_tensor *grad)
{
    CZ_TRY(check_entry(model, name, value, grad));
    const bool is_param = list == &model->params;
    int64_t total = model->element_count;
    if (is_param && __builtin_add_overflow(total, cz_tensor_count(value), &total))
        return cz__fail(CZ_ERR_ARGUMENT, "model: too many elements with \"%s\"", name);
    cz__entry e = {
        .name = cz__strdup(name), .value = *value, .requires_grad = is_param, .block = -1};
    if (!e.name)
        return cz__fail(CZ_ERR_MEMORY, "model: no memory for the name \"%s\"", name);
    e.gradient_dtype = grad ? grad->dtype : value->dtype;
    if (grad) {
        e.gradient = *grad;
        e.has_gradient = grad->data || cz_tensor_count(grad) == 0;
    }
    cz__names_add(&model->names, e.name, is_param ? list->count : -1 - list->count);
    list->items[list->count++] = e;
    model->element_count = total;
    return CZ_OK;
}

static cz_status add_entry(cz_model *model, bool is_param, const char *name, const cz_tensor *value,
                           const cz_tensor *grad)
{
    CZ_TRY(check_list(model));
    cz__entries *list = is_param ? &model->params : &model->buffers;
    if (!reserve(model, list, 1))
        return cz__fail(CZ_ERR_MEMORY, "model: no memory for one more than %" PRId64 " %s",
                        list->count, is_param ? "parameters" : "buffers");
    return append(model, list, name, value, grad);
}

/* A dense tensor on the CPU. A number of dimensions that cannot be is kept, to be refused. */
static cz_status make_tensor(cz_tensor *tensor, const char *name, void *data, cz_dtype dtype,
                             int dimensions, const int64_t *shape)
{
    *tensor = (cz_tensor){.data = data, .dtype = dtype, .dimensions = dimensions};
    if (dimensions <= 0 || dimensions > CZ_MAX_DIMENSIONS)
        return CZ_OK;
    if (!shape)
        return cz__fail(CZ_ERR_ARGUMENT, "model: \"%s\" has %d dimensions and shape is NULL",
                        name ? name : "", dimensions);
    memcpy(tensor->shape, shape, (size_t)dimensions * sizeof *shape);
    return CZ_OK;
}

cz_status cz_model_add(cz_model *model, const char *name, void *value, void *grad, cz_dtype dtype,
                       int dimensions, const int64_t *shape)
{
    cz_tensor v;
    CZ_TRY(make_tensor(&v, name, value, dtype, dimensions, shape));
    cz_tensor g = v;
    g.data = grad;
    return add_entry(model, true, name, &v, grad ? &g : NULL);
}

cz_status cz_model_add_tensor(cz_model *model, const char *name, const cz_tensor *value,
                              const cz_tensor *grad)
{
    return add_entry(model, true, name, value, grad);
}

cz_status cz_model_add_buffer(cz_model *model, const char *name, void *value, cz_dtype dtype,
                              int dimensions, const int64_t *shape)
{
    cz_tensor v;
    CZ_TRY(make_tensor(&v, name, value, dtype, dimensions, shape));
    return add_entry(model, false, name, &v, NULL);
}

/* Take back the parameters from `count` on. */
static void shorten(cz_model *model, int64_t count)
{
    cz__entries *list = &model->params;
    while (list->count > count) {
        cz__entry *last = &list->items[--list->count];
        model->element_count -= cz_tensor_count(&last->value);
        cz__names_remove(&model->names, last->name);
        cz__free(last->name);
    }
}

/* ---- flat blocks ---- */

/* One that is being added, up to `offset`. */
typedef struct flat_block {
    char *values, *grads; /* grads NULL: none now */
    cz_dtype dtype;
    int64_t offset; /* elements */
} flat_block;

static void *place_in(char *block, int64_t offset, cz_dtype dtype)
{
    return block ? block + (size_t)offset * cz_dtype_size(dtype) : NULL;
}

/* Its next parameter, of the type and shape of `view`. */
static cz_status append_next(cz_model *model, flat_block *block, const char *name,
                             const cz_tensor *view)
{
    cz_tensor v = *view, g = *view;
    v.data = place_in(block->values, block->offset, block->dtype);
    g.data = place_in(block->grads, block->offset, block->dtype);
    CZ_TRY(append(model, &model->params, name, &v, block->grads ? &g : NULL));
    model->params.items[model->params.count - 1].block = model->block_count;
    block->offset += cz_tensor_count(view);
    return CZ_OK;
}

/* All parameters of a call, or none. */
static cz_status end_block(cz_model *model, int64_t before, cz_status status)
{
    if (!status)
        model->block_count++;
    else
        shorten(model, before);
    return status;
}

static int64_t most_elements(cz_dtype dtype)
{
    const size_t size = cz_dtype_size(dtype);
    return (int64_t)(PTRDIFF_MAX / (size ? size : 1));
}

/* Offsets into the block fit before any is formed. */
static cz_status check_sizes(cz_dtype dtype, int64_t count, const int64_t *sizes)
{
    const int64_t limit = most_elements(dtype);
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (sizes[i] < 0 || sizes[i] > limit - sum)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "model: size %" PRId64 " of %" PRId64 " is %" PRId64 ": %s", i, count,
                            sizes[i], sizes[i] < 0 ? "below 0" : "the sum is too large");
        sum += sizes[i];
    }
    return CZ_OK;
}

static cz_status append_flat(cz_model *model, flat_block *block, int64_t count,
                             const char *const *names, const int64_t *sizes)
{
    for (int64_t i = 0; i < count; i++) {
        char number[24];
        const cz_tensor view = {.dtype = block->dtype, .dimensions = 1, .shape = {sizes[i]}};
        snprintf(number, sizeof number, "%" PRId64, model->params.count);
        CZ_TRY(append_next(model, block, names ? names[i] : number, &view));
    }
    return CZ_OK;
}

cz_status cz_model_add_flat(cz_model *model, void *values, void *grads, cz_dtype dtype,
                            int64_t count, const char *const *names, const int64_t *sizes)
{
    CZ_TRY(check_list(model));
    if (count < 0 || (count > 0 && !sizes))
        return cz__fail(CZ_ERR_ARGUMENT, "model: %" PRId64 " parameters, sizes is %s", count,
                        sizes ? "given" : "NULL");
    if (!reserve(model, &model->params, count))
        return cz__fail(CZ_ERR_MEMORY, "model: no memory for %" PRId64 " parameters more", count);
    CZ_TRY(check_sizes(dtype, count, sizes));
    flat_block block = {values, grads, dtype, 0};
    const int64_t before = model->params.count;
    return end_block(model, before, append_flat(model, &block, count, names, sizes));
}

/* ---- flat blocks with shapes ---- */

static cz_tensor tensor_of(const cz_view *view, cz_dtype dtype)
{
    cz_tensor tensor = {.dtype = dtype, .dimensions = view->dimensions};
    memcpy(tensor.shape, view->shape, sizeof tensor.shape);
    return tensor;
}

/* The one place in a name where the number of a layer goes; NULL: there is none, or several. */
static const char *find_star(const char *name)
{
    const char *star = strchr(name, '*');
    return star && !strchr(star + 1, '*') ? star : NULL;
}

static cz_status check_view(const cz_view *view, int64_t index)
{
    if (!view->name || !*view->name)
        return cz__fail(CZ_ERR_ARGUMENT, "model: the name of view %" PRId64 " is %s", index,
                        view->name ? "empty" : "NULL");
    if (view->layers < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "model: view \"%s\" has %" PRId64 " layers", view->name,
                        view->layers);
    if (view->layers > 0 ? !find_star(view->name) : strchr(view->name, '*') != NULL)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "model: view \"%s\" has %" PRId64 " layers; a name has one '*', for their "
                        "numbers, where there are layers, and none where there are not",
                        view->name, view->layers);
    const cz_tensor tensor = tensor_of(view, CZ_F32);
    if (cz_tensor_count(&tensor) < 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "model: view \"%s\" has a bad shape (%d dimensions): one below 0, more "
                        "than %d of them, or too many elements",
                        view->name, view->dimensions, CZ_MAX_DIMENSIONS);
    return CZ_OK;
}

/* And how many parameters they are. */
static cz_status check_views(cz_dtype dtype, const cz_view *views, int64_t count, int64_t *params)
{
    const int64_t limit = most_elements(dtype);
    int64_t sum = 0;
    *params = 0;
    for (int64_t i = 0; i < count; i++) {
        CZ_TRY(check_view(&views[i], i));
        const cz_tensor tensor = tensor_of(&views[i], dtype);
        const int64_t times = views[i].layers > 0 ? views[i].layers : 1;
        int64_t elements;
        if (__builtin_mul_overflow(cz_tensor_count(&tensor), times, &elements) ||
            elements > limit - sum || __builtin_add_overflow(*params, times, params))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "model: view \"%s\" of %" PRId64 " layers: the sum of all elements is "
                            "too large",
                            views[i].name, views[i].layers);
        sum += elements;
    }
    return CZ_OK;
}

/* Where a view has layers: one parameter each. */
static cz_status append_layers(cz_model *model, flat_block *block, const cz_view *view)
{
    const cz_tensor tensor = tensor_of(view, block->dtype);
    const char *star = find_star(view->name);
    const size_t room = strlen(view->name) + 24;
    char *name = cz__calloc(1, room);
    cz_status status = CZ_OK;
    if (!name)
        return cz__fail(CZ_ERR_MEMORY, "model: no memory for the names of view \"%s\"", view->name);
    for (int64_t layer = 0; layer < view->layers && status == CZ_OK; layer++) {
        snprintf(name, room, "%.*s%" PRId64 "%s", (int)(star - view->name), view->name, layer,
                 star + 1);
        status = append_next(model, block, name, &tensor);
    }
    cz__free(name);
    return status;
}

static cz_status append_views(cz_model *model, flat_block *block, const cz_view *views,
                              int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const cz_tensor tensor = tensor_of(&views[i], block->dtype);
        CZ_TRY(views[i].layers > 0 ? append_layers(model, block, &views[i])
                                   : append_next(model, block, views[i].name, &tensor));
    }
    return CZ_OK;
}

cz_status cz_model_add_views(cz_model *model, void *values, void *grads, cz_dtype dtype,
                             const cz_view *views, int64_t count)
{
    int64_t params;
    CZ_TRY(check_list(model));
    if (count < 0 || (count > 0 && !views))
        return cz__fail(CZ_ERR_ARGUMENT, "model: %" PRId64 " views, the list is %s", count,
                        views ? "given" : "NULL");
    CZ_TRY(check_views(dtype, views, count, &params));
    if (!reserve(model, &model->params, params))
        return cz__fail(CZ_ERR_MEMORY, "model: no memory for %" PRId64 " parameters more", params);
    flat_block block = {values, grads, dtype, 0};
    const int64_t before = model->params.count;
    return end_block(model, before, append_views(model, &block, views, count));
}
