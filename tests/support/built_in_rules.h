/* SPDX-License-Identifier: MIT */
/* The built-in rules, for tests that go through all of them. */
#ifndef CZ_TEST_BUILT_IN_RULES_H
#define CZ_TEST_BUILT_IN_RULES_H

#include "czero/rule.h"

/* In the order of cz_rule_name(). */
#define BUILT_IN_RULES 18
static const char *const built_in_rules[BUILT_IN_RULES] = {"sgd",
                                                           "adam",
                                                           "adamw",
                                                           "adamax",
                                                           "adadelta",
                                                           "adagrad",
                                                           "rmsprop",
                                                           "rprop",
                                                           "nadam",
                                                           "radam",
                                                           "lion",
                                                           "lamb",
                                                           "lars",
                                                           "ademamix",
                                                           "schedule_free_sgd",
                                                           "schedule_free_adamw",
                                                           "adam_mini",
                                                           "muon"};

#endif
