/* SPDX-License-Identifier: MIT */
/* Zip files that are written: libzip says what goes where, a target of ours gathers it in
 * blocks. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "io/container.h"
#include "io/stream.h"

enum {
    BLOCK = 4 << 20,
    ALIGNMENT = 64,
    PADDING_ID = 0x4246,   /* the extra field that torch pads with */
    HEADER = 30,           /* of an entry, without its name */
    FIELD = 4,             /* of an extra field, without its data */
    LARGE = 16 + FIELD,    /* the extra field of an entry of 4 GiB or more */
    FIRST_DAY = 1 << 5 | 1 /* 1 January 1980 */
};

typedef struct cz__container_row {
    char *path;          /* owned, as the next */
    char *block, *ahead; /* what is to be written, what was read */
    int file;
    uint64_t begin; /* of the zip file that is being written */
    uint64_t at;    /* where the block begins in it */
    size_t filled;  /* bytes in the block */
    uint64_t end;   /* of the zip file so far */
    cz_status status;
    zip_error_t error;
    struct source *sources; /* owned */
} writing;

typedef struct source {
    writing *w;
    const cz__container_item *item;
    uint64_t at;          /* given to libzip */
    uint64_t begin, held; /* what `ahead` has of it */
} source;

/* ---- the target ---- */

static int flush(writing *w)
{
    size_t done = 0;
    const int error = cz__write_all(w->file, w->block, w->filled, w->begin + w->at, &done);
    if (error) {
        w->status = cz__fail(CZ_ERR_IO, "%s: cannot be written at byte %" PRIu64 ": %s", w->path,
                             w->begin + w->at + done, strerror(error));
        zip_error_set(&w->error, ZIP_ER_WRITE, error);
        return -1;
    }
    w->at += w->filled;
    w->filled = 0;
    return 0;
}

static zip_int64_t put(writing *w, const char *data, zip_uint64_t count)
{
    for (zip_uint64_t done = 0; done < count;) {
        if (w->filled == BLOCK && flush(w) != 0)
            return -1;
        const size_t room = BLOCK - w->filled;
        const size_t part = count - done < room ? (size_t)(count - done) : room;
        memcpy(w->block + w->filled, data + done, part);
        w->filled += part;
        done += part;
    }
    if (w->at + w->filled > w->end)
        w->end = w->at + w->filled;
    return (zip_int64_t)count;
}

static zip_int64_t move(writing *w, void *data, zip_uint64_t count)
{
    const zip_int64_t to =
        zip_source_seek_compute_offset(w->at + w->filled, w->end, data, count, &w->error);
    if (to < 0 || flush(w) != 0)
        return -1;
    w->at = (uint64_t)to;
    return 0;
}

static zip_int64_t tell_about(uint64_t bytes, void *data)
{
    zip_stat_t *about = data;
    zip_stat_init(about);
    about->valid = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    about->size = about->comp_size = bytes;
    about->comp_method = ZIP_CM_STORE;
    return (zip_int64_t)sizeof *about;
}

static zip_int64_t target(void *context, void *data, zip_uint64_t count, zip_source_cmd_t command)
{
    writing *w = context;
    switch (command) {
    case ZIP_SOURCE_STAT:
        return tell_about(0, data);
    case ZIP_SOURCE_WRITE:
        return put(w, data, count);
    case ZIP_SOURCE_SEEK_WRITE:
        return move(w, data, count);
    case ZIP_SOURCE_TELL_WRITE:
        return (zip_int64_t)(w->at + w->filled);
    case ZIP_SOURCE_COMMIT_WRITE:
        return flush(w);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&w->error, data, count);
    case ZIP_SOURCE_OPEN:
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_READ:
    case ZIP_SOURCE_SEEK:
    case ZIP_SOURCE_TELL:
    case ZIP_SOURCE_FREE:
    case ZIP_SOURCE_BEGIN_WRITE:
    case ZIP_SOURCE_ROLLBACK_WRITE:
    case ZIP_SOURCE_REMOVE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS,
            ZIP_SOURCE_BEGIN_WRITE, ZIP_SOURCE_COMMIT_WRITE, ZIP_SOURCE_ROLLBACK_WRITE,
            ZIP_SOURCE_SEEK_WRITE, ZIP_SOURCE_TELL_WRITE, ZIP_SOURCE_WRITE, ZIP_SOURCE_REMOVE, -1);
    default:
        zip_error_set(&w->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* ---- entries ---- */

/* libzip asks for little at a time. */
static zip_int64_t give(source *s, char *to, zip_uint64_t count)
{
    writing *w = s->w;
    if (s->at == s->item->bytes)
        return 0;
    if (s->at == s->begin + s->held) {
        const uint64_t left = s->item->bytes - s->at;
        s->begin = s->at;
        s->held = left < BLOCK ? left : BLOCK;
        w->status = s->item->read(s->begin, w->ahead, (size_t)s->held, s->item->context);
        if (w->status != CZ_OK) {
            zip_error_set(&w->error, ZIP_ER_READ, 0);
            return -1;
        }
    }
    const uint64_t left = s->begin + s->held - s->at;
    const size_t part = (size_t)(count < left ? count : left);
    memcpy(to, w->ahead + (s->at - s->begin), part);
    s->at += part;
    return (zip_int64_t)part;
}

static zip_int64_t entry(void *context, void *data, zip_uint64_t count, zip_source_cmd_t command)
{
    source *s = context;
    switch (command) {
    case ZIP_SOURCE_OPEN:
        s->at = s->begin = s->held = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return give(s, data, count);
    case ZIP_SOURCE_STAT:
        return tell_about(s->item->bytes, data);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&s->w->error, data, count);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              ZIP_SOURCE_SUPPORTS, -1);
    default:
        return -1;
    }
}

static cz_status fail_zip(const writing *w, const zip_error_t *error)
{
    if (w->status != CZ_OK)
        return w->status;
    if (zip_error_code_zip(error) == ZIP_ER_MEMORY)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory to write it", w->path);
    return cz__fail(CZ_ERR_IO, "%s: cannot be written: libzip's error %d", w->path,
                    zip_error_code_zip(error));
}

/* Where the bytes of an entry whose header begins at *at would be; *at becomes the next header's
 * place. */
static size_t padding(uint64_t *at, const cz__container_item *item)
{
    const uint64_t data =
        *at + HEADER + strlen(item->name) + FIELD + (item->bytes >= UINT32_MAX ? LARGE : 0);
    const size_t pad = (size_t)(ALIGNMENT - data % ALIGNMENT) % ALIGNMENT;
    *at = data + pad + item->bytes;
    return pad;
}

static cz_status add_entry(writing *w, zip_t *zip, source *s, uint64_t *at)
{
    static const unsigned char zeros[ALIGNMENT];
    zip_source_t *from = zip_source_function(zip, entry, s);
    if (!from)
        return fail_zip(w, zip_get_error(zip));
    const zip_int64_t number = zip_file_add(zip, s->item->name, from, ZIP_FL_ENC_UTF_8);
    if (number < 0) {
        zip_source_free(from);
        return fail_zip(w, zip_get_error(zip));
    }
    const zip_uint64_t n = (zip_uint64_t)number;
    if (zip_set_file_compression(zip, n, ZIP_CM_STORE, 0) != 0 ||
        zip_file_set_dostime(zip, n, 0, FIRST_DAY, 0) != 0 ||
        zip_file_extra_field_set(zip, n, PADDING_ID, ZIP_EXTRA_FIELD_NEW, zeros,
                                 (zip_uint16_t)padding(at, s->item), ZIP_FL_LOCAL) != 0)
        return fail_zip(w, zip_get_error(zip));
    return CZ_OK;
}

static cz_status write_zip(writing *w, const cz__container_item *items, int64_t count)
{
    zip_error_t error;
    uint64_t at = 0;
    zip_error_init(&error);
    zip_source_t *to = zip_source_function_create(target, w, &error);
    zip_t *zip = to ? zip_open_from_source(to, ZIP_CREATE | ZIP_TRUNCATE, &error) : NULL;
    if (to && !zip)
        zip_source_free(to);
    cz_status status = zip ? CZ_OK : fail_zip(w, &error);
    zip_error_fini(&error);
    if (status)
        goto done;
    for (int64_t i = 0; i < count; i++) {
        w->sources[i] = (source){.w = w, .item = &items[i]};
        status = add_entry(w, zip, &w->sources[i], &at);
        if (status)
            goto done;
    }
    if (zip_close(zip) == 0)
        return CZ_OK;
    status = fail_zip(w, zip_get_error(zip));
done:
    if (zip)
        zip_discard(zip);
    return status;
}

cz_status cz__container_row_add(writing *w, const cz__container_item *items, int64_t count,
                                uint64_t *begin, uint64_t *bytes)
{
    w->at = w->filled = w->end = 0;
    w->sources = cz__calloc((size_t)count, sizeof *w->sources);
    const cz_status status = w->sources
                                 ? write_zip(w, items, count)
                                 : cz__fail(CZ_ERR_MEMORY, "%s: no memory to write it", w->path);
    cz__free(w->sources);
    w->sources = NULL;
    *begin = w->begin;
    *bytes = w->end;
    w->begin += w->end;
    return status;
}

static cz_status make_file(writing *w, const char *path)
{
    w->path = cz__strdup(path);
    w->block = cz__allocate(CZ_MEMORY_STAGING, BLOCK);
    w->ahead = cz__allocate(CZ_MEMORY_STAGING, BLOCK);
    if (!w->path || !w->block || !w->ahead)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory to write it", path);
    w->file = cz__open(path, O_WRONLY | O_CREAT | O_EXCL); /* follows no link */
    return w->file >= 0 ? CZ_OK
                        : cz__fail(CZ_ERR_IO, "%s: cannot be made: %s", path, strerror(errno));
}

cz_status cz__container_row_create(writing **out, const char *path)
{
    writing *w = *out = cz__calloc(1, sizeof *w);
    if (!w)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory to write it", path);
    w->file = -1;
    zip_error_init(&w->error);
    const cz_status status = make_file(w, path);
    if (status != CZ_OK)
        cz__container_row_destroy(out);
    return status;
}

void cz__container_row_destroy(writing **row)
{
    if (!row || !*row)
        return;
    writing *w = *row;
    if (w->file >= 0) {
        close(w->file);
        (void)unlink(w->path);
    }
    cz__free(w->path);
    cz__free(w->block);
    cz__free(w->ahead);
    cz__free(w);
    *row = NULL;
}

cz_status cz__container_row_finish(writing **row)
{
    writing *w = *row;
    cz_status status = CZ_OK;
    if (cz__system_used.synchronise(w->file) != 0)
        status = cz__fail(CZ_ERR_IO, "%s: cannot be synchronised: %s", w->path, strerror(errno));
    if (close(w->file) != 0 && status == CZ_OK && errno != EINTR)
        status = cz__fail(CZ_ERR_IO, "%s: cannot be closed: %s", w->path, strerror(errno));
    w->file = -1;
    if (status != CZ_OK)
        (void)unlink(w->path);
    cz__container_row_destroy(row);
    return status;
}

cz_status cz__container_write(const char *path, const cz__container_item *items, int64_t count)
{
    writing *w;
    uint64_t begin, bytes;
    CZ_TRY(cz__container_row_create(&w, path));
    const cz_status status = cz__container_row_add(w, items, count, &begin, &bytes);
    if (status == CZ_OK)
        return cz__container_row_finish(&w);
    cz__container_row_destroy(&w);
    return status;
}
