/* SPDX-License-Identifier: MIT */
/* The writer: the caller copies a block and adds it to the checksum while a thread writes those
 * before it. Blocks go round in a ring; `filled` and `written` count them from the beginning of the
 * file. */
#include "io/stream.h"

#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
    BLOCKS = 3,            /* one is filled, one is written, one evens out their speeds */
    BLOCK_BYTES = 8 << 20, /* larger ones are no faster */
    PIECE_BYTES = 32 << 10 /* copied, and added up while the first-level cache has it */
};

struct cz__writer {
    char *path;                /* owned */
    int folder;                /* borrowed: the file is in it, or AT_FDCWD */
    char *memory;              /* owned: the blocks, and room to align them */
    cz__checksum_state *state; /* owned */
    cz__output output;         /* the thread's, while there is one */
    uint64_t expected;         /* bytes that create was told of */
    uint64_t position;         /* bytes appended */
    char *blocks;              /* in memory, aligned */
    size_t block_bytes, block_count;
    size_t used;   /* bytes in the block that is being filled */
    bool finished; /* all is written, whether or not it reached the medium */

    bool threaded, unthreaded; /* there is a thread; there can be none */
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t for_thread, for_caller;
    uint64_t filled, written;
    size_t bytes[BLOCKS]; /* of each filled block */
    int error;            /* the first one; nothing is written after it */
    bool ending;          /* what is filled is written, and no more comes */
    bool abandoned;       /* what is filled does not matter */
};

/* ---- the thread ---- */

static const char *block_at(const cz__writer *writer, uint64_t number)
{
    return writer->blocks + number % writer->block_count * writer->block_bytes;
}

/* The lock is held, but not while it writes. */
static void write_next(cz__writer *writer)
{
    const uint64_t number = writer->written;
    const size_t bytes = writer->bytes[number % writer->block_count];
    if (!writer->error) {
        pthread_mutex_unlock(&writer->lock);
        const int error = cz__output_write(&writer->output, block_at(writer, number), bytes);
        pthread_mutex_lock(&writer->lock);
        writer->error = error;
    }
    writer->written++;
    pthread_cond_signal(&writer->for_caller);
}

static void *write_blocks(void *context)
{
    cz__writer *writer = context;
    pthread_mutex_lock(&writer->lock);
    while (!writer->abandoned) {
        if (writer->written < writer->filled)
            write_next(writer);
        else if (writer->ending)
            break;
        else
            pthread_cond_wait(&writer->for_thread, &writer->lock);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* All signals are blocked in the thread, so a file that is too large is an error of write() there,
 * and not SIGXFSZ. */
static bool start_thread(cz__writer *writer)
{
    const int error = cz__thread_allowed()
                          ? cz__system_used.thread(&writer->thread, NULL, write_blocks, writer)
                          : EPERM;
    if (!error)
        pthread_setname_np(writer->thread, "cz-write");
    writer->threaded = !error;
    writer->unthreaded = error; /* the caller writes, then: it is slower and no failure */
    return writer->threaded;
}

static void end_thread(cz__writer *writer, bool abandon)
{
    if (!writer->threaded)
        return;
    pthread_mutex_lock(&writer->lock);
    writer->ending = true;
    writer->abandoned = abandon;
    pthread_cond_signal(&writer->for_thread);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    writer->threaded = false;
}

/* ---- the caller ---- */

/* The thread writes nothing after an error, so that what it wrote can be read. */
static cz_status complain(const cz__writer *writer)
{
    const uint64_t wanted =
        writer->expected > writer->position ? writer->expected : writer->position;
    if (writer->finished)
        return cz__fail(CZ_ERR_IO, "%s: %" PRIu64 " bytes written, but not to the medium: %s",
                        writer->path, writer->position, strerror(writer->error));
    return cz__fail(CZ_ERR_IO, "%s: %" PRIu64 " of %" PRIu64 " bytes written: %s", writer->path,
                    writer->output.written, wanted, strerror(writer->error));
}

/* Hand the block over, or write it. */
static void submit(cz__writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    writer->bytes[writer->filled % writer->block_count] = writer->used;
    writer->filled++;
    writer->used = 0;
    const bool alone = !writer->threaded &&
                       (writer->unthreaded || writer->block_count == 1 || !start_thread(writer));
    if (alone)
        write_next(writer);
    pthread_cond_signal(&writer->for_thread);
    pthread_mutex_unlock(&writer->lock);
}

/* Wait until there is a block to fill. */
static cz_status await_block(cz__writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    while (writer->filled - writer->written == writer->block_count)
        pthread_cond_wait(&writer->for_caller, &writer->lock);
    const int error = writer->error;
    pthread_mutex_unlock(&writer->lock);
    return error ? complain(writer) : CZ_OK;
}

static void copy(cz__writer *writer, const char *data, size_t count)
{
    char *to = writer->blocks + writer->filled % writer->block_count * writer->block_bytes;
    to += writer->used;
    for (size_t done = 0; done < count;) {
        const size_t piece = count - done < PIECE_BYTES ? count - done : PIECE_BYTES;
        memcpy(to + done, data + done, piece);
        cz__checksum_add(writer->state, to + done, piece); /* of what the file will hold */
        done += piece;
    }
    writer->used += count;
}

cz_status cz__writer_append(cz__writer *writer, const void *data, size_t count)
{
    const char *from = data;
    while (count > 0) {
        CZ_TRY(await_block(writer));
        const size_t left = writer->block_bytes - writer->used, now = count < left ? count : left;
        copy(writer, from, now);
        writer->position += now;
        from += now;
        count -= now;
        if (now == left)
            submit(writer);
    }
    return CZ_OK;
}

cz__checksum cz__writer_checksum(cz__writer *writer)
{
    return cz__checksum_take(writer->state);
}

uint64_t cz__writer_position(const cz__writer *writer)
{
    return writer->position;
}

/* ---- beginning and end ---- */

static void free_parts(cz__writer *writer)
{
    pthread_cond_destroy(&writer->for_caller);
    pthread_cond_destroy(&writer->for_thread);
    pthread_mutex_destroy(&writer->lock);
    cz__checksum_end(writer->state);
    cz__free(writer->memory);
    cz__free(writer->path);
    cz__free(writer);
}

/* No more, and no larger blocks than a file of that many bytes needs. */
static size_t size_blocks(uint64_t bytes, size_t *block_bytes, size_t *block_count)
{
    *block_bytes = BLOCK_BYTES;
    *block_count = BLOCKS;
    if (bytes > 0 && bytes <= BLOCK_BYTES) {
        *block_bytes = ((size_t)bytes + CZ__SECTOR - 1) / CZ__SECTOR * CZ__SECTOR;
        *block_count = 1;
    }
    return *block_count * *block_bytes + CZ__SECTOR;
}

size_t cz__writer_bytes(uint64_t bytes)
{
    size_t block_bytes, block_count;
    return size_blocks(bytes, &block_bytes, &block_count) + sizeof(cz__writer);
}

static bool allocate_blocks(cz__writer *writer, uint64_t bytes)
{
    writer->memory = cz__allocate(CZ_MEMORY_STAGING,
                                  size_blocks(bytes, &writer->block_bytes, &writer->block_count));
    if (!writer->memory)
        return false;
    writer->blocks = writer->memory + (CZ__SECTOR - (uintptr_t)writer->memory % CZ__SECTOR);
    return true;
}

static const char *name_of(const cz__writer *writer)
{
    return writer->folder == AT_FDCWD ? writer->path : cz__path_name(writer->path);
}

cz_status cz__writer_create(cz__writer **out, const char *path, uint64_t bytes)
{
    return cz__writer_create_in(out, AT_FDCWD, path, bytes);
}

cz_status cz__writer_create_in(cz__writer **out, int folder, const char *path, uint64_t bytes)
{
    *out = NULL;
    cz__writer *writer = cz__calloc(1, sizeof *writer);
    if (!writer)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a writer", path);
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->for_thread, NULL);
    pthread_cond_init(&writer->for_caller, NULL);
    writer->expected = bytes;
    writer->folder = folder;
    if (!(writer->path = cz__strdup(path)) || !(writer->state = cz__checksum_begin()) ||
        !allocate_blocks(writer, bytes)) {
        free_parts(writer);
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a writer's blocks", path);
    }
    const int error = writer->error =
        cz__output_open(&writer->output, folder, name_of(writer), bytes);
    if (error) {
        if (error == ENOSPC || error == EDQUOT || error == EFBIG)
            complain(writer);
        else
            cz__fail(CZ_ERR_IO, "%s: cannot be created: %s", path, strerror(error));
        free_parts(writer);
        return CZ_ERR_IO;
    }
    *out = writer;
    return CZ_OK;
}

cz_status cz__writer_finish(cz__writer **out)
{
    cz__writer *writer = *out;
    if (writer->used > 0) {
        char *end = writer->blocks + writer->filled % writer->block_count * writer->block_bytes +
                    writer->used;
        memset(end, 0, (CZ__SECTOR - writer->used % CZ__SECTOR) % CZ__SECTOR);
        submit(writer);
    }
    end_thread(writer, false);
    if (writer->error)
        return complain(writer);
    writer->finished = true;
    writer->error = cz__output_finish(&writer->output);
    if (writer->error)
        return complain(writer);
    free_parts(writer);
    *out = NULL;
    return CZ_OK;
}

void cz__writer_destroy(cz__writer **out)
{
    if (!out || !*out)
        return;
    cz__writer *writer = *out;
    end_thread(writer, true);
    cz__output_close(&writer->output);
    (void)unlinkat(writer->folder, name_of(writer), 0);
    free_parts(writer);
    *out = NULL;
}
