/* SPDX-License-Identifier: MIT */
/* What a program is told by a sub-group: ranks by their numbers in the world, and which group it
 * was. */
#include "czero/zero.h"
#include "group/group_test.h"

enum { WORLD = 5, COUNT = 3 };

typedef cz_status (*sub_call)(cz_group *sub, int global_rank);

typedef struct scene {
    sub_call call;
    cz_status wanted;
    const char *words[2]; /* of the sentence, beside the group's name */
    double timeout;
} scene;

static cz_status odd_ranks(cz_group *group, void *arg)
{
    const scene *s = arg;
    const int rank = cz_group_rank(group);
    cz_group *sub = NULL;
    outcome got = {CZ_OK, ""};
    CZ_TRY(cz_group_split(group, rank % 2 && rank < 4 ? 0 : -1, 0, &sub));
    if (!sub)
        return CZ_OK;
    while (got.status == CZ_OK)
        note(&got, s->call(sub, rank));
    CHECK(got.status == s->wanted && strstr(got.sentence, s->words[0]) &&
              strstr(got.sentence, s->words[1]) &&
              strstr(got.sentence, "group 'ranks 1, 3 of world'"),
          "%s, not \"%s\", \"%s\" and the group: %s", cz_status_name(got.status), s->words[0],
          s->words[1], got.sentence);
    cz_group_destroy(&sub);
    return CZ_OK;
}

/* `timeout`: seconds, 0: the default. */
static void expect_sentences(scene s)
{
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    outcome outcomes[WORLD];
    options.timeout_seconds = s.timeout;
    run_ranks(WORLD, &options, odd_ranks, &s, outcomes);
    assert_all_ok(WORLD, outcomes, "%s", __func__);
}

static cz_status other_counts(cz_group *sub, int global_rank)
{
    float values[COUNT] = {0};
    return cz_all_reduce(sub, values, global_rank == 3 ? 2 : 3, CZ_F32, CZ_SUM, NULL);
}

static cz_status null_on_one(cz_group *sub, int global_rank)
{
    float values[COUNT] = {0};
    return cz_all_reduce(sub, global_rank == 3 ? NULL : values, COUNT, CZ_F32, CZ_SUM, NULL);
}

static cz_status other_learning_rates(cz_group *sub, int global_rank)
{
    float value[4] = {0}, gradient[4] = {0};
    cz_model *model;
    cz_zero *zero = NULL;
    const double lr = global_rank == 3 ? 0.5 : 0.25;
    CZ_TRY(cz_model_create(&model));
    cz_status status = cz_model_add(model, "w", value, gradient, CZ_F32, 1, (const int64_t[]){4});
    THEN(cz_zero_create(&zero, sub, model, cz_rule_adamw(), CZ_HYPERS({"lr", lr}), NULL));
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return status;
}

static cz_status other_values(cz_group *sub, int global_rank)
{
    float value[4] = {(float)global_rank}, gradient[4] = {0};
    cz_model *model;
    CZ_TRY(cz_model_create(&model));
    cz_status status = cz_model_add(model, "w", value, gradient, CZ_F32, 1, (const int64_t[]){4});
    THEN(cz_model_check_replicas(sub, model, NULL));
    cz_model_destroy(&model);
    return status;
}

static cz_status one_does_not_come(cz_group *sub, int global_rank)
{
    if (global_rank == 3)
        usleep(600 * 1000);
    return cz_barrier(sub, NULL);
}

TEST(differences_name_global_ranks)
{
    expect_sentences((scene){other_counts, CZ_ERR_MISMATCH, {"rank 3 gave 2", "rank 1 gave 3"}, 0});
    expect_sentences(
        (scene){other_learning_rates, CZ_ERR_MISMATCH, {"0.5 on rank 3", "0.25 on rank 1"}, 0});
    expect_sentences((scene){other_values, CZ_ERR_MISMATCH, {"rank 3 holds", "'w'"}, 0});
}

TEST(a_failure_names_its_global_rank)
{
    expect_sentences((scene){null_on_one, CZ_ERR_ARGUMENT, {"rank 3:", "all_reduce"}, 0});
}

TEST(a_late_rank_is_named_by_its_global_number)
{
    expect_sentences(
        (scene){one_does_not_come, CZ_ERR_TIMEOUT, {"rank 3 did not come", "barrier"}, 0.3});
}
