/* SPDX-License-Identifier: MIT */
/* Sharded optimizers on several sub-groups of a rank, stepping at the same time on threads of their
 * own: each gives the bits of one unsharded optimizer on the mean gradient of its sub-group. */
#include "group/group_test.h"
#include "support/training.h"

static const int64_t sizes[] = {7, 1000, 0, 3, 129, 16};
enum { PARAMS = sizeof sizes / sizeof *sizes, STEPS = 6 };

/* What one rank trains on one group, and its reference. */
typedef struct twin {
    cz_group *group;
    cz_test_training training;
    cz_test_memory memory, reference;
    cz_zero *zero;
    cz_optim *optim;
    outcome outcome;
    pthread_t thread;
} twin;

static cz_status twin_open(twin *t, cz_group *group, const cz_rule *rule, cz_partition partition)
{
    const cz_zero_options options = {.size = sizeof options, .partition = partition};
    t->group = group;
    t->training =
        (cz_test_training){.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32, .rule = rule};
    CZ_TRY(cz_test_memory_create(&t->memory, &t->training));
    CZ_TRY(cz_test_memory_create(&t->reference, &t->training));
    CZ_TRY(cz_optim_create(&t->optim, t->reference.model, rule, NULL, NULL));
    return cz_zero_create(&t->zero, group, t->memory.model, rule, NULL, &options);
}

static void twin_close(twin *t)
{
    cz_zero_destroy(&t->zero);
    cz_optim_destroy(&t->optim);
    cz_test_memory_destroy(&t->memory);
    cz_test_memory_destroy(&t->reference);
}

static void set_gradients(twin *t, int step)
{
    const int rank = cz_group_rank(t->group), size = cz_group_size(t->group);
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            double sum = 0; /* exact */
            for (int r = 0; r < size; r++)
                sum += cz_test_gradient(r, step, i);
            cz_test_store(t->memory.grads[p], CZ_F32, i, cz_test_gradient(rank, step, i));
            cz_test_store(t->reference.grads[p], CZ_F32, i, (float)sum / (float)size);
        }
}

static cz_status train(twin *t)
{
    for (int step = 0; step < STEPS; step++) {
        set_gradients(t, step);
        CZ_TRY(cz_zero_step(t->zero, NULL, NULL));
        CZ_TRY(cz_optim_step(t->optim, NULL, NULL));
        for (int p = 0; p < PARAMS; p++)
            CHECK(memcmp(t->memory.values[p], t->reference.values[p],
                         (size_t)sizes[p] * sizeof(float)) == 0,
                  "step %d, a group of %d: parameter %d has other bits", step,
                  cz_group_size(t->group), p);
    }
    return CZ_OK;
}

static void *twin_main(void *context)
{
    twin *t = context;
    note(&t->outcome, train(t));
    return NULL;
}

enum { TWINS = 3 };

/* The whole, and twice a half of it; optimizers are made one after the other on every rank. */
static cz_status open_all(twin *twins, cz_group *group, cz_group **subs)
{
    const int rank = cz_group_rank(group), half = rank < cz_group_size(group) / 2;
    CZ_TRY(cz_group_split(group, half, -rank, &subs[0]));
    CZ_TRY(cz_group_split(group, rank % 2, rank, &subs[1]));
    CZ_TRY(twin_open(&twins[0], group, cz_rule_adam(), CZ_PARTITION_ELEMENTS));
    CZ_TRY(twin_open(&twins[1], subs[0], cz_rule_adamw(), CZ_PARTITION_GREEDY));
    return twin_open(&twins[2], subs[1], cz_rule_adam(), CZ_PARTITION_ELEMENTS);
}

static cz_status each_rank(cz_group *group, void *arg)
{
    twin twins[TWINS] = {0};
    cz_group *subs[2] = {NULL, NULL};
    cz_status status = open_all(twins, group, subs);
    int started = 0;
    for (; status == CZ_OK && started < TWINS; started++)
        if (pthread_create(&twins[started].thread, NULL, twin_main, &twins[started]))
            status = cz_fail(CZ_ERR_MEMORY, "no thread");
    for (int i = 0; i < started; i++)
        pthread_join(twins[i].thread, NULL);
    for (int i = started - 1; i >= 0; i--)
        if (status == CZ_OK && twins[i].outcome.status != CZ_OK)
            status = cz_fail(twins[i].outcome.status, "twin %d: %s", i, twins[i].outcome.sentence);
    for (int i = 0; i < TWINS; i++)
        twin_close(&twins[i]);
    cz_group_destroy(&subs[0]);
    cz_group_destroy(&subs[1]);
    return status;
}

TEST(optimizers_on_subgroups)
{
    for (int world = 2; world <= LARGEST_WORLD; world++)
        expect_ok(world, world % 2 ? 0 : 128, each_rank, NULL);
}
