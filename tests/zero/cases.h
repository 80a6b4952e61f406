/* SPDX-License-Identifier: MIT */
/* What the tests of trainings share: a training in every mode. */
#ifndef CZ_TEST_CASES_H
#define CZ_TEST_CASES_H

#include "group/group_test.h"
#include "support/stages.h"

/* Cut into elements and whole, gradients local and reduced. */
static inline void check_all(cz_test_training training, int world_size,
                             cz_status (*inspect)(const cz_test_subject *subject, cz_group *group))
{
    for (int mode = 0; mode < 4; mode++) {
        char why[256];
        training.dtype = CZ_F32;
        training.partition = mode % 2 ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS;
        training.gradients = mode / 2 ? CZ_GRADIENTS_REDUCED : CZ_GRADIENTS_LOCAL;
        if (cz_test_train(&training, world_size, inspect, why) != CZ_OK)
            fail_msg("%s, mode %d, world size %d: %s", training.rule->name, mode, world_size, why);
    }
}

#endif
