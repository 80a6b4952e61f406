/* SPDX-License-Identifier: MIT */
/* Imports of our own files: parameters alone, files that lie, options that do not apply; and
 * failures of one rank, seen by all, after which nothing has changed. */
#include "checkpoint/imports.h"

#include <errno.h>

#include "io/stream.h"

/* ---- parameters only ---- */

static cz_status export_model(trainee *s, const job *j)
{
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    options.parameters_only = 1;
    options.max_file_bytes = j->max_file_bytes;
    return cz_checkpoint_export(s->checkpoint, j->path, &options);
}

static cz_status travel_alone(trainee *a, trainee *b, const job *j)
{
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    cz_state_dict *before = NULL;
    CZ_TRY(trainee_train(a));
    CZ_TRY(trainee_step(b, 5));
    CZ_TRY(export_model(a, j));
    CZ_TRY(state_of(b, &before));
    cz_status status = cz_checkpoint_import(b->checkpoint, j->path, NULL, &result);
    if (status == CZ_OK && (result.step != -1 || cz_state_dict_count(result.common) != 0))
        status = cz_fail(CZ_ERR_STATE, "there is a step or a dictionary");
    THEN(same_values(a, b));
    THEN(same_state(b, before, true));
    small_result_clear(&result);
    cz_state_dict_destroy(&before);
    return status;
}

static cz_status values_alone(cz_group *group, void *context)
{
    return with_two(group, context, travel_alone);
}

TEST(a_file_of_values_alone_leaves_state_as_it_is)
{
    job j;
    size_t count;
    begin(&j, "model.safetensors");
    for (int world = 1; world <= 5; world += 2) {
        assert_ranks_ok(world, values_alone, &j);
        char *bytes = read_whole(j.path, &count);
        assert_non_null(strstr(bytes + 8, "\"head/bias\":"));
        assert_null(strstr(bytes + 8, "czero"));
        assert_null(strstr(bytes + 8, "optimizer/"));
        free(bytes);
    }
    assert_int_equal(count_files(j.folder), 1);
    remove_folder(j.folder);
    begin(&j, "out");
    j.max_file_bytes = 600;
    assert_ranks_ok(3, values_alone, &j);
    remove_folder(j.folder);
}

/* ---- files of ours that lie ---- */

static cz_status write_ours(cz_group *group, void *context)
{
    return write_as(group, context, &evenly);
}

/* Words of the header become others, as long. */
static void forge(const job *j, const char *word, const char *other)
{
    size_t count;
    char *bytes = read_whole(j->path, &count), *at;
    assert_int_equal(strlen(word), strlen(other));
    at = memmem(bytes, count, word, strlen(word));
    assert_non_null(at);
    memcpy(at, other, strlen(word));
    write_whole(j->path, bytes, count);
    free(bytes);
}

TEST(files_that_lie)
{
    static const struct {
        const char *word, *other;
        cz_status status;
        const char *says;
    } lies[] = {
        {"czero consolidated", "czero consolidates", CZ_ERR_FORMAT, "format"},
        {"version\\\":1", "version\\\":3", CZ_ERR_UNSUPPORTED, "version 3"},
        {"step\\\":3", "step\\\":x", CZ_ERR_FORMAT, "model.safetensors"},
        {"\\\"step\\\":3,\\\"b", "\\\"stop\\\":3,\\\"b", CZ_ERR_FORMAT, "'step' is missing"},
        {"\\\"mask\\\"", "\\\"task\\\"", CZ_ERR_FORMAT, "'task'"},
        {"\\\"mask\\\"", "\\\"mean\\\"", CZ_ERR_FORMAT, "'mean'"},
        {"\"optimizer/exp_avg/scale\"", "\"optimizer/exp_avg/scald\"", CZ_ERR_FORMAT,
         "'optimizer/exp_avg/scale'"},
        {"\"optimizer/exp_avg/scale\":{\"dtype\":\"F32\",\"shape\":[]",
         "\"optimizer/exp_avg/scale\":{\"shape\":[],\"dtype\":\"I32\"", CZ_ERR_FORMAT,
         "'optimizer/exp_avg/scale'"},
        {"\\\"exp_avg_sq\\\":\\\"f32\\\"", "\\\"exp_avg_sq\\\":\\\"f64\\\"", CZ_ERR_FORMAT,
         "exp_avg_sq"},
        {"\\\"exp_avg_sq\\\":\\\"f32\\\"", "\\\"exp_avg_sq\\\":\\\"q32\\\"", CZ_ERR_FORMAT,
         "exp_avg_sq"},
        {"\\\"exp_avg_sq\\\":\\\"f32\\\"", "\\\"exp_avg_sq\\\":1000000", CZ_ERR_FORMAT,
         "begin with optimizer/"},
        {"\\\"exp_avg_sq\\\":\\\"f32\\\",\\\"max_exp_avg_sq\\\":\\\"f32\\\"",
         "\\\"exp_avg_sq\\\":\\\"i32\\\",\\\"max_exp_avg_sq\\\":\\\"f32\\\"", CZ_ERR_FORMAT,
         "exp_avg_sq"},
        {"common/inner/tensor\\\"", "common/inner/tentor\\\"", CZ_ERR_FORMAT, "tentor"},
        {"{\\\"$tensor\\\":\\\"common/tensor\\\"}", "{\\\"$tensor\\\":\\\"mean\\\"}         ",
         CZ_ERR_FORMAT, "'mean'"},
        {"\\\"rule\\\":\\\"adam\\\"", "\\\"rule\\\":\\\"adan\\\"", CZ_ERR_ARGUMENT, "adan"},
    };
    job j;
    size_t count;
    begin(&j, "model.safetensors");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        assert_ranks_ok(2, write_ours, &j);
        forge(&j, lies[i].word, lies[i].other);
        expect_import(&j, 3, lies[i].status, lies[i].says, NULL);
    }
    assert_ranks_ok(2, write_ours, &j);
    char *bytes = read_whole(j.path, &count);
    for (size_t cut = 0; cut < 4; cut++) {
        write_whole(j.path, bytes, (const size_t[]){0, 7, 500, count - 1}[cut]);
        expect_import(&j, 3, CZ_ERR_FORMAT, "model.safetensors", NULL);
    }
    free(bytes);
    remove_folder(j.folder);
}

/* ---- options ---- */

/* State of another type than its parameter, in which file and optimizer agree. */
TEST(state_of_another_type)
{
    job j;
    begin(&j, "model.safetensors");
    assert_ranks_ok(2, write_ours, &j);
    forge(&j, "\\\"layer.0.weight\\\":{\\\"step\\\":3,\\\"exp_avg\\\":\\\"f32\\\"",
          "\\\"layer.0.weight\\\":{\\\"step\\\":3,\\\"exp_avg\\\":\\\"i32\\\"");
    forge(&j, "\"optimizer/exp_avg/layer.0.weight\":{\"dtype\":\"F32\"",
          "\"optimizer/exp_avg/layer.0.weight\":{\"dtype\":\"I32\"");
    expect_import(&j, 3, CZ_ERR_FORMAT, "'optimizer/exp_avg/layer.0.weight'", "its parameter");
    remove_folder(j.folder);
}

TEST(options_that_do_not_apply)
{
    job j;
    begin(&j, "model.safetensors");
    assert_ranks_ok(2, write_ours, &j);
    j.load.step = 3;
    expect_import(&j, 2, CZ_ERR_ARGUMENT, "option step", NULL);
    j.load = (cz_load_options)CZ_LOAD_OPTIONS_INIT;
    j.load.missing_ok = 1;
    expect_import(&j, 2, CZ_ERR_ARGUMENT, "option missing_ok", NULL);
    j.load = (cz_load_options)CZ_LOAD_OPTIONS_INIT;
    j.load.fall_back = 1;
    expect_import(&j, 2, CZ_ERR_ARGUMENT, "option fall_back", NULL);
    j.load = (cz_load_options)CZ_LOAD_OPTIONS_INIT;
    j.path[0] = 0;
    expect_import(&j, 2, CZ_ERR_ARGUMENT, "path", NULL);
    remove_folder(j.folder);
}

/* ---- one rank, or the medium ---- */

TEST(a_rank_that_sees_something_else)
{
    char elsewhere[EXPORT_PATH];
    size_t count;
    job j;
    begin(&j, "model.safetensors");
    assert_ranks_ok(2, write_ours, &j);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", j.folder);
    j.elsewhere = elsewhere;
    expect_import(&j, 3, CZ_ERR_IO, "rank 1", elsewhere);
    char *bytes = read_whole(j.path, &count), *step = strstr(bytes + 8, "step\\\":3");
    assert_non_null(step);
    step[7] = '4';
    write_whole(elsewhere, bytes, count);
    expect_import(&j, 3, CZ_ERR_FORMAT, "ranks see different files", NULL);
    write_whole(elsewhere, bytes, 100);
    expect_import(&j, 3, CZ_ERR_FORMAT, "rank 1", elsewhere);
    free(bytes);
    remove_folder(j.folder);
}

static ssize_t fail_read(int file, void *data, size_t count, off_t offset)
{
    errno = EIO;
    return -1;
}

static cz_status fail_to_read(cz_group *group, void *context)
{
    const job *j = context;
    trainee s;
    cz_status status = trainee_open(&s, group, &evenly, 7);
    THEN(small_expect(cz_checkpoint_import(s.checkpoint, j->path, NULL, NULL), ONE(CZ_ERR_IO),
                      "cannot be read", j->path));
    THEN(cz_barrier(group, NULL));
    trainee_close(&s);
    return status;
}

TEST(a_medium_that_fails)
{
    job j;
    begin(&j, "model.safetensors");
    assert_ranks_ok(2, write_ours, &j);
    cz__system_used.read = fail_read;
    assert_ranks_ok(3, fail_to_read, &j);
    cz__system_used = cz__system_own;
    remove_folder(j.folder);
}

static cz_status import_or_no_memory(cz_group *group, void *context)
{
    const job *j = context;
    trainee s, before;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    cz_status status = trainee_open(&s, group, &evenly, 7);
    before = s;
    THEN(cz_checkpoint_import(s.checkpoint, j->path, NULL, &result));
    if (status == CZ_ERR_MEMORY && same_values(&s, &before) != CZ_OK)
        status = cz_fail(CZ_ERR_STATE, "something has changed: %.200s", cz_last_error());
    if (status == CZ_OK && !small_dict_is(result.common, EXPORT_STEPS))
        status = CZ_ERR_MEMORY; /* what the comparison needed */
    small_result_clear(&result);
    trainee_close(&s);
    return status;
}

TEST(every_allocation_fails_in_turn)
{
    char why[256];
    job j;
    begin(&j, "model.safetensors");
    assert_ranks_ok(2, write_ours, &j);
    for (int64_t n = 1;; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_test_run_ranks(2, import_or_no_memory, &j, why);
        if (!cz_test_allocation_reset()) {
            assert_ok(status);
            break;
        }
        if (status != CZ_OK && status != CZ_ERR_MEMORY && status != CZ_ERR_PEER)
            fail_msg("allocation %d: %s: %s", (int)n, cz_status_name(status), why);
    }
    remove_folder(j.folder);
}
