/* SPDX-License-Identifier: MIT */
/* AdEMAMix; its equations are in src/device/cpu/kernels/ademamix.c. */
#include "device/coefficients.h"
#include "rule/rule.h"

enum {
    LR,
    BETA1,
    BETA2,
    BETA3,
    ALPHA,
    BETA3_WARMUP,
    ALPHA_WARMUP,
    EPS,
    WEIGHT_DECAY,
    MAXIMIZE,
    HYPER_COUNT
};

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 1e-3),
    [BETA1] = CZ__HYPER_BETA("beta1", 0.9),
    [BETA2] = CZ__HYPER_BETA("beta2", 0.999),
    [BETA3] = CZ__HYPER_BETA("beta3", 0.9999),
    [ALPHA] = CZ__HYPER_POSITIVE("alpha", 5),
    [BETA3_WARMUP] = CZ__HYPER_POSITIVE("beta3_warmup", 0),
    [ALPHA_WARMUP] = CZ__HYPER_POSITIVE("alpha_warmup", 0),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 1e-2),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
};

static const cz_slot_spec slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"exp_avg_fast", CZ_SLOT_ELEMENT, 0, NULL},
    {"exp_avg_slow", CZ_SLOT_ELEMENT, 0, NULL},
    {"exp_avg_sq", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned slots_used(const double *h)
{
    return 0xfu;
}

/* In how many steps half of a moment is gone. */
static double half_life(double beta)
{
    return beta > 0 ? log(0.5) / log(beta) : 0;
}

/* From beta1 to beta3 so that the half-life grows evenly. */
static double slow_beta(const double *h, double t)
{
    if (t >= h[BETA3_WARMUP])
        return h[BETA3];
    const double part = t / h[BETA3_WARMUP];
    const double steps = (1 - part) * half_life(h[BETA1]) + part * half_life(h[BETA3]);
    const double beta = steps > 0 ? pow(0.5, 1 / steps) : 0;
    return beta < h[BETA3] ? beta : h[BETA3];
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers, t = (double)step->step;
    const double beta3 = slow_beta(h, t);
    const double alpha = t < h[ALPHA_WARMUP] ? t / h[ALPHA_WARMUP] * h[ALPHA] : h[ALPHA];
    coefficients[CZ__ADEMAMIX_RATE_FAST] = -(h[LR] / (1 - pow(h[BETA1], t)));
    coefficients[CZ__ADEMAMIX_RATE_SLOW] = -(h[LR] * alpha);
    coefficients[CZ__ADEMAMIX_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__ADEMAMIX_KEEP1] = h[BETA1];
    coefficients[CZ__ADEMAMIX_TAKE1] = 1 - h[BETA1];
    coefficients[CZ__ADEMAMIX_KEEP2] = h[BETA2];
    coefficients[CZ__ADEMAMIX_TAKE2] = 1 - h[BETA2];
    coefficients[CZ__ADEMAMIX_KEEP3] = beta3;
    coefficients[CZ__ADEMAMIX_TAKE3] = 1 - beta3;
    coefficients[CZ__ADEMAMIX_ROOT] = sqrt(1 - pow(h[BETA2], t));
    coefficients[CZ__ADEMAMIX_EPS] = h[EPS];
    coefficients[CZ__ADEMAMIX_DECAY] = 1 - h[LR] * h[WEIGHT_DECAY];
}

const cz_rule *cz__rule_ademamix(void)
{
    static const cz_rule rule = {
        CZ__RULE("ademamix", hypers, slots),
        .slots_used = slots_used,
        .prepare = prepare,
    };
    return &rule;
}
