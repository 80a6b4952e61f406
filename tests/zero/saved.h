/* SPDX-License-Identifier: MIT */
/* the trainings whose state is saved and loaded, whichever way: kept in memory, or in a
 * checkpoint. */
#ifndef CZ_TEST_ZERO_SAVED_H
#define CZ_TEST_ZERO_SAVED_H

#include "support/spans.h"
#include "zero/cases.h"
#include "shard/shard.h"
#include "optim/optim.h"

static const cz_hyper some_hypers[] = {{"lr", 0.125}, {NULL, 0}};
static const int64_t some_sizes[] = {5, 64, 0, 129, 17, 1};

static inline cz_test_training some_training(const char *rule, cz_dtype dtype)
{
    return (cz_test_training){.param_count = 6,
                              .sizes = some_sizes,
                              .dtype = dtype,
                              .rule = cz_rule_find(rule),
                              .hypers = some_hypers};
}

/* two of its parameters come before the 6th step. */
static cz_param_group late = {sizeof late, (const int64_t[]){2, 5}, 2, NULL};

static inline cz_status add_late(const cz_test_subject *subject, int step)
{
    if (step != 5)
        return CZ_OK;
    return subject->zero ? cz_zero_add_param_group(subject->zero, &late)
                         : cz_optim_add_param_group(subject->optim, &late);
}

static inline cz_test_training late_training(const char *rule)
{
    static const int64_t members[] = {0, 1, 3, 4};
    static const cz_param_group first = {sizeof first, members, 4, NULL};
    cz_test_training training = some_training(rule, CZ_F32);
    training.groups = &first;
    training.group_count = 1;
    training.edit = add_late;
    return training;
}

/* After the 11th step. */
static inline cz_status check_counts(const cz_test_subject *subject, cz_group *group)
{
    for (int64_t p = 0; p < 6; p++) {
        const int64_t count = cz__optim_step_count(cz_zero_local_optim(subject->zero), p);
        if (cz__shard_map_home(cz_test_shard_map(subject->zero), p) == cz_group_rank(group) &&
            count != (p == 2 || p == 5 ? 6 : 11))
            return cz_fail(CZ_ERR_STATE, "parameter %d made %d steps", (int)p, (int)count);
    }
    return CZ_OK;
}

/* other segments, the same number of ranks. `by` NULL: in memory. */
static inline void check_segments(const handover *by)
{
    static const size_t segments[] = {64, 128, 1 << 16, 1 << 20};
    const cz_test_training training = some_training("adamw", CZ_F32);
    for (int world = 1; world <= 4; world++)
        for (int k = 0; k < 4; k++) {
            const stage list[] = {{world, 3, CZ_PARTITION_ELEMENTS, 1 << 20, 0, 0},
                                  {world, 3, CZ_PARTITION_ELEMENTS, segments[k], 0, 0},
                                  {world, 3, CZ_PARTITION_GREEDY, segments[3 - k], 0, 0}};
            check_stages(by, &training, list, 3, NULL);
        }
}

#endif
