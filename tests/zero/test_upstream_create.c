/* SPDX-License-Identifier: MIT */
/* Counterparts of upstream's tests of what an optimizer is made from: what is taken and refused,
 * who owns what, groups that come later. */
#include "zero/upstream.h"
#include "zero/zero.h"
#include "optim/optim.h"
#include "tensor/model.h"
#include "support/spans.h"

enum { MOST = 4 * 9 };

/* A model of vectors, values 0, 1, … */
typedef struct vectors {
    cz_model *model;
    cz_zero *zero;
    float *memory; /* owned */
} vectors;

static void close_vectors(vectors *v)
{
    cz_zero_destroy(&v->zero);
    cz_model_destroy(&v->model);
    free(v->memory);
}

static cz_status open_vectors(vectors *v, const int64_t *sizes, int count)
{
    int64_t total = 0;
    for (int p = 0; p < count; p++)
        total += sizes[p];
    v->memory = calloc((size_t)(2 * total + 1), sizeof *v->memory);
    if (!v->memory)
        return cz_fail(CZ_ERR_MEMORY, "test: %d elements", (int)total);
    float *value = v->memory;
    CZ_TRY(cz_model_create(&v->model));
    for (int p = 0; p < count; value += sizes[p++]) {
        char name[16];
        snprintf(name, sizeof name, "p%d", p);
        CZ_TRY(cz_model_add(v->model, name, value, value + total, CZ_F32, 1, &sizes[p]));
    }
    return CZ_OK;
}

static void run(cz_rank_main body, int most)
{
    for (int world = 1; world <= most; world++)
        assert_ranks_ok(world, body, NULL);
}

#define RANKS(name)                                                                                \
    static cz_status name##_body(cz_group *group, void *context)                                   \
    {                                                                                              \
        vectors v = {0};                                                                           \
        const cz_status status = name(&v, group);                                                  \
        close_vectors(&v);                                                                         \
        return status;                                                                             \
    }                                                                                              \
    TEST(upstream_test_##name)                                                                     \
    {                                                                                              \
        run(name##_body, 9);                                                                       \
    }

/* ---- test_sharding ---- */

/* 9, 7, 5, 3 once per rank. */
static int repeated_sizes(int world, int64_t *sizes)
{
    static const int64_t pattern[] = {9, 7, 5, 3};
    for (int p = 0; p < 4 * world; p++)
        sizes[p] = pattern[p % 4];
    return 4 * world;
}

static cz_status expect_24_each(const vectors *v, const cz_group *group)
{
    for (int r = 0; r < cz_group_size(group); r++)
        if (cz_test_owned(cz_test_shard_map(v->zero), r) != 24)
            return cz_fail(CZ_ERR_STATE, "rank %d owns %d", r,
                           (int)cz_test_owned(cz_test_shard_map(v->zero), r));
    return CZ_OK;
}

static cz_status make_greedy(vectors *v, cz_group *group, const int64_t *members, int64_t count)
{
    const cz_param_group first = {sizeof first, members, count, NULL};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.partition = CZ_PARTITION_GREEDY;
    options.groups = members ? &first : NULL;
    options.group_count = members ? 1 : 0;
    return cz_zero_create(&v->zero, group, v->model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}),
                          &options);
}

static cz_status sharding(vectors *v, cz_group *group)
{
    int64_t sizes[MOST];
    CZ_TRY(open_vectors(v, sizes, repeated_sizes(cz_group_size(group), sizes)));
    CZ_TRY(make_greedy(v, group, NULL, 0));
    return expect_24_each(v, group);
}
RANKS(sharding)

/* ---- test_add_param_group ---- */

static cz_status expect_groups(const vectors *v, int64_t wanted)
{
    const int64_t all = cz__zero_group_count(v->zero);
    const int64_t local = cz__optim_group_count(cz_zero_local_optim(v->zero));
    if (all != wanted || local != wanted)
        return cz_fail(CZ_ERR_STATE, "%d groups, %d here", (int)all, (int)local);
    return CZ_OK;
}

/* All but the last of the list, trainable; then the last. */
static cz_status all_trainable(vectors *v, cz_group *group)
{
    int64_t sizes[MOST], members[MOST];
    const int count = repeated_sizes(cz_group_size(group), sizes);
    for (int p = 0; p < count; p++)
        members[p] = p;
    const cz_param_group last = {sizeof last, &members[count - 1], 1, NULL};
    CZ_TRY(open_vectors(v, sizes, count));
    CZ_TRY(make_greedy(v, group, members, count - 1));
    CZ_TRY(expect_groups(v, 1));
    CZ_TRY(cz_zero_add_param_group(v->zero, &last));
    CZ_TRY(expect_24_each(v, group));
    return expect_groups(v, 2);
}

/* The first, which is the largest, is frozen: it counts for the partition, and has no state. */
static cz_status some_trainable(vectors *v, cz_group *group)
{
    static const int64_t sizes[] = {100, 3, 5, 2, 6, 4, 3}, members[] = {0, 1, 2, 3, 4, 5, 6};
    const cz_param_group last = {sizeof last, &members[6], 1, NULL};
    CZ_TRY(open_vectors(v, sizes, 7));
    CZ_TRY(cz_model_set_requires_grad(v->model, 0, false));
    CZ_TRY(make_greedy(v, group, members, 6));
    CZ_TRY(cz_zero_add_param_group(v->zero, &last));
    CZ_TRY(expect_groups(v, 2));
    return cz__zero_is_trained(v->zero, 0) || !cz__zero_is_trained(v->zero, 6)
               ? cz_fail(CZ_ERR_STATE, "trained ones are others")
               : cz_zero_step(v->zero, NULL, NULL);
}

static cz_status add_param_group(vectors *v, cz_group *group)
{
    CZ_TRY(all_trainable(v, group));
    close_vectors(v);
    *v = (vectors){0};
    return some_trainable(v, group);
}
RANKS(add_param_group)

/* ---- test_zero_grad ---- */

/* A gradient that is there, then not; and in the manner of older releases, there and 0. */
static cz_status zero_grad_net(cz_test_net *net, cz_zero **zero, cz_group *group)
{
    static const cz_test_net_shape shape = {.layers = 1, .widths = {1, 1}};
    const float input = 1;
    double loss;
    CZ_TRY(cz_test_net_create(net, &shape, 1));
    CZ_TRY(cz_zero_create(zero, group, net->model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}), NULL));
    for (int drops = 0; drops < 2; drops++) {
        CZ_TRY(cz_test_net_pass(net, 1, &input, NULL, true, &loss));
        if (net->grads[0][0] == 0 || net->grads[1][0] == 0)
            return cz_fail(CZ_ERR_STATE, "no gradient");
        CZ_TRY(drops ? cz_zero_zero_grad(*zero, true) : cz_zero_zero_grad(*zero, false));
        for (int p = 0; p < 2; p++)
            if ((cz__model_gradient(net->model, p) == NULL) != drops ||
                (!drops && net->grads[p][0] != 0))
                return cz_fail(CZ_ERR_STATE, "gradient %d is there", p);
    }
    return CZ_OK;
}

static cz_status zero_grad_body(cz_group *group, void *context)
{
    cz_test_net net = {0};
    cz_zero *zero = NULL;
    const cz_status status = zero_grad_net(&net, &zero, group);
    cz_zero_destroy(&zero);
    cz_test_net_destroy(&net);
    return status;
}

TEST(upstream_test_zero_grad)
{
    run(zero_grad_body, 9);
}

/* ---- test_constructor, test_same_dense_param_type ---- */

static cz_status make(vectors *v, cz_group *group, const cz_param_group *groups, int64_t count)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.groups = groups;
    options.group_count = count;
    cz_zero_destroy(&v->zero);
    return cz_zero_create(&v->zero, group, v->model, cz_rule_adamw(), CZ_HYPERS({"lr", 0.01}),
                          &options);
}

#define MEMBERS(...)                                                                               \
    (const int64_t[])                                                                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* What has a type of its own in Python is an index, a count or NULL in C. */
static cz_status constructor(vectors *v, cz_group *group)
{
    static const int64_t sizes[] = {5, 10, 3};
    const cz_param_group two[] = {{sizeof *two, MEMBERS(0, 2), 2, CZ_HYPERS({"weight_decay", 0})},
                                  {sizeof *two, MEMBERS(1), 1, CZ_HYPERS({"weight_decay", 0.01})}};
    const cz_param_group empty[] = {{sizeof *empty, NULL, 0, NULL}, {sizeof *empty, NULL, 0, NULL}};
    const cz_param_group nowhere = {sizeof nowhere, NULL, 2, NULL};
    const cz_param_group foreign = {sizeof foreign, MEMBERS(0, 1, 42), 3, NULL};
    const cz_param_group no_size = {0, MEMBERS(0), 1, NULL};
    double value;
    CZ_TRY(open_vectors(v, sizes, 0));
    CZ_TRY(expect(make(v, group, NULL, 0), CZ_ERR_ARGUMENT, "no parameters"));
    close_vectors(v);
    *v = (vectors){0};
    CZ_TRY(open_vectors(v, sizes, 3));
    CZ_TRY(expect(make(v, group, two, 0), CZ_ERR_ARGUMENT, "no parameters in 0 groups"));
    CZ_TRY(expect(make(v, group, empty, 2), CZ_ERR_ARGUMENT, "no parameters in 2 groups"));
    CZ_TRY(expect(make(v, group, &nowhere, 1), CZ_ERR_ARGUMENT, "2 parameters at NULL"));
    CZ_TRY(expect(make(v, group, &foreign, 1), CZ_ERR_ARGUMENT, "lists parameter 42"));
    CZ_TRY(expect(make(v, group, &no_size, 1), CZ_ERR_ARGUMENT, "cz_param_group"));
    CZ_TRY(make(v, group, NULL, 0));
    CZ_TRY(expect_groups(v, 1));
    CZ_TRY(make(v, group, two, 2));
    CZ_TRY(cz_optim_get_hyper(cz_zero_local_optim(v->zero), 1, "weight_decay", &value));
    if (value != 0.01)
        return cz_fail(CZ_ERR_STATE, "weight_decay is %g", value);
    return expect_groups(v, 2);
}
RANKS(constructor)

static cz_status add_typed(cz_model *model, float *memory, cz_dtype dtype, cz_layout layout)
{
    char name[16];
    const cz_tensor tensor = {memory, dtype, layout, 1, {4}, NULL};
    snprintf(name, sizeof name, "p%d", (int)cz__model_param_count(model));
    return cz_model_add_tensor(model, name, &tensor, &tensor);
}

static cz_status same_dense_param_type(vectors *v, cz_group *group)
{
    float memory[8] = {0};
    for (int kind = 0; kind < 3; kind++) {
        cz_model_destroy(&v->model);
        CZ_TRY(cz_model_create(&v->model));
        for (int k = 0; k < kind; k++)
            CZ_TRY(add_typed(v->model, memory, CZ_F32, CZ_DENSE));
        CZ_TRY(add_typed(v->model, memory, kind == 1 ? CZ_F64 : CZ_F32,
                         kind == 1 ? CZ_DENSE : CZ_SPARSE_ROWS));
        CZ_TRY(expect(make(v, group, NULL, 0), kind == 1 ? CZ_ERR_ARGUMENT : CZ_ERR_UNSUPPORTED,
                      kind == 1 ? "'p1' is f64" : "is sparse"));
    }
    return CZ_OK;
}
RANKS(same_dense_param_type)
