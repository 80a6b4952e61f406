/* SPDX-License-Identifier: MIT */
/* Zip files that hold entries as they are, without compression: the container of torch's files.
 * libzip knows the format; elements are read from the file itself, by parts. Without libzip every
 * call is CZ_ERR_UNSUPPORTED. Local. */
#ifndef CZ_IO_CONTAINER_H
#define CZ_IO_CONTAINER_H

#include "io/stream.h"

/* ---- reading ---- */

typedef struct cz__container cz__container;

typedef struct cz__container_entry {
    char *name; /* owned */
    uint64_t bytes;
    uint64_t offset; /* in the file; 0 where there are no bytes */
    uint64_t number; /* libzip's */
    uint32_t crc;
    const char *unusual; /* "compressed" or "encrypted": it cannot be read; NULL: it can */
    int64_t first_sum;   /* of its blocks, among the container's */
    bool verified;       /* those are known */
} cz__container_entry;

/* Does a file begin as a zip file does, and not as a safetensors file whose header has that
 * length? */
static inline bool cz__container_begins(const unsigned char *bytes, size_t count)
{
    return count > 8 && bytes[0] == 'P' && bytes[1] == 'K' && bytes[2] == 3 && bytes[3] == 4 &&
           bytes[8] != '{';
}

/* CZ_ERR_FORMAT: no zip file, a damaged one, two entries of one name, entries that share bytes.
 * CZ_ERR_IO, CZ_ERR_MEMORY, CZ_ERR_UNSUPPORTED. */
cz_status cz__container_open(cz__container **out, const char *path);
/* The same of a part of a file, whose reader is borrowed; places of entries are those in the file.
 * With checksums of the part all that is read is compared with them; NULL: there are none yet.
 * `path` is for sentences. */
cz_status cz__container_open_part(cz__container **out, const char *path, cz__reader *reader,
                                  const cz__verified *part);
/* The same of bytes, which are borrowed, for tests. */
cz_status cz__container_pretend(cz__container **out, const char *path, const void *bytes,
                                size_t count);
void cz__container_close(cz__container **container); /* accepts NULL and *NULL */

/* Entries in the order of their names. */
int64_t cz__container_count(const cz__container *container);
const cz__container_entry *cz__container_at(const cz__container *container, int64_t index);
const cz__container_entry *cz__container_find(const cz__container *container, const char *name);

/* All of an entry of at most `most` bytes, compared with its CRC, with a NUL behind it; *bytes is
 * for cz__free(). */
cz_status cz__container_take(cz__container *container, const cz__container_entry *entry,
                             size_t most, char **bytes);
/* Compare with the CRC, and take the checksums of blocks. */
cz_status cz__container_verify(cz__container *container, const cz__container_entry *entry);
/* Any bytes of an entry, which is verified first if it has not been; they are those that were:
 * CZ_ERR_FORMAT. */
cz_status cz__container_read(cz__container *container, const cz__container_entry *entry,
                             uint64_t offset, void *to, size_t count);

/* Where several verify a share each: zeros in place of the checksums of what is not this one's,
 * then all of them are added up, then each is verified. */
void cz__container_leave(cz__container *container, const cz__container_entry *entry);
uint64_t *cz__container_sums(cz__container *container, int64_t *count);
void cz__container_trust(cz__container *container, const cz__container_entry *entry);

/* ---- writing ---- */

typedef struct cz__container_item {
    char *name; /* borrowed */
    uint64_t bytes;
    /* Gives bytes, one part after the other. */
    cz_status (*read)(uint64_t offset, void *to, size_t count, void *context);
    void *context;
} cz__container_item;

/* Zip files one behind the other in a new file; each has its entries in that order, their bytes at
 * multiples of 64 from its beginning. The same bytes for the same entries. CZ_ERR_IO, also if there
 * is a file of that name; CZ_ERR_MEMORY, CZ_ERR_UNSUPPORTED; what an item gives. */
typedef struct cz__container_row cz__container_row;
cz_status cz__container_row_create(cz__container_row **out, const char *path);
/* One more; where it begins, and its bytes. */
cz_status cz__container_row_add(cz__container_row *row, const cz__container_item *items,
                                int64_t count, uint64_t *begin, uint64_t *bytes);
/* On the medium, closed, and *row NULL; or, after an error, not there. Without it: destroy removes
 * the file. */
cz_status cz__container_row_finish(cz__container_row **row);
void cz__container_row_destroy(cz__container_row **row); /* accepts NULL and *NULL */

/* A file of one. It is not there after an error. */
cz_status cz__container_write(const char *path, const cz__container_item *items, int64_t count);

#endif
