/* SPDX-License-Identifier: MIT */
/* A network of linear layers. */
#include "support/layers.h"
#include "support/cz_test.h"
#include "tensor/model.h"

#include <math.h>
#include <string.h>

static int64_t weight_count(const cz_test_net_shape *shape, int layer)
{
    return (int64_t)shape->widths[layer] * shape->widths[layer + 1];
}

static cz_status add_param(cz_test_net *net, int layer, bool bias, float *value, float *grad)
{
    const cz_test_net_shape *shape = &net->shape;
    char name[24];
    cz_tensor tensor = {value,
                        CZ_F32,
                        CZ_DENSE,
                        bias ? 1 : 2,
                        {shape->widths[layer + 1], shape->widths[layer]},
                        shape->devices[layer]};
    cz_tensor gradient = tensor;
    gradient.data = net->grads[2 * layer + bias] = grad;
    snprintf(name, sizeof name, "%d.%s", layer, bias ? "bias" : "weight");
    return cz_model_add_tensor(net->model, name, &tensor, &gradient);
}

cz_status cz_test_net_create(cz_test_net *net, const cz_test_net_shape *shape, uint64_t seed)
{
    int64_t count = 0;
    *net = (cz_test_net){.shape = *shape};
    for (int l = 0; l < shape->layers; l++)
        count += weight_count(shape, l) + shape->widths[l + 1];
    net->memory = calloc(2 * (size_t)count, sizeof *net->memory);
    if (!net->memory)
        return cz_fail(CZ_ERR_MEMORY, "test: a net of %d elements", (int)count);
    cz_test_stream_f32(seed, count, net->memory);
    for (int64_t i = 0; i < count; i++)
        net->memory[i] /= 4; /* ascent stays finite for some steps */
    CZ_TRY(cz_model_create(&net->model));
    float *value = net->memory;
    for (int l = 0; l < shape->layers; l++)
        for (int bias = 0; bias < 2; bias++) {
            CZ_TRY(add_param(net, l, bias, value, value + count));
            value += bias ? shape->widths[l + 1] : weight_count(shape, l);
        }
    return CZ_OK;
}

void cz_test_net_destroy(cz_test_net *net)
{
    cz_model_destroy(&net->model);
    free(net->memory);
    *net = (cz_test_net){0};
}

float *cz_test_net_value(const cz_test_net *net, int64_t param)
{
    return cz__model_value(net->model, param)->data;
}

/* What the layers of one sample give: the inputs, then each layer's outputs. */
typedef struct sample {
    float *values[CZ_TEST_LAYERS + 1];
    float *slopes[CZ_TEST_LAYERS + 1]; /* of the loss */
} sample;

static void forward(const cz_test_net *net, const sample *s)
{
    for (int l = 0; l < net->shape.layers; l++) {
        const int in = net->shape.widths[l], out = net->shape.widths[l + 1];
        const float *weight = cz_test_net_value(net, 2 * l);
        const float *bias = cz_test_net_value(net, 2 * l + 1);
        for (int o = 0; o < out; o++) {
            float sum = bias[o];
            for (int i = 0; i < in; i++)
                sum += weight[o * in + i] * s->values[l][i];
            const bool cut = net->shape.relu && l < net->shape.layers - 1 && sum < 0;
            s->values[l + 1][o] = cut ? 0 : sum;
        }
    }
}

static void backward_layer(const cz_test_net *net, const sample *s, int l)
{
    const int in = net->shape.widths[l], out = net->shape.widths[l + 1];
    const float *weight = cz_test_net_value(net, 2 * l);
    const bool trains[] = {cz__model_requires_grad(net->model, 2 * l),
                           cz__model_requires_grad(net->model, 2 * l + 1)};
    for (int i = 0; i < in; i++)
        s->slopes[l][i] = 0;
    for (int o = 0; o < out; o++) {
        const bool cut = net->shape.relu && l < net->shape.layers - 1 && s->values[l + 1][o] <= 0;
        const float slope = cut ? 0 : s->slopes[l + 1][o];
        if (trains[1])
            net->grads[2 * l + 1][o] += slope;
        for (int i = 0; i < in; i++) {
            if (trains[0])
                net->grads[2 * l][o * in + i] += slope * s->values[l][i];
            s->slopes[l][i] += slope * weight[o * in + i];
        }
    }
}

static cz_status make_gradients(cz_test_net *net)
{
    for (int64_t p = 0; p < 2 * net->shape.layers; p++) {
        if (!cz__model_requires_grad(net->model, p) || cz__model_gradient(net->model, p))
            continue;
        memset(net->grads[p], 0,
               (size_t)cz_tensor_count(cz__model_value(net->model, p)) * sizeof(float));
        CZ_TRY(cz_model_set_gradient(net->model, p, net->grads[p]));
    }
    return CZ_OK;
}

cz_status cz_test_net_pass(cz_test_net *net, int batch, const float *inputs, const float *targets,
                           bool mean, double *loss)
{
    enum { WIDEST = 2000 };
    float values[CZ_TEST_LAYERS + 1][WIDEST], slopes[CZ_TEST_LAYERS + 1][WIDEST];
    const int layers = net->shape.layers, in = net->shape.widths[0],
              out = net->shape.widths[layers];
    sample s;
    for (int l = 0; l <= layers; l++) {
        if (net->shape.widths[l] > WIDEST)
            return cz_fail(CZ_ERR_ARGUMENT, "test: a layer of %d", net->shape.widths[l]);
        s.values[l] = values[l];
        s.slopes[l] = slopes[l];
    }
    CZ_TRY(make_gradients(net));
    const float scale = mean ? 1 / (float)(batch * out) : 1;
    *loss = 0;
    for (int b = 0; b < batch; b++) {
        memcpy(values[0], inputs + b * in, (size_t)in * sizeof(float));
        forward(net, &s);
        for (int o = 0; o < out; o++) {
            const float apart = values[layers][o] - (targets ? targets[b * out + o] : 0);
            *loss += fabs((double)apart) * (double)scale;
            slopes[layers][o] = (float)((apart > 0) - (apart < 0)) * scale;
        }
        for (int l = layers - 1; l >= 0; l--)
            backward_layer(net, &s, l);
    }
    return CZ_OK;
}

cz_status cz_test_net_equal(const cz_test_net *a, const cz_test_net *b)
{
    for (int64_t p = 0; p < 2 * a->shape.layers; p++) {
        const size_t count = (size_t)cz_tensor_count(cz__model_value(a->model, p));
        if (memcmp(cz_test_net_value(a, p), cz_test_net_value(b, p), count * sizeof(float)) != 0)
            return cz_fail(CZ_ERR_STATE, "parameter '%s' differs", cz__model_name(a->model, p));
    }
    return CZ_OK;
}
