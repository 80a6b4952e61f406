/* SPDX-License-Identifier: MIT */
/* Lists of shapes from files. */
#include "plan/read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/float_mode.h"
#include "base/open.h"
#include "base/status.h"
#include "interop/shapes.h"
#include "io/types.h"
#include "tensor/convert.h"

/* Of a list: more than ten tensors for each parameter of a large model. Read at once, so it is bounded. */
enum { MOST_LIST = 256 << 20 };

static cz_status add(const cz__file_shape *shape, void *context)
{
    const cz_tensor *t = &shape->tensor;
    if (cz__type_is_foreign(t->dtype)) { /* bytes that nothing trains */
        const int64_t bytes =
            cz__type_units(t->dtype, t->dimensions, t->shape) * (int64_t)cz__type_unit(t->dtype);
        return cz_shapes_add(context, shape->name, CZ_U8, 1, &bytes, CZ_SHAPE_BUFFER);
    }
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
    const bool written = copy && !ferror(copy);
    const bool complete = copy && fclose(copy) == 0 && written;
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

/* What its first bytes look like: JSON, a text; a safetensors file (a number of 8 bytes before its JSON), one of torch
 * (a zip archive, or a pickle as torch wrote it before). */
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
        return cz__checkpoint_shapes(path, add, shapes);
    CZ_TRY(open_file(&file, path));
    const form found = form_of(file);
    const cz_status status = found == TENSORS ? cz__checkpoint_shapes(path, add, shapes)
                                              : read_list(shapes, file, path, found);
    fclose(file);
    return status;
}

cz_status cz_shapes_read(cz_shapes **out, const char *path)
{
    CZ__OWN_FLOATS;
    CZ_TRY(cz_shapes_create(out));
    cz_status status = read_path(*out, path);
    if (status == CZ_OK && (*out)->count == 0)
        status =
            cz__fail(CZ_ERR_ARGUMENT,
                     "%s: there is no tensor in it. Wanted: lines such as 'w1 f32 768 3072', a "
                     "safetensors file, a file of torch, or a checkpoint",
                     path);
    if (status != CZ_OK)
        cz_shapes_destroy(out);
    return status;
}
