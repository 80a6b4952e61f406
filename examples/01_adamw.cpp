/* SPDX-License-Identifier: MIT */
/* 01_adamw.c in C++: lists are variables, and option structs are filled field by field. */
#include <czero/czero.h>

enum { N = 1000 };

static cz_status train(cz_group *group, void *)
{
    float weights[N] = {}, gradients[N];
    const int64_t shape[] = {N};
    const cz_hyper hypers[] = {{"lr", 0.1}, {nullptr, 0}};
    cz_model *model;
    cz_zero *zero;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "weights", weights, gradients, CZ_F32, 1, shape));
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_adamw(), hypers, nullptr));
    for (int step = 0; step < 200; step++) {
        for (int i = 0; i < N; i++)
            gradients[i] = weights[i] - static_cast<float>(cz_group_rank(group));
        /* Mean over ranks, update, back to all ranks. */
        CZ_TRY(cz_zero_step(zero, nullptr, nullptr));
    }
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    CZ_TRY(cz_zero_get_info(zero, &info));
    printf("rank %d of %d: weight %.2f, %zu bytes of optimizer state\n", cz_group_rank(group),
           cz_group_size(group), static_cast<double>(weights[0]), info.state_bytes);
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return CZ_OK;
}

int main()
{
    cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
    options.ranks = 4;
    CZ_CHECK(cz_launch(train, nullptr, &options));
    return 0;
}
