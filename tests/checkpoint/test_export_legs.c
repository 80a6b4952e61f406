/* SPDX-License-Identifier: MIT */
/* A training in stages that goes on from what the stage before has exported: one that never
 * stopped. */
#include "checkpoint/by_checkpoint.h"
#include "checkpoint/exports.h"
#include "zero/eventful.h"

typedef struct exporting {
    char path[EXPORT_PATH];
    uint64_t max_file_bytes;
} exporting;

static cz_status import_stage(const stages *s, cz_group *group, cz_zero *zero)
{
    const exporting *how = s->by->context;
    cz_checkpoint *checkpoint = NULL;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(open_checkpoint(group, zero, "not used", &checkpoint));
    cz_status status = cz_checkpoint_import(checkpoint, how->path, NULL, &result);
    if (status == CZ_OK && (result.step != s->begin || result.generation != -1 || result.own))
        status = cz_fail(CZ_ERR_STATE, "step %d was exported, %d is imported", s->begin,
                         (int)result.step);
    small_result_clear(&result);
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static cz_status export_stage(const stages *s, cz_group *group, cz_zero *zero)
{
    const exporting *how = s->by->context;
    cz_checkpoint *checkpoint = NULL;
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    options.step = s->end;
    options.max_file_bytes = how->max_file_bytes;
    CZ_TRY(open_checkpoint(group, zero, "not used", &checkpoint));
    const cz_status status = cz_checkpoint_export(checkpoint, how->path, &options);
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static char folder[FOLDER_BYTES];
static exporting how;
static const handover by_export = {import_stage, export_stage, &how};

static void into_files_of(uint64_t bytes)
{
    how.max_file_bytes = bytes;
    snprintf(how.path, sizeof how.path, "%s/%s", folder, bytes ? "model" : "model.safetensors");
}

static int set_up(void **state)
{
    make_quick_folder(folder);
    into_files_of(0);
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(folder);
    return 0;
}

EACH_TEST(set_up, tear_down)

TEST(training_travels_between_world_sizes)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    const cz_test_training training =
        eventful(cz_rule_adam(), CZ_HYPERS({"lr", 0.5}, {"amsgrad", 1}), CZ_F32);
    check_pairs(&by_export, &training, worlds, 5);
}

TEST(training_travels_in_many_stages)
{
    check_many(&by_export, cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F64);
    check_many(&by_export, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), CZ_F32);
    into_files_of(300);
    check_many(&by_export, cz_rule_adam(), CZ_HYPERS({"lr", 0.5}), CZ_F64);
    tear_down(NULL);
    make_quick_folder(folder);
    into_files_of(1);
    check_many(&by_export, cz_rule_nadam(), CZ_HYPERS({"lr", 0.5}), CZ_F32);
}
