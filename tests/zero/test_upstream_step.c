/* SPDX-License-Identifier: MIT */
/* Counterparts of upstream's tests of steps of several ranks, of groups that are not the world, and
 * of states that are collected and loaded. */
#include "zero/upstream.h"
#include "tensor/model.h"

static cz_status set_layer(cz_test_net *net, float weight, float bias)
{
    *cz_test_net_value(net, 0) = weight;
    *cz_test_net_value(net, 1) = bias;
    return CZ_OK;
}

/* One layer of one input and one output, both networks with these values. */
static cz_status open_layer(pair *p, cz_group *group, mode m, double lr, float weight, float bias)
{
    static const cz_test_net_shape shape = {.layers = 1, .widths = {1, 1}};
    CZ_TRY(pair_open(p, group, &shape, &shape, 1, 1));
    CZ_TRY(pair_optimize(p, m, cz_rule_sgd(), CZ_HYPERS({"lr", lr}), NULL, 0));
    p->inputs[0] = (float)cz_group_rank(group) + 1;
    CZ_TRY(set_layer(&p->sharded, weight, bias));
    return set_layer(&p->plain, weight, bias);
}

#define RANKS(name, first)                                                                         \
    static cz_status name##_body(cz_group *group, void *context)                                   \
    {                                                                                              \
        pair p = {0};                                                                              \
        const cz_status status = name(&p, group, *(const mode *)context);                          \
        pair_close(&p);                                                                            \
        return status;                                                                             \
    }                                                                                              \
    TEST(upstream_test_##name)                                                                     \
    {                                                                                              \
        for (int world = first; world <= 9; world++)                                               \
            run_all(world, name##_body, #name);                                                    \
    }

/* ---- test_step: gradients averaged by hand, or by the step ---- */

static cz_status step(pair *p, cz_group *group, mode m)
{
    double loss;
    CZ_TRY(open_layer(p, group, m, 0.01, 1, 2));
    CZ_TRY(cz_test_net_pass(&p->sharded, 1, p->inputs, NULL, true, &loss));
    CZ_TRY(cz_test_net_pass(&p->plain, 1, p->inputs, NULL, true, &loss));
    if (m.gradients == CZ_GRADIENTS_REDUCED)
        CZ_TRY(average_gradients(&p->sharded, group));
    CZ_TRY(average_gradients(&p->plain, group));
    CZ_TRY(cz_zero_step(p->zero, NULL, NULL));
    CZ_TRY(cz_optim_step(p->optim, NULL, NULL));
    const double mean = (cz_group_size(group) + 1) / 2.0;
    if (*cz_test_net_value(&p->plain, 0) != 1 - 0.01f * (float)mean)
        return cz_fail(CZ_ERR_STATE, "weight %.9g", (double)*cz_test_net_value(&p->plain, 0));
    return cz_test_net_equal(&p->sharded, &p->plain);
}
RANKS(step, 1)

/* ---- test_step_with_closure ---- */

/* The target is the output and 1 more, so that the loss is 1 and the gradient -input and -1. */
static cz_status step_with_closure(pair *p, cz_group *group, mode m)
{
    const cz_step_options options = {
        .size = sizeof options, .closure = sharded_closure, .closure_context = p};
    cz_step_result result = CZ_STEP_RESULT_INIT;
    CZ_TRY(open_layer(p, group, m, 0.1, 1, 2));
    p->mean = true;
    p->inputs[0] = 1;
    p->targets[0] = 1 * 1 + 2 + 1;
    CZ_TRY(cz_zero_step(p->zero, &options, &result));
    if (result.loss != 1)
        return cz_fail(CZ_ERR_STATE, "loss %g", result.loss);
    const float weight = *cz_test_net_value(&p->sharded, 0),
                bias = *cz_test_net_value(&p->sharded, 1);
    return weight == 1.1f && bias == 2.1f
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "%.9g and %.9g", (double)weight, (double)bias);
}
RANKS(step_with_closure, 1)

/* ---- test_collect_shards ---- */

/* Ranks are threads: what the others load is rank 0's own dictionary, which loading leaves
 * alone. */
static cz_status load_that_of_rank_0(pair *p, cz_group *group, cz_state_dict *dict)
{
    cz_state_dict *copy = NULL;
    void *shared = NULL;
    size_t bytes;
    CZ_TRY(cz_broadcast_object(group, &dict, sizeof dict, 0, &shared, &bytes));
    const cz_state_dict *theirs = *(cz_state_dict **)shared;
    cz_object_free(shared);
    CZ_TRY(cz_state_dict_copy(&copy, theirs));
    cz_status status = cz_zero_load_state_dict(p->zero, theirs);
    if (status == CZ_OK && !cz_state_dict_equal(copy, theirs))
        status = cz_fail(CZ_ERR_STATE, "loading changed the dictionary");
    cz_state_dict_destroy(&copy);
    CZ_TRY(status);
    return cz_barrier(group, NULL); /* before rank 0 destroys it */
}

static cz_status expect_all_params(const cz_state_dict *dict)
{
    const cz_state_dict *all;
    CZ_TRY(cz_state_dict_get_dict(dict, "state", &all));
    if (cz_state_dict_count(all) != 4)
        return cz_fail(CZ_ERR_STATE, "%d parameters", (int)cz_state_dict_count(all));
    return CZ_OK;
}

static cz_status collect_shards(pair *p, cz_group *group, mode m)
{
    static const cz_test_net_shape shape = {.layers = 2, .widths = {20, 10, 5}};
    const uint64_t own = (uint64_t)cz_group_rank(group) + 2;
    cz_state_dict *dict = NULL;
    CZ_TRY(pair_open(p, group, &shape, &shape, 1, 3));
    p->mean = true;
    cz_test_stream_f32(own, 3 * 5, p->targets);
    CZ_TRY(
        pair_optimize(p, m, cz_rule_sgd(), CZ_HYPERS({"lr", 1e-3}, {"momentum", 0.99}), NULL, 0));
    CZ_TRY(pair_step(p, own));
    CZ_TRY(cz_zero_consolidate_state_dict(p->zero, 0));
    if (cz_group_rank(group) == 0)
        CZ_TRY(cz_zero_state_dict(p->zero, &dict));
    cz_status status = dict ? expect_all_params(dict) : CZ_OK;
    THEN(load_that_of_rank_0(p, group, dict));
    THEN(pair_step(p, own + 10)); /* as if nothing had happened */
    cz_state_dict_destroy(&dict);
    return status;
}
RANKS(collect_shards, 1)

/* ---- test_nondefault_process_group: the even ranks ---- */

/* All that this rank holds is what the group's rank 0 holds. */
static cz_status expect_like_root(const pair *p, cz_group *sub)
{
    for (int64_t k = 0; k < 4; k++) {
        const cz_tensor *value = cz__model_value(p->sharded.model, k);
        const size_t bytes = (size_t)cz_tensor_count(value) * sizeof(float);
        void *root;
        size_t count;
        CZ_TRY(cz_broadcast_object(sub, value->data, bytes, 0, &root, &count));
        const bool same = count == bytes && memcmp(root, value->data, bytes) == 0;
        cz_object_free(root);
        if (!same)
            return cz_fail(CZ_ERR_STATE, "parameter %d is another one", (int)k);
    }
    return CZ_OK;
}

static cz_status train_evens(pair *p, cz_group *sub, mode m, uint64_t own)
{
    static const cz_test_net_shape shape = {.layers = 2, .widths = {20, 10, 5}};
    CZ_TRY(pair_open(p, sub, &shape, &shape, own, 3));
    p->mean = true;
    CZ_TRY(
        pair_optimize(p, m, cz_rule_sgd(), CZ_HYPERS({"lr", 1e-3}, {"momentum", 0.99}), NULL, 0));
    CZ_TRY(cz_zero_broadcast_parameters(p->zero, 0));
    for (int64_t k = 0; k < 4; k++)
        memcpy(cz_test_net_value(&p->plain, k), cz_test_net_value(&p->sharded, k),
               (size_t)cz_tensor_count(cz__model_value(p->plain.model, k)) * sizeof(float));
    for (uint64_t step = 0; step < 5; step++) {
        cz_test_stream_f32(own + 50 + step, 3 * 5, p->targets);
        CZ_TRY(pair_step(p, own + step));
        CZ_TRY(expect_like_root(p, sub));
    }
    return cz_zero_check_replicas(p->zero);
}

/* In their order, or the other way round: ranks of the group are not those of the world. */
static cz_status evens(pair *p, cz_group *world, mode m, cz_group **sub)
{
    const int rank = cz_group_rank(world), count = (cz_group_size(world) + 1) / 2;
    int even[5];
    for (int k = 0; k < count; k++)
        even[k] = 2 * (m.views ? count - 1 - k : k);
    CZ_TRY(cz_group_subset(world, even, count, sub));
    if ((*sub != NULL) != (rank % 2 == 0))
        return cz_fail(CZ_ERR_STATE, "rank %d is %s the group", rank, *sub ? "in" : "not in");
    return *sub ? train_evens(p, *sub, m, 100 * (uint64_t)(rank + 1)) : CZ_OK;
}

static cz_status nondefault_process_group_body(cz_group *world, void *context)
{
    pair p = {0};
    cz_group *sub = NULL;
    const cz_status status = evens(&p, world, *(const mode *)context, &sub);
    pair_close(&p);
    cz_group_destroy(&sub);
    return status;
}

TEST(upstream_test_nondefault_process_group)
{
    for (int world = 4; world <= 9; world++)
        run_all(world, nondefault_process_group_body, "even ranks");
}
