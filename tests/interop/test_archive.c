/* SPDX-License-Identifier: MIT */
/* Archives: one process reads what ranks have saved, or another program, without a group, a model
 * or an optimizer. */
#include "support/cz_test.h"

#include <stddef.h>

#include "checkpoint/small.h"
#include "czero/archive.h"

enum { RANKS = 3 };

/* Two generations: values of seed 1 before a step, and after it. */
static cz_status save_twice(cz_group *group, void *context)
{
    small s;
    cz_state_dict *common, *own;
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    const char *folder = context;
    CZ_TRY(small_open(&s, group, folder, 1, 5));
    for (int64_t step = 10; step <= 20; step += 10) {
        CZ_TRY(small_dict(&common, (int)step));
        CZ_TRY(small_dict(&own, (int)step + cz_group_rank(group)));
        options.step = step;
        options.common = common;
        options.own = own;
        CZ_TRY(cz_checkpoint_save(s.checkpoint, &options));
        cz_state_dict_destroy(&common);
        cz_state_dict_destroy(&own);
        CZ_TRY(small_step(&s));
    }
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s.safetensors", folder);
    CZ_TRY(cz_checkpoint_export(s.checkpoint, path, NULL));
    small_close(&s);
    return CZ_OK;
}

typedef struct saved {
    char root[FOLDER_BYTES], folder[SMALL_PATH], file[SMALL_PATH];
} saved;

static void make_saved(saved *s)
{
    make_quick_folder(s->root);
    snprintf(s->folder, sizeof s->folder, "%s/ck", s->root);
    snprintf(s->file, sizeof s->file, "%s/ck.safetensors", s->root);
    assert_ranks_ok(RANKS, save_twice, s->folder);
}

static cz_archive *open_archive(const char *path, int64_t step)
{
    cz_archive *archive;
    if (cz_archive_open(&archive, path, step) != CZ_OK)
        fail_msg("%s", cz_last_error());
    return archive;
}

TEST(the_newest_generation_is_described)
{
    saved s;
    make_saved(&s);
    cz_archive *archive = open_archive(s.folder, CZ_NEWEST);
    cz_archive_info info = CZ_ARCHIVE_INFO_INIT;
    const char *rule;
    assert_ok(cz_archive_get_info(archive, &info));
    assert_string_equal(info.kind, "a checkpoint in parts");
    assert_non_null(strstr(info.path, "/ck/00000002-step-20"));
    assert_int_equal(info.step, 20);
    assert_int_equal(info.generation, 2);
    assert_int_equal(info.world_size, RANKS);
    assert_int_equal(info.param_count, SMALL_PARAMS);
    assert_int_equal(info.buffer_count, 1);
    assert_int_equal(strlen(info.id), 32);
    assert_ok(cz_state_dict_get_text(info.optimizer, "rule", &rule));
    assert_string_equal(rule, "adam");
    /* A caller that was compiled before there was an id has a struct that ends there. */
    cz_archive_info older = CZ_ARCHIVE_INFO_INIT;
    older.size = offsetof(cz_archive_info, id);
    older.id = "untouched";
    assert_ok(cz_archive_get_info(archive, &older));
    assert_int_equal(older.size, offsetof(cz_archive_info, id));
    assert_string_equal(older.id, "untouched");
    assert_int_equal(older.buffer_count, 1);
    cz_archive_destroy(&archive);
    remove_folder(s.root);
}

TEST(tensors_and_slots_are_read_by_name)
{
    saved s;
    make_saved(&s);
    cz_archive *first = open_archive(s.folder, 10), *second = open_archive(s.folder, 20);
    cz_archive *exported = open_archive(s.file, CZ_NEWEST);
    cz_archive_tensor tensor = CZ_ARCHIVE_TENSOR_INIT;
    float before[12], after[12], again[12];
    const int64_t place = cz_archive_find(first, "layer1.weight");
    assert_ok(cz_archive_get_tensor(first, place, &tensor));
    assert_string_equal(tensor.name, "layer1.weight");
    assert_string_equal(tensor.type, "f32");
    assert_int_equal(tensor.dtype, CZ_F32);
    assert_int_equal(tensor.dimensions, 2);
    assert_int_equal(tensor.shape[1], 4);
    assert_int_equal(tensor.count, 12);
    assert_ok(cz_archive_read(first, place, NULL, 0, 12, before));
    for (int i = 0; i < 12; i++)
        assert_true(before[i] == (float)i / 64);
    assert_null(cz_archive_slot(first, place, 0, NULL)); /* there was no step yet */
    assert_string_equal(cz_archive_slot(second, place, 0, NULL), "exp_avg");
    assert_ok(cz_archive_read(second, place, NULL, 5, 12, after + 5));
    assert_true(after[5] < before[5]);
    assert_ok(cz_archive_read(second, place, "exp_avg", 0, 12, after));
    assert_true(after[0] > 0);
    /* A third step was made before the export: its state is another one, under the same names. */
    const int64_t there = cz_archive_find(exported, "layer1.weight");
    assert_ok(cz_archive_read(exported, there, "exp_avg", 0, 12, again));
    assert_true(again[0] > after[0]);
    assert_int_equal(cz_archive_find(first, "layer3.weight"), -1);
    cz_archive_destroy(&first);
    cz_archive_destroy(&second);
    cz_archive_destroy(&exported);
    remove_folder(s.root);
}

TEST(dictionaries_are_read)
{
    saved s;
    make_saved(&s);
    cz_archive *archive = open_archive(s.folder, CZ_NEWEST);
    cz_archive *exported = open_archive(s.file, CZ_NEWEST);
    cz_state_dict *wanted, *got;
    assert_ok(small_dict(&wanted, 20));
    assert_ok(cz_archive_read_dict(archive, CZ_ALL_RANKS, &got));
    assert_true(cz_state_dict_equal(wanted, got));
    cz_state_dict_destroy(&wanted);
    cz_state_dict_destroy(&got);
    assert_ok(small_dict(&wanted, 22));
    assert_ok(cz_archive_read_dict(archive, 2, &got));
    assert_true(cz_state_dict_equal(wanted, got));
    cz_state_dict_destroy(&wanted);
    cz_state_dict_destroy(&got);
    assert_int_equal(cz_archive_read_dict(archive, RANKS, &got), CZ_ERR_ARGUMENT);
    assert_null(got);
    assert_int_equal(cz_archive_read_dict(exported, 0, &got), CZ_ERR_ARGUMENT);
    assert_ok(cz_archive_read_dict(exported, CZ_ALL_RANKS, &got));
    assert_int_equal(cz_state_dict_count(got), 0);
    cz_state_dict_destroy(&got);
    cz_archive_destroy(&archive);
    cz_archive_destroy(&exported);
    remove_folder(s.root);
}

static cz_status note(const char *sentence, void *context)
{
    char *said = context;
    strncat(said, sentence, 1000);
    return CZ_OK;
}

TEST(verifying_lists_what_is_damaged)
{
    saved s;
    char part[2 * SMALL_PATH], said[4000] = "";
    make_saved(&s);
    cz_archive *archive = open_archive(s.folder, CZ_NEWEST);
    cz_verify_options options = CZ_VERIFY_OPTIONS_INIT;
    cz_verify_result result = CZ_VERIFY_RESULT_INIT;
    cz_archive_info info = CZ_ARCHIVE_INFO_INIT;
    assert_ok(cz_archive_verify(archive, NULL, &result));
    assert_int_equal(result.problems, 0);
    assert_true(result.tensors > 0 && result.checksums > result.tensors && result.bytes > 0);
    assert_ok(cz_archive_get_info(archive, &info));
    snprintf(part, sizeof part, "%s/rank-00001-of-00003.safetensors", info.path);
    FILE *file = fopen(part, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    const int last = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    fputc(last ^ 1, file);
    fclose(file);
    options.problem = note;
    options.context = said;
    cz_archive_destroy(&archive);
    archive = open_archive(s.folder, CZ_NEWEST);
    assert_int_equal(cz_archive_verify(archive, &options, &result), CZ_ERR_FORMAT);
    assert_int_equal(result.problems, 1);
    assert_non_null(strstr(said, "rank-00001-of-00003.safetensors"));
    assert_string_equal(said, cz_last_error());
    assert_int_equal(cz_archive_verify(archive, NULL, NULL), CZ_ERR_FORMAT);
    cz_archive_destroy(&archive);
    remove_folder(s.root);
}

typedef struct seen {
    int64_t steps[8];
    int complete, count;
} seen;

static cz_status see(const cz_archive_generation *g, void *context)
{
    seen *s = context;
    s->steps[s->count++] = g->step;
    s->complete += g->complete;
    return s->count < 8 ? CZ_OK : CZ_ERR_STATE;
}

TEST(generations_are_listed_and_incomplete_ones_passed_over)
{
    saved s;
    seen all = {0};
    char index[2 * SMALL_PATH];
    make_saved(&s);
    snprintf(index, sizeof index, "%s/00000002-step-20/index.json", s.folder);
    assert_int_equal(remove(index), 0);
    assert_ok(cz_archive_list(s.folder, see, &all));
    assert_int_equal(all.count, 2);
    assert_int_equal(all.steps[0], 20);
    assert_int_equal(all.steps[1], 10);
    assert_int_equal(all.complete, 1);
    cz_archive *archive = open_archive(s.folder, CZ_NEWEST);
    cz_archive_info info = CZ_ARCHIVE_INFO_INIT;
    assert_ok(cz_archive_get_info(archive, &info));
    assert_int_equal(info.step, 10);
    assert_non_null(strstr(info.notes, "00000002-step-20 was passed over"));
    cz_archive_destroy(&archive);
    assert_int_equal(cz_archive_open(&archive, s.folder, 20), CZ_ERR_STATE);
    assert_null(archive);
    assert_int_equal(cz_archive_open(&archive, s.file, 20), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_archive_open(&archive, s.root, CZ_NEWEST), CZ_ERR_ARGUMENT);
    remove_folder(s.root);
}

TEST(what_cannot_be_read_is_refused)
{
    saved s;
    float room[12];
    make_saved(&s);
    cz_archive *archive = open_archive(s.folder, CZ_NEWEST);
    const int64_t place = cz_archive_find(archive, "layer1.weight");
    assert_int_equal(cz_archive_read(archive, -1, NULL, 0, 1, room), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_archive_read(archive, 4, NULL, 0, 1, room), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_archive_read(archive, place, NULL, 0, 13, room), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_archive_read(archive, place, NULL, 3, 2, room), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_archive_read(archive, place, "momentum", 0, 1, room), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "'layer1.weight' has no slot 'momentum'"));
    assert_int_equal(cz_archive_read(archive, place, NULL, 0, 1, NULL), CZ_ERR_ARGUMENT);
    cz_archive_destroy(&archive);
    remove_folder(s.root);
}
