/* SPDX-License-Identifier: MIT */
/* Streams of bytes over the memory of an operation, and their chunks. */
#include "operation/region.h"

#include <string.h>

#include "operation/operation.h"

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
        if (region->counts[rank] > 0)
            for (int r = 0; r < rank; r++)
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

/* The next span of a mapped region that takes part; false: there is none. */
static bool enter_span(const cz__region *region, cz__cursor *cursor)
{
    cursor->offset = 0;
    do
        if (!cz_span_next(&cursor->spans, &cursor->span))
            return false;
    while (!region->mapped.include[cursor->span.param]);
    cursor->inside = true;
    return true;
}

static size_t span_bytes(const cz__region *region, const cz__cursor *cursor)
{
    return (size_t)(cursor->span.end - cursor->span.begin) * region->element_size;
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
    if (!cursor->inside && !enter_span(region, cursor))
        return 0;
    char *start = region->mapped.data[cursor->span.param];
    *data = start ? start + (size_t)cursor->span.begin * region->width +
                        cz__bytes_here(region, cursor->offset)
                  : NULL;
    return span_bytes(region, cursor) - cursor->offset;
}

/* Step over `bytes` of the present piece. */
static void advance(const cz__region *region, cz__cursor *cursor, size_t bytes)
{
    cursor->offset += bytes;
    if (region->kind == CZ__REGION_MAPPED && cursor->offset == span_bytes(region, cursor))
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
        char *there = to + cz__bytes_here(region, done);
        if (data)
            (void)device->copy(NULL, there, data, cz__bytes_here(region, bytes));
        else
            (void)device->zero(NULL, there, cz__bytes_here(region, bytes));
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
            (void)device->copy(NULL, data, from + cz__bytes_here(region, done),
                               cz__bytes_here(region, bytes));
        advance(region, &cursor, bytes);
        done += bytes;
    }
}

bool cz__run_next(const cz__region *region, cz__cursor *cursor, size_t limit, cz__run *run)
{
    const bool mapped = region->kind == CZ__REGION_MAPPED;
    if (mapped && !cursor->inside && !enter_span(region, cursor))
        return false;
    const size_t all = mapped ? span_bytes(region, cursor) : cz__region_bytes(region, cursor->rank);
    const size_t bytes = all - cursor->offset;
    if (bytes == 0)
        return false;
    run->param = mapped ? cursor->span.param : -1;
    run->offset = cursor->offset;
    run->bytes = bytes < limit ? bytes : limit;
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
    return start ? start + cz__bytes_here(region, run->offset) : NULL;
}

/* ---- terms ---- */

static const cz__terms *terms_of(const cz__region *region)
{
    return region->kind == CZ__REGION_MAPPED ? region->mapped.terms : NULL;
}

bool cz__region_has_terms(const cz__region *region)
{
    return terms_of(region) != NULL;
}

int cz__region_terms(const cz__region *region, int rank)
{
    return terms_of(region) ? cz__leaves_terms(&terms_of(region)->leaves, rank) : 1;
}

int cz__region_most_terms(const cz__region *region)
{
    return terms_of(region) ? cz__leaves_most_terms(&terms_of(region)->leaves) : 1;
}

int cz__region_source_count(const cz__region *region)
{
    return terms_of(region) ? terms_of(region)->leaves.count : region->world_size;
}

int cz__region_source_of(const cz__region *region, int rank, int term)
{
    return terms_of(region) ? cz__leaves_term(&terms_of(region)->leaves, rank, term) : rank;
}

char *cz__term_address(const cz__region *region, int term, const cz__run *run)
{
    char *start = terms_of(region)->data[term][run->param];
    return start ? start + run->offset : NULL;
}

cz__region cz__region_of_term(const cz__region *region, int term)
{
    cz__region one = *region;
    if (terms_of(region)) {
        one.mapped.data = terms_of(region)->data[term];
        one.mapped.terms = NULL;
    }
    return one;
}

cz__chunk cz__chunk_of_term(const cz__region *term, const cz__chunk *chunk)
{
    cz__chunk its = {.begin = chunk->begin, .bytes = chunk->bytes};
    cz__cursor cursor = chunk->begin;
    char *data = NULL;
    if (piece(term, &cursor, &data) >= chunk->bytes)
        its.data = data;
    return its;
}

size_t cz__terms_bytes(int terms, size_t bytes)
{
    return (size_t)(terms - 1) * cz__line_aligned(bytes) + bytes;
}

void cz__terms_pack(const cz__region *region, const cz__chunk *chunk, const cz_device *device,
                    char *to)
{
    const int terms = cz__region_terms(region, region->rank);
    for (int t = 0; t < terms; t++) {
        const cz__region term = cz__region_of_term(region, t);
        cz__chunk_pack(&term, chunk, device, to + (size_t)t * cz__line_aligned(chunk->bytes));
    }
}

size_t cz__terms_chunk(const cz__region *region, size_t bytes)
{
    const size_t most = (size_t)cz__region_most_terms(region);
    return most > 1 ? bytes / most / 64 * 64 : bytes;
}

const void **cz__region_sources(const cz__region *region, const void **plain)
{
    const cz__terms *terms = terms_of(region);
    if (!terms)
        return plain;
    memset(terms->sources, 0, (size_t)terms->leaves.count * sizeof *terms->sources);
    return terms->sources;
}

void cz__terms_place(const cz__region *region, int rank, const char *data, size_t bytes,
                     const void **sources)
{
    if (!terms_of(region)) {
        sources[rank] = data;
        return;
    }
    const int terms = cz__region_terms(region, rank);
    for (int t = 0; t < terms; t++)
        sources[cz__region_source_of(region, rank, t)] = data + (size_t)t * cz__line_aligned(bytes);
}

size_t cz__terms_longest(const cz__leaves *leaves, size_t longest)
{
    return (size_t)cz__leaves_most_terms(leaves) * cz__line_aligned(longest);
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
    if (operation->update)
        return &operation->values;
    return operation->reduces ? &operation->target : &operation->source;
}

const cz__region *cz__region_taken(const cz__operation *operation)
{
    return operation->update ? &operation->values : &operation->target;
}

size_t cz__stream_bytes(const cz__operation *operation, size_t bytes)
{
    size_t widest = operation->source.width;
    if (operation->reduces && operation->target.width > widest)
        widest = operation->target.width;
    if (operation->update && operation->values.width > widest)
        widest = operation->values.width;
    return bytes / widest * operation->source.element_size;
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
                          gradient ? gradient + cz__bytes_here(&operation->target, done)
                                   : cz__run_address(&operation->target, cursor.rank, &run));
    }
}
