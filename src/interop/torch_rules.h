/* SPDX-License-Identifier: MIT */
/* What torch's optimizers call what the rules here have. */
#ifndef CZ_INTEROP_TORCH_RULES_H
#define CZ_INTEROP_TORCH_RULES_H

#include "checkpoint/index.h"

enum { CZ__TORCH_HYPERS = 10, CZ__TORCH_ABSENT = 2 };

typedef struct cz__torch_hyper {
    const char *key;     /* torch's; NULL: the end */
    const char *ours[2]; /* the second: torch has a tuple of both */
    bool flag;           /* True or False */
    bool optional;       /* older versions have not got it */
} cz__torch_hyper;

typedef struct cz__torch_rule {
    const char *rule;
    bool counts;         /* its state has "step" */
    bool step_is_tensor; /* in torch 1.13 too, where others have numbers */
    int decoupled;       /* what "decoupled_weight_decay" has to be where it is no value of ours, or
                            CZ__TORCH_ABSENT; -1: it is one */
    const char *scalar;  /* of the state, a tensor of one element; NULL: none */
    cz__torch_hyper hypers[CZ__TORCH_HYPERS];
} cz__torch_rule;

/* NULL: a rule that torch does not have. And the one of that number; NULL: no more. */
const cz__torch_rule *cz__torch_rule_find(const char *rule);
const cz__torch_rule *cz__torch_rule_at(int number);

/* NULL: the rule has none of that key. */
const cz__torch_hyper *cz__torch_hyper_find(const cz__torch_rule *rule, const char *key);
/* One that only says how torch computes: foreach, fused. */
bool cz__torch_hyper_is_ignored(const char *key);
/* Does some rule have it? */
bool cz__torch_hyper_is_known(const char *key);

#endif
