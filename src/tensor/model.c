/* SPDX-License-Identifier: MIT */
/* The model: parameters and buffers in the order in which they were added, found by name. */
#include <inttypes.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "czero/device.h"
#include "czero/tensor.h"
#include "tensor/entries.h"
#include "tensor/model.h"

/* ---- views ---- */

/* ---- the model ---- */

cz_status cz_model_create(cz_model **out)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "model: out is NULL");
    *out = cz__calloc(1, sizeof **out);
    return *out ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "model: no memory for %zu bytes", sizeof **out);
}

static void destroy_entries(cz__entries *list)
{
    for (int64_t i = 0; i < list->count; i++)
        cz__free(list->items[i].name);
    cz__free(list->items);
}

static void drop_step_tables(cz_model *model)
{
    cz__free(model->gradients);
    cz__free(model->trainable);
    model->gradients = NULL;
    model->trainable = NULL;
}

static void release(cz_model *model)
{
    destroy_entries(&model->params);
    destroy_entries(&model->buffers);
    cz__names_clear(&model->names);
    drop_step_tables(model);
    cz__free(model->addresses);
    cz__free(model);
}

void cz_model_destroy(cz_model **model)
{
    if (!model || !*model)
        return;
    (*model)->abandoned = true;
    if ((*model)->freezes == 0)
        release(*model);
    *model = NULL;
}

static const cz__entry *entry_at(const cz__entries *list, int64_t index)
{
    return index >= 0 && index < list->count ? &list->items[index] : NULL;
}

static const cz__entry *param_at(const cz_model *model, int64_t param)
{
    return model ? entry_at(&model->params, param) : NULL;
}

int64_t cz__model_param_count(const cz_model *model)
{
    return model ? model->params.count : -1;
}

int64_t cz__model_buffer_count(const cz_model *model)
{
    return model ? model->buffers.count : -1;
}

int64_t cz__model_element_count(const cz_model *model)
{
    return model ? model->element_count : -1;
}

int64_t cz_model_find(const cz_model *model, const char *name)
{
    int64_t number = -1;
    return model && name && cz__names_find(&model->names, name, &number) && number >= 0 ? number
                                                                                        : -1;
}

const char *cz__model_name(const cz_model *model, int64_t param)
{
    const cz__entry *e = param_at(model, param);
    return e ? e->name : NULL;
}

const cz_tensor *cz__model_value(const cz_model *model, int64_t param)
{
    const cz__entry *e = param_at(model, param);
    return e ? &e->value : NULL;
}

const cz_tensor *cz__model_gradient(const cz_model *model, int64_t param)
{
    const cz__entry *e = param_at(model, param);
    return e && e->has_gradient ? &e->gradient : NULL;
}

const char *cz__model_buffer_name(const cz_model *model, int64_t buffer)
{
    const cz__entry *e = model ? entry_at(&model->buffers, buffer) : NULL;
    return e ? e->name : NULL;
}

const cz_tensor *cz__model_buffer(const cz_model *model, int64_t buffer)
{
    const cz__entry *e = model ? entry_at(&model->buffers, buffer) : NULL;
    return e ? &e->value : NULL;
}

bool cz__model_requires_grad(const cz_model *model, int64_t param)
{
    const cz__entry *e = param_at(model, param);
    return e && e->requires_grad;
}

cz_status cz_model_get_info(const cz_model *model, cz_model_info *info)
{
    if (!model || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "model get_info: %s is NULL", model ? "info" : "model");
    const cz_model_info ours = {.param_count = cz__model_param_count(model),
                                .buffer_count = cz__model_buffer_count(model),
                                .element_count = cz__model_element_count(model)};
    return cz__options_write(info, &ours, sizeof ours, "cz_model_info");
}

cz_status cz_model_get_param(const cz_model *model, int64_t index, cz_model_param *param)
{
    if (!model || !param)
        return cz__fail(CZ_ERR_ARGUMENT, "model get_param: %s is NULL", model ? "param" : "model");
    const int64_t params = cz__model_param_count(model);
    const bool is_param = index < params;
    const int64_t buffer = is_param ? -1 : index - params;
    const cz_tensor *value =
        is_param ? cz__model_value(model, index) : cz__model_buffer(model, buffer);
    if (!value)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "model get_param: parameter %" PRId64 " of %" PRId64 ", with %" PRId64
                        " buffers after them",
                        index, params, cz__model_buffer_count(model));
    const cz_model_param ours = {.name = is_param ? cz__model_name(model, index)
                                                  : cz__model_buffer_name(model, buffer),
                                 .value = value,
                                 .gradient = cz__model_gradient(model, index),
                                 .requires_grad = cz__model_requires_grad(model, index)};
    return cz__options_write(param, &ours, sizeof ours, "cz_model_param");
}

void *cz__model_gradient_address(const cz_model *model, int64_t param)
{
    static char empty;
    const cz_tensor *gradient = cz__model_gradient(model, param);
    if (!gradient)
        return NULL;
    return gradient->data ? gradient->data : &empty;
}

void cz__model_lay_out(const cz_model *model, int64_t *order)
{
    int64_t count = 0;
    for (int64_t last = model->params.count - 1, first; last >= 0; last = first - 1) {
        const int64_t block = cz__model_block(model, last);
        first = last;
        while (block >= 0 && first > 0 && cz__model_block(model, first - 1) == block)
            first--;
        for (int64_t p = first; p <= last; p++)
            order[count++] = p;
    }
}

void cz__model_set_address(cz_model *model, int64_t param, void *value, bool is_viewed)
{
    model->params.items[param].value.data = value;
    model->params.items[param].is_viewed = is_viewed;
    model->moves++;
    if (model->addresses)
        model->addresses[param] = value;
}

uint64_t cz__model_moves(const cz_model *model)
{
    return model->moves;
}

uint64_t cz__model_gradient_moves(const cz_model *model)
{
    return model->gradient_moves;
}

bool cz__model_is_viewed(const cz_model *model, int64_t param)
{
    const cz__entry *e = param_at(model, param);
    return e && e->is_viewed;
}

static cz_status make_addresses(cz_model *model)
{
    const size_t count = (size_t)model->params.count;
    model->addresses = cz__calloc(count, sizeof *model->addresses);
    if (!model->addresses)
        return cz__fail(CZ_ERR_MEMORY, "model: no memory for a table of %zu addresses", count);
    for (size_t p = 0; p < count; p++)
        model->addresses[p] = model->params.items[p].value.data;
    return CZ_OK;
}

static cz_status make_tables(cz_model *model)
{
    const size_t count = (size_t)model->params.count;
    model->gradients = cz__calloc(count, sizeof *model->gradients);
    model->trainable = cz__calloc(count, sizeof *model->trainable);
    if (!model->gradients || !model->trainable) {
        drop_step_tables(model);
        return cz__fail(CZ_ERR_MEMORY, "model: no memory for tables of %zu parameters", count);
    }
    for (size_t p = 0; p < count; p++) {
        model->gradients[p] = cz__model_gradient_address(model, (int64_t)p);
        model->trainable[p] = model->params.items[p].requires_grad;
    }
    return CZ_OK;
}

cz_status cz__model_tables_of(cz_model *model, cz__model_tables *out)
{
    if (!model->addresses)
        CZ_TRY(make_addresses(model));
    if (!model->trainable)
        CZ_TRY(make_tables(model));
    out->values = model->addresses;
    out->gradients = model->gradients;
    out->trainable = model->trainable;
    return CZ_OK;
}

bool cz__model_is_abandoned(const cz_model *model)
{
    return model->abandoned;
}

int64_t cz__model_block(const cz_model *model, int64_t param)
{
    const cz__entry *e = param_at(model, param);
    return e ? e->block : -1;
}

/* The parameter, to be changed; NULL, and the sentence is set, if there is none. */
static cz__entry *param_to_change(cz_model *model, int64_t param)
{
    if (!param_at(model, param)) {
        cz__fail(CZ_ERR_ARGUMENT, "model: no parameter %" PRId64 ", there are %" PRId64, param,
                 model ? model->params.count : 0);
        return NULL;
    }
    return &model->params.items[param];
}

cz_status cz_model_set_requires_grad(cz_model *model, int64_t param, bool requires_grad)
{
    cz__entry *e = param_to_change(model, param);
    if (!e)
        return CZ_ERR_ARGUMENT;
    model->moves += e->requires_grad != requires_grad;
    e->requires_grad = requires_grad;
    if (model->trainable)
        model->trainable[param] = requires_grad;
    return CZ_OK;
}

cz_status cz_model_set_gradient(cz_model *model, int64_t param, void *grad)
{
    cz__entry *e = param_to_change(model, param);
    if (!e)
        return CZ_ERR_ARGUMENT;
    e->has_gradient = grad != NULL;
    model->gradient_moves += grad && grad != e->gradient.data;
    e->gradient = e->value;
    e->gradient.data = grad;
    e->gradient.dtype = e->gradient_dtype;
    if (model->gradients)
        model->gradients[param] = cz__model_gradient_address(model, param);
    return CZ_OK;
}

cz_dtype cz__model_gradient_dtype(const cz_model *model, int64_t param)
{
    return model->params.items[param].gradient_dtype;
}

cz_status cz__model_check_gradients(const cz_model *model, const char *part)
{
    for (int64_t p = 0; p < cz__model_param_count(model); p++) {
        const cz__entry *e = &model->params.items[p];
        if (e->gradient_dtype != e->value.dtype)
            return cz__fail(CZ_ERR_UNSUPPORTED,
                            "%s: the gradient of '%.60s' is %s, its value %s: here they have one "
                            "type",
                            part, e->name, cz_dtype_name(e->gradient_dtype),
                            cz_dtype_name(e->value.dtype));
    }
    return CZ_OK;
}

cz_status cz_model_set_gradients_flat(cz_model *model, int64_t param, void *grads)
{
    const cz__entry *e = param_to_change(model, param);
    if (!e)
        return CZ_ERR_ARGUMENT;
    if (e->block < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "model: parameter %" PRId64 " '%.60s' is in no flat block",
                        param, e->name);
    int64_t first = param;
    while (first > 0 && cz__model_block(model, first - 1) == e->block)
        first--;
    char *grad = grads;
    for (int64_t p = first; cz__model_block(model, p) == e->block; p++) {
        const cz__entry *item = &model->params.items[p];
        CZ_TRY(cz_model_set_gradient(model, p, grad));
        if (grad)
            grad += (size_t)cz_tensor_count(&item->value) * cz_dtype_size(item->gradient_dtype);
    }
    return CZ_OK;
}

cz_status cz_model_zero_grad(cz_model *model)
{
    if (!model)
        return cz__fail(CZ_ERR_ARGUMENT, "zero_grad: model is NULL");
    for (int64_t i = 0; i < model->params.count; i++) {
        const cz__entry *e = &model->params.items[i];
        if (e->has_gradient && e->gradient.layout != CZ_DENSE)
            return cz__fail(CZ_ERR_UNSUPPORTED, "zero_grad: the gradient of \"%s\" is sparse",
                            e->name);
    }
    for (int64_t i = 0; i < model->params.count; i++) {
        const cz_tensor *grad = cz__model_gradient(model, i);
        const int64_t count = grad ? cz_tensor_count(grad) : 0;
        if (count > 0)
            CZ_TRY(cz__device_of(grad)->zero(NULL, grad->data,
                                             (size_t)count * cz_dtype_size(grad->dtype)));
    }
    return CZ_OK;
}

void cz__model_freeze(cz_model *model)
{
    model->freezes++;
}

int cz__model_count_ddp(cz_model *model, int change)
{
    model->ddps += change;
    return model->reducing_optimizers;
}

int cz__model_count_reducing_optimizer(cz_model *model, int change)
{
    model->reducing_optimizers += change;
    return model->ddps;
}

int cz__model_count_parts(cz_model *model, int change)
{
    return model->parts += change;
}

void cz__model_thaw(cz_model *model)
{
    if (--model->freezes > 0)
        return;
    drop_step_tables(model);
    cz__free(model->addresses); /* parameters may be added */
    model->addresses = NULL;
    if (model->abandoned)
        release(model);
}

/* Lists and the table of names have grown by doubling. */
size_t cz__model_bytes(int64_t params, int64_t buffers, size_t name_bytes)
{
    const cz_model *model = NULL;
    size_t room[2] = {1, 1}, places = 16;
    for (; room[0] < (size_t)params; room[0] *= 2)
        ;
    for (; room[1] < (size_t)buffers; room[1] *= 2)
        ;
    for (; places < 2 * (size_t)(params + buffers); places *= 2)
        ;
    return sizeof *model + (room[0] + room[1]) * sizeof(cz__entry) +
           places * sizeof *model->names.places + name_bytes + (size_t)(params + buffers) +
           (size_t)params *
               (sizeof *model->addresses + sizeof *model->gradients + sizeof *model->trainable);
}

/* ---- conversions ---- */

bool cz__converts(cz_dtype dtype)
{
    return cz__is_floating(dtype);
}

void cz__convert(cz_dtype to_type, void *to, cz_dtype from_type, const void *from, int64_t count)
{
    (void)cz_device_cpu()->convert(NULL, to_type, to, from_type, from, count);
}
