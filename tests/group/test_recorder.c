/* SPDX-License-Identifier: MIT */
/* The flight recorder: files when a group breaks and on SIGUSR2, with the last operations of each rank. */
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <sys/stat.h>
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

static void test_a_broken_group_writes(void **state)
{
    char why[256];
    json_t *files[8];
    if (cz_test_run_ranks(3, break_in_the_end, NULL, why) != CZ_OK)
        fail_msg("%s", why);
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

static void test_files_are_json_in_a_locale_of_commas(void **state)
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

static void test_a_signal_writes(void **state)
{
    char why[256];
    json_t *files[8];
    if (cz_test_run_ranks(2, ask_by_signal, NULL, why) != CZ_OK)
        fail_msg("%s", why);
    const int count = read_files(files, 8);
    assert_int_equal(count, 2);
    for (int i = 0; i < count; i++) {
        assert_string_equal(text_of(files[i], "reason"), "SIGUSR2");
        json_decref(files[i]);
    }
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_broken_group_writes),
        cmocka_unit_test(test_files_are_json_in_a_locale_of_commas),
        cmocka_unit_test(test_a_signal_writes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
