/* SPDX-License-Identifier: MIT */
/* torch's optimizers, and Lion as PyPI has it, and the names of their values. */
#include <string.h>

#include "interop/torch.h"

#define REAL(name)                                                                                 \
    {                                                                                              \
        name, {name, NULL}, false, false                                                           \
    }
#define FLAG(name)                                                                                 \
    {                                                                                              \
        name, {name, NULL}, true, false                                                            \
    }
#define LATER(name)                                                                                \
    {                                                                                              \
        name, {name, NULL}, true, true                                                             \
    }
#define BOTH(name, first, second)                                                                  \
    {                                                                                              \
        name, {first, second}, false, false                                                        \
    }
#define BETAS BOTH("betas", "beta1", "beta2")
#define ADAM_HYPERS                                                                                \
    {                                                                                              \
        REAL("lr"), BETAS, REAL("eps"), REAL("weight_decay"), FLAG("amsgrad"), LATER("maximize")   \
    }

/* Where several fit, the first is taken, unless the optimizer here is another one of them. Adam and
 * AdamW of versions without "decoupled_weight_decay" look the same: that is a rule of its own,
 * until a load says which. */
static const cz__torch_rule rules[] = {
    {"sgd",
     false,
     false,
     0,
     NULL,
     {REAL("lr"), REAL("momentum"), REAL("dampening"), REAL("weight_decay"), FLAG("nesterov"),
      LATER("maximize")}},
    {CZ__ADAM_OR_ADAMW, true, true, CZ__TORCH_ABSENT, NULL, ADAM_HYPERS},
    {"adam", true, true, 0, NULL, ADAM_HYPERS},
    {"adamw", true, true, 1, NULL, ADAM_HYPERS},
    {"rmsprop",
     true,
     false,
     0,
     NULL,
     {REAL("lr"), REAL("momentum"), REAL("alpha"), REAL("eps"), FLAG("centered"),
      REAL("weight_decay"), LATER("maximize")}},
    {"adagrad",
     true,
     true,
     0,
     NULL,
     {REAL("lr"), REAL("lr_decay"), REAL("eps"), REAL("weight_decay"),
      REAL("initial_accumulator_value"), LATER("maximize")}},
    {"adadelta",
     true,
     false,
     0,
     NULL,
     {REAL("lr"), REAL("rho"), REAL("eps"), REAL("weight_decay"), LATER("maximize")}},
    {"adamax",
     true,
     true,
     0,
     NULL,
     {REAL("lr"), BETAS, REAL("eps"), REAL("weight_decay"), LATER("maximize")}},
    {"nadam",
     true,
     true,
     -1,
     "mu_product",
     {REAL("lr"), BETAS, REAL("eps"), REAL("weight_decay"), REAL("momentum_decay"),
      LATER("decoupled_weight_decay"), LATER("maximize")}},
    {"radam",
     true,
     true,
     -1,
     NULL,
     {REAL("lr"), BETAS, REAL("eps"), REAL("weight_decay"), LATER("decoupled_weight_decay"),
      LATER("maximize")}},
    {"rprop",
     true,
     false,
     0,
     NULL,
     {REAL("lr"), BOTH("etas", "eta_minus", "eta_plus"),
      BOTH("step_sizes", "step_size_min", "step_size_max"), LATER("maximize")}},
    {"lion", false, false, 0, NULL, {REAL("lr"), BETAS, REAL("weight_decay"), LATER("maximize")}},
};

enum { RULES = sizeof rules / sizeof *rules };

const cz__torch_rule *cz__torch_rule_at(int number)
{
    return number >= 0 && number < RULES ? &rules[number] : NULL;
}

const cz__torch_rule *cz__torch_rule_find(const char *rule)
{
    for (int i = 0; i < RULES; i++)
        if (strcmp(rules[i].rule, rule) == 0)
            return &rules[i];
    return NULL;
}

const cz__torch_hyper *cz__torch_hyper_find(const cz__torch_rule *rule, const char *key)
{
    for (int i = 0; i < CZ__TORCH_HYPERS && rule->hypers[i].key; i++)
        if (strcmp(rule->hypers[i].key, key) == 0)
            return &rule->hypers[i];
    return NULL;
}

bool cz__torch_hyper_is_known(const char *key)
{
    for (int i = 0; i < RULES; i++)
        if (cz__torch_hyper_find(&rules[i], key))
            return true;
    return false;
}

bool cz__torch_hyper_is_ignored(const char *key)
{
    static const char *const keys[] = {"foreach", "capturable",  "differentiable",
                                       "fused",   "param_names", "params"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}
