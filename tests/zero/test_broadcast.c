/* SPDX-License-Identifier: MIT */
/* Everything from one rank: all types and kinds of tensors, every root, and what ranks get
 * wrong. */
#include "group/internal.h"
#include "support/cz_test.h"
#include "support/training.h"

static const int64_t sizes[] = {7, 0, 1, 1000, 3, 16, 127, 0, 33, 5};
enum { PARAMS = sizeof sizes / sizeof *sizes };
static const cz_test_training small = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

typedef struct broadcast_trial {
    cz_test_memory memory;
    cz_zero *zero;
    double mean[3]; /* a buffer */
    int64_t seen;   /* another, without dimensions */
    uint16_t outside[5], frozen[2];
} broadcast_trial;

/* Three types of parameters (in a group, in none, frozen) and two of buffers. */
static cz_status broadcast_create(broadcast_trial *trial, cz_group *group)
{
    static const int64_t in_group[] = {0, 3, 9}, three = 3, five = 5, two = 2;
    const cz_param_group one = {sizeof one, in_group, 3, NULL};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.groups = &one;
    options.group_count = 1;
    CZ_TRY(cz_test_memory_create(&trial->memory, &small));
    cz_model *model = trial->memory.model;
    CZ_TRY(cz_model_add(model, "outside", trial->outside, NULL, CZ_BF16, 1, &five));
    CZ_TRY(cz_model_add(model, "frozen", trial->frozen, NULL, CZ_F16, 1, &two));
    CZ_TRY(cz_model_set_requires_grad(model, PARAMS + 1, false));
    CZ_TRY(cz_model_add_buffer(model, "mean", trial->mean, CZ_F64, 1, &three));
    CZ_TRY(cz_model_add_buffer(model, "seen", &trial->seen, CZ_I64, 0, NULL));
    return cz_zero_create(&trial->zero, group, model, cz_rule_adam(), NULL, &options);
}

static void broadcast_fill(broadcast_trial *trial, int value)
{
    for (int64_t p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(trial->memory.values[p], CZ_F32, i, value + (double)i / 1024);
    for (int i = 0; i < 5; i++)
        trial->outside[i] = (uint16_t)(value * 10 + i);
    for (int i = 0; i < 2; i++)
        trial->frozen[i] = (uint16_t)(value * 20 + i);
    for (int i = 0; i < 3; i++)
        trial->mean[i] = value + i / 8.0;
    trial->seen = INT64_C(1) << (40 + value);
}

static cz_status broadcast_holds(const broadcast_trial *trial, int value)
{
    bool right = trial->seen == INT64_C(1) << (40 + value);
    for (int64_t p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            right = right && cz_test_load(trial->memory.values[p], CZ_F32, i) ==
                                 (float)(value + (double)i / 1024);
    for (int i = 0; i < 5; i++)
        right = right && trial->outside[i] == (uint16_t)(value * 10 + i);
    for (int i = 0; i < 2; i++)
        right = right && trial->frozen[i] == (uint16_t)(value * 20 + i);
    for (int i = 0; i < 3; i++)
        right = right && trial->mean[i] == value + i / 8.0;
    return right ? CZ_OK : cz_fail(CZ_ERR_STATE, "not the values of rank %d", value);
}

static cz_status broadcast_refuses(broadcast_trial *trial, int root, cz_status wanted)
{
    const cz_status got = cz_zero_broadcast_parameters(trial->zero, root);
    return got == wanted ? CZ_OK
                         : cz_fail(CZ_ERR_STATE, "root %d gave %s", root, cz_status_name(got));
}

static cz_status broadcast(broadcast_trial *trial, cz_group *group)
{
    const int rank = cz_group_rank(group), world = cz_group_size(group);
    CZ_TRY(broadcast_create(trial, group));
    for (int root = 0; root < world; root++) {
        broadcast_fill(trial, rank);
        for (int odd = 0; odd < world; odd++) {
            CZ_TRY(broadcast_refuses(trial, rank == odd ? world : root, CZ_ERR_ARGUMENT));
            CZ_TRY(broadcast_refuses(trial, rank == odd ? -1 : root, CZ_ERR_ARGUMENT));
            if (world > 1)
                CZ_TRY(broadcast_refuses(trial, rank == odd ? (root + 1) % world : root,
                                         CZ_ERR_MISMATCH));
        }
        CZ_TRY(broadcast_holds(trial, rank));
        CZ_TRY(cz_zero_broadcast_parameters(trial->zero, root));
        CZ_TRY(broadcast_holds(trial, root));
    }
    return cz_zero_step(trial->zero, NULL, NULL);
}

static cz_status broadcast_body(cz_group *group, void *context)
{
    broadcast_trial trial = {0};
    const cz_status status = broadcast(&trial, group);
    cz_zero_destroy(&trial.zero);
    cz_test_memory_destroy(&trial.memory);
    return status;
}

TEST(parameters_and_buffers_of_every_root)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        assert_ranks_ok(worlds[w], broadcast_body, NULL);
}

enum { MANY = 20000 };

static cz_status many_body(cz_group *group, void *context)
{
    const cz_test_training tiny = {.param_count = MANY, .sizes = context, .dtype = CZ_F32};
    cz_test_memory memory = {0};
    cz_zero *zero = NULL;
    cz_status status = cz_test_memory_create(&memory, &tiny);
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, NULL));
    const uint64_t before = group->sequence;
    THEN(cz_zero_broadcast_parameters(zero, 1));
    if (status == CZ_OK && group->sequence - before > 10)
        status = cz_fail(CZ_ERR_STATE, "%d operations", (int)(group->sequence - before));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

/* Not one operation for each: they travel together. */
TEST(many_tiny_parameters)
{
    static int64_t ones[MANY];
    for (int p = 0; p < MANY; p++)
        ones[p] = 1;
    assert_ranks_ok(5, many_body, ones);
}
