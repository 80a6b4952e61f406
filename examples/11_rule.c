/* SPDX-License-Identifier: MIT */
/* A rule of one's own: Lion (Chen et al., arXiv:2302.06675), which moves every weight by the rate,
 * up or down, as the sign of a mean of gradients says. (The library has it, too.) It is a table:
 * hyper-parameters with their ranges, state, and a kernel that updates a run of elements. Sharding,
 * checkpoints and schedulers come with it, and the bits are the same on any number of ranks.
 * docs/add-a-rule.md has rules that need sums over a parameter, and whole tensors. */
#include <math.h>
#include <stdlib.h>

#include "czero/czero.h"

enum { LR, BETA1, BETA2, WEIGHT_DECAY, HYPERS };

static const cz_hyper_spec hypers[HYPERS] = {
    [LR] = {"lr", 1e-4, 0, INFINITY, false, false}, /* default, least, most */
    [BETA1] = {"beta1", 0.9, 0, 1, true, false},    /* 1 itself is not allowed */
    [BETA2] = {"beta2", 0.99, 0, 1, true, false},
    [WEIGHT_DECAY] = {"weight_decay", 0, 0, INFINITY, false, false},
};

static const cz_slot_spec slots[] = {
    {"step", CZ_SLOT_SCALAR, 0, NULL}, /* kept by the library */
    {"exp_avg", CZ_SLOT_ELEMENT, 0, NULL},
};

static unsigned slots_used(const double *values)
{
    return 3; /* both, whatever the values are */
}

/* What the kernel needs of them, once per step. */
static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    for (int i = 0; i < HYPERS; i++)
        coefficients[i] = step->hypers[i];
}

static void lion(void *queue, int64_t count, void *param, const void *grad, void *const *state,
                 const double *coefficients, unsigned flags)
{
    float *p = param, *mean = state[0];
    const float *g = grad;
    const float lr = (float)coefficients[LR], decay = (float)coefficients[WEIGHT_DECAY];
    const float beta1 = (float)coefficients[BETA1], beta2 = (float)coefficients[BETA2];
    for (int64_t i = 0; i < count; i++) {
        const float direction = beta1 * mean[i] + (1 - beta1) * g[i];
        const float sign = (float)((direction > 0) - (direction < 0));
        p[i] -= lr * (sign + decay * p[i]);
        mean[i] = beta2 * mean[i] + (1 - beta2) * g[i];
    }
}

static cz_update_kernel find_kernel(const cz_device *device, cz_dtype param, cz_dtype grad,
                                    cz_dtype state, void *context)
{
    return device == cz_device_cpu() && param == CZ_F32 && grad == CZ_F32 ? lion : NULL;
}

static const cz_rule rule = {
    .abi = CZ_RULE_ABI,
    .size = sizeof(cz_rule),
    .name = "lion",
    .hyper_size = sizeof(cz_hyper_spec),
    .slot_size = sizeof(cz_slot_spec),
    .hyper_count = HYPERS,
    .hypers = hypers,
    .slot_count = 2,
    .slots = slots,
    .slots_used = slots_used,
    .prepare = prepare,
    .find_kernel = find_kernel,
};

/* Weight i is to become i / N. */
static cz_status train(cz_group *group, void *context)
{
    enum { N = 100, STEPS = 300 };
    float weights[N] = {0}, gradients[N];
    cz_model *model;
    cz_zero *zero;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "weights", weights, gradients, CZ_F32, 1, (int64_t[]){N}));
    CZ_TRY(cz_zero_create(&zero, group, model, &rule, CZ_HYPERS({"lr", 0.005}), NULL));
    for (int step = 0; step <= STEPS; step++) {
        double loss = 0;
        for (int i = 0; i < N; i++) {
            gradients[i] = weights[i] - (float)i / N;
            loss += 0.5 * gradients[i] * gradients[i] / N;
        }
        if (cz_group_rank(group) == 0 && step % 50 == 0)
            printf("step %3d  loss %.6f\n", step, loss);
        CZ_TRY(cz_zero_step(zero, NULL, NULL));
    }
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return CZ_OK;
}

int main(void)
{
    cz_launch_options launch = CZ_LAUNCH_OPTIONS_INIT;
    launch.ranks = getenv("CZERO_RANKS") ? 0 : 3;
    CZ_CHECK(cz_launch(train, NULL, &launch));
    return 0;
}
