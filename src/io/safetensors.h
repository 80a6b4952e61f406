/* SPDX-License-Identifier: MIT */
/* The frame of a safetensors file: 8 bytes that say how long the header is, the header in JSON, and
 * then the elements of one tensor after the other. Here is the header; elements are written and
 * read by stream.h. */
#ifndef CZ_IO_SAFETENSORS_H
#define CZ_IO_SAFETENSORS_H

#include <jansson.h>

#include "io/text.h"
#include "io/types.h"
#include "base/names.h"

typedef struct cz__safetensors cz__safetensors;

typedef struct cz__safetensors_entry {
    const char *name; /* owned by the header */
    cz_dtype dtype;   /* of types.h */
    int dimensions;
    int64_t shape[CZ_MAX_DIMENSIONS];
    uint64_t begin, end; /* bytes from the beginning of the data */
} cz__safetensors_entry;

/* ---- to write one ---- */

cz_status cz__safetensors_create(cz__safetensors **out); /* CZ_ERR_MEMORY */
void cz__safetensors_destroy(cz__safetensors **header);  /* accepts NULL and *NULL */

/* Append a tensor, whose elements follow those of the one before. CZ_ERR_ARGUMENT: a name that is
 * taken, empty, not UTF-8, "__metadata__"; a bad type or shape. CZ_ERR_STATE: a header that was
 * read. CZ_ERR_MEMORY. Nothing was changed; otherwise addresses of entries are no longer valid,
 * those of names are. */
cz_status cz__safetensors_add(cz__safetensors *header, const char *name, cz_dtype dtype,
                              int dimensions, const int64_t *shape);

/* A text under "__metadata__", instead of the one that is there. CZ_ERR_ARGUMENT: a NULL, not
 * UTF-8; CZ_ERR_STATE, CZ_ERR_MEMORY. Nothing was changed. */
cz_status cz__safetensors_set_metadata(cz__safetensors *header, const char *key, const char *value);

/* The 8 bytes and the header, filled with spaces so that the data begin at a multiple of 64 bytes;
 * the same bytes for the same calls. *bytes is the caller's, for cz__free(). CZ_ERR_MEMORY.
 * CZ_ERR_UNSUPPORTED: longer than the 100 MB that the format allows. CZ_ERR_STATE: a header that
 * was read. */
cz_status cz__safetensors_dump(const cz__safetensors *header, char **bytes, size_t *count);

/* ---- to read one ---- */

/* Read and check the header of an open file: every tensor of a known type, with a shape that gives
 * its bytes, and no gap, overlap or rest in the data. Tensors may stand in any order in the JSON.
 * `path` is for the sentence. CZ_ERR_FORMAT: no safetensors file, or a damaged one: what is wrong,
 * and where. CZ_ERR_UNSUPPORTED: a type that the library does not have. CZ_ERR_IO, CZ_ERR_MEMORY.
 * *out is NULL then. The position in the file is not used. (Where jansson itself is out of memory
 * it may take a text for a wrong one: CZ_ERR_FORMAT.) */
cz_status cz__safetensors_read(cz__safetensors **out, int file, const char *path);

/* The same from memory, which holds the beginning of the file: `count` bytes of `file_bytes`. */
cz_status cz__safetensors_parse(cz__safetensors **out, const char *path, const void *bytes,
                                size_t count, uint64_t file_bytes);

/* Tensors in the order of their data; NULL: no such index, no such name, no such text. Any number
 * of threads may ask at the same time. */
int64_t cz__safetensors_count(const cz__safetensors *header);
const cz__safetensors_entry *cz__safetensors_entry_at(const cz__safetensors *header, int64_t index);
const cz__safetensors_entry *cz__safetensors_find(const cz__safetensors *header, const char *name);
const char *cz__safetensors_metadata(const cz__safetensors *header, const char *key);
/* All of it, texts under texts; NULL: none. Borrowed. */
struct json_t *cz__safetensors_all_metadata(const cz__safetensors *header);

/* Where in the file the data begin, and how many bytes they have; of one that is being written, if
 * it is dumped as it is now. */
uint64_t cz__safetensors_data_begin(const cz__safetensors *header);
uint64_t cz__safetensors_data_bytes(const cz__safetensors *header);

/* ---- for the files that write and read headers ---- */

#define CZ__SAFETENSORS_METADATA "__metadata__"
#define CZ__SAFETENSORS_HEADER_MAX 100000000 /* what the format allows */

struct cz__safetensors {
    cz__safetensors_entry *entries; /* owned; in the order of their data */
    int64_t count, capacity;
    json_t *metadata;    /* owned; NULL: none */
    uint64_t data_bytes; /* at most INT64_MAX, so that every offset is an integer of JSON */

    /* one to be written: what it will be is written down as it grows */
    cz__names names;        /* to indices; each entry owns its name */
    cz__text metadata_json; /* "{…}" */
    cz__text tensors_json;  /* "NAME":{…},"NAME":{…} */

    /* one that was read. Names are from anywhere, so they are sorted: a table can be made slow by
     * who chooses them. */
    bool was_read;
    uint64_t data_begin;
    char *name_bytes;                      /* owned: all names, in the order of the JSON */
    const cz__safetensors_entry **by_name; /* owned */
};

#endif
