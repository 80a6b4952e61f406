/* SPDX-License-Identifier: MIT */
/* Two parameters whose steps can be followed by hand. */
#ifndef CZ_TEST_TWO_PARAMS_H
#define CZ_TEST_TWO_PARAMS_H

#include "optim/optim.h"
#include "support/cz_test.h"

#include <math.h>
#include <string.h>

#define N 37

static float values[2][N], grads[2][N];

/* Parameters a, b of N elements, all 1, gradients all 1; made anew for each test. */
static cz_model *model;

static inline int make_two_params(void **state)
{
    static const int64_t shape = N;
    assert_ok(cz_model_create(&model));
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < N; i++)
            values[p][i] = grads[p][i] = 1;
        assert_ok(cz_model_add(model, p ? "b" : "a", values[p], grads[p], CZ_F32, 1, &shape));
    }
    return 0;
}

static inline int destroy_two_params(void **state)
{
    cz_model_destroy(&model);
    return 0;
}
EACH_TEST(make_two_params, destroy_two_params)

static inline cz_optim *make_sgd(cz_model *of, double momentum)
{
    cz_optim *optim;
    assert_ok(cz_optim_create(&optim, of, cz_rule_sgd(),
                              CZ_HYPERS({"lr", 0.5}, {"momentum", momentum}), NULL));
    return optim;
}

/* The first value of a slot, NaN where it is absent. */
static inline float state_of(const cz_optim *optim, int64_t param, const char *slot)
{
    const void *data;
    int64_t count;
    assert_ok(cz_optim_state(optim, param, slot, 0, &data, &count));
    assert_int_equal(count, N);
    return data ? *(const float *)data : NAN;
}

static inline void step(cz_optim *optim)
{
    assert_ok(cz_optim_step(optim, NULL, NULL));
}

#endif
