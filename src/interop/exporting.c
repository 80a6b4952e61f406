/* SPDX-License-Identifier: MIT */
/* What a rank writes of consolidated files: its spans, where they belong. Large ones go straight
 * from training state, those that lie side by side in the file are gathered. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "collective/shared.h"
#include "interop/consolidated.h"
#include "interop/exporting.h"
#include "io/folder.h"
#include "io/stream.h"

enum {
    BLOCK = 8 << 20, /* at once */
    LARGE = 1 << 20  /* not worth a copy */
};

void cz__exporting_clear(cz__exporting *e)
{
    cz__exporting_close_files(e);
    cz__layout_clear(&e->layout);
    cz__index_clear(&e->index);
    cz__free(e->runs);
    cz__free(e->buffer);
    cz__free(e->path);
    cz__free(e->elements);
    e->path = e->elements = NULL;
    e->runs = NULL;
    e->buffer = NULL;
}

cz_status cz__exporting_for_torch(cz__exporting *e, bool distributed)
{
    cz__text elements = {0};
    e->distributed = distributed;
    cz__text_print(&elements, "%s" CZ__ELEMENTS, e->path);
    e->elements = elements.failed ? NULL : cz__strdup(cz__text_get(&elements));
    cz__text_clear(&elements);
    return e->elements ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint export: no memory for a path");
}

size_t cz__exporting_bytes(void)
{
    return BLOCK;
}

/* ---- which ---- */

static cz_status append(cz__exporting *e, cz__run run)
{
    if (run.bytes == 0)
        return CZ_OK;
    cz__run *runs = cz__grow(e->runs, e->count, &e->capacity, sizeof *runs);
    if (!runs)
        return cz__fail(CZ_ERR_MEMORY,
                        "checkpoint export: no memory for a list of %" PRId64 " spans",
                        e->count + 1);
    e->runs = runs;
    e->runs[e->count++] = run;
    return CZ_OK;
}

typedef struct collecting {
    cz__exporting *e;
    cz__text name;
} collecting;

static cz_status add_piece(const cz__piece *piece, void *context)
{
    collecting *c = context;
    const cz__exporting *e = c->e;
    const size_t size = cz__type_unit(piece->dtype);
    cz__run run = {
        .data = cz__contents_address(e->checkpoint, piece->stored, piece->slot, piece->begin),
        .bytes = (size_t)(piece->end - piece->begin) * size,
        .device = cz__contents_device(e->checkpoint, piece->stored)};
    if (piece->slot && e->options.parameters_only)
        return CZ_OK;
    CZ_TRY(cz__consolidated_name(&c->name, e->index.stored[piece->stored].name, piece->slot));
    cz__layout_find(&e->layout, cz__text_get(&c->name), &run.file, &run.offset);
    run.offset += (uint64_t)piece->begin * size;
    return append(c->e, run);
}

/* Rank 0 writes what all ranks have: headers, the common dictionary. */
static cz_status add_shared(cz__exporting *e)
{
    for (int f = 0; f < e->layout.count; f++)
        CZ_TRY(append(e, (cz__run){f, 0, e->layout.files[f].head, e->layout.files[f].head_bytes,
                                   cz_device_cpu()}));
    for (int64_t i = 0; i < e->layout.common_count; i++) {
        const cz__layout_common *c = &e->layout.common[i];
        cz__run run = {.data = c->tensor.data,
                       .bytes =
                           (size_t)cz_tensor_count(&c->tensor) * cz_dtype_size(c->tensor.dtype),
                       .device = cz_device_cpu()};
        cz__layout_find(&e->layout, c->name, &run.file, &run.offset);
        CZ_TRY(append(e, run));
    }
    return CZ_OK;
}

static int by_place(const void *left, const void *right)
{
    const cz__run *a = left, *b = right;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

cz_status cz__exporting_prepare(cz__exporting *e)
{
    const int rank = cz_group_rank(e->checkpoint->group);
    collecting c = {e, {0}};
    CZ_TRY(
        cz__layout_create(&e->layout, &e->index, e->elements ? e->elements : e->path, &e->options));
    CZ_TRY(cz__exporting_have_files(e));
    cz_status status = cz__index_visit(&e->index, rank, add_piece, &c);
    cz__text_clear(&c.name);
    if (!status && rank == 0)
        status = add_shared(e);
    if (status != CZ_OK)
        return status;
    if (e->count > 0)
        qsort(e->runs, (size_t)e->count, sizeof *e->runs, by_place);
    e->buffer = cz__allocate(CZ_MEMORY_STAGING, BLOCK);
    return e->buffer ? CZ_OK
                     : cz__fail(CZ_ERR_MEMORY,
                                "checkpoint export: no memory for a buffer of %d bytes", BLOCK);
}

/* ---- writing ---- */

/* One file; what is in the buffer, and where it goes. */
typedef struct output {
    const char *path;
    int file;
    char *buffer;
    size_t filled;
    uint64_t offset;
} output;

static cz_status write_bytes(const output *o, const char *data, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    const int error = cz__write_all(o->file, data, bytes, offset, &done);
    return error ? cz__fail(CZ_ERR_IO,
                            "%s" CZ__UNFINISHED ": cannot be written at byte %" PRIu64 ": %s",
                            o->path, offset + done, strerror(error))
                 : CZ_OK;
}

static cz_status flush(output *o)
{
    const size_t bytes = o->filled;
    o->filled = 0;
    return write_bytes(o, o->buffer, bytes, o->offset);
}

static cz_status gather(output *o, const cz__run *run)
{
    for (size_t done = 0, part; done < run->bytes; done += part) {
        if (o->filled == BLOCK || o->offset + o->filled != run->offset + done)
            CZ_TRY(flush(o));
        if (o->filled == 0)
            o->offset = run->offset + done;
        part = run->bytes - done < BLOCK - o->filled ? run->bytes - done : BLOCK - o->filled;
        CZ_TRY(run->device->copy(NULL, o->buffer + o->filled, run->data + done, part));
        o->filled += part;
    }
    return CZ_OK;
}

static cz_status write_runs(output *o, const cz__run *runs, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (runs[i].bytes < LARGE || runs[i].device != cz_device_cpu()) {
            CZ_TRY(gather(o, &runs[i]));
            continue;
        }
        CZ_TRY(flush(o));
        CZ_TRY(write_bytes(o, runs[i].data, runs[i].bytes, runs[i].offset));
    }
    return flush(o);
}

static cz_status write_file(cz__exporting *e, int number, const cz__run *runs, int64_t count)
{
    output o = {.path = e->layout.files[number].path, .buffer = e->buffer};
    int error;
    CZ_TRY(cz__exporting_open(e, number, &o.file, &error));
    cz_status status = write_runs(&o, runs, count);
    if (!status && cz__system_used.synchronise(o.file) != 0)
        status = cz__fail(CZ_ERR_IO, "%s" CZ__UNFINISHED ": cannot be synchronised: %s", o.path,
                          strerror(errno));
    error = cz__exporting_release(e, number);
    if (error && status == CZ_OK)
        status = cz__fail(CZ_ERR_IO, "%s" CZ__UNFINISHED ": cannot be closed: %s", o.path,
                          strerror(error));
    return status;
}

cz_status cz__exporting_write(cz__exporting *e)
{
    for (int64_t i = 0, next; i < e->count; i = next) {
        for (next = i; next < e->count && e->runs[next].file == e->runs[i].file;)
            next++;
        CZ_TRY(write_file(e, e->runs[i].file, e->runs + i, next - i));
    }
    return CZ_OK;
}

int64_t cz__exporting_share(const cz__exporting *e)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < e->count; i++)
        bytes += (int64_t)e->runs[i].bytes;
    return bytes;
}

int64_t cz__exporting_total(const cz__exporting *e)
{
    int64_t bytes = 0;
    for (int f = 0; f < e->layout.count; f++)
        bytes += (int64_t)cz__layout_bytes(&e->layout, f);
    return bytes;
}

/* The beginning of a file against what was to be there. */
static cz_status compare_head(const cz__exporting *e, const cz__layout_file *f, int file)
{
    for (size_t at = 0, part; at < f->head_bytes; at += part) {
        part = f->head_bytes - at < BLOCK ? f->head_bytes - at : BLOCK;
        const ssize_t got = cz__system_used.read(file, e->buffer, part, (off_t)at);
        if (got < 0)
            return cz__fail(CZ_ERR_IO, "%s" CZ__UNFINISHED ": cannot be read: %s", f->path,
                            strerror(errno));
        part = (size_t)got;
        if (got == 0 || memcmp(e->buffer, f->head + at, part) != 0)
            return cz__fail(
                CZ_ERR_FORMAT,
                "%s" CZ__UNFINISHED
                ": its header is not the one that was written: nothing is replaced by it",
                f->path);
    }
    return CZ_OK;
}

static cz_status confirm_file(cz__exporting *e, int number)
{
    const cz__layout_file *f = &e->layout.files[number];
    const uint64_t wanted = cz__layout_bytes(&e->layout, number);
    struct stat about;
    int file, error;
    CZ_TRY(cz__exporting_open(e, number, &file, &error));
    cz_status status = compare_head(e, f, file);
    if (status)
        goto done;
    if (fstat(file, &about) != 0)
        status = cz__fail(CZ_ERR_IO, "%s" CZ__UNFINISHED ": cannot be looked at: %s", f->path,
                          strerror(errno));
    if (status)
        goto done;
    if ((uint64_t)about.st_size != wanted)
        status = cz__fail(CZ_ERR_FORMAT,
                          "%s" CZ__UNFINISHED ": it has %" PRId64 " bytes, %" PRIu64
                          " were written: nothing is replaced by it",
                          f->path, (int64_t)about.st_size, wanted);
done:
    (void)cz__exporting_release(e, number);
    return status;
}

cz_status cz__exporting_confirm(cz__exporting *e)
{
    for (int f = 0; f < e->layout.count; f++)
        CZ_TRY(confirm_file(e, f));
    return CZ_OK;
}

cz_status cz__exporting_see(cz__exporting *e)
{
    uint8_t found[CZ__TOKEN_BYTES] = {0};
    const char *path = e->layout.files[0].path;
    int file, error;
    const cz_status status = cz__exporting_open(e, 0, &file, &error);
    if (error == ENOENT)
        return cz__fail(CZ_ERR_IO,
                        "%s" CZ__UNFINISHED ": rank 0 has made it, and it is not there for this "
                        "rank: the folder must be one that all ranks share",
                        path);
    CZ_TRY(status);
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM); /* nothing of others stays in memory here */
    size_t got = 0;
    ssize_t part = 1;
    for (; part > 0 && got<sizeof found; got += part> 0 ? (size_t)part : 0)
        part = cz__system_used.read(file, found + got, sizeof found - got, (off_t)got);
    error = errno;
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_NORMAL);
    if (part < 0)
        return cz__fail(CZ_ERR_IO, "%s" CZ__UNFINISHED ": cannot be read: %s", path,
                        strerror(error));
    if (got == sizeof found && memcmp(found, e->token, sizeof found) == 0)
        return CZ_OK;
    return cz__fail(
        CZ_ERR_IO,
        "%s" CZ__UNFINISHED
        ": it is not the file that rank 0 has made: the folder must be one that all ranks share",
        path);
}

/* ---- its files ---- */

enum { MOST_OPEN = 64 }; /* the rest is opened again, and compared again */

cz_status cz__exporting_have_files(cz__exporting *e)
{
    const size_t count = (size_t)e->layout.count;
    e->files = cz__calloc(count, sizeof *e->files);
    e->inodes = cz__calloc(count + 1, sizeof *e->inodes);
    for (size_t f = 0; e->files && f < count; f++)
        e->files[f] = -1;
    return e->files && e->inodes
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "checkpoint export: no memory for a list of files");
}

void cz__exporting_close_files(cz__exporting *e)
{
    if (e->files) {
        for (int f = 0; f < e->layout.count; f++)
            if (e->files[f] >= 0)
                close(e->files[f]);
    }
    cz__free(e->files);
    cz__free(e->inodes);
    e->files = NULL;
    e->inodes = NULL;
}

/* Of this machine: numbers of files are the same on it. */
static int64_t number_host(void)
{
    char host[64];
    cz__shared_host(host);
    return (int64_t)cz__fingerprint(0, host, sizeof host);
}

/* Behind the files' numbers. */
static int64_t *host_of(const cz__exporting *e)
{
    return &e->inodes[e->layout.count];
}

int cz__exporting_made(cz__exporting *e, int number, int file)
{
    struct stat about;
    e->files[number] = file;
    if (fstat(file, &about) != 0)
        return errno;
    e->inodes[number] = (int64_t)about.st_ino;
    *host_of(e) = number_host();
    return 0;
}

static cz_status exchanged(const char *path)
{
    return cz__fail(CZ_ERR_IO,
                    "%s: it is not the file that rank 0 has made: another program has put another "
                    "one in its place, or the folder is not one that all ranks share",
                    path);
}

/* A link of either kind could lead to any file. Other machines may number files otherwise. */
static bool is_the_file(const cz__exporting *e, int number, const struct stat *about)
{
    if (!S_ISREG(about->st_mode))
        return false;
    return *host_of(e) == number_host() ? (int64_t)about->st_ino == e->inodes[number]
                                        : about->st_nlink == 1;
}

static cz_status open_again(cz__exporting *e, int number, const char *path, int *error)
{
    struct stat about = {0};
    const int file = cz__open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    *error = file < 0 || fstat(file, &about) != 0 ? errno : 0;
    if (*error == 0 && is_the_file(e, number, &about)) {
        e->files[number] = file;
        return CZ_OK;
    }
    if (file >= 0)
        close(file);
    return *error == 0 || (file < 0 && *error == ELOOP)
               ? exchanged(path)
               : cz__fail(CZ_ERR_IO, "%s: cannot be opened: %s", path, strerror(*error));
}

cz_status cz__exporting_open(cz__exporting *e, int number, int *file, int *error)
{
    cz__text name = {0};
    *error = 0;
    cz_status status = CZ_OK;
    if (e->files[number] < 0)
        status = cz__unfinished_name(&name, e->layout.files[number].path);
    if (!status && e->files[number] < 0)
        status = open_again(e, number, cz__text_get(&name), error);
    cz__text_clear(&name);
    *file = e->files[number];
    return status;
}

int cz__exporting_release(cz__exporting *e, int number)
{
    const int file = e->files[number];
    if (number < MOST_OPEN || file < 0)
        return 0;
    e->files[number] = -1;
    return close(file) != 0 && errno != EINTR ? errno : 0;
}

cz_status cz__exporting_check_name(const cz__exporting *e, int number, const char *path,
                                   bool *other)
{
    struct stat there = {0}, mine = {0};
    const int file = e->files[number];
    *other = false;
    const bool seen = lstat(path, &there) == 0;
    if ((!seen && errno != ENOENT) || (file >= 0 && fstat(file, &mine) != 0))
        return cz__fail(CZ_ERR_IO, "%s: cannot be seen: %s", path, strerror(errno));
    *other = !seen || !S_ISREG(there.st_mode);
    if (file >= 0)
        *other = *other || there.st_dev != mine.st_dev || there.st_ino != mine.st_ino;
    else
        *other = *other || (int64_t)there.st_ino != e->inodes[number];
    return *other ? exchanged(path) : CZ_OK;
}
