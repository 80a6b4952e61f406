/* SPDX-License-Identifier: MIT */
/* The built-in rules by name. */
#include "czero/rule.h"

#include <string.h>

const cz_rule *cz_rule_find(const char *name)
{
    static const cz_rule *(*const rules[])(void) = {
        cz_rule_sgd,     cz_rule_adam,    cz_rule_adamw, cz_rule_adamax, cz_rule_adadelta,
        cz_rule_adagrad, cz_rule_rmsprop, cz_rule_rprop, cz_rule_nadam,  cz_rule_radam};
    for (size_t i = 0; name && i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i]()->name, name) == 0)
            return rules[i]();
    return NULL;
}
