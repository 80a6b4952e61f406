/* SPDX-License-Identifier: MIT */
/* Imports of what others wrote, of parameters alone, of files that lie; and failures of one rank, seen by all, after
 * which nothing has changed and nothing is left behind. */
#include "checkpoint/exports.h"

typedef struct job {
    char folder[FOLDER_BYTES], path[EXPORT_PATH];
    const char *word, *other; /* of the sentence that is wanted */
    unsigned allowed;
    cz_load_options load;
    uint64_t max_file_bytes;
} job;

static const manner evenly = {.partition = CZ_PARTITION_ELEMENTS};

static void begin(job *j, const char *name)
{
    *j = (job){.load = CZ_LOAD_OPTIONS_INIT};
    make_folder(j->folder);
    snprintf(j->path, sizeof j->path, "%s/%s", j->folder, name);
}

static void run(cz_rank_main body, int world, job *j)
{
    char why[256];
    if (cz_test_run_ranks(world, body, j, why) != CZ_OK)
        fail_msg("world %d: %s", world, why);
}

/* ---- comparing trainees ---- */

static cz_status state_of(trainee *s, cz_state_dict **dict)
{
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    return cz_zero_state_dict(s->zero, dict);
}

static cz_status same_values(const trainee *a, const trainee *b)
{
    for (int p = 0; p < EXPORT_PARAMS; p++)
        if (memcmp(a->values[p], b->values[p], (size_t)export_params[p].count * sizeof(float)))
            return cz_fail(CZ_ERR_STATE, "'%s' differs", export_params[p].name);
    return a->steps == b->steps && memcmp(a->mask, b->mask, sizeof a->mask) == 0 &&
                   memcmp(a->mean, b->mean, sizeof a->mean) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "a buffer differs");
}

static cz_status same_state(trainee *s, const cz_state_dict *before, bool wanted)
{
    cz_state_dict *now = NULL;
    CZ_TRY(state_of(s, &now));
    const bool same = cz_state_dict_equal(before, now);
    cz_state_dict_destroy(&now);
    return same == wanted ? CZ_OK
                          : cz_fail(CZ_ERR_STATE, same ? "state is the same" : "state differs");
}

/* An import that has to fail, alike on all ranks, and change nothing. */
static cz_status refuse(trainee *s, const job *j)
{
    trainee *before = malloc(sizeof *before);
    cz_state_dict *dict = NULL;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    memcpy(before, s, sizeof *before);
    cz_status status = state_of(s, &dict);
    if (status == CZ_OK)
        status = small_expect(cz_checkpoint_import(s->checkpoint, j->path, &j->load, &result),
                              j->allowed, j->word, j->other);
    if (status == CZ_OK && (result.step != -1 || result.common))
        status = cz_fail(CZ_ERR_STATE, "there is a result");
    if (status == CZ_OK)
        status = same_values(s, before);
    if (status == CZ_OK)
        status = same_state(s, dict, true);
    cz_state_dict_destroy(&dict);
    free(before);
    return status;
}

static cz_status refuse_import(cz_group *group, void *context)
{
    trainee s;
    cz_status status = trainee_open(&s, group, &evenly, 7);
    if (status == CZ_OK)
        status = trainee_step(&s, 0);
    if (status == CZ_OK)
        status = refuse(&s, context);
    trainee_close(&s);
    return status;
}

static void expect(job *j, int world, cz_status status, const char *word, const char *other)
{
    j->allowed = ONE(status);
    j->word = word;
    j->other = other;
    run(refuse_import, world, j);
}

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
    if (status == CZ_OK)
        status = same_values(a, b);
    if (status == CZ_OK)
        status = same_state(b, before, true);
    small_result_clear(&result);
    cz_state_dict_destroy(&before);
    return status;
}

static cz_status values_alone(cz_group *group, void *context)
{
    const manner whole = {.partition = CZ_PARTITION_GREEDY};
    trainee a, b = {.group = NULL};
    cz_status status = trainee_open(&a, group, &evenly, 0);
    if (status == CZ_OK)
        status = trainee_open(&b, group, &whole, 3);
    if (status == CZ_OK)
        status = travel_alone(&a, &b, context);
    trainee_close(&b);
    trainee_close(&a);
    return status;
}

static void test_parameters_only(void **state)
{
    job j;
    size_t count;
    begin(&j, "model.safetensors");
    for (int world = 1; world <= 5; world += 2) {
        run(values_alone, world, &j);
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
    run(values_alone, 3, &j);
    remove_folder(j.folder);
}

/* ---- files of others ---- */

/* A safetensors file of that header; the data are the bytes 0, 1, 2, … */
static void write_file(const char *path, const char *header, size_t data_bytes)
{
    const size_t length = strlen(header);
    unsigned char *bytes = calloc(1, 8 + length + data_bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> 8 * i);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + length + i] = (unsigned char)(i % 64);
    write_whole(path, bytes, 8 + length + data_bytes);
    free(bytes);
}

static void write_in(const job *j, const char *name, const char *header, size_t data_bytes)
{
    char path[2 * EXPORT_PATH];
    snprintf(path, sizeof path, "%s/%s", j->folder, name);
    write_file(path, header, data_bytes);
}

static void write_text(const job *j, const char *name, const char *text)
{
    char path[2 * EXPORT_PATH];
    snprintf(path, sizeof path, "%s/%s", j->folder, name);
    write_whole(path, text, strlen(text));
}

typedef struct little {
    float weight[6];
    double bias[3];
    int64_t count;
} little;

static cz_status import_little(cz_group *group, const job *j, little *l, cz_model **model,
                               cz_checkpoint **checkpoint)
{
    static const int64_t matrix[] = {2, 3}, three = 3;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    CZ_TRY(cz_model_create(model));
    CZ_TRY(cz_model_add(*model, "weight", l->weight, NULL, CZ_F32, 2, matrix));
    CZ_TRY(cz_model_add(*model, "optimizer/bias", l->bias, NULL, CZ_F64, 1, &three));
    CZ_TRY(cz_model_add_buffer(*model, "count", &l->count, CZ_I64, 0, NULL));
    options.model = *model;
    CZ_TRY(cz_checkpoint_create(checkpoint, group, "not used", &options));
    return cz_checkpoint_import(*checkpoint, j->path, &j->load, NULL);
}

/* F32 of the bytes 0 … 63 to f32, f16 to f64 without loss, I64. */
static cz_status check_little(const little *l)
{
    unsigned char bytes[38];
    for (int i = 0; i < 38; i++)
        bytes[i] = (unsigned char)i;
    /* f16 0x2120, 0x2322, 0x2524: (1 + m / 1024) 2^(e - 15) */
    const double bias[] = {(1 + 288 / 1024.0) / 128, (1 + 802 / 1024.0) / 128,
                           (1 + 292 / 1024.0) / 64};
    return memcmp(l->weight, bytes + 8, 24) == 0 && memcmp(&l->count, bytes, 8) == 0 &&
                   memcmp(l->bias, bias, sizeof bias) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "other values");
}

static cz_status import_others(cz_group *group, void *context)
{
    little l = {.count = 1};
    cz_model *model = NULL;
    cz_checkpoint *checkpoint = NULL;
    cz_status status = import_little(group, context, &l, &model, &checkpoint);
    if (status == CZ_OK)
        status = check_little(&l);
    cz_checkpoint_destroy(&checkpoint);
    cz_model_destroy(&model);
    return status;
}

#define COUNT "\"count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}"
#define WEIGHT "\"weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]}"
#define BIAS "\"optimizer/bias\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[32,38]}"

static void test_a_file_that_another_program_wrote(void **state)
{
    job j;
    begin(&j, "model.safetensors");
    write_in(&j, "model.safetensors",
             "{" BIAS ",\"__metadata__\":{\"by\":\"somebody\"}," COUNT "," WEIGHT "}  ", 38);
    for (int world = 1; world <= 7; world += 2)
        run(import_others, world, &j);
    snprintf(j.path, sizeof j.path, "%s", j.folder); /* the folder of one */
    run(import_others, 2, &j);
    remove_folder(j.folder);
}

/* ---- several files of others ---- */

static const char in_a[] = "{" COUNT "," WEIGHT "," BIAS "}",
                  in_b[] = "{\"more\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";

static void write_index(const job *j, const char *a, const char *more)
{
    char text[700];
    snprintf(text, sizeof text,
             "{\"metadata\":{\"total_size\":42},\"weight_map\":{\"count\":\"%s\",\"weight\":"
             "\"a.safetensors\",\"optimizer/bias\":\"a.safetensors\"%s}}",
             a, more);
    write_text(j, "model.safetensors.index.json", text);
}

#define MORE ",\"more\":\"b.safetensors\""

static void test_folders_of_others(void **state)
{
    job j;
    begin(&j, "");
    j.path[strlen(j.path) - 1] = 0;
    write_in(&j, "a.safetensors", in_a, 38);
    write_in(&j, "b.safetensors", in_b, 4);
    write_index(&j, "a.safetensors", MORE);
    j.load.permissive = 1; /* there is one more than is wanted */
    run(import_others, 3, &j);
    write_index(&j, "a.safetensors", "");
    j.load.permissive = 0;
    run(import_others, 3, &j);
    write_index(&j, "../a.safetensors", "");
    expect(&j, 2, CZ_ERR_FORMAT, "count", "../a.safetensors");
    write_index(&j, "/etc/passwd", "");
    expect(&j, 2, CZ_ERR_FORMAT, "index.json", "/etc/passwd");
    write_index(&j, "..", "");
    expect(&j, 2, CZ_ERR_FORMAT, "index.json", "'..'");
    write_index(&j, "", "");
    expect(&j, 2, CZ_ERR_FORMAT, "index.json", "''");
    write_index(&j, "a\\u0000b", "");
    expect(&j, 2, CZ_ERR_FORMAT, "index.json", NULL);
    write_index(&j, "gone.safetensors", "");
    expect(&j, 2, CZ_ERR_IO, "gone.safetensors", "rank 0");
    write_index(&j, "b.safetensors", MORE);
    expect(&j, 2, CZ_ERR_FORMAT, "'count' is not in 'b.safetensors'", "index.json");
    write_index(&j, "a.safetensors", MORE ",\"other\":\"b.safetensors\"");
    expect(&j, 2, CZ_ERR_FORMAT, "'other' is not in", NULL);
    write_index(&j, "a.safetensors", ",\"count\":\"a.safetensors\"");
    expect(&j, 2, CZ_ERR_FORMAT, "count", "duplicate");
    write_in(&j, "a.safetensors", in_b, 4);
    write_index(&j, "a.safetensors", MORE);
    expect(&j, 2, CZ_ERR_FORMAT, "'more' is also in", "a.safetensors");
    write_in(&j, "a.safetensors", in_a, 38);
    write_in(&j, "b.safetensors",
             "{\"more\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
             "\"hidden\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
             4);
    write_index(&j, "a.safetensors", MORE);
    expect(&j, 2, CZ_ERR_FORMAT, "'hidden' is not in the index", "b.safetensors");
    write_text(&j, "model.safetensors.index.json", "{\"weight_map\":[]}");
    expect(&j, 2, CZ_ERR_FORMAT, "weight_map", "index.json");
    write_text(&j, "model.safetensors.index.json", "[");
    expect(&j, 2, CZ_ERR_FORMAT, "index.json", NULL);
    write_text(&j, "model.safetensors.index.json", "[]");
    expect(&j, 2, CZ_ERR_FORMAT, "no JSON object", NULL);
    remove_folder(j.folder);
}

/* ---- differences ---- */

static void test_other_models_are_named_whole(void **state)
{
    job j;
    begin(&j, "model.safetensors");
    write_in(&j, "model.safetensors", "{" BIAS "," COUNT "," WEIGHT "}", 38);
    expect(&j, 3, CZ_ERR_ARGUMENT, "parameter 'scale' f32 of shape [] is not in the checkpoint",
           "checkpoint import");
    write_in(&j, "model.safetensors",
             "{\"weight\":{\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[8,56]}," COUNT
             ",\"optimizer/bias\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[56,62]}}",
             62);
    char why[256];
    assert_int_equal(cz_test_run_ranks(2, import_others, &j, why), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(why, "option convert rounds it"));
    remove_folder(j.folder);
}

/* ---- files of ours that lie ---- */

static cz_status write_ours(cz_group *group, void *context)
{
    const job *j = context;
    trainee s;
    cz_status status = trainee_open(&s, group, &evenly, 0);
    if (status == CZ_OK)
        status = trainee_train(&s);
    if (status == CZ_OK)
        status = trainee_export(&s, j->path, 0);
    trainee_close(&s);
    return status;
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

static void test_files_that_lie(void **state)
{
    static const struct {
        const char *word, *other;
        cz_status status;
        const char *says;
    } lies[] = {
        {"czero consolidated", "czero consolidates", CZ_ERR_FORMAT, "format"},
        {"version\\\":1", "version\\\":2", CZ_ERR_UNSUPPORTED, "version 2"},
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
        {"common/inner/tensor\\\"", "common/inner/tentor\\\"", CZ_ERR_FORMAT, "tentor"},
        {"{\\\"$tensor\\\":\\\"common/tensor\\\"}", "{\\\"$tensor\\\":\\\"mean\\\"}         ",
         CZ_ERR_FORMAT, "'mean'"},
        {"\\\"rule\\\":\\\"adam\\\"", "\\\"rule\\\":\\\"adan\\\"", CZ_ERR_ARGUMENT, "adan"},
    };
    job j;
    size_t count;
    begin(&j, "model.safetensors");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        run(write_ours, 2, &j);
        forge(&j, lies[i].word, lies[i].other);
        expect(&j, 3, lies[i].status, lies[i].says, NULL);
    }
    run(write_ours, 2, &j);
    char *bytes = read_whole(j.path, &count);
    for (size_t cut = 0; cut < 4; cut++) {
        write_whole(j.path, bytes, (const size_t[]){0, 7, 500, count - 1}[cut]);
        expect(&j, 3, CZ_ERR_FORMAT, "model.safetensors", NULL);
    }
    free(bytes);
    remove_folder(j.folder);
}

/* ---- options ---- */

static void test_options_that_do_not_apply(void **state)
{
    job j;
    begin(&j, "model.safetensors");
    run(write_ours, 2, &j);
    j.load.step = 3;
    expect(&j, 2, CZ_ERR_ARGUMENT, "option step", NULL);
    j.load = (cz_load_options)CZ_LOAD_OPTIONS_INIT;
    j.load.missing_ok = 1;
    expect(&j, 2, CZ_ERR_ARGUMENT, "option missing_ok", NULL);
    j.load = (cz_load_options)CZ_LOAD_OPTIONS_INIT;
    j.load.fall_back = 1;
    expect(&j, 2, CZ_ERR_ARGUMENT, "option fall_back", NULL);
    j.load = (cz_load_options)CZ_LOAD_OPTIONS_INIT;
    j.path[0] = 0;
    expect(&j, 2, CZ_ERR_ARGUMENT, "path", NULL);
    remove_folder(j.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_only),
        cmocka_unit_test(test_a_file_that_another_program_wrote),
        cmocka_unit_test(test_folders_of_others),
        cmocka_unit_test(test_other_models_are_named_whole),
        cmocka_unit_test(test_files_that_lie),
        cmocka_unit_test(test_options_that_do_not_apply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
