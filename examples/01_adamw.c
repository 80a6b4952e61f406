/* SPDX-License-Identifier: MIT */
/* AdamW sharded over 4 ranks: the program of README.md. Rank r pulls the weights towards r; they
 * settle at the mean. */
#include <czero/czero.h>

enum { N = 1000 };

static cz_status train(cz_group *group, void *context)
{
    float weights[N] = {0}, gradients[N];
    cz_model *model;
    cz_zero *zero;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "weights", weights, gradients, CZ_F32, 1, (int64_t[]){N}));
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_adamw(), CZ_HYPERS({"lr", 0.1}), NULL));
    for (int step = 0; step < 200; step++) {
        for (int i = 0; i < N; i++)
            gradients[i] = weights[i] - (float)cz_group_rank(group);
        CZ_TRY(cz_zero_step(zero, NULL, NULL)); /* mean over ranks, update, back to all ranks */
    }
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    CZ_TRY(cz_zero_get_info(zero, &info));
    printf("rank %d of %d: weight %.2f, %zu bytes of optimizer state\n", cz_group_rank(group),
           cz_group_size(group), weights[0], info.state_bytes);
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return CZ_OK;
}

int main(void)
{
    CZ_CHECK(cz_launch(train, NULL,
                       &(cz_launch_options){.size = sizeof(cz_launch_options), .ranks = 4}));
    return 0;
}
