/* SPDX-License-Identifier: MIT */
/* What SGD and rules that move as it does have in common: they begin with these hyper-parameters,
 * and their only slot is the momentum. */
#ifndef CZ_RULE_SGD_H
#define CZ_RULE_SGD_H

#include "rule/rule.h"

enum { LR, MOMENTUM, DAMPENING, WEIGHT_DECAY, NESTEROV, MAXIMIZE, SGD_HYPERS };

#define CZ__SGD_HYPERS(of_momentum)                                                                \
    [LR] = CZ__HYPER_POSITIVE("lr", NAN),                                                          \
    [MOMENTUM] = CZ__HYPER_POSITIVE("momentum", of_momentum),                                      \
    [DAMPENING] = CZ__HYPER_ANY("dampening", 0),                                                   \
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),                                        \
    [NESTEROV] = CZ__HYPER_FLAG("nesterov"), [MAXIMIZE] = CZ__HYPER_FLAG("maximize")

/* Does Nesterov's form have what it needs? For the check of the rule of that name. */
cz_status cz__sgd_check(const char *rule, const double *hypers);

/* The rest is as in a rule's table. */
unsigned cz__sgd_slots_used(const double *hypers);
void cz__sgd_prepare(const cz_rule_step *step, double *coefficients, unsigned *flags);

#endif
