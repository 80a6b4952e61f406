/* SPDX-License-Identifier: MIT */
/* The level of the kernels: CZERO_CPU caps it, and says so when it cannot. The choice is made once
 * per process, so each try is a child. */
#include "device/cpu/cpu.h"
#include "support/cz_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const names[] = {"v1", "v3", "v4"};

/* The best level up to this one that is here. */
static const char *best(int level)
{
    while (!cz__cpu_kernels_at((cz__cpu_level)level))
        level--;
    return names[level];
}

static atomic_int lines;
static char last_line[256];

static void sink(cz_log_level level, const char *line, void *context)
{
    (void)cz__cpu_kernels_chosen()->level; /* a sink may ask */
    lines++;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void *ask(void *context)
{
    return (void *)(uintptr_t)cz__cpu_kernels_chosen()->level;
}

/* 0: as wanted. Four threads ask at once. */
static int child(const char *wish, const char *level, int warnings, const char *word)
{
    pthread_t threads[4];
    void *said;
    if (wish)
        setenv("CZERO_CPU", wish, 1);
    else
        unsetenv("CZERO_CPU");
    cz_log_set_level(CZ_LOG_WARN);
    cz_log_set_sink(sink, NULL);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, ask, NULL);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &said);
        if (strcmp(said, level) != 0)
            return 1;
    }
    if (strcmp(cz__cpu_kernels_chosen()->level, level) != 0)
        return 2;
    if (lines != warnings)
        return 3;
    return warnings > 0 && !strstr(last_line, word) ? 4 : 0;
}

static void expect_level(const char *wish, const char *level, int warnings, const char *word)
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(child(wish, level, warnings, word));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != 0)
        fail_msg("CZERO_CPU=%s: check %d failed", wish ? wish : "(unset)", WEXITSTATUS(status));
}

TEST(the_best_level_that_is_allowed_is_chosen)
{
    expect_level(NULL, best(CZ__CPU_V4), 0, "");
    expect_level("", best(CZ__CPU_V4), 0, "");
    for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
        const bool here = cz__cpu_kernels_at((cz__cpu_level)level) != NULL;
        expect_level(names[level], best(level), !here, "at best");
    }
    expect_level("v2", best(CZ__CPU_V4), 1, "\"v2\"");
    expect_level("V4", best(CZ__CPU_V4), 1, "v1, v3 and v4");
    expect_level("v11", best(CZ__CPU_V4), 1, "\"v11\"");
}

TEST(tables_are_whole)
{
    assert_non_null(cz__cpu_kernels_at(CZ__CPU_V1));
    assert_null(cz__cpu_kernels_at(CZ__CPU_LEVEL_COUNT));
    for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++) {
        const cz__cpu_kernels *kernels = cz__cpu_kernels_at((cz__cpu_level)level);
        if (!kernels)
            continue;
        assert_string_equal(kernels->level, names[level]);
        for (int dtype = CZ_F32; dtype < CZ__DTYPE_END; dtype++)
            for (int reduction = CZ_SUM; reduction < CZ__REDUCTION_END; reduction++)
                assert_int_equal(!kernels->reduce[dtype][reduction],
                                 dtype >= CZ_I32 ? reduction == CZ_AVERAGE
                                                 : reduction == CZ_AND || reduction == CZ_OR);
        assert_non_null(cz__cpu_find_update(kernels, "adamw", CZ_F64, CZ_F64, CZ_F64));
        assert_null(cz__cpu_find_update(kernels, "adamw", CZ_F32, CZ_F32, CZ_F64));
        assert_null(cz__cpu_find_update(kernels, "adamw", CZ_BF16, CZ_BF16, CZ_BF16));
        assert_null(cz__cpu_find_update(kernels, "adam ", CZ_F32, CZ_F32, CZ_F32));
    }
}

/* CTest runs the tests at every level: the one it asked for has to be the one that runs. */
TEST(level_in_use)
{
    const char *wish = getenv("CZERO_CPU");
    int cap = CZ__CPU_V4;
    for (int level = 0; level < CZ__CPU_LEVEL_COUNT; level++)
        if (wish && strcmp(wish, names[level]) == 0)
            cap = level;
    assert_string_equal(cz__cpu_kernels_chosen()->level, best(cap));
}
