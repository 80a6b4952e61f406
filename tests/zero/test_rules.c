/* SPDX-License-Identifier: MIT */
/* Every built-in rule, sharded, has the bits of the unsharded optimizer: values, slots, scalars and
 * step counts, also of parameters that fall behind or are unfrozen. */
#include "zero/every_rule.h"
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
    for (int k = 0; k < EVERY_RULE; k++) {
        cz_test_training training = {.param_count = PARAMS,
                                     .sizes = sizes,
                                     .dtype = k % 2 ? CZ_F64 : CZ_F32,
                                     .rule = cz_rule_find(every_rule[k].rule),
                                     .hypers = every_rule[k].hypers,
                                     .steps = 8,
                                     .edit = unfreeze};
        check(training);
        training.has_gradient = mostly;
        if (k % 2)
            check(training);
    }
}
