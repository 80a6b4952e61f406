/* SPDX-License-Identifier: MIT */
/* AdamW: Adam with the weight decay applied to the parameter, before the moments. */
#include "rule/adam.h"

#include "device/coefficients.h"

static const cz_hyper_spec hypers[CZ__ADAM_HYPER_COUNT] = CZ__ADAM_HYPERS(1e-2);

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    cz__adam_prepare(step, coefficients, flags);
    coefficients[CZ__ADAM_DECAY] = 1 - h[CZ__ADAM_HYPER_LR] * h[CZ__ADAM_HYPER_WEIGHT_DECAY];
}

const cz_rule *cz_rule_adamw(void)
{
    static const cz_rule rule = {
        .abi = CZ_RULE_ABI,
        .size = sizeof(cz_rule),
        .name = "adamw",
        .hyper_count = CZ__ADAM_HYPER_COUNT,
        .hypers = hypers,
        .slot_count = CZ__ADAM_SLOT_COUNT,
        .slots = cz__adam_slots,
        .slots_used = cz__adam_slots_used,
        .prepare = prepare,
    };
    return &rule;
}
