/* SPDX-License-Identifier: MIT */
/* A data-parallel model whose communication hides behind the backward pass: each layer's gradient
 * is marked as soon as it is complete, is then reduced and spent by the sharded optimizer while the
 * layers below it are still at work, and new values arrive during the next forward pass. The losses
 * are those of one process. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "czero/czero.h"

enum { LAYERS = 4, WIDTH = 16, SAMPLES = 30, STEPS = 300, SEED = 2 };
typedef float matrix[WIDTH][WIDTH];

typedef struct net {
    matrix weights[LAYERS], gradients[LAYERS];
    float x[LAYERS + 1][SAMPLES][WIDTH]; /* what goes into each layer, and comes out of the last */
    float d[SAMPLES][WIDTH];             /* derivatives of the loss, on their way back */
    int samples;                         /* of this rank */
    cz_ddp *ddp;
    cz_zero *zero;
} net;

/* Each layer is x = tanh(W x). */
static cz_status forward(net *n)
{
    for (int l = 0; l < LAYERS; l++) {
        CZ_TRY(cz_zero_wait_param(n->zero, l)); /* it may still be on its way from its owners */
        for (int s = 0; s < n->samples; s++)
            for (int o = 0; o < WIDTH; o++) {
                float sum = 0;
                for (int i = 0; i < WIDTH; i++)
                    sum += n->weights[l][o][i] * n->x[l][s][i];
                n->x[l + 1][s][o] = tanhf(sum);
            }
    }
    return CZ_OK;
}

static cz_status backward(net *n)
{
    memset(n->gradients, 0, sizeof n->gradients);
    for (int l = LAYERS - 1; l >= 0; l--) {
        for (int s = 0; s < n->samples; s++) {
            float below[WIDTH] = {0};
            for (int o = 0; o < WIDTH; o++) {
                const float y = n->x[l + 1][s][o], d = n->d[s][o] * (1 - y * y);
                for (int i = 0; i < WIDTH; i++) {
                    n->gradients[l][o][i] += d * n->x[l][s][i];
                    below[i] += d * n->weights[l][o][i];
                }
            }
            memcpy(n->d[s], below, sizeof below);
        }
        /* Not to be touched from here to the end of the pass. */
        CZ_TRY(cz_ddp_mark_ready(n->ddp, l));
    }
    return CZ_OK;
}

/* The inputs are to come out again, each moved on by one. */
static cz_status step(net *n, cz_group *group, double *loss)
{
    CZ_TRY(cz_ddp_begin(n->ddp, true));
    CZ_TRY(forward(n));
    *loss = 0;
    for (int s = 0; s < n->samples; s++)
        for (int i = 0; i < WIDTH; i++) {
            const float error = n->x[LAYERS][s][i] - n->x[0][s][(i + 1) % WIDTH];
            *loss += 0.5 * error * error / SAMPLES;
            n->d[s][i] = error * (float)cz_group_size(group) / SAMPLES; /* ranks take the mean */
        }
    CZ_TRY(backward(n));
    CZ_TRY(cz_ddp_finish(n->ddp)); /* waits for reductions; the steps have been made in them */
    return cz_all_reduce(group, loss, 1, CZ_F64, CZ_SUM, CZ_LABEL("loss"));
}

static cz_status train(cz_group *group, void *context)
{
    static const char *const names[LAYERS] = {"first", "second", "third", "fourth"};
    const int rank = cz_group_rank(group), ranks = cz_group_size(group);
    net *n = calloc(1, sizeof *n);
    if (!n)
        return cz_fail(CZ_ERR_MEMORY, "no memory for the net");
    for (int64_t i = 0; i < LAYERS * WIDTH * WIDTH; i++)
        ((float *)n->weights)[i] = 0.25f * cz_random_normal(SEED, 0, (uint64_t)i);
    for (int s = rank; s < SAMPLES; s += ranks, n->samples++) /* every ranks-th is this rank's */
        for (int i = 0; i < WIDTH; i++)
            n->x[0][n->samples][i] = cz_random_uniform(SEED, 1, (uint64_t)(s * WIDTH + i)) - 0.5f;

    cz_model *model;
    CZ_TRY(cz_model_create(&model));
    for (int l = 0; l < LAYERS; l++)
        CZ_TRY(cz_model_add(model, names[l], n->weights[l], n->gradients[l], CZ_F32, 2,
                            (int64_t[]){WIDTH, WIDTH}));
    cz_ddp_options ddp_options = CZ_DDP_OPTIONS_INIT;
    ddp_options.bucket_bytes = ddp_options.first_bucket_bytes = sizeof(matrix); /* one per layer */
    CZ_TRY(cz_ddp_create(&n->ddp, group, model, &ddp_options));
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.ddp = n->ddp;
    options.overlap = CZ_OVERLAP_INTERLEAVED;
    options.overlap_gather = 1;
    CZ_TRY(
        cz_zero_create(&n->zero, group, model, cz_rule_adam(), CZ_HYPERS({"lr", 0.003}), &options));
    for (int i = 0; i <= STEPS; i++) {
        double loss;
        CZ_TRY(step(n, group, &loss));
        if (rank == 0 && i % 50 == 0)
            printf("step %3d  loss %.4f\n", i, loss);
    }
    cz_zero_destroy(&n->zero);
    cz_ddp_destroy(&n->ddp);
    cz_model_destroy(&model);
    free(n);
    return CZ_OK;
}

int main(void)
{
    cz_launch_options launch = CZ_LAUNCH_OPTIONS_INIT;
    launch.ranks = getenv("CZERO_RANKS") ? 0 : 3;
    CZ_CHECK(cz_launch(train, NULL, &launch));
    return 0;
}
