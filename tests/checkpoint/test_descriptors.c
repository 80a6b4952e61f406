/* SPDX-License-Identifier: MIT */
/* Saves, loads and exports of a program that has closed standard input, output and error, and
 * prints all the same. */
#include <pthread.h>
#include <sys/wait.h>

#include "checkpoint/saves.h"

static atomic_bool over;

static void *print(void *context)
{
    while (!atomic_load(&over))
        for (int number = 0; number < 3; number++)
            (void)!write(number, "a line of the program's log\n", 28);
    return NULL;
}

static cz_status save_and_load(small *s, cz_group *group, void *context)
{
    char path[SMALL_PATH];
    CZ_TRY(small_open(s, group, folder, 1, 2));
    for (int step = 1; step <= 8; step++) {
        CZ_TRY(small_step(s));
        CZ_TRY(small_save(s, step, step % 2));
        CZ_TRY(cz_checkpoint_wait(s->checkpoint));
        CZ_TRY(small_load(s, NULL, &s->values, step));
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CZ_TRY(cz_checkpoint_export(s->checkpoint, path, NULL));
    return cz_checkpoint_import(s->checkpoint, path, NULL, NULL);
}
BODY(save_and_load)

static int run_closed(void)
{
    pthread_t thread;
    char why[256];
    for (int number = 0; number < 3; number++)
        close(number);
    if (pthread_create(&thread, NULL, print, NULL) != 0)
        return 2;
    const cz_status status = cz_test_run_ranks(2, save_and_load_body, NULL, why);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    return status == CZ_OK ? 0 : 1;
}

static cz_status load_again(small *s, cz_group *group, void *context)
{
    CZ_TRY(small_open(s, group, folder, 7, 2));
    return cz_checkpoint_load(s->checkpoint, NULL, NULL);
}
BODY(load_again)

EACH_TEST(set_up, tear_down)

TEST(what_is_printed_does_not_land_in_files)
{
    int result = -1;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(run_closed());
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    assert_ranks_ok(3, load_again_body, NULL);
}
