/* SPDX-License-Identifier: MIT */
/* Adamax; its equations are in src/device/cpu/kernels/adamax.c. */
#include "device/coefficients.h"
#include "rule/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, MAXIMIZE, LERP, HYPER_COUNT };

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 2e-3),
    [BETA1] = CZ__HYPER_BETA("beta1", 0.9),
    [BETA2] = CZ__HYPER_BETA("beta2", 0.999),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
    [LERP] = CZ__HYPER_FLAG("lerp"),
};

static const cz_slot_spec slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"exp_avg", CZ_SLOT_ELEMENT, 0, NULL},
    {"exp_inf", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned slots_used(const double *h)
{
    return 0x7u;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    coefficients[CZ__ADAMAX_RATE] = -(h[LR] / (1 - pow(h[BETA1], (double)step->step)));
    coefficients[CZ__ADAMAX_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__ADAMAX_KEEP1] = h[BETA1];
    coefficients[CZ__ADAMAX_TAKE1] = 1 - h[BETA1];
    coefficients[CZ__ADAMAX_KEEP2] = h[BETA2];
    coefficients[CZ__ADAMAX_EPS] = h[EPS];
    coefficients[CZ__ADAMAX_DECAY] = h[WEIGHT_DECAY];
    *flags =
        (h[LERP] != 0 ? CZ__ADAMAX_LERP : 0u) | (h[WEIGHT_DECAY] != 0 ? CZ__ADAMAX_DECAYS : 0u);
}

const cz_rule *cz__rule_adamax(void)
{
    static const cz_rule rule = {
        CZ__RULE("adamax", hypers, slots),
        .slots_used = slots_used,
        .prepare = prepare,
    };
    return &rule;
}
