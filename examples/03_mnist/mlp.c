/* SPDX-License-Identifier: MIT */
/* The model, forward and backward by hand, and its training on one rank. */
#include "mnist.h"

#include <math.h>
#include <stdlib.h>

enum { HIDDEN = 128, BATCH = 60, SEED = 3 };

/* ---- the model: four tensors, and the same for gradients ---- */

typedef struct mlp {
    float w1[HIDDEN * PIXELS], b1[HIDDEN], w2[CLASSES * HIDDEN], b2[CLASSES];
} mlp;

static void fill(float *weights, int64_t count, float deviation, uint64_t stream)
{
    for (int64_t i = 0; i < count; i++)
        weights[i] = deviation * cz_random_normal(SEED, stream, (uint64_t)i);
}

/* Probabilities of the classes; hidden values for backward. */
static void forward(const mlp *m, const unsigned char *pixels, float *x, float *hidden, float *p)
{
    float most = -INFINITY, total = 0;
    for (int i = 0; i < PIXELS; i++)
        x[i] = (float)pixels[i] / 255.0f;
    for (int h = 0; h < HIDDEN; h++) {
        float sum = m->b1[h];
        for (int i = 0; i < PIXELS; i++)
            sum += m->w1[h * PIXELS + i] * x[i];
        hidden[h] = fmaxf(sum, 0);
    }
    for (int c = 0; c < CLASSES; c++) {
        p[c] = m->b2[c];
        for (int h = 0; h < HIDDEN; h++)
            p[c] += m->w2[c * HIDDEN + h] * hidden[h];
        most = fmaxf(most, p[c]);
    }
    for (int c = 0; c < CLASSES; c++)
        total += p[c] = expf(p[c] - most);
    for (int c = 0; c < CLASSES; c++)
        p[c] /= total;
}

/* The loss of one image; its gradient times `scale` is added to `g`. */
static float backward(const mlp *m, mlp *g, const unsigned char *pixels, int label, float scale)
{
    float x[PIXELS], hidden[HIDDEN], p[CLASSES], d_hidden[HIDDEN] = {0};
    forward(m, pixels, x, hidden, p);
    const float loss = -logf(fmaxf(p[label], 1e-30f));
    for (int c = 0; c < CLASSES; c++) {
        const float d = scale * (p[c] - (c == label));
        g->b2[c] += d;
        for (int h = 0; h < HIDDEN; h++) {
            g->w2[c * HIDDEN + h] += d * hidden[h];
            d_hidden[h] += d * m->w2[c * HIDDEN + h];
        }
    }
    for (int h = 0; h < HIDDEN; h++) {
        if (hidden[h] <= 0)
            continue;
        g->b1[h] += d_hidden[h];
        for (int i = 0; i < PIXELS; i++)
            g->w1[h * PIXELS + i] += d_hidden[h] * x[i];
    }
    return loss;
}

static int predict(const mlp *m, const unsigned char *pixels)
{
    float x[PIXELS], hidden[HIDDEN], p[CLASSES];
    int best = 0;
    forward(m, pixels, x, hidden, p);
    for (int c = 1; c < CLASSES; c++)
        if (p[c] > p[best])
            best = c;
    return best;
}

/* ---- one rank ---- */

/* Weights decay, biases do not. */
static cz_status create_zero(cz_zero **zero, cz_group *group, cz_model *model, mlp *m, mlp *g)
{
    CZ_TRY(cz_model_add(model, "w1", m->w1, g->w1, CZ_F32, 2, (int64_t[]){HIDDEN, PIXELS}));
    CZ_TRY(cz_model_add(model, "b1", m->b1, g->b1, CZ_F32, 1, (int64_t[]){HIDDEN}));
    CZ_TRY(cz_model_add(model, "w2", m->w2, g->w2, CZ_F32, 2, (int64_t[]){CLASSES, HIDDEN}));
    CZ_TRY(cz_model_add(model, "b2", m->b2, g->b2, CZ_F32, 1, (int64_t[]){CLASSES}));
    const cz_param_group groups[] = {{.size = sizeof(cz_param_group),
                                      .params = (int64_t[]){0, 2},
                                      .param_count = 2,
                                      .hypers = CZ_HYPERS({"weight_decay", 1e-4})},
                                     {.params = (int64_t[]){1, 3}, .param_count = 2}};
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.groups = groups;
    options.group_count = 2;
    return cz_zero_create(zero, group, model, cz_rule_adam(), CZ_HYPERS({"lr", 1e-3}), &options);
}

static cz_status step(cz_group *group, cz_zero *zero, cz_sampler *sampler, const images *data,
                      const mlp *m, mlp *g, double *loss)
{
    int64_t samples[BATCH], count;
    *loss = 0;
    CZ_TRY(cz_sampler_next(sampler, samples, &count));
    CZ_TRY(cz_zero_zero_grad(zero, false));
    for (int64_t k = 0; k < count; k++)
        *loss += backward(m, g, data->pixels + samples[k] * PIXELS, data->labels[samples[k]],
                          (float)cz_group_size(group) / BATCH) /
                 BATCH;
    CZ_TRY(cz_all_reduce(group, loss, 1, CZ_F64, CZ_SUM, CZ_LABEL("loss")));
    return cz_zero_step(zero, NULL, NULL);
}

/* A number that stands for the bits of the weights: equal where training was. */
static unsigned bits(const mlp *m)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *m; i++)
        hash = (hash ^ ((const unsigned char *)m)[i]) * 16777619u;
    return hash;
}

/* Each rank looks at every size-th test image. */
static cz_status test(cz_group *group, const images *data, const mlp *m)
{
    int64_t right = 0;
    for (int64_t i = cz_group_rank(group); i < data->count; i += cz_group_size(group))
        right += predict(m, data->pixels + i * PIXELS) == data->labels[i];
    CZ_TRY(cz_all_reduce(group, &right, 1, CZ_I64, CZ_SUM, CZ_LABEL("right answers")));
    if (cz_group_rank(group) == 0)
        printf("%.2f %% of %lld test images; weights %08x\n",
               100.0 * (double)right / (double)data->count, (long long)data->count, bits(m));
    return CZ_OK;
}

cz_status train(cz_group *group, void *context)
{
    const task *t = context;
    mlp *m = calloc(1, sizeof *m), *g = calloc(1, sizeof *g);
    cz_model *model = NULL;
    cz_zero *zero = NULL;
    cz_sampler *sampler = NULL;
    cz_sampler_options deal = CZ_SAMPLER_OPTIONS_INIT;
    deal.sample_count = t->training.count;
    deal.global_batch = BATCH;
    deal.rank = cz_group_rank(group);
    deal.world_size = cz_group_size(group);
    deal.seed = SEED;
    cz_status status = m && g ? CZ_OK : cz_fail(CZ_ERR_MEMORY, "no memory for the model");
    if (status)
        goto done;
    fill(m->w1, HIDDEN * PIXELS, sqrtf(2.0f / PIXELS), 0); /* He et al., arXiv:1502.01852 */
    fill(m->w2, CLASSES * HIDDEN, sqrtf(2.0f / HIDDEN), 1);
    status = cz_sampler_create(&sampler, &deal);
    if (status)
        goto done;
    status = cz_model_create(&model);
    if (status)
        goto done;
    status = create_zero(&zero, group, model, m, g);
    if (status)
        goto done;
    for (int s = 0; s < t->steps; s++) {
        double loss;
        status = step(group, zero, sampler, &t->training, m, g, &loss);
        if (status)
            goto done;
        if (cz_group_rank(group) == 0 && (s + 1) % 250 == 0)
            printf("step %4d  loss %.4f\n", s + 1, loss);
    }
    status = test(group, &t->test, m);
done:
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    cz_sampler_destroy(&sampler);
    free(m);
    free(g);
    return status;
}
