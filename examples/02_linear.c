/* SPDX-License-Identifier: MIT */
/* Linear regression by SGD with momentum: y = W x + b from noisy samples, the data dealt out to
 * ranks by the sampler, the learning rate lowered on the way. Fewer parameters than a cache line
 * per rank: sharding does not mind. */
#include <math.h>
#include <stdlib.h>

#include "czero/czero.h"

enum { INPUTS = 5, OUTPUTS = 3, SAMPLES = 1200, BATCH = 24, STEPS = 500, SEED = 7 };

typedef struct linear {
    float weight[OUTPUTS * INPUTS];
    float bias[OUTPUTS];
} linear;

/* What is to be found; any fixed numbers do. */
static float true_weight(int o, int i)
{
    return (float)(o + 1) - 0.5f * (float)i;
}

static float true_bias(int o)
{
    return 0.25f * (float)(o - 1);
}

/* Sample s: its inputs, and what it should give. A function of s alone, so every rank has the
 * data. */
static void sample(int64_t s, float *x, float *y)
{
    for (int i = 0; i < INPUTS; i++)
        x[i] = cz_random_normal(SEED, 0, (uint64_t)(s * INPUTS + i));
    for (int o = 0; o < OUTPUTS; o++) {
        y[o] = true_bias(o) + 0.01f * cz_random_normal(SEED, 1, (uint64_t)(s * OUTPUTS + o));
        for (int i = 0; i < INPUTS; i++)
            y[o] += true_weight(o, i) * x[i];
    }
}

/* Half the squared error of one sample, its gradient times `scale` added to `grad`. */
static float backward(const linear *model, linear *grad, int64_t s, float scale)
{
    float x[INPUTS], y[OUTPUTS], loss = 0;
    sample(s, x, y);
    for (int o = 0; o < OUTPUTS; o++) {
        float error = model->bias[o] - y[o];
        for (int i = 0; i < INPUTS; i++)
            error += model->weight[o * INPUTS + i] * x[i];
        loss += 0.5f * error * error;
        grad->bias[o] += scale * error;
        for (int i = 0; i < INPUTS; i++)
            grad->weight[o * INPUTS + i] += scale * error * x[i];
    }
    return loss;
}

static float largest_error(const linear *model)
{
    float worst = 0;
    for (int o = 0; o < OUTPUTS; o++) {
        worst = fmaxf(worst, fabsf(model->bias[o] - true_bias(o)));
        for (int i = 0; i < INPUTS; i++)
            worst = fmaxf(worst, fabsf(model->weight[o * INPUTS + i] - true_weight(o, i)));
    }
    return worst;
}

static cz_status train(cz_group *group, void *context)
{
    linear model = {{0}, {0}}, grad;
    cz_model *list = NULL;
    cz_zero *zero = NULL;
    cz_sampler *sampler = NULL;
    cz_sampler_options deal = CZ_SAMPLER_OPTIONS_INIT;
    deal.sample_count = SAMPLES;
    deal.global_batch = BATCH;
    deal.rank = cz_group_rank(group);
    deal.world_size = cz_group_size(group);
    deal.seed = SEED;
    CZ_TRY(cz_sampler_create(&sampler, &deal));
    CZ_TRY(cz_model_create(&list));
    CZ_TRY(cz_model_add(list, "weight", model.weight, grad.weight, CZ_F32, 2,
                        (int64_t[]){OUTPUTS, INPUTS}));
    CZ_TRY(cz_model_add(list, "bias", model.bias, grad.bias, CZ_F32, 1, (int64_t[]){OUTPUTS}));
    CZ_TRY(cz_zero_create(&zero, group, list, cz_rule_sgd(),
                          CZ_HYPERS({"lr", 0.05}, {"momentum", 0.9}), NULL));

    for (int step = 0; step < STEPS; step++) {
        int64_t samples[BATCH], count;
        double loss = 0;
        CZ_TRY(cz_sampler_next(sampler, samples, &count));
        CZ_TRY(cz_zero_zero_grad(zero, false));
        for (int64_t k = 0; k < count;
             k++) /* the step takes the mean over ranks: weight by the part */
            loss += backward(&model, &grad, samples[k], (float)cz_group_size(group) / BATCH);
        CZ_TRY(cz_all_reduce(group, &loss, 1, CZ_F64, CZ_SUM, CZ_LABEL("loss")));
        if (step == STEPS / 2)
            CZ_TRY(cz_optim_set_hyper(cz_zero_local_optim(zero), CZ_ALL_GROUPS, "lr", 0.005));
        CZ_TRY(cz_zero_step(zero, NULL, NULL));
        if (step % 100 == 0 && cz_group_rank(group) == 0)
            printf("step %3d  loss %.6f\n", step, loss / BATCH);
    }

    const float worst = largest_error(&model);
    printf("rank %d of %d: largest error of a parameter %.4f\n", cz_group_rank(group),
           cz_group_size(group), worst);
    cz_zero_destroy(&zero);
    cz_model_destroy(&list);
    cz_sampler_destroy(&sampler);
    return worst < 0.01f ? CZ_OK : cz_fail(CZ_ERR_STATE, "the fit is %.4f away", worst);
}

int main(void)
{
    cz_launch_options launch = CZ_LAUNCH_OPTIONS_INIT;
    launch.ranks = getenv("CZERO_RANKS") ? 0 : 3;
    CZ_CHECK(cz_launch(train, NULL, &launch));
    return 0;
}
