/* SPDX-License-Identifier: MIT */
/* Replicas that drift are found, named and repaired. */
#include <string.h>

#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 6 };
static const int64_t sizes[PARAMS] = {40, 0, 1, 100, 3, 250};
static const cz_test_training layout = {.param_count = PARAMS, .sizes = sizes, .dtype = CZ_F32};

typedef struct drift {
    int rank, param, element;
} drift;

static cz_status train(cz_zero *zero, cz_group *group, const cz_test_memory *memory, const drift *d)
{
    const bool odd = cz_group_rank(group) == d->rank;
    char wanted[64];
    for (int t = 0; t < 6; t++) {
        for (int p = 0; p < PARAMS; p++)
            for (int64_t i = 0; i < sizes[p]; i++)
                cz_test_store(memory->grads[p], CZ_F32, i,
                              cz_test_gradient(cz_group_rank(group), t, i));
        CZ_TRY(cz_zero_step(zero, NULL, NULL));
        if (t == 4 && odd)
            ((uint32_t *)memory->values[d->param])[d->element] ^= 1u;
        const cz_status status = cz_zero_check_replicas(zero);
        if (t != 4) {
            CZ_TRY(status);
            continue;
        }
        snprintf(wanted, sizeof wanted, "rank %d holds other values of parameter %d 'p%d' after 5",
                 d->rank, d->param, d->param);
        if (status != CZ_ERR_MISMATCH || !strstr(cz_last_error(), wanted))
            return cz_fail(CZ_ERR_STATE, "got %s '%s'", cz_status_name(status), cz_last_error());
        CZ_TRY(cz_zero_broadcast_parameters(zero, d->rank == 0 ? 1 : 0));
        CZ_TRY(cz_zero_check_replicas(zero));
    }
    return CZ_OK;
}

static cz_status body(cz_group *group, void *context)
{
    cz_test_memory memory;
    cz_zero *zero = NULL;
    cz_status status = cz_test_memory_create(&memory, &layout);
    THEN(cz_zero_create(&zero, group, memory.model, cz_rule_adam(), NULL, NULL));
    THEN(train(zero, group, &memory, context));
    cz_zero_destroy(&zero);
    cz_test_memory_destroy(&memory);
    return status;
}

TEST(replicas_that_drift_are_named_and_repaired)
{
    static const drift drifts[] = {{1, 3, 7}, {2, 2, 0}, {0, 5, 249}, {1, 0, 0}};
    char why[256];
    for (int world = 3; world <= 7; world += 2)
        for (size_t k = 0; k < sizeof drifts / sizeof *drifts; k++)
            if (cz_test_run_ranks(world, body, (void *)&drifts[k], why) != CZ_OK)
                fail_msg("world size %d, drift %zu: %s", world, k, why);
}
