/* SPDX-License-Identifier: MIT */
/* Stochastic gradient descent; its equations are in src/device/cpu/kernels/sgd.c. */
#include "base/status.h"
#include "device/coefficients.h"
#include "rule/sgd.h"

static const cz_hyper_spec hypers[SGD_HYPERS] = {CZ__SGD_HYPERS(0)};

static const cz_slot_spec slots[] = {{"momentum_buffer", CZ_SLOT_ELEMENT, 0, NULL}};

cz_status cz__sgd_check(const char *rule, const double *h)
{
    if (h[NESTEROV] != 0 && (h[MOMENTUM] == 0 || h[DAMPENING] != 0))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: nesterov needs momentum > 0 and dampening 0, they are %g and %g", rule,
                        h[MOMENTUM], h[DAMPENING]);
    return CZ_OK;
}

static cz_status check_hypers(const double *h)
{
    return cz__sgd_check("sgd", h);
}

unsigned cz__sgd_slots_used(const double *h)
{
    return h[MOMENTUM] != 0;
}

void cz__sgd_prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
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
        .slots_used = cz__sgd_slots_used,
        .prepare = cz__sgd_prepare,
    };
    return &rule;
}
