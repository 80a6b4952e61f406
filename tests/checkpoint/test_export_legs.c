/* SPDX-License-Identifier: MIT */
/* A training in legs that goes on from what the leg before has exported: one that never stopped. */
#include "checkpoint/exports.h"
#include "zero/legs.h"

static const int worlds[] = {1, 2, 3, 5, 7};

typedef struct trip {
    char path[EXPORT_PATH];
    uint64_t max_file_bytes;
} trip;

static cz_status open_checkpoint(cz_group *group, cz_zero *zero, cz_checkpoint **checkpoint)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.zero = zero;
    return cz_checkpoint_create(checkpoint, group, "not used", &options);
}

static cz_status arrive(const luggage *l, cz_group *group, cz_zero *zero)
{
    const trip *t = l->way->context;
    cz_checkpoint *checkpoint = NULL;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(open_checkpoint(group, zero, &checkpoint));
    cz_status status = cz_checkpoint_import(checkpoint, t->path, NULL, &result);
    if (status == CZ_OK && (result.step != l->step || result.generation != -1 || result.own))
        status = cz_fail(CZ_ERR_STATE, "step %d was exported, %d is imported", l->step,
                         (int)result.step);
    small_result_clear(&result);
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static cz_status leave(const luggage *l, cz_group *group, cz_zero *zero)
{
    const trip *t = l->way->context;
    cz_checkpoint *checkpoint = NULL;
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    options.step = l->step + l->leg->steps;
    options.max_file_bytes = t->max_file_bytes;
    CZ_TRY(open_checkpoint(group, zero, &checkpoint));
    const cz_status status = cz_checkpoint_export(checkpoint, t->path, &options);
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static void along(uint64_t max_file_bytes, const cz_rule *rule, const cz_hyper *hypers,
                  cz_dtype dtype, void (*test)(const course *))
{
    char folder[FOLDER_BYTES];
    trip t = {.max_file_bytes = max_file_bytes};
    const travel by_export = {
        .go_on = arrive, .leave = leave, .brings_values = true, .context = &t};
    make_quick_folder(folder);
    snprintf(t.path, sizeof t.path, "%s/%s", folder,
             max_file_bytes ? "model" : "model.safetensors");
    with_course(&by_export, rule, hypers, dtype, test);
    remove_folder(folder);
}

/* From every world size to every other, in time. */
static void pairs(const course *c)
{
    static const int orders[] = {1, 2, 4, 5, 7, 8};
    for (int from = 0; from < 5; from++)
        for (int to = 0; to < 5; to++) {
            const leg legs[] = {
                {worlds[from], 3 + (from + to) % 7, (cz_partition)((from + to) % 3), orders[from]},
                {worlds[to], STEPS, (cz_partition)((from + 2 * to + 1) % 3), orders[to + 1]}};
            run_course(c, legs, 2);
        }
}

TEST(training_travels_between_world_sizes)
{
    along(0, cz_rule_adam(), CZ_HYPERS({"lr", 0.5}, {"amsgrad", 1}), CZ_F32, pairs);
}

TEST(training_travels_in_many_legs)
{
    along(0, cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
    along(300, cz_rule_adam(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
    along(1, cz_rule_nadam(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
    along(0, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
}
