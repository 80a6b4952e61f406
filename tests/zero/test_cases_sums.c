/* SPDX-License-Identifier: MIT */
/* norms of layers of a parameter that several ranks have pieces of. The rule is the LAMB of
 * docs/add-a-rule.md. */
#include "support/spans.h"
#include "zero/cases.h"

#include "optim/optim.h"

#include "lamb.c"
#include "shard/shard.h"

enum { WORLD = 3, PARAMS = 3, SUMS = 2 };

/* Is the second parameter cut where it should be, and do all ranks scale each one alike? */
static cz_status scale_alike(const cz_test_subject *subject, cz_group *group)
{
    const cz_optim *optim = cz_zero_local_optim(subject->zero);
    double mine[PARAMS * SUMS], all[WORLD * PARAMS * SUMS];
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    cz_span span;
    CZ_TRY(cz_zero_get_info(subject->zero, &info));
    if (!cz__shard_map_locate(cz_test_shard_map(subject->zero), 1, 0, &span) ||
        (span.end < 1000) != (info.partition == CZ_PARTITION_ELEMENTS))
        return cz_fail(CZ_ERR_STATE, "the second parameter's first span ends at %d", (int)span.end);
    for (int p = 0; p < PARAMS; p++)
        memcpy(mine + p * SUMS, cz__optim_sum_values(optim, p), SUMS * sizeof *mine);
    CZ_TRY(cz_all_gather(group, mine, all, PARAMS * SUMS, CZ_F64, NULL));
    for (int r = 0; r < WORLD; r++)
        if (memcmp(all + (size_t)r * PARAMS * SUMS, mine, sizeof mine) != 0)
            return cz_fail(CZ_ERR_STATE, "rank %d has other norms than rank %d", r,
                           cz_group_rank(group));
    return CZ_OK;
}

TEST(norms_of_parameters_that_are_cut)
{
    static const int64_t sizes[PARAMS] = {10, 1000, 1};
    const cz_test_training training = {.param_count = PARAMS,
                                       .sizes = sizes,
                                       .dtype = CZ_F32,
                                       .rule = &lamb_rule,
                                       .hypers = CZ_HYPERS({"lr", 0.01}),
                                       .steps = 5};
    check_all(training, WORLD, scale_alike);
    const stage list[] = {{WORLD, 3, CZ_PARTITION_ELEMENTS, 0, 0, 0},
                          {2, 1, CZ_PARTITION_GREEDY, 64, 0, 0},
                          {WORLD, 1, CZ_PARTITION_ELEMENTS, 0, 0, 0}};
    check_stages(NULL, &training, list, 3, scale_alike);
}
