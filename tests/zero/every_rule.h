/* SPDX-License-Identifier: MIT */
/* Every built-in rule, with options that matter. */
#ifndef CZ_TEST_EVERY_RULE_H
#define CZ_TEST_EVERY_RULE_H

#include "czero/rule.h"

typedef struct rule_and_hypers {
    const char *rule;
    const cz_hyper *hypers;
} rule_and_hypers;

static const rule_and_hypers every_rule[] = {
    {"sgd", CZ_HYPERS({"lr", 0.01}, {"momentum", 0.9})},
    {"adam", CZ_HYPERS({"amsgrad", 1})},
    {"adam", NULL},
    {"adamw", NULL},
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
    {"muon", CZ_HYPERS({"lr", 0.02})}, /* over matrices */
};
enum { EVERY_RULE = sizeof every_rule / sizeof *every_rule };

#endif
