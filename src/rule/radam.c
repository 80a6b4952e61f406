/* SPDX-License-Identifier: MIT */
/* RAdam; its equations are in src/device/cpu/kernels/radam.c. */
#include "device/coefficients.h"
#include "rule/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, DECOUPLED, MAXIMIZE, LERP, HYPER_COUNT };

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 1e-3),
    [BETA1] = CZ__HYPER_BETA("beta1", 0.9),
    [BETA2] = CZ__HYPER_BETA("beta2", 0.999),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),
    [DECOUPLED] = CZ__HYPER_FLAG("decoupled_weight_decay"),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
    [LERP] = CZ__HYPER_FLAG("lerp"),
};

static const cz_slot_spec slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"exp_avg", CZ_SLOT_ELEMENT, 0, NULL},
    {"exp_avg_sq", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned slots_used(const double *h)
{
    return 0x7u;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers, t = (double)step->step, decay = h[WEIGHT_DECAY];
    const double kept = pow(h[BETA2], t), bias2 = 1 - kept;
    const double most = 2 / (1 - h[BETA2]) - 1, length = most - 2 * t * kept / bias2;
    coefficients[CZ__RADAM_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__RADAM_KEEP1] = h[BETA1];
    coefficients[CZ__RADAM_TAKE1] = 1 - h[BETA1];
    coefficients[CZ__RADAM_KEEP2] = h[BETA2];
    coefficients[CZ__RADAM_TAKE2] = 1 - h[BETA2];
    coefficients[CZ__RADAM_EPS] = h[EPS];
    coefficients[CZ__RADAM_DECAY] = h[DECOUPLED] != 0 ? 1 - h[LR] * decay : decay;
    coefficients[CZ__RADAM_BIAS1] = 1 - pow(h[BETA1], t);
    coefficients[CZ__RADAM_LR] = h[LR];
    coefficients[CZ__RADAM_ROOT] = sqrt(bias2);
    if (length > 5)
        coefficients[CZ__RADAM_FACTOR] =
            sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
    *flags = (h[LERP] != 0 ? CZ__RADAM_LERP : 0u) | (decay != 0 ? CZ__RADAM_DECAYS : 0u) |
             (h[DECOUPLED] != 0 ? CZ__RADAM_DECOUPLED : 0u) |
             (length > 5 ? CZ__RADAM_RECTIFIES : 0u);
}

const cz_rule *cz__rule_radam(void)
{
    static const cz_rule rule = {
        CZ__RULE("radam", hypers, slots),
        .slots_used = slots_used,
        .prepare = prepare,
    };
    return &rule;
}
