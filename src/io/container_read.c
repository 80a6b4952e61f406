/* SPDX-License-Identifier: MIT */
/* Zip files that are read. libzip reads through a source of ours, which sees where the bytes of an
 * entry are: from there they are read without it, any part of them, by any number of calls. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "base/memory.h"
#include "base/status.h"
#include "io/container.h"
#include "io/text.h"

#define PIECE ((uint64_t)64 << 10) /* of an entry that is verified: some blocks, or one */

/* What libzip reads from. */
typedef struct input {
    cz__reader *reader; /* borrowed */
    cz__verified part;  /* of the file that is one; with checksums: compared */
    cz__held held;      /* owned */
    uint64_t at, last;  /* in it: the next byte; the first of the last read */
    cz_status status;   /* of a read that failed */
    zip_error_t error;
} input;

struct cz__container {
    char *path; /* owned, as all that follow, but for the reader of a part of a file */
    cz__reader *reader;
    bool lent; /* the reader */
    zip_t *zip;
    cz__container_entry *entries;
    int64_t count;
    input input;
    uint64_t block; /* bytes */
    uint64_t *sums; /* owned: checksums of the blocks of all entries */
    int64_t sum_count;
    cz__held held;
};

/* ---- the source ---- */

static zip_int64_t read_bytes(input *in, void *data, zip_uint64_t count)
{
    in->last = in->at;
    if (in->at >= in->part.bytes)
        return 0;
    if (count > in->part.bytes - in->at)
        count = in->part.bytes - in->at;
    in->status = in->part.sums
                     ? cz__reader_read_verified(in->reader, &in->part, &in->held, in->at, data,
                                                (size_t)count)
                     : cz__reader_read(in->reader, in->part.begin + in->at, data, (size_t)count);
    if (in->status != CZ_OK) {
        zip_error_set(&in->error, ZIP_ER_READ, 0);
        return -1;
    }
    in->at += count;
    return (zip_int64_t)count;
}

static zip_int64_t seek(input *in, void *data, zip_uint64_t count)
{
    const zip_int64_t at =
        zip_source_seek_compute_offset(in->at, in->part.bytes, data, count, &in->error);
    if (at < 0)
        return -1;
    in->at = (uint64_t)at;
    return 0;
}

static zip_int64_t tell_about(const input *in, void *data)
{
    zip_stat_t *about = data;
    zip_stat_init(about);
    about->valid = ZIP_STAT_SIZE;
    about->size = in->part.bytes;
    return (zip_int64_t)sizeof *about;
}

static zip_int64_t answer(void *context, void *data, zip_uint64_t count, zip_source_cmd_t command)
{
    input *in = context;
    switch (command) {
    case ZIP_SOURCE_OPEN:
        in->at = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return read_bytes(in, data, count);
    case ZIP_SOURCE_SEEK:
        return seek(in, data, count);
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)in->at;
    case ZIP_SOURCE_STAT:
        return tell_about(in, data);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&in->error, data, count);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
    default:
        zip_error_set(&in->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* libzip takes memory that it does not get for an end of the file. Before each of its calls: */
static void forget_error(void)
{
    errno = 0;
}

/* What libzip says, or what our own read has met. `what`: NULL, or the entry. */
static cz_status fail(const cz__container *c, const zip_error_t *error, const char *what)
{
    if (c->input.status != CZ_OK)
        return c->input.status;
    if (zip_error_code_zip(error) == ZIP_ER_MEMORY || errno == ENOMEM)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", c->path);
    if (zip_error_code_zip(error) == ZIP_ER_CRC)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: %s: its bytes are not those of its CRC: it is damaged, or was written "
                        "without CRCs",
                        c->path, cz__show(what ? what : "").text);
    zip_error_t copy = *error; /* its text is made on demand */
    copy.str = NULL;
    const cz_status status =
        cz__fail(CZ_ERR_FORMAT, "%s: %s%sno zip file that can be read: %s", c->path,
                 what ? cz__show(what).text : "", what ? ": " : "", zip_error_strerror(&copy));
    zip_error_fini(&copy);
    return status;
}

/* ---- entries ---- */

static const char *unusual(const zip_stat_t *about)
{
    if (about->valid & ZIP_STAT_ENCRYPTION_METHOD && about->encryption_method != ZIP_EM_NONE)
        return "encrypted";
    return about->comp_method != ZIP_CM_STORE || about->comp_size != about->size ? "compressed"
                                                                                 : NULL;
}

/* The bytes of an entry are where libzip reads its first one. */
static cz_status locate(cz__container *c, cz__container_entry *e)
{
    char first;
    forget_error();
    zip_file_t *file = zip_fopen_index(c->zip, e->number, ZIP_FL_COMPRESSED);
    if (!file)
        return fail(c, zip_get_error(c->zip), e->name);
    const zip_int64_t got = zip_fread(file, &first, 1);
    cz_status status = CZ_OK;
    e->offset = c->input.part.begin + c->input.last;
    if (got != 1)
        status = fail(c, zip_file_get_error(file), e->name);
    else if (e->bytes > c->input.part.bytes - c->input.last)
        status = cz__fail(CZ_ERR_FORMAT, "%s: %s: it ends beyond the end of the file", c->path,
                          cz__show(e->name).text);
    (void)zip_fclose(file);
    return status;
}

static cz_status read_entry(cz__container *c, zip_uint64_t number)
{
    const zip_uint64_t wanted =
        ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    zip_stat_t about;
    cz__container_entry *e = &c->entries[c->count];
    forget_error();
    if (zip_stat_index(c->zip, number, 0, &about) != 0)
        return fail(c, zip_get_error(c->zip), NULL);
    if ((about.valid & wanted) != wanted)
        return cz__fail(CZ_ERR_FORMAT, "%s: entry %" PRIu64 " has no size", c->path,
                        (uint64_t)number);
    *e = (cz__container_entry){.name = cz__strdup(about.name),
                               .bytes = about.size,
                               .number = number,
                               .crc = about.crc,
                               .unusual = unusual(&about)};
    if (!e->name)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a list of entries", c->path);
    c->count++;
    return e->bytes > 0 && !e->unusual ? locate(c, e) : CZ_OK;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const cz__container_entry *)left)->name,
                  ((const cz__container_entry *)right)->name);
}

static int by_place(const void *left, const void *right)
{
    const cz__container_entry *a = left, *b = right;
    return a->offset != b->offset ? (a->offset > b->offset) - (a->offset < b->offset)
                                  : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Entries that share bytes are a trap: a small file with a lot in it. */
static cz_status check_places(cz__container *c)
{
    const cz__container_entry *before = NULL;
    qsort(c->entries, (size_t)c->count, sizeof *c->entries, by_place);
    for (int64_t i = 0; i < c->count; i++) {
        const cz__container_entry *e = &c->entries[i];
        if (e->bytes == 0 || e->unusual)
            continue;
        if (before && e->offset - before->offset < before->bytes)
            return cz__fail(CZ_ERR_FORMAT, "%s: %s and %s share bytes", c->path,
                            cz__show(before->name).text, cz__show(e->name).text);
        before = e;
    }
    return CZ_OK;
}

static cz_status check_names(cz__container *c)
{
    qsort(c->entries, (size_t)c->count, sizeof *c->entries, by_name);
    for (int64_t i = 1; i < c->count; i++)
        if (by_name(&c->entries[i - 1], &c->entries[i]) == 0)
            return cz__fail(CZ_ERR_FORMAT, "%s: %s is there twice", c->path,
                            cz__show(c->entries[i].name).text);
    return CZ_OK;
}

/* ---- blocks ---- */

static cz__verified region_of(const cz__container *c, const cz__container_entry *e)
{
    return (cz__verified){e->offset, e->bytes, c->block, c->sums + e->first_sum};
}

static uint64_t piece_of(const cz__container *c)
{
    return c->block < PIECE ? PIECE : c->block;
}

/* What reading will need. */
static cz_status have_blocks(cz__container *c)
{
    c->block = cz__verified_block(cz__reader_bytes(c->reader));
    for (int64_t i = 0; i < c->count; i++) {
        cz__container_entry *e = &c->entries[i];
        e->first_sum = c->sum_count;
        if (!e->unusual)
            c->sum_count += (int64_t)((e->bytes + c->block - 1) / c->block);
    }
    c->sums = cz__calloc((size_t)c->sum_count + 1, sizeof *c->sums);
    if (!c->sums)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for checksums of blocks", c->path);
    const cz__verified any = {.bytes = piece_of(c), .block = piece_of(c)};
    return cz__held_have(&c->held, c->path, &any);
}

static cz_status read_entries(cz__container *c)
{
    const zip_int64_t count = zip_get_num_entries(c->zip, 0);
    c->entries = cz__calloc((size_t)count, sizeof *c->entries);
    if (!c->entries)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a list of entries", c->path);
    for (zip_int64_t i = 0; i < count; i++)
        CZ_TRY(read_entry(c, (zip_uint64_t)i));
    if (c->count == 0)
        return cz__fail(CZ_ERR_FORMAT, "%s: a zip file with nothing in it", c->path);
    CZ_TRY(check_places(c));
    CZ_TRY(check_names(c));
    return have_blocks(c);
}

/* ---- opening ---- */

static cz_status open_zip(cz__container *c)
{
    zip_error_t error;
    zip_error_init(&error);
    zip_error_init(&c->input.error);
    zip_source_t *source = zip_source_function_create(answer, &c->input, &error);
    forget_error();
    if (source)
        c->zip = zip_open_from_source(source, ZIP_RDONLY, &error);
    if (source && !c->zip)
        zip_source_free(source);
    const cz_status status = c->zip ? CZ_OK : fail(c, &error, NULL);
    zip_error_fini(&error);
    return status;
}

static cz_status no_memory(const char *path)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", path);
}

static cz_status create(cz__container **out, const char *path)
{
    cz__container *c = *out = cz__calloc(1, sizeof *c);
    if (c)
        c->path = cz__strdup(path);
    if (c && c->path)
        return CZ_OK;
    cz__container_close(out);
    return no_memory(path);
}

static cz_status open_part(cz__container **out, const cz__verified *part)
{
    cz__container *c = *out;
    c->input = (input){.reader = c->reader, .part = *part};
    cz_status status = open_zip(c);
    if (!status)
        status = read_entries(c);
    if (status != CZ_OK)
        cz__container_close(out);
    return status;
}

/* All of what is to be opened. */
static cz_status open_all(cz__container **out, cz_status status)
{
    if (status == CZ_OK)
        return open_part(out, &(cz__verified){.bytes = cz__reader_bytes((*out)->reader)});
    cz__container_close(out);
    return status;
}

cz_status cz__container_open(cz__container **out, const char *path)
{
    CZ_TRY(create(out, path));
    return open_all(out, cz__reader_open(&(*out)->reader, path));
}

cz_status cz__container_open_part(cz__container **out, const char *path, cz__reader *reader,
                                  const cz__verified *part)
{
    CZ_TRY(create(out, path));
    (*out)->reader = reader;
    (*out)->lent = true;
    return open_part(out, part);
}

cz_status cz__container_pretend(cz__container **out, const char *path, const void *bytes,
                                size_t count)
{
    CZ_TRY(create(out, path));
    return open_all(out, cz__reader_pretend(&(*out)->reader, path, bytes, count));
}

void cz__container_close(cz__container **container)
{
    if (!container || !*container)
        return;
    cz__container *c = *container;
    if (c->zip)
        zip_discard(c->zip);
    for (int64_t i = 0; i < c->count; i++)
        cz__free(c->entries[i].name);
    if (!c->lent)
        cz__reader_close(&c->reader);
    cz__held_clear(&c->held);
    cz__held_clear(&c->input.held);
    cz__free(c->sums);
    cz__free(c->entries);
    cz__free(c->path);
    cz__free(c);
    *container = NULL;
}

int64_t cz__container_count(const cz__container *c)
{
    return c->count;
}

const cz__container_entry *cz__container_at(const cz__container *c, int64_t index)
{
    return index >= 0 && index < c->count ? &c->entries[index] : NULL;
}

const cz__container_entry *cz__container_find(const cz__container *c, const char *name)
{
    const cz__container_entry key = {.name = (char *)(uintptr_t)name};
    return bsearch(&key, c->entries, (size_t)c->count, sizeof *c->entries, by_name);
}

/* ---- bytes ---- */

static cz_status check_usual(const cz__container *c, const cz__container_entry *e)
{
    return e->unusual
               ? cz__fail(CZ_ERR_FORMAT, "%s: %s is %s, wanted it as it is: torch writes it so",
                          c->path, cz__show(e->name).text, e->unusual)
               : CZ_OK;
}

/* As many bytes as there are, `most` at most; libzip compares the CRC when it is asked for more
 * than there are. */
static cz_status read_some(cz__container *c, const cz__container_entry *e, zip_file_t *file,
                           char *to, size_t most, size_t *count)
{
    zip_int64_t got = 1;
    for (*count = 0; got > 0 && *count<most; *count += got> 0 ? (size_t)got : 0)
        got = zip_fread(file, to + *count, most - *count);
    return got < 0 ? fail(c, zip_file_get_error(file), e->name) : CZ_OK;
}

static void take_sums(cz__container *c, const cz__container_entry *e, uint64_t done, size_t count)
{
    uint64_t *sum = c->sums + e->first_sum + done / c->block;
    for (size_t at = 0; at < count; at += (size_t)c->block) {
        const size_t left = count - at;
        *sum++ = cz__checksum_of(c->held.bytes + at, left < c->block ? left : (size_t)c->block).low;
    }
}

/* Through libzip, all of it: to `to`, or piece by piece, and checksums of blocks are taken. */
static cz_status go_through(cz__container *c, const cz__container_entry *e, char *to)
{
    cz_status status = CZ_OK;
    uint64_t done = 0;
    size_t got = 1;
    forget_error();
    zip_file_t *file = zip_fopen_index(c->zip, e->number, 0);
    if (!file)
        return fail(c, zip_get_error(c->zip), e->name);
    while (got > 0) {
        const uint64_t left = e->bytes - done;
        const bool direct = to && left > 0;
        status = read_some(c, e, file, direct ? to + done : c->held.bytes,
                           (size_t)(direct ? left : piece_of(c)), &got);
        if (!status && got > left)
            status = fail(c, zip_file_get_error(file), e->name);
        if (status)
            break;
        if (!to)
            take_sums(c, e, done, got);
        done += got;
    }
    if (!status && done != e->bytes)
        status = fail(c, zip_file_get_error(file), e->name);
    (void)zip_fclose(file);
    return status;
}

cz_status cz__container_take(cz__container *c, const cz__container_entry *e, size_t most,
                             char **bytes)
{
    *bytes = NULL;
    CZ_TRY(check_usual(c, e));
    if (e->bytes > most)
        return cz__fail(CZ_ERR_FORMAT, "%s: %s has %" PRIu64 " bytes, wanted at most %zu", c->path,
                        cz__show(e->name).text, e->bytes, most);
    char *all = cz__calloc((size_t)e->bytes + 1, 1);
    if (!all)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", c->path);
    c->held.count = 0;
    const cz_status status = go_through(c, e, all);
    if (status != CZ_OK)
        cz__free(all);
    else
        *bytes = all;
    return status;
}

cz_status cz__container_verify(cz__container *c, const cz__container_entry *e)
{
    cz__container_leave(c, e);
    CZ_TRY(check_usual(c, e));
    CZ_TRY(go_through(c, e, NULL));
    cz__container_trust(c, e);
    return CZ_OK;
}

cz_status cz__container_read(cz__container *c, const cz__container_entry *e, uint64_t offset,
                             void *to, size_t count)
{
    if (!e->verified)
        CZ_TRY(cz__container_verify(c, e));
    const cz__verified region = region_of(c, e);
    return cz__reader_read_verified(c->reader, &region, &c->held, offset, to, count);
}

void cz__container_leave(cz__container *c, const cz__container_entry *e)
{
    const int64_t at = e - c->entries, end = at + 1 < c->count ? e[1].first_sum : c->sum_count;
    c->held.count = 0; /* of what it was */
    c->entries[at].verified = false;
    memset(c->sums + e->first_sum, 0, (size_t)(end - e->first_sum) * sizeof *c->sums);
}

uint64_t *cz__container_sums(cz__container *c, int64_t *count)
{
    *count = c->sum_count;
    return c->sums;
}

void cz__container_trust(cz__container *c, const cz__container_entry *e)
{
    c->entries[e - c->entries].verified = true;
}
