/* SPDX-License-Identifier: MIT */
/* A training in stages that goes on from the dictionary of the stage before. */
#include "zero/eventful.h"

TEST(adam_between_all_world_sizes)
{
    static const int worlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const cz_test_training training =
        eventful(cz_rule_adam(), CZ_HYPERS({"lr", 0.5}, {"amsgrad", 1}), CZ_F32);
    check_pairs(NULL, &training, worlds, 9);
}

TEST(state_goes_through_many_stages)
{
    check_many(NULL, cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F64);
    check_many(NULL, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}, {"momentum", 0.75}, {"nesterov", 1}),
               CZ_F32);
    check_many(NULL, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), CZ_F32);
}

TEST(the_state_of_every_rule_goes_through_stages)
{
    check_all_rules(NULL);
    check_similar_rules(NULL);
}
