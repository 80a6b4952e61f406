/* SPDX-License-Identifier: MIT */
/* LARS; its equations are in src/device/cpu/kernels/lars.c. The first pass adds the squares of the
 * parameter and of its gradient to two sums. */
#include "base/status.h"
#include "device/coefficients.h"
#include "rule/rule.h"
#include "rule/sums.h"

enum {
    LR,
    MOMENTUM,
    DAMPENING,
    WEIGHT_DECAY,
    NESTEROV,
    TRUST_COEFFICIENT,
    EPS,
    ALWAYS_ADAPT,
    TRUST_CLIP,
    MAXIMIZE,
    HYPER_COUNT
};

static const cz_hyper_spec hypers[HYPER_COUNT] = {
    [LR] = CZ__HYPER_POSITIVE("lr", NAN),
    [MOMENTUM] = CZ__HYPER_POSITIVE("momentum", 0.9),
    [DAMPENING] = CZ__HYPER_ANY("dampening", 0),
    [WEIGHT_DECAY] = CZ__HYPER_POSITIVE("weight_decay", 0),
    [NESTEROV] = CZ__HYPER_FLAG("nesterov"),
    [TRUST_COEFFICIENT] = CZ__HYPER_POSITIVE("trust_coefficient", 1e-3),
    [EPS] = CZ__HYPER_POSITIVE("eps", 1e-8),
    [ALWAYS_ADAPT] = CZ__HYPER_SET_FLAG("always_adapt"),
    [TRUST_CLIP] = CZ__HYPER_FLAG("trust_clip"),
    [MAXIMIZE] = CZ__HYPER_FLAG("maximize"),
};

static const cz_slot_spec slot_specs[] = {{"momentum_buffer", CZ_SLOT_ELEMENT, 0, NULL}};

static cz_status check_hypers(const double *h)
{
    if (h[NESTEROV] != 0 && (h[MOMENTUM] == 0 || h[DAMPENING] != 0))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "lars: nesterov needs momentum > 0 and dampening 0, they are %g and %g",
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

static void add_sums(cz_dtype dtype, int64_t count, const void *param, const void *grad,
                     cz_sum *sums)
{
    cz__sums_add_squares(dtype, count, param, &sums[0]);
    cz__sums_add_squares(dtype, count, grad, &sums[1]);
}

CZ__SUMS_KERNEL(add_sums_f32)
{
    add_sums(CZ_F32, count, param, grad, sums);
}

CZ__SUMS_KERNEL(add_sums_f64)
{
    add_sums(CZ_F64, count, param, grad, sums);
}

static cz_sums_kernel find_sums(const cz_device *device, cz_dtype param, cz_dtype grad,
                                cz_dtype state, void *context)
{
    return cz__sums_choose(device, param, grad, state, add_sums_f32, add_sums_f64);
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
        .slots_used = slots_used,
        .prepare = prepare,
        .sum_count = 2,
        .find_sums = find_sums,
        .combine = combine,
    };
    return &rule;
}
