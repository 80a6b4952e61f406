/* SPDX-License-Identifier: MIT */
/* What the counterparts of upstream's tests share: on every rank a network under a sharded
 * optimizer and the same one under an unsharded optimizer whose gradients are averaged by hand, in
 * lockstep. */
#ifndef CZ_TEST_UPSTREAM_H
#define CZ_TEST_UPSTREAM_H

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "czero/czero.h"
#include "support/cz_test.h"
#include "support/layers.h"
#include "tensor/model.h"

/* Every way in which a sharded optimizer can work. */
typedef struct mode {
    cz_partition partition;
    cz_gradients gradients;
    bool views; /* parameters_as_bucket_view */
} mode;
enum { MODES = 12 };

static inline mode mode_of(int index)
{
    return (mode){(cz_partition)(index % 3), (cz_gradients)(index / 3 % 2), index / 6 != 0};
}

typedef struct pair {
    cz_group *group;
    cz_test_net sharded, plain;
    cz_zero *zero;
    cz_optim *optim;
    cz_gradients gradients;
    int batch;
    bool mean;
    float *inputs, *targets; /* owned; no targets: zeros */
} pair;

static inline void pair_close(pair *p)
{
    cz_zero_destroy(&p->zero);
    cz_optim_destroy(&p->optim);
    cz_test_net_destroy(&p->sharded);
    cz_test_net_destroy(&p->plain);
    free(p->inputs);
    free(p->targets);
}

/* Networks, each rank's from its own seed, and room for batches. */
static inline cz_status pair_open(pair *p, cz_group *group, const cz_test_net_shape *shape,
                                  const cz_test_net_shape *plain, uint64_t seed, int batch)
{
    const int layers = shape->layers;
    p->group = group;
    p->batch = batch;
    p->inputs = calloc((size_t)(batch * shape->widths[0]), sizeof *p->inputs);
    p->targets = calloc((size_t)(batch * shape->widths[layers]), sizeof *p->targets);
    if (!p->inputs || !p->targets)
        return cz_fail(CZ_ERR_MEMORY, "test: a batch of %d", batch);
    CZ_TRY(cz_test_net_create(&p->sharded, shape, seed));
    return cz_test_net_create(&p->plain, plain, seed);
}

static inline void told(int64_t param, void *value, void *context)
{
}

static inline cz_status pair_optimize(pair *p, mode m, const cz_rule *rule, const cz_hyper *hypers,
                                      const cz_param_group *groups, int64_t group_count)
{
    int owners[2 * CZ_TEST_LAYERS];
    const int params = 2 * p->sharded.shape.layers;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    const cz_optim_options plain = {sizeof plain, groups, group_count, 0, 0};
    for (int k = 0; k < params; k++)
        owners[k] = (k * k + 1) % cz_group_size(p->group);
    options.partition = m.partition;
    options.gradients = p->gradients = m.gradients;
    options.groups = groups;
    options.group_count = group_count;
    if (m.partition == CZ_PARTITION_GIVEN) {
        options.owners = owners;
        options.owner_count = params;
    }
    options.parameters_as_bucket_view = m.views;
    options.moved = told; /* the networks ask the model where values are */
    CZ_TRY(cz_zero_create(&p->zero, p->group, p->sharded.model, rule, hypers, &options));
    return cz_optim_create(&p->optim, p->plain.model, rule, hypers, &plain);
}

/* What DistributedDataParallel does, by hand. */
static inline cz_status average_gradients(cz_test_net *net, cz_group *group)
{
    for (int64_t k = 0; k < 2 * net->shape.layers; k++) {
        const cz_tensor *gradient = cz__model_gradient(net->model, k);
        if (gradient)
            CZ_TRY(cz_all_reduce(group, gradient->data, cz_tensor_count(gradient), CZ_F32,
                                 CZ_AVERAGE, CZ_LABEL(cz__model_name(net->model, k))));
    }
    return CZ_OK;
}

static inline cz_status sharded_closure(double *loss, void *context)
{
    pair *p = context;
    CZ_TRY(cz_zero_zero_grad(p->zero, true));
    CZ_TRY(cz_test_net_pass(&p->sharded, p->batch, p->inputs, p->targets, p->mean, loss));
    return p->gradients == CZ_GRADIENTS_REDUCED ? average_gradients(&p->sharded, p->group) : CZ_OK;
}

static inline cz_status plain_closure(double *loss, void *context)
{
    pair *p = context;
    CZ_TRY(cz_optim_zero_grad(p->optim, true));
    CZ_TRY(cz_test_net_pass(&p->plain, p->batch, p->inputs, p->targets, p->mean, loss));
    return average_gradients(&p->plain, p->group);
}

/* A new batch of this rank's, alike for both networks, and a step of each: losses and parameters
 * agree. */
static inline cz_status pair_step(pair *p, uint64_t seed)
{
    const cz_step_options sharded = {
        .size = sizeof sharded, .closure = sharded_closure, .closure_context = p};
    const cz_step_options plain = {
        .size = sizeof plain, .closure = plain_closure, .closure_context = p};
    cz_step_result first = CZ_STEP_RESULT_INIT, second = CZ_STEP_RESULT_INIT;
    cz_test_stream_f32(seed, (int64_t)p->batch * p->sharded.shape.widths[0], p->inputs);
    CZ_TRY(cz_zero_step(p->zero, &sharded, &first));
    CZ_TRY(cz_optim_step(p->optim, &plain, &second));
    if (first.loss != second.loss)
        return cz_fail(CZ_ERR_STATE, "losses are %.9g and %.9g", first.loss, second.loss);
    return cz_test_net_equal(&p->sharded, &p->plain);
}

/* The state of all, on every rank. */
static inline cz_status whole_dict(cz_zero *zero, cz_state_dict **dict)
{
    CZ_TRY(cz_zero_consolidate_state_dict(zero, CZ_ALL_RANKS));
    return cz_zero_state_dict(zero, dict);
}

/* The nested dictionary at two keys, NULL if it is not there. */
static inline cz_state_dict *entry(const cz_state_dict *dict, const char *first, const char *second)
{
    const cz_state_dict *outer, *inner;
    if (cz_state_dict_get_dict(dict, first, &outer) != CZ_OK ||
        cz_state_dict_get_dict(outer, second, &inner) != CZ_OK)
        return NULL;
    return (cz_state_dict *)inner;
}

static inline void run_all(int world, cz_rank_main body, const char *what)
{
    for (int k = 0; k < MODES; k++) {
        mode m = mode_of(k);
        char why[256];
        if (cz_test_run_ranks(world, body, &m, why) != CZ_OK)
            fail_msg("%s, world size %d, partition %d, gradients %d, views %d: %s", what, world,
                     (int)m.partition, (int)m.gradients, m.views, why);
    }
}

#endif
