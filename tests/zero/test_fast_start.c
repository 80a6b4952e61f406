/* SPDX-License-Identifier: MIT */
/* A program linked with -Ofast flushes small numbers to zero from its first instruction on, and so
 * do all threads that it starts: results are those of any other program. (Linked so by CMake, where
 * the compiler is GCC.) */
#include "support/cz_test.h"
#include "support/float_mode.h"

#include <stdlib.h>

#include "czero/czero.h"

enum { N = 1 << 15, RANKS = 3 };

typedef struct results {
    float values[RANKS][N], gradients[RANKS][N];
} results;

/* As bits: the program's own arithmetic would make zeros of them. */
static void put_small_numbers(float *to, unsigned seed)
{
    for (unsigned i = 0; i < N; i++) {
        const uint32_t bits = 1000 * (1 + (i + seed) % 7000) | (i % 5 == 0 ? 30u << 23 : 0);
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static cz_status train(cz_group *group, void *context)
{
    results *r = context;
    const int rank = cz_group_rank(group);
    float *values = r->values[rank], *gradients = r->gradients[rank];
    cz_model *model;
    cz_zero *zero;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.threads = 2;
    put_small_numbers(values, 5);
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "w", values, gradients, CZ_F32, 1, (int64_t[]){N}));
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), &options));
    for (unsigned k = 0; k < 3; k++) {
        put_small_numbers(gradients, (unsigned)rank + k);
        CZ_TRY(cz_zero_step(zero, NULL, NULL));
    }
    put_small_numbers(gradients, (unsigned)rank);
    CZ_TRY(cz_all_reduce(group, gradients, N, CZ_F32, CZ_AVERAGE, NULL));
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return CZ_OK;
}

TEST(a_program_linked_with_fast_math_has_the_usual_results)
{
    static results fast, usual;
#if defined(__x86_64__)
    if (!(_mm_getcsr() & 0x8000))
        skip();
#endif
    assert_ranks_ok(RANKS, train, &fast);
    fesetenv(FE_DFL_ENV);
    assert_ranks_ok(RANKS, train, &usual);
    assert_memory_equal(&fast, &usual, sizeof fast);
}
