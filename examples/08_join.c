/* SPDX-License-Identifier: MIT */
/* Ranks with unequal amounts of data: who has no more batches goes on taking part in the others'
 * calls until all have come to their end (cz_join_begin(), cz_join_end()), and the mean is over the
 * ranks that still have some. Without the two calls the ranks that have more would wait for the
 * others until the timeout. */
#include <stdlib.h>

#include "czero/czero.h"

enum { N = 16, BATCHES = 4 }; /* rank r has r + 1 times as many batches */

/* One batch of rank r pulls the weights towards r + 1. */
static cz_status train_batch(cz_ddp *ddp, cz_zero *zero, float *weights, float *gradients,
                             float target)
{
    CZ_TRY(cz_ddp_begin(ddp, true));
    for (int i = 0; i < N; i++)
        gradients[i] = weights[i] - target;
    CZ_TRY(cz_ddp_mark_ready(ddp, 0));
    CZ_TRY(cz_ddp_finish(ddp));
    return cz_zero_step(zero, NULL, NULL);
}

static cz_status train(cz_group *group, void *context)
{
    const int rank = cz_group_rank(group);
    float weights[N] = {0}, gradients[N];
    cz_model *model;
    cz_ddp *ddp;
    cz_zero *zero;
    cz_join *join;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "weights", weights, gradients, CZ_F32, 1, (int64_t[]){N}));
    CZ_TRY(cz_ddp_create(&ddp, group, model, NULL));
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.ddp = ddp;
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), &options));

    cz_join_options uneven = CZ_JOIN_OPTIONS_INIT;
    uneven.divide = CZ_JOIN_BY_ACTIVE;
    cz_joinable both[2] = {CZ_JOINABLE_INIT, CZ_JOINABLE_INIT};
    CZ_TRY(cz_ddp_joinable(ddp, &both[0]));
    CZ_TRY(cz_zero_joinable(zero, &both[1]));
    CZ_TRY(cz_join_begin(&join, group, both, 2, &uneven));
    const int batches = BATCHES * (rank + 1);
    cz_status status = CZ_OK;
    float before = 0; /* where the weights were when this rank's batches were used up */
    for (int b = 0; b < batches && status == CZ_OK; b++) {
        status = train_batch(ddp, zero, weights, gradients, (float)(rank + 1));
        before = weights[0];
    }
    CZ_TRY(cz_join_end(&join, status)); /* if one rank's loop has failed, all return its status */

    printf("rank %d of %d: after its %2d batches %.4f, in the end %.4f\n", rank,
           cz_group_size(group), batches, before, weights[0]);
    cz_zero_destroy(&zero);
    cz_ddp_destroy(&ddp);
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
