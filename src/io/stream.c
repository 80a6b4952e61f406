/* SPDX-License-Identifier: MIT */
/* What readers and writers have in common: a new file that is written in blocks, checksums. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "base/thread.h"
#include "io/stream.h"

/* ---- a new file ---- */
/* Blocks into a new file. Direct writes are a wish: where a file system refuses them, when they are
 * asked for or at the first one, the page cache takes them, and is told to write at once. */

const cz__system cz__system_own = {pwrite, pread, fallocate, fsync, cz__thread_create, true, true};
cz__system cz__system_used = {pwrite, pread, fallocate, fsync, cz__thread_create, true, true};

static size_t whole_sectors(size_t count)
{
    return (count + CZ__SECTOR - 1) / CZ__SECTOR * CZ__SECTOR;
}

/* After the file is made: open(2) with O_DIRECT makes it, and then refuses. */
static void set_direct(cz__output *output, bool direct)
{
    const int flags = fcntl(output->file, F_GETFL);
    const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
    const bool done = flags >= 0 && fcntl(output->file, F_SETFL, wanted) == 0;
    output->direct = direct && done;
}

/* Room for all of it, so that a full medium is found before the work is done; file systems for
 * which that is work of its own refuse. The size stays 0: a file that was left behind does not look
 * whole. */
static int reserve_room(cz__output *output, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    if (cz__system_used.reserve(output->file, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) == 0)
        output->reserved = bytes;
    else if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        return errno;
    return 0; /* anything else will be seen by the writes, if it hinders them */
}

int cz__output_open(cz__output *output, int folder, const char *name, uint64_t bytes)
{
    *output = (cz__output){.file = cz__open_at(folder, name, O_WRONLY | O_CREAT | O_EXCL)};
    if (output->file < 0)
        return errno;
    if (cz__system_used.direct)
        set_direct(output, true);
    const int error = reserve_room(output, bytes);
    if (error) {
        cz__output_close(output);
        (void)unlinkat(folder, name, 0);
    }
    return error;
}

int cz__output_write(cz__output *output, const char *block, size_t count)
{
    const uint64_t begin = output->written;
    size_t done = 0;
    while (done < count) {
        const size_t left = count - done, bytes = output->direct ? whole_sectors(left) : left;
        const ssize_t now =
            cz__system_used.write(output->file, block + done, bytes, (off_t)(begin + done));
        if (now < 0 && errno == EINVAL && output->direct)
            set_direct(output, false); /* refused late, or the rest of a short one */
        else if (now < 0 && errno != EINTR)
            return errno;
        else if (now == 0)
            return EIO;
        if (now > 0) {
            output->end = begin + done + (size_t)now;
            done += (size_t)now < left ? (size_t)now : left;
            output->written = begin + done;
        }
    }
    /* From now on, not when memory is full of it; the result is fsync's to tell. */
    if (!output->direct)
        (void)sync_file_range(output->file, (off_t)begin, (off_t)count, SYNC_FILE_RANGE_WRITE);
    return 0;
}

int cz__output_finish(cz__output *output)
{
    int error = 0;
    const bool more = output->end > output->written || output->reserved > output->written;
    if (more && ftruncate(output->file, (off_t)output->written) != 0)
        error = errno;
    if (!error && cz__system_used.synchronise(output->file) != 0)
        error = errno;
    const int file = output->file;
    output->file = -1;
    if (close(file) != 0 && !error && errno != EINTR)
        error = errno;
    return error;
}

void cz__output_close(cz__output *output)
{
    if (output->file >= 0)
        close(output->file);
    output->file = -1;
}

/* ---- checksums ---- */
/* XXH3 with 128 bits. https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md */

#ifdef CZ_XXHASH_DISPATCH /* by the processor: what is compiled for every x86-64 is half as fast */
#include <xxh_x86dispatch.h>
#endif

static cz__checksum from_hash(XXH128_hash_t hash)
{
    return (cz__checksum){.high = hash.high64, .low = hash.low64};
}

cz__checksum cz__checksum_of(const void *bytes, size_t count)
{
    return from_hash(XXH3_128bits(bytes, count));
}

void cz__checksum_print(cz__checksum checksum, char text[33])
{
    snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, checksum.high, checksum.low);
}

bool cz__checksum_scan(const char *text, cz__checksum *checksum)
{
    uint64_t halves[2] = {0, 0};
    for (int i = 0; i < 32; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        halves[i / 16] = halves[i / 16] << 4 | (uint64_t)(digit - digits);
    }
    *checksum = (cz__checksum){.high = halves[0], .low = halves[1]};
    return text[32] == '\0';
}

cz__checksum_state *cz__checksum_begin(void)
{
    cz__checksum_state *state = XXH3_createState();
    if (state)
        XXH3_128bits_reset(state);
    return state;
}

void cz__checksum_add(cz__checksum_state *state, const void *bytes, size_t count)
{
    if (cz__system_used.checksums)
        XXH3_128bits_update(state, bytes, count);
}

cz__checksum cz__checksum_take(cz__checksum_state *state)
{
    const cz__checksum checksum = from_hash(XXH3_128bits_digest(state));
    XXH3_128bits_reset(state);
    return checksum;
}

void cz__checksum_end(cz__checksum_state *state)
{
    XXH3_freeState(state);
}

/* ---- of the blocks of a file's data ---- */

#define LEAST ((uint64_t)64 << 10)
enum { MOST = 1 << 14 }; /* blocks, and so 128 KiB for a file */

uint64_t cz__block_bytes(uint64_t data_bytes)
{
    uint64_t bytes = LEAST;
    while (data_bytes / bytes > MOST)
        bytes *= 2;
    return bytes;
}

cz_status cz__block_sums_begin(cz__block_sums *s, cz__block_table *blocks, uint64_t data_bytes)
{
    *s = (cz__block_sums){.blocks = blocks, .block = cz__block_bytes(data_bytes)};
    cz__block_table_clear(blocks);
    blocks->count = (int64_t)((data_bytes + s->block - 1) / s->block);
    blocks->sums = cz__calloc((size_t)blocks->count + 1, sizeof *blocks->sums);
    s->state = cz__checksum_begin();
    if (blocks->sums && s->state)
        return CZ_OK;
    cz__block_sums_end(s, false);
    return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for checksums of blocks");
}

void cz__block_sums_add(cz__block_sums *s, const char *bytes, size_t count)
{
    while (count > 0) {
        const uint64_t room = s->block - s->at % s->block;
        const size_t part = count < room ? count : (size_t)room;
        uint64_t *sum = &s->blocks->sums[s->at / s->block];
        if (part == s->block) {
            *sum = cz__checksum_of(bytes, part).low;
        } else {
            cz__checksum_add(s->state, bytes, part);
            if (part == room)
                *sum = cz__checksum_take(s->state).low;
        }
        s->at += part;
        bytes += part;
        count -= part;
    }
}

void cz__block_sums_end(cz__block_sums *s, bool whole)
{
    if (whole && s->at % s->block > 0)
        s->blocks->sums[s->at / s->block] = cz__checksum_take(s->state).low;
    if (!whole)
        cz__block_table_clear(s->blocks);
    cz__checksum_end(s->state);
}

void cz__block_table_clear(cz__block_table *blocks)
{
    cz__free(blocks->sums);
    *blocks = (cz__block_table){0};
}
