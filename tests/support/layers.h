/* SPDX-License-Identifier: MIT */
/* A small network of linear layers, forward and backward in plain C: gradients that depend on the
 * parameters and on the batch, so that an error in one step is seen in all that follow. */
#ifndef CZ_TEST_LAYERS_H
#define CZ_TEST_LAYERS_H

#include "czero/tensor.h"

enum { CZ_TEST_LAYERS = 3 };

/* widths[0] inputs; layer l maps widths[l] to widths[l + 1]. */
typedef struct cz_test_net_shape {
    int layers; /* 1 … CZ_TEST_LAYERS */
    int widths[CZ_TEST_LAYERS + 1];
    bool relu;                                /* between two layers */
    const cz_device *devices[CZ_TEST_LAYERS]; /* of each layer; NULL: the CPU */
} cz_test_net_shape;

/* Parameters "0.weight" (out x in), "0.bias" (out), "1.weight", …: parameter 2 l is the weight of
 * layer l, 2 l + 1 its bias. Where values are is the model's to say, they may be moved. */
typedef struct cz_test_net {
    cz_test_net_shape shape;
    cz_model *model;
    float *memory; /* owned: values and gradients */
    float *grads[2 * CZ_TEST_LAYERS];
} cz_test_net;

/* Values from the stream of `seed`. Also after a failure: to be destroyed. */
cz_status cz_test_net_create(cz_test_net *net, const cz_test_net_shape *shape, uint64_t seed);
void cz_test_net_destroy(cz_test_net *net);

/* Forward and backward: the L1 distance of the outputs to `targets` (NULL: to 0), the mean over all
 * of them or the sum. Adds to the gradients of trainable parameters; where one is absent it is
 * made, as zeros. */
cz_status cz_test_net_pass(cz_test_net *net, int batch, const float *inputs, const float *targets,
                           bool mean, double *loss);

/* The value of parameter `param`. */
float *cz_test_net_value(const cz_test_net *net, int64_t param);

/* CZ_OK if all parameters have the same bits. */
cz_status cz_test_net_equal(const cz_test_net *a, const cz_test_net *b);

#endif
