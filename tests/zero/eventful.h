/* SPDX-License-Identifier: MIT */
/* An eventful training for stages: parameters are frozen and missed, hyper-parameters change, a
 * group is added. How it gets from stage to stage is the test's. */
#ifndef CZ_TEST_EVENTFUL_H
#define CZ_TEST_EVENTFUL_H

#include <stdio.h>

#include "support/cz_test.h"
#include "support/stages.h"

enum { PARAMS = 9, STEPS = 12, ADDED_AT = 7 };

static inline int64_t find_param(const cz_model *model, int64_t param)
{
    char name[24];
    snprintf(name, sizeof name, "p%d", (int)param);
    return cz_model_find(model, name);
}

static inline cz_status eventful_edit(const cz_test_subject *subject, int step)
{
    for (int p = 0; p < PARAMS; p++) {
        const bool frozen = (p == 3 && step >= 2 && step < 5) || (p == 0 && step >= 4 && step < 9);
        CZ_TRY(cz_model_set_requires_grad(subject->model, find_param(subject->model, p), !frozen));
    }
    return CZ_OK;
}

static inline cz_status eventful_tune(const cz_test_subject *subject, int step)
{
    cz_optim *optim = subject->zero ? cz_zero_local_optim(subject->zero) : subject->optim;
    double present;
    if (step == 3)
        CZ_TRY(cz_optim_set_hyper(optim, 0, "lr", 0.125));
    if (step == 4)
        CZ_TRY(cz_optim_add_hyper(optim, 1, "initial_lr", 0.5));
    if (step == 8 && cz_optim_get_hyper(optim, 0, "weight_decay", &present) == CZ_OK)
        CZ_TRY(cz_optim_set_hyper(optim, CZ_ALL_GROUPS, "weight_decay", 0.0625));
    return CZ_OK;
}

static inline bool eventful_gradient(int rank, int step, int64_t param)
{
    return (step * 5 + param * 3) % 7 != 0;
}

static inline cz_test_training eventful(const cz_rule *rule, const cz_hyper *hypers, cz_dtype dtype)
{
    static const int64_t sizes[PARAMS] = {40, 0, 1, 131, 7, 16, 64, 33, 5};
    static const int64_t even[] = {0, 2, 4}, odd[] = {1, 3, 5}, added[] = {6, 7, 8};
    static const cz_hyper odd_hypers[] = {{"lr", 0.25}, {NULL, 0}};
    static const cz_param_group groups[] = {{sizeof *groups, even, 3, NULL},
                                            {sizeof *groups, odd, 3, odd_hypers},
                                            {sizeof *groups, added, 3, NULL}};
    return (cz_test_training){.param_count = PARAMS,
                              .sizes = sizes,
                              .dtype = dtype,
                              .rule = rule,
                              .hypers = hypers,
                              .groups = groups,
                              .group_count = 3,
                              .last_group_at = ADDED_AT,
                              .has_gradient = eventful_gradient,
                              .edit = eventful_edit,
                              .tune = eventful_tune};
}

/* On these many ranks, and then on those; each number with each. */
static inline void check_pairs(const handover *by, const cz_test_training *training,
                               const int *worlds, int count)
{
    static const int orders[] = {1, 2, 4, 5, 7, 8};
    for (int k = 0; k < count * count; k++) {
        const int from = worlds[k / count], to = worlds[k % count], steps = 3 + (from + to) % 7;
        const stage list[] = {
            {from, steps, (cz_partition)((from + to) % 3), 0, 0, orders[from % 6]},
            {to, STEPS - steps, (cz_partition)((from + 2 * to + 1) % 3), 0, 0, orders[to % 6]}};
        check_stages(by, training, list, 2, NULL);
    }
}

/* In many stages, and in one. */
static inline void check_many(const handover *by, const cz_rule *rule, const cz_hyper *hypers,
                              cz_dtype dtype)
{
    static const stage many[] = {
        {3, 2, CZ_PARTITION_ELEMENTS, 0, 0, 1}, {5, 2, CZ_PARTITION_GREEDY, 0, 0, 4},
        {1, 2, CZ_PARTITION_GREEDY, 0, 0, 8},   {7, 1, CZ_PARTITION_GIVEN, 0, 0, 2},
        {2, 2, CZ_PARTITION_ELEMENTS, 0, 0, 5}, {9, 3, CZ_PARTITION_ELEMENTS, 0, 0, 7}};
    const cz_test_training training = eventful(rule, hypers, dtype);
    check_stages(by, &training, many, 6, NULL);
    check_stages(by, &training, &(stage){4, STEPS, CZ_PARTITION_GIVEN, 0, 0, 1}, 1, NULL);
    for (int world = 1; world <= 7; world += 2)
        for (int partition = 0; partition < 3; partition++)
            check_stages(by, &training, &(stage){world, STEPS, (cz_partition)partition, 0, 0, 2}, 1,
                         NULL);
}

/* Slots that start with a value, scalars of a parameter, state from creation on. */
static inline void check_all_rules(const handover *by)
{
    check_many(by, cz_rule_adamax(), CZ_HYPERS({"lr", 0.5}), CZ_F32);
    check_many(by, cz_rule_adadelta(), NULL, CZ_F32);
    check_many(by, cz_rule_adagrad(), CZ_HYPERS({"lr", 0.5}, {"initial_accumulator_value", 0.5}),
               CZ_F32);
    check_many(by, cz_rule_rmsprop(), CZ_HYPERS({"lr", 0.5}, {"centered", 1}, {"momentum", 0.5}),
               CZ_F32);
    check_many(by, cz_rule_rprop(), CZ_HYPERS({"lr", 0.5}), CZ_F64);
    check_many(by, cz_rule_nadam(), CZ_HYPERS({"lr", 0.5}), CZ_F32);
    check_many(by, cz_rule_radam(), CZ_HYPERS({"lr", 0.5}), CZ_F64);
    check_many(by, cz_rule_ademamix(), CZ_HYPERS({"lr", 0.5}, {"alpha_warmup", 8}), CZ_F32);
    check_many(by, cz_rule_schedule_free_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F32);
    check_many(by, cz_rule_adam_mini(), CZ_HYPERS({"lr", 0.5}), CZ_F64);
}

/* Their state has the form of one of the others. */
static inline void check_similar_rules(const handover *by)
{
    check_many(by, cz_rule_lion(), CZ_HYPERS({"lr", 0.5}), CZ_F32);
    check_many(by, cz_rule_lamb(), CZ_HYPERS({"lr", 0.5}), CZ_F32);
    check_many(by, cz_rule_lars(), CZ_HYPERS({"lr", 0.5}, {"weight_decay", 0.5}), CZ_F64);
    check_many(by, cz_rule_schedule_free_sgd(), CZ_HYPERS({"lr", 0.5}, {"warmup_steps", 8}),
               CZ_F64);
}

#endif
