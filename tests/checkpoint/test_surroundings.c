/* SPDX-License-Identifier: MIT */
/* Saves in folders that others reach too, and programs that change their working directory. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "checkpoint/generation.h"
#include "checkpoint/saves.h"
#include "czero/archive.h"
#include "io/folder.h"

enum { NOBODY = 65534 };

static char elsewhere[FOLDER_BYTES];
static int before; /* the working directory */

static int set_up_both(void **state)
{
    before = open(".", O_RDONLY | O_DIRECTORY);
    make_folder(elsewhere);
    return set_up(state);
}

static int tear_down_both(void **state)
{
    victim = NULL;
    if (fchdir(before) != 0)
        return -1;
    close(before);
    remove_folder(elsewhere);
    return tear_down(state);
}

/* ---- the working directory ---- */

static cz_status change_directory(cz_group *group, const char *path)
{
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0 && chdir(path) != 0)
        return cz_fail(CZ_ERR_IO, "chdir");
    return cz_barrier(group, NULL);
}

static cz_status save_from_elsewhere(small *s, cz_group *group, void *context)
{
    const char *name = context;
    CZ_TRY(change_directory(group, folder));
    CZ_TRY(small_open(s, group, name, 1, 2));
    CZ_TRY(save_and_wait(s, 1, false));
    CZ_TRY(small_save(s, 2, true));
    CZ_TRY(change_directory(group, elsewhere));
    CZ_TRY(cz_checkpoint_wait(s->checkpoint));
    CZ_TRY(save_and_wait(s, 3, true));
    CZ_TRY(small_load(s, NULL, &s->values, 3));
    cz_state_dict *own = NULL;
    CZ_TRY(cz_checkpoint_fetch_own(s->checkpoint, 0, &own));
    cz_state_dict_destroy(&own);
    return cz_barrier(group, NULL);
}
BODY(save_from_elsewhere)

EACH_TEST(set_up_both, tear_down_both)

/* So does an archive, whose files are opened when they are read. */
TEST(an_archive_stays_where_it_was_opened)
{
    static const char *const paths[] = {"run", "run/00000002-step-2", "./run/"};
    float element;
    assert_int_equal(chdir(folder), 0);
    assert_ranks_ok(2, save_from_elsewhere_body, (void *)"run");
    for (int i = 0; i < 3; i++) {
        cz_archive *archive;
        cz_state_dict *own = NULL;
        assert_int_equal(chdir(folder), 0);
        CZ_CHECK(cz_archive_open(&archive, paths[i], CZ_NEWEST));
        assert_int_equal(chdir(elsewhere), 0);
        CZ_CHECK(cz_archive_read(archive, 0, NULL, 0, 1, &element));
        CZ_CHECK(cz_archive_read_dict(archive, 1, &own));
        CZ_CHECK(cz_archive_verify(archive, NULL, NULL));
        cz_state_dict_destroy(&own);
        cz_archive_destroy(&archive);
    }
}

TEST(a_relative_folder_stays_where_it_was)
{
    static const char *const names[] = {"run", "./run//", "run/"};
    char run[SMALL_PATH];
    snprintf(run, sizeof run, "%s/run", folder);
    for (int i = 0; i < 3; i++) {
        assert_ranks_ok(1 + i, save_from_elsewhere_body, (void *)names[i]);
        assert_true(exists(run, "00000003-step-3"));
        assert_int_equal(entries(run), 2);
        assert_int_equal(entries(elsewhere), 0);
        remove_folder(run);
    }
}

/* ---- locks ---- */

static cz_status save_one(small *s, cz_group *group, void *context)
{
    const int *step = context;
    CZ_TRY(small_open(s, group, folder, 1, 2));
    return save_and_wait(s, *step, *step % 2);
}
BODY(save_one)

static void save(int step)
{
    assert_ranks_ok(2, save_one_body, &step);
}

/* A process that runs `body` and then waits to be killed; it is another user's, if this one is
 * root's. */
static pid_t start(void (*body)(void), bool other)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (other && geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
            _exit(1);
        body();
        (void)!write(ends[1], "", 1);
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return child;
}

static void end(pid_t child)
{
    int result;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &result, 0), child);
}

static void lock_as_reader(void)
{
    const int file = open(folder, O_RDONLY | O_DIRECTORY);
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) != 0)
        _exit(1);
}

TEST(a_lock_of_a_reader_stops_no_save)
{
    assert_int_equal(chmod(folder, 0755), 0);
    const pid_t child = start(lock_as_reader, true);
    save(1);
    save(2);
    end(child);
    assert_int_equal(entries(folder), 2);
}

static int lock_here(void)
{
    struct stat about;
    int lock;
    const int file = open(folder, O_RDONLY | O_DIRECTORY);
    if (fstat(file, &about) != 0 || cz__folder_lock(&lock, file, folder, &about) != CZ_OK)
        return -1;
    return lock;
}

/* As a job that reads its data in another process does. That one has begun to run when this
 * returns; it ends by itself in a minute, also if the test fails. */
static void lock_and_fork(void)
{
    int ends[2];
    char byte;
    if (lock_here() < 0 || pipe(ends) != 0)
        _exit(1);
    if (fork() == 0) {
        alarm(60);
        (void)!write(ends[1], "", 1);
        for (;;)
            pause();
    }
    if (read(ends[0], &byte, 1) != 1)
        _exit(1);
}

static cz_status save_in_vain(small *s, cz_group *group, void *context)
{
    CZ_TRY(small_open(s, group, folder, 1, 2));
    return small_expect(save_and_wait(s, 7, false), ONE(CZ_ERR_IO), "in use by another save",
                        folder);
}
BODY(save_in_vain)

TEST(a_lock_ends_with_its_process)
{
    const pid_t child = start(lock_and_fork, false);
    assert_ranks_ok(2, save_in_vain_body, NULL);
    char children[64];
    int left = 0;
    snprintf(children, sizeof children, "/proc/%d/task/%d/children", (int)child, (int)child);
    FILE *list = fopen(children, "r");
    const bool known = list && fscanf(list, "%d", &left) == 1;
    if (list)
        fclose(list);
    end(child);
    save(1);
    if (known)
        kill(left, SIGKILL);
    save(2);
    assert_int_equal(entries(folder), 2);
}

TEST(a_file_of_the_locks_name_that_is_not_ours_stops_no_save)
{
    char path[SMALL_PATH], target[SMALL_PATH];
    snprintf(path, sizeof path, "%s/.czero-lock-%lu", folder, (unsigned long)geteuid());
    snprintf(target, sizeof target, "%s/kept", elsewhere);
    fclose(fopen(target, "w"));
    assert_int_equal(symlink(target, path), 0);
    save(1);
    assert_true(exists(elsewhere, "kept"));
    const int file = open(path, O_WRONLY | O_CREAT, 0644); /* left behind, of another user */
    assert_true(file >= 0);
    if (geteuid() == 0)
        assert_int_equal(fchown(file, NOBODY, NOBODY), 0);
    assert_int_equal(flock(file, LOCK_EX), 0);
    save(2);
    close(file);
    assert_false(exists(folder, strrchr(path, '/') + 1));
}

/* ---- folders that are exchanged ---- */

static atomic_bool at_work, go_on;

static ssize_t write_when_allowed(int file, const void *data, size_t count, off_t offset)
{
    if (is_victim(file)) {
        atomic_store(&at_work, true);
        while (!atomic_load(&go_on))
            usleep(1000);
    }
    return pwrite(file, data, count, offset);
}

static cz_status save_while_exchanged(small *s, cz_group *group, void *context)
{
    char here[SMALL_PATH], away[SMALL_PATH];
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(small_save(s, 1, true));
    snprintf(here, sizeof here, "%s/00000001-step-1", folder);
    snprintf(away, sizeof away, "%s/away", folder);
    while (!atomic_load(&at_work))
        usleep(1000);
    if (rename(here, away) != 0 || symlink(elsewhere, here) != 0)
        return cz_fail(CZ_ERR_IO, "rename");
    atomic_store(&go_on, true);
    CZ_TRY(want(cz_checkpoint_wait(s->checkpoint) != CZ_OK, "a failure"));
    unlink(here);
    CZ_TRY(want(entries(elsewhere) == 3, "what was there"));
    return save_and_wait(s, 2, false);
}
BODY(save_while_exchanged)

TEST(a_generation_that_is_exchanged_leads_nowhere_else)
{
    static const char *const names[] = {"index.json", "rank-00000-of-00001.json",
                                        "rank-00000-of-00001.json.tmp"};
    char path[SMALL_PATH];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", elsewhere, names[i]);
        fclose(fopen(path, "w"));
    }
    victim = "rank-00000-of-00001.safetensors";
    cz__system_used.write = write_when_allowed;
    assert_ranks_ok(1, save_while_exchanged_body, NULL);
    for (int i = 0; i < 3; i++)
        assert_true(exists(elsewhere, names[i]));
    assert_true(exists(folder, "00000001-step-2") || exists(folder, "00000002-step-2"));
}

TEST(a_generation_that_is_a_link_before_is_not_written_to)
{
    char link[SMALL_PATH];
    snprintf(link, sizeof link, "%s/00000001-step-1", folder);
    assert_int_equal(symlink(elsewhere, link), 0);
    save(1); /* its number counts as taken */
    assert_int_equal(entries(elsewhere), 0);
    assert_true(exists(folder, "00000002-step-1"));
}
