/* SPDX-License-Identifier: MIT */
/* Every built-in rule, sharded, has the bits of the unsharded optimizer: values, slots, scalars and
 * step counts, also of parameters that fall behind or are unfrozen. */
#include "support/cz_test.h"
#include "support/training.h"

static const int64_t sizes[] = {7, 0, 1, 300, 3, 16, 127, 33};
enum { PARAMS = sizeof sizes / sizeof *sizes };

/* Parameter 3 has no gradient in the first step, 4 only on the last ranks, 5 in every second
 * step. */
static bool mostly(int rank, int step, int64_t param)
{
    return param == 3 ? step > 0 : param == 4 ? rank > 0 || step > 1 : param == 5 ? step % 2 : true;
}

/* Parameter 6 is frozen for two steps; the learning rate falls. */
static cz_status unfreeze(const cz_test_subject *subject, int step)
{
    if (step < 0)
        return cz_model_set_requires_grad(subject->model, 6, false);
    CZ_TRY(cz_test_set_hyper(subject, CZ_ALL_GROUPS, "lr", 0.01 / (step + 1)));
    return step == 2 ? cz_model_set_requires_grad(subject->model, 6, true) : CZ_OK;
}

static void check(cz_test_training training)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    char why[256];
    for (int mode = 0; mode < 4; mode++)
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
            training.partition = mode & 1 ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS;
            training.gradients = mode & 2 ? CZ_GRADIENTS_REDUCED : CZ_GRADIENTS_LOCAL;
            if (cz_test_train(&training, worlds[w], NULL, why) != CZ_OK)
                fail_msg("%s, mode %d, world size %d: %s", training.rule->name, mode, worlds[w],
                         why);
        }
}

TEST(every_rule)
{
    const struct {
        const char *rule;
        const cz_hyper *hypers;
    } all[] = {
        {"sgd", CZ_HYPERS({"lr", 0.01}, {"momentum", 0.9})},
        {"adam", NULL},
        {"adamw", CZ_HYPERS({"amsgrad", 1})},
        {"adamax", CZ_HYPERS({"lerp", 1})},
        {"adadelta", CZ_HYPERS({"weight_decay", 0.1})},
        {"adagrad", CZ_HYPERS({"initial_accumulator_value", 0.25}, {"lr_decay", 0.5})},
        {"rmsprop", CZ_HYPERS({"centered", 1}, {"momentum", 0.5})},
        {"rprop", NULL},
        {"nadam", CZ_HYPERS({"weight_decay", 0.1})},
        {"radam", CZ_HYPERS({"beta2", 0.9}, {"weight_decay", 0.1}, {"decoupled_weight_decay", 1})},
        {"lion", CZ_HYPERS({"weight_decay", 0.1})},
        {"lamb", CZ_HYPERS({"lr", 0.01})},
        {"lars", CZ_HYPERS({"lr", 0.5}, {"weight_decay", 0.1})},
        {"ademamix", CZ_HYPERS({"alpha_warmup", 5}, {"beta3_warmup", 5})},
        {"schedule_free_sgd", CZ_HYPERS({"lr", 0.1}, {"warmup_steps", 3}, {"weight_decay", 0.1})},
        {"schedule_free_adamw", CZ_HYPERS({"warmup_steps", 3}, {"r", 1})},
        {"adam_mini", CZ_HYPERS({"weight_decay", 0.1})},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        cz_test_training training = {.param_count = PARAMS,
                                     .sizes = sizes,
                                     .dtype = k % 2 ? CZ_F64 : CZ_F32,
                                     .rule = cz_rule_find(all[k].rule),
                                     .hypers = all[k].hypers,
                                     .steps = 8,
                                     .edit = unfreeze};
        check(training);
        training.has_gradient = mostly;
        if (k % 2)
            check(training);
    }
}
