/* SPDX-License-Identifier: MIT */
/* The log: levels, the program's sink, whole lines on stderr. CZERO_LOG is read once in a process,
 * so each of its words is tried in a process of its own. */
#include "support/cz_test.h"

#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct seen {
    int lines;
    cz_log_level level;
    char line[64];
} seen;

static void keep(cz_log_level level, const char *line, void *context)
{
    seen *s = context;
    s->lines++;
    s->level = level;
    snprintf(s->line, sizeof s->line, "%s", line);
}

/* What `body` writes to stderr in a child that has CZERO_LOG set to `word` (NULL: unset). */
static void capture(const char *word, void (*body)(void), char *text, size_t room)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        if (word)
            setenv("CZERO_LOG", word, 1);
        else
            unsetenv("CZERO_LOG");
        body();
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], text + length, room - 1 - length)) > 0;)
        length += (size_t)got;
    text[length] = '\0';
    close(ends[0]);
    waitpid(child, NULL, 0);
}

static void one_of_each(void)
{
    cz__log(CZ_LOG_ERROR, "e%d", 1);
    cz__log(CZ_LOG_WARN, "w");
    cz__log(CZ_LOG_INFO, "i");
    cz__log(CZ_LOG_DEBUG, "d");
}

static void choose_then_one_of_each(void)
{
    cz_log_set_level(CZ_LOG_ERROR);
    one_of_each();
}

static void *many_lines(void *letter)
{
    char line[4000];
    memset(line, *(char *)letter, sizeof line - 1);
    line[sizeof line - 1] = '\0';
    for (int i = 0; i < 50; i++)
        cz__log(CZ_LOG_ERROR, "%s", line);
    return NULL;
}

static void two_threads(void)
{
    pthread_t thread;
    char letters[] = "ab";
    pthread_create(&thread, NULL, many_lines, &letters[0]);
    many_lines(&letters[1]);
    pthread_join(thread, NULL);
}

TEST(the_environment_and_stderr)
{
    static const struct {
        const char *word;
        const char *text;
    } cases[] = {
        {NULL, "czero: error: e1\nczero: warn: w\n"},
        {"", "czero: error: e1\nczero: warn: w\n"},
        {"off", ""},
        {"error", "czero: error: e1\n"},
        {"debug", "czero: error: e1\nczero: warn: w\nczero: info: i\nczero: debug: d\n"},
        {"Loud", "czero: warn: CZERO_LOG is none of off, error, warn, info, debug: using warn\n"
                 "czero: error: e1\nczero: warn: w\n"},
    };
    char text[1024];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        capture(cases[i].word, one_of_each, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
    capture("debug", choose_then_one_of_each, text, sizeof text); /* the program's choice wins */
    assert_string_equal(text, "czero: error: e1\n");
}

TEST(lines_of_threads_do_not_mix)
{
    const size_t room = 1 << 20;
    char *text = malloc(room);
    assert_non_null(text);
    capture(NULL, two_threads, text, room);
    int lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        const char letter[] = {line[strlen(line) - 1], '\0'};
        assert_memory_equal(line, "czero: error: ", 14);
        assert_int_equal(strspn(line + 14, letter), 3999);
    }
    assert_int_equal(lines, 100);
    free(text);
}

/* A line of each level is logged: how many arrive? */
static int lines_at(cz_log_level level, seen *s)
{
    s->lines = 0;
    cz_log_set_level(level);
    for (int of = CZ_LOG_OFF; of <= CZ_LOG_DEBUG; of++)
        cz__log((cz_log_level)of, "line %d", of);
    return s->lines;
}

TEST(levels)
{
    seen s = {0};
    cz_log_set_sink(keep, &s);
    for (int level = CZ_LOG_OFF; level <= CZ_LOG_DEBUG; level++) {
        assert_int_equal(lines_at((cz_log_level)level, &s), level); /* none of level "off" */
        if (level > 0)
            assert_int_equal(s.level, level);
    }
    assert_string_equal(s.line, "line 4");
    cz_log(CZ_LOG_INFO, "from %s", "outside");
    assert_string_equal(s.line, "from outside");
    assert_int_equal(s.level, CZ_LOG_INFO);
    assert_int_equal(lines_at((cz_log_level)99, &s), 4);
    assert_int_equal(lines_at((cz_log_level)-1, &s), 0);
    cz_log_set_level(CZ_LOG_WARN);
    cz_log_set_sink(NULL, NULL);
}

static void log_again(cz_log_level level, const char *line, void *context)
{
    cz_log_set_sink(keep, context);
    cz__log(CZ_LOG_ERROR, "again: %s", line);
}

TEST(a_sink_may_log_and_choose_another)
{
    seen s = {0};
    cz_log_set_sink(log_again, &s);
    cz__log(CZ_LOG_ERROR, "first");
    cz_log_set_sink(NULL, NULL);
    assert_string_equal(s.line, "again: first");
}

int main(void)
{
    unsetenv("CZERO_LOG");
    return cz_test_run(NULL, NULL);
}
