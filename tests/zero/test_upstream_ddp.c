/* SPDX-License-Identifier: MIT */
/* Counterparts of upstream's tests of the sharded optimizer that need a data-parallel model: it and
 * the optimizer in lockstep with a data-parallel model under an unsharded one, bit for bit, where
 * upstream allows a tolerance. Upstream refuses overlap on the CPU. */
#include <string.h>

#include "czero/czero.h"
#include "group/group_test.h"
#include "support/layers.h"
#include "support/spans.h"
#include "shard/shard.h"

/* How the sharded optimizer gets its gradients, and when it steps. */
typedef struct way {
    cz_partition partition;
    /* On the data-parallel model; otherwise on gradients that this has reduced everywhere. */
    bool bound;
    cz_overlap overlap;
    bool late, views, static_graph;
} way;

enum { SHARDED, PLAIN, BOTH };

typedef struct twins {
    cz_group *group;
    way w;
    cz_test_net net[BOTH];
    cz_ddp *ddp[BOTH];
    cz_zero *zero;
    cz_optim *optim;
    float buffers[BOTH];
    int batch;
    float *inputs; /* owned */
} twins;

static void clear(twins *t)
{
    cz_zero_destroy(&t->zero);
    cz_optim_destroy(&t->optim);
    for (int k = 0; k < BOTH; k++) {
        cz_ddp_destroy(&t->ddp[k]);
        cz_test_net_destroy(&t->net[k]);
    }
    free(t->inputs);
}

static void told(int64_t param, void *value, void *context)
{
}

/* Networks with values, and a buffer, that are other ones on each rank: making the data-parallel
 * models makes them alike. */
static cz_status make_models(twins *t, const cz_test_net_shape *sharded,
                             const cz_test_net_shape *plain, int batch,
                             const cz_ddp_options *options)
{
    const int rank = cz_group_rank(t->group);
    const int64_t shape = 1;
    t->batch = batch;
    t->inputs = calloc((size_t)(batch * sharded->widths[0]), sizeof *t->inputs);
    if (!t->inputs)
        return cz_fail(CZ_ERR_MEMORY, "test: a batch of %d", batch);
    for (int k = 0; k < BOTH; k++) {
        CZ_TRY(cz_test_net_create(&t->net[k], k ? plain : sharded, 100 * (uint64_t)(rank + 1)));
        t->buffers[k] = (float)(rank + 1);
        CZ_TRY(cz_model_add_buffer(t->net[k].model, "buffer", &t->buffers[k], CZ_F32, 1, &shape));
        CZ_TRY(cz_ddp_create(&t->ddp[k], t->group, t->net[k].model, options));
        if (t->buffers[k] != 1)
            return cz_fail(CZ_ERR_STATE, "the buffer is %g", (double)t->buffers[k]);
    }
    return cz_test_net_equal(&t->net[SHARDED], &t->net[PLAIN]);
}

static cz_status make_optimizers(twins *t, way w, const cz_rule *rule, const cz_hyper *hypers)
{
    int owners[2 * CZ_TEST_LAYERS];
    const int params = 2 * t->net[SHARDED].shape.layers;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    for (int k = 0; k < params; k++)
        owners[k] = (k * k + 1) % cz_group_size(t->group);
    t->w = w;
    options.partition = w.partition;
    options.owners = w.partition == CZ_PARTITION_GIVEN ? owners : NULL;
    options.owner_count = options.owners ? params : 0;
    options.gradients = CZ_GRADIENTS_REDUCED;
    options.ddp = w.bound ? t->ddp[SHARDED] : NULL;
    options.overlap = w.overlap;
    options.overlap_gather = w.late;
    options.parameters_as_bucket_view = w.views;
    options.moved = told; /* the networks ask the model where values are */
    CZ_TRY(cz_zero_create(&t->zero, t->group, t->net[SHARDED].model, rule, hypers, &options));
    return cz_optim_create(&t->optim, t->net[PLAIN].model, rule, hypers, NULL);
}

/* Forward and backward: gradients are marked from the last to the first. */
static cz_status pass(twins *t, int which, double *loss)
{
    cz_test_net *net = &t->net[which];
    CZ_TRY(cz_ddp_begin(t->ddp[which], true));
    for (int64_t p = 0; p < 2 * net->shape.layers; p++)
        CZ_TRY(cz_zero_wait_param(t->zero, p));
    CZ_TRY(cz_test_net_pass(net, t->batch, t->inputs, NULL, false, loss));
    for (int64_t p = 2 * net->shape.layers - 1; p >= 0; p--)
        CZ_TRY(cz_ddp_mark_ready(t->ddp[which], p));
    return cz_ddp_finish(t->ddp[which]);
}

static cz_status sharded_closure(double *loss, void *context)
{
    twins *t = context;
    CZ_TRY(cz_zero_zero_grad(t->zero, false));
    return pass(t, SHARDED, loss);
}

static cz_status plain_closure(double *loss, void *context)
{
    twins *t = context;
    CZ_TRY(cz_optim_zero_grad(t->optim, false));
    return pass(t, PLAIN, loss);
}

static cz_status sharded_step(twins *t, double *loss)
{
    const cz_step_options options = {
        .size = sizeof options, .closure = sharded_closure, .closure_context = t};
    cz_step_result result = CZ_STEP_RESULT_INIT;
    if (t->w.overlap != CZ_OVERLAP_NONE) {
        CZ_TRY(sharded_closure(loss, t));
        CZ_TRY(cz_zero_step(t->zero, NULL, NULL));
    } else {
        CZ_TRY(cz_zero_step(t->zero, &options, &result));
        *loss = result.loss;
    }
    for (int64_t p = 0; p < 2 * t->net[SHARDED].shape.layers; p++)
        CZ_TRY(cz_zero_wait_param(t->zero, p));
    return CZ_OK;
}

/* A new batch of this rank's, alike for both networks: losses and parameters agree. */
static cz_status step(twins *t, uint64_t seed)
{
    const cz_step_options options = {
        .size = sizeof options, .closure = plain_closure, .closure_context = t};
    cz_step_result result = CZ_STEP_RESULT_INIT;
    double loss = 0;
    cz_test_stream_f32(seed, (int64_t)t->batch * t->net[SHARDED].shape.widths[0], t->inputs);
    CZ_TRY(sharded_step(t, &loss));
    CZ_TRY(cz_optim_step(t->optim, &options, &result));
    if (loss != result.loss)
        return cz_fail(CZ_ERR_STATE, "losses are %.9g and %.9g", loss, result.loss);
    return cz_test_net_equal(&t->net[SHARDED], &t->net[PLAIN]);
}

/* Each way round: with and without a bound, the partitions that it has, overlaps. */
static way way_of(int k)
{
    static const way ways[] = {{.bound = false},
                               {.bound = true},
                               {.bound = true, .overlap = CZ_OVERLAP_INTERLEAVED},
                               {.bound = true, .overlap = CZ_OVERLAP_STEP},
                               {.bound = true, .overlap = CZ_OVERLAP_INTERLEAVED, .late = true}};
    way w = ways[k % 5];
    w.partition = (cz_partition)(k / 5 % (w.bound ? 5 : 3));
    w.views = k % 2 != 0;
    return w;
}
enum { WAYS = 25 };

#define BODY(name)                                                                                 \
    static cz_status name##_body(cz_group *group, void *context)                                   \
    {                                                                                              \
        twins t = {.group = group};                                                                \
        const cz_status status = name(&t, context);                                                \
        clear(&t);                                                                                 \
        return status;                                                                             \
    }

/* ---- test_local_optimizer_parity ---- */

enum { BATCHES = 20, BATCH = 64 };

typedef struct parity_case {
    way w;
    const cz_rule *rule;
    double maximize;
} parity_case;

/* After the first half, the first parameter is frozen in every other batch. */
static cz_status toggle(twins *t, int batch)
{
    for (int k = 0; k < BOTH && batch > BATCHES / 2; k++)
        CZ_TRY(cz_model_set_requires_grad(t->net[k].model, 0, batch % 2 != 0));
    return CZ_OK;
}

/* Each takes the other's dictionary, then its own again. */
static cz_status cross_load(twins *t, const cz_state_dict *sharded, const cz_state_dict *plain,
                            uint64_t seed)
{
    if (!cz_state_dict_equal(sharded, plain))
        return cz_fail(CZ_ERR_STATE, "the dictionaries differ");
    CZ_TRY(cz_zero_load_state_dict(t->zero, plain));
    CZ_TRY(cz_optim_load_state_dict(t->optim, sharded, NULL));
    CZ_TRY(step(t, seed));
    CZ_TRY(cz_zero_load_state_dict(t->zero, sharded));
    CZ_TRY(cz_optim_load_state_dict(t->optim, plain, NULL));
    CZ_TRY(step(t, seed + 1));
    return cz_state_dict_equal(sharded, plain) ? CZ_OK
                                               : cz_fail(CZ_ERR_STATE, "a dictionary was changed");
}

static cz_status parity(twins *t, const parity_case *c)
{
    static const cz_test_net_shape shape = {.layers = 3, .widths = {2, 3, 3, 3}};
    const uint64_t own = 100 * (uint64_t)(cz_group_rank(t->group) + 1);
    cz_ddp_options options = CZ_DDP_OPTIONS_INIT;
    cz_state_dict *sharded = NULL, *plain = NULL;
    options.find_unused = 1;
    options.bucket_bytes = options.first_bucket_bytes = 16;
    CZ_TRY(make_models(t, &shape, &shape, BATCH, &options));
    CZ_TRY(make_optimizers(t, c->w, c->rule, CZ_HYPERS({"lr", 1e-3}, {"maximize", c->maximize})));
    for (int batch = 0; batch < BATCHES; batch++) {
        CZ_TRY(toggle(t, batch));
        CZ_TRY(step(t, own + (uint64_t)batch));
    }
    CZ_TRY(cz_zero_consolidate_state_dict(t->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(t->zero, &sharded));
    cz_status status = cz_optim_state_dict(t->optim, &plain);
    THEN(cross_load(t, sharded, plain, own + BATCHES));
    cz_state_dict_destroy(&sharded);
    cz_state_dict_destroy(&plain);
    return status;
}
BODY(parity)

TEST(upstream_test_local_optimizer_parity)
{
    static const int worlds[] = {2, 1, 3, 2, 5, 7, 4};
    const cz_rule *rules[] = {cz_rule_adam(), cz_rule_adamw(), cz_rule_sgd()};
    for (int k = 0; k < 3 * 2 * WAYS; k += SANITIZED ? 4 : 1) {
        const int world = worlds[k % 7];
        parity_case c = {way_of(k % WAYS), rules[k / WAYS % 3], k / WAYS / 3};
        char why[256];
        if (cz_test_run_ranks(world, parity_body, &c, why) != CZ_OK)
            fail_msg("%s, maximize %g, world size %d, way %d: %s", c.rule->name, c.maximize, world,
                     k % WAYS, why);
    }
}

/* ---- test_zero_model_parallel: two devices of one type ---- */

static cz_device devices[2];

static cz_status model_parallel(twins *t, const way *w)
{
    const cz_test_net_shape two = {
        .layers = 2, .widths = {10, 10, 5}, .relu = true, .devices = {&devices[0], &devices[1]}};
    const cz_test_net_shape one = {.layers = 2, .widths = {10, 10, 5}, .relu = true};
    const uint64_t own = 10 * (uint64_t)(cz_group_rank(t->group) + 1);
    cz_ddp_options options = CZ_DDP_OPTIONS_INIT;
    options.first_bucket_bytes = 64;
    CZ_TRY(make_models(t, &two, &one, 20, &options));
    CZ_TRY(make_optimizers(t, *w, cz_rule_adam(), CZ_HYPERS({"lr", 0.01})));
    for (int epoch = 0; epoch < 2; epoch++)
        for (uint64_t batch = 0; batch < 4; batch++)
            CZ_TRY(step(t, own + batch));
    return CZ_OK;
}
BODY(model_parallel)

TEST(upstream_test_zero_model_parallel)
{
    devices[0] = devices[1] = *cz_device_cpu();
    for (int world = 1; world <= 5; world++)
        for (int k = 0; k < WAYS; k += SANITIZED ? 2 : 1) {
            way w = way_of(k);
            char why[256];
            if (cz_test_run_ranks(world, model_parallel_body, &w, why) != CZ_OK)
                fail_msg("world size %d, way %d: %s", world, k, why);
        }
}

/* ---- test_ddp_zero_overlap ---- */

typedef struct overlap_case {
    way w;
    int scale; /* 1: the widths of upstream */
} overlap_case;

/* For two ranks the recorded assignment of these very buckets (overlap.2 of
 * overlap_assign.gold). */
static cz_status expect_owners(const twins *t)
{
    static const int whole[] = {1, 1, 0, 0}, pieces[] = {0, 1, 0, 0};
    const int *wanted = t->w.partition == CZ_PARTITION_BUCKETS ? whole : pieces;
    for (int64_t p = 0; p < 4; p++)
        if (cz__shard_map_home(cz_test_shard_map(t->zero), p) != wanted[p])
            return cz_fail(CZ_ERR_STATE, "parameter %d lives on rank %d", (int)p,
                           cz__shard_map_home(cz_test_shard_map(t->zero), p));
    return CZ_OK;
}

/* Upstream spends two or three inputs on passes without an update; here all passes update. */
static cz_status overlap(twins *t, const overlap_case *c)
{
    const cz_test_net_shape shape = {.layers = 2,
                                     .widths = {1000 / c->scale, 2000 / c->scale, 500 / c->scale}};
    const uint64_t own = 10 * (uint64_t)(cz_group_rank(t->group) + 1);
    cz_ddp_options options = CZ_DDP_OPTIONS_INIT;
    options.static_graph = c->w.static_graph;
    options.first_bucket_bytes = (size_t)(1 << 20) / (size_t)(c->scale * c->scale);
    CZ_TRY(make_models(t, &shape, &shape, 1, &options));
    const float before = cz_test_net_value(&t->net[SHARDED], 0)[0];
    CZ_TRY(make_optimizers(t, c->w, cz_rule_sgd(),
                           CZ_HYPERS({"lr", 0.01}, {"momentum", 0.9}, {"weight_decay", 0.001})));
    if (cz_group_size(t->group) == 2)
        CZ_TRY(expect_owners(t));
    for (uint64_t input = 0; input < 5; input++)
        CZ_TRY(step(t, own + input));
    return cz_test_net_value(&t->net[SHARDED], 0)[0] != before
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "nothing was updated");
}
BODY(overlap)

/* Gradients are always reduced where they are, so that parameters in buckets stand for upstream's
 * gradients in buckets. */
TEST(upstream_test_ddp_zero_overlap)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (int k = 0; k < 16; k++)
        for (size_t w = 0; w < 5; w++) {
            overlap_case c = {
                .w = {.partition = k & 1 ? CZ_PARTITION_BUCKET_PIECES : CZ_PARTITION_BUCKETS,
                      .bound = true,
                      .overlap = k & 2 ? CZ_OVERLAP_INTERLEAVED : CZ_OVERLAP_STEP,
                      .views = (k & 4) != 0,
                      .static_graph = (k & 8) != 0},
                .scale = SLOW             ? 20
                         : worlds[w] == 2 ? 1
                                          : 10};
            char why[256];
            if (cz_test_run_ranks(worlds[w], overlap_body, &c, why) != CZ_OK)
                fail_msg("world size %d, pieces %d, interleaved %d, views %d, static graph %d: %s",
                         worlds[w], k & 1, k & 2, k & 4, k & 8, why);
        }
}
