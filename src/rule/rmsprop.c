/* SPDX-License-Identifier: MIT */
/* RMSprop; its equations are in src/device/cpu/kernels/rmsprop.c. */
#include "device/coefficients.h"
#include "rule/rule.h"

enum { LR, ALPHA, EPS, WEIGHT_DECAY, MOMENTUM, CENTERED, MAXIMIZE, LERP, HYPER_COUNT };

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 1e-2),
    [ALPHA] = CZ__HYPER_POSITIVE("alpha", 0.99),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),
    [MOMENTUM] = CZ__HYPER_POSITIVE("momentum", 0),
    [CENTERED] = CZ__HYPER_FLAG("centered"),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
    [LERP] = CZ__HYPER_FLAG("lerp"),
};

static const cz_slot_spec slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"square_avg", CZ_SLOT_ELEMENT, 0, NULL},
    {"momentum_buffer", CZ_SLOT_ELEMENT, 0, NULL},
    {"grad_avg", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned slots_used(const double *h)
{
    return 0x3u | (h[MOMENTUM] != 0 ? 0x4u : 0u) | (h[CENTERED] != 0 ? 0x8u : 0u);
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    coefficients[CZ__RMSPROP_RATE] = -h[LR];
    coefficients[CZ__RMSPROP_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__RMSPROP_KEEP] = h[ALPHA];
    coefficients[CZ__RMSPROP_TAKE] = 1 - h[ALPHA];
    coefficients[CZ__RMSPROP_EPS] = h[EPS];
    coefficients[CZ__RMSPROP_MOMENTUM] = h[MOMENTUM];
    coefficients[CZ__RMSPROP_DECAY] = h[WEIGHT_DECAY];
    *flags =
        (h[LERP] != 0 ? CZ__RMSPROP_LERP : 0u) | (h[WEIGHT_DECAY] != 0 ? CZ__RMSPROP_DECAYS : 0u);
}

const cz_rule *cz__rule_rmsprop(void)
{
    static const cz_rule rule = {
        CZ__RULE("rmsprop", hypers, slots),
        .slots_used = slots_used,
        .prepare = prepare,
    };
    return &rule;
}
