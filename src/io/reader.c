/* SPDX-License-Identifier: MIT */
/* The reader. The kernel is told that files are read from one end to the other: it then reads ahead
 * by itself, so that the medium works while the checksum of what came is computed. What the page
 * cache has is taken from there. */
#include "io/stream.h"

#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)256 << 10) /* read at once; still in a cache for its checksum */

struct cz__reader {
    char *path; /* owned */
    int file;   /* -1: it is in memory */
    uint64_t bytes;
    const char *memory; /* borrowed */
};

static cz_status create(cz__reader **out, const char *path)
{
    cz__reader *reader = cz__calloc(1, sizeof *reader);
    *out = NULL;
    if (!reader || !(reader->path = cz__strdup(path))) {
        cz__free(reader);
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a reader", path);
    }
    reader->file = -1;
    *out = reader;
    return CZ_OK;
}

cz_status cz__reader_pretend(cz__reader **out, const char *path, const void *bytes, size_t count)
{
    CZ_TRY(create(out, path));
    (*out)->memory = bytes;
    (*out)->bytes = count;
    return CZ_OK;
}

void (*cz__reader_tell)(uint64_t device, uint64_t number);
static _Thread_local bool missed;

bool cz__reader_missed(void)
{
    return missed;
}

static cz_status open_file(cz__reader *reader)
{
    struct stat about;
    reader->file = cz__open(reader->path, O_RDONLY | O_NONBLOCK); /* a pipe would make it wait */
    missed = reader->file < 0 && (errno == ENOENT || errno == ENOTDIR);
    if (reader->file < 0 || fstat(reader->file, &about) != 0)
        return cz__fail(CZ_ERR_IO, "%s: cannot be opened: %s", reader->path, strerror(errno));
    missed = !S_ISREG(about.st_mode);
    if (missed)
        return cz__fail(CZ_ERR_IO, "%s: is a %s, not a file", reader->path,
                        S_ISDIR(about.st_mode) ? "folder" : "device, pipe or socket");
    reader->bytes = (uint64_t)about.st_size;
    (void)posix_fadvise(reader->file, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (cz__reader_tell)
        cz__reader_tell((uint64_t)about.st_dev, (uint64_t)about.st_ino);
    return CZ_OK;
}

cz_status cz__reader_open(cz__reader **out, const char *path)
{
    CZ_TRY(create(out, path));
    const cz_status status = open_file(*out);
    if (status != CZ_OK)
        cz__reader_close(out);
    return status;
}

void cz__reader_close(cz__reader **reader)
{
    if (!reader || !*reader)
        return;
    if ((*reader)->file >= 0)
        close((*reader)->file);
    cz__free((*reader)->path);
    cz__free(*reader);
    *reader = NULL;
}

uint64_t cz__reader_bytes(const cz__reader *reader)
{
    return reader->bytes;
}

int cz__reader_file(const cz__reader *reader)
{
    return reader->file;
}

static cz_status too_short(const cz__reader *reader, uint64_t end, uint64_t offset, uint64_t count)
{
    return cz__fail(CZ_ERR_FORMAT,
                    "%s: ends after %" PRIu64 " bytes, %" PRIu64 " are wanted from byte %" PRIu64
                    " on: it is incomplete or damaged",
                    reader->path, end, count, offset);
}

static cz_status check_range(const cz__reader *reader, uint64_t offset, uint64_t count)
{
    if (offset > reader->bytes || count > reader->bytes - offset)
        return too_short(reader, reader->bytes, offset, count);
    return CZ_OK;
}

static cz_status read_piece(const cz__reader *reader, uint64_t offset, char *to, size_t count)
{
    if (reader->memory) {
        memcpy(to, reader->memory + offset, count);
        return CZ_OK;
    }
    for (size_t done = 0; done < count;) {
        const ssize_t now =
            cz__system_used.read(reader->file, to + done, count - done, (off_t)(offset + done));
        if (now < 0 && errno != EINTR)
            return cz__fail(CZ_ERR_IO, "%s: cannot be read at byte %" PRIu64 ": %s", reader->path,
                            offset + done, strerror(errno));
        if (now == 0) /* it was cut after it was opened */
            return too_short(reader, offset + done, offset + done, count - done);
        done += now > 0 ? (size_t)now : 0;
    }
    return CZ_OK;
}

/* Read a part piece by piece: one after the other to `to`, or all to the same place and added to
 * `state`. No second thread, and no advice on each piece: neither was faster where the medium is
 * what takes time, and both were slower where it is not. */
static cz_status read_part(const cz__reader *reader, uint64_t offset, uint64_t count, char *to,
                           cz__checksum_state *state, cz__block_sums *sums)
{
    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done;
        const size_t piece = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        CZ_TRY(read_piece(reader, offset + done, state ? to : to + done, piece));
        if (state)
            cz__checksum_add(state, to, piece);
        if (sums)
            cz__block_sums_add(sums, to, piece);
        done += piece;
    }
    return CZ_OK;
}

cz_status cz__reader_read(cz__reader *reader, uint64_t offset, void *to, size_t count)
{
    CZ_TRY(check_range(reader, offset, count));
    return read_part(reader, offset, count, to, NULL, NULL);
}

cz_status cz__reader_checksum(cz__reader *reader, uint64_t offset, uint64_t count,
                              cz__checksum *checksum)
{
    return cz__reader_checksums(reader, offset, count, checksum, NULL);
}

cz_status cz__reader_checksums(cz__reader *reader, uint64_t offset, uint64_t count,
                               cz__checksum *checksum, cz__block_sums *sums)
{
    CZ_TRY(check_range(reader, offset, count));
    char *piece = cz__allocate(CZ_MEMORY_STAGING, PIECE_BYTES);
    cz__checksum_state *state = cz__checksum_begin();
    cz_status status = CZ_ERR_MEMORY;
    if (!piece || !state)
        cz__fail(status, "%s: no memory to take a checksum", reader->path);
    else
        status = read_part(reader, offset, count, piece, state, sums);
    if (!status)
        *checksum = cz__checksum_take(state);
    cz__checksum_end(state);
    cz__free(piece);
    return status;
}

/* ---- what was verified, once more: is it the same? ---- */

/* Whole blocks that are read at once; still in a cache when they are added up. */
#define TOGETHER_BYTES ((uint64_t)1 << 20)

uint64_t cz__verified_block(uint64_t bytes)
{
    const uint64_t most = 1 << 20; /* and so 8 MiB of checksums */
    uint64_t block = 4096;
    while (bytes / block > most)
        block *= 2;
    return block;
}

cz_status cz__held_have(cz__held *held, const char *path, const cz__verified *region)
{
    const size_t bytes = (size_t)(region->block < region->bytes ? region->block : region->bytes);
    if (bytes <= held->room)
        return CZ_OK;
    cz__held_clear(held);
    held->bytes = cz__allocate(CZ_MEMORY_STAGING, bytes);
    held->room = held->bytes ? bytes : 0;
    return held->bytes
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "%s: no memory for a block of %zu bytes", path, bytes);
}

void cz__held_clear(cz__held *held)
{
    cz__free(held->bytes);
    *held = (cz__held){0};
}

static cz_status compare(const cz__reader *reader, uint64_t sum, const char *bytes, size_t count)
{
    return cz__checksum_of(bytes, count).low == sum
               ? CZ_OK
               : cz__fail(CZ_ERR_FORMAT, "%s: it has changed since it was verified, a moment ago",
                          reader->path);
}

/* One block, of which a part is wanted. */
static cz_status hold_block(cz__reader *reader, const cz__verified *region, cz__held *held,
                            uint64_t number)
{
    const uint64_t begin = number * region->block, left = region->bytes - begin;
    const size_t bytes = (size_t)(left < region->block ? left : region->block);
    if (held->count > 0 && held->sum == &region->sums[number])
        return CZ_OK;
    CZ_TRY(cz__held_have(held, reader->path, region));
    held->count = 0;
    CZ_TRY(cz__reader_read(reader, region->begin + begin, held->bytes, bytes));
    CZ_TRY(compare(reader, region->sums[number], held->bytes, bytes));
    held->count = bytes;
    held->sum = &region->sums[number];
    return CZ_OK;
}

/* Whole blocks, straight to where they belong: they come as fast as without checksums. */
static cz_status read_blocks(cz__reader *reader, const cz__verified *region, uint64_t number,
                             char *to, size_t count)
{
    const size_t block = (size_t)region->block;
    CZ_TRY(cz__reader_read(reader, region->begin + number * block, to, count * block));
    for (size_t i = 0; i < count; i++)
        CZ_TRY(compare(reader, region->sums[number + i], to + i * block, block));
    return CZ_OK;
}

cz_status cz__reader_read_verified(cz__reader *reader, const cz__verified *region, cz__held *held,
                                   uint64_t offset, char *to, size_t count)
{
    if (offset > region->bytes || count > region->bytes - offset)
        return too_short(reader, region->begin + region->bytes, region->begin + offset, count);
    for (size_t done = 0, part; done < count; done += part) {
        const uint64_t at = offset + done, number = at / region->block;
        const uint64_t within = at % region->block, left = count - done;
        const uint64_t most = left < TOGETHER_BYTES ? left : TOGETHER_BYTES;
        if (within == 0 && left >= region->block) {
            const size_t blocks = most < region->block ? 1 : (size_t)(most / region->block);
            part = blocks * (size_t)region->block;
            CZ_TRY(read_blocks(reader, region, number, to + done, blocks));
            continue;
        }
        const uint64_t room = region->block - within;
        part = (size_t)(left < room ? left : room);
        CZ_TRY(hold_block(reader, region, held, number));
        memcpy(to + done, held->bytes + within, part);
    }
    return CZ_OK;
}
