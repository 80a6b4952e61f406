/* SPDX-License-Identifier: MIT */
/* Consolidated files have the same bytes whoever writes them, and no more than they may. */
#include "checkpoint/exports.h"

#include <jansson.h>

#include "io/safetensors.h"
#include "io/stream.h"

enum { LIMIT = 700 };
static const int worlds[] = {1, 2, 3, 5, 7};

/* ---- the same bytes ---- */

typedef struct job {
    manner manner;
    char path[EXPORT_PATH], folder[EXPORT_PATH];
} job;

static cz_status export_both(cz_group *group, void *context)
{
    const job *j = context;
    trainee s;
    cz_status status = trainee_open(&s, group, &j->manner, 0);
    THEN(trainee_train(&s));
    THEN(trainee_export(&s, j->path, 0));
    THEN(trainee_export(&s, j->folder, LIMIT));
    trainee_close(&s);
    return status;
}

static void run(job *j, int world, const char *folder, const char *name)
{
    char why[256];
    snprintf(j->path, sizeof j->path, "%s/%s.safetensors", folder, name);
    snprintf(j->folder, sizeof j->folder, "%s/%s", folder, name);
    if (cz_test_run_ranks(world, export_both, j, why) != CZ_OK)
        fail_msg("world %d, partition %d, cap %zu: %s", world, (int)j->manner.partition,
                 j->manner.cap, why);
}

static void compare_folders(const char *a, const char *b)
{
    char left[2 * EXPORT_PATH], right[2 * EXPORT_PATH];
    struct dirent *entry;
    DIR *directory = opendir(a);
    assert_non_null(directory);
    assert_int_equal(count_files(a), count_files(b));
    while ((entry = readdir(directory))) {
        snprintf(left, sizeof left, "%s/%.60s", a, entry->d_name);
        snprintf(right, sizeof right, "%s/%.60s", b, entry->d_name);
        if (entry->d_name[0] != '.' && !same_file(left, right))
            fail_msg("%s is not %s", right, left);
    }
    closedir(directory);
}

TEST(the_same_bytes_whoever_writes)
{
    static const size_t caps[] = {64, 400, 0};
    char folder[FOLDER_BYTES];
    job wanted = {.manner = {.unsharded = true}}, got = {.manner = {.cap = 0}};
    make_folder(folder);
    run(&wanted, 1, folder, "wanted");
    for (int w = 0; w < 5; w++) {
        for (int k = 0; k < 15; k += SANITIZED ? 4 : 1) {
            got.manner = (manner){false, (cz_partition)(k / 3), caps[k % 3]};
            run(&got, worlds[w], folder, "got");
            if (!same_file(wanted.path, got.path))
                fail_msg("world %d, partition %d, cap %zu: other bytes", worlds[w], k / 3,
                         caps[k % 3]);
            compare_folders(wanted.folder, got.folder);
        }
        got.manner = (manner){.unsharded = true};
        run(&got, worlds[w], folder, "got");
        assert_true(same_file(wanted.path, got.path));
        compare_folders(wanted.folder, got.folder);
    }
    assert_int_equal(count_files(folder), 4); /* nothing beside */
    remove_folder(folder);
}

/* ---- files of a folder ---- */

static cz__safetensors *header_of(const char *path)
{
    cz__safetensors *header = NULL;
    cz__reader *reader = NULL;
    assert_ok(cz__reader_open(&reader, path));
    if (cz__safetensors_read(&header, cz__reader_file(reader), path) != CZ_OK)
        fail_msg("%s", cz_last_error());
    cz__reader_close(&reader);
    return header;
}

/* Every tensor begins where its elements may lie, in the order of the JSON's index; files are as
 * full as can be. */
static int64_t check_file(const char *path, const char *name, uint64_t limit, const json_t *map)
{
    cz__safetensors *header = header_of(path);
    const int64_t count = cz__safetensors_count(header);
    int64_t tensors = 0;
    if (cz__safetensors_data_bytes(header) > limit)
        for (int64_t i = 0; i < count; i++)
            tensors += cz__safetensors_entry_at(header, i)->end >
                       cz__safetensors_entry_at(header, i)->begin;
    assert_true(tensors <= 1);
    for (int64_t i = 0; i < count; i++) {
        const cz__safetensors_entry *e = cz__safetensors_entry_at(header, i);
        assert_int_equal((cz__safetensors_data_begin(header) + e->begin) % cz_dtype_size(e->dtype),
                         0);
        assert_string_equal(json_string_value(json_object_get(map, e->name)), name);
    }
    assert_string_equal(cz__safetensors_metadata(header, "format"), "pt");
    const int64_t bytes = (int64_t)cz__safetensors_data_bytes(header);
    cz__safetensors_destroy(&header);
    return bytes;
}

static void check_folder(const char *folder, uint64_t limit)
{
    char path[2 * EXPORT_PATH], name[64];
    const int files = count_files(folder) - 1;
    int64_t total = 0;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    json_t *index = json_load_file(path, 0, NULL);
    assert_non_null(index);
    const json_t *map = json_object_get(index, "weight_map");
    for (int f = 1; f <= files; f++) {
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", f, files);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        total += check_file(path, name, limit, map);
    }
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
        total);
    /* 6 parameters, 3 buffers, 3 slots of the 5 that are trained, 2 of the dictionary */
    assert_int_equal(json_object_size(map), 6 + 3 + 3 * 5 + 2);
    json_decref(index);
}

typedef struct limits {
    char folder[EXPORT_PATH];
    uint64_t limit;
} limits;

static cz_status export_limited(cz_group *group, void *context)
{
    const limits *l = context;
    const manner m = {.cap = 100};
    trainee s;
    cz_status status = trainee_open(&s, group, &m, 0);
    THEN(trainee_train(&s));
    THEN(trainee_export(&s, l->folder, l->limit));
    trainee_close(&s);
    return status;
}

TEST(limits_of_file_size)
{
    static const uint64_t sizes_of_files[] = {1, 84, 524, 525, 700, 1048, 100000, UINT64_MAX};
    char folder[FOLDER_BYTES], why[256];
    for (size_t i = 0; i < sizeof sizes_of_files / sizeof *sizes_of_files; i++) {
        limits l = {.limit = sizes_of_files[i]};
        make_folder(folder);
        snprintf(l.folder, sizeof l.folder, "%s/not/there", folder);
        if (cz_test_run_ranks(3, export_limited, &l, why) == CZ_OK)
            fail_msg("a folder in one that is not there");
        snprintf(l.folder, sizeof l.folder, "%s/out///", folder);
        mkdir(folder, 0777);
        if (cz_test_run_ranks(3, export_limited, &l, why) != CZ_OK)
            fail_msg("limit %zu: %s", (size_t)l.limit, why);
        l.folder[strlen(l.folder) - 3] = 0;
        check_folder(l.folder, l.limit);
        remove_folder(folder);
    }
}

/* ---- large ones ---- */

enum { LARGE = 5000000, SMALL = 1000, SMALLS = 3000 };

/* Some are written from where they are, in several blocks, the others are more than one buffer. */
static cz_status export_large(cz_group *group, void *context)
{
    const int64_t long_shape = LARGE + 1, short_shape = SMALL;
    char name[24];
    float *values = malloc((LARGE + 1 + (size_t)SMALL * SMALLS) * sizeof *values);
    cz_model *model = NULL;
    cz_checkpoint *checkpoint = NULL;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    for (int64_t i = 0; i < LARGE + 1 + (int64_t)SMALL * SMALLS; i++)
        values[i] = (float)(i % 16777213);
    cz_status status = cz_model_create(&model);
    for (int p = 0; status == CZ_OK && p < SMALLS; p++) {
        snprintf(name, sizeof name, "small.%d", p);
        status = cz_model_add(model, name, values + LARGE + 1 + (size_t)p * SMALL, NULL, CZ_F32, 1,
                              &short_shape);
        if (status == CZ_OK && p == 1)
            status = cz_model_add(model, "large", values, NULL, CZ_F32, 1, &long_shape);
    }
    options.model = model;
    THEN(cz_checkpoint_create(&checkpoint, group, "not used", &options));
    THEN(cz_checkpoint_export(checkpoint, context, NULL));
    cz_checkpoint_destroy(&checkpoint);
    cz_model_destroy(&model);
    free(values);
    return status;
}

/* The elements, by a reader that knows nothing of spans. */
static void check_large(const char *path)
{
    size_t count;
    char *bytes = read_whole(path, &count);
    cz__safetensors *header = header_of(path);
    assert_int_equal(cz__safetensors_count(header), SMALLS + 1);
    for (int64_t t = 0; t <= SMALLS; t++) {
        const cz__safetensors_entry *e = cz__safetensors_entry_at(header, t);
        const float *found =
            (const float *)(void *)(bytes + cz__safetensors_data_begin(header) + e->begin);
        const int64_t first =
            t == 2 ? 0 : LARGE + 1 + SMALL * strtoll(strchr(e->name, '.') + 1, NULL, 10);
        assert_string_equal(t == 2 ? "large" : "small", t == 2 ? e->name : "small");
        for (int64_t i = 0; i < (int64_t)(e->end - e->begin) / 4; i++)
            if (found[i] != (float)((first + i) % 16777213))
                fail_msg("element %d of '%s'", (int)i, e->name);
    }
    cz__safetensors_destroy(&header);
    free(bytes);
}

TEST(large_tensors_and_many_small_ones)
{
    char folder[FOLDER_BYTES], path[EXPORT_PATH];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    for (int world = 1; world <= 3; world += 2) {
        assert_ranks_ok(world, export_large, path);
        check_large(path);
    }
    remove_folder(folder);
}
