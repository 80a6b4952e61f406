/* SPDX-License-Identifier: MIT */
/* A language model of characters in one block of parameters, in the manner of llm.c, which
 * docs/from-llm.c.md brings to czero. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef LAYERS
enum { LAYERS = 4, CHANNELS = 32, STEPS = 200 };
#endif
enum { VOCAB = 128, BATCH = 24, TENSORS = 3 };

static const char text[] = "the sun also rises and the sun goes down and hastens to the place "
                           "where it rises and all the rivers run to the sea and yet the sea "
                           "is not full ";

static const char *character(int sample)
{
    return text + 1 + sample * 7 % (int)(sizeof text - 4);
}

typedef struct tensors {
    float *wte; /* (VOCAB, CHANNELS) */
    float *fcw; /* (LAYERS, CHANNELS, CHANNELS) */
    float *fcb; /* (LAYERS, CHANNELS) */
} tensors;

typedef struct gpt {
    size_t sizes[TENSORS], count;
    tensors params, grads;
    float *params_memory, *grads_memory; /* one block each; the second with the first backward */
    float *m_memory, *v_memory;          /* with the first update */
    float mean_loss;
} gpt;

static void point(tensors *t, float *memory, const size_t *sizes)
{
    float **const all[TENSORS] = {&t->wte, &t->fcw, &t->fcb};
    for (int i = 0; i < TENSORS; memory += sizes[i++])
        *all[i] = memory;
}

static float *allocate(size_t count)
{
    float *memory = calloc(count, sizeof(float));
    if (!memory)
        exit(1);
    return memory;
}

static void gpt_build(gpt *model)
{
    const size_t sizes[TENSORS] = {VOCAB * CHANNELS, (size_t)LAYERS * CHANNELS * CHANNELS,
                                   LAYERS * CHANNELS};
    unsigned random = 1;
    memset(model, 0, sizeof *model);
    memcpy(model->sizes, sizes, sizeof sizes);
    for (int i = 0; i < TENSORS; i++)
        model->count += sizes[i];
    model->params_memory = allocate(model->count);
    point(&model->params, model->params_memory, sizes);
    for (size_t i = 0; i < sizes[0] + sizes[1]; i++) {
        random = random * 1664525u + 1013904223u;
        model->params_memory[i] = ((float)(random >> 8) / 8388608.0f - 1) / sqrtf(CHANNELS);
    }
}

static void forward(const gpt *model, const char *at, float h[LAYERS + 1][CHANNELS],
                    float a[LAYERS][CHANNELS], float *p)
{
    const tensors *w = &model->params;
    float total = 0;
    for (int c = 0; c < CHANNELS; c++)
        h[0][c] =
            w->wte[at[0] * CHANNELS + c] - 0.5f * w->wte[at[-1] * CHANNELS + CHANNELS - 1 - c];
    for (int l = 0; l < LAYERS; l++)
        for (int o = 0; o < CHANNELS; o++) {
            const float *row = w->fcw + ((size_t)l * CHANNELS + o) * CHANNELS;
            float sum = w->fcb[l * CHANNELS + o];
            for (int c = 0; c < CHANNELS; c++)
                sum += row[c] * h[l][c];
            a[l][o] = tanhf(sum);
            h[l + 1][o] = h[l][o] + a[l][o];
        }
    for (int v = 0; v < VOCAB; v++) {
        float sum = 0;
        for (int c = 0; c < CHANNELS; c++)
            sum += w->wte[v * CHANNELS + c] * h[LAYERS][c];
        total += p[v] = expf(fminf(sum, 30));
    }
    for (int v = 0; v < VOCAB; v++)
        p[v] /= total;
}

/* Adds the gradient of the batch's mean loss, as far as it is of this character. */
static float forward_backward(gpt *model, const char *at)
{
    static _Thread_local float h[LAYERS + 1][CHANNELS], a[LAYERS][CHANNELS], dh[CHANNELS];
    float p[VOCAB], before[CHANNELS];
    const tensors *w = &model->params, *g = &model->grads;
    if (!model->grads_memory) {
        model->grads_memory = allocate(model->count);
        point(&model->grads, model->grads_memory, model->sizes);
    }
    forward(model, at, h, a, p);
    memset(dh, 0, sizeof dh);
    for (int v = 0; v < VOCAB; v++) {
        const float d = (p[v] - (v == at[1])) / BATCH;
        for (int c = 0; c < CHANNELS; c++) {
            dh[c] += d * w->wte[v * CHANNELS + c];
            g->wte[v * CHANNELS + c] += d * h[LAYERS][c];
        }
    }
    for (int l = LAYERS - 1; l >= 0; l--) {
        memcpy(before, dh, sizeof before);
        for (int o = 0; o < CHANNELS; o++) {
            const float d = before[o] * (1 - a[l][o] * a[l][o]);
            const size_t row = ((size_t)l * CHANNELS + o) * CHANNELS;
            g->fcb[l * CHANNELS + o] += d;
            for (int c = 0; c < CHANNELS; c++) {
                g->fcw[row + c] += d * h[l][c];
                dh[c] += d * w->fcw[row + c];
            }
        }
    }
    for (int c = 0; c < CHANNELS; c++) {
        g->wte[at[0] * CHANNELS + c] += dh[c];
        g->wte[at[-1] * CHANNELS + CHANNELS - 1 - c] -= 0.5f * dh[c];
    }
    return -logf(fmaxf(p[(int)at[1]], 1e-30f)) / BATCH;
}

static void gpt_update(gpt *model, float lr, int t)
{
    if (!model->m_memory) {
        model->m_memory = allocate(model->count);
        model->v_memory = allocate(model->count);
    }
    for (size_t i = 0; i < model->count; i++) {
        const float grad = model->grads_memory[i];
        const float m = 0.9f * model->m_memory[i] + 0.1f * grad;
        const float v = 0.999f * model->v_memory[i] + 0.001f * grad * grad;
        const float m_hat = m / (1 - powf(0.9f, t)), v_hat = v / (1 - powf(0.999f, t));
        model->m_memory[i] = m;
        model->v_memory[i] = v;
        model->params_memory[i] -=
            lr * (m_hat / (sqrtf(v_hat) + 1e-8f) + 0.01f * model->params_memory[i]);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(void)
{
    gpt model;
    gpt_build(&model);
    double update = 0, start = seconds();
    for (int step = 1; step <= STEPS; step++) {
        model.mean_loss = 0;
        if (model.grads_memory)
            memset(model.grads_memory, 0, model.count * sizeof(float));
        for (int k = 0; k < BATCH; k++)
            model.mean_loss += forward_backward(&model, character(step * BATCH + k));
        const double begin = seconds();
        gpt_update(&model, 0.003f, step);
        update += seconds() - begin;
        if (step % 50 == 0)
            printf("step %d  loss %.4f\n", step, model.mean_loss);
    }
    fprintf(stderr, "%.1f ms a step, %.1f of it in the update; %.1f MB of state\n",
            1e3 * (seconds() - start) / STEPS, 1e3 * update / STEPS, 8e-6 * (double)model.count);
    return 0;
}
