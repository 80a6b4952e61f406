/* SPDX-License-Identifier: MIT */
/* How an operation sees memory: for every rank a stream of bytes, made of pieces. */
#ifndef CZ_OPERATION_REGION_H
#define CZ_OPERATION_REGION_H

#include "operation/mapped.h"

typedef enum cz__region_kind {
    CZ__REGION_EQUAL,  /* rank r's stream: elements [r * count, (r + 1) * count) of `base` */
    CZ__REGION_EVEN,   /* `count` elements cut evenly at 64-byte blocks */
    CZ__REGION_ROOT,   /* all `count` elements are the root's stream */
    CZ__REGION_LISTED, /* rank r's stream: the next counts[r] elements of `base` */
    CZ__REGION_MAPPED  /* the spans of rank r in a shard map */
} cz__region_kind;

typedef struct cz__region {
    cz__region_kind kind;
    /* Bytes of an element of a stream: alike in all regions of an operation, so that all are cut
     * alike; and of an element in this region's memory and messages, which may be wider or
     * narrower, where the region is mapped. */
    size_t element_size;
    size_t width;
    int rank; /* this rank */
    int world_size;
    int root;
    int64_t count;
    const int64_t *counts;
    char *base;
    char *own; /* where this rank's stream is, if not in `base`; NULL: in `base` */
    cz__mapped mapped;
} cz__region;

/* A place in one rank's stream. A value. */
typedef struct cz__cursor {
    int rank;
    size_t offset; /* bytes taken: of the stream, or of the present span */
    bool inside;   /* mapped: `span` is the present one */
    cz_span span;
    cz_span_iterator spans;
} cz__cursor;

/* A part of a stream that travels as one message. */
typedef struct cz__chunk {
    cz__cursor begin;
    size_t bytes; /* of the stream */
    char *data;   /* where it is, if it is one piece in memory here; else NULL: pack and unpack */
} cz__chunk;

/* What so many bytes of a stream take in a region's memory and messages. */
static inline size_t cz__bytes_here(const cz__region *region, size_t bytes)
{
    return bytes / region->element_size * region->width;
}

/* Of a rank's stream in a region that is not mapped. */
size_t cz__region_bytes(const cz__region *region, int rank);

void cz__cursor_begin(const cz__region *region, int rank, cz__cursor *cursor);

/* Take the next chunk of at most `limit` bytes; false (and 0 bytes) at the stream's end. All ranks
 * cut a stream alike: pieces of limit/4 and more go alone, so that they need no copy; smaller ones
 * together. */
bool cz__chunk_next(const cz__region *region, cz__cursor *cursor, size_t limit, cz__chunk *chunk);

void cz__chunk_pack(const cz__region *region, const cz__chunk *chunk, const cz_device *device,
                    char *to);
void cz__chunk_unpack(const cz__region *region, const cz__chunk *chunk, const cz_device *device,
                      const char *from);

/* Some bytes of one piece of a stream: at the same place on every rank that has the stream. */
typedef struct cz__run {
    int64_t param; /* mapped: of which they are, */
    size_t offset; /* from its element 0; else from the beginning of the stream */
    size_t bytes;
} cz__run;

/* Take at most `limit` bytes more; false at the stream's end. */
bool cz__run_next(const cz__region *region, cz__cursor *cursor, size_t limit, cz__run *run);
/* Where they are in a region, as part of that stream of it; NULL: zeros. */
char *cz__run_address(const cz__region *region, int stream, const cz__run *run);

/* ---- terms ----
 *
 * What a rank gives to the sums of a stream: one value, unless the region has terms. */

/* Has it any? How many a rank gives; into how many sources those of all ranks go, and which of
 * these one of a rank's terms is. The other sources are NULL. */
bool cz__region_has_terms(const cz__region *region);
int cz__region_terms(const cz__region *region, int rank);
int cz__region_source_count(const cz__region *region);
int cz__region_source_of(const cz__region *region, int rank, int term);
/* The most that a rank gives. */
int cz__region_most_terms(const cz__region *region);

/* Where the bytes of a run are in one of this rank's; NULL: zeros. */
char *cz__term_address(const cz__region *region, int term, const cz__run *run);

/* One of this rank's as a region of its own, and a chunk of the region as that of a term. */
cz__region cz__region_of_term(const cz__region *region, int term);
cz__chunk cz__chunk_of_term(const cz__region *term, const cz__chunk *chunk);

/* So many bytes, to the end of their last line of the cache. */
static inline size_t cz__line_aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* What so many of a rank's terms of a chunk take: one after the other, each at a line of the
 * cache. */
size_t cz__terms_bytes(int terms, size_t bytes);
/* All of this rank's. */
void cz__terms_pack(const cz__region *region, const cz__chunk *chunk, const cz_device *device,
                    char *to);

/* The chunk of which the most terms fit into so many bytes: at least a line for each. Without terms
 * that is all. */
size_t cz__terms_chunk(const cz__region *region, size_t bytes);
/* Where sources are listed, empty: in `plain`, room for as many addresses as there are ranks,
 * unless there are terms. And where a rank's terms of a chunk are, from `data` on, in that list. */
const void **cz__region_sources(const cz__region *region, const void **plain);
void cz__terms_place(const cz__region *region, int rank, const char *data, size_t bytes,
                     const void **sources);

/* As the device's copy_once; a plain copy where it has none. */
cz_status cz__copy_once(const cz_device *device, void *to, const void *from, size_t bytes);

/* Do two regions show the same memory in the same way? */
bool cz__region_same_memory(const cz__region *a, const cz__region *b);

#endif
