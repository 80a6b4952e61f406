/* SPDX-License-Identifier: MIT */
/* Imports of what other programs wrote, a file or a folder of them, and of what nobody should have
 * written. */
#include "checkpoint/imports.h"
#include "czero/archive.h"

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
    THEN(check_little(&l));
    cz_checkpoint_destroy(&checkpoint);
    cz_model_destroy(&model);
    return status;
}

/* F64 of the bytes 8 to 55, rounded: the last one is in the range of f32, though denormal. */
static cz_status round_others(cz_group *group, void *context)
{
    little l = {.weight = {1, 1, 1, 1, 1, 1}};
    cz_model *model = NULL;
    cz_checkpoint *checkpoint = NULL;
    cz_status status = import_little(group, context, &l, &model, &checkpoint);
    for (int i = 0; status == CZ_OK && i < 6; i++) {
        unsigned char bytes[8];
        double value;
        for (int k = 0; k < 8; k++)
            bytes[k] = (unsigned char)(8 + 8 * i + k);
        memcpy(&value, bytes, sizeof value);
        if (l.weight[i] != (float)value)
            status = cz_fail(CZ_ERR_STATE, "weight %d is %g", i, (double)l.weight[i]);
    }
    cz_checkpoint_destroy(&checkpoint);
    cz_model_destroy(&model);
    return status;
}

#define COUNT "\"count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}"
#define WEIGHT "\"weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]}"
#define BIAS "\"optimizer/bias\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[32,38]}"

TEST(a_file_that_another_program_wrote)
{
    job j;
    begin(&j, "model.safetensors");
    write_in(&j, "model.safetensors",
             "{" BIAS ",\"__metadata__\":{\"by\":\"somebody\"}," COUNT "," WEIGHT "}  ", 38);
    for (int world = 1; world <= 7; world += 2)
        assert_ranks_ok(world, import_others, &j);
    snprintf(j.path, sizeof j.path, "%s", j.folder); /* the folder of one */
    assert_ranks_ok(2, import_others, &j);
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

TEST(folders_of_others)
{
    job j;
    begin(&j, "");
    j.path[strlen(j.path) - 1] = 0;
    write_in(&j, "a.safetensors", in_a, 38);
    write_in(&j, "b.safetensors", in_b, 4);
    write_index(&j, "a.safetensors", MORE);
    j.load.permissive = 1; /* there is one more than is wanted */
    assert_ranks_ok(3, import_others, &j);
    write_index(&j, "a.safetensors", "");
    j.load.permissive = 0;
    assert_ranks_ok(3, import_others, &j);
    write_index(&j, "../a.safetensors", "");
    expect_import(&j, 2, CZ_ERR_FORMAT, "count", "../a.safetensors");
    write_index(&j, "/etc/passwd", "");
    expect_import(&j, 2, CZ_ERR_FORMAT, "index.json", "/etc/passwd");
    write_index(&j, "..", "");
    expect_import(&j, 2, CZ_ERR_FORMAT, "index.json", "'..'");
    write_index(&j, "", "");
    expect_import(&j, 2, CZ_ERR_FORMAT, "index.json", "''");
    write_index(&j, "a\\u0000b", "");
    expect_import(&j, 2, CZ_ERR_FORMAT, "index.json", NULL);
    write_index(&j, "gone.safetensors", "");
    expect_import(&j, 2, CZ_ERR_IO, "gone.safetensors", "rank 0");
    write_index(&j, "b.safetensors", MORE);
    expect_import(&j, 2, CZ_ERR_FORMAT, "'count' is not in 'b.safetensors'", "index.json");
    write_index(&j, "a.safetensors", MORE ",\"other\":\"b.safetensors\"");
    expect_import(&j, 2, CZ_ERR_FORMAT, "'other' is not in", NULL);
    write_index(&j, "a.safetensors", ",\"count\":\"a.safetensors\"");
    expect_import(&j, 2, CZ_ERR_FORMAT, "count", "duplicate");
    write_in(&j, "a.safetensors", in_b, 4);
    write_index(&j, "a.safetensors", MORE);
    expect_import(&j, 2, CZ_ERR_FORMAT, "'more' is also in", "a.safetensors");
    write_in(&j, "a.safetensors", in_a, 38);
    write_in(&j, "b.safetensors",
             "{\"more\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
             "\"hidden\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
             4);
    write_index(&j, "a.safetensors", MORE);
    expect_import(&j, 2, CZ_ERR_FORMAT, "'hidden' is not in the index", "b.safetensors");
    write_text(&j, "model.safetensors.index.json", "{\"weight_map\":[]}");
    expect_import(&j, 2, CZ_ERR_FORMAT, "weight_map", "index.json");
    write_text(&j, "model.safetensors.index.json", "[");
    expect_import(&j, 2, CZ_ERR_FORMAT, "index.json", NULL);
    write_text(&j, "model.safetensors.index.json", "[]");
    expect_import(&j, 2, CZ_ERR_FORMAT, "no JSON object", NULL);
    remove_folder(j.folder);
}

/* What would be a smaller model if it were taken for whole ones. */
TEST(shards_and_metadata_of_one_rank_of_torch)
{
    static const char *const shards =
        "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"weight\\\": "
        "{\\\"saved_offsets\\\": [0, 0]}}\"}," COUNT "," WEIGHT "," BIAS "}";
    static const char *const of_torch = "shard-00001-model-00001-of-00001.safetensors";
    static const char *const others[] = {"shard-00001.safetensors", "__x.metadata",
                                         "__0.metadata.tmp"};
    job j;
    begin(&j, "");
    j.path[strlen(j.path) - 1] = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        write_in(&j, others[i], shards, 38);
    expect_import(&j, 2, CZ_ERR_IO, "model.safetensors.index.json", NULL);
    write_in(&j, of_torch, shards, 38);
    expect_import(&j, 2, CZ_ERR_UNSUPPORTED, "here are shards of a model",
                  "enable_consolidation=True");
    const size_t folder = strlen(j.path);
    snprintf(j.path + folder, sizeof j.path - folder, "/%s", of_torch);
    expect_import(&j, 2, CZ_ERR_UNSUPPORTED, "has shards of a model", "enable_consolidation=True");
    assert_int_equal(unlink(j.path), 0);
    j.path[folder] = 0;
    write_text(&j, "__1.metadata", "");
    expect_import(&j, 2, CZ_ERR_UNSUPPORTED, "each rank has metadata of its own",
                  "use_collectives");
    cz_archive *archive;
    assert_int_equal(cz_archive_open(&archive, j.folder, CZ_NEWEST), CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "each rank has metadata of its own"));
    remove_folder(j.folder);
}

/* ---- differences ---- */

TEST(other_models_are_named_whole)
{
    job j;
    begin(&j, "model.safetensors");
    write_in(&j, "model.safetensors", "{" BIAS "," COUNT "," WEIGHT "}", 38);
    expect_import(&j, 3, CZ_ERR_ARGUMENT,
                  "parameter 'scale' f32 of shape [] is not in the checkpoint",
                  "checkpoint import: ");
    write_in(&j, "model.safetensors",
             "{\"weight\":{\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[8,56]}," COUNT
             ",\"optimizer/bias\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[56,62]}}",
             62);
    char why[256];
    assert_int_equal(cz_test_run_ranks(2, import_others, &j, why), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(why, "option convert rounds it"));
    j.load.convert = 1;
    j.load.permissive = 1;
    assert_ok(cz_test_run_ranks(3, round_others, &j, why));
    remove_folder(j.folder);
}

/* ---- tied names, and types that are only carried ---- */

typedef struct tied {
    float embed[2], head[2];
    uint8_t mask[2];
} tied;

static cz_status import_tied(cz_group *group, void *context)
{
    static const int64_t two = 2;
    const job *j = context;
    tied t = {{9, 9}, {9, 9}, {9, 9}};
    cz_model *model = NULL;
    cz_checkpoint *checkpoint = NULL;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_status status = cz_model_create(&model);
    THEN(cz_model_add(model, "head", t.head, NULL, CZ_F32, 1, &two));
    THEN(cz_model_add(model, "embed", t.embed, NULL, CZ_F32, 1, &two));
    THEN(cz_model_add_buffer(model, "mask", t.mask, CZ_U8, 1, &two));
    options.model = model;
    THEN(cz_checkpoint_create(&checkpoint, group, "not used", &options));
    THEN(cz_checkpoint_import(checkpoint, j->path, &j->load, NULL));
    static const unsigned char bytes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    if (status == CZ_OK && (memcmp(t.embed, bytes, 8) != 0 || memcmp(t.head, bytes, 8) != 0 ||
                            memcmp(t.mask, bytes + 8, 2) != 0))
        status = cz_fail(CZ_ERR_STATE, "other values");
    if (status != CZ_OK && (t.embed[0] != 9 || t.head[0] != 9 || t.mask[0] != 9))
        status = cz_fail(CZ_ERR_STATE, "values have changed");
    cz_checkpoint_destroy(&checkpoint);
    cz_model_destroy(&model);
    return status;
}

#define EMBED "\"embed\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define MASK(type, bytes)                                                                          \
    "\"mask\":{\"dtype\":\"" type "\",\"shape\":[2],\"data_offsets\":[8," bytes "]}"

TEST(a_tied_name_is_another_name_of_its_tensor)
{
    job j;
    char why[256];
    begin(&j, "tied.safetensors");
    write_file(j.path, "{\"__metadata__\":{\"head\":\"embed\"}," EMBED "," MASK("BOOL", "10") "}",
               10);
    assert_ranks_ok(1, import_tied, &j);
    assert_ranks_ok(3, import_tied, &j);
    write_file(j.path, "{\"__metadata__\":{\"head\":\"nothing\"}," EMBED "," MASK("BOOL", "10") "}",
               10);
    assert_int_equal(cz_test_run_ranks(2, import_tied, &j, why), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(why, "'head' f32 of shape [2] is not in the checkpoint"));
    remove_folder(j.folder);
}

TEST(a_type_that_is_only_carried_is_loaded_into_nothing)
{
    job j;
    char why[256];
    begin(&j, "types.safetensors");
    write_file(j.path, "{\"__metadata__\":{\"head\":\"embed\"}," EMBED "," MASK("I16", "12") "}",
               12);
    assert_int_equal(cz_test_run_ranks(2, import_tied, &j, why), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(why, "'mask' is u8, in the checkpoint i16"));
    remove_folder(j.folder);
}
