/* SPDX-License-Identifier: MIT */
/* LAMB; its equations are in src/device/cpu/kernels/lamb.c. The first pass brings the moments up to
 * date and adds the squares of the parameter and of its move to two sums. */
#include "device/coefficients.h"
#include "rule/rule.h"

enum {
    LR,
    BETA1,
    BETA2,
    EPS,
    WEIGHT_DECAY,
    BIAS_CORRECTION,
    ALWAYS_ADAPT,
    TRUST_CLIP,
    MAXIMIZE,
    HYPER_COUNT
};

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 1e-3),
    [BETA1] = CZ__HYPER_BETA("beta1", 0.9),
    [BETA2] = CZ__HYPER_BETA("beta2", 0.999),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-6),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 1e-2),
    [BIAS_CORRECTION] = CZ__HYPER_SET_FLAG("bias_correction"),
    [ALWAYS_ADAPT] = CZ__HYPER_SET_FLAG("always_adapt"),
    [TRUST_CLIP] = CZ__HYPER_FLAG("trust_clip"),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
};

static const cz_slot_spec slot_specs[] = {
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
    const double *h = step->hypers, t = (double)step->step;
    const bool corrects = h[BIAS_CORRECTION] != 0;
    coefficients[CZ__LAMB_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__LAMB_KEEP1] = h[BETA1];
    coefficients[CZ__LAMB_TAKE1] = 1 - h[BETA1];
    coefficients[CZ__LAMB_KEEP2] = h[BETA2];
    coefficients[CZ__LAMB_TAKE2] = 1 - h[BETA2];
    coefficients[CZ__LAMB_FACTOR] = corrects ? 1 / (1 - pow(h[BETA1], t)) : 1;
    coefficients[CZ__LAMB_ROOT] = corrects ? sqrt(1 - pow(h[BETA2], t)) : 1;
    coefficients[CZ__LAMB_EPS] = h[EPS];
    coefficients[CZ__LAMB_DECAY] = h[WEIGHT_DECAY];
}

static void combine(const cz_rule_step *step, const double *sums, double *coefficients,
                    unsigned *flags)
{
    const double *h = step->hypers;
    double trust = 1;
    if ((h[WEIGHT_DECAY] != 0 || h[ALWAYS_ADAPT] != 0) && sums[0] > 0 && sums[1] > 0)
        trust = sqrt(sums[0]) / sqrt(sums[1]);
    if (h[TRUST_CLIP] != 0 && trust > 1)
        trust = 1;
    coefficients[CZ__LAMB_RATE] = -(h[LR] * trust);
}

const cz_rule *cz__rule_lamb(void)
{
    static const cz_rule rule = {
        CZ__RULE("lamb", hypers, slot_specs),
        .slots_used = slots_used,
        .prepare = prepare,
        .sum_count = 2,
        .find_sums = cz__rule_device_sums,
        .context = (void *)"lamb",
        .combine = combine,
    };
    return &rule;
}
