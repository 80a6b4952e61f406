/* SPDX-License-Identifier: MIT */
/* Schedule-free SGD and AdamW; their equations are in src/device/cpu/kernels/schedule_free.c. The
 * weight of a step in the mean is t^r times the largest rate so far to a power. */
#include "device/coefficients.h"
#include "rule/rule.h"

/* The hyper-parameters that both have, in this order: AdamW's momentum is beta1. */
enum { LR, MOMENTUM, WEIGHT_DECAY, WARMUP_STEPS, R, WEIGHT_LR_POWER, MAXIMIZE, SHARED_COUNT };

#define SHARED_HYPERS(lr, momentum)                                                                \
    [LR] = CZ__HYPER_POSITIVE("lr", lr), [MOMENTUM] = CZ__HYPER_BETA(momentum, 0.9),               \
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),                                        \
    [WARMUP_STEPS] = CZ__HYPER_POSITIVE("warmup_steps", 0), [R] = CZ__HYPER_POSITIVE("r", 0),      \
    [WEIGHT_LR_POWER] = CZ__HYPER_POSITIVE("weight_lr_power", 2),                                  \
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize")

enum { WEIGHT_SUM, LR_MAX }; /* the scalar slots, in this order */

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers, t = (double)step->step;
    const double lr = t < h[WARMUP_STEPS] ? h[LR] * (t / h[WARMUP_STEPS]) : h[LR];
    if (lr > step->scalars[LR_MAX])
        step->scalars[LR_MAX] = lr;
    const double weight = pow(t, h[R]) * pow(step->scalars[LR_MAX], h[WEIGHT_LR_POWER]);
    step->scalars[WEIGHT_SUM] += weight;
    const double mix = step->scalars[WEIGHT_SUM] > 0 ? weight / step->scalars[WEIGHT_SUM] : 0;
    coefficients[CZ__SCHEDULE_FREE_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__SCHEDULE_FREE_DECAY] = h[WEIGHT_DECAY];
    coefficients[CZ__SCHEDULE_FREE_MIX] = mix;
    coefficients[CZ__SCHEDULE_FREE_RATE_Y] = lr * (h[MOMENTUM] * (1 - mix) - 1);
    coefficients[CZ__SCHEDULE_FREE_RATE_Z] = -lr;
    *flags = h[WEIGHT_DECAY] != 0 ? CZ__SCHEDULE_FREE_DECAYS : 0u;
}

/* The mean x of the z's: y = (1 - b1) z + b1 x. */
static double evaluated(const double *h, int *slot)
{
    *slot = 0;
    return 1 - 1 / h[MOMENTUM];
}

/* ---- SGD ---- */

static const cz_hyper_spec sgd_hypers[SHARED_COUNT] = {SHARED_HYPERS(1, "momentum")};

static const cz_slot_spec sgd_slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"weight_sum", CZ_SLOT_SCALAR, 0, NULL},
    {"lr_max", CZ_SLOT_SCALAR, 0, NULL},
    {"z", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned sgd_slots_used(const double *h)
{
    return 0xfu;
}

const cz_rule *cz__rule_schedule_free_sgd(void)
{
    static const cz_rule rule = {
        CZ__RULE("schedule_free_sgd", sgd_hypers, sgd_slots),
        .slots_used = sgd_slots_used,
        .prepare = prepare,
        .evaluated = evaluated,
    };
    return &rule;
}

/* ---- AdamW ---- */

enum { BETA2 = SHARED_COUNT, EPS, ADAMW_COUNT };

static const cz_hyper_spec adamw_hypers[ADAMW_COUNT] = {
    SHARED_HYPERS(2.5e-3, "beta1"),
    [BETA2] = CZ__HYPER_BETA("beta2", 0.999),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),
};

static const cz_slot_spec adamw_slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},        {"weight_sum", CZ_SLOT_SCALAR, 0, NULL},
    {"lr_max", CZ_SLOT_SCALAR, 0, NULL},      {"z", CZ_SLOT_ELEMENT, 0, NULL},
    {"exp_avg_sq", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned adamw_slots_used(const double *h)
{
    return 0x1fu;
}

static void prepare_adamw(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    prepare(step, coefficients, flags);
    coefficients[CZ__SCHEDULE_FREE_KEEP2] = h[BETA2];
    coefficients[CZ__SCHEDULE_FREE_TAKE2] = 1 - h[BETA2];
    coefficients[CZ__SCHEDULE_FREE_ROOT] = sqrt(1 - pow(h[BETA2], (double)step->step));
    coefficients[CZ__SCHEDULE_FREE_EPS] = h[EPS];
}

const cz_rule *cz__rule_schedule_free_adamw(void)
{
    static const cz_rule rule = {
        CZ__RULE("schedule_free_adamw", adamw_hypers, adamw_slots),
        .slots_used = adamw_slots_used,
        .prepare = prepare_adamw,
        .evaluated = evaluated,
    };
    return &rule;
}
