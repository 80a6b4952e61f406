/* SPDX-License-Identifier: MIT */
/* Schedulers on a sharded optimizer: every rank steps its own, and the training has the bits of an
 * unsharded one. */
#include "sched/two_groups.h"
#include "support/training.h"

#define PARAMS 5
#define STEPS 14

static const int64_t sizes[PARAMS] = {37, 0, 64, 1, 130};
static const int64_t first[] = {4, 0, 1}, second[] = {3, 2};

/* Ranks are threads; each has one optimizer at a time. */
static _Thread_local cz_sched *sched;
static int kind; /* of all */

static cz_status advance(const cz_test_subject *trained, int step)
{
    cz_optim *optim = trained->optim ? trained->optim : cz_zero_local_optim(trained->zero);
    if (step < 0)
        return CZ_OK;
    if (step == 0)
        return make_kind(&sched, optim, kind, 0);
    const cz_status status = cz_sched_step(sched);
    if (step == STEPS - 1)
        cz_sched_destroy(&sched);
    return status;
}

static void train(const cz_rule *rule)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    const cz_param_group groups[] = {{sizeof *groups, first, 3, NULL},
                                     {sizeof *groups, second, 2, CZ_HYPERS({"lr", 0.02})}};
    char why[256];
    for (int partition = 0; partition < 2; partition++)
        for (int i = 0; i < 5; i++) {
            const cz_test_training training = {
                .param_count = PARAMS,
                .sizes = sizes,
                .dtype = CZ_F32,
                .rule = rule,
                .hypers = CZ_HYPERS({"lr", 0.1}),
                .groups = groups,
                .group_count = 2,
                .partition = partition ? CZ_PARTITION_GREEDY : CZ_PARTITION_ELEMENTS,
                .steps = STEPS,
                .edit = advance,
            };
            if (cz_test_train(&training, worlds[i], NULL, why) != CZ_OK)
                fail_msg("%s, world size %d: %s", kind_names[kind], worlds[i], why);
        }
}

/* Each kind, on a rule with beta1 and on one whose momentum began as 0. */
TEST(every_kind_goes_on_a_sharded_optimizer)
{
    for (kind = 0; kind < KIND_COUNT; kind++) {
        train(cz_rule_adamw());
        train(cz_rule_sgd());
    }
}

/* Schedulers that differ are found by the next step. */
static cz_status differ(cz_group *group, void *context)
{
    static const int64_t one = 1;
    float value = 0, grad = 0;
    cz_model *model;
    cz_zero *zero;
    cz_sched *own;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "a", &value, &grad, CZ_F32, 1, &one));
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}), NULL));
    CZ_TRY(cz_sched_create_exponential(&own, cz_zero_local_optim(zero),
                                       cz_group_rank(group) == 1 ? 0.5 : 0.25, NULL));
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(cz_sched_step(own));
    const cz_status status = cz_zero_step(zero, NULL, NULL);
    cz_sched_destroy(&own);
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return status == CZ_ERR_MISMATCH && strstr(cz_last_error(), "lr")
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "status %d: %s", (int)status, cz_last_error());
}

TEST(ranks_that_differ)
{
    for (int world_size = 2; world_size <= 5; world_size++)
        assert_ranks_ok(world_size, differ, NULL);
}
