/* SPDX-License-Identifier: MIT */
/* LARS; its equations are in src/device/cpu/kernels/lars.c. The first pass adds the squares of the
 * parameter and of its gradient to two sums. */
#include "device/coefficients.h"
#include "rule/sgd.h"

enum { TRUST_COEFFICIENT = SGD_HYPERS, EPS, ALWAYS_ADAPT, TRUST_CLIP, HYPER_COUNT };

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    CZ__SGD_HYPERS(0.9),
    [TRUST_COEFFICIENT] = CZ__HYPER_POSITIVE("trust_coefficient", 1e-3),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),
    [ALWAYS_ADAPT] = CZ__HYPER_SET_FLAG("always_adapt"),
    [TRUST_CLIP] = CZ__HYPER_FLAG("trust_clip"),
};

static const cz_slot_spec slot_specs[] = {{"momentum_buffer", CZ_SLOT_ELEMENT, 0, NULL}};

static cz_status check_hypers(const double *h)
{
    return cz__sgd_check("lars", h);
}

static void combine(const cz_rule_step *step, const double *sums, double *coefficients,
                    unsigned *flags)
{
    const double *h = step->hypers;
    const double of_param = sqrt(sums[0]), of_gradient = sqrt(sums[1]);
    const bool adapts = h[WEIGHT_DECAY] != 0 || h[ALWAYS_ADAPT] != 0;
    double trust = 1;
    if (adapts && of_param > 0 && of_gradient > 0)
        trust =
            h[TRUST_COEFFICIENT] * of_param / (of_gradient + h[WEIGHT_DECAY] * of_param + h[EPS]);
    if (adapts && h[TRUST_CLIP] != 0)
        trust = trust < h[LR] ? trust / h[LR] : 1;
    coefficients[CZ__SGD_TRUST] = trust;
}

const cz_rule *cz__rule_lars(void)
{
    static const cz_rule rule = {
        CZ__RULE("lars", hypers, slot_specs),
        .check = check_hypers,
        .slots_used = cz__sgd_slots_used,
        .prepare = cz__sgd_prepare,
        .sum_count = 2,
        .find_sums = cz__rule_device_sums,
        .context = (void *)"lars",
        .combine = combine,
    };
    return &rule;
}
