/* SPDX-License-Identifier: MIT */
/* Lists of shapes from files. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/shapes.h"
#include "plan/shapes.h"
#include "tensor/convert.h"

/* ---- a text ---- */

typedef struct line {
    const char *path;
    int64_t number;
} line;

static cz_status wrong(const line *at, const char *name, const char *what)
{
    return cz__fail(CZ_ERR_FORMAT, "%s, line %" PRId64 ": '%.60s': %s", at->path, at->number, name,
                    what);
}

static cz_dtype find_dtype(const char *word)
{
    for (cz_dtype d = CZ_F32; word && cz_dtype_size(d) > 0; d++)
        if (strcasecmp(word, cz_dtype_name(d)) == 0)
            return d;
    return (cz_dtype)0;
}

static cz_status read_line(cz_shapes *shapes, char *text, const line *at)
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
        return wrong(at, name, "after the name comes a type: f32, f64, f16, bf16, i32, i64 or u8");
    for (char *word; (word = strtok_r(NULL, blanks, &rest));) {
        if (strcmp(word, "frozen") == 0 || strcmp(word, "buffer") == 0) {
            kind = *word == 'f' ? CZ_SHAPE_FROZEN : CZ_SHAPE_BUFFER;
            continue;
        }
        errno = 0;
        const long long size = strtoll(word, &end, 10);
        if (errno || *end || size < 0 || dimensions == CZ_MAX_DIMENSIONS)
            return wrong(at, name,
                         "after the type come 8 sizes at most, each a whole number, and perhaps "
                         "'frozen' or 'buffer'");
        sizes[dimensions++] = size;
    }
    const cz_status status = cz_shapes_add(shapes, name, dtype, dimensions, sizes, kind);
    return status == CZ_ERR_ARGUMENT ? cz__fail(CZ_ERR_FORMAT, "%s, line %" PRId64 ": %.200s",
                                                at->path, at->number, cz_last_error())
                                     : status;
}

static cz_status read_text(cz_shapes *shapes, FILE *file, const char *path)
{
    line at = {path, 0};
    char *text = NULL;
    size_t room = 0;
    cz_status status = CZ_OK;
    for (ssize_t count; status == CZ_OK && (count = getline(&text, &room, file)) >= 0;) {
        at.number++;
        status = memchr(text, 0, (size_t)count)
                     ? cz__fail(CZ_ERR_FORMAT, "%s is no list of shapes", path)
                     : read_line(shapes, text, &at);
    }
    free(text);
    if (status == CZ_OK && ferror(file))
        status = cz__fail(CZ_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    return status;
}

/* ---- others ---- */

static cz_status add(const cz__file_shape *shape, void *context)
{
    const cz_tensor *t = &shape->tensor;
    const bool buffer = shape->buffer || !cz__converts(t->dtype);
    return cz_shapes_add(context, shape->name, t->dtype, t->dimensions, t->shape,
                         buffer          ? CZ_SHAPE_BUFFER
                         : shape->frozen ? CZ_SHAPE_FROZEN
                                         : CZ_SHAPE_PARAM);
}

static cz_status read_json(cz_shapes *shapes, FILE *file, const char *path)
{
    char *bytes = NULL;
    size_t count = 0;
    FILE *copy = open_memstream(&bytes, &count);
    char block[16384];
    for (size_t got; copy && (got = fread(block, 1, sizeof block, file)) > 0;)
        fwrite(block, 1, got, copy);
    const bool complete = copy && !ferror(copy) && fclose(copy) == 0;
    cz_status status = CZ_OK;
    if (ferror(file))
        status = cz__fail(CZ_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    else if (!complete)
        status = cz__fail(CZ_ERR_MEMORY, "%s: no memory for it", path);
    if (status == CZ_OK)
        status = cz__json_shapes(path, bytes, count, add, shapes);
    free(bytes);
    return status;
}

/* What its first bytes look like: JSON, a safetensors file (a number of 8 bytes before its JSON), a text. */
typedef enum form { TEXT, JSON, SAFETENSORS } form;
static form form_of(FILE *file)
{
    char begin[16] = "";
    const size_t count = fread(begin, 1, sizeof begin, file);
    size_t first = 0;
    rewind(file);
    if (count >= 9 && begin[8] == '{' && memchr(begin, 0, 8))
        return SAFETENSORS;
    while (first < count && isspace((unsigned char)begin[first]))
        first++;
    return first < count && begin[first] == '{' ? JSON : TEXT;
}

static cz_status read_file(cz_shapes *shapes, FILE *file, const char *path)
{
    const form found = form_of(file);
    return found == TEXT   ? read_text(shapes, file, path)
           : found == JSON ? read_json(shapes, file, path)
                           : cz__checkpoint_shapes(path, add, shapes);
}

static cz_status read_path(cz_shapes *shapes, const char *path)
{
    struct stat about;
    if (!path || !*path)
        return cz__fail(CZ_ERR_ARGUMENT, "shapes: the path is %s", path ? "''" : "NULL");
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return cz__checkpoint_shapes(path, add, shapes);
    FILE *file = fopen(path, "re");
    if (!file)
        return cz__fail(CZ_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    const cz_status status = read_file(shapes, file, path);
    fclose(file);
    return status;
}

cz_status cz_shapes_read(cz_shapes **out, const char *path)
{
    CZ_TRY(cz_shapes_create(out));
    cz_status status = read_path(*out, path);
    if (status == CZ_OK && (*out)->count == 0)
        status =
            cz__fail(CZ_ERR_ARGUMENT,
                     "%s: there is no tensor in it. Wanted: lines such as 'w1 f32 768 3072', a "
                     "safetensors file, or a checkpoint",
                     path);
    if (status != CZ_OK)
        cz_shapes_destroy(out);
    return status;
}
