/* SPDX-License-Identifier: MIT */
/* Rules by name: the built-in ones and those that programs registered. */
#include "base/float_mode.h"
#include "base/process.h"
#include "base/status.h"
#include "rule/rule.h"

#include <string.h>

static const cz_rule *(*const built_in[])(void) = {cz__rule_sgd,
                                                   cz__rule_adam,
                                                   cz__rule_adamw,
                                                   cz__rule_adamax,
                                                   cz__rule_adadelta,
                                                   cz__rule_adagrad,
                                                   cz__rule_rmsprop,
                                                   cz__rule_rprop,
                                                   cz__rule_nadam,
                                                   cz__rule_radam,
                                                   cz__rule_lion,
                                                   cz__rule_lamb,
                                                   cz__rule_lars,
                                                   cz__rule_ademamix,
                                                   cz__rule_schedule_free_sgd,
                                                   cz__rule_schedule_free_adamw,
                                                   cz__rule_adam_mini,
                                                   cz__rule_muon};
#define BUILT_IN ((int)(sizeof built_in / sizeof *built_in))

CZ__PROCESS_LOCK(lock)
static const cz_rule *registered[CZ_RULE_REGISTERED]; /* under the lock, as the count */
static int registered_count;

/* NULL: there are fewer. Under the lock. */
static const cz_rule *rule_at(int index)
{
    if (index < 0 || index >= BUILT_IN + registered_count)
        return NULL;
    return index < BUILT_IN ? built_in[index]() : registered[index - BUILT_IN];
}

static const cz_rule *find(const char *name)
{
    const cz_rule *rule;
    for (int i = 0; (rule = rule_at(i)); i++)
        if (strcmp(rule->name, name) == 0)
            return rule;
    return NULL;
}

const cz_rule *cz_rule_find(const char *name)
{
    if (!name)
        return NULL;
    cz__process_lock_take(&lock);
    const cz_rule *rule = find(name);
    cz__process_lock_release(&lock);
    return rule;
}

const char *cz_rule_name(int index)
{
    cz__process_lock_take(&lock);
    const cz_rule *rule = rule_at(index);
    cz__process_lock_release(&lock);
    return rule ? rule->name : NULL;
}

static cz_status append(const cz_rule *rule)
{
    if (find(rule->name))
        return cz__fail(CZ_ERR_STATE, "rule %s: there is a rule of that name", rule->name);
    if (registered_count == CZ_RULE_REGISTERED)
        return cz__fail(CZ_ERR_STATE, "rule %s: %d rules are registered, that is the most",
                        rule->name, registered_count);
    registered[registered_count++] = rule;
    return CZ_OK;
}

cz_status cz_rule_register(const cz_rule *rule)
{
    CZ__OWN_FLOATS;
    CZ_TRY(cz__rule_check_table(rule));
    cz__process_lock_take(&lock);
    const cz_status status = append(rule);
    cz__process_lock_release(&lock);
    return status;
}
