/* SPDX-License-Identifier: MIT */
/* A rule that shows every bit of what rules of the caller's own are given. */
#include "czero/rule.h"
#include "support/training.h"
#include "base/sum.h"

#include <math.h>

enum { LR, HYPERS };

static const cz_hyper_spec hypers[HYPERS] = {[LR] = {"lr", 0.125, 0, INFINITY, false, false}};

/* The sums of the last step, as they are. */
static const cz_slot_spec slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL},    {"sum0", CZ_SLOT_SCALAR, 0, NULL},
    {"sum1", CZ_SLOT_SCALAR, 0, NULL},    {"sum2", CZ_SLOT_SCALAR, 0, NULL},
    {"sum3", CZ_SLOT_SCALAR, 0, NULL},    {"sum4", CZ_SLOT_SCALAR, 0, NULL},
    {"sum5", CZ_SLOT_SCALAR, 0, NULL},    {"sum6", CZ_SLOT_SCALAR, 0, NULL},
    {"sum7", CZ_SLOT_SCALAR, 0, NULL},    {"squares", CZ_SLOT_ELEMENT, 0, "lr"},
    {"unused", CZ_SLOT_ELEMENT, 1, NULL}, {"firsts", CZ_SLOT_ELEMENT, 2, NULL},
};

static unsigned slots_used(const double *values)
{
    return ~(1u << 10);
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    coefficients[0] = step->hypers[LR] * (step->argument ? *(const double *)step->argument : 1);
    coefficients[15] = (double)step->step;
}

/* Of all sizes and signs, so that any order of adding in doubles would show. */
static void first_pass(void *queue, int64_t count, const void *param, const void *grad,
                       void *const *memory, const double *coefficients, unsigned flags,
                       cz_sum *sums)
{
    const float *p = param, *g = grad;
    float *squares = memory[0], *firsts = memory[2];
    for (int64_t i = 0; i < count; i++) {
        const double x = p[i], y = g[i];
        const double some[] = {0.1 * x, 1e9 * y, x / (1 + y * y)};
        squares[i] = squares[i] + g[i] * g[i];
        firsts[i] = firsts[i] + (flags & CZ_UPDATE_FIRST ? 1 : 0);
        cz__sum_add(&sums[0], x * x);
        cz__sum_add(&sums[1], sin(x * 1e3) * exp2(fmod(x * 97, 60)));
        cz__sum_add(&sums[2], x * 1e-30 - y * 1e18);
        cz__sum_add(&sums[3], (double)squares[i] / (3 + x));
        cz__sum_add(&sums[4], ldexp(y, (int)fmod(x * 640, 1900) - 950));
        cz__sum_add(&sums[5], NAN);
        cz__sum_add(&sums[6], x > 1 ? INFINITY : y);
        cz_sum_add(&sums[7], 3, some);
    }
}

static void combine(const cz_rule_step *step, const double *sums, double *coefficients,
                    unsigned *flags)
{
    for (int k = 0; k < CZ_RULE_SUMS; k++)
        step->scalars[k] = sums[k];
    coefficients[1] = sums[0] / (1 + fabs(sums[1]));
    *flags |= 5;
}

static void second_pass(void *queue, int64_t count, void *param, const void *grad,
                        void *const *memory, const double *coefficients, unsigned flags)
{
    float *p = param;
    const float *g = grad, *squares = memory[0];
    const float rate = (float)(coefficients[0] / coefficients[15]), scale = (float)coefficients[1];
    for (int64_t i = 0; i < count && (flags & 5) == 5; i++)
        p[i] = p[i] - rate * (g[i] + scale / squares[i]);
}

static cz_sums_kernel find_sums(const cz_device *device, cz_dtype param, cz_dtype grad,
                                cz_dtype state, void *context)
{
    return param == CZ_F32 && grad == CZ_F32 && state == CZ_F32 ? first_pass : NULL;
}

static cz_update_kernel find_kernel(const cz_device *device, cz_dtype param, cz_dtype grad,
                                    cz_dtype state, void *context)
{
    return param == CZ_F32 || param == CZ_F64 ? second_pass : NULL;
}

const cz_rule *cz_test_probe_rule(void)
{
    static const cz_rule rule = {
        .abi = CZ_RULE_ABI,
        .size = sizeof(cz_rule),
        .name = "probe",
        .hyper_size = sizeof(cz_hyper_spec),
        .slot_size = sizeof(cz_slot_spec),
        .hyper_count = HYPERS,
        .hypers = hypers,
        .slot_count = sizeof slots / sizeof *slots,
        .slots = slots,
        .slots_used = slots_used,
        .prepare = prepare,
        .find_kernel = find_kernel,
        .sum_count = CZ_RULE_SUMS,
        .find_sums = find_sums,
        .combine = combine,
    };
    return &rule;
}
