/* SPDX-License-Identifier: MIT */
/* Stochastic gradient descent; its equations are in src/device/cpu/kernels/sgd.c. */
#include "base/status.h"
#include "device/coefficients.h"
#include "rule/rule.h"

enum { LR, MOMENTUM, DAMPENING, WEIGHT_DECAY, NESTEROV, MAXIMIZE, HYPER_COUNT };

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", NAN),
    [MOMENTUM] = CZ__HYPER_POSITIVE("momentum", 0),
    [DAMPENING] = CZ__HYPER_ANY("dampening", 0),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),
    [NESTEROV] = CZ__HYPER_FLAG("nesterov"),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
};

static const cz_slot_spec slots[] = {{"momentum_buffer", CZ_SLOT_ELEMENT, 0, NULL}};

static cz_status check_hypers(const double *h)
{
    if (h[NESTEROV] != 0 && (h[MOMENTUM] == 0 || h[DAMPENING] != 0))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "sgd: nesterov needs momentum > 0 and dampening 0, they are %g and %g",
                        h[MOMENTUM], h[DAMPENING]);
    return CZ_OK;
}

static unsigned slots_used(const double *h)
{
    return h[MOMENTUM] != 0;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    coefficients[CZ__SGD_RATE] = -h[LR];
    coefficients[CZ__SGD_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__SGD_MOMENTUM] = h[MOMENTUM];
    coefficients[CZ__SGD_TAKE] = 1 - h[DAMPENING];
    coefficients[CZ__SGD_DECAY] = h[WEIGHT_DECAY];
    *flags =
        (h[NESTEROV] != 0 ? CZ__SGD_NESTEROV : 0u) | (h[WEIGHT_DECAY] != 0 ? CZ__SGD_DECAYS : 0u);
}

const cz_rule *cz__rule_sgd(void)
{
    static const cz_rule rule = {
        CZ__RULE("sgd", hypers, slots),
        .check = check_hypers,
        .slots_used = slots_used,
        .prepare = prepare,
    };
    return &rule;
}
