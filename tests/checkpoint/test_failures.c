/* SPDX-License-Identifier: MIT */
/* Saves and loads that cannot work: all ranks get the error, nothing is published or changed, what was there stays,
 * and the next save works. */
#include <dirent.h>
#include <stdatomic.h>

#include "checkpoint/small.h"
#include "checkpoint/system.h"

static char folder[FOLDER_BYTES];

static int set_up(void **state)
{
    cz_log_set_sink(small_quiet, NULL);
    make_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    cz__system_used = cz__system_own;
    remove_folder(folder);
    return 0;
}

static bool exists(const char *in, const char *name)
{
    char path[2 * SMALL_PATH];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", in, name);
    return lstat(path, &about) == 0;
}

static int entries(const char *path)
{
    int count = 0;
    struct dirent *entry;
    DIR *directory = opendir(path);
    while (directory && (entry = readdir(directory)))
        count += entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    return count;
}

static cz_status want(bool holds, const char *what)
{
    return holds ? CZ_OK : cz_fail(CZ_ERR_STATE, "wanted: %s", what);
}

/* Ranks agree about what the folder is like before one of them changes it. */
static cz_status want_entries(small *s, const char *path, int count)
{
    CZ_TRY(cz_barrier(s->group, NULL));
    const int found = entries(path);
    CZ_TRY(cz_barrier(s->group, NULL));
    return found == count
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "%d entries in %.100s, wanted %d", found, path, count);
}

#define BODY(name)                                                                                 \
    static cz_status name##_body(cz_group *group, void *context)                                   \
    {                                                                                              \
        small s = {0};                                                                             \
        const cz_status status = name(&s, group, context);                                         \
        small_close(&s);                                                                           \
        return status;                                                                             \
    }

static const int worlds[] = {1, 2, 3, 5};
enum { WORLDS = sizeof worlds / sizeof *worlds };

/* ---- the folder ---- */

static cz_status try_folder(small *s, cz_group *group, const char *path, cz_status load_status)
{
    CZ_TRY(small_open(s, group, path, 1, 2));
    CZ_TRY(small_step(s));
    CZ_TRY(small_remember(s));
    CZ_TRY(small_expect(small_save(s, 1, false), ONE(CZ_ERR_IO), path, NULL));
    CZ_TRY(small_expect(small_save(s, 1, true), ONE(CZ_ERR_IO), path, NULL));
    CZ_TRY(cz_checkpoint_wait(s->checkpoint));
    CZ_TRY(
        small_expect(cz_checkpoint_load(s->checkpoint, NULL, NULL), ONE(load_status), path, NULL));
    return small_unchanged(s);
}

static cz_status bad_folders(small *s, cz_group *group, void *context)
{
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/no/parent", folder);
    CZ_TRY(try_folder(s, group, path, CZ_ERR_STATE));
    small_close(s);
    snprintf(path, sizeof path, "%s/file", folder);
    CZ_TRY(try_folder(s, group, path, CZ_ERR_IO));
    small_close(s);
    snprintf(path, sizeof path, "%s/file/below", folder);
    CZ_TRY(try_folder(s, group, path, CZ_ERR_IO));
    small_close(s);
    snprintf(path, sizeof path, "/proc/%s", "czero");
    return try_folder(s, group, path, CZ_ERR_STATE);
}
BODY(bad_folders)

static void test_folders_that_cannot_be(void **state)
{
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/file", folder);
    fclose(fopen(path, "w"));
    for (int w = 0; w < WORLDS; w++)
        EXPECT_OK(worlds[w], bad_folders_body, NULL);
}

static cz_status new_folder(small *s, cz_group *group, void *context)
{
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/new///", folder);
    CZ_TRY(small_open(s, group, path, 1, 2));
    CZ_TRY(small_expect(cz_checkpoint_load(s->checkpoint, NULL, NULL), ONE(CZ_ERR_STATE), "new",
                        NULL));
    CZ_TRY(small_save(s, 1, false));
    const small_values saved = s->values;
    CZ_TRY(small_step(s));
    CZ_TRY(small_load(s, NULL, &saved, 1));
    CZ_TRY(cz_barrier(group, NULL));
    snprintf(path, sizeof path, "%s/new", folder);
    if (cz_group_rank(group) == 0)
        remove_folder(path);
    return cz_barrier(group, NULL);
}
BODY(new_folder)

static void test_a_folder_is_made(void **state)
{
    for (int w = 0; w < WORLDS; w++)
        EXPECT_OK(worlds[w], new_folder_body, NULL);
}

/* ---- writes that fail on one rank ---- */

/* The calls for the part of `victim` fail from byte `room` of its elements on. */
static const char *victim;
static atomic_long room;
enum { NOT_SYNCHRONISED = -1, ALL_BUT_ONE = -2 };

static bool is_victim(int file)
{
    char link[64], path[2 * SMALL_PATH];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return victim && strstr(path, victim);
}

static ssize_t write_until_full(int file, const void *data, size_t count, off_t offset)
{
    off_t most = (off_t)atomic_load(&room);
    if (!is_victim(file) || most == NOT_SYNCHRONISED)
        return pwrite(file, data, count, offset);
    if (most == ALL_BUT_ONE) /* the file comes in one piece */
        most = offset > 0 ? offset : (off_t)count - 1;
    errno = ENOSPC;
    if (offset >= most)
        return -1;
    return pwrite(file, data, offset + (off_t)count > most ? (size_t)(most - offset) : count,
                  offset);
}

static int no_reserve(int file, int mode, off_t offset, off_t count)
{
    errno = EOPNOTSUPP;
    return -1;
}

static int synchronise_or_not(int file)
{
    errno = EIO;
    return is_victim(file) ? -1 : fsync(file);
}

static void use_failing_system(const char *file, long bytes)
{
    victim = file;
    atomic_store(&room, bytes);
    cz__system_used = cz__system_own;
    cz__system_used.direct = false;
    cz__system_used.reserve = no_reserve;
    cz__system_used.write = write_until_full;
    if (bytes == NOT_SYNCHRONISED)
        cz__system_used.synchronise = synchronise_or_not;
}

typedef struct outage {
    bool later; /* asynchronous */
    const char *file;
} outage;

/* How a save fails: at once, or when it is waited for. */
static cz_status save_and_wait(small *s, int64_t step, bool later)
{
    CZ_TRY(small_save(s, step, later));
    return cz_checkpoint_wait(s->checkpoint);
}

static cz_status fail_one(small *s, cz_group *group, const outage *o)
{
    CZ_TRY(small_expect(save_and_wait(s, 2, o->later), ONE(CZ_ERR_IO), o->file, NULL));
    CZ_TRY(want_entries(s, folder, 1));
    return cz_checkpoint_wait(s->checkpoint); /* it was said once */
}

static cz_status outages(small *s, cz_group *group, void *context)
{
    const outage *o = context;
    static const long rooms[] = {0, 1, 200, ALL_BUT_ONE, NOT_SYNCHRONISED};
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(small_save(s, 1, false));
    const small_values saved = s->values;
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        CZ_TRY(cz_barrier(group, NULL));
        if (cz_group_rank(group) == 0)
            use_failing_system(o->file, rooms[i]);
        CZ_TRY(cz_barrier(group, NULL));
        CZ_TRY(small_step(s));
        CZ_TRY(fail_one(s, group, o));
    }
    CZ_TRY(small_load(s, NULL, &saved, 1)); /* reads are well */
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        cz__system_used = cz__system_own;
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(small_step(s));
    const small_values now = s->values;
    CZ_TRY(save_and_wait(s, 3, o->later));
    CZ_TRY(small_step(s));
    CZ_TRY(small_load(s, NULL, &now, 3));
    CZ_TRY(want_entries(s, folder, 2));
    if (cz_group_rank(group) == 0) {
        remove_folder(folder);
        CZ_TRY(want(mkdir(folder, 0777) == 0, "a folder"));
    }
    return cz_barrier(group, NULL);
}
BODY(outages)

static void test_a_disk_that_fills_up_on_one_rank(void **state)
{
    static const char *const files[] = {"rank-00001-of-", "rank-00000-of-00003.safetensors",
                                        "rank-00002-of-00003.json", "common.safetensors",
                                        "index.json"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (int later = 0; later < 2; later++)
            EXPECT_OK(3, outages_body, &((outage){later, files[f]}));
}

/* The error of an asynchronous save comes with whatever comes first. */
static cz_status error_comes_with_the_next(small *s, cz_group *group, void *context)
{
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(small_save(s, 1, false));
    const small_values saved = s->values;
    for (int next = 0; next < 3; next++) {
        CZ_TRY(cz_barrier(group, NULL));
        if (cz_group_rank(group) == 0)
            use_failing_system("rank-00001-of-00002.safetensors", 50);
        CZ_TRY(cz_barrier(group, NULL));
        CZ_TRY(small_step(s));
        CZ_TRY(small_save(s, 2, true));
        const cz_status status = next == 0   ? small_save(s, 3, false)
                                 : next == 1 ? small_save(s, 3, true)
                                             : cz_checkpoint_load(s->checkpoint, NULL, NULL);
        CZ_TRY(small_expect(status, ONE(CZ_ERR_IO), "rank-00001-of-00002.safetensors",
                            cz_group_rank(group) == 1 ? NULL : "rank 1"));
        CZ_TRY(want_entries(s, folder, 1));
    }
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        cz__system_used = cz__system_own;
    CZ_TRY(cz_barrier(group, NULL));
    return small_load(s, NULL, &saved, 1);
}
BODY(error_comes_with_the_next)

static void test_the_error_comes_with_the_next_call(void **state)
{
    EXPECT_OK(2, error_comes_with_the_next_body, NULL);
}

/* ---- ranks that do not call the same ---- */

static cz_status launch(int world, cz_rank_main body, double seconds)
{
    cz_launch_options options = CZ_LAUNCH_OPTIONS_INIT;
    options.ranks = world;
    options.timeout_seconds = seconds;
    return cz_launch(body, NULL, &options);
}

static cz_status other_steps(small *s, cz_group *group, void *context)
{
    const int rank = cz_group_rank(group);
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(small_expect(small_save(s, 3 + (rank == 1), false), ONE(CZ_ERR_MISMATCH), "step", "4"));
    CZ_TRY(small_expect(small_save(s, 3, rank == 1), ONE(CZ_ERR_MISMATCH), "asynchronous", NULL));
    CZ_TRY(small_expect(small_save(s, -(rank == 1), false), ONE(CZ_ERR_ARGUMENT), "step is -1",
                        "rank 1"));
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    options.permissive = rank == 1;
    CZ_TRY(small_expect(cz_checkpoint_load(s->checkpoint, &options, NULL), ONE(CZ_ERR_MISMATCH),
                        "permissive", NULL));
    CZ_TRY(want_entries(s, folder, 0));
    CZ_TRY(small_save(s, 3, false));
    return want_entries(s, folder, 1);
}
BODY(other_steps)

static void test_ranks_that_say_other_things(void **state)
{
    EXPECT_OK(2, other_steps_body, NULL);
    remove_folder(folder);
    mkdir(folder, 0777);
    EXPECT_OK(5, other_steps_body, NULL);
}

/* Another call, or none. */
typedef enum absence { LOADS, STEPS, BARS, LEAVES } absence;
static absence away;

static cz_status absent(small *s, cz_group *group, void *context)
{
    CZ_TRY(small_open(s, group, folder, 1, 2));
    if (cz_group_rank(group) == 0) {
        const unsigned allowed =
            ONE(CZ_ERR_PEER) | ONE(CZ_ERR_TIMEOUT) | ONE(CZ_ERR_MISMATCH) | ONE(CZ_ERR_STATE);
        return small_expect(small_save(s, 1, false), allowed, NULL, NULL);
    }
    switch (away) {
    case LOADS:
        return small_expect(cz_checkpoint_load(s->checkpoint, NULL, NULL), ~0u, NULL, NULL);
    case STEPS:
        return small_expect(small_step(s), ~0u, NULL, NULL);
    case BARS:
        return small_expect(cz_barrier(group, NULL), ~0u, NULL, NULL);
    default:
        return CZ_OK;
    }
}
BODY(absent)

static void test_some_ranks_do_something_else(void **state)
{
    for (away = LOADS; away <= LEAVES; away++) {
        if (launch(2, absent_body, 2) != CZ_OK)
            fail_msg("absence %d: %s", (int)away, cz_last_error());
        if (entries(folder) != 0)
            fail_msg("absence %d: something was written", (int)away);
    }
}

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

static void test_what_is_kept(void **state)
{
    static const int keeps[] = {1, 2, 5, 0};
    for (int w = 0; w < WORLDS; w++)
        for (int k = 0; k < 4; k++)
            EXPECT_OK(worlds[w], keep_some_body, &((keeping){keeps[k]}));
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

static void test_leftovers_go_and_what_is_not_ours_stays(void **state)
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
    EXPECT_OK(2, tidy_body, NULL);
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
    if (status == CZ_OK)
        status = small_open(&other, group, folder, 2, 2);
    if (status == CZ_OK)
        status = small_save(s, 1, true);
    while (status == CZ_OK && !atomic_load(&held))
        usleep(1000);
    if (status == CZ_OK)
        status = small_expect(small_save(&other, 1, false), ONE(CZ_ERR_IO), "another", folder);
    if (status == CZ_OK)
        status = small_expect(small_save(&other, 2, false), ONE(CZ_ERR_IO), "another", folder);
    atomic_store(&let_go, true);
    if (status == CZ_OK)
        status = cz_checkpoint_wait(s->checkpoint);
    const small_values saved = s->values;
    if (status == CZ_OK)
        status = small_load(&other, NULL, &saved, 1);
    if (status == CZ_OK)
        status = small_save(&other, 2, false);
    if (status == CZ_OK)
        status = want_entries(s, folder, 2);
    small_close(&other);
    return status;
}
BODY(two_jobs)

static void test_two_jobs_in_one_folder(void **state)
{
    victim = "rank-00001-of-00002.safetensors";
    cz__system_used.write = write_when_allowed;
    EXPECT_OK(2, two_jobs_body, NULL);
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

static void test_destroyed_with_a_save_on_its_way(void **state)
{
    for (int w = 0; w < WORLDS; w++)
        EXPECT_OK(worlds[w], destroyed_body, NULL);
}

/* A rank leaves: the others' group is broken, in the save or in what comes after it. */
static cz_status leaves(small *s, cz_group *group, void *context)
{
    const int last = cz_group_size(group) - 1;
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(small_save(s, 1, false));
    CZ_TRY(small_save(s, 2, true));
    if (cz_group_rank(group) == last)
        return CZ_OK;
    CZ_TRY(small_expect(cz_checkpoint_wait(s->checkpoint), ONE(CZ_ERR_PEER) | ONE(CZ_ERR_TIMEOUT),
                        NULL, NULL));
    return small_expect(small_save(s, 3, false), ONE(CZ_ERR_PEER) | ONE(CZ_ERR_TIMEOUT), NULL,
                        NULL);
}
BODY(leaves)

static void test_a_rank_leaves(void **state)
{
    if (launch(3, leaves_body, 5) != CZ_OK)
        fail_msg("%s", cz_last_error());
    assert_true(exists(folder, "00000001-step-1/index.json"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(folders_that_cannot_be),
        TEST(a_folder_is_made),
        TEST(a_disk_that_fills_up_on_one_rank),
        TEST(the_error_comes_with_the_next_call),
        TEST(ranks_that_say_other_things),
        TEST(some_ranks_do_something_else),
        TEST(what_is_kept),
        TEST(leftovers_go_and_what_is_not_ours_stays),
        TEST(two_jobs_in_one_folder),
        TEST(destroyed_with_a_save_on_its_way),
        TEST(a_rank_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
