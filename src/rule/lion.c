/* SPDX-License-Identifier: MIT */
/* Lion; its equations are in src/device/cpu/kernels/lion.c. */
#include "device/coefficients.h"
#include "rule/rule.h"

enum { LR, BETA1, BETA2, WEIGHT_DECAY, MAXIMIZE, HYPER_COUNT };

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 1e-4),   [BETA1] = CZ__HYPER_BETA("beta1", 0.9),
    [BETA2] = CZ__HYPER_BETA("beta2", 0.99), [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
};

static const cz_slot_spec slots[] = {{"exp_avg", CZ_SLOT_ELEMENT, 0, NULL}};

static unsigned slots_used(const double *h)
{
    return 1;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    coefficients[CZ__LION_RATE] = -h[LR];
    coefficients[CZ__LION_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__LION_KEEP1] = h[BETA1];
    coefficients[CZ__LION_TAKE1] = 1 - h[BETA1];
    coefficients[CZ__LION_KEEP2] = h[BETA2];
    coefficients[CZ__LION_TAKE2] = 1 - h[BETA2];
    coefficients[CZ__LION_DECAY] = 1 - h[LR] * h[WEIGHT_DECAY];
}

const cz_rule *cz__rule_lion(void)
{
    static const cz_rule rule = {
        CZ__RULE("lion", hypers, slots),
        .slots_used = slots_used,
        .prepare = prepare,
    };
    return &rule;
}
