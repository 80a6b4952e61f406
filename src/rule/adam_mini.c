/* SPDX-License-Identifier: MIT */
/* Adam-mini; its equations are in src/device/cpu/kernels/adam_mini.c. A block, which has one second
 * moment, is a parameter. The first pass adds up the squares of the gradient, and counts them. */
#include "device/coefficients.h"
#include "rule/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, MAXIMIZE, HYPER_COUNT };

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 1e-3),
    [BETA1] = CZ__HYPER_BETA("beta1", 0.9),
    [BETA2] = CZ__HYPER_BETA("beta2", 0.999),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
};

static const cz_slot_spec slot_specs[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"vmean", CZ_SLOT_SCALAR, 0, NULL},
    {"m", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned slots_used(const double *h)
{
    return 0x7u;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    coefficients[CZ__ADAM_MINI_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__ADAM_MINI_KEEP] = h[BETA1];
    coefficients[CZ__ADAM_MINI_TAKE] = 1 - h[BETA1];
    coefficients[CZ__ADAM_MINI_DECAY] = 1 - h[LR] * h[WEIGHT_DECAY];
}

static void combine(const cz_rule_step *step, const double *sums, double *coefficients,
                    unsigned *flags)
{
    const double *h = step->hypers, t = (double)step->step;
    double *vmean = &step->scalars[0];
    if (sums[1] > 0) /* or it has no elements */
        *vmean = h[BETA2] * *vmean + (1 - h[BETA2]) * (sums[0] / sums[1]);
    const double root = sqrt(*vmean) / sqrt(1 - pow(h[BETA2], t)) + h[EPS];
    coefficients[CZ__ADAM_MINI_RATE] = -(h[LR] / (1 - pow(h[BETA1], t)) / root);
}

const cz_rule *cz__rule_adam_mini(void)
{
    static const cz_rule rule = {
        CZ__RULE("adam_mini", hypers, slot_specs),
        .slots_used = slots_used,
        .prepare = prepare,
        .sum_count = 2,
        .find_sums = cz__rule_device_sums,
        .context = (void *)"adam_mini",
        .combine = combine,
    };
    return &rule;
}
