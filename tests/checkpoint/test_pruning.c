/* SPDX-License-Identifier: MIT */
/* What a save takes away, and what it leaves: nothing goes that is not a file of the generation
 * that is too many. */
#include "checkpoint/saves.h"

static char elsewhere[FOLDER_BYTES];

static int set_up_both(void **state)
{
    make_folder(elsewhere);
    return set_up(state);
}

static int tear_down_both(void **state)
{
    remove_folder(elsewhere);
    return tear_down(state);
}

static void put(const char *in, const char *name, const char *text)
{
    char path[2 * SMALL_PATH];
    snprintf(path, sizeof path, "%s/%s", in, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Saves steps first to last. */
typedef struct saves {
    const char *folder;
    int first, last, keep;
} saves;

static cz_status save_some(small *s, cz_group *group, void *context)
{
    const saves *w = context;
    CZ_TRY(small_open(s, group, w->folder, 1, w->keep));
    for (int step = w->first; step <= w->last; step++)
        CZ_TRY(save_and_wait(s, step, step % 2));
    return CZ_OK;
}
BODY(save_some)

static void save(int first, int last)
{
    assert_ranks_ok(2, save_some_body, &((saves){folder, first, last, 1}));
}

/* Names that a generation's files have, and some that are only like them. */
static const char *const names[] = {"index.json",
                                    "index.json.tmp",
                                    "common.safetensors",
                                    "rank-00000-of-00002.json",
                                    "rank-00000-of-00002.safetensors",
                                    "index.json.bak",
                                    "rank-list.csv"};
enum { NAMES = sizeof names / sizeof *names };

static void put_all(const char *in)
{
    for (int i = 0; i < NAMES; i++)
        put(in, names[i], "somebody's\n");
}

static void assert_all(const char *in)
{
    for (int i = 0; i < NAMES; i++)
        if (!exists(in, names[i]))
            fail_msg("%s is gone from %s", names[i], in);
}

EACH_TEST(set_up_both, tear_down_both)

TEST(pruning_never_follows_symbolic_links)
{
    char link[2 * SMALL_PATH];
    static const char *const links[] = {"00000001-step-1", "00000003-step-7", "00000004-step-7"};
    put_all(elsewhere);
    for (int i = 0; i < 3; i++) { /* to a folder, to a file, to nothing */
        snprintf(link, sizeof link, "%s/%s", folder, links[i]);
        const char *ends[] = {"", "/index.json", "/nothing"};
        char target[2 * SMALL_PATH];
        snprintf(target, sizeof target, "%s%s", elsewhere, ends[i]);
        assert_int_equal(symlink(target, link), 0);
    }
    save(11, 14);
    assert_all(elsewhere);
    for (int i = 0; i < 3; i++)
        assert_true(exists(folder, links[i]));
    assert_true(exists(folder, "00000008-step-14"));
    assert_false(exists(folder, "00000007-step-13"));
}

/* A generation of ours that was moved, and a link put in its place: it is loaded, and not taken
 * away. */
TEST(a_generation_behind_a_link_is_left_alone)
{
    char from[SMALL_PATH], to[SMALL_PATH];
    save(1, 1);
    snprintf(from, sizeof from, "%s/00000001-step-1", folder);
    snprintf(to, sizeof to, "%s/moved", elsewhere);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(symlink(to, from), 0);
    const int count = entries(to);
    save(2, 3);
    assert_int_equal(entries(to), count);
    assert_true(exists(folder, "00000001-step-1"));
    assert_false(exists(folder, "00000002-step-2"));
}

TEST(a_folder_of_that_name_that_is_not_ours_stays)
{
    char other[SMALL_PATH];
    snprintf(other, sizeof other, "%s/00000001-step-1", folder);
    assert_int_equal(mkdir(other, 0777), 0);
    put_all(other);
    save(2, 4);
    assert_all(other);
    assert_true(exists(folder, "00000004-step-4"));
    assert_false(exists(folder, "00000003-step-3"));
}

TEST(only_names_of_the_generation_itself_go)
{
    static const char *const others[] = {
        "index.json.bak",          "rank-list.csv",
        "rank-0-of-2.json",        "rank-00000-of-00003.json",
        "rank-00000-of-00002",     "rank-00000-of-00002.json.bak",
        "common.safetensors~",     "rank-00000-of-00002.safetensors.tmp",
        "rank-00002-of-00002.json"};
    enum { OTHERS = sizeof others / sizeof *others };
    char old[SMALL_PATH], link[2 * SMALL_PATH], target[SMALL_PATH];
    save(1, 1);
    snprintf(old, sizeof old, "%s/00000001-step-1", folder);
    for (int i = 0; i < OTHERS; i++)
        put(old, others[i], "somebody's\n");
    put(elsewhere, "kept", "kept\n"); /* a part that is a link; and one of another save */
    snprintf(link, sizeof link, "%s/rank-00001-of-00002.safetensors", old);
    snprintf(target, sizeof target, "%s/kept", elsewhere);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink(target, link), 0);
    put(old, "rank-00001-of-00002.json",
        "{\"format\":\"czero checkpoint part\",\"version\":1,"
        "\"id\":\"00112233445566778899aabbccddeeff\"}\n");
    save(2, 3);
    for (int i = 0; i < OTHERS; i++)
        if (!exists(old, others[i]))
            fail_msg("%s is gone", others[i]);
    assert_true(exists(elsewhere, "kept"));
    assert_true(exists(old, "rank-00001-of-00002.safetensors"));
    assert_true(exists(old, "rank-00001-of-00002.json"));
    assert_false(exists(old, "index.json"));
    assert_false(exists(old, "rank-00000-of-00002.safetensors"));
    assert_false(exists(old, "common.safetensors"));
}

TEST(nothing_of_ours_is_left_beside_what_stays)
{
    char old[SMALL_PATH];
    save(1, 1);
    snprintf(old, sizeof old, "%s/00000001-step-1", folder);
    put(old, "index.json.bak", "somebody's\n");
    put(old, "rank-list.csv", "somebody's\n");
    save(2, 3);
    assert_true(exists(old, "index.json.bak"));
    assert_true(exists(old, "rank-list.csv"));
    assert_int_equal(entries(old), 2);
}

/* A medium that fails says nothing of whose a file is: nothing that cannot be read is removed. */
static ssize_t fail_for_victim(int file, void *data, size_t count, off_t offset)
{
    if (!is_victim(file))
        return pread(file, data, count, offset);
    errno = EIO;
    return -1;
}

static void assert_kept_unread(const char *name, int left)
{
    char old[SMALL_PATH], path[2 * SMALL_PATH];
    save(1, 1);
    snprintf(old, sizeof old, "%s/00000001-step-1", folder);
    snprintf(path, sizeof path, "%s/%s", old, name);
    victim = path;
    cz__system_used.read = fail_for_victim;
    save(2, 3);
    victim = NULL;
    cz__system_used = cz__system_own;
    if (entries(old) != left || !exists(old, name))
        fail_msg("%s cannot be read: %d files are left", name, entries(old));
    save(4, 4); /* now it can, and the index is still there to tell whose it is */
    assert_false(exists(folder, "00000001-step-1"));
    remove_folder(folder);
    assert_int_equal(mkdir(folder, 0777), 0);
}

TEST(what_cannot_be_read_stays)
{
    assert_kept_unread("rank-00000-of-00002.json", 2);
    assert_kept_unread("rank-00001-of-00002.safetensors", 2);
    assert_kept_unread("common.safetensors", 2);
    assert_kept_unread("index.json", 6);
}

TEST(a_link_on_the_way_to_the_folder_is_followed)
{
    char link[SMALL_PATH], through[2 * SMALL_PATH];
    snprintf(link, sizeof link, "%s/way", elsewhere);
    snprintf(through, sizeof through, "%s/run", link);
    assert_int_equal(symlink(folder, link), 0);
    assert_ranks_ok(2, save_some_body, &((saves){through, 1, 4, 2}));
    char run[SMALL_PATH];
    snprintf(run, sizeof run, "%s/run", folder);
    assert_int_equal(entries(run), 2);
    assert_ranks_ok(2, save_some_body, &((saves){link, 1, 4, 2})); /* and the folder itself */
    assert_int_equal(entries(folder), 3);
}

/* One process gives a part's mark of a job of any size: a complete generation stays so. */
static cz_status load_step_2(small *s, cz_group *group, void *context)
{
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(small_open(s, group, folder, 5, 1));
    CZ_TRY(cz_checkpoint_load(s->checkpoint, NULL, &result));
    const int64_t step = result.step;
    small_result_clear(&result);
    return want(step == 2, "step 2");
}
BODY(load_step_2)

TEST(a_mark_of_another_size_makes_nothing_incomplete)
{
    static const char *const marks[] = {"rank-00000-of-16777216.json", "rank-00000-of-00001.json",
                                        "rank-00002-of-00003.json"};
    char newest[SMALL_PATH];
    save(1, 2);
    snprintf(newest, sizeof newest, "%s/00000002-step-2", folder);
    for (int i = 0; i < 3; i++)
        put(newest, marks[i], "");
    assert_ranks_ok(1, load_step_2_body, NULL);
    assert_ranks_ok(3, load_step_2_body, NULL);
}
