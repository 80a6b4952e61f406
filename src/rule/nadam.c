/* SPDX-License-Identifier: MIT */
/* NAdam; its equations are in src/device/cpu/kernels/nadam.c. */
#include "device/coefficients.h"
#include "rule/rule.h"

enum {
    LR,
    BETA1,
    BETA2,
    EPS,
    WEIGHT_DECAY,
    MOMENTUM_DECAY,
    DECOUPLED,
    MAXIMIZE,
    LERP,
    HYPER_COUNT
};

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 2e-3),
    [BETA1] = CZ__HYPER_BETA("beta1", 0.9),
    [BETA2] = CZ__HYPER_BETA("beta2", 0.999),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),
    [MOMENTUM_DECAY] = CZ__HYPER_POSITIVE("momentum_decay", 4e-3),
    [DECOUPLED] = CZ__HYPER_FLAG("decoupled_weight_decay"),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
    [LERP] = CZ__HYPER_FLAG("lerp"),
};

static const cz_slot_spec slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"mu_product", CZ_SLOT_SCALAR, 1, NULL},
    {"exp_avg", CZ_SLOT_ELEMENT, 0, NULL},
    {"exp_avg_sq", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned slots_used(const double *h)
{
    return 0xfu;
}

static double momentum(const double *h, double t)
{
    return h[BETA1] * (1 - 0.5 * pow(0.96, t * h[MOMENTUM_DECAY]));
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers, t = (double)step->step, decay = h[WEIGHT_DECAY];
    const double mu = momentum(h, t), next = momentum(h, t + 1);
    const double product = (float)step->scalars[0] * (float)mu; /* PyTorch keeps it in f32 */
    step->scalars[0] = product;
    coefficients[CZ__NADAM_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__NADAM_KEEP1] = h[BETA1];
    coefficients[CZ__NADAM_TAKE1] = 1 - h[BETA1];
    coefficients[CZ__NADAM_KEEP2] = h[BETA2];
    coefficients[CZ__NADAM_TAKE2] = 1 - h[BETA2];
    coefficients[CZ__NADAM_EPS] = h[EPS];
    coefficients[CZ__NADAM_DECAY] = h[DECOUPLED] != 0 ? 1 - h[LR] * decay : decay;
    coefficients[CZ__NADAM_BIAS2] = 1 - pow(h[BETA2], t);
    coefficients[CZ__NADAM_RATE_GRADIENT] = -h[LR] * (1 - mu) / (1 - product);
    coefficients[CZ__NADAM_RATE_MOMENT] = -h[LR] * next / (1 - product * next);
    *flags = (h[LERP] != 0 ? CZ__NADAM_LERP : 0u) | (decay != 0 ? CZ__NADAM_DECAYS : 0u) |
             (h[DECOUPLED] != 0 ? CZ__NADAM_DECOUPLED : 0u);
}

const cz_rule *cz__rule_nadam(void)
{
    static const cz_rule rule = {
        CZ__RULE("nadam", hypers, slots),
        .slots_used = slots_used,
        .prepare = prepare,
    };
    return &rule;
}
