/* SPDX-License-Identifier: MIT */
/* A training in legs that goes on from the dictionary of the leg before. */
#include "zero/legs.h"

static cz_status load_dictionary(const luggage *l, cz_group *group, cz_zero *zero)
{
    return cz_zero_load_state_dict(zero, l->dict);
}

static const travel by_dictionary = {.go_on = load_dictionary};

/* ---- tests ---- */

/* From every world size to every other. */
static void all_pairs(const course *c)
{
    static const int orders[] = {1, 2, 4, 5, 7, 8};
    for (int from = 1; from <= 9; from++)
        for (int to = 1; to <= 9; to++) {
            const leg legs[] = {
                {from, 3 + (from + to) % 7, (cz_partition)((from + to) % 3), orders[from % 6]},
                {to, STEPS, (cz_partition)((from + 2 * to + 1) % 3), orders[to % 6]}};
            run_course(c, legs, 2);
        }
}

TEST(adam_between_all_world_sizes)
{
    with_course(&by_dictionary, cz_rule_adam(), CZ_HYPERS({"lr", 0.5}, {"amsgrad", 1}), CZ_F32,
                all_pairs);
}

TEST(many_legs)
{
    with_course(&by_dictionary, cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
    with_course(&by_dictionary, cz_rule_sgd(),
                CZ_HYPERS({"lr", 0.5}, {"momentum", 0.75}, {"nesterov", 1}), CZ_F32, many_legs);
    with_course(&by_dictionary, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
}

/* Slots that start with a value, scalars of a parameter, state from creation on. */
TEST(all_rules)
{
    with_course(&by_dictionary, cz_rule_adamax(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
    with_course(&by_dictionary, cz_rule_adadelta(), NULL, CZ_F32, many_legs);
    with_course(&by_dictionary, cz_rule_adagrad(),
                CZ_HYPERS({"lr", 0.5}, {"initial_accumulator_value", 0.5}), CZ_F32, many_legs);
    with_course(&by_dictionary, cz_rule_rmsprop(),
                CZ_HYPERS({"lr", 0.5}, {"centered", 1}, {"momentum", 0.5}), CZ_F32, many_legs);
    with_course(&by_dictionary, cz_rule_rprop(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
    with_course(&by_dictionary, cz_rule_nadam(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
    with_course(&by_dictionary, cz_rule_radam(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
}
