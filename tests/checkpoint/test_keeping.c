/* SPDX-License-Identifier: MIT */
/* What is in a folder after saves: generations that are kept, what others left, and what two jobs
 * do to each other. */
#include "checkpoint/saves.h"
#include "checkpoint/damaged_files.h"

/* ---- what is kept ---- */

typedef struct keeping {
    int keep;
} keeping;

static cz_status keep_some(small *s, cz_group *group, void *context)
{
    const keeping *k = context;
    const int kept = k->keep ? k->keep : 2;
    CZ_TRY(small_open(s, group, folder, 1, k->keep));
    for (int step = 1; step <= 8; step++) {
        CZ_TRY(small_step(s));
        CZ_TRY(save_and_wait(s, step, step % 3 == 0));
        CZ_TRY(want_entries(s, folder, step < kept ? step : kept));
    }
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    options.step = 8 - kept + 1;
    CZ_TRY(cz_checkpoint_load(s->checkpoint, &options, &result));
    CZ_TRY(want(result.step == options.step, "the oldest that is kept"));
    small_result_clear(&result);
    options.step--;
    CZ_TRY(small_expect(cz_checkpoint_load(s->checkpoint, &options, NULL), ONE(CZ_ERR_STATE),
                        "of step", NULL));
    options.missing_ok = 1;
    CZ_TRY(cz_checkpoint_load(s->checkpoint, &options, &result));
    CZ_TRY(want(result.step == -1 && !result.common && !result.own, "nothing"));
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0) {
        remove_folder(folder);
        mkdir(folder, 0777);
    }
    return cz_barrier(group, NULL);
}
BODY(keep_some)

EACH_TEST(set_up, tear_down)

TEST(what_is_kept)
{
    static const int keeps[] = {1, 2, 5, 0};
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 4; k++)
            assert_ranks_ok(world_sizes[w], keep_some_body, &((keeping){keeps[k]}));
}

/* ---- what others left ---- */

static void put_file(const char *name)
{
    char path[2 * SMALL_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("x", file);
    fclose(file);
}

static void put_folder(const char *name)
{
    char path[2 * SMALL_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

static cz_status tidy(small *s, cz_group *group, void *context)
{
    CZ_TRY(small_open(s, group, folder, 1, 1));
    CZ_TRY(small_expect(cz_checkpoint_load(s->checkpoint, NULL, NULL), ONE(CZ_ERR_STATE),
                        "generation 7 (step 3)", "never completed"));
    CZ_TRY(small_save(s, 9, false));
    CZ_TRY(small_save(s, 10, true));
    return cz_checkpoint_wait(s->checkpoint);
}
BODY(tidy)

TEST(leftovers_go_and_what_is_not_ours_stays)
{
    put_folder("00000005-step-3"); /* killed before anything was written, */
    put_folder("00000007-step-3"); /* in the middle of it, */
    put_file("00000007-step-3/rank-00000-of-00002.safetensors");
    put_file("00000007-step-3/rank-00000-of-00002.json.tmp");
    put_file("00000007-step-3/index.json.tmp");
    put_folder("00000006-step-1"); /* and while it was taken away */
    put_file("00000006-step-1/rank-00001-of-00002.json");
    put_folder("00000004-step-1");
    put_file("00000004-step-1/notes.txt");
    put_file("notes.txt");
    put_folder("9-step-1");
    put_folder("00000009-step-");
    put_folder("000000009-step-1");
    put_folder("00000009-step-01");
    put_folder("00000009-step--1");
    put_folder("-0000009-step-1");
    put_folder("9223372036854775807-step-1");
    put_folder("99999999999999999999999-step-1");
    put_folder("00000009-step-99999999999999999999999");
    assert_ranks_ok(2, tidy_body, NULL);
    assert_true(exists(folder, "00000009-step-10"));
    assert_true(exists(folder, "00000004-step-1/notes.txt"));
    assert_true(exists(folder, "notes.txt"));
    assert_false(exists(folder, "00000005-step-3"));
    assert_false(exists(folder, "00000006-step-1"));
    assert_false(exists(folder, "00000007-step-3"));
    assert_false(exists(folder, "00000008-step-9"));
    assert_int_equal(entries(folder), 3 + 9);
}

/* ---- two jobs ---- */

/* Two checkpoints over one folder, the second saves while the first one is writing. */
static atomic_bool held, let_go;

static ssize_t write_when_allowed(int file, const void *data, size_t count, off_t offset)
{
    if (is_victim(file)) {
        atomic_store(&held, true);
        while (!atomic_load(&let_go))
            usleep(1000);
    }
    return pwrite(file, data, count, offset);
}

static cz_status two_jobs(small *s, cz_group *group, void *context)
{
    small other = {0};
    cz_status status = small_open(s, group, folder, 1, 2);
    THEN(small_open(&other, group, folder, 2, 2));
    THEN(small_save(s, 1, true));
    while (status == CZ_OK && !atomic_load(&held))
        usleep(1000);
    THEN(small_expect(small_save(&other, 1, false), ONE(CZ_ERR_IO), "another", folder));
    THEN(small_expect(small_save(&other, 2, false), ONE(CZ_ERR_IO), "another", folder));
    atomic_store(&let_go, true);
    THEN(cz_checkpoint_wait(s->checkpoint));
    const small_values saved = s->values;
    THEN(small_load(&other, NULL, &saved, 1));
    THEN(small_save(&other, 2, false));
    THEN(want_entries(s, folder, 2));
    small_close(&other);
    return status;
}
BODY(two_jobs)

TEST(two_jobs_in_one_folder)
{
    victim = "rank-00001-of-00002.safetensors";
    cz__system_used.write = write_when_allowed;
    assert_ranks_ok(2, two_jobs_body, NULL);
}

/* ---- destroyed on its way ---- */

static cz_status destroyed(small *s, cz_group *group, void *context)
{
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(small_save(s, 1, true));
    const small_values saved = s->values;
    cz_checkpoint_destroy(&s->checkpoint);
    CZ_TRY(cz_barrier(group, NULL));
    small_close(s);
    CZ_TRY(small_open(s, group, folder, 9, 2));
    return small_load(s, NULL, &saved, 1);
}
BODY(destroyed)

TEST(destroyed_with_a_save_on_its_way)
{
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(world_sizes[w], destroyed_body, NULL);
}

/* ---- the same twice ---- */

/* Metadata of a header has the id; elements begin where they did. */
static cz_status same_elements(const char *name)
{
    kept_file first, second;
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/00000001-step-4", folder);
    CZ_TRY(keep_file(&first, path, name));
    snprintf(path, sizeof path, "%s/00000002-step-4", folder);
    CZ_TRY(keep_file(&second, path, name));
    const size_t at = data_begin(&first);
    const bool same = first.count == second.count && at == data_begin(&second) &&
                      memcmp(first.bytes + at, second.bytes + at, first.count - at) == 0 &&
                      memcmp(first.bytes, second.bytes, at) != 0;
    free(first.bytes);
    free(second.bytes);
    return want(same, "the same elements, and another id");
}

static cz_status twice(small *s, cz_group *group, void *context)
{
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(small_step(s));
    CZ_TRY(save_and_wait(s, 4, false));
    CZ_TRY(save_and_wait(s, 4, true));
    CZ_TRY(same_elements("rank-00000-of-00002.safetensors"));
    CZ_TRY(same_elements("rank-00001-of-00002.safetensors"));
    return same_elements("common.safetensors");
}
BODY(twice)

TEST(the_same_twice)
{
    assert_ranks_ok(2, twice_body, NULL);
}
