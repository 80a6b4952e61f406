/* SPDX-License-Identifier: MIT */
/* What the library takes from its process: its threads and signals, children of fork(), threads
 * that are cancelled. */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "czero/czero.h"
#include "group_test.h"

enum { ELEMENTS = 200000 };

static float values[ELEMENTS], gradients[ELEMENTS];

/* ---- signals ---- */

static uint64_t blocked_in(const char *thread)
{
    char path[300], line[200];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "SigBlk: %llx", &blocked) == 1)
            break;
    if (file)
        fclose(file);
    return blocked;
}

/* Threads other than this one, all of which must block what a program may wait for. */
static int count_threads(void)
{
    const int waited_for[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM, SIGPIPE};
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
            continue;
        const uint64_t blocked = blocked_in(entry->d_name);
        for (size_t i = 0; i < sizeof waited_for / sizeof *waited_for; i++)
            if (!(blocked >> (waited_for[i] - 1) & 1))
                fail_msg("thread %s does not block signal %d", entry->d_name, waited_for[i]);
        count++;
    }
    closedir(folder);
    return count;
}

TEST(threads_of_the_library_block_all_signals)
{
    cz_group *groups[3];
    cz_model *model;
    cz_optim *optim;
    cz_optim_options options = CZ_OPTIM_OPTIONS_INIT;
    options.threads = 2;
    setenv("CZERO_FLIGHT_RECORDER", CZ_TEST_BINARY_DIR, 1); /* which has a thread, too */
    assert_ok(cz_group_create_threads(groups, 3, NULL));
    unsetenv("CZERO_FLIGHT_RECORDER");
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "w", values, gradients, CZ_F32, 1, (int64_t[]){ELEMENTS}));
    assert_ok(cz_optim_create(&optim, model, cz_rule_adam(), NULL, &options));
    assert_true(count_threads() >= 5); /* executors, a kernel thread, the recorder's */
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    for (int r = 0; r < 3; r++)
        cz_group_destroy(&groups[r]);
}

/* ---- children of fork() ---- */

/* In the child: everything says no, with a sentence, and everything goes away. What it ends
 * with. */
static int use_and_destroy(cz_group *group, cz_zero *zero, cz_work *work)
{
    float value = 1;
    bool done;
    if (cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, NULL) != CZ_ERR_STATE ||
        !strstr(cz_last_error(), "child"))
        return 2;
    if (cz_zero_step(zero, NULL, NULL) != CZ_ERR_STATE || cz_progress(group) != CZ_ERR_STATE)
        return 3;
    if (cz_work_wait(work) != CZ_ERR_STATE || cz_work_test(work, &done) != CZ_ERR_STATE)
        return 4;
    cz_work_destroy(&work);
    cz_zero_destroy(&zero);
    cz_group_destroy(&group);
    return 0;
}

static cz_status add_alone(cz_group *group, void *arg)
{
    int one = 1;
    CZ_TRY(cz_all_reduce(group, &one, 1, CZ_I32, CZ_SUM, NULL));
    CHECK(one == cz_group_size(group), "%d", one);
    return CZ_OK;
}

/* Of its own it may have anything. */
static int use_others(void)
{
    const cz_launch_options two = {.size = sizeof two, .ranks = 2, .timeout_seconds = 30};
    cz_log(CZ_LOG_ERROR, "a line of the child's, which is meant to be there");
    return cz_launch(add_alone, NULL, &two) == CZ_OK ? 0 : 5;
}

static cz_status fork_in_the_middle(cz_group *group, void *arg)
{
    static _Thread_local float w[1000], g[1000];
    float value = 1;
    cz_model *model;
    cz_zero *zero;
    cz_work *work;
    int how = 0;
    pid_t ended = 0;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "w", w, g, CZ_F32, 1, (int64_t[]){1000}));
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_adam(), NULL, NULL));
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    CZ_TRY(cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, CZ_START("on its way", &work)));
    const pid_t child = fork();
    if (child == 0) {
        const int wrong = use_and_destroy(group, zero, work);
        _exit(wrong ? wrong : use_others());
    }
    for (int i = 0; i < 3000 && (ended = waitpid(child, &how, WNOHANG)) == 0; i++)
        usleep(10000);
    if (ended == 0)
        kill(child, SIGKILL);
    CHECK(ended == child && WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child: %d", how);
    CZ_TRY(cz_work_wait(work));
    cz_work_destroy(&work);
    CZ_TRY(cz_zero_step(zero, NULL, NULL));
    cz_zero_destroy(&zero);
    cz_model_destroy(&model);
    return CZ_OK;
}

TEST(handles_are_dead_in_a_child_and_it_does_not_hang)
{
    expect_ok(1, 0, fork_in_the_middle, NULL);
    expect_ok(3, 0, fork_in_the_middle, NULL);
}

/* ---- cancelled threads ---- */

typedef struct caller {
    cz_group *group;
    atomic_bool waits;
    cz_status status;
} caller;

static void *wait_for_the_other(void *context)
{
    caller *self = context;
    float value = 1;
    atomic_store(&self->waits, true);
    self->status = cz_all_reduce(self->group, &value, 1, CZ_F32, CZ_SUM, NULL);
    for (;;)
        pthread_testcancel();
    return NULL;
}

TEST(a_call_ends_before_its_thread_is_cancelled)
{
    cz_group *groups[2];
    pthread_t thread;
    float value = 1;
    assert_ok(cz_group_create_threads(groups, 2, NULL));
    caller other = {.group = groups[1], .status = CZ_ERR_INTERNAL};
    assert_int_equal(pthread_create(&thread, NULL, wait_for_the_other, &other), 0);
    while (!atomic_load(&other.waits))
        usleep(1000);
    usleep(20000);
    pthread_cancel(thread);
    assert_ok(cz_all_reduce(groups[0], &value, 1, CZ_F32, CZ_SUM, NULL));
    pthread_join(thread, NULL);
    assert_int_equal(other.status, CZ_OK);
    cz_group_destroy(&groups[0]);
    cz_group_destroy(&groups[1]);
}

static cz_status end_thread_of_rank_1(cz_group *group, void *arg)
{
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 1)
        pthread_exit(NULL);
    return cz_barrier(group, NULL);
}

TEST(a_rank_whose_thread_ends_fails_the_launch)
{
    const cz_launch_options three = {.size = sizeof three, .ranks = 3, .timeout_seconds = 30};
    assert_int_equal(cz_launch(end_thread_of_rank_1, NULL, &three), CZ_ERR_STATE);
    assert_non_null(strstr(cz_last_error(), "rank 1 of 3: its thread was cancelled"));
}

/* ---- memory ---- */

enum { ROUNDS = 1000, BEFORE = 20 };

static cz_status make_and_destroy(cz_group *group, cz_model *model)
{
    cz_zero *zero;
    cz_ddp *ddp;
    CZ_TRY(cz_zero_create(&zero, group, model, cz_rule_adam(), NULL, NULL));
    CZ_TRY(cz_zero_broadcast_parameters(zero, 0));
    cz_zero_destroy(&zero);
    CZ_TRY(cz_ddp_create(&ddp, group, model, NULL));
    cz_ddp_destroy(&ddp);
    return cz_barrier(group, NULL);
}

/* Compared where no rank is in the middle of anything. */
static cz_status stay_flat(cz_group *group, void *arg)
{
    static _Thread_local float w[16], g[16];
    size_t before = 0, after = 0;
    cz_model *model;
    CZ_TRY(cz_model_create(&model));
    CZ_TRY(cz_model_add(model, "w", w, g, CZ_F32, 1, (int64_t[]){16}));
    for (int i = 0; i < ROUNDS; i++) {
        CZ_TRY(make_and_destroy(group, model));
        if (i != BEFORE && i != ROUNDS - 1)
            continue;
        usleep(2000); /* the others come out of the barrier */
        *(i == BEFORE ? &before : &after) = cz_memory_bytes(CZ_MEMORY_GENERAL);
        CZ_TRY(cz_barrier(group, NULL));
    }
    cz_model_destroy(&model);
    const size_t room = (size_t)cz_group_size(group) * 4096; /* works that are kept for the next */
    CHECK(after <= before + room, "%zu bytes after %d objects, %zu after %d", after, ROUNDS, before,
          BEFORE);
    return CZ_OK;
}

TEST(memory_stays_flat_over_a_thousand_objects_on_a_group)
{
    expect_ok(3, 0, stay_flat, NULL);
    expect_ok(8, 0, stay_flat, NULL);
}
