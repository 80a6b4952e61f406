/* SPDX-License-Identifier: MIT */
/* Moving averages in checkpoints and dictionaries: on other numbers of ranks and with other cuts,
 * from runs without them and into such, and as a file of values. */
#include "checkpoint/by_checkpoint.h"
#include "checkpoint/quick.h"
#include "zero/saved.h"

static saving here = {folder, false};
static const handover by_checkpoint = {load_stage, save_stage, &here};

EACH_TEST(set_up, tear_down)

/* ---- trainings in stages ---- */

static const cz_moving_average warm = {sizeof warm, CZ_MOVING_AVERAGE_EMA, .warm_up = 1,
                                       .decay = 0.9, .every = 1};
static const cz_moving_average late_mean = {sizeof late_mean, CZ_MOVING_AVERAGE_MEAN, .start = 2,
                                            .every = 2};

/* One group with an exponential average, one with a mean, one without. */
static cz_test_training averaged_training(const char *rule, cz_dtype dtype)
{
    static const int64_t first[] = {0, 2, 3}, second[] = {1, 5}, third[] = {4};
    static const cz_param_group groups[] = {{sizeof *groups, first, 3, .average = &warm},
                                            {sizeof *groups, second, 2, .average = &late_mean},
                                            {sizeof *groups, third, 1}};
    cz_test_training training = some_training(rule, dtype);
    training.groups = groups;
    training.group_count = 3;
    return training;
}

static cz_status change_decay(const cz_test_subject *subject, int step)
{
    return step == 4 ? cz_test_set_hyper(subject, 0, "average_decay", 0.5) : CZ_OK;
}

static cz_status freeze(const cz_test_subject *subject, int step)
{
    return cz_model_set_requires_grad(subject->model, 3, step < 3 || step > 4);
}

static void check_on_other_ranks(const handover *by)
{
    static const stage list[] = {{3, 3, CZ_PARTITION_ELEMENTS, 0, 0, 0},
                                 {2, 3, CZ_PARTITION_GREEDY, 0, 0, 0},
                                 {1, 1, CZ_PARTITION_ELEMENTS, 0, 0, 5},
                                 {5, 3, CZ_PARTITION_ELEMENTS, 64, 0.5, 5}};
    static const char *const rules[] = {"adamw", "nadam", "lamb"};
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        cz_test_training training = averaged_training(rules[k], k == 1 ? CZ_F64 : CZ_F32);
        training.tune = change_decay;
        check_stages(by, &training, list, 4, NULL);
    }
}

TEST(averages_go_on_on_other_ranks_from_checkpoints)
{
    check_on_other_ranks(&by_checkpoint);
}

TEST(averages_go_on_on_other_ranks_from_dictionaries)
{
    check_on_other_ranks(NULL);
}

/* The average goes with the freezing, and begins anew. */
TEST(what_is_frozen_has_no_average)
{
    static const stage list[] = {{2, 3, CZ_PARTITION_ELEMENTS, 0, 0, 0},
                                 {3, 2, CZ_PARTITION_GREEDY, 0, 0, 0},
                                 {1, 2, CZ_PARTITION_ELEMENTS, 0, 0, 0}};
    cz_test_training training = averaged_training("adam", CZ_F32);
    training.edit = freeze;
    check_stages(&by_checkpoint, &training, list, 3, NULL);
}

/* ---- with and without ---- */

enum { COUNT = 150, FEW_STEPS = 3 };

typedef struct plain_run {
    const char *folder;
    const cz_moving_average *average;
    float values[COUNT], gradients[COUNT], evaluated[COUNT];
    cz_model *model;
    cz_zero *zero;
    cz_checkpoint *checkpoint;
} plain_run;

static cz_status open_run(plain_run *r, cz_group *group)
{
    const int64_t count = COUNT;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    cz_checkpoint_options where = CZ_CHECKPOINT_OPTIONS_INIT;
    for (int i = 0; i < COUNT; i++) {
        r->values[i] = (float)i / 64;
        r->gradients[i] = (float)(i % 7 - 3) / 8;
    }
    CZ_TRY(cz_model_create(&r->model));
    CZ_TRY(cz_model_add(r->model, "w", r->values, r->gradients, CZ_F32, 1, &count));
    options.average = r->average;
    CZ_TRY(cz_zero_create(&r->zero, group, r->model, cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}),
                          &options));
    where.zero = r->zero;
    return cz_checkpoint_create(&r->checkpoint, group, folder, &where);
}

static void close_run(plain_run *r)
{
    cz_checkpoint_destroy(&r->checkpoint);
    cz_zero_destroy(&r->zero);
    cz_model_destroy(&r->model);
}

static cz_status train_and_save(plain_run *r)
{
    for (int s = 0; s < FEW_STEPS; s++)
        CZ_TRY(cz_zero_step(r->zero, NULL, NULL));
    CZ_TRY(cz_checkpoint_save(r->checkpoint, NULL));
    if (!r->average)
        return CZ_OK;
    CZ_TRY(cz_zero_evaluate(r->zero, true));
    memcpy(r->evaluated, r->values, sizeof r->values);
    CZ_TRY(small_expect(cz_checkpoint_save(r->checkpoint, NULL), ONE(CZ_ERR_STATE), "save",
                        "brings back those that train"));
    CZ_TRY(small_expect(cz_checkpoint_load(r->checkpoint, NULL, NULL), ONE(CZ_ERR_STATE), "load",
                        "brings back those that train"));
    CZ_TRY(cz_zero_evaluate(r->zero, false));
    return cz_checkpoint_save(r->checkpoint, NULL);
}

static cz_status saved(cz_group *group, void *context)
{
    plain_run r = {.average = context};
    cz_status status = open_run(&r, group);
    THEN(train_and_save(&r));
    close_run(&r);
    return status;
}

static cz_status load_and_go_on(plain_run *r, const char *words)
{
    double n;
    CZ_TRY(cz_checkpoint_load(r->checkpoint, NULL, NULL));
    if (!strstr(cz_checkpoint_notes(r->checkpoint), words))
        return cz_fail(CZ_ERR_INTERNAL, "notes: \"%s\"", cz_checkpoint_notes(r->checkpoint));
    CZ_TRY(cz_zero_step(r->zero, NULL, NULL));
    if (!r->average)
        return CZ_OK;
    CZ_TRY(cz_optim_scalar(cz_zero_local_optim(r->zero), 0, "n_averaged", &n));
    CZ_TRY(cz_zero_evaluate(r->zero, true));
    memcpy(r->evaluated, r->values, sizeof r->values);
    CZ_TRY(cz_zero_evaluate(r->zero, false));
    if (n == 1 && memcmp(r->evaluated, r->values, sizeof r->values) == 0)
        return CZ_OK;
    return cz_fail(CZ_ERR_INTERNAL, "%g averaged, and not from the value on", n);
}

static cz_status loaded(cz_group *group, void *context)
{
    plain_run r = {.average = context};
    cz_status status = open_run(&r, group);
    THEN(load_and_go_on(&r, context ? "averages of 1 parameters are not in the file"
                                    : "averages of 1 parameters are left out"));
    close_run(&r);
    return status;
}

TEST(a_run_without_averages_takes_a_checkpoint_with_them)
{
    for (int world = 1; world <= 3; world++) {
        assert_ranks_ok(world, saved, (void *)&warm);
        assert_ranks_ok(1 + world % 3, loaded, NULL);
    }
}

TEST(a_run_with_averages_begins_them_after_a_checkpoint_without)
{
    for (int world = 1; world <= 3; world++) {
        assert_ranks_ok(world, saved, NULL);
        assert_ranks_ok(1 + world % 3, loaded, (void *)&warm);
    }
}

/* The same in memory, where nobody reads notes. */
TEST(dictionaries_with_and_without)
{
    plain_run with = {.average = &warm}, without = {0};
    cz_group *group;
    cz_state_dict *dict;
    double n;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_ok(open_run(&with, group));
    assert_ok(open_run(&without, group));
    assert_ok(cz_zero_step(with.zero, NULL, NULL));
    assert_ok(cz_zero_step(without.zero, NULL, NULL));
    assert_ok(cz_zero_consolidate_state_dict(with.zero, 0));
    assert_ok(cz_zero_state_dict(with.zero, &dict));
    assert_ok(cz_zero_load_state_dict(without.zero, dict));
    cz_state_dict_destroy(&dict);
    assert_ok(cz_zero_consolidate_state_dict(without.zero, 0));
    assert_ok(cz_zero_state_dict(without.zero, &dict));
    assert_ok(cz_zero_load_state_dict(with.zero, dict));
    assert_ok(cz_optim_scalar(cz_zero_local_optim(with.zero), 0, "n_averaged", &n));
    assert_true(n == 0);
    cz_state_dict_destroy(&dict);
    close_run(&with);
    close_run(&without);
    cz_group_destroy(&group);
}

/* ---- as files ---- */

static cz_status export_evaluated(cz_group *group, void *context)
{
    const char *path = context;
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    plain_run r = {.average = &warm};
    cz_status status = open_run(&r, group);
    THEN(train_and_save(&r));
    THEN(cz_zero_evaluate(r.zero, true));
    THEN(small_expect(cz_checkpoint_export(r.checkpoint, path, NULL), ONE(CZ_ERR_STATE), "export",
                      "brings back those that train"));
    options.parameters_only = 1;
    THEN(cz_checkpoint_export(r.checkpoint, path, &options));
    THEN(cz_zero_evaluate(r.zero, false));
    close_run(&r);
    return status;
}

static void read_all(const char *path, char *bytes, size_t most, size_t *count)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *count = fread(bytes, 1, most, file);
    fclose(file);
}

TEST(a_file_of_what_is_evaluated_is_the_same_from_any_number_of_ranks)
{
    static char first[4096], other[4096];
    size_t count, others;
    char path[FOLDER_BYTES + 32];
    snprintf(path, sizeof path, "%s/evaluated.safetensors", folder);
    for (int world = 1; world <= 5; world += 2) {
        assert_ranks_ok(world, export_evaluated, path);
        read_all(path, other, sizeof other, &others);
        if (world == 1)
            memcpy(first, other, count = others);
        assert_true(count == others && memcmp(first, other, count) == 0);
    }
}
