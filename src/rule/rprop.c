/* SPDX-License-Identifier: MIT */
/* Resilient backpropagation; its equations are in src/device/cpu/kernels/rprop.c. */
#include "base/status.h"
#include "device/coefficients.h"
#include "rule/rule.h"

enum { LR, ETA_MINUS, ETA_PLUS, STEP_SIZE_MIN, STEP_SIZE_MAX, MAXIMIZE, HYPER_COUNT };

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", 1e-2),
    [ETA_MINUS] = CZ__HYPER_ANY("eta_minus", 0.5),
    [ETA_PLUS] = CZ__HYPER_ANY("eta_plus", 1.2),
    [STEP_SIZE_MIN] = CZ__HYPER_ANY("step_size_min", 1e-6),
    [STEP_SIZE_MAX] = CZ__HYPER_ANY("step_size_max", 50),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
};

static const cz_slot_spec slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},
    {"prev", CZ_SLOT_ELEMENT, 0, NULL},
    {"step_size", CZ_SLOT_ELEMENT, 0, "lr"},
};

static cz_status check_hypers(const double *h)
{
    if (!(h[ETA_MINUS] > 0 && h[ETA_MINUS] < 1 && h[ETA_PLUS] > 1))
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "rprop: eta_minus is %g and eta_plus %g, allowed are 0 < eta_minus < 1 < eta_plus",
            h[ETA_MINUS], h[ETA_PLUS]);
    return CZ_OK;
}

static unsigned slots_used(const double *h)
{
    return 0x7u;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    const double *h = step->hypers;
    coefficients[CZ__RPROP_SIGN] = h[MAXIMIZE] != 0 ? -1 : 1;
    coefficients[CZ__RPROP_MINUS] = h[ETA_MINUS];
    coefficients[CZ__RPROP_PLUS] = h[ETA_PLUS];
    coefficients[CZ__RPROP_MINIMUM] = h[STEP_SIZE_MIN];
    coefficients[CZ__RPROP_MAXIMUM] = h[STEP_SIZE_MAX];
}

const cz_rule *cz__rule_rprop(void)
{
    static const cz_rule rule = {
        CZ__RULE("rprop", hypers, slots),
        .check = check_hypers,
        .slots_used = slots_used,
        .prepare = prepare,
    };
    return &rule;
}
