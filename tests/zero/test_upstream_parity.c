/* SPDX-License-Identifier: MIT */
/* Counterparts of upstream's tests that train a network: the sharded optimizer in lockstep with an
 * unsharded one, bit for bit, where upstream allows a tolerance. */
#include "zero/upstream.h"
#include "tensor/model.h"

/* ---- test_local_optimizer_parity ---- */

enum { BATCHES = 20, BATCH = 64 };

typedef struct parity {
    mode m;
    const cz_rule *rule;
    double maximize;
} parity;

/* A buffer that is another one on each rank. */
static cz_status add_buffers(pair *p, float *buffers)
{
    const int64_t shape = 1;
    buffers[0] = buffers[1] = (float)(cz_group_rank(p->group) + 1);
    CZ_TRY(cz_model_add_buffer(p->sharded.model, "buffer", &buffers[0], CZ_F32, 1, &shape));
    return cz_model_add_buffer(p->plain.model, "buffer", &buffers[1], CZ_F32, 1, &shape);
}

/* What DistributedDataParallel does when it is made; the plain one gets it by a copy. */
static cz_status begin_alike(pair *p, const float *buffers)
{
    CZ_TRY(cz_zero_broadcast_parameters(p->zero, 0));
    for (int64_t k = 0; k < 2 * p->plain.shape.layers; k++) {
        const cz_tensor *value = cz__model_value(p->plain.model, k);
        CZ_TRY(cz_broadcast(p->group, value->data, cz_tensor_count(value), CZ_F32, 0, NULL));
    }
    if (buffers[0] != 1)
        return cz_fail(CZ_ERR_STATE, "the buffer is %g", (double)buffers[0]);
    return cz_test_net_equal(&p->sharded, &p->plain);
}

/* After the first half, the first parameter is frozen in every other batch. */
static cz_status toggle(pair *p, int batch)
{
    if (batch <= BATCHES / 2)
        return CZ_OK;
    CZ_TRY(cz_model_set_requires_grad(p->sharded.model, 0, batch % 2 != 0));
    return cz_model_set_requires_grad(p->plain.model, 0, batch % 2 != 0);
}

/* Each takes the other's dictionary, then its own again. */
static cz_status cross_load(pair *p, const cz_state_dict *sharded, const cz_state_dict *plain,
                            uint64_t seed)
{
    if (!cz_state_dict_equal(sharded, plain))
        return cz_fail(CZ_ERR_STATE, "the dictionaries differ");
    CZ_TRY(cz_zero_load_state_dict(p->zero, plain));
    CZ_TRY(cz_optim_load_state_dict(p->optim, sharded, NULL));
    CZ_TRY(pair_step(p, seed));
    CZ_TRY(cz_zero_load_state_dict(p->zero, sharded));
    CZ_TRY(cz_optim_load_state_dict(p->optim, plain, NULL));
    CZ_TRY(pair_step(p, seed + 1));
    if (!cz_state_dict_equal(sharded, plain)) /* loading and steps left them alone */
        return cz_fail(CZ_ERR_STATE, "a dictionary was changed");
    return CZ_OK;
}

static cz_status parity_ranks(pair *p, cz_group *group, const parity *c)
{
    static const cz_test_net_shape shape = {.layers = 3, .widths = {2, 3, 3, 3}};
    const uint64_t own = 100 * (uint64_t)(cz_group_rank(group) + 1);
    float buffers[2];
    cz_state_dict *sharded = NULL, *plain = NULL;
    CZ_TRY(pair_open(p, group, &shape, &shape, own, BATCH));
    CZ_TRY(add_buffers(p, buffers));
    CZ_TRY(pair_optimize(p, c->m, c->rule, CZ_HYPERS({"lr", 1e-3}, {"maximize", c->maximize}), NULL,
                         0));
    CZ_TRY(begin_alike(p, buffers));
    for (int batch = 0; batch < BATCHES; batch++) {
        CZ_TRY(toggle(p, batch));
        CZ_TRY(pair_step(p, own + (uint64_t)batch));
    }
    CZ_TRY(whole_dict(p->zero, &sharded));
    cz_status status = cz_optim_state_dict(p->optim, &plain);
    THEN(cross_load(p, sharded, plain, own + BATCHES));
    cz_state_dict_destroy(&sharded);
    cz_state_dict_destroy(&plain);
    return status;
}

static cz_status parity_body(cz_group *group, void *context)
{
    pair p = {0};
    const cz_status status = parity_ranks(&p, group, context);
    pair_close(&p);
    return status;
}

/* In each case on two ranks, and on a number of them that goes round. */
TEST(upstream_test_local_optimizer_parity)
{
    static const int worlds[] = {1, 3, 5, 7, 4};
    const cz_rule *rules[] = {cz_rule_adam(), cz_rule_adamw(), cz_rule_sgd()};
    for (int k = 0; k < 3 * 2 * MODES * 2; k++) {
        const int world = k % 2 ? worlds[k / 2 % 5] : 2, i = k / 2 % MODES;
        const parity c = {mode_of(i), rules[k / 2 / MODES % 3], k / 2 / MODES / 3};
        char why[256];
        if (cz_test_run_ranks(world, parity_body, (void *)&c, why) != CZ_OK)
            fail_msg("%s, maximize %g, world size %d, mode %d: %s", c.rule->name, c.maximize, world,
                     i, why);
    }
}

/* ---- test_multiple_param_groups ---- */

static const int64_t weights[] = {0, 2, 4}, biases[] = {1, 3, 5};

/* Groups given at once (plain and sharded), and a third optimizer that gets the second one
 * later. */
static cz_status groups_ranks(pair *p, pair *later, cz_group *group, mode m)
{
    static const cz_test_net_shape shape = {.layers = 3, .widths = {5, 10, 10, 5}};
    const cz_param_group groups[] = {
        {sizeof *groups, weights, 3, CZ_HYPERS({"weight_decay", 0})},
        {sizeof *groups, biases, 3, CZ_HYPERS({"weight_decay", 0.01})}};
    const cz_hyper *hypers = CZ_HYPERS({"lr", 0.01});
    const uint64_t own = 10 * (uint64_t)(cz_group_rank(group) + 1);
    CZ_TRY(pair_open(p, group, &shape, &shape, 1, 8));
    CZ_TRY(pair_open(later, group, &shape, &shape, 1, 8));
    p->mean = later->mean = true;
    CZ_TRY(pair_optimize(p, m, cz_rule_adamw(), hypers, groups, 2));
    CZ_TRY(pair_optimize(later, m, cz_rule_adamw(), hypers, groups, 1));
    CZ_TRY(cz_zero_add_param_group(later->zero, &groups[1]));
    CZ_TRY(cz_optim_add_param_group(later->optim, &groups[1]));
    for (uint64_t batch = 0; batch < 3; batch++) {
        cz_test_stream_f32(own + batch, 8 * 5, p->targets);
        cz_test_stream_f32(own + batch, 8 * 5, later->targets);
        CZ_TRY(pair_step(p, own + batch));
        CZ_TRY(pair_step(later, own + batch));
        CZ_TRY(cz_test_net_equal(&p->sharded, &later->sharded));
    }
    return CZ_OK;
}

static cz_status groups_body(cz_group *group, void *context)
{
    pair p = {0}, later = {0};
    const cz_status status = groups_ranks(&p, &later, group, *(const mode *)context);
    pair_close(&p);
    pair_close(&later);
    return status;
}

TEST(upstream_test_multiple_param_groups)
{
    for (int world = 1; world <= 7; world += world < 3 ? 1 : 2)
        run_all(world, groups_body, "groups");
}

/* ---- test_zero_model_parallel: two devices of one type ---- */

static cz_device devices[2];

static cz_status devices_ranks(pair *p, cz_group *group, mode m)
{
    const cz_test_net_shape two = {
        .layers = 2, .widths = {10, 10, 5}, .relu = true, .devices = {&devices[0], &devices[1]}};
    const cz_test_net_shape one = {.layers = 2, .widths = {10, 10, 5}, .relu = true};
    const uint64_t own = 10 * (uint64_t)(cz_group_rank(group) + 1);
    CZ_TRY(pair_open(p, group, &two, &one, 1, 20));
    CZ_TRY(pair_optimize(p, m, cz_rule_adam(), CZ_HYPERS({"lr", 0.01}), NULL, 0));
    for (int epoch = 0; epoch < 2; epoch++)
        for (uint64_t batch = 0; batch < 4; batch++)
            CZ_TRY(pair_step(p, own + batch));
    return CZ_OK;
}

static cz_status devices_body(cz_group *group, void *context)
{
    pair p = {0};
    const cz_status status = devices_ranks(&p, group, *(const mode *)context);
    pair_close(&p);
    return status;
}

TEST(upstream_test_zero_model_parallel)
{
    devices[0] = devices[1] = *cz_device_cpu();
    for (int world = 1; world <= 5; world++)
        run_all(world, devices_body, "two devices");
}
