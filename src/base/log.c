/* SPDX-License-Identifier: MIT */
/* The log: lines of a level go to the program's sink, or to stderr with one write each. */
#include "base/log.h"
#include "base/plain_text.h"

#include "base/process.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

static const char *const level_names[] = {"off", "error", "warn", "info", "debug"};
#define LEVEL_COUNT ((int)(sizeof level_names / sizeof *level_names))

CZ__PROCESS_LOCK(sink_lock) /* over the pair */
static cz_log_sink current_sink;
static void *current_context;

static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static atomic_int current_level = CZ_LOG_WARN;
static atomic_bool level_unknown; /* CZERO_LOG holds no level: say so in the first line */

static void read_level(void)
{
    const char *word = cz__environment_text("CZERO_LOG");
    if (!word || !*word)
        return;
    for (int level = 0; level < LEVEL_COUNT; level++) {
        if (strcmp(word, level_names[level]) == 0) {
            atomic_store(&current_level, level);
            return;
        }
    }
    atomic_store(&level_unknown, true);
}

void cz_log_set_level(cz_log_level level)
{
    const int last = LEVEL_COUNT - 1;
    pthread_once(&level_once, read_level); /* before, or it would be overwritten later */
    const int at_most = (int)level > last ? last : (int)level;
    atomic_store(&current_level, at_most < 0 ? 0 : at_most);
}

static cz_log_level present_level(void)
{
    pthread_once(&level_once, read_level);
    return (cz_log_level)atomic_load(&current_level);
}

void cz_log_set_sink(cz_log_sink sink, void *context)
{
    cz__process_lock_take(&sink_lock);
    current_sink = sink;
    current_context = context;
    cz__process_lock_release(&sink_lock);
}

static void write_to_stderr(cz_log_level level, const char *line)
{
    char *whole = NULL;
    const int length = asprintf(&whole, "czero: %s: %s\n", level_names[level], line);
    if (length < 0)
        return;
    fwrite(whole, 1, (size_t)length, stderr); /* unbuffered: lines of threads do not mix */
    free(whole);
}

static void send_line(cz_log_level level, const char *line)
{
    cz__process_lock_take(&sink_lock);
    const cz_log_sink sink = current_sink;
    void *context = current_context;
    cz__process_lock_release(&sink_lock); /* a sink may log, or choose another sink */
    if (sink)
        sink(level, line, context);
    else
        write_to_stderr(level, line);
}

/* The sink is the program's, and has the program's locale. */
static int print_line(char **line, const char *format, va_list args)
{
    CZ__PLAIN_TEXT;
    return vasprintf(line, format, args);
}

static void log_line(cz_log_level level, const char *format, va_list args)
{
    CZ__UNCANCELLED;
    if (level == CZ_LOG_OFF || level > present_level())
        return;
    if (atomic_exchange(&level_unknown, false))
        send_line(CZ_LOG_WARN, "CZERO_LOG is none of off, error, warn, info, debug: using warn");
    char *line = NULL;
    const int length = print_line(&line, format, args);
    if (length >= 0) /* names and paths in it may come from anywhere */
        cz__make_plain(line);
    send_line(level, length < 0 ? "a line that could not be made (out of memory?)" : line);
    if (length >= 0)
        free(line);
}

void cz__log(cz_log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_line(level, format, args);
    va_end(args);
}

void cz_log(cz_log_level level, const char *format, ...)
{
    va_list args;
    if (!format)
        return;
    va_start(args, format);
    log_line(level, format, args);
    va_end(args);
}

void cz_log_text(cz_log_level level, const char *text)
{
    if (text)
        cz_log(level, "%s", text);
}
