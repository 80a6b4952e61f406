/* SPDX-License-Identifier: MIT */
/* Lists of shapes from files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "base/thread.h"
#include "interop/shapes.h"
#include "io/text.h"
#include "io/types.h"
#include "plan/object.h"
#include "tensor/model.h"

/* ---- texts ---- */
/* Lists of shapes from texts, a line for each tensor. */

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
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a list of %" PRId64 " names", r->path,
                        r->count + 1);
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
    if (!word)
        return (cz_dtype)0;
    for (cz_dtype d = CZ_F32; cz_dtype_size(d) > 0; d++)
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
    for (ssize_t count; (count = getline(&text, &room, file)) >= 0;) {
        r->line++;
        status = memchr(text, 0, (size_t)count)
                     ? cz__fail(CZ_ERR_FORMAT, "%s is no list of shapes", r->path)
                     : read_line(r, text);
        if (status)
            break;
    }
    free(text);
    if (!status && ferror(file))
        status = cz__fail(CZ_ERR_IO, "%s: cannot be read: %s", r->path, strerror(errno));
    return status;
}

cz_status cz__shapes_read_text(cz_shapes *shapes, FILE *file, const char *path)
{
    reading r = {.path = path, .shapes = shapes};
    cz_status status = read_lines(&r, file);
    if (!status)
        status = check_names(&r);
    clear_names(&r);
    return status;
}

/* ---- files ---- */

/* Of a list: more than ten tensors for each parameter of a large model. Read at once, so it is
 * bounded. */
enum { MOST_LIST = 256 << 20 };

static cz_status add_shape(const cz__file_shape *shape, void *context)
{
    const cz_tensor *t = &shape->tensor;
    if (cz__type_is_foreign(t->dtype)) { /* bytes that nothing trains */
        const int64_t bytes =
            cz__type_units(t->dtype, t->dimensions, t->shape) * (int64_t)cz__type_unit(t->dtype);
        return cz_shapes_add(context, shape->name, CZ_U8, 1, &bytes, CZ_SHAPE_BUFFER);
    }
    const bool buffer = shape->buffer || !cz__converts(t->dtype);
    const cz_shape_kind param = shape->frozen ? CZ_SHAPE_FROZEN : CZ_SHAPE_PARAM;
    return cz_shapes_add(context, shape->name, t->dtype, t->dimensions, t->shape,
                         buffer ? CZ_SHAPE_BUFFER : param);
}

static cz_status read_json(cz_shapes *shapes, FILE *file, const char *path)
{
    char *bytes = NULL;
    size_t count = 0;
    FILE *copy = open_memstream(&bytes, &count);
    char block[16384];
    if (copy)
        for (size_t got; (got = fread(block, 1, sizeof block, file)) > 0;)
            fwrite(block, 1, got, copy);
    const bool written = copy && !ferror(copy);
    const bool complete = copy && fclose(copy) == 0 && written;
    cz_status status = CZ_OK;
    if (ferror(file))
        status = cz__fail(CZ_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    else if (!complete)
        status = cz__fail(CZ_ERR_MEMORY, "%s: no memory for it", path);
    if (!status)
        status = cz__json_shapes(path, bytes, count, add_shape, shapes);
    free(bytes);
    return status;
}

/* What its first bytes look like: JSON, a text; a safetensors file (a number of 8 bytes before its
 * JSON), one of torch (a zip archive, or a pickle as torch wrote it before). */
typedef enum form { TEXT, JSON, TENSORS } form;

/* '{', or '[' before something that JSON may have there: a name may begin with it. */
static bool begins_json(const char *text)
{
    static const char blanks[] = " \t\r\n";
    text += strspn(text, blanks);
    return *text == '{' || (*text == '[' && strchr("[]{\"", text[1 + strspn(text + 1, blanks)]));
}

static form form_of(FILE *file)
{
    char begin[16] = "";
    const size_t count = fread(begin, 1, sizeof begin - 1, file);
    rewind(file);
    if (count >= 9 && begin[8] == '{' && memchr(begin, 0, 8))
        return TENSORS;
    if (memcmp(begin, "PK\3\4", 4) == 0 || memcmp(begin, "\x80\x02", 2) == 0)
        return TENSORS;
    return begins_json(begin) ? JSON : TEXT;
}

static cz_status read_list(cz_shapes *shapes, FILE *file, const char *path, form found)
{
    struct stat about;
    if (fstat(fileno(file), &about) != 0 || about.st_size > MOST_LIST)
        return cz__fail(CZ_ERR_FORMAT, "%s: has %" PRId64 " bytes, a list of shapes %d at most",
                        path, (int64_t)about.st_size, MOST_LIST);
    return found == TEXT ? cz__shapes_read_text(shapes, file, path) : read_json(shapes, file, path);
}

/* What is no file is not waited for. */
static cz_status open_file(FILE **out, const char *path)
{
    struct stat about;
    const int file = cz__open(path, O_RDONLY | O_NONBLOCK);
    const bool found = file >= 0 && fstat(file, &about) == 0;
    const bool regular = found && S_ISREG(about.st_mode);
    *out = regular ? fdopen(file, "r") : NULL;
    if (*out)
        return CZ_OK;
    const int error = errno;
    if (file >= 0)
        close(file);
    return found && !regular
               ? cz__fail(CZ_ERR_IO, "%s: is a device, pipe or socket, not a file", path)
               : cz__fail(CZ_ERR_IO, "%s: cannot be read: %s", path, strerror(error));
}

static cz_status read_path(cz_shapes *shapes, const char *path)
{
    struct stat about;
    FILE *file;
    if (!path || !*path)
        return cz__fail(CZ_ERR_ARGUMENT, "shapes: the path is %s", path ? "''" : "NULL");
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return cz__checkpoint_shapes(path, add_shape, shapes);
    CZ_TRY(open_file(&file, path));
    const form found = form_of(file);
    const cz_status status = found == TENSORS ? cz__checkpoint_shapes(path, add_shape, shapes)
                                              : read_list(shapes, file, path, found);
    fclose(file);
    return status;
}

cz_status cz_shapes_read(cz_shapes **out, const char *path)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    CZ_TRY(cz_shapes_create(out));
    cz_status status = read_path(*out, path);
    if (!status && (*out)->count == 0)
        status = cz__fail(CZ_ERR_ARGUMENT,
                          "%s: there is no tensor in it. Wanted: lines such as 'w1 f32 768 3072', "
                          "a safetensors file, a file of torch, or a checkpoint",
                          path);
    if (status != CZ_OK)
        cz_shapes_destroy(out);
    return status;
}
