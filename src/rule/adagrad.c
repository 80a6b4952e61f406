/* SPDX-License-Identifier: MIT */
/* Adagrad; its equations are in src/device/cpu/kernels/adagrad.c. */
#include "device/coefficients.h"
#include "rule/rule.h"

enum { LR, LR_DECAY, WEIGHT_DECAY, INITIAL_ACCUMULATOR_VALUE, EPS, MAXIMIZE, HYPER_COUNT };

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 1e-2),
    [LR_DECAY] = CZ__HYPER_POSITIVE("lr_decay", 0),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),
    [INITIAL_ACCUMULATOR_VALUE] = CZ__HYPER_POSITIVE("initial_accumulator_value", 0),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-10),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
};

static const cz_slot_spec slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"sum", CZ_SLOT_ELEMENT, 0, "initial_accumulator_value"},
};

static unsigned slots_used(const double *h)
{
    return 0x3u;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    coefficients[CZ__ADAGRAD_RATE] = -(h[LR] / (1 + (double)(step->step - 1) * h[LR_DECAY]));
    coefficients[CZ__ADAGRAD_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__ADAGRAD_EPS] = h[EPS];
    coefficients[CZ__ADAGRAD_DECAY] = h[WEIGHT_DECAY];
    *flags = h[WEIGHT_DECAY] != 0 ? CZ__ADAGRAD_DECAYS : 0u;
}

const cz_rule *cz__rule_adagrad(void)
{
    static const cz_rule rule = {
        CZ__RULE("adagrad", hypers, slots),
        .state_at_create = true,
        .slots_used = slots_used,
        .prepare = prepare,
    };
    return &rule;
}
