/* SPDX-License-Identifier: MIT */
/* Lists of shapes from texts, a line for each tensor. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "io/text.h"
#include "plan/read.h"

/* A name, and the line that has it. */
typedef struct named {
    char *name; /* owned */
    int64_t line;
} named;

typedef struct reading {
    const char *path;
    cz_shapes *shapes;
    int64_t line;
    named *names; /* owned: `count` of them */
    int64_t count, capacity;
} reading;

static cz_status wrong(const reading *r, const char *name, const char *what)
{
    return cz__fail(CZ_ERR_FORMAT, "%s, line %" PRId64 ": '%s': %s", r->path, r->line,
                    cz__show(name).text, what);
}

/* ---- names ---- */

static cz_status keep_name(reading *r, const char *name)
{
    named *names = cz__grow(r->names, r->count, &r->capacity, sizeof *names);
    if (names)
        r->names = names;
    char *copy = names ? cz__strdup(name) : NULL;
    if (!copy)
        return cz__fail(CZ_ERR_MEMORY, "%s: a list of %" PRId64 " names", r->path, r->count + 1);
    r->names[r->count++] = (named){copy, r->line};
    return CZ_OK;
}

static int by_name(const void *left, const void *right)
{
    const named *a = left, *b = right;
    const int order = strcmp(a->name, b->name);
    return order ? order : (a->line > b->line) - (a->line < b->line);
}

/* Of those that are there already, the first in the text. */
static cz_status check_names(reading *r)
{
    const named *again = NULL;
    if (r->count > 0)
        qsort(r->names, (size_t)r->count, sizeof *r->names, by_name);
    for (int64_t i = 1; i < r->count; i++)
        if (strcmp(r->names[i - 1].name, r->names[i].name) == 0 &&
            (!again || r->names[i].line < again->line))
            again = &r->names[i];
    return again ? cz__fail(CZ_ERR_FORMAT,
                            "%s, line %" PRId64 ": '%s' is there already, in line %" PRId64,
                            r->path, again->line, cz__show(again->name).text, again[-1].line)
                 : CZ_OK;
}

static void clear_names(reading *r)
{
    for (int64_t i = 0; i < r->count; i++)
        cz__free(r->names[i].name);
    cz__free(r->names);
}

/* ---- lines ---- */

static cz_dtype find_dtype(const char *word)
{
    for (cz_dtype d = CZ_F32; word && cz_dtype_size(d) > 0; d++)
        if (strcasecmp(word, cz_dtype_name(d)) == 0)
            return d;
    return (cz_dtype)0;
}

static cz_status read_line(reading *r, char *text)
{
    static const char blanks[] = " \t\r\n,";
    int64_t sizes[CZ_MAX_DIMENSIONS];
    int dimensions = 0;
    char *rest = NULL, *end;
    cz_shape_kind kind = CZ_SHAPE_PARAM;
    char *comment = strchr(text, '#');
    if (comment)
        *comment = 0;
    char *name = strtok_r(text, blanks, &rest);
    if (!name)
        return CZ_OK;
    const cz_dtype dtype = find_dtype(strtok_r(NULL, blanks, &rest));
    if (!dtype)
        return wrong(r, name, "after the name comes a type: f32, f64, f16, bf16, i32, i64 or u8");
    for (char *word; (word = strtok_r(NULL, blanks, &rest));) {
        if (strcmp(word, "frozen") == 0 || strcmp(word, "buffer") == 0) {
            kind = *word == 'f' ? CZ_SHAPE_FROZEN : CZ_SHAPE_BUFFER;
            continue;
        }
        errno = 0;
        const long long size = strtoll(word, &end, 10);
        if (errno || *end || size < 0 || dimensions == CZ_MAX_DIMENSIONS)
            return wrong(r, name,
                         "after the type come 8 sizes at most, each a whole number, and perhaps "
                         "'frozen' or 'buffer'");
        sizes[dimensions++] = size;
    }
    const cz_status status = cz_shapes_add(r->shapes, name, dtype, dimensions, sizes, kind);
    if (status == CZ_ERR_ARGUMENT)
        return cz__fail(CZ_ERR_FORMAT, "%s, line %" PRId64 ": %.300s", r->path, r->line,
                        cz_last_error());
    return status == CZ_OK ? keep_name(r, name) : status;
}

static cz_status read_lines(reading *r, FILE *file)
{
    char *text = NULL;
    size_t room = 0;
    cz_status status = CZ_OK;
    for (ssize_t count; status == CZ_OK && (count = getline(&text, &room, file)) >= 0;) {
        r->line++;
        status = memchr(text, 0, (size_t)count)
                     ? cz__fail(CZ_ERR_FORMAT, "%s is no list of shapes", r->path)
                     : read_line(r, text);
    }
    free(text);
    if (status == CZ_OK && ferror(file))
        status = cz__fail(CZ_ERR_IO, "%s: cannot be read: %s", r->path, strerror(errno));
    return status;
}

cz_status cz__shapes_read_text(cz_shapes *shapes, FILE *file, const char *path)
{
    reading r = {.path = path, .shapes = shapes};
    cz_status status = read_lines(&r, file);
    if (status == CZ_OK)
        status = check_names(&r);
    clear_names(&r);
    return status;
}
