/* SPDX-License-Identifier: MIT */
/* Streams of bytes over the memory of an operation, and their chunks. */
#include "group/region.h"

#include "group/internal.h"

/* Elements [begin, end) of `count` that a rank owns. */
static void even_slice(const cz__region *region, int rank, int64_t *begin, int64_t *end)
{
    const int64_t block = 64 / (int64_t)region->element_size;
    int64_t each;
    const int first_extra =
        cz__even_blocks(region->count, region->element_size, region->world_size, &each);
    int64_t from = rank * each + (rank > first_extra ? rank - first_extra : 0);
    int64_t to = from + each + (rank >= first_extra);
    *begin = from * block < region->count ? from * block : region->count;
    *end = to * block < region->count ? to * block : region->count;
}

/* The one piece of a rank's stream in a region that is a single block of memory. */
static char *slice(const cz__region *region, int rank, size_t *bytes)
{
    int64_t begin = 0, end = 0;
    if (region->kind == CZ__REGION_EQUAL) {
        begin = rank * region->count;
        end = begin + region->count;
    } else if (region->kind == CZ__REGION_EVEN) {
        even_slice(region, rank, &begin, &end);
    } else if (region->kind == CZ__REGION_LISTED) {
        for (int r = 0; r < rank && region->counts[rank] > 0; r++)
            begin += region->counts[r];
        end = begin + region->counts[rank];
    } else if (rank == region->root) {
        end = region->count;
    }
    *bytes = (size_t)(end - begin) * region->element_size;
    if (rank == region->rank && region->own)
        return region->own;
    return region->base ? region->base + (size_t)begin * region->element_size : NULL;
}

size_t cz__region_bytes(const cz__region *region, int rank)
{
    size_t bytes;
    (void)slice(region, rank, &bytes);
    return bytes;
}

void cz__cursor_begin(const cz__region *region, int rank, cz__cursor *cursor)
{
    *cursor = (cz__cursor){.rank = rank};
    if (region->kind == CZ__REGION_MAPPED)
        cz_span_iterate(region->mapped.map, rank, &cursor->spans);
}

/* What is left of the piece that the cursor stands in: its bytes (0 at the end of the stream) and
 * its address (NULL: zeros). */
static size_t piece(const cz__region *region, cz__cursor *cursor, char **data)
{
    if (region->kind != CZ__REGION_MAPPED) {
        size_t bytes;
        char *start = slice(region, cursor->rank, &bytes);
        *data = start ? start + cursor->offset : NULL;
        return bytes - cursor->offset;
    }
    while (!cursor->inside) {
        if (!cz_span_next(&cursor->spans, &cursor->span))
            return 0;
        cursor->inside = region->mapped.include[cursor->span.param];
        cursor->offset = 0;
    }
    char *start = region->mapped.data[cursor->span.param];
    *data =
        start ? start + (size_t)cursor->span.begin * region->element_size + cursor->offset : NULL;
    return (size_t)(cursor->span.end - cursor->span.begin) * region->element_size - cursor->offset;
}

/* Step over `bytes` of the present piece. */
static void advance(const cz__region *region, cz__cursor *cursor, size_t bytes)
{
    cursor->offset += bytes;
    if (region->kind == CZ__REGION_MAPPED &&
        cursor->offset == (size_t)(cursor->span.end - cursor->span.begin) * region->element_size)
        cursor->inside = false;
}

bool cz__chunk_next(const cz__region *region, cz__cursor *cursor, size_t limit, cz__chunk *chunk)
{
    char *data = NULL;
    size_t bytes = piece(region, cursor, &data);
    *chunk = (cz__chunk){.begin = *cursor};
    if (bytes >= limit / 4 && bytes > 0) {
        chunk->bytes = bytes < limit ? bytes : limit;
        chunk->data = data;
        advance(region, cursor, chunk->bytes);
        return true;
    }
    chunk->data = data;
    for (int pieces = 0; bytes > 0 && bytes < limit / 4 && chunk->bytes + bytes <= limit;
         pieces++) {
        if (pieces > 0)
            chunk->data = NULL;
        chunk->bytes += bytes;
        advance(region, cursor, bytes);
        bytes = piece(region, cursor, &data);
    }
    return chunk->bytes > 0;
}

void cz__chunk_pack(const cz__region *region, const cz__chunk *chunk, const cz_device *device,
                    char *to)
{
    cz__cursor cursor = chunk->begin;
    for (size_t done = 0; done < chunk->bytes;) {
        char *data;
        size_t bytes = piece(region, &cursor, &data);
        if (bytes > chunk->bytes - done)
            bytes = chunk->bytes - done;
        if (data)
            (void)device->copy(NULL, to + done, data, bytes);
        else
            (void)device->zero(NULL, to + done, bytes);
        advance(region, &cursor, bytes);
        done += bytes;
    }
}

void cz__chunk_unpack(const cz__region *region, const cz__chunk *chunk, const cz_device *device,
                      const char *from)
{
    cz__cursor cursor = chunk->begin;
    for (size_t done = 0; done < chunk->bytes;) {
        char *data;
        size_t bytes = piece(region, &cursor, &data);
        if (bytes > chunk->bytes - done)
            bytes = chunk->bytes - done;
        if (data)
            (void)device->copy(NULL, data, from + done, bytes);
        advance(region, &cursor, bytes);
        done += bytes;
    }
}

bool cz__run_next(const cz__region *region, cz__cursor *cursor, size_t limit, cz__run *run)
{
    char *data;
    const size_t bytes = piece(region, cursor, &data);
    if (bytes == 0)
        return false;
    const bool mapped = region->kind == CZ__REGION_MAPPED;
    *run = (cz__run){.param = mapped ? cursor->span.param : -1,
                     .offset = cursor->offset,
                     .bytes = bytes < limit ? bytes : limit};
    if (mapped)
        run->offset += (size_t)cursor->span.begin * region->element_size;
    advance(region, cursor, run->bytes);
    return true;
}

char *cz__run_address(const cz__region *region, int stream, const cz__run *run)
{
    size_t bytes;
    char *start = region->kind == CZ__REGION_MAPPED ? region->mapped.data[run->param]
                                                    : slice(region, stream, &bytes);
    return start ? start + run->offset : NULL;
}

cz_status cz__copy_once(const cz_device *device, void *to, const void *from, size_t bytes)
{
    return device->copy_once ? device->copy_once(NULL, to, from, bytes)
                             : device->copy(NULL, to, from, bytes);
}

bool cz__region_same_memory(const cz__region *a, const cz__region *b)
{
    return a->kind == b->kind && a->base == b->base && a->own == b->own &&
           a->mapped.data == b->mapped.data;
}

/* ---- of an operation ---- */

const cz__region *cz__region_given(const cz__operation *operation)
{
    return operation->update ? &operation->values : &operation->source;
}

const cz__region *cz__region_taken(const cz__operation *operation)
{
    return operation->update ? &operation->values : &operation->target;
}

void cz__update_chunk(const cz__operation *operation, const cz__chunk *chunk, const char *gradient)
{
    const int64_t element = (int64_t)operation->target.element_size;
    cz__cursor cursor = chunk->begin;
    cz__run run;
    for (size_t done = 0; done < chunk->bytes; done += run.bytes) {
        if (!cz__run_next(&operation->target, &cursor, chunk->bytes - done, &run))
            return; /* the chunk ends with its region */
        operation->update(operation->update_context, run.param, (int64_t)run.offset / element,
                          (int64_t)run.bytes / element,
                          gradient ? gradient + done
                                   : cz__run_address(&operation->target, cursor.rank, &run));
    }
}
