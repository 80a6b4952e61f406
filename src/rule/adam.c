/* SPDX-License-Identifier: MIT */
/* Adam, and AdamW, which applies the weight decay to the parameter before the moments; equations
 * are in src/device/cpu/kernels/adam.h. */
#include "device/coefficients.h"
#include "rule/rule.h"

/* The hyper-parameters, in this order. */
enum {
    HYPER_LR,
    HYPER_BETA1,
    HYPER_BETA2,
    HYPER_EPS,
    HYPER_WEIGHT_DECAY,
    HYPER_AMSGRAD,
    HYPER_MAXIMIZE,
    HYPER_LERP,
    HYPER_COUNT
};

#define HYPERS(weight_decay)                                                                       \
    {                                                                                              \
        [HYPER_LR] = CZ__HYPER_POSITIVE("lr", 1e-3), [HYPER_BETA1] = CZ__HYPER_BETA("beta1", 0.9), \
        [HYPER_BETA2] = CZ__HYPER_BETA("beta2", 0.999),                                            \
        [HYPER_EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),                                             \
        [HYPER_WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", weight_decay),                   \
        [HYPER_AMSGRAD] = CZ__HYPER_FLAG("amsgrad"),                                               \
        [HYPER_MAXIMIZE] = CZ__HYPER_FLAG("maximize"), [HYPER_LERP] = CZ__HYPER_FLAG("lerp"),      \
    }

/* Slots: step, exp_avg, exp_avg_sq, max_exp_avg_sq. */
#define SLOT_COUNT 4
static const cz_slot_spec slots[SLOT_COUNT] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"exp_avg", CZ_SLOT_ELEMENT, 0, NULL},
    {"exp_avg_sq", CZ_SLOT_ELEMENT, 0, NULL},
    {"max_exp_avg_sq", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned slots_used(const double *h)
{
    return h[HYPER_AMSGRAD] != 0 ? 0xfu : 0x7u;
}

/* All coefficients but that of the decay, all flags but that of the decay. The order of
 * operations is PyTorch's, in double; each coefficient is rounded by the kernel. */
static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers, t = (double)step->step;
    const double beta1 = h[HYPER_BETA1], beta2 = h[HYPER_BETA2];
    coefficients[CZ__ADAM_RATE] = -(h[HYPER_LR] / (1 - pow(beta1, t)));
    coefficients[CZ__ADAM_SIGN] = h[HYPER_MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__ADAM_KEEP1] = beta1;
    coefficients[CZ__ADAM_TAKE1] = 1 - beta1;
    coefficients[CZ__ADAM_KEEP2] = beta2;
    coefficients[CZ__ADAM_TAKE2] = 1 - beta2;
    coefficients[CZ__ADAM_ROOT] = sqrt(1 - pow(beta2, t));
    coefficients[CZ__ADAM_EPS] = h[HYPER_EPS];
    *flags =
        (h[HYPER_AMSGRAD] != 0 ? CZ__ADAM_AMSGRAD : 0u) | (h[HYPER_LERP] != 0 ? CZ__ADAM_LERP : 0u);
}

static const cz_hyper_spec adam_hypers[HYPER_COUNT] = HYPERS(0);

static void prepare_adam(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    prepare(step, coefficients, flags);
    coefficients[CZ__ADAM_DECAY] = h[HYPER_WEIGHT_DECAY];
    *flags |= h[HYPER_WEIGHT_DECAY] != 0 ? CZ__ADAM_DECAYS : 0u;
}

const cz_rule *cz__rule_adam(void)
{
    static const cz_rule rule = {
        CZ__RULE("adam", adam_hypers, slots),
        .slots_used = slots_used,
        .prepare = prepare_adam,
    };
    return &rule;
}

/* ---- AdamW ---- */

static const cz_hyper_spec adamw_hypers[HYPER_COUNT] = HYPERS(1e-2);

static void prepare_adamw(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    prepare(step, coefficients, flags);
    coefficients[CZ__ADAM_DECAY] = 1 - h[HYPER_LR] * h[HYPER_WEIGHT_DECAY];
}

const cz_rule *cz__rule_adamw(void)
{
    static const cz_rule rule = {
        CZ__RULE("adamw", adamw_hypers, slots),
        .slots_used = slots_used,
        .prepare = prepare_adamw,
    };
    return &rule;
}
