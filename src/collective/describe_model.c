/* SPDX-License-Identifier: MIT */
/* A model in a description: what every rank must have alike. */
#include <string.h>

#include "collective/description.h"
#include "tensor/model.h"

static void describe_tensor(cz__description *d, const char *noun, int64_t index, const char *name,
                            const cz_tensor *tensor)
{
    cz__describe(d, &(cz__subject){NULL, noun, index, NULL, "is"}, CZ__FIELD_TEXT, name,
                 strlen(name));
    cz__describe(d, &(cz__subject){NULL, noun, index, name, "has shape"}, CZ__FIELD_SHAPE,
                 tensor->shape, (size_t)tensor->dimensions * sizeof *tensor->shape);
    cz__describe_number(d, &(cz__subject){NULL, noun, index, name, "has type"}, CZ__FIELD_DTYPE,
                        tensor->dtype);
    cz__describe_number(d, &(cz__subject){NULL, noun, index, name, "is"}, CZ__FIELD_LAYOUT,
                        tensor->layout);
    const char *device = cz__device_of(tensor)->name;
    cz__describe(d, &(cz__subject){NULL, noun, index, name, "is on device"}, CZ__FIELD_TEXT, device,
                 strlen(device));
}

void cz__describe_params(cz__description *description, const cz_model *model)
{
    const int64_t count = cz__model_param_count(model);
    cz__describe_number(description,
                        &(cz__subject){NULL, "the number of parameters", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, count);
    for (int64_t p = 0; p < count; p++) {
        const char *name = cz__model_name(model, p);
        describe_tensor(description, "parameter", p, name, cz__model_value(model, p));
        cz__describe_number(description, &(cz__subject){NULL, "parameter", p, name, "lies"},
                            CZ__FIELD_BLOCK, cz__model_block(model, p));
    }
}

void cz__describe_trainable(cz__description *description, const cz_model *model)
{
    for (int64_t p = 0; p < cz__model_param_count(model); p++)
        cz__describe_number(description,
                            &(cz__subject){NULL, "parameter", p, cz__model_name(model, p), "is"},
                            CZ__FIELD_TRAINABLE, cz__model_requires_grad(model, p));
}

void cz__describe_buffers(cz__description *description, const cz_model *model)
{
    const int64_t count = cz__model_buffer_count(model);
    cz__describe_number(description, &(cz__subject){NULL, "the number of buffers", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, count);
    for (int64_t b = 0; b < count; b++)
        describe_tensor(description, "buffer", b, cz__model_buffer_name(model, b),
                        cz__model_buffer(model, b));
}
