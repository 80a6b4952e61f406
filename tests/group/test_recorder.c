/* SPDX-License-Identifier: MIT */
/* The flight recorder: files when a group breaks and on SIGUSR2, with the last operations of each
 * rank. */
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "group_test.h"
#include "support/comma_locale.h"

static char folder[256];

/* Parse every file there; they are removed. Returns how many there were. */
static int read_files(json_t **files, int room)
{
    int count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[1024];
        json_error_t error;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_true(count < room);
        files[count] = json_load_file(path, 0, &error);
        if (!files[count])
            fail_msg("%s: %s", entry->d_name, error.text);
        count++;
        unlink(path);
    }
    closedir(directory);
    return count;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static cz_status break_in_the_end(cz_group *group, void *arg)
{
    float value[3] = {0};
    for (int i = 0; i < 100; i++)
        CZ_TRY(cz_all_reduce(group, value, 3, CZ_F32, CZ_SUM, CZ_LABEL("a \"quoted\" label")));
    if (cz_group_rank(group) == 1)
        return CZ_OK; /* leaves */
    const cz_status status = cz_broadcast(group, value, 3, CZ_F32, 0, CZ_LABEL("last"));
    CHECK(status == CZ_ERR_PEER, "%s", cz_status_name(status));
    return CZ_OK;
}

TEST(a_broken_group_writes)
{
    json_t *files[8];
    assert_ranks_ok(3, break_in_the_end, NULL);
    const int count = read_files(files, 8);
    assert_int_equal(count, 2); /* the ranks that were left */
    for (int i = 0; i < count; i++) {
        const json_t *operations = json_object_get(files[i], "operations");
        assert_int_equal(json_array_size(operations), 64);
        const json_t *last = json_array_get(operations, 63),
                     *other = json_array_get(operations, 62);
        assert_string_equal(text_of(last, "operation"), "broadcast");
        assert_string_equal(text_of(last, "label"), "last");
        assert_string_equal(text_of(last, "status"), "in flight");
        assert_int_equal(json_integer_value(json_object_get(last, "sequence")), 100);
        assert_string_equal(text_of(other, "label"), "a \"quoted\" label");
        assert_string_equal(text_of(other, "status"), "CZ_OK");
        assert_int_equal(json_integer_value(json_object_get(other, "count")), 3);
        assert_non_null(strstr(text_of(files[i], "reason"), "rank 1 left"));
        assert_int_equal(json_integer_value(json_object_get(files[i], "size")), 3);
        json_decref(files[i]);
    }
}

TEST(files_are_json_in_a_locale_of_commas)
{
    if (!set_comma_locale())
        skip();
    test_a_broken_group_writes(state); /* jansson reads one half in any locale */
    setlocale(LC_ALL, "C");
}

static int files_there(void)
{
    int count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static cz_status ask_by_signal(cz_group *group, void *arg)
{
    CZ_TRY(cz_barrier(group, CZ_LABEL("before")));
    if (cz_group_rank(group) == 0)
        kill(getpid(), SIGUSR2);
    for (int i = 0; i < 3000 && files_there() < 2; i++) /* 30 s: another thread writes them */
        usleep(10 * 1000);
    return cz_barrier(group, CZ_LABEL("after"));
}

TEST(a_signal_writes)
{
    json_t *files[8];
    assert_ranks_ok(2, ask_by_signal, NULL);
    const int count = read_files(files, 8);
    assert_int_equal(count, 2);
    for (int i = 0; i < count; i++) {
        assert_string_equal(text_of(files[i], "reason"), "SIGUSR2");
        json_decref(files[i]);
    }
}

/* ---- somebody else's folder, and many signals ---- */

static void break_one(void)
{
    assert_ranks_ok(3, break_in_the_end, NULL);
}

/* Names are known before; a link of such a name is replaced, and where it points nothing
 * changes. */
TEST(links_in_the_folder_are_not_followed)
{
    char path[600], victim[300], line[32] = "";
    snprintf(victim, sizeof victim, "%s.victim", folder);
    FILE *file = fopen(victim, "w");
    assert_non_null(file);
    fputs("precious", file);
    fclose(file);
    for (int group = 0; group < 40; group++)
        for (int rank = 0; rank < 3; rank++) {
            snprintf(path, sizeof path, "%s/czero-%d-group%d-rank%d.json", folder, (int)getpid(),
                     group, rank);
            assert_int_equal(symlink(victim, path), 0);
        }
    break_one();
    file = fopen(victim, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_string_equal(line, "precious");
    int recordings = 0;
    for (int group = 0; group < 40; group++)
        for (int rank = 0; rank < 3; rank++) {
            struct stat its;
            snprintf(path, sizeof path, "%s/czero-%d-group%d-rank%d.json", folder, (int)getpid(),
                     group, rank);
            assert_int_equal(lstat(path, &its), 0);
            recordings += S_ISREG(its.st_mode);
            unlink(path);
        }
    assert_int_equal(recordings, 2);
    unlink(victim);
}

TEST(a_relative_folder_stays_where_it_was)
{
    char here[1000];
    json_t *files[8];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(CZ_TEST_BINARY_DIR), 0);
    setenv("CZERO_FLIGHT_RECORDER", strrchr(folder, '/') + 1, 1);
    cz_group *group;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_int_equal(chdir("/"), 0);
    break_one();
    cz_group_destroy(&group);
    assert_int_equal(chdir(here), 0);
    setenv("CZERO_FLIGHT_RECORDER", folder, 1);
    const int count = read_files(files, 8);
    assert_int_equal(count, 2);
    for (int i = 0; i < count; i++)
        json_decref(files[i]);
}

static cz_status work_in_a_storm(cz_group *group, void *arg)
{
    float value[3] = {0};
    for (int i = 0; i < 2000; i++) {
        for (int k = 0; k < 50 && cz_group_rank(group) == 0; k++)
            kill(getpid(), SIGUSR2); /* 100,000: more than a pipe holds */
        CZ_TRY(cz_all_reduce(group, value, 3, CZ_F32, CZ_SUM, NULL));
    }
    return CZ_OK;
}

TEST(a_storm_of_signals_stops_nobody)
{
    json_t *files[8];
    assert_ranks_ok(2, work_in_a_storm, NULL);
    usleep(300000); /* the last recording */
    const int count = read_files(files, 8);
    for (int i = 0; i < count; i++)
        json_decref(files[i]);
}

/* Nor does it keep a descriptor that a child could hold. */
TEST(a_child_writes_nothing_for_its_parent)
{
    cz_group *group;
    int how;
    assert_ok(cz_group_create_self(&group, NULL));
    const pid_t child = fork();
    if (child == 0) {
        kill(getpid(), SIGUSR2);
        usleep(300000);
        _exit(files_there() == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(files_there(), 0);
    cz_group_destroy(&group);
}

static int set_up(void **state)
{
    cz_log_set_level(CZ_LOG_ERROR);
    snprintf(folder, sizeof folder, "%s/recorder-XXXXXX", CZ_TEST_BINARY_DIR);
    return mkdtemp(folder) ? setenv("CZERO_FLIGHT_RECORDER", folder, 1) : -1;
}

static int tear_down(void **state)
{
    return rmdir(folder);
}

int main(void)
{
    return cz_test_run(set_up, tear_down);
}
