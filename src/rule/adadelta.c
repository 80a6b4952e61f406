/* SPDX-License-Identifier: MIT */
/* Adadelta; its equations are in src/device/cpu/kernels/adadelta.c. */
#include "device/coefficients.h"
#include "rule/rule.h"

enum { LR, RHO, EPS, WEIGHT_DECAY, MAXIMIZE, HYPER_COUNT };

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 1),      [RHO] = {"rho", 0.9, 0, 1, false, false},
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-6), [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
};

static const cz_slot_spec slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"square_avg", CZ_SLOT_ELEMENT, 0, NULL},
    {"acc_delta", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned slots_used(const double *h)
{
    return 0x7u;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    coefficients[CZ__ADADELTA_RATE] = -h[LR];
    coefficients[CZ__ADADELTA_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__ADADELTA_KEEP] = h[RHO];
    coefficients[CZ__ADADELTA_TAKE] = 1 - h[RHO];
    coefficients[CZ__ADADELTA_EPS] = h[EPS];
    coefficients[CZ__ADADELTA_DECAY] = h[WEIGHT_DECAY];
    *flags = h[WEIGHT_DECAY] != 0 ? CZ__ADADELTA_DECAYS : 0u;
}

const cz_rule *cz__rule_adadelta(void)
{
    static const cz_rule rule = {
        CZ__RULE("adadelta", hypers, slots),
        .slots_used = slots_used,
        .prepare = prepare,
    };
    return &rule;
}
