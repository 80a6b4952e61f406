/* SPDX-License-Identifier: MIT */
/* Reading a run's log, line by line: a log may be long, and may be any file. */
#include "run_log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "czero/archive.h"
#include "guard.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/stream.h"
#include "show.h"
#include "tool.h"

enum { BLOCK = 1 << 16, MOST_LINE = 1 << 20 };

/* ---- which file it is ---- */

static cz_status file_in(cz__text *file, const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return cz__text_print(file, "%.*s/" RUN_LOG_FILE, (int)length, path)
               ? CZ_OK
               : cz_fail(CZ_ERR_MEMORY, "no memory for a path");
}

static cz_status count_generation(const cz_archive_generation *generation, void *context)
{
    (void)generation;
    ++*(int64_t *)context;
    return CZ_OK;
}

cz_status run_log_is(const char *path, bool *is)
{
    cz__look look, inside = {0};
    cz__text file = {0};
    int64_t generations = 0;
    *is = false;
    CZ_TRY(cz__look_at(&look, path));
    if (!look.folder) {
        *is = look.file && cz__ends_with(path, ".jsonl");
        return CZ_OK;
    }
    if (look.generation || cz__look_consolidated(&look))
        return CZ_OK;
    cz_status status = file_in(&file, path);
    if (status == CZ_OK)
        status = cz__look_at(&inside, cz__text_get(&file));
    if (status == CZ_OK && inside.file)
        status = cz_archive_list(path, count_generation, &generations);
    *is = inside.file && generations == 0;
    cz__text_clear(&file);
    return status;
}

/* ---- a line ---- */

void run_log_digits(const uint64_t number[2], char out[33])
{
    cz__checksum_print((cz__checksum){.high = number[0], .low = number[1]}, out);
}

bool run_log_scan(const char *digits, uint64_t number[2])
{
    cz__checksum read;
    if (!cz__checksum_scan(digits, &read))
        return false;
    number[0] = read.high;
    number[1] = read.low;
    return true;
}

static cz_status take_digits(const json_t *object, const char *where, const char *key,
                             uint64_t number[2])
{
    const char *digits;
    CZ_TRY(cz__json_text(object, where, key, &digits));
    return run_log_scan(digits, number)
               ? CZ_OK
               : cz_fail(CZ_ERR_FORMAT, "%s: '%s' is '%.40s', wanted 32 hexadecimal digits", where,
                         key, cz__show(digits).text);
}

static cz_status take_loss(const json_t *object, const char *where, run_step *out)
{
    const json_t *loss = json_object_get(object, "loss");
    out->has_loss = loss != NULL;
    out->loss = json_is_number(loss) ? json_number_value(loss) : NAN;
    return !loss || json_is_number(loss) || json_is_null(loss)
               ? CZ_OK
               : cz_fail(CZ_ERR_FORMAT, "%s: 'loss' is no number", where);
}

static cz_status take_prints(const json_t *object, const char *where, run_step *out)
{
    out->has_print = json_object_get(object, "fingerprint") || json_object_get(object, "chain");
    if (!out->has_print)
        return CZ_OK;
    CZ_TRY(take_digits(object, where, "fingerprint", out->print));
    return take_digits(object, where, "chain", out->chain);
}

/* Does it say more of the last step, rather than say it again? */
static bool completes(const run_step *last, const run_step *next)
{
    return last->step == next->step && !(last->has_loss && next->has_loss) &&
           !(last->has_print && next->has_print);
}

static void complete(run_step *last, const run_step *next)
{
    run_step whole = next->has_print ? *next : *last;
    whole.has_loss = last->has_loss || next->has_loss;
    whole.loss = last->has_loss ? last->loss : next->loss;
    whole.has_print = last->has_print || next->has_print;
    *last = whole;
}

static cz_status add_step(run_log *log, const run_step *next, cz__budget *budget)
{
    if (log->count > 0 && completes(&log->steps[log->count - 1], next)) {
        complete(&log->steps[log->count - 1], next);
        return CZ_OK;
    }
    const int64_t before = log->count;
    while (log->count > 0 && log->steps[log->count - 1].step >= next->step)
        log->count--;
    log->backs += log->count < before;
    if (log->count == log->capacity)
        CZ_TRY(cz__budget_spend(budget, (2 * (uint64_t)log->capacity + 16) * sizeof *log->steps,
                                "its steps"));
    run_step *steps = cz__grow(log->steps, log->count, &log->capacity, sizeof *steps);
    if (!steps)
        return cz_fail(CZ_ERR_MEMORY, "%s: no memory for its steps", log->path);
    log->steps = steps;
    log->steps[log->count++] = *next;
    return CZ_OK;
}

static cz_status take_object(run_log *log, const json_t *object, const char *where,
                             cz__budget *budget)
{
    run_step next = {0};
    if (!json_object_get(object, "step"))
        return CZ_OK;
    CZ_TRY(cz__json_integer(object, where, "step", 0, INT64_MAX, &next.step));
    CZ_TRY(take_loss(object, where, &next));
    CZ_TRY(take_prints(object, where, &next));
    return next.has_loss || next.has_print ? add_step(log, &next, budget) : CZ_OK;
}

/* ---- the file ---- */

typedef struct lines {
    run_log *log;
    cz__reader *reader;
    char *buffer; /* owned: MOST_LINE + BLOCK bytes */
    size_t held;  /* in it, of a line that goes on */
    int64_t line; /* that comes next, from 1 */
    cz__budget budget;
} lines;

static bool is_blank(const char *bytes, size_t count)
{
    size_t i = 0;
    while (i < count && strchr(" \t\r", bytes[i] ? bytes[i] : 'x'))
        i++;
    return i == count;
}

/* `ended`: with a newline. */
static cz_status take_line(lines *l, const char *bytes, size_t count, bool ended)
{
    json_t *object;
    cz__text where = {0};
    if (is_blank(bytes, count))
        return CZ_OK;
    if (!cz__text_print(&where, "%s: line %" PRId64, l->log->path, l->line))
        return cz_fail(CZ_ERR_MEMORY, "no memory for a path");
    cz_status status = cz__json_parse(&object, cz__text_get(&where), bytes, count);
    if (status == CZ_ERR_FORMAT && !ended) {
        l->log->cut = true;
        status = CZ_OK;
    } else if (status == CZ_OK) {
        status = take_object(l->log, object, cz__text_get(&where), &l->budget);
    }
    json_decref(object);
    cz__text_clear(&where);
    return status;
}

/* Whole lines of what is held; the beginning of the next one stays. */
static cz_status take_lines(lines *l)
{
    char *at = l->buffer, *end = at + l->held, *newline = memchr(at, '\n', l->held);
    while (newline) {
        CZ_TRY(take_line(l, at, (size_t)(newline - at), true));
        l->line++;
        at = newline + 1;
        newline = memchr(at, '\n', (size_t)(end - at));
    }
    l->held = (size_t)(end - at);
    memmove(l->buffer, at, l->held);
    return l->held <= MOST_LINE
               ? CZ_OK
               : cz_fail(CZ_ERR_UNSUPPORTED,
                         "%s: line %" PRId64 " has more than %d bytes: no log of a run",
                         l->log->path, l->line, (int)MOST_LINE);
}

static cz_status read_lines(lines *l)
{
    const uint64_t bytes = cz__reader_bytes(l->reader);
    for (uint64_t at = 0; at < bytes;) {
        const size_t count = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;
        CZ_TRY(cz__reader_read(l->reader, at, l->buffer + l->held, count));
        l->held += count;
        at += count;
        CZ_TRY(take_lines(l));
    }
    l->buffer[l->held] = '\0';
    return take_line(l, l->buffer, l->held, false);
}

static cz_status read_file(run_log *log)
{
    lines l = {.log = log, .line = 1};
    CZ_TRY(cz__reader_open(&l.reader, log->path));
    l.budget = cz__budget_of(log->path, cz__reader_bytes(l.reader));
    l.buffer = cz__calloc(MOST_LINE + BLOCK + 1, 1);
    const cz_status status =
        l.buffer ? read_lines(&l) : cz_fail(CZ_ERR_MEMORY, "no memory to read %s", log->path);
    cz__free(l.buffer);
    cz__reader_close(&l.reader);
    for (int64_t i = 0; i < log->count; i++)
        log->prints += log->steps[i].has_print;
    return status;
}

cz_status run_log_read(run_log *log, const char *path)
{
    cz__look look;
    cz__text file = {0};
    *log = (run_log){0};
    CZ_TRY(cz__look_at(&look, path));
    log->in_folder = look.folder;
    if (look.folder)
        CZ_TRY(file_in(&file, path));
    log->path = cz__path_copy(look.folder ? cz__text_get(&file) : path);
    cz__text_clear(&file);
    if (!log->path)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a path");
    CZ_TRY(guard_read(log->path));
    return read_file(log);
}

void run_log_clear(run_log *log)
{
    cz__free(log->path);
    cz__free(log->steps);
    *log = (run_log){0};
}

const run_step *run_log_find(const run_log *log, int64_t step)
{
    int64_t begin = 0, end = log->count;
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (log->steps[middle].step == step)
            return &log->steps[middle];
        if (log->steps[middle].step < step)
            begin = middle + 1;
        else
            end = middle;
    }
    return NULL;
}

void run_log_notes(const run_log *log)
{
    cz__text note = {0};
    if (log->backs > 0)
        cz__text_print(&note, "note: %s goes back to an earlier step %s: the later lines count\n",
                       show_path(log->path).text, show_plural(log->backs, "time", "times").text);
    if (log->cut)
        cz__text_print(&note, "note: %s: the last line is incomplete, and left out\n",
                       show_path(log->path).text);
    tool_say(stderr, cz__text_get(&note));
    cz__text_clear(&note);
}
