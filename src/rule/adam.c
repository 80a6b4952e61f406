/* SPDX-License-Identifier: MIT */
/* Adam; its equations are in src/device/cpu/kernels/adam.h. */
#include "rule/adam.h"

#include "device/coefficients.h"

const cz_slot_spec cz__adam_slots[CZ__ADAM_SLOT_COUNT] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"exp_avg", CZ_SLOT_ELEMENT, 0, NULL},
    {"exp_avg_sq", CZ_SLOT_ELEMENT, 0, NULL},
    {"max_exp_avg_sq", CZ_SLOT_ELEMENT, 0, NULL},
};

unsigned cz__adam_slots_used(const double *h)
{
    return h[CZ__ADAM_HYPER_AMSGRAD] != 0 ? 0xfu : 0x7u;
}

/* The order of operations is PyTorch's, in double; each coefficient is rounded by the kernel. */
void cz__adam_prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers, t = (double)step->step;
    const double beta1 = h[CZ__ADAM_HYPER_BETA1], beta2 = h[CZ__ADAM_HYPER_BETA2];
    coefficients[CZ__ADAM_RATE] = -(h[CZ__ADAM_HYPER_LR] / (1 - pow(beta1, t)));
    coefficients[CZ__ADAM_SIGN] = h[CZ__ADAM_HYPER_MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__ADAM_KEEP1] = beta1;
    coefficients[CZ__ADAM_TAKE1] = 1 - beta1;
    coefficients[CZ__ADAM_KEEP2] = beta2;
    coefficients[CZ__ADAM_TAKE2] = 1 - beta2;
    coefficients[CZ__ADAM_ROOT] = sqrt(1 - pow(beta2, t));
    coefficients[CZ__ADAM_EPS] = h[CZ__ADAM_HYPER_EPS];
    *flags = (h[CZ__ADAM_HYPER_AMSGRAD] != 0 ? CZ__ADAM_AMSGRAD : 0u) |
             (h[CZ__ADAM_HYPER_LERP] != 0 ? CZ__ADAM_LERP : 0u);
}

static const cz_hyper_spec hypers[CZ__ADAM_HYPER_COUNT] = CZ__ADAM_HYPERS(0);

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    cz__adam_prepare(step, coefficients, flags);
    coefficients[CZ__ADAM_DECAY] = h[CZ__ADAM_HYPER_WEIGHT_DECAY];
    *flags |= h[CZ__ADAM_HYPER_WEIGHT_DECAY] != 0 ? CZ__ADAM_DECAYS : 0u;
}

const cz_rule *cz_rule_adam(void)
{
    static const cz_rule rule = {
        .abi = CZ_RULE_ABI,
        .size = sizeof(cz_rule),
        .name = "adam",
        .hyper_count = CZ__ADAM_HYPER_COUNT,
        .hypers = hypers,
        .slot_count = CZ__ADAM_SLOT_COUNT,
        .slots = cz__adam_slots,
        .slots_used = cz__adam_slots_used,
        .prepare = prepare,
    };
    return &rule;
}
