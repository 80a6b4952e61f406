/* SPDX-License-Identifier: MIT */
/* Saves and loads that cannot work: all ranks get the error, nothing is published or changed, what
 * was there stays, and the next save works. */
#include "checkpoint/saves.h"

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

EACH_TEST(set_up, tear_down)

TEST(folders_that_cannot_be)
{
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/file", folder);
    fclose(fopen(path, "w"));
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(world_sizes[w], bad_folders_body, NULL);
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

TEST(a_folder_is_made)
{
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(world_sizes[w], new_folder_body, NULL);
}

/* ---- writes that fail on one rank ---- */

/* Bytes that a file has room for. */
static atomic_long room;
enum { NOT_SYNCHRONISED = -1, ALL_BUT_ONE = -2 };

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

TEST(a_disk_that_fills_up_on_one_rank)
{
    static const char *const files[] = {"rank-00001-of-", "rank-00000-of-00003.safetensors",
                                        "rank-00002-of-00003.json", "common.safetensors",
                                        "index.json"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (int later = 0; later < 2; later++)
            assert_ranks_ok(3, outages_body, &((outage){later, files[f]}));
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

TEST(the_error_comes_with_the_next_call)
{
    assert_ranks_ok(2, error_comes_with_the_next_body, NULL);
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

TEST(ranks_that_say_other_things)
{
    assert_ranks_ok(2, other_steps_body, NULL);
    remove_folder(folder);
    mkdir(folder, 0777);
    assert_ranks_ok(5, other_steps_body, NULL);
}

/* ---- options and names that cannot be ---- */

static cz_status wrong_flags(small *s, cz_group *group, void *context)
{
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(small_save(s, 1, false));
    CZ_TRY(small_step(s));
    CZ_TRY(small_remember(s));
    for (int k = 0; k < 4; k++)
        for (int value = -1; value <= 2; value += 3) {
            cz_load_options options = CZ_LOAD_OPTIONS_INIT;
            int32_t *const flags[] = {&options.missing_ok, &options.fall_back, &options.permissive,
                                      &options.convert};
            static const char *const names[] = {"missing_ok", "fall_back", "permissive", "convert"};
            char wanted[64];
            *flags[k] = value;
            snprintf(wanted, sizeof wanted, "option %s is %d, wanted 0 or 1", names[k], value);
            CZ_TRY(small_expect(cz_checkpoint_load(s->checkpoint, &options, NULL),
                                ONE(CZ_ERR_ARGUMENT), wanted, NULL));
            if (k >= 2)
                CZ_TRY(small_expect(cz_checkpoint_import(s->checkpoint, folder, &options, NULL),
                                    ONE(CZ_ERR_ARGUMENT), wanted, NULL));
        }
    return small_unchanged(s);
}
BODY(wrong_flags)

TEST(flags_that_are_neither_0_nor_1)
{
    assert_ranks_ok(1, wrong_flags_body, NULL);
    assert_ranks_ok(3, wrong_flags_body, NULL);
}

/* "a/b" beside "b" in "a". */
static cz_status same_names(small *s, cz_group *group, void *context)
{
    const float one = 1;
    const cz_tensor tensor = {.data = (void *)&one, .dtype = CZ_F32, .dimensions = 0};
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    cz_state_dict *dict = NULL, *inner;
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(cz_state_dict_create(&dict));
    cz_status status = cz_state_dict_set_tensor(dict, "a/b", &tensor);
    THEN(cz_state_dict_add_dict(dict, "a", &inner));
    THEN(cz_state_dict_set_tensor(inner, "b", &tensor));
    *(*(bool *)context ? &options.own : &options.common) = dict;
    THEN(small_expect(cz_checkpoint_save(s->checkpoint, &options), ONE(CZ_ERR_ARGUMENT), "a/b",
                      NULL));
    cz_state_dict_destroy(&dict);
    CZ_TRY(status);
    CZ_TRY(want_entries(s, folder, 0));
    return small_save(s, 1, false);
}
BODY(same_names)

TEST(names_that_are_the_same_when_joined)
{
    for (int k = 0; k < 4; k++) {
        assert_ranks_ok(1 + k / 2, same_names_body, &((bool){k % 2}));
        remove_folder(folder);
        mkdir(folder, 0777);
    }
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

TEST(some_ranks_do_something_else)
{
    for (away = LOADS; away <= LEAVES; away++) {
        if (launch(2, absent_body, 2) != CZ_OK)
            fail_msg("absence %d: %s", (int)away, cz_last_error());
        if (entries(folder) != 0)
            fail_msg("absence %d: something was written", (int)away);
    }
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

TEST(a_rank_leaves)
{
    if (launch(3, leaves_body, 5) != CZ_OK)
        fail_msg("%s", cz_last_error());
    assert_true(exists(folder, "00000001-step-1/index.json"));
}
